package effects_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/reconciler/effects"
)

// Without the signature a receiver believes anybody; without the key it cannot
// drop a repeat.
func TestWebhookIsSignedAndKeyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(rw http.ResponseWriter, _ int) { rw.WriteHeader(http.StatusNoContent) })
	w.settle("op_1", "mail")
	r := w.runner(webhook("mail", target.URL))
	if err := r.Handle(t.Context(), w.public("op_1")); err != nil {
		t.Fatal(err)
	}
	got := target.seen()
	if len(got) != 1 {
		t.Fatalf("requests: want 1, got %d", len(got))
	}
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got[0].body, got[0].header); err != nil {
		t.Errorf("signature: %v", err)
	}
	key := events.EffectKey("op_1", "mail", 1)
	if h := got[0].header; h.Get("Idempotency-Key") != `"`+key+`"` || h.Get("Webhook-Id") != key {
		t.Errorf("keys: want %s, got %q and %q", key, h.Get("Idempotency-Key"), h.Get("Webhook-Id"))
	}
	var m effects.Message
	if err := json.Unmarshal(got[0].body, &m); err != nil {
		t.Fatal(err)
	}
	j := w.job("op_1")
	s := j.LatestSettlement()
	if m.Type != "operation.settled" || m.OperationID != "op_1" || m.Provider != acme || m.Generation != 1 || m.State != events.StateSucceeded ||
		m.Outcome != events.OutcomeConfirmed || m.RemoteID != "r-op_1" || m.Seq != s.Seq || !m.SettledAt.Equal(s.At) || m.Labels["team"] != "a" {
		t.Errorf("message: want the settlement, got %+v", m)
	}
	j = w.until("op_1", "a done effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
	if len(j.Effects[0].Claims) != 1 || len(j.Owed()) != 0 {
		t.Errorf("want one claim and nothing owed, got %+v, %+v", j.Effects, j.Owed())
	}
	// The message once more, as a consumer may see it.
	if err := r.Handle(t.Context(), w.public("op_1")); err != nil {
		t.Fatal(err)
	}
	if n := len(target.seen()); n != 1 {
		t.Errorf("requests after a repeat: want 1, got %d", n)
	}
}

// A result travels with its hash. Escaped on the way, it no longer matches.
func TestResultKeepsItsBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	w.settle("op_1", "mail")
	if err := w.runner(webhook("mail", target.URL)).Handle(t.Context(), w.public("op_1")); err != nil {
		t.Fatal(err)
	}
	var m struct {
		Result struct {
			Inline json.RawMessage `json:"inline"`
			SHA256 string          `json:"sha256"`
		} `json:"result"`
	}
	if err := json.Unmarshal(target.seen()[0].body, &m); err != nil {
		t.Fatal(err)
	}
	if string(m.Result.Inline) != result || events.HexSHA256(m.Result.Inline) != m.Result.SHA256 {
		t.Errorf("result: want %s with its hash, got %s and %s", result, m.Result.Inline, m.Result.SHA256)
	}
}

// A target that was down for a moment must get the same message again, and be
// able to see that it is the same.
func TestFailedTargetGetsTheSameAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(rw http.ResponseWriter, n int) {
		if n == 1 {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	w.settle("op_1", "mail")
	w.work(w.runner(webhook("mail", target.URL)))
	j := w.until("op_1", "a done effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
	got := target.seen()
	if len(got) != 2 || string(got[0].body) != string(got[1].body) || got[0].header.Get("Idempotency-Key") != got[1].header.Get("Idempotency-Key") {
		t.Errorf("want the same message twice, got %+v", got)
	}
	if c := j.Effects[0].Claims; len(c) != 2 || c[0].Class != "status_5xx" {
		t.Errorf("claims: want 2, the first status_5xx, got %+v", c)
	}
}

// Two workers that both see a settlement must not both send.
func TestTwoRunnersClaimOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	const ops = 10
	for i := range ops {
		w.settle(events.OperationID(fmt.Sprintf("op_%d", i)), "mail")
	}
	runners := []*effects.Runner{w.runner(webhook("mail", target.URL)), w.runner(webhook("mail", target.URL))}
	var wg sync.WaitGroup
	for i := range ops {
		rec := w.public(events.OperationID(fmt.Sprintf("op_%d", i)))
		for _, r := range runners {
			wg.Go(func() {
				if err := r.Handle(t.Context(), rec); err != nil {
					t.Errorf("handle: %v", err)
				}
			})
		}
	}
	wg.Wait()
	claims := 0
	for i := range ops {
		j := w.until(events.OperationID(fmt.Sprintf("op_%d", i)), "a done effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
		claims += len(j.Effects[0].Claims)
	}
	got := target.seen()
	keys := map[string]bool{}
	for _, q := range got {
		keys[q.header.Get("Idempotency-Key")] = true
	}
	if len(got) != claims || len(keys) != ops {
		t.Errorf("want a request for each of %d claims and %d keys, got %d and %d", claims, ops, len(got), len(keys))
	}
	if claims != ops {
		t.Errorf("claims: want %d, got %d", ops, claims)
	}
}

// A runner that dies between its claim and the record may have sent. The next
// claim has to look the same to the target, and has to wait for the lease.
func TestClaimOfADeadRunnerIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	j := w.settle("op_1", "mail")
	key := events.EffectKey("op_1", "mail", 1)
	seq := w.claim(j, "mail", time.Now().Add(-time.Minute))
	w.until("op_1", "the claim", func(j *events.Job) bool { return j.OpSeq >= seq })
	k := w.settle("op_2", "mail")
	seq = w.claim(k, "mail", time.Now().Add(time.Hour))
	w.until("op_2", "the claim", func(j *events.Job) bool { return j.OpSeq >= seq })
	r := w.runner(webhook("mail", target.URL))
	for _, op := range []events.OperationID{"op_1", "op_2"} {
		if err := r.Handle(t.Context(), w.public(op)); err != nil {
			t.Fatal(err)
		}
	}
	j = w.until("op_1", "a done effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
	if n := len(j.Effects[0].Claims); n != 2 {
		t.Errorf("claims: want 2, got %d", n)
	}
	if got := target.seen(); len(got) != 1 || got[0].header.Get("Idempotency-Key") != `"`+key+`"` {
		t.Errorf("want one request, with the key %s, got %+v", key, got)
	}
}

// A target that says that it is gone must not be called for days.
func TestGoneTargetIsDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(rw http.ResponseWriter, _ int) { rw.WriteHeader(http.StatusGone) })
	w.settle("op_1", "mail")
	if err := w.runner(webhook("mail", target.URL)).Handle(t.Context(), w.public("op_1")); err != nil {
		t.Fatal(err)
	}
	j := w.until("op_1", "a dead effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Dead.Set() })
	if j.Effects[0].Reason != "target_gone" || len(j.Owed()) != 0 {
		t.Errorf("want target_gone and nothing owed, got %+v, %+v", j.Effects, j.Owed())
	}
}

// Without a limit a broken target is called for ever.
func TestAttemptsRunOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(rw http.ResponseWriter, _ int) { rw.WriteHeader(http.StatusBadGateway) })
	w.settle("op_1", "mail")
	w.work(w.runner(webhook("mail", target.URL)))
	j := w.until("op_1", "a dead effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Dead.Set() })
	if j.Effects[0].Reason != "attempts_exhausted" {
		t.Errorf("reason: want attempts_exhausted, got %s", j.Effects[0].Reason)
	}
	if n := len(target.seen()); n != attemptsMax {
		t.Errorf("requests: want %d, got %d", attemptsMax, n)
	}
}

// What is not announced may still change, and what is contradicted is a
// question: neither may reach a customer.
func TestNothingIsSentBeforeOrAgainstTheAnnouncement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	r := w.runner(webhook("mail", target.URL))

	decision := w.decideSettled("op_1", "mail")
	j := w.until("op_1", "the decision", func(j *events.Job) bool { return j.OpSeq >= decision.Seq })
	r.Observe(j)
	if err := r.Handle(t.Context(), decision); err != nil {
		t.Errorf("before the public copy: want no error, got %v", err)
	}

	w.settle("op_2", "mail")
	rec := w.public("op_2")
	w.read("r-op_2", events.RemoteFailed)
	j = w.until("op_2", "a reversal", func(j *events.Job) bool { return j.State == events.StateReversed })
	r.Observe(j)
	if err := r.Handle(t.Context(), rec); err != nil {
		t.Errorf("in review: want no error, got %v", err)
	}
	if n := r.Owing(); n != 0 || len(target.seen()) != 0 {
		t.Errorf("want nothing owed and nothing sent, got %d and %d", n, len(target.seen()))
	}
}

// A message that comes before the fold must come again, not be dropped.
func TestHandleBeforeTheFold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	r := w.runner(webhook("mail", target.URL))
	unknown := events.Recorded{Seq: 5, Event: events.Event{Subject: events.SettledSubject(acme, "op_none", 1)}}
	if err := r.Handle(t.Context(), unknown); !errors.Is(err, effects.ErrNotFolded) {
		t.Errorf("unknown operation: want ErrNotFolded, got %v", err)
	}
	w.settle("op_1", "mail")
	rec := w.public("op_1")
	rec.Seq += 1000
	if err := r.Handle(t.Context(), rec); !errors.Is(err, effects.ErrNotFolded) {
		t.Errorf("an older record: want ErrNotFolded, got %v", err)
	}
	if n := len(target.seen()); n != 0 {
		t.Errorf("requests: want 0, got %d", n)
	}
}

// A NATS effect that is sent twice must be one message to the stream that takes
// it.
func TestNATSEffectIsOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	js := w.raw()
	subject := "out." + w.prefix
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OUT_" + w.prefix, Subjects: []string{subject}, Storage: jetstream.MemoryStorage, Duplicates: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	j := w.settle("op_1", "ship")
	// A runner sent it and died before the record.
	seq := w.claim(j, "ship", time.Now().Add(-time.Minute))
	key := events.EffectKey("op_1", "ship", 1)
	if err := w.store.PublishEffect(t.Context(), subject, key, []byte(`{"first":true}`)); err != nil {
		t.Fatal(err)
	}
	w.until("op_1", "the claim", func(j *events.Job) bool { return j.OpSeq >= seq })
	r := w.runner(effects.Target{Name: "ship", Kind: effects.KindNATS, Subject: subject})
	if err := r.Handle(t.Context(), w.public("op_1")); err != nil {
		t.Fatal(err)
	}
	w.until("op_1", "a done effect", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
	w.settle("op_2", "ship")
	if err := r.Handle(t.Context(), w.public("op_2")); err != nil {
		t.Fatal(err)
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 2 {
		t.Fatalf("messages of two effects: want 2, got %+v, %v", info, err)
	}
	m, err := stream.GetMsg(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Header.Get(jetstream.MsgIDHeader); got != events.EffectKey("op_2", "ship", 1) {
		t.Errorf("Nats-Msg-Id: want the key, got %q", got)
	}
	var body effects.Message
	if err := json.Unmarshal(m.Data, &body); err != nil || body.OperationID != "op_2" {
		t.Errorf("body: want op_2, got %s, %v", m.Data, err)
	}
}

// One effect that nobody configures any more must not hold back the others.
func TestUnconfiguredEffectHoldsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := newTarget(t, func(http.ResponseWriter, int) {})
	w.settle("op_1", "gone-from-config", "mail")
	w.work(w.runner(webhook("mail", target.URL)))
	j := w.until("op_1", "the other effect done", func(j *events.Job) bool { return len(j.Effects) == 1 && j.Effects[0].Done.Set() })
	if owed := j.Owed(); len(owed) != 1 || owed[0].Name != "gone-from-config" {
		t.Errorf("owed: want the unconfigured effect, got %+v", owed)
	}
}

// A wrong target is found at the start, not at the first settlement.
func TestBadTargets(t *testing.T) {
	t.Parallel()
	ok := webhook("mail", "https://example.org/hook")
	for _, tc := range []struct {
		name, want string
		targets    []effects.Target
	}{
		{"kind", "kind", []effects.Target{{Name: "a", Kind: "smoke"}}},
		{"no url", "url", []effects.Target{{Name: "a", Kind: effects.KindWebhook, Secret: ok.Secret}}},
		{"scheme", "url", []effects.Target{webhook("a", "ftp://example.org")}},
		{"credentials", "url", []effects.Target{webhook("a", "https://u:hidden@example.org")}},
		{"no secret", "secret", []effects.Target{{Name: "a", Kind: effects.KindWebhook, URL: ok.URL}}},
		{"short secret", "secret", []effects.Target{{Name: "a", Kind: effects.KindWebhook, URL: ok.URL, Secret: events.NewSecret("whsec_aGlkZGVu")}}},
		{"no subject", "subject", []effects.Target{{Name: "a", Kind: effects.KindNATS}}},
		{"wildcard", "subject", []effects.Target{{Name: "a", Kind: effects.KindNATS, Subject: "out.*"}}},
		{"twice", "twice", []effects.Target{ok, ok}},
	} {
		_, err := effects.New(effects.Config{Targets: tc.targets})
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "aGlkZGVu") {
			t.Errorf("%s: want an error about the %s without secrets, got %v", tc.name, tc.want, err)
		}
	}
	if _, err := effects.New(effects.Config{Targets: []effects.Target{ok}}); err != nil {
		t.Errorf("a good target: want no error, got %v", err)
	}
}

type request struct {
	header http.Header
	body   []byte
}

func (q *request) read(r *http.Request) {
	q.header = r.Header.Clone()
	q.body, _ = io.ReadAll(r.Body) // a broken request shows in its signature
}
