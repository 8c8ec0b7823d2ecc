package provider

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/pawl-dev/pawl/events"
)

//go:embed *.yaml
var shipped embed.FS

// Bounds of what a description may set.
const (
	concurrencyMax = 1024
	bodyMaxBytes   = 64 << 20
)

// Builtins lists the shipped descriptions, sorted.
func Builtins() []string {
	files, _ := fs.Glob(shipped, "*.yaml") // the pattern is constant and valid
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	return files
}

// Builtin returns the bytes of a shipped description, or an error that wraps
// events.ErrNotFound.
func Builtin(name string) ([]byte, error) {
	if !slices.Contains(Builtins(), name) {
		return nil, fmt.Errorf("description %.40q: %w", name, events.ErrNotFound)
	}
	return shipped.ReadFile(name + ".yaml")
}

// Description is a checked file with every expression compiled. It is read-only
// and safe for concurrent use.
type Description struct {
	f      file
	sha256 string
	x      expressions
	states map[string]events.RemoteState // of answers
	pushed map[string]events.RemoteState // of webhooks
}

// Name is the description's own name.
func (d *Description) Name() string { return d.f.Name }

// Parse reads a description strictly. The error is a *SyntaxError that says line
// and column, and what was expected there. name is only shown.
func Parse(name string, data []byte) (*Description, error) {
	s, err := parseSource(name, data)
	if err != nil {
		return nil, err
	}
	d := &Description{sha256: events.HexSHA256(data)}
	if err := yaml.UnmarshalWithOptions(data, &d.f, yaml.Strict()); err != nil {
		return nil, yamlError(name, err)
	}
	for _, check := range []func(*source) error{d.checkTop, d.checkCreate, d.checkReads, d.checkStates, d.checkWebhook} {
		if err := check(s); err != nil {
			return nil, err
		}
	}
	if d.x, err = compileAll(s, &d.f); err != nil {
		return nil, err
	}
	return d, nil
}

// checkTop and the checks after it apply the rules that the shape does not.
func (d *Description) checkTop(s *source) error {
	f := &d.f
	switch {
	case f.Version != 1:
		return s.at(path{"version"}, "version is %d, want 1", f.Version)
	case f.Name == "" || len(f.Name) > 64:
		return s.at(path{"name"}, "name is required, 1 to 64 characters")
	case f.BaseURL != "" && checkBase(f.BaseURL) != nil:
		return s.at(path{"base_url"}, "%s", checkBase(f.BaseURL))
	case f.Auth.Credential == "" && f.Auth != (authFile{}):
		return s.at(path{"auth"}, "auth needs credential: the name under which its value is configured")
	case f.Auth.Credential != "" && !headerName(f.Auth.Header):
		return s.at(path{"auth", "header"}, "auth.header %.40q, want the name of a header such as Authorization", f.Auth.Header)
	case !headerSafe(f.Auth.Prefix):
		return s.at(path{"auth", "prefix"}, "auth.prefix holds a character that no header takes")
	case f.Limits.Concurrency < 0 || f.Limits.Concurrency > concurrencyMax:
		return s.at(path{"limits", "concurrency"}, "concurrency is %d, want 1 to %d", f.Limits.Concurrency, concurrencyMax)
	case f.Idempotency.Retention != 0 && !f.Idempotency.Tokens:
		return s.at(path{"idempotency", "retention"}, "retention without tokens: true says nothing")
	case f.Idempotency.Mismatch != "" && !f.Idempotency.Tokens:
		return s.at(path{"idempotency", "mismatch"}, "mismatch without tokens: true says nothing")
	}
	return nil
}

func (d *Description) checkCreate(s *source) error {
	c := &d.f.Create
	if c.Method == "" {
		c.Method = "POST"
	}
	switch {
	case !slices.Contains([]string{"POST", "PUT", "PATCH"}, c.Method):
		return s.at(path{"create", "method"}, "method %.20q, want POST, PUT or PATCH", c.Method)
	case !strings.HasPrefix(c.Path, "/"):
		return s.at(path{"create", "path"}, "create.path is required and begins with '/'")
	case c.ID == "":
		return s.at(path{"create"}, "create.id is required: where the answer names the job, e.g. ${body.id}")
	case c.Final != "" && c.State == "":
		return s.at(path{"create", "final"}, "create.final needs create.state")
	case c.Callback && d.f.Webhook == nil:
		return s.at(path{"create", "callback"}, "callback: true needs webhook: how what comes back is verified and read")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		at := path{"create", "headers", name}
		switch {
		case !headerName(name):
			return s.at(at, "header name %.40q, want letters, digits and '-'", name)
		case seen[canonical]:
			return s.at(at, "header %s appears twice", canonical)
		case slices.Contains(reservedHeaders, canonical):
			return s.at(at, "header %s is set by the sender of the request", canonical)
		case strings.EqualFold(name, d.f.Auth.Header):
			return s.at(at, "header %s carries the credential, see auth", canonical)
		}
		seen[canonical] = true
	}
	return nil
}

// reservedHeaders frame a request or are set by this package.
var reservedHeaders = []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Cookie", "Expect", "Host", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (d *Description) checkReads(s *source) error {
	f := &d.f
	switch {
	case f.Status == nil && f.Webhook == nil:
		return s.at(nil, "status or webhook is required: without either no outcome is ever learned")
	case f.Lookup != nil && (!strings.HasPrefix(f.Lookup.Path, "/") || f.Lookup.Found == "" || f.Lookup.Absent == ""):
		return s.at(path{"lookup"}, "lookup needs path (begins with '/'), found (a list of ids) and absent (what proves that there is none)")
	case f.Status != nil && (!strings.HasPrefix(f.Status.Path, "/") || f.Status.State == ""):
		return s.at(path{"status"}, "status needs path (begins with '/') and state")
	case f.Result.Value != "" && f.Status == nil && f.Create.Final == "":
		return s.at(path{"result"}, "result.value is read from status answers; without status use webhook.result")
	}
	return nil
}

func (d *Description) checkStates(s *source) error {
	common, err := stateMap(s, path{"states"}, d.f.States)
	if err != nil {
		return err
	}
	d.states, d.pushed = common, common
	if st := d.f.Status; st != nil && len(st.States) > 0 {
		if d.states, err = stateMap(s, path{"status", "states"}, st.States); err != nil {
			return err
		}
	}
	if w := d.f.Webhook; w != nil && len(w.States) > 0 {
		if d.pushed, err = stateMap(s, path{"webhook", "states"}, w.States); err != nil {
			return err
		}
	}
	if len(d.states) == 0 || d.f.Webhook != nil && len(d.pushed) == 0 {
		return s.at(path{"states"}, "states is required: the provider's words and what they mean")
	}
	return nil
}

func stateMap(s *source, at path, words map[string]string) (map[string]events.RemoteState, error) {
	out := make(map[string]events.RemoteState, len(words))
	for _, word := range slices.Sorted(maps.Keys(words)) {
		state := events.RemoteState(words[word])
		if !state.Valid() {
			return nil, s.at(at.at(word), "state %.40q, want queued, running, cancelling, succeeded, failed or cancelled", words[word])
		}
		out[word] = state
	}
	return out, nil
}

func (d *Description) checkWebhook(s *source) error {
	w := d.f.Webhook
	if w == nil {
		return nil
	}
	switch {
	case w.JobID == "" || w.State == "" || w.Dedup == "":
		return s.at(path{"webhook"}, "webhook needs job_id, state and dedup (what makes a delivery unique)")
	case w.Result != "" && d.f.Status != nil:
		return s.at(path{"webhook", "result"}, "with a status endpoint the result is read there, see result.value")
	case w.MaxBytes < 0 || w.MaxBytes > bodyMaxBytes:
		return s.at(path{"webhook", "max_bytes"}, "max_bytes is %d, want 1 to %d", w.MaxBytes, bodyMaxBytes)
	case w.Ack.Status != 0 && (w.Ack.Status < 200 || w.Ack.Status > 299):
		return s.at(path{"webhook", "ack", "status"}, "ack.status is %d, want 200 to 299", w.Ack.Status)
	case !headerSafe(w.Ack.ContentType):
		return s.at(path{"webhook", "ack", "content_type"}, "content_type holds a character that no header takes")
	}
	if err := w.Verify.scheme().check(); err != nil {
		return s.at(path{"webhook", "verify"}, "%s", err)
	}
	return nil
}

func (v verifyFile) scheme() Scheme {
	return Scheme(v).withDefaults()
}

// withDefaults fills what a scheme leaves open.
func (s Scheme) withDefaults() Scheme {
	if s.Preset == PresetStandardWebhooks {
		if s.HeaderPrefix == "" {
			s.HeaderPrefix = "webhook-"
		}
		if s.Tolerance == 0 {
			s.Tolerance = 5 * time.Minute
		}
	}
	return s
}

// check says what is wrong with a scheme.
func (s Scheme) check() error {
	switch {
	case s.Preset != PresetStandardWebhooks && s.Preset != PresetHub:
		return fmt.Errorf("preset %.40q is not known; known are %s and %s", s.Preset, PresetStandardWebhooks, PresetHub)
	case s.Preset == PresetHub && !headerName(s.Header):
		return fmt.Errorf("preset hub needs header, e.g. X-Hub-Signature-256, got %.40q", s.Header)
	case s.Preset == PresetHub && (s.HeaderPrefix != "" || s.Tolerance != 0):
		return fmt.Errorf("preset hub signs no time: it takes neither header_prefix nor tolerance")
	case s.Preset == PresetStandardWebhooks && (s.Header != "" || !headerName(s.HeaderPrefix+"id")):
		return fmt.Errorf("preset standard_webhooks takes header_prefix, e.g. webhook- or svix-")
	case s.Tolerance < 0:
		return fmt.Errorf("tolerance is negative")
	}
	return nil
}
