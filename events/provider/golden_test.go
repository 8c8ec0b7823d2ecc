package provider

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Without these goldens a change of a description or of the rendering would
// change what is asked of a provider, and operations in flight would stop with
// "request changed".

var update = flag.Bool("update", false, "write the golden files")

var testNow = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func parse(t testing.TB, file string, data []byte) *Description {
	t.Helper()
	d, err := Parse(file, data)
	if err != nil {
		t.Fatalf("want %s to parse, got %v", file, err)
	}
	return d
}

func builtin(t testing.TB, name string) *Description {
	t.Helper()
	data, err := Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, name+".yaml", data)
}

const standardSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// made builds a provider with everything that its description can take.
func made(t testing.TB, d *Description) *Provider {
	t.Helper()
	s := Settings{Name: "p1", BaseURL: d.f.BaseURL, Credentials: map[string]events.Secret{}}
	if s.BaseURL == "" {
		s.BaseURL = "https://jobs.example.com"
	}
	if c := d.f.Auth.Credential; c != "" {
		s.Credentials[c] = events.NewSecret("very-secret-token")
	}
	if d.f.Webhook != nil {
		s.WebhookSecrets = []events.Secret{events.NewSecret(standardSecret)}
	}
	p, err := New(d, s)
	if err != nil {
		t.Fatalf("want a provider, got %v", err)
	}
	return p
}

func payload(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "payloads", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type goldenRequest struct {
	Method, URL  string
	Header       map[string]string
	SecretHeader string
	Body         json.RawMessage `json:",omitempty"`
	SHA256       string
}

func seen(t *testing.T, r events.Request, err error) goldenRequest {
	t.Helper()
	if err != nil {
		t.Fatalf("want a request, got %v", err)
	}
	if !r.SecretValue.Empty() && r.SecretValue.Reveal() != "Bearer very-secret-token" {
		t.Errorf("want the credential with its prefix, got something else")
	}
	return goldenRequest{r.Method, r.URL, r.Header, r.SecretHeader, r.Body, RequestSHA256(r)}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, input, id string
		create, status  []string // payloads
		webhook         []string
		webhookHeader   Header
	}{
		{
			name: "generic", input: `{"rows":9007199254740993,"html":"<a&b>","ratio":0.10}`, id: "job_7",
			create: []string{"generic-create"}, status: []string{"generic-running", "generic-succeeded", "generic-failed"}, webhook: []string{"generic-webhook"},
		},
		{
			name: "replicate-prediction", input: `{"version":"5c7d5dc6","input":{"text":"Alice","seed":17454220438242315174}}`, id: "ufawqhfynnddngldkgtslldrkq",
			create:  []string{"replicate-create-starting"},
			status:  []string{"replicate-processing", "replicate-cancel-canceled", "replicate-get"},
			webhook: []string{"replicate-webhook-starting", "replicate-cancel-canceled", "replicate-get"}, webhookHeader: Header{"Webhook-Id": {"msg_1"}},
		},
		{name: "searchable", input: `{"kind":"report"}`, id: "1", status: []string{"searchable-partial", "searchable-failed"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := described(t, c.name)
			out := map[string]any{"contract": p.Contract(), "deadlines": p.Deadlines()}
			in := CreateInput{Operation: "op_1", Token: "op_1", Input: json.RawMessage(c.input), CallbackURL: "https://pawl.example.com/webhooks/p1/op_1/mac"}
			r, err := p.Create(in)
			out["request create"] = seen(t, r, err)
			in.CallbackURL = ""
			r, err = p.Create(in)
			out["request create without callback"] = seen(t, r, err)
			r, err = p.Status(events.RemoteRef{ID: "a/b?c#d e"})
			out["request status"] = seen(t, r, err)
			if p.Contract().Lookup {
				r, err = p.Lookup("op_1", "op&1=x y")
				out["request lookup"] = seen(t, r, err)
			}
			for _, name := range c.create {
				out["create "+name] = p.ReadCreate(events.Response{Status: 201, Body: payload(t, name)}, testNow)
			}
			for _, name := range c.status {
				a := p.ReadStatus(events.RemoteRef{ID: c.id}, events.Response{Status: 200, Body: payload(t, name)}, testNow)
				if a.Kind != StatusRead { // recorded for another job
					id := map[string]string{"replicate-get": "rrr4z55ocneqzikepnug6xezpe"}[name]
					a = p.ReadStatus(events.RemoteRef{ID: id}, events.Response{Status: 200, Body: payload(t, name)}, testNow)
				}
				out["status "+name] = a
			}
			for _, name := range c.webhook {
				w, err := p.ReadWebhook(c.webhookHeader, payload(t, name))
				if err != nil {
					t.Fatalf("read webhook %s: %v", name, err)
				}
				out["webhook "+name] = w
			}
			golden(t, c.name, out)
		})
	}
}

// described is a shipped description, or one of testdata.
func described(t testing.TB, name string) *Provider {
	t.Helper()
	if _, err := Builtin(name); err == nil {
		return made(t, builtin(t, name))
	}
	file := filepath.Join("testdata", name+".yaml")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return made(t, parse(t, file, data))
}

func golden(t *testing.T, name string, v any) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b.Bytes(), []byte("very-secret")) {
		t.Error("want no credential outside SecretValue, got one")
	}
	file := filepath.Join("testdata", "golden", name+".json")
	if *update {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s: want\n%s\ngot\n%s", file, want, b.Bytes())
	}
}
