package provider

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pawl-dev/pawl/events"
)

const urlMaxBytes = 4096

// CreateInput is what a create request is rendered from.
type CreateInput struct {
	Operation   events.OperationID
	Token       string
	Input       json.RawMessage
	CallbackURL string // "" when the contract has no callback
}

// Create renders the create request: the same input gives the same bytes. An
// input that does not fit gives a *events.FieldError that names the field.
func (p *Provider) Create(in CreateInput) (events.Request, error) {
	input, err := decodeJSON(in.Input)
	var field *events.FieldError
	if errors.As(err, &field) {
		return events.Request{}, &events.FieldError{Field: strings.TrimSuffix("input."+field.Field, "."), Reason: field.Reason}
	} else if err != nil {
		return events.Request{}, &events.FieldError{Field: "input", Reason: err.Error()}
	}
	vars := map[string]any{"op": string(in.Operation), "token": in.Token, "input": input, "callback_url": in.CallbackURL}
	x := &p.d.x
	r, err := p.request(p.d.f.Create.Method, x.createPath, vars)
	if err != nil {
		return events.Request{}, misfit(err, input)
	}
	for _, name := range slices.Sorted(maps.Keys(x.createHeaders)) {
		v, err := x.createHeaders[name].value(vars)
		if err != nil {
			return events.Request{}, misfit(err, input)
		}
		if !headerSafe(v) {
			return events.Request{}, &events.FieldError{Field: "input", Reason: fmt.Sprintf("gives header %s a character that no header takes", name)}
		}
		if v != "" {
			r.Header[name] = v
		}
	}
	if x.createBody == nil {
		return r, nil
	}
	v, err := x.createBody.render(vars)
	if err == nil {
		r.Body, err = encodeJSON(v)
	}
	if err != nil {
		return events.Request{}, misfit(err, input)
	}
	r.Header["Content-Type"] = "application/json"
	return r, nil
}

// value is the text of a header, "" for a nil text.
func (t *text) value(vars map[string]any) (string, error) {
	if t == nil {
		return "", nil
	}
	return t.string(vars)
}

// misfit blames the input: everything else was checked when the file was read.
// Where the expression reads a field that is not there, that field is named.
func misfit(err error, input any) error {
	var e *evalError
	if errors.As(err, &e) {
		for _, chain := range e.p.inputs {
			if name, reason := missing(input, chain); name != "" {
				return &events.FieldError{Field: name, Reason: fmt.Sprintf("%s: the provider's description reads it for %s", reason, e.p.at)}
			}
		}
	}
	return &events.FieldError{Field: "input", Reason: "does not fit the provider's description: " + err.Error()}
}

// missing follows a chain of keys and returns the first that is not there.
func missing(input any, chain []string) (name, reason string) {
	at := "input"
	for _, key := range chain {
		object, ok := input.(map[string]any)
		if !ok {
			return at, "must be an object"
		}
		at += "." + key
		if input, ok = object[key]; !ok {
			return at, "is required"
		}
	}
	return "", ""
}

// request begins a request. The credential is beside the headers, never in them.
func (p *Provider) request(method string, at *text, vars map[string]any) (events.Request, error) {
	rel, err := at.url(vars)
	if err != nil {
		return events.Request{}, err
	}
	r := events.Request{Method: method, URL: p.base + rel, Header: map[string]string{"Accept": "application/json"}}
	if len(r.URL) > urlMaxBytes {
		return events.Request{}, fmt.Errorf("url of %d bytes, want at most %d", len(r.URL), urlMaxBytes)
	}
	a := p.d.f.Auth
	if v := p.s.Credentials[a.Credential]; !v.Empty() {
		r.SecretHeader, r.SecretValue = a.Header, events.NewSecret(a.Prefix+v.Reveal())
	}
	return r, nil
}

// Status renders the request that reads a job. It fails when the description
// has no status endpoint, or when the id cannot stand in a URL.
func (p *Provider) Status(ref events.RemoteRef) (events.Request, error) {
	if p.d.f.Status == nil {
		return events.Request{}, errors.New("the description has no status endpoint")
	}
	return p.request("GET", p.d.x.statusPath, map[string]any{"job_id": ref.ID})
}

// Lookup renders the request that searches a job by our token. It fails when
// the description has no look-up.
func (p *Provider) Lookup(op events.OperationID, token string) (events.Request, error) {
	if p.d.f.Lookup == nil {
		return events.Request{}, errors.New("the description has no lookup")
	}
	return p.request("GET", p.d.x.lookupPath, map[string]any{"op": string(op), "token": token})
}

// RequestSHA256 is the hash, in hex, of what a request asks: method, URL,
// headers and body; never the credential, the budget or the timeout. Take it
// before anything that is not asked, such as a trace id, is added.
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

// headerSafe reports whether a value may stand in a header: printable ASCII.
// Anything else is read differently by different servers.
func headerSafe(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

func headerName(v string) bool {
	return v != "" && len(v) <= 64 && !strings.ContainsFunc(v, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}
