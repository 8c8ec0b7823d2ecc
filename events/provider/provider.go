package provider

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/pawl-dev/pawl/events"
)

// Defaults of the limits.
const (
	webhookMaxBytes    = 1 << 20
	concurrencyDefault = 32
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
// setting is missing or wrong and how to give it, and never shows a value.
func New(d *Description, s Settings) (*Provider, error) {
	if _, err := events.ParseProvider(string(s.Name)); err != nil {
		return nil, err
	}
	if s.Account == "" {
		s.Account = events.DefaultAccount
	}
	s.Credentials, s.WebhookSecrets = maps.Clone(s.Credentials), slices.Clone(s.WebhookSecrets)
	p := &Provider{d: d, s: s, base: s.BaseURL}
	if p.base == "" {
		p.base = d.f.BaseURL
	}
	if p.base == "" {
		return nil, fmt.Errorf("base_url: is required; description %s has none of its own, give e.g. base_url: https://api.example.com", d.f.Name)
	}
	if err := checkBase(p.base); err != nil {
		return nil, fmt.Errorf("base_url: %w", err)
	}
	p.base = strings.TrimRight(p.base, "/")
	if err := p.checkCredentials(); err != nil {
		return nil, err
	}
	if err := p.makeVerifier(); err != nil {
		return nil, fmt.Errorf("webhook_secrets: %w", err)
	}
	f := &d.f
	p.contract = events.Contract{
		Idempotent: f.Idempotency.Tokens, TokenRetention: events.Duration(f.Idempotency.Retention),
		Lookup: f.Lookup != nil, Status: f.Status != nil, Callback: f.Create.Callback && p.verifier != nil,
		RejectAuthoritative: f.Errors.RejectionFinal,
		Result:              f.Result.Value != "" || f.Webhook != nil && f.Webhook.Result != "",
	}
	p.policy = overlayPolicy(events.Policy{PollBase: f.Pacing.PollBase, PollCap: f.Pacing.PollCap, LookupDelay: f.Pacing.LookupDelay}, s.Policy).WithDefaults()
	return p, nil
}

// makeVerifier takes the secrets. Without any, a provider whose description
// does not insist is read by polling alone and its contract has no callback.
func (p *Provider) makeVerifier() error {
	w := p.d.f.Webhook
	switch {
	case w == nil && len(p.s.WebhookSecrets) > 0:
		return fmt.Errorf("description %s has no webhooks", p.d.f.Name)
	case w == nil:
		return nil
	case len(p.s.WebhookSecrets) > 0:
		v, err := NewVerifier(w.Verify.scheme(), p.s.WebhookSecrets)
		p.verifier = v
		return err
	case p.d.f.Status == nil:
		return errors.New("at least one is required, because without a status endpoint webhooks are the only answer; give it as a secret reference, e.g. webhook_secrets: [env:NAME]")
	case w.Required:
		return fmt.Errorf("at least one is required by description %s; give it as a secret reference, e.g. webhook_secrets: [env:NAME]", p.d.f.Name)
	}
	return nil
}

// checkBase wants an origin and a path: query and fragment would swallow what
// is appended, and credentials would end in logs.
func checkBase(base string) error {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" || u.User != nil || strings.ContainsAny(base, "?#") || !headerSafe(base) {
		return fmt.Errorf("want http(s)://host[/path] without credentials, query or fragment, got %.80q", redactUser(base))
	}
	return nil
}

// redactUser hides what stands before an @ or after a question mark.
func redactUser(base string) string {
	base, _, _ = strings.Cut(base, "?")
	if i := strings.LastIndexByte(base, '@'); i >= 0 {
		return "…" + base[i:]
	}
	return base
}

func (p *Provider) checkCredentials() error {
	a := p.d.f.Auth
	for _, name := range slices.Sorted(maps.Keys(p.s.Credentials)) {
		if name != a.Credential {
			known := "none"
			if a.Credential != "" {
				known = a.Credential
			}
			return fmt.Errorf("credentials: %.60q is not known to description %s (known: %s)", name, p.d.f.Name, known)
		}
	}
	if a.Credential == "" {
		return nil
	}
	v := p.s.Credentials[a.Credential]
	if a.Required && v.Empty() {
		return fmt.Errorf("credentials: %s is required by description %s; give it as a secret reference, e.g. %s: env:NAME", a.Credential, p.d.f.Name, a.Credential)
	}
	if s := v.Reveal(); !headerSafe(s) || strings.TrimSpace(s) != s {
		return fmt.Errorf("credentials: %s contains a character that no header takes, or begins or ends with a space", a.Credential)
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
		Cancel: events.Duration(f.Cancel), Confirm: events.Duration(f.Confirm), Collect: events.Duration(f.Collect),
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
		return n
	}
	return concurrencyDefault
}
