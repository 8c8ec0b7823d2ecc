package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-dev/pawl/events"
)

// Defaults of the limits.
const (
	webhookMaxBytes    = 1 << 20
	concurrencyDefault = 32
	urlMaxBytes        = 4096
)

// Settings make a provider of a description: one installation's names, secrets
// and overlays. All but Name are optional as far as the description allows.
type Settings struct {
	Name           events.Provider
	BaseURL        string // http(s)://host[/path]; "" is the description's
	Account        string // "" is events.DefaultAccount
	Credentials    map[string]events.Secret
	WebhookSecrets []events.Secret  // all active; several while one is rotated
	Deadlines      events.Deadlines // overlay
	Policy         events.Policy    // overlay
}

// Provider builds requests to one provider and reads what it says. It is safe
// for concurrent use.
type Provider struct {
	d        *Description
	s        Settings
	base     string
	verifier *Verifier // nil: no webhooks
	contract events.Contract
	policy   events.Policy
}

// New checks the settings against the description. The error says which
// setting is missing or wrong and how to give it.
func New(d *Description, s Settings) (*Provider, error) {
	if _, err := events.ParseProvider(string(s.Name)); err != nil {
		return nil, err
	}
	if s.Account == "" {
		s.Account = events.DefaultAccount
	}
	p := &Provider{d: d, s: s, base: s.BaseURL}
	if p.base == "" {
		p.base = d.f.BaseURL
	}
	if err := checkBase(p.base); err != nil {
		return nil, err
	}
	p.base = strings.TrimRight(p.base, "/")
	if err := p.checkCredentials(); err != nil {
		return nil, err
	}
	if w := d.f.Webhook; w != nil && (len(s.WebhookSecrets) > 0 || d.f.Status == nil) {
		if len(s.WebhookSecrets) == 0 {
			return nil, errors.New("webhook_secrets: at least one is required: without a status endpoint webhooks are the only answer")
		}
		v, err := NewVerifier(Scheme{Preset: w.Verify.Preset, Header: w.Verify.Header, HeaderPrefix: w.Verify.HeaderPrefix, Tolerance: w.Verify.Tolerance}, s.WebhookSecrets)
		if err != nil {
			return nil, fmt.Errorf("webhook_secrets: %w", err)
		}
		p.verifier = v
	}
	f := &d.f
	p.contract = events.Contract{
		Idempotent: f.Idempotency.Tokens, TokenRetention: events.Duration(f.Idempotency.Retention),
		Lookup: f.Lookup != nil, Status: f.Status != nil, Callback: f.Create.Callback && p.verifier != nil,
		Result: f.Status != nil && f.Status.Result != "" || f.Create.Result != "",
	}
	p.policy = overlayPolicy(events.Policy{PollBase: f.Pacing.PollBase, PollCap: f.Pacing.PollCap, LookupDelay: f.Pacing.LookupDelay}, s.Policy).WithDefaults()
	return p, nil
}

func checkBase(base string) error {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("base_url: want http(s)://host[/path] without credentials, query or fragment, got %.80q", redactUser(base))
	}
	return nil
}

// redactUser hides what stands before an @.
func redactUser(base string) string {
	if i := strings.LastIndexByte(base, '@'); i >= 0 {
		return "…" + base[i:]
	}
	return base
}

func (p *Provider) checkCredentials() error {
	a := p.d.f.Auth
	for name := range p.s.Credentials {
		if name != a.Credential {
			known := "none"
			if a.Credential != "" {
				known = a.Credential
			}
			return fmt.Errorf("credentials: %q is not known to this description (known: %s)", name, known)
		}
	}
	if v := p.s.Credentials[a.Credential]; a.Credential != "" {
		if a.Required && v.Empty() {
			return fmt.Errorf("credentials: %s is required; give it as a secret reference, e.g. %s: env:NAME", a.Credential, a.Credential)
		}
		if !headerSafe(v.Reveal()) {
			return fmt.Errorf("credentials: %s contains a control character", a.Credential)
		}
	}
	return nil
}

// overlayPolicy returns base with every non-zero field of o in its place.
func overlayPolicy(base, o events.Policy) events.Policy {
	out := o
	if out.PollBase == 0 {
		out.PollBase = base.PollBase
	}
	if out.PollCap == 0 {
		out.PollCap = base.PollCap
	}
	if out.LookupDelay == 0 {
		out.LookupDelay = base.LookupDelay
	}
	return out
}

// Name is the configured name.
func (p *Provider) Name() events.Provider { return p.s.Name }

// Account is the credential set.
func (p *Provider) Account() string { return p.s.Account }

// Ref names the description and its bytes.
func (p *Provider) Ref() events.DescriptionRef {
	return events.DescriptionRef{Name: p.d.f.Name, SHA256: p.d.sha256}
}

// Contract is what the description declares.
func (p *Provider) Contract() events.Contract { return p.contract }

// Deadlines are the defaults, the description's and the settings', in this
// order.
func (p *Provider) Deadlines() events.Deadlines {
	f := p.d.f.Deadlines
	return events.DefaultDeadlines(p.contract).Overlay(events.Deadlines{
		Create: events.Duration(f.Create), Recon: events.Duration(f.Recon), Result: events.Duration(f.Result),
		Confirm: events.Duration(f.Confirm), Collect: events.Duration(f.Collect),
	}).Overlay(p.s.Deadlines)
}

// Policy is the pacing, with defaults.
func (p *Provider) Policy() events.Policy { return p.policy }

// WebhookMaxBytes bounds a webhook's body.
func (p *Provider) WebhookMaxBytes() int64 {
	if w := p.d.f.Webhook; w != nil && w.MaxBytes > 0 {
		return w.MaxBytes
	}
	return webhookMaxBytes
}

// ConcurrencyMax is how many calls may be out at a time.
func (p *Provider) ConcurrencyMax() int {
	if n := p.d.f.Limits.Concurrency; n > 0 {
		return min(n, 256)
	}
	return concurrencyDefault
}

// CreateInput is what a create request is rendered from.
type CreateInput struct {
	Operation   events.OperationID
	Token       string
	Input       json.RawMessage
	CallbackURL string // "" when the contract has no callback
}

// Create renders the create request: the same input gives the same bytes. An
// input that does not fit gives a *events.FieldError.
func (p *Provider) Create(in CreateInput) (events.Request, error) {
	input, err := decodeJSON(in.Input)
	if err != nil {
		return events.Request{}, &events.FieldError{Field: "input", Reason: err.Error()}
	}
	vars := map[string]any{"op": string(in.Operation), "token": in.Token, "input": input, "callback_url": in.CallbackURL}
	x := &p.d.x
	r, err := p.request(p.d.f.Create.Method, x.createPath, vars)
	if err != nil {
		return events.Request{}, misfit(err)
	}
	for name, t := range x.createHeaders {
		v, err := t.string(vars, func(s string) string { return s })
		if err != nil {
			return events.Request{}, misfit(err)
		}
		if !headerSafe(v) {
			return events.Request{}, &events.FieldError{Field: "input", Reason: fmt.Sprintf("gives header %s a control character", name)}
		}
		r.Header[name] = v
	}
	if x.createBody != nil {
		v, err := x.createBody.render(vars)
		if err != nil {
			return events.Request{}, misfit(err)
		}
		if r.Body, err = encodeJSON(v); err != nil {
			return events.Request{}, misfit(err)
		}
		r.Header["Content-Type"] = "application/json"
	}
	return r, nil
}

// misfit blames the input: everything else was checked when the file was read.
func misfit(err error) error {
	return &events.FieldError{Field: "input", Reason: "does not fit the provider's description: " + err.Error()}
}

func (p *Provider) request(method string, path *text, vars map[string]any) (events.Request, error) {
	rel, err := path.string(vars, url.PathEscape)
	if err != nil {
		return events.Request{}, err
	}
	r := events.Request{Method: method, URL: p.base + rel, Header: map[string]string{"Accept": "application/json"}}
	if len(r.URL) > urlMaxBytes {
		return events.Request{}, fmt.Errorf("url of %d bytes, limit %d", len(r.URL), urlMaxBytes)
	}
	a := p.d.f.Auth
	if v := p.s.Credentials[a.Credential]; !v.Empty() {
		r.SecretHeader, r.SecretValue = a.Header, events.NewSecret(a.Prefix+v.Reveal())
	}
	return r, nil
}

// Status renders the request that reads a job.
func (p *Provider) Status(ref events.RemoteRef) (events.Request, error) {
	if p.d.f.Status == nil {
		return events.Request{}, errors.New("the description has no status endpoint")
	}
	return p.request("GET", p.d.x.statusPath, map[string]any{"job_id": ref.ID})
}

// Lookup renders the request that searches a job by our token.
func (p *Provider) Lookup(op events.OperationID, token string) (events.Request, error) {
	if p.d.f.Lookup == nil {
		return events.Request{}, errors.New("the description has no lookup")
	}
	return p.request("GET", p.d.x.lookupPath, map[string]any{"op": string(op), "token": token})
}

// RequestSHA256 is the hash, in hex, of what a request asks: method, URL,
// headers and body; never the credential, the budget or the timeout.
func RequestSHA256(r events.Request) string {
	h := sha256.New()
	line := func(s string) {
		_, _ = io.WriteString(h, strconv.Itoa(len(s))+":"+s+"\n") // a hash never fails
	}
	line(r.Method)
	line(r.URL)
	for _, k := range slices.Sorted(maps.Keys(r.Header)) {
		line(k)
		line(r.Header[k])
	}
	line(string(r.Body))
	return hex.EncodeToString(h.Sum(nil))
}

func headerSafe(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f })
}

// decodeJSON reads a body strictly and keeps every digit of its numbers.
func decodeJSON(data []byte) (any, error) {
	if err := events.CheckJSON(data); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}

// encodeJSON writes a value in one fixed form: sorted keys, no HTML escapes.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
