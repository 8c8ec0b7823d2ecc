package provider

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pawl-dev/pawl/events"
)

// Without places in its errors a description is debugged by guessing; without
// strictness a misspelt key silently takes a promise away.

const smallest = `version: 1
name: small
create:
  path: /jobs
  id: ${body.id}
status:
  path: /jobs/${job_id}
  state: ${body.state}
states: {done: succeeded}
`

// with is the smallest description with one thing changed.
func with(old, new string) string {
	if !strings.Contains(smallest, old) {
		panic("not in the description: " + old)
	}
	return strings.Replace(smallest, old, new, 1)
}

func hook(more string) string {
	return smallest + "webhook:\n  job_id: ${body.id}\n  state: ${body.s}\n  dedup: ${body.d}\n" + more
}

var wrongDescriptions = []struct{ name, text string }{
	{"empty", ""},
	{"no mapping", "- a\n"},
	{"two documents", smallest + "---\na: 1\n"},
	{"not YAML", "a: [1\n"},
	{"tab", "version: 1\n\tname: x\n"},
	{"unknown key", with("  id:", "  job: x\n  id:")},
	{"unknown top key", smallest + "cancle: {}\n"},
	{"key twice", with("name: small", "name: small\nname: other")},
	{"number for text", with("name: small", "name: 5")},
	{"text for number", with("version: 1", "version: one")},
	{"text for switch", with("  path: /jobs\n", "  path: /jobs\n  callback: maybe\n")},
	{"text for mapping", smallest + "limits: many\n"},
	{"nothing for mapping", smallest + "limits:\n"},
	{"list for mapping", with("states: {done: succeeded}", "states: [done]")},
	{"duration", smallest + "deadlines: {create: 15}\n"},
	{"negative duration", smallest + "deadlines: {create: -1s}\n"},
	{"anchor", with("name: small", "name: &a small")},
	{"alias", with("name: small", "name: *a")},
	{"merge", smallest + "limits:\n  <<: {concurrency: 1}\n"},
	{"tag", with("name: small", "name: !!str small")},
	{"version", with("version: 1", "version: 2")},
	{"name", with("name: small", `name: ""`)},
	{"base", smallest + "base_url: https://user:pw@example.com?x=1\n"},
	{"auth without credential", smallest + "auth: {header: Authorization}\n"},
	{"auth header", smallest + "auth: {credential: c, header: 'a b'}\n"},
	{"method", with("  path: /jobs\n", "  path: /jobs\n  method: GET\n")},
	{"create path", with("path: /jobs\n", "path: jobs\n")},
	{"create id", with("  id: ${body.id}\n", "")},
	{"header name", with("  path: /jobs\n", "  path: /jobs\n  headers: {'A B': x}\n")},
	{"header framing", with("  path: /jobs\n", "  path: /jobs\n  headers: {content-length: '1'}\n")},
	{"header twice", with("  path: /jobs\n", "  path: /jobs\n  headers: {a: x, A: y}\n")},
	{"callback without webhook", with("  path: /jobs\n", "  path: /jobs\n  callback: true\n")},
	{"no way to learn", "version: 1\nname: x\ncreate: {path: /a, id: '${body.id}'}\nstates: {a: queued}\n"},
	{"state", with("succeeded", "finished")},
	{"no states", with("{done: succeeded}", "{}")},
	{"lookup", smallest + "lookup: {path: /x}\n"},
	{"preset", hook("  verify: {preset: stripe}\n")},
	{"hub header", hook("  verify: {preset: hub}\n")},
	{"no verify", hook("")},
	{"ack", hook("  verify: {preset: standard_webhooks}\n  ack: {status: 302}\n")},
	{"result of webhook", hook("  verify: {preset: standard_webhooks}\n  result: ${body.r}\n")},
	{"retention", smallest + "idempotency: {retention: 1h}\n"},
	{"undeclared", with("${body.state}", "${ bdy.state }")},
	{"undeclared in quotes", with("${body.state}", `"${ bdy.state }"`)},
	{"undeclared in a block", with("${body.state}", "|-\n    ${ body.a +\n       nope }")},
	{"undeclared in a template", with("  id:", "  body: {a: [x, '${inptu.y}']}\n  id:")},
	{"token in a status", with("${job_id}", "${token}")},
	{"secret", with("${body.state}", "${secrets.api_token}")},
	{"status in a webhook", strings.Replace(hook("  verify: {preset: standard_webhooks}\n"), "${body.s}", "${status}", 1)},
	{"no end", with("${body.state}", "${body.state")},
	{"half an expression", with("${body.state}", "${body.}")},
	{"not one expression", with("${body.state}", "x${body.state}")},
	{"type", with("${body.state}", "${[1]}")},
	{"condition", with("  id:", "  state: ${body.s}\n  final: ${'yes'}\n  id:")},
	{"comparison", with("${body.state}", `"${status > 'x' ? 'a' : 'b'}"`)},
	{"nesting", with("${body.state}", `"${ string([1].map(a, [1].map(b, [1].map(c, a)))[0][0][0]) }"`)},
	{"long expression", with("${body.state}", "${'"+strings.Repeat("a", expressionMaxBytes)+"'}")},
	{"deep expression", with("${body.state}", "'${"+strings.Repeat("(", 100)+"1"+strings.Repeat(")", 100)+"}'")},
	{"brackets", "a: " + strings.Repeat("[", bracketsMax+1)},
	{"size", strings.Repeat("#", descriptionMaxBytes+1)},
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, c := range wrongDescriptions {
		_, err := Parse("small.yaml", []byte(c.text))
		var se *SyntaxError
		if !errors.As(err, &se) {
			t.Errorf("%s: want a *SyntaxError, got %v", c.name, err)
			continue
		}
		if se.Line == 0 && c.name != "size" && c.name != "brackets" {
			t.Errorf("%s: want a place, got none: %v", c.name, err)
		}
		fmt.Fprintf(&b, "%s\n    %s\n", c.name, strings.ReplaceAll(err.Error(), "\n", `\n`))
	}
	file := filepath.Join("testdata", "golden", "errors.txt")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("want\n%s\ngot\n%s", want, b.String())
	}
}

func TestBuiltins(t *testing.T) {
	t.Parallel()
	for _, name := range Builtins() {
		if d := builtin(t, name); d.Name() != name {
			t.Errorf("want the name of the file, %s, got %s", name, d.Name())
		}
	}
	if _, err := Builtin("../golden_test"); !errors.Is(err, events.ErrNotFound) {
		t.Errorf("want ErrNotFound, got %v", err)
	}
}

// TestDocExample keeps the example of the package documentation true.
func TestDocExample(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "# A complete description")
	text, _, _ = strings.Cut(text, "# Expressions")
	var example strings.Builder
	for line := range strings.Lines(text) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(text)
		}
	}
	made(t, parse(t, "doc.go", []byte(example.String())))
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	token := map[string]events.Secret{"api_token": events.NewSecret("t")}
	push := []events.Secret{events.NewSecret(standardSecret)}
	pushOnly := parse(t, "push.yaml", []byte("version: 1\nname: push\nbase_url: https://x.example.com\ncreate: {path: /a, id: '${body.id}'}\nstates: {a: succeeded}\nwebhook: {verify: {preset: standard_webhooks}, job_id: '${body.id}', state: '${body.s}', dedup: '${body.d}', result: '${body.r}'}\n"))
	mustPush := parse(t, "must.yaml", []byte(smallest+"base_url: https://x.example.com\nwebhook: {required: true, verify: {preset: standard_webhooks}, job_id: '${body.id}', state: '${body.s}', dedup: '${body.d}'}\n"))
	small := parse(t, "small.yaml", []byte(smallest))
	cases := []struct {
		name string
		d    *Description
		s    Settings
		want string // part of the error; "" for none
	}{
		{"complete", builtin(t, "replicate-prediction"), Settings{Name: "r", Credentials: token, WebhookSecrets: push}, ""},
		{"polling only", builtin(t, "replicate-prediction"), Settings{Name: "r", Credentials: token}, ""},
		{"optional credential", builtin(t, "generic"), Settings{Name: "g", BaseURL: "http://127.0.0.1:80/x/"}, ""},
		{"name", small, Settings{Name: "A_B", BaseURL: "http://h"}, "provider"},
		{"no base", small, Settings{Name: "g"}, "base_url: is required"},
		{"missing credential", builtin(t, "replicate-prediction"), Settings{Name: "r"}, "api_token is required by description replicate-prediction; give it"},
		{"empty credential", builtin(t, "replicate-prediction"), Settings{Name: "r", Credentials: map[string]events.Secret{"api_token": {}}}, "api_token is required"},
		{"unknown credential", builtin(t, "generic"), Settings{Name: "g", BaseURL: "http://h", Credentials: map[string]events.Secret{"api_tokn": {}}}, `"api_tokn" is not known to description generic (known: api_token)`},
		{"credential with a line", builtin(t, "generic"), Settings{Name: "g", BaseURL: "http://h", Credentials: map[string]events.Secret{"api_token": events.NewSecret("hush\r\nX: y")}}, "no header takes"},
		{"credential with a newline", builtin(t, "generic"), Settings{Name: "g", BaseURL: "http://h", Credentials: map[string]events.Secret{"api_token": events.NewSecret("hush ")}}, "ends with a space"},
		{"bad secret", builtin(t, "replicate-prediction"), Settings{Name: "r", Credentials: token, WebhookSecrets: []events.Secret{events.NewSecret("whsec_hush!")}}, "webhook_secrets: secret 1 is not whsec_ and base64"},
		{"secret without webhooks", small, Settings{Name: "s", BaseURL: "http://h", WebhookSecrets: push}, "has no webhooks"},
		{"push only", pushOnly, Settings{Name: "p"}, "webhook_secrets: at least one is required"},
		{"required secret", mustPush, Settings{Name: "p"}, "webhook_secrets: at least one is required by description small"},
	}
	for _, base := range []string{"ftp://h", "h", "http://", "http://:80", "http://h?", "http://h#", "http://h?q=hush", "http://u:hush@h", "http://h/\r\n", "http://[::1"} {
		cases = append(cases, struct {
			name string
			d    *Description
			s    Settings
			want string
		}{"base " + base, small, Settings{Name: "s", BaseURL: base}, "base_url: want http(s)://"})
	}
	for _, c := range cases {
		_, err := New(c.d, c.s)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: want none, got %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: want %q, got %v", c.name, c.want, err)
		case err != nil && strings.Contains(err.Error(), "hush"):
			t.Errorf("%s: want no secret in the error, got %v", c.name, err)
		}
	}
}

func TestContractAndOverlays(t *testing.T) {
	t.Parallel()
	d := builtin(t, "generic")
	s := Settings{Name: "g", BaseURL: "http://h", Deadlines: events.Deadlines{Result: 7}, Policy: events.Policy{PollBase: 9}}
	p, err := New(d, s)
	if err != nil {
		t.Fatal(err)
	}
	if p.Contract().Callback {
		t.Error("want no callback without a webhook secret, got one")
	}
	if _, err := p.Verify(Header{}, nil, testNow); !errors.Is(err, ErrNoWebhookSecret) {
		t.Errorf("want ErrNoWebhookSecret, got %v", err)
	}
	s.WebhookSecrets = []events.Secret{events.NewSecret("x")}
	if p, err = New(d, s); err != nil || !p.Contract().Callback {
		t.Errorf("want a callback with a webhook secret, got %v", err)
	}
	if p.Deadlines().Result != 7 || p.Deadlines().Create == 0 || p.Policy().PollBase != 9 || p.Policy().PollCap == 0 {
		t.Errorf("want overlays over defaults, got %+v %+v", p.Deadlines(), p.Policy())
	}
	if p.Account() != events.DefaultAccount || p.WebhookMaxBytes() != 1<<20 || p.ConcurrencyMax() != 32 {
		t.Errorf("want the defaults, got %s %d %d", p.Account(), p.WebhookMaxBytes(), p.ConcurrencyMax())
	}
	data, _ := Builtin("generic") // shipped, see TestBuiltins
	if want := (events.DescriptionRef{Name: "generic", SHA256: events.HexSHA256(data)}); p.Ref() != want {
		t.Errorf("want %v, got %v", want, p.Ref())
	}
	if status, ct, body := p.Ack(); status != 200 || ct != "text/plain; charset=utf-8" || string(body) != "ok" {
		t.Errorf("want the default ack, got %d %s %q", status, ct, body)
	}
	if q := described(t, "searchable"); q.ConcurrencyMax() != 4 {
		t.Errorf("want 4, got %d", q.ConcurrencyMax())
	}
}
