package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/projector"
)

// Without the fold nobody but the stream knows where an operation stands, and a
// fold that differs from the plain one shows states that never were.
func TestBucketEqualsAFreshFold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.start("a")
	w.finish("op_1", "r1")
	w.attempt("op_2", w.prepare("op_2"))
	w.accept("op_2", "r2")
	last := w.observe("r2", events.RemoteRunning, events.SourceWebhook)
	w.bucket.wait(t, last)
	w.same("op_1")
	w.same("op_2")
	if got := w.job("op_1").State; got != events.StateSucceeded {
		t.Errorf("state of op_1: want %s, got %s", events.StateSucceeded, got)
	}
	if got := w.job("op_2").Next; got != string(events.ActPoll) {
		t.Errorf("plan of op_2: want %s, got %q", events.ActPoll, got)
	}
	c, _, err := w.bucket.Checkpoint(t.Context())
	if err != nil || c.Seq != last || c.LedgerID != w.store.LedgerID() || c.Owner != "a" {
		t.Errorf("checkpoint: want sequence %d of %s by a, got %+v, %v", last, w.store.LedgerID(), c, err)
	}
	p.stop()
	if err := p.result(t); !errors.Is(err, context.Canceled) {
		t.Errorf("end of a stopped projector: want the context's cause, got %v", err)
	}
}

// Without the checkpoint a restart folds the stream from its beginning, and
// without the commit's atomicity it folds events a second time.
func TestCrashAfterACommitContinuesThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.finish("op_1", "r1")
	w.bucket.crashAt, w.bucket.crash = first, errCrash
	a := w.start("a")
	if err := a.result(t); !errors.Is(err, errCrash) {
		t.Fatalf("first projector: want the crash, got %v", err)
	}
	w.attempt("op_2", w.prepare("op_2"))
	last := w.accept("op_2", "r2")
	b := w.start("b")
	w.bucket.wait(t, last)
	w.same("op_1")
	w.same("op_2")
	b.stop()
	b.result(t)
	if got := b.count(t, "pawl_projector_events_total", string(events.VerdictApplied)); got != 3 {
		t.Errorf("events that the second projector applied: want 3, got %d", got)
	}
	if got := b.count(t, "pawl_projector_events_total", string(events.VerdictStale)); got != 0 {
		t.Errorf("events that the second projector had again: want 0, got %d", got)
	}
}

// One changed record and the checkpoint are two writes. A crash between them
// leaves a record ahead of the checkpoint; the event must not count twice.
func TestCrashBetweenRecordAndCheckpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a")
	w.bucket.wait(t, w.prepare("op_1"))
	kv := w.kv()
	before, err := kv.Get(t.Context(), events.CheckpointKey)
	if err != nil {
		t.Fatal(err)
	}
	last := w.attempt("op_1", w.refold("op_1").OpSeq)
	w.bucket.wait(t, last)
	a.stop()
	a.result(t)
	if _, err := kv.Put(t.Context(), events.CheckpointKey, before.Value()); err != nil {
		t.Fatal(err)
	}
	w.bucket.mu.Lock()
	w.bucket.seq = 0
	w.bucket.mu.Unlock()
	b := w.start("b")
	w.bucket.wait(t, last)
	w.same("op_1")
	b.stop()
	b.result(t)
	if got := b.count(t, "pawl_projector_events_total", string(events.VerdictStale)); got != 1 {
		t.Errorf("stale events after the crash: want 1, got %d", got)
	}
}

// Without the fence a projector that was paused writes old records over new ones.
func TestSecondProjectorFencesTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a")
	w.bucket.wait(t, w.prepare("op_1"))
	ctx, cancel := context.WithCancel(t.Context())
	hold := make(chan struct{})
	cfg := w.config("b", prometheus.NewRegistry())
	open := cfg.Open
	cfg.Open = func(ctx context.Context, after uint64) (events.Tail, error) {
		close(hold) // b owns the bucket and has read nothing yet
		return open(ctx, after)
	}
	b := projector.New(cfg)
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	<-hold
	last := w.attempt("op_1", w.refold("op_1").OpSeq)
	// Both read the event; only the owner of the checkpoint can commit it.
	select {
	case err := <-a.done:
		if !errors.Is(err, projector.ErrFenced) {
			t.Errorf("first projector: want ErrFenced, got %v", err)
		}
	case err := <-done:
		t.Fatalf("second projector ended: %v", err)
	}
	w.bucket.wait(t, last)
	w.same("op_1")
	cancel()
	<-done
}

// A bucket that has folded what the stream does not hold is the only trace of
// lost history. Going on would send creates again.
func TestLedgerRegressed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seq := w.prepare("op_1")
	rec, err := w.store.At(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	good := events.Checkpoint{LedgerID: w.store.LedgerID(), Seq: seq, EventID: rec.Event.ID, FoldVersion: events.FoldVersion, Owner: "x"}
	change := func(f func(*events.Checkpoint)) events.Checkpoint { c := good; f(&c); return c }
	for _, tc := range []struct {
		name      string
		c         events.Checkpoint
		regressed bool
	}{
		{"another ledger", change(func(c *events.Checkpoint) { c.LedgerID = "01HZY3M5Q8W0000000000000AB" }), true},
		{"a longer ledger", change(func(c *events.Checkpoint) { c.Seq = 999 }), true},
		{"another event there", change(func(c *events.Checkpoint) { c.EventID = "p:op_other" }), true},
		{"another fold", change(func(c *events.Checkpoint) { c.FoldVersion++ }), false},
	} {
		_, rev, err := w.bucket.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.bucket.Commit(t.Context(), nil, tc.c, rev); err != nil {
			t.Fatal(err)
		}
		err = projector.New(w.config("a", prometheus.NewRegistry())).Run(t.Context())
		if err == nil || errors.Is(err, projector.ErrLedgerRegressed) != tc.regressed {
			t.Errorf("%s: want regressed %t, got %v", tc.name, tc.regressed, err)
		}
		got, _, err := w.bucket.Checkpoint(t.Context())
		if err != nil || got != tc.c {
			t.Errorf("%s: want the checkpoint untouched, got %+v, %v", tc.name, got, err)
		}
	}
}

// Without group commits a burst costs a synced write for each event.
func TestBurstIsFewCommits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ops, each = 500, 4
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	errs := make(chan error, ops*each)
	for i := range ops {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wg.Done() }()
			op := events.OperationID(fmt.Sprintf("op_%d", i))
			s := events.OperationSubject(acme, op)
			e := w.event(s, "p:"+string(op), &events.Prepared{
				Intent:      events.Intent{OperationID: op, Provider: acme, Account: events.DefaultAccount, Input: json.RawMessage(`{}`)},
				Fingerprint: "sha256:00", Token: string(op), RequestSHA256: "00",
			})
			e.Claim = "c" + string(op)
			_, err := w.store.Decide(t.Context(), 0, e)
			errs <- err
			for n := 1; n < each; n++ {
				_, err := w.store.Record(t.Context(), w.event(s, fmt.Sprintf("ns:%s:%d", op, n), &events.NotSent{N: n, Class: "dial"}))
				errs <- err
			}
		}()
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	last, err := w.store.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := w.start("a")
	w.bucket.wait(t, last)
	p.stop()
	p.result(t)
	if got := p.count(t, "pawl_projector_events_total", string(events.VerdictApplied)); got != ops*each {
		t.Errorf("events applied: want %d, got %d", ops*each, got)
	}
	if w.bucket.commits > 20 {
		t.Errorf("commits for %d events: want at most 20, got %d", ops*each, w.bucket.commits)
	}
	for _, i := range []int{0, 123, ops - 1} {
		w.same(events.OperationID(fmt.Sprintf("op_%d", i)))
	}
}

// One broken message must not stop the outcomes of everybody else, nor the next
// start of the projector.
func TestBrokenMessagesAreParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	js := w.raw()
	w.prepare("op_1")
	unknown := `{"specversion":"1.0","id":"x","source":"pawl/acme","type":"dev.pawl.op.dreamt.v1","subject":"acme.op.op_1","time":"2026-12-01T08:00:00Z","data":{}}`
	for _, m := range []struct{ subject, body string }{
		{".events.acme.op.op_1", "{"},
		{".events.acme.op.op_1", unknown},
		{".events.acme.nonsense.x", strings.Repeat("x", 100)},
	} {
		if _, err := js.Publish(t.Context(), w.prefix+m.subject, []byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	a := w.start("a")
	last, err := w.store.LastSeq(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.bucket.wait(t, last)
	a.stop()
	a.result(t)
	if got := a.count(t, "pawl_projector_events_total", string(events.VerdictParked)); got != 2 {
		t.Errorf("parked: want 2, got %d", got)
	}
	if got := a.count(t, "pawl_projector_events_total", string(events.VerdictUnknown)); got != 1 {
		t.Errorf("unknown: want 1, got %d", got)
	}
	// Noted until the note is stored, and nothing else with it.
	if want := []uint64{3, 3, 5}; !slices.Equal(want, w.parked) {
		t.Errorf("noted: want %v, got %v", want, w.parked)
	}
	// The operation is held, and its fence has seen the message: a person's answer
	// can stand on the subject.
	j := w.job("op_1")
	if j.State != events.StateNeedsReview || j.Why != events.WhyUnreadable || j.OpSeq != 4 {
		t.Errorf("op_1: want needs_review (unreadable_event) at 4, got %s (%s) at %d", j.State, j.Why, j.OpSeq)
	}
	// The checkpoint names a message that has no readable id.
	w.start("b")
	w.bucket.wait(t, w.finish("op_2", "r2"))
	w.same("op_1")
	w.same("op_2")
}

// A provider may push before its create answer is read. The facts wait on the
// job's own record; lost, the operation would wait for the next poll.
func TestWebhookBeforeItsOperation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("a")
	w.bucket.wait(t, w.observe("r1", events.RemoteSucceeded, events.SourceWebhook))
	seq := w.attempt("op_1", w.prepare("op_1"))
	w.bucket.wait(t, seq)
	if got := w.job("op_1").State; got != events.StateSubmitted {
		t.Errorf("state before the bind: want %s, got %s", events.StateSubmitted, got)
	}
	w.bucket.wait(t, w.accept("op_1", "r1"))
	w.same("op_1")
	if got := w.job("op_1").State; got != events.StateConfirming {
		t.Errorf("state after the bind: want %s, got %s", events.StateConfirming, got)
	}
	// And after it, news of the job reach the operation.
	w.bucket.wait(t, w.observe("r1", events.RemoteSucceeded, events.SourcePoll))
	w.same("op_1")
}

// A record that somebody deleted comes back with its operation's next event. If
// the public copy did not come back with it, the settlement would be announced
// for ever and its effects never run.
func TestMissingRecordIsFoldedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a")
	w.bucket.wait(t, w.finish("op_1", "r1"))
	a.stop()
	a.result(t)
	if err := w.kv().Delete(t.Context(), events.JobBucketKey(acme, "op_1")); err != nil {
		t.Fatal(err)
	}
	w.start("b")
	last := w.record(events.OperationSubject(acme, "op_1"), "ed", &events.EffectAttempted{Name: "mail", G: 1, N: 1, Class: "timeout", RetryAt: start})
	w.bucket.wait(t, last)
	w.same("op_1")
	if got := w.job("op_1").LatestSettlement(); got == nil || !got.Public.Set() {
		t.Errorf("public copy after the refold: want it, got %+v", got)
	}
}

// A commit whose answer was lost is made again. Taken for somebody else's it
// would end the projector, taken for none it would never be tried.
func TestLostAnswerOfACommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start("a")
	w.bucket.wait(t, w.prepare("op_1"))
	for i, step := range []func() uint64{
		func() uint64 { return w.attempt("op_1", w.refold("op_1").OpSeq) }, // one record and the checkpoint
		func() uint64 { return w.accept("op_1", "r1") },                    // a batch
	} {
		w.bucket.mu.Lock()
		last := w.bucket.seq
		w.bucket.crashAt, w.bucket.crash = last+1, events.ErrUnavailable
		commits := w.bucket.commits
		w.bucket.mu.Unlock()
		seq := step()
		w.bucket.wait(t, seq) // the answer to this one is lost
		// Another commit comes only after the lost one was made again.
		next := w.record(events.OperationSubject(acme, "op_1"), fmt.Sprint("rf:", i), &events.ReconFailed{Class: "timeout"})
		w.bucket.wait(t, next)
		w.same("op_1")
		w.bucket.mu.Lock()
		if got := w.bucket.commits - commits; w.bucket.crashAt != 0 || got != 3 {
			t.Errorf("commits from sequence %d on: want 3, the lost one twice, got %d", seq, got)
		}
		w.bucket.mu.Unlock()
	}
	a.stop()
	if err := a.result(t); !errors.Is(err, context.Canceled) {
		t.Errorf("end: want the context's cause, got %v", err)
	}
}
