package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"
)

// The target is the judge of "once". Without these tests a demo could call an
// effect that ran twice deduplicated, or miss that it never ran.

func testTarget(t *testing.T, f targetFaults) *flakyTarget {
	t.Helper()
	g, err := newFlakyTarget(flakyTargetConfig{Seed: 7, Secret: demoSecret, Faults: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return g
}

// perform sends one effect and returns the code of the answer, 0 for none.
func perform(t *testing.T, g *flakyTarget, secret, key, body string) int {
	t.Helper()
	signer, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := signer.Sign("msg_1", now, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL(), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("webhook-id", "msg_1")
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := demoClient.Do(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

func TestDemoTargetPerformsOnce(t *testing.T) {
	t.Parallel()
	g := testTarget(t, targetFaults{})
	const body = `{"type":"operation.settled","operation_id":"op1","state":"succeeded","outcome":"completed"}`
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { want(t, "copy", 200, perform(t, g, demoSecret, "k1", body)) })
	}
	wg.Wait()
	want(t, "other key", 200, perform(t, g, demoSecret, "k2", body))
	want(t, "other body", 422, perform(t, g, demoSecret, "k1", `{"operation_id":"op1"}`))
	want(t, "no key", 400, perform(t, g, demoSecret, "", body))
	want(t, "forged", 401, perform(t, g, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "k3", body))
	want(t, "data", 200, perform(t, g, demoSecret, "k4", `{"data":{"operation_id":"op2","state":"failed"}}`))

	b := g.Book()
	want(t, "totals", targetTotals{
		Requests: 23, Keys: 3, Performed: 3, Deduplicated: 19, Violations: 1, BadSignatures: 1, BadRequests: 1,
	}, b.Totals)
	want(t, "operations", 2, len(b.Operations))
	op := b.Operations[0]
	want(t, "operation", "op1", op.Operation)
	want(t, "outcomes", []string{"completed"}, op.Outcomes)
	want(t, "performed for op1", 2, op.Performed)
	want(t, "performed under k1", 1, op.Keys[0].Performed)
	want(t, "deduplicated under k1", 19, op.Keys[0].Deduplicated)
	want(t, "outcome in data", []string{"failed"}, b.Operations[1].Outcomes)
}

func TestDemoTargetFaults(t *testing.T) {
	t.Parallel()
	before := testTarget(t, targetFaults{FailBefore: 1})
	for range 2 {
		want(t, "fail before", 500, perform(t, before, demoSecret, "k", `{}`))
	}
	want(t, "performed", 0, before.Book().Totals.Performed)

	after := testTarget(t, targetFaults{FailAfter: 1})
	codes := map[int]bool{}
	for i := range 12 {
		key := fmt.Sprint("k", i)
		codes[perform(t, after, demoSecret, key, `{}`)] = true
		want(t, "repeat", 200, perform(t, after, demoSecret, key, `{}`))
	}
	want(t, "answers", map[int]bool{0: true, 500: true}, codes)
	want(t, "performed", 12, after.Book().Totals.Performed)
	want(t, "deduplicated", 12, after.Book().Totals.Deduplicated)

	slow := testTarget(t, targetFaults{Slow: 1, SlowFor: time.Millisecond})
	want(t, "slow", 200, perform(t, slow, demoSecret, "k", `{}`))
	want(t, "slow in the book", map[string]int{"slow": 1}, slow.Book().Operations[0].Keys[0].Faults)
}

func TestDemoTargetIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func() []targetOperation {
		g := testTarget(t, targetFaults{FailBefore: 0.4, FailAfter: 0.4})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				for range 3 {
					perform(t, g, demoSecret, fmt.Sprint("k", i), fmt.Sprintf(`{"operation_id":"op%d"}`, i))
				}
			})
		}
		wg.Wait()
		return g.Book().Operations
	}
	want(t, "same seed", run(), run())
}

func TestDemoTargetAddressCanBeTakenAgain(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	g := testTarget(t, targetFaults{})
	want(t, "perform", 200, perform(t, g, demoSecret, "k", `{}`))
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := newFlakyTarget(flakyTargetConfig{Secret: demoSecret, Addr: g.srv.addr})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "url", g.URL(), again.URL())
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]flakyTargetConfig{
		"secret": {}, "base64": {Secret: "whsec_!"}, "loopback": {Secret: demoSecret, Addr: "0.0.0.0:0"},
	} {
		if _, err := newFlakyTarget(cfg); err == nil {
			t.Errorf("%s: want an error, got none", name)
		}
	}
}

const demoSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// hook is one webhook as a receiver saw it.
type hook struct {
	header http.Header
	raw    []byte
	body   map[string]any
}

// sink receives webhooks and answers each with the code that answer gives.
type sink struct {
	*httptest.Server
	mu    sync.Mutex
	hooks []hook
}

func newSink(t *testing.T, answer func(n int, h hook) int) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := hook{header: r.Header.Clone()}
		h.raw, _ = io.ReadAll(r.Body)
		_ = json.Unmarshal(h.raw, &h.body)
		s.mu.Lock()
		s.hooks = append(s.hooks, h)
		n := len(s.hooks)
		s.mu.Unlock()
		w.WriteHeader(answer(n, h))
	}))
	t.Cleanup(s.Close)
	return s
}

func always(code int) func(int, hook) int { return func(int, hook) int { return code } }

func (s *sink) callback(op string) string { return s.URL + "/webhooks/demo/" + op + "/mac" }

func (s *sink) seen() []hook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hooks)
}

// states lists one field of each webhook, in order of arrival.
func (s *sink) states(field string) []string {
	var out []string
	for _, h := range s.seen() {
		out = append(out, fmt.Sprint(h.body[field]))
	}
	return out
}

// demoClient hides no second try from the books.
var demoClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

type reply struct {
	code   int
	header http.Header
	body   map[string]any
	err    error
}

func call(t *testing.T, client *http.Client, method, url, token, body string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer key")
	if token != "" {
		req.Header.Set("Idempotency-Key", token)
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	out := reply{code: res.StatusCode, header: res.Header}
	out.err = json.NewDecoder(res.Body).Decode(&out.body)
	return out
}

func want[T any](t *testing.T, what string, want, got T) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s: want %v, got %v", what, want, got)
	}
}
