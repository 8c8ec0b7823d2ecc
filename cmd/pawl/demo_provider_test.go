package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"
)

// A judge that misjudges is worse than none: without these tests a demo could
// praise a service that submitted twice, or blame one for a fault that the
// demo provider invented.

func testProvider(t *testing.T, shape string, f faults, change ...func(*flakyProviderConfig)) *flakyProvider {
	t.Helper()
	cfg := flakyProviderConfig{
		Seed: 7, Shape: shape, WebhookSecret: demoSecret, APIToken: "key", Faults: f,
		JobMin: time.Millisecond, JobMax: 3 * time.Millisecond,
	}
	for _, c := range change {
		c(&cfg)
	}
	p, err := newFlakyProvider(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return p
}

func createGeneric(t *testing.T, p *flakyProvider, op, callback string) reply {
	t.Helper()
	return call(t, demoClient, "POST", p.URL()+"/jobs", "tok-"+op,
		fmt.Sprintf(`{"operation_id":%q,"input":{"a":1},"callback_url":%q}`, op, callback))
}

func createReplicate(t *testing.T, p *flakyProvider, callback string) reply {
	t.Helper()
	return call(t, demoClient, "POST", p.URL()+"/v1/predictions", "",
		fmt.Sprintf(`{"version":"v1","input":{"a":1},"webhook":%q,"webhook_events_filter":["start","completed"]}`, callback))
}

func idle(t *testing.T, p *flakyProvider) {
	t.Helper()
	if err := p.Idle(t.Context()); err != nil {
		t.Fatalf("idle: %v", err)
	}
}

func TestDemoProviderGeneric(t *testing.T) {
	t.Parallel()
	s := newSink(t, always(204))
	p := testProvider(t, "generic", faults{})
	r := createGeneric(t, p, "op1", s.callback("op1"))
	want(t, "create", 202, r.code)
	again := createGeneric(t, p, "op1", s.callback("op1"))
	want(t, "same token, same body", r.body["job_id"], again.body["job_id"])
	other := createGeneric(t, p, "op1", "")
	want(t, "same token, other body", 422, other.code)
	want(t, "code", any("idempotency_key_reused"), other.body["error"].(map[string]any)["code"])
	idle(t, p)

	got := call(t, demoClient, "GET", r.body["status_url"].(string), "", "")
	want(t, "state", any("succeeded"), got.body["state"])
	want(t, "seq", any(3.0), got.body["seq"])
	want(t, "result", any(map[string]any{"echo": map[string]any{"a": 1.0}}), got.body["result"])
	want(t, "unknown job", 404, call(t, demoClient, "GET", p.URL()+"/jobs/nope", "", "").code)
	want(t, "no key", 400, call(t, demoClient, "POST", p.URL()+"/jobs", "", "{}").code)

	want(t, "webhooks", []string{"running", "succeeded"}, s.states("state"))
	for _, h := range s.seen() {
		mac := hmac.New(sha256.New, []byte(demoSecret))
		mac.Write(h.raw)
		want(t, "signature", "sha256="+hex.EncodeToString(mac.Sum(nil)), h.header.Get("X-Agent-Signature"))
		want(t, "job of the webhook", r.body["job_id"], h.body["jobId"])
	}
	op := p.Book().operation("op1")
	want(t, "jobs", 1, len(op.Jobs))
	want(t, "requests", 3, op.Requests)
	want(t, "tokens", []string{"tok-op1"}, op.Tokens)
	want(t, "bodies", 2, len(op.Bodies))
	want(t, "final state", demoSucceeded, op.Jobs[0].State)
	want(t, "webhook book", webhookBook{Sent: 2, Acked: 2, Refused: map[int]int{}}, op.Webhooks)
	want(t, "unknown gets", 1, p.Book().Totals.UnknownGets)
	want(t, "bad requests", 1, p.Book().Totals.BadRequests)
}

func TestDemoProviderReplicateIsBlind(t *testing.T) {
	t.Parallel()
	s := newSink(t, always(200))
	p := testProvider(t, "replicate", faults{})
	a, b := createReplicate(t, p, s.callback("op1")), createReplicate(t, p, s.callback("op1"))
	want(t, "create", 201, a.code)
	want(t, "status", any("starting"), a.body["status"])
	if a.body["id"] == b.body["id"] {
		t.Errorf("ids: want two jobs, got %v twice", a.body["id"])
	}
	idle(t, p)
	got := call(t, demoClient, "GET", p.URL()+"/v1/predictions/"+a.body["id"].(string), "", "")
	want(t, "status", any("succeeded"), got.body["status"])
	want(t, "output", any(map[string]any{"echo": map[string]any{"a": 1.0}}), got.body["output"])

	verify, err := standardwebhooks.NewWebhook(demoSecret)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, h := range s.seen() {
		if err := verify.Verify(h.raw, h.header); err != nil {
			t.Errorf("webhook: %v", err)
		}
		ids[h.header.Get("webhook-id")] = true
	}
	want(t, "distinct webhook ids", 4, len(ids))
	states := s.states("status")
	slices.Sort(states)
	want(t, "webhooks", []string{"processing", "processing", "succeeded", "succeeded"}, states)
	want(t, "jobs of op1", 2, len(p.Book().operation("op1").Jobs))
	want(t, "extra jobs", 1, p.Book().Totals.ExtraJobs)
}

func TestDemoProviderDemandsItsToken(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"generic", "replicate"} {
		p := testProvider(t, shape, faults{}, func(c *flakyProviderConfig) { c.APIToken = "another" })
		want(t, shape+" create", 401, call(t, demoClient, "POST", p.URL()+p.wire.path(), "k", "{}").code)
		want(t, shape+" get", 401, call(t, demoClient, "GET", p.URL()+p.wire.path()+"/x", "", "").code)
		want(t, shape+" book", 2, p.Book().Totals.Unauthorized)
	}
}

func TestDemoProviderRefusesConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]flakyProviderConfig{
		"shape":    {Shape: "soap", WebhookSecret: demoSecret},
		"secret":   {Shape: "generic"},
		"base64":   {Shape: "replicate", WebhookSecret: "whsec_!"},
		"range":    {Shape: "generic", WebhookSecret: "s", JobMin: 2, JobMax: 1},
		"loopback": {Shape: "generic", WebhookSecret: "s", Addr: "0.0.0.0:0"},
	} {
		if _, err := newFlakyProvider(cfg); err == nil {
			t.Errorf("%s: want an error, got none", name)
		}
	}
}

func TestDemoFaultsOfCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f     faults
		codes []int
		jobs  int
	}{
		"throttle":            {faults{Throttle: 1}, []int{429}, 0},
		"error_before_commit": {faults{ErrorBeforeCommit: 1}, []int{500, 503}, 0},
		"error_after_commit":  {faults{ErrorAfterCommit: 1}, []int{500}, 1},
		"slow":                {faults{Slow: 1, SlowFor: time.Millisecond}, []int{202}, 1},
		"fail_job":            {faults{FailJob: 1}, []int{202}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testProvider(t, "generic", c.f)
			var codes []int
			for i := range 12 {
				r := createGeneric(t, p, fmt.Sprint("op", i), "")
				codes = append(codes, r.code)
				if r.code == 429 {
					want(t, "Retry-After", "1", r.header.Get("Retry-After"))
				}
			}
			slices.Sort(codes)
			want(t, "codes", c.codes, slices.Compact(codes))
			idle(t, p)
			for _, op := range p.Book().Operations {
				want(t, "jobs of "+op.Operation, c.jobs, len(op.Jobs))
				want(t, "faults of "+op.Operation, map[string]int{name: 1}, op.Faults)
				if name == "fail_job" {
					want(t, "state", demoFailed, op.Jobs[0].State)
				}
			}
		})
	}
}

// A lost answer is committed. The client sees a closed connection or its own
// timeout, and a repeat under the same token finds the same job.
func TestDemoFaultLoseAnswer(t *testing.T) {
	t.Parallel()
	p := testProvider(t, "generic", faults{LoseAnswer: 1})
	impatient := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 200 * time.Millisecond}
	for i := range 6 {
		for range 2 {
			op := fmt.Sprint("op", i)
			r := call(t, impatient, "POST", p.URL()+"/jobs", "tok-"+op, fmt.Sprintf(`{"operation_id":%q}`, op))
			if r.err == nil {
				t.Errorf("%s: want no answer, got %d", op, r.code)
			}
		}
	}
	b := p.Book()
	want(t, "jobs", 6, b.Totals.Jobs)
	want(t, "requests", 12, b.Totals.Requests)
	want(t, "lost", 12, b.Totals.Faults["lose_answer_closed"]+b.Totals.Faults["lose_answer_stalled"])
	if b.Totals.Faults["lose_answer_closed"] == 0 || b.Totals.Faults["lose_answer_stalled"] == 0 {
		t.Errorf("want both ways to lose an answer, got %v", b.Totals.Faults)
	}
}

func TestDemoFaultsOfWebhooks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		f      faults
		states []string
		check  func(*testing.T, webhookBook)
	}{
		"drop": {faults{DropWebhook: 1}, nil, func(t *testing.T, b webhookBook) { want(t, "dropped", 2, b.Dropped) }},
		"duplicate": {faults{DuplicateWebhook: 1}, []string{"running", "running", "succeeded", "succeeded"},
			func(t *testing.T, b webhookBook) { want(t, "duplicated", 2, b.Duplicated) }},
		"reorder": {faults{ReorderWebhooks: 1}, []string{"succeeded", "running"},
			func(t *testing.T, b webhookBook) { want(t, "acked", 2, b.Acked) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, always(200))
			p := testProvider(t, "generic", c.f)
			createGeneric(t, p, "op1", s.callback("op1"))
			idle(t, p)
			states := s.states("state")
			if name == "duplicate" {
				slices.Sort(states) // the copy of one event and the next event race
			}
			want(t, "webhooks", c.states, states)
			c.check(t, p.Book().Totals.Webhooks)
		})
	}
}

func TestDemoFaultWebhookBeforeAnswer(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"generic", "replicate"} {
		s := newSink(t, always(200))
		p := testProvider(t, shape, faults{WebhookBeforeAnswer: 1},
			func(c *flakyProviderConfig) { c.JobMin, c.JobMax = time.Hour, time.Hour })
		if shape == "generic" {
			createGeneric(t, p, "op1", s.callback("op1"))
		} else {
			createReplicate(t, p, s.callback("op1"))
		}
		want(t, shape+" webhooks before the answer", 2, len(s.seen()))
	}
}

func TestDemoFaultsOfStatus(t *testing.T) {
	t.Parallel()
	get := func(t *testing.T, f faults) reply {
		t.Helper()
		p := testProvider(t, "generic", f)
		url := createGeneric(t, p, "op1", "").body["status_url"].(string)
		idle(t, p)
		return call(t, demoClient, "GET", url, "", "")
	}
	want(t, "error", 500, get(t, faults{StatusError: 1}).code)
	lag := get(t, faults{StatusLag: 1, LagFor: time.Hour})
	want(t, "lag", any("running"), lag.body["state"])
	want(t, "lag has no end", nil, lag.body["finished_at"])
	want(t, "lag is over", any("succeeded"), get(t, faults{StatusLag: 1, LagFor: 1}).body["state"])
	want(t, "not found", 404, get(t, faults{NotFoundAfterCreate: 1, NotFoundFor: time.Hour}).code)
	want(t, "found in the end", 200, get(t, faults{NotFoundAfterCreate: 1, NotFoundFor: 1}).code)
}

func TestDemoFaultBadSignature(t *testing.T) {
	t.Parallel()
	verify, err := standardwebhooks.NewWebhook(demoSecret)
	if err != nil {
		t.Fatal(err)
	}
	s := newSink(t, func(_ int, h hook) int {
		if verify.Verify(h.raw, h.header) != nil {
			want(t, "the lie", any("failed"), h.body["status"])
			return 401
		}
		return 200
	})
	p := testProvider(t, "replicate", faults{BadSignature: 1})
	createReplicate(t, p, s.callback("op1"))
	idle(t, p)
	b := p.Book().Totals.Webhooks
	want(t, "books", webhookBook{Sent: 2, Acked: 2, Refused: map[int]int{}, Forged: 1, ForgedRefused: 1}, b)
}

func TestDemoWebhooksAreRetriedWithinBounds(t *testing.T) {
	t.Parallel()
	s := newSink(t, func(n int, _ hook) int {
		if n == 1 {
			return 503
		}
		return 200
	})
	p := testProvider(t, "generic", faults{})
	createGeneric(t, p, "op1", s.callback("op1"))
	gone := newSink(t, always(410))
	createGeneric(t, p, "op2", gone.callback("op2"))
	idle(t, p)
	want(t, "retried", webhookBook{Sent: 3, Acked: 2, Refused: map[int]int{503: 1}}, p.Book().operation("op1").Webhooks)
	want(t, "given up", webhookBook{Sent: 10, GivenUp: 2, Refused: map[int]int{410: 10}}, p.Book().operation("op2").Webhooks)
}

// Faults must follow the seed, not the scheduler: a run that cannot be repeated
// cannot be explained.
func TestDemoProviderIsDeterministic(t *testing.T) {
	t.Parallel()
	run := func(seed int64) map[string]string {
		s := newSink(t, always(200))
		p := testProvider(t, "generic", faults{
			ErrorAfterCommit: 0.3, ErrorBeforeCommit: 0.3, Throttle: 0.2, DropWebhook: 0.3, DuplicateWebhook: 0.3,
			ReorderWebhooks: 0.3, BadSignature: 0.3, FailJob: 0.3, WebhookBeforeAnswer: 0.2,
		}, func(c *flakyProviderConfig) { c.Seed = seed })
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				for range 3 {
					createGeneric(t, p, fmt.Sprint("op", i), s.callback(fmt.Sprint("op", i)))
				}
			})
		}
		wg.Wait()
		idle(t, p)
		out := map[string]string{}
		for _, op := range p.Book().Operations {
			text := fmt.Sprint(op.Requests, op.Faults, op.Webhooks)
			for _, j := range op.Jobs {
				text += fmt.Sprint(j.ID, j.State)
			}
			out[op.Operation] = text
		}
		return out
	}
	a, b, c := run(1), run(1), run(2)
	want(t, "operations", 100, len(a))
	want(t, "same seed", a, b)
	if maps.Equal(a, c) {
		t.Error("another seed: want other faults, got the same")
	}
}

func TestDemoProviderCloseEndsEverything(t *testing.T) {
	// Not parallel: what other tests start would count as leaked.
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	hold := make(chan struct{})
	s := newSink(t, func(int, hook) int { <-hold; return 200 })
	p := testProvider(t, "replicate", faults{LoseAnswer: 1}, func(c *flakyProviderConfig) { c.JobMin, c.JobMax = 0, time.Hour })
	ctx, giveUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"version":"v","input":{},"webhook":%q}`, s.callback(fmt.Sprint("op", i)))
			req, _ := http.NewRequestWithContext(ctx, "POST", p.URL()+"/v1/predictions", bytes.NewBufferString(body))
			req.Header.Set("Authorization", "Bearer key")
			if res, err := demoClient.Do(req); err == nil {
				_ = res.Body.Close()
			}
		})
	}
	if err := p.Close(context.Background()); err != nil {
		t.Fatalf("close: %v", err)
	}
	giveUp()
	wg.Wait()
	close(hold)
	s.Close()
	if _, err := json.Marshal(p.Book()); err != nil {
		t.Errorf("book after close: %v", err)
	}
}

// operation returns what the book says of one operation, its zero value when it
// says nothing.
func (b providerBook) operation(name string) providerOperation {
	for _, op := range b.Operations {
		if op.Operation == name {
			return op
		}
	}
	return providerOperation{Operation: name}
}
