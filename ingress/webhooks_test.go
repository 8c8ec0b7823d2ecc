package ingress_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/ingress"
)

func TestWebhookStatuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	good := webhook("j1", "running", "d-status")
	deep := strings.Repeat(`{"a":`, 10_000)
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		status                   int
		provider, outcome        string
	}{
		{"unknown provider", "POST", "/webhooks/nobody", good, nil, 404, "unknown", "unknown_provider"},
		{"no provider", "POST", "/webhooks/", good, nil, 404, "unknown", "unknown_provider"},
		{"half a callback", "POST", "/webhooks/acme/op1", good, nil, 404, "unknown", "unknown_provider"},
		{"GET", "GET", "/webhooks/acme", "", nil, 405, "acme", "method"},
		{"PUT", "PUT", "/webhooks/acme/op1/mac", good, nil, 405, "acme", "method"},
		{"gzip", "POST", "/webhooks/acme", good, []string{"Content-Encoding", "gzip"}, 415, "acme", "encoding"},
		{"identity", "POST", "/webhooks/acme", good, []string{"Content-Encoding", "identity"}, 202, "acme", "accepted"},
		{"no signature", "POST", "/webhooks/acme", good, []string{"X-Acme-Signature", ""}, 401, "acme", "bad_signature"},
		{"other body's signature", "POST", "/webhooks/acme", good, []string{"X-Acme-Signature", hubSign([]byte("other"))}, 401, "acme", "bad_signature"},
		{"too large", "POST", "/webhooks/acme", strings.Repeat(" ", maxBody+1), nil, 413, "acme", "too_large"},
		{"at the limit", "POST", "/webhooks/acme", webhook("j1", "running", "d-limit") + strings.Repeat(" ", maxBody-len(webhook("j1", "running", "d-limit"))), nil, 202, "acme", "accepted"},
		{"ping", "POST", "/webhooks/acme", `{"ping":true}`, nil, 202, "acme", "ignored"},
		{"unknown job", "POST", "/webhooks/acme", webhook("never seen", "running", "d-unknown"), nil, 202, "acme", "accepted"},
		{"unknown word", "POST", "/webhooks/acme", webhook("j1", "dreaming", "d-word"), nil, 202, "acme", "accepted"},
		{"empty", "POST", "/webhooks/acme", "", nil, 202, "acme", "unreadable"},
		{"not JSON", "POST", "/webhooks/acme", "<xml/>", nil, 202, "acme", "unreadable"},
		{"duplicate keys", "POST", "/webhooks/acme", `{"id":"j1","id":"j2","state":"done","delivery":"d"}`, nil, 202, "acme", "unreadable"},
		{"deep", "POST", "/webhooks/acme", deep, nil, 202, "acme", "unreadable"},
		{"NaN", "POST", "/webhooks/acme", `{"id":NaN}`, nil, 202, "acme", "unreadable"},
		{"BOM", "POST", "/webhooks/acme", "\ufeff" + good, nil, 202, "acme", "unreadable"},
		{"invalid UTF-8", "POST", "/webhooks/acme", "{\"id\":\"\xff\xfe\"}", nil, 202, "acme", "unreadable"},
		{"NUL", "POST", "/webhooks/acme", "{\x00}", nil, 202, "acme", "unreadable"},
		{"no dedup key", "POST", "/webhooks/acme", `{"id":"j1","state":"done"}`, nil, 202, "acme", "unreadable"},
		{"long id", "POST", "/webhooks/acme", webhook(strings.Repeat("x", 600), "done", "d-long"), nil, 202, "acme", "unreadable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := f.counted("pawl_ingress_webhooks_total", c.provider, c.outcome)
			r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
			r.Header.Set("X-Acme-Signature", hubSign([]byte(c.body)))
			for i := 0; i < len(c.headers); i += 2 {
				r.Header.Set(c.headers[i], c.headers[i+1])
			}
			w := f.serve(r)
			if w.Code != c.status {
				t.Errorf("status = %d, want %d: %s", w.Code, c.status, w.Body)
			}
			if n := f.counted("pawl_ingress_webhooks_total", c.provider, c.outcome) - before; n != 1 {
				t.Errorf("counted %v of %s, want 1", n, c.outcome)
			}
			if c.status == 202 && (w.Body.String() != `{"received":true}` || w.Header().Get("Content-Type") != "application/json") {
				t.Errorf("ack = %q, want the provider's own", w.Body)
			}
			if c.status == 405 && w.Header().Get("Allow") != "POST" {
				t.Errorf("Allow = %q", w.Header().Get("Allow"))
			}
		})
	}
	for _, rec := range f.recorded() {
		if d, ok := rec.Event.Data.(*events.WebhookUnreadable); ok && (d.Reason == "" || d.Body.SHA256 == "") {
			t.Errorf("unreadable without reason or body: %+v", d)
		}
	}
}

// A forged message is refused before anything reads it: were the parser asked,
// these bodies would be kept as unreadable.
func TestForgedSignatureNeverReachesTheParser(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var first string
	for _, body := range []string{"", "not json", `{"id":1,"id":2}`, "\xff", strings.Repeat("[", 10_000), webhook("j", "done", "d")} {
		for _, sig := range []string{"", "sha256=", "sha256=" + strings.Repeat("0", 64), "sha1=abc", hubSign([]byte(body + "x"))} {
			w := f.post("/webhooks/acme", body, "X-Acme-Signature", sig)
			if w.Code != 401 {
				t.Errorf("status = %d, want 401", w.Code)
			}
			if first == "" {
				first = w.Body.String()
			}
			if w.Body.String() != first {
				t.Errorf("the answer tells what was wrong: %q and %q", first, w.Body)
			}
		}
	}
	if n := len(f.recorded()); n != 0 {
		t.Errorf("%d events of forged messages", n)
	}
	if n := f.counted("pawl_ingress_webhooks_total", "acme", "unreadable"); n != 0 {
		t.Errorf("the parser was asked %v times", n)
	}
}

func TestStandardWebhooks(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body := `{"id":"p1","status":"processing"}`
	send := func(id string, at time.Time, key []byte) int {
		ts := strconv.FormatInt(at.Unix(), 10)
		h := hmac.New(sha256.New, key)
		_, _ = io.WriteString(h, id+"."+ts+"."+body)
		r := httptest.NewRequest("POST", "/webhooks/"+standardID, strings.NewReader(body))
		r.Header.Set("Webhook-Id", id)
		r.Header.Set("Webhook-Timestamp", ts)
		r.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
		return f.serve(r).Code
	}
	for _, c := range []struct {
		name string
		at   time.Time
		key  []byte
		want int
	}{
		{"now", now, stdKey, 200},
		{"a repeat, signed anew", now.Add(-time.Minute), stdKey, 200},
		{"too old", now.Add(-10 * time.Minute), stdKey, 401},
		{"from the future", now.Add(10 * time.Minute), stdKey, 401},
		{"other key", now, bytes.Repeat([]byte{8}, 32), 401},
	} {
		if got := send("msg_1", c.at, c.key); got != c.want {
			t.Errorf("%s: status = %d, want %d", c.name, got, c.want)
		}
	}
	if d := one[*events.Observed](f); d.Delivery != "msg_1" || d.Reading.State != events.RemoteRunning {
		t.Errorf("observed %+v", d)
	}
}

// An endless body costs its limit and not a hundred megabytes.
func TestWebhookEndlessBody(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, length := range []int64{-1, 100 << 20} {
		src := &counting{r: io.LimitReader(zeros{}, 100<<20)}
		r := httptest.NewRequest("POST", "/webhooks/acme", src)
		r.ContentLength = length
		if w := f.serve(r); w.Code != 413 {
			t.Errorf("length %d: status = %d, want 413", length, w.Code)
		}
		if src.n > maxBody+(64<<10) {
			t.Errorf("length %d: read %d bytes of it", length, src.n)
		}
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

func TestDuplicateAndCollision(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, c := range []struct{ body, outcome string }{
		{webhook("j1", "running", "d1"), "accepted"},
		{webhook("j1", "running", "d1"), "duplicate"},
		{webhook("j1", "done", "d1"), "collision"}, // the sender reuses an id
		{webhook("j1", "running", "odd/delivery id"), "accepted"},
		{webhook("j1", "running", "odd/delivery id"), "duplicate"},
	} {
		before := f.counted("pawl_ingress_webhooks_total", "acme", c.outcome)
		if w := f.post("/webhooks/acme", c.body); w.Code != 202 {
			t.Errorf("%s: status = %d, want 202", c.outcome, w.Code)
		}
		if n := f.counted("pawl_ingress_webhooks_total", "acme", c.outcome) - before; n != 1 {
			t.Errorf("%s: not counted as %s", c.body, c.outcome)
		}
	}
	all := f.recorded()
	if len(all) != 3 {
		t.Fatalf("%d events, want 3", len(all))
	}
	for i, want := range []string{"wh:acme:team:d1", "wh:acme:team:d1~", "wh:acme:team:" + events.HashID("odd/delivery id")} {
		if id := all[i].Event.ID; !strings.HasPrefix(id, want) {
			t.Errorf("id = %s, want %s", id, want)
		}
	}
	unreadable := "no JSON at all"
	f.post("/webhooks/acme", unreadable)
	f.post("/webhooks/acme", unreadable)
	if n := len(f.recorded()); n != 4 {
		t.Errorf("%d events, want one for both deliveries of an unreadable body", n-3)
	}
}

func TestObserved(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body := webhook("job/7", "done", "d1")
	if w := f.post("/webhooks/acme", body); w.Code != 202 {
		t.Fatalf("status = %d", w.Code)
	}
	rec := f.recorded()[0]
	key := events.MakeJobKey("acme", "team", "job/7")
	if rec.Event.Subject != events.JobSubject("acme", key) || rec.Event.Actor != "ingress" || !rec.Event.Time.Equal(now) || rec.Event.Claim != "" {
		t.Errorf("event = %+v", rec.Event)
	}
	d := rec.Event.Data.(*events.Observed)
	if d.Remote != (events.RemoteRef{ID: "job/7", Account: "team", Key: key}) || d.Reading.State != events.RemoteSucceeded ||
		d.Reading.Source != events.SourceWebhook || d.Reading.Authoritative || d.Delivery != "d1" || d.Reference != nil {
		t.Errorf("observed = %+v", d)
	}
	if d.Raw == nil || d.Raw.Text != body || d.Raw.Ref != "" {
		t.Errorf("raw = %+v, want the body", d.Raw)
	}
}

func TestLargeBodyGoesToObjects(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body := webhook("j1", "running", "d1") + strings.Repeat(" ", events.RawMaxBytes)
	f.post("/webhooks/acme", body)
	d := one[*events.Observed](f)
	if d.Raw.Ref == "" || d.Raw.Text != "" || d.Raw.Size != int64(len(body)) {
		t.Fatalf("raw = %+v, want a reference", d.Raw)
	}
	got, err := f.store.Objects().Get(t.Context(), d.Raw.Ref)
	f.ok(err)
	if string(got) != body {
		t.Error("the object is not the body")
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	key := events.NewSecret(masterKey)
	path := func(p events.Provider, account string, op events.OperationID) string {
		return events.CallbackPath(key, p, account, op)
	}
	for name, c := range map[string]struct {
		path string
		want *events.Reference
	}{
		"no path":           {"/webhooks/acme", nil},
		"valid mac":         {path("acme", "team", "op-1"), &events.Reference{Operation: "op-1", Proven: true}},
		"wrong mac":         {"/webhooks/acme/op-1/aaaa", &events.Reference{Operation: "op-1"}},
		"other operation":   {strings.Replace(path("acme", "team", "op-1"), "op-1", "op-2", 1), &events.Reference{Operation: "op-2"}},
		"other account":     {path("acme", "default", "op-1"), &events.Reference{Operation: "op-1"}},
		"other provider":    {strings.Replace(path(standardID, "team", "op-1"), standardID, "acme", 1), &events.Reference{Operation: "op-1"}},
		"no operation name": {"/webhooks/acme/op.1%20x/aaaa", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setUp(t)
			if w := f.post(c.path, webhook("j1", "done", "d1")); w.Code != 202 {
				t.Fatalf("status = %d", w.Code)
			}
			got := one[*events.Observed](f).Reference
			if (got == nil) != (c.want == nil) || (got != nil && *got != *c.want) {
				t.Errorf("reference = %+v, want %+v", got, c.want)
			}
		})
	}
}

// Nothing is acknowledged that is not stored.
func TestClosedLedger(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *ingress.Config) { c.RecordTimeout = 200 * time.Millisecond })
	f.ok(f.store.Close())
	for name, body := range map[string]string{
		"readable": webhook("j1", "done", "d1"), "unreadable": "no JSON", "large": webhook("j1", "done", "d2") + strings.Repeat(" ", events.RawMaxBytes),
	} {
		w := f.post("/webhooks/acme", body)
		if w.Code != 503 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: status = %d %v, want 503", name, w.Code, w.Header())
		}
	}
	if n := f.counted("pawl_ingress_webhooks_total", "acme", "unavailable"); n != 3 {
		t.Errorf("counted %v as unavailable, want 3", n)
	}
	if w := f.post("/webhooks/acme", `{"ping":true}`); w.Code != 202 {
		t.Errorf("ping: status = %d, want 202: it stores nothing", w.Code)
	}
}

// The door answers 503 rather than take on more than it can hold.
func TestDoorIsBounded(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *ingress.Config) { c.InFlight, c.InFlightBytes = 1, 64<<10 })
	reading, release := make(chan struct{}), make(chan struct{})
	done := make(chan int)
	go func() {
		r := httptest.NewRequest("POST", "/webhooks/acme", io.MultiReader(signal{reading, release}, strings.NewReader("x")))
		done <- f.serve(r).Code
	}()
	<-reading
	if w := f.post("/webhooks/acme", webhook("j", "done", "d")); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("beyond the slots: status = %d, want 503", w.Code)
	}
	close(release)
	if code := <-done; code != 401 {
		t.Errorf("the slow one: status = %d, want 401", code)
	}
	if w := f.post("/webhooks/acme", strings.Repeat(" ", 100<<10)); w.Code != 503 {
		t.Errorf("beyond the bytes: status = %d, want 503", w.Code)
	}
	if w := f.post("/webhooks/acme", webhook("j", "done", "d")); w.Code != 202 {
		t.Errorf("after that: status = %d, want 202: slots and bytes are given back", w.Code)
	}
}

// signal is a body that says when it is read and then waits.
type signal struct{ reading, release chan struct{} }

func (s signal) Read([]byte) (int, error) {
	close(s.reading)
	<-s.release
	return 0, io.EOF
}

// Behind a real server a second request on the same connection must not inherit
// the first one's deadline.
func TestRealServer(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *ingress.Config) { c.Now = time.Now })
	srv := httptest.NewServer(f.handler)
	defer srv.Close()
	for i := range 3 {
		body := webhook("j1", "running", "d"+strconv.Itoa(i))
		r, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+"/webhooks/acme", strings.NewReader(body))
		f.ok(err)
		r.Header.Set("X-Acme-Signature", hubSign([]byte(body)))
		w, err := srv.Client().Do(r)
		f.ok(err)
		answer, err := io.ReadAll(w.Body)
		f.ok(err)
		f.ok(w.Body.Close())
		if w.StatusCode != 202 || string(answer) != `{"received":true}` {
			t.Errorf("status = %d %s", w.StatusCode, answer)
		}
	}
}
