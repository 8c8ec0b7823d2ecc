package api_test

// What goes wrong without the API's care: a read right after a 202 says 404, a
// repeated key starts a second operation or hides a different request, an error
// repeats the caller's input, a foreign page submits, a caller acts on a state
// that nobody announced.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/ingress/api"
	"github.com/pawl-dev/pawl/streams"
)

var (
	quiet    = slog.New(slog.DiscardHandler)
	server   *streams.Embedded
	prefixes atomic.Int64 // each test has streams of its own on the one server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if server, err = streams.StartEmbedded(streams.EmbeddedConfig{Dir: dir, Logger: quiet, Relaxed: true}); err != nil {
		panic(err)
	}
	defer server.Shutdown()
	return m.Run()
}

// door stores intents as the real one does, without rendering anything.
func (f *fixture) door(ctx context.Context, data []byte, p events.Provider, fallback events.OperationID) (events.Receipt, error) {
	intent, err := events.ParseIntent(data, p, fallback)
	if err != nil {
		return events.Receipt{}, err
	}
	fingerprint, err := intent.Fingerprint()
	if err != nil {
		return events.Receipt{}, err
	}
	claim, _ := events.NewULID(time.Now(), strings.NewReader("0123456789"))
	got, err := f.store.Decide(ctx, 0, events.Event{
		ID: "p:" + string(intent.OperationID), Subject: events.OperationSubject(intent.Provider, intent.OperationID),
		Time: time.Now().UTC(), Actor: "anna", Claim: claim,
		Data: &events.Prepared{
			Intent: intent, Fingerprint: fingerprint, Token: string(intent.OperationID), RequestSHA256: "00",
			Deadlines: events.DefaultDeadlines(events.Contract{}),
		},
	})
	if err != nil {
		return events.Receipt{}, err
	}
	r := events.Receipt{OperationID: intent.OperationID, Provider: intent.Provider, Seq: got.Seq}
	if got.Outcome == events.Fenced {
		if got.Winner.Event.Data.(*events.Prepared).Fingerprint != fingerprint {
			return r, &events.RefusedError{Kind: events.RefusedMismatch, Operation: intent.OperationID, Field: "operation_id", Reason: "other request"}
		}
		r.Replayed = true
	}
	return r, nil
}

func (f *fixture) find(ctx context.Context, op events.OperationID) (events.Provider, error) {
	s, _, err := f.store.FindOperation(ctx, op)
	return s.Provider, err
}

type fixture struct {
	*testing.T
	store   *streams.Store
	handler http.Handler
	index   *api.Index
}

func setUp(t *testing.T, change ...func(*api.Config)) *fixture {
	t.Helper()
	f := &fixture{T: t, index: api.NewIndex()}
	nc, err := server.Dial(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	f.store, err = streams.Open(t.Context(), nc, streams.Config{
		Prefix: fmt.Sprintf("t%d", prefixes.Add(1)), EventsMaxBytes: 32 << 20, IntentsMaxBytes: 16 << 20, JobsMaxBytes: 16 << 20, ObjectsMaxBytes: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.store.Close() })
	cfg := api.Config{Submit: f.door, Jobs: f.index, Reader: f.store, Find: f.find, Now: time.Now, Logger: quiet}
	for _, c := range change {
		c(&cfg)
	}
	f.handler = api.New(cfg)
	return f
}

type reply struct {
	*httptest.ResponseRecorder
	body map[string]any
}

// do sends a request; headers are name, value, name, value.
func (f *fixture) do(method, path, body string, headers ...string) reply {
	f.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.serve(r)
}

func (f *fixture) serve(r *http.Request) reply {
	f.Helper()
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	got := reply{ResponseRecorder: w}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &got.body); err != nil {
			f.Fatalf("%s %s: body is not JSON: %.200q", r.Method, r.URL, w.Body)
		}
	}
	if n := w.Header().Get("X-Content-Type-Options"); n != "nosniff" {
		f.Errorf("%s %s: X-Content-Type-Options = %q, want nosniff", r.Method, r.URL, n)
	}
	if _, ok := got.body["$schema"]; ok {
		f.Errorf("%s %s: the answer links to a schema", r.Method, r.URL)
	}
	return got
}

func (f *fixture) want(got reply, status int, slug string) {
	f.Helper()
	if got.Code != status {
		f.Errorf("status = %d, want %d; body %.300s", got.Code, status, got.Body)
	}
	if slug == "" {
		return
	}
	if ct := got.Header().Get("Content-Type"); ct != "application/problem+json" {
		f.Errorf("Content-Type = %q, want application/problem+json", ct)
	}
	if typ := got.body["type"]; typ != "https://pawl.dev/problems/"+slug {
		f.Errorf("type = %v, want …/%s", typ, slug)
	}
	if int(got.body["status"].(float64)) != status {
		f.Errorf("problem status = %v, want %d", got.body["status"], status)
	}
}

func intent(op, extra string) string {
	id := ""
	if op != "" {
		id = `"operation_id":"` + op + `",`
	}
	return `{` + id + `"provider":"acme","input":{"n":1}` + extra + `}`
}

func TestSubmitThenReadYourWrite(t *testing.T) {
	t.Parallel()
	f := setUp(t) // nothing feeds the index
	got := f.do("POST", "/v1/operations", intent("ryw", ""))
	f.want(got, 202, "")
	if got.Header().Get("Location") != "/v1/operations/ryw" || got.Header().Get("Retry-After") == "" {
		t.Errorf("headers = %v, want Location and Retry-After", got.Header())
	}
	if got.body["state"] != "prepared" || got.body["outcome"] != "pending" || got.body["seq"].(float64) == 0 {
		t.Errorf("body = %v", got.body)
	}
	for _, path := range []string{"/v1/operations/ryw", "/v1/operations/ryw/outcome", "/v1/operations/ryw/history"} {
		f.want(f.do("GET", path, ""), 200, "")
	}
	again := f.do("POST", "/v1/operations", intent("ryw", ""))
	f.want(again, 200, "")
	if again.Header().Get("Idempotent-Replayed") != "true" || again.body["seq"] != got.body["seq"] || again.body["state"] != "prepared" {
		t.Errorf("replay = %v %v", again.Header(), again.body)
	}
	other := f.do("POST", "/v1/operations", `{"operation_id":"ryw","provider":"acme","input":{"n":2}}`)
	f.want(other, 422, "mismatch")
	f.want(f.do("GET", "/v1/operations/nobody", ""), 404, "not-found")
	f.want(f.do("GET", "/v1/operations/not.an.id", ""), 404, "not-found")
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, c := range []struct {
		name, key, op string
		status        int
		want          string // operation id or problem
	}{
		{"bare id", "key-1", "", 202, "key-1"},
		{"quoted id", `"key-2"`, "", 202, "key-2"},
		{"hashed", `"order 7/2026"`, "", 202, "op_" + events.HashID("idempotency-key", "order 7/2026")},
		{"escaped", `"a\"b"`, "", 202, "op_" + events.HashID("idempotency-key", `a"b`)},
		{"same in both", "key-3", "key-3", 202, "key-3"},
		{"hashed in both", "a b", "op_" + events.HashID("idempotency-key", "a b"), 202, "op_" + events.HashID("idempotency-key", "a b")},
		{"different", "key-4", "key-5", 400, "key-differs"},
		{"neither", "", "", 400, "missing-key"},
		{"open quote", `"key`, "", 400, "invalid-key"},
		{"two strings", `"a" "b"`, "", 400, "invalid-key"},
		{"empty string", `""`, "", 400, "invalid-key"},
		{"not ascii", "schlüssel", "", 400, "invalid-key"},
		{"too long", strings.Repeat("k", 256), "", 400, "invalid-key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			if c.key != "" {
				headers = []string{"Idempotency-Key", c.key}
			}
			got := f.do("POST", "/v1/operations", intent(c.op, ""), headers...)
			if c.status == 202 {
				f.want(got, 202, "")
				if got.body["operation_id"] != c.want {
					t.Errorf("operation = %v, want %s", got.body["operation_id"], c.want)
				}
				return
			}
			f.want(got, c.status, c.want)
		})
	}
}

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	const canary = "c4nary-value"
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
		slug       string
		location   string
	}{
		{"not JSON", `{"input":` + canary, nil, 400, "malformed", "input"},
		{"empty", ``, nil, 400, "malformed", ""},
		{"BOM", "\ufeff" + intent("b", ""), nil, 400, "malformed", ""},
		{"invalid UTF-8", "{\"provider\":\"\xff\"}", nil, 400, "malformed", ""},
		{"NaN", `{"input":{"n":NaN}}`, nil, 400, "malformed", "input.n"},
		{"NUL", "{\x00}", nil, 400, "malformed", ""},
		{"duplicate key", `{"input":{},"input":{}}`, nil, 400, "malformed", "input"},
		{"deep", strings.Repeat("[", 10_000), nil, 400, "malformed", ""},
		{"trailing", `{} {}`, nil, 400, "malformed", ""},
		{"an array", `["` + canary + `"]`, []string{"Idempotency-Key", "x"}, 422, "invalid-intent", ""},
		{"wrong type", `{"operation_id":"w","provider":"acme","input":"` + canary + `"}`, nil, 422, "invalid-intent", "input"},
		{"unknown field", `{"operation_id":"u","provider":"acme","input":{},"colour":"` + canary + `"}`, nil, 422, "invalid-intent", "colour"},
		{"compressed", intent("g", ""), []string{"Content-Encoding", "gzip"}, 415, "unsupported-media-type", ""},
		{"a form", intent("g", ""), []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type", ""},
		{"too large", `{"input":{"a":"` + strings.Repeat("a", events.IntentMaxBytes) + `"}}`, nil, 413, "too-large", ""},
		{"cross-site", intent("x", ""), []string{"Sec-Fetch-Site", "cross-site"}, 403, "cross-origin", ""},
		{"other origin", intent("x", ""), []string{"Origin", "https://evil.example"}, 403, "cross-origin", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := f.do("POST", "/v1/operations", c.body, c.headers...)
			f.want(got, c.status, c.slug)
			if strings.Contains(got.Body.String(), canary) {
				t.Errorf("the answer repeats the body: %s", got.Body)
			}
			if c.location != "" {
				first := got.body["errors"].([]any)[0].(map[string]any)
				if first["location"] != c.location || first["message"] == "" {
					t.Errorf("errors = %v, want location %q", got.body["errors"], c.location)
				}
			}
		})
	}
}

// A request whose body never ends costs a megabyte and not a hundred.
func TestSubmitEndlessBody(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	src := &counting{r: io.LimitReader(zeros{}, 100<<20)}
	r := httptest.NewRequest("POST", "/v1/operations", src)
	r.ContentLength = -1
	f.want(f.serve(r), 413, "too-large")
	if src.n > events.IntentMaxBytes+(64<<10) {
		t.Errorf("read %d bytes of it", src.n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	fail := func(err error) func(*api.Config) {
		return func(c *api.Config) {
			c.Submit = func(context.Context, []byte, events.Provider, events.OperationID) (events.Receipt, error) {
				return events.Receipt{}, err
			}
			c.Find = func(context.Context, events.OperationID) (events.Provider, error) { return "", err }
		}
	}
	f := setUp(t, fail(events.ErrUnavailable))
	got := f.do("POST", "/v1/operations", intent("una", ""))
	f.want(got, 503, "unavailable")
	if got.Header().Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	f.want(f.do("GET", "/v1/operations/una", ""), 503, "unavailable")

	secret := errors.New("c4nary of an inner error")
	f = setUp(t, fail(secret))
	for _, got := range []reply{f.do("POST", "/v1/operations", intent("una", "")), f.do("GET", "/v1/operations/una/history", "")} {
		f.want(got, 500, "internal")
		if strings.Contains(got.Body.String(), "c4nary") {
			t.Errorf("the answer tells an inner error: %s", got.Body)
		}
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *api.Config) { c.Hosts = []string{"localhost", "127.0.0.1", "::1"} })
	for _, c := range []struct {
		method, path, host string
		status             int
		slug, allow        string
	}{
		{"GET", "/v1/nothing", "localhost", 404, "not-found", ""},
		{"DELETE", "/v1/operations", "localhost:8080", 405, "method-not-allowed", "GET, HEAD, POST"},
		{"POST", "/v1/operations/x", "127.0.0.1:8080", 405, "method-not-allowed", "GET, HEAD"},
		{"PUT", "/v1/operations/x/outcome", "[::1]:8080", 405, "method-not-allowed", "GET, HEAD"},
		{"GET", "/v1/operations", "rebound.example:8080", 421, "misdirected", ""},
		{"GET", "/docs", "localhost", 404, "not-found", ""},
		{"GET", "/v1/operations?colour=red", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?limit=501", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?limit=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?state=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?outcome=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?provider=C4NARY.c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?label=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?cursor=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?age=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations?updated_after=c4nary", "localhost", 422, "invalid-parameter", ""},
		{"GET", "/v1/operations/x/outcome?wait=61s", "localhost", 422, "invalid-parameter", ""},
	} {
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Host = c.host
		got := f.serve(r)
		f.want(got, c.status, c.slug)
		if a := got.Header().Get("Allow"); a != c.allow {
			t.Errorf("%s %s: Allow = %q, want %q", c.method, c.path, a, c.allow)
		}
		if strings.Contains(got.Body.String(), "c4nary") {
			t.Errorf("%s %s: the answer repeats the value: %s", c.method, c.path, got.Body)
		}
	}
}
