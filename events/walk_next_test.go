package events

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Without the join over owners, one job returned for two tokens would settle
// two operations with one outcome.
func TestOneJobForTwoOperations(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	for _, op := range []OperationID{testOp, otherOp} {
		s.add(op, prepare(op, pushing))
		s.add(op, start(1))
		s.add(op, accept(1, "j1"))
	}
	s.add("", read("j1", RemoteSucceeded))
	for _, op := range []OperationID{testOp, otherOp} {
		if j := s.job(op); j.State != StateConflict || j.Why != WhySharedJob {
			t.Errorf("%s: want conflict (%s), got %s (%s)", op, WhySharedJob, j.State, j.Why)
		}
	}
}

// Without the provider's own time, a throttled create would be repeated into
// the same refusal.
func TestThrottledWaitsAsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add(testOp, prepare(testOp, pushing))
	s.add(testOp, start(1))
	retryAt := s.now.Add(7 * time.Minute)
	s.add(testOp, &Throttled{N: 1, RetryAt: retryAt})
	want := Action{Kind: ActCreate, N: 2, Window: 2, At: retryAt}
	if diff := cmp.Diff(want, s.next(testOp, time.Time{})); diff != "" {
		t.Errorf("next (-want +got):\n%s", diff)
	}
}

// Without the margin, a token that the provider has forgotten would be sent
// again and make a second job.
func TestTokenRetentionExhausted(t *testing.T) {
	t.Parallel()
	c := tokened
	c.TokenRetention = Duration(10 * time.Minute)
	s := newStage(t)
	s.add(testOp, prepare(testOp, c))
	s.add(testOp, start(1))
	s.add(testOp, lose(1))
	if got := s.next(testOp, time.Time{}); got.Kind != ActCreate || got.N != 2 {
		t.Fatalf("inside the retention: want create 2, got %+v", got)
	}
	s.now = s.now.Add(9 * time.Minute) // the margin of ten percent begins
	s.add(testOp, start(2))
	s.add(testOp, lose(2))
	got := s.next(testOp, time.Time{})
	if got.Kind != ActDeadline || got.Clock != ClockCreate {
		t.Fatalf("outside the retention: want the create clock, got %+v", got)
	}
	s.now = s.now.Add(time.Hour)
	if got := s.next(testOp, s.now); got.Kind != ActDeadline {
		t.Fatalf("an hour later: want the create clock, got %+v", got)
	}
}

// Without this order, a create could leave after the limit that its owner set.
func TestDeadlineGoesBeforeCreate(t *testing.T) {
	t.Parallel()
	p := prepare(testOp, pushing)
	p.Deadlines.StartBy = testStart.Add(time.Minute)
	s := newStage(t)
	s.add(testOp, p)
	if got := s.next(testOp, time.Time{}); got.Kind != ActCreate {
		t.Fatalf("before start_by: want create, got %+v", got)
	}
	s.now = testStart.Add(time.Minute)
	got := s.next(testOp, time.Time{})
	if got.Kind != ActDeadline || got.Clock != ClockStartBy {
		t.Fatalf("at start_by: want its deadline, got %+v", got)
	}
}

// Without this order, an outage of ours would decide for the provider: a clock
// that waits for reads would run out although nobody read.
func TestReadGoesBeforeTheClockThatWaitsForIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []any
		want  ActionKind
	}{
		{"observing", []any{start(1), accept(1, "j1"), read("j1", RemoteRunning)}, ActPoll},
		{"confirming", []any{start(1), accept(1, "j1"), hook("j1", RemoteSucceeded)}, ActPoll},
		{"gone", []any{start(1), accept(1, "j1"), gone("j1")}, ActPoll},
		{"reconciling", []any{start(1), lose(1), pass(ClockCreate, 1)}, ActLookup},
		{"collecting", []any{start(1), accept(1, "j1"), read("j1", RemoteSucceeded)}, ActCollect},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := full
			c.Result = true
			s := newStage(t)
			s.add(testOp, prepare(testOp, c))
			for _, x := range tt.steps {
				s.add(testOp, x)
			}
			s.now = s.now.Add(100 * time.Hour) // the reconciler was away
			got := s.next(testOp, time.Time{})
			if got.Kind != tt.want || got.At.After(s.now) {
				t.Fatalf("on return: want %s, due, got %+v", tt.want, got)
			}
			if tt.want == ActCollect {
				s.add(testOp, &ResultUnavailable{G: 1, N: 1, Reason: "timeout"})
			}
			if got = s.next(testOp, s.now); got.Kind != ActDeadline || got.At.After(s.now) {
				t.Fatalf("after one read in vain: want the deadline, due, got %+v", got)
			}
		})
	}
}

// Without the reader's memory in the schedule, a poll would always be due in
// the future: whoever asks again at that instant is sent to the next one.
func TestPollComesDue(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add(testOp, prepare(testOp, readable))
	s.add(testOp, start(1))
	s.add(testOp, accept(1, "j1"))
	polled := s.now
	for i := range 20 {
		a := s.next(testOp, polled)
		if a.Kind != ActPoll || !a.At.After(polled) {
			t.Fatalf("poll %d: want a poll after %s, got %+v", i, polled, a)
		}
		s.now = a.At
		if again := s.next(testOp, polled); !again.At.Equal(a.At) {
			t.Fatalf("poll %d: asked again when due: want %s, got %s", i, a.At, again.At)
		}
		polled = s.now
	}
	until := s.now.Add(5 * time.Minute)
	s.add(testOp, &PollDeferred{Remote: ref("j1"), Until: until, Reason: "retry_after"})
	if a := s.next(testOp, polled); a.Kind != ActPoll || a.At.Before(until) {
		t.Errorf("deferred: want no poll before %s, got %+v", until, a)
	}
}

// Without these guards an effect would run on an outcome that nobody announced,
// twice at once, or while a person still decides.
func TestEffectsOwed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	owed := func(want ...string) {
		t.Helper()
		var got []string
		for _, d := range s.job(testOp).Owed() {
			got = append(got, d.Name)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("owed: want %q, got %q", want, got)
		}
	}
	due := func(name string) EffectDue {
		for _, d := range s.job(testOp).Owed() {
			if d.Name == name {
				return d
			}
		}
		return EffectDue{}
	}
	s.add(testOp, prepare(testOp, readable))
	s.add(testOp, start(1))
	s.add(testOp, accept(1, "j1"))
	s.add("", read("j1", RemoteSucceeded))
	owed()
	s.add(testOp, settleNow(1))
	owed()
	s.add(testOp, publish(1))
	owed("mail", "stock")
	key := due("mail").Key

	s.add(testOp, &EffectClaimed{Name: "mail", G: 1, N: 1})
	lease := s.now.Add(45 * time.Second)
	if d := due("mail"); d.N != 2 || !d.At.Equal(lease) || d.Key != key {
		t.Errorf("claimed: want claim 2 at %s under the same key, got %+v", lease, d)
	}
	retryAt := s.now.Add(time.Minute)
	s.add(testOp, &EffectAttempted{Name: "mail", G: 1, N: 1, Class: "server_error", RetryAt: retryAt})
	if d := due("mail"); d.N != 2 || !d.At.Equal(retryAt) || d.Key != key {
		t.Errorf("attempted: want claim 2 at %s under the same key, got %+v", retryAt, d)
	}
	s.add(testOp, &EffectDead{Name: "stock", G: 1, N: 1, Reason: "gave up"})
	owed("mail")
	s.add("", read("j1", RemoteFailed)) // reversed: a person decides
	owed()
	s.add(testOp, &EffectDone{Name: "mail", G: 1, N: 1})
	owed()
}

// Without the evidence beside it an announcement could not be checked.
func TestSettlementSaysWhy(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add(testOp, prepare(testOp, fetching))
	s.add(testOp, start(1))
	s.add(testOp, accept(1, "j1"))
	s.add("", hook("j1", RemoteSucceeded))
	s.add("", read("j1", RemoteSucceeded))
	s.add(testOp, keep(1, `{"n":1}`))
	j := s.job(testOp)
	remote := ref("j1")
	want := &Settled{
		G: 1, State: StateSucceeded, Outcome: OutcomeConfirmed, Reason: WhyConfirmed,
		Assurance: AssuranceRead, LearnedBy: SourceWebhook, Remote: &remote, Evidence: []uint64{1, 3, 5, 6},
		Result: &keep(1, `{"n":1}`).Result, Effects: []string{"mail", "stock"},
		Labels: map[string]string{"team": "a"}, SubmittedAt: testStart,
	}
	if diff := cmp.Diff(want, j.Settlement(1)); diff != "" {
		t.Errorf("settlement (-want +got):\n%s", diff)
	}
	if j.Rescued() {
		t.Error("want no rescue, a webhook told it first")
	}
}

// Without judging at the present, a service that was down past the retention
// sends a token that the provider has forgotten, and makes a second job.
func TestTokenRetentionEndsDuringAnOutage(t *testing.T) {
	t.Parallel()
	c := tokened
	c.TokenRetention = Duration(10 * time.Minute)
	s := newStage(t)
	s.add(testOp, prepare(testOp, c))
	s.add(testOp, start(1))
	s.add(testOp, lose(1))
	s.now = s.now.Add(12 * time.Minute)
	if got := s.next(testOp, time.Time{}); got.Kind == ActCreate {
		t.Errorf("after twelve minutes: want no create, got %+v", got)
	}
	if limit := s.job(testOp).SendLimit(); !limit.Before(s.now) {
		t.Errorf("limit of the next create: want it past, got %s", limit)
	}
}

// Without a bound on the owners of one job, a provider that gives every request
// the same id makes each event rewrite every operation, until no commit fits.
func TestOwnersAreBounded(t *testing.T) {
	t.Parallel()
	forth, back := NewRemote("p", "k"), NewRemote("p", "k")
	const n = 3 * ownersMax
	for i := range n {
		forth.bind(OperationID(fmt.Sprintf("op-%03d", i)))
		back.bind(OperationID(fmt.Sprintf("op-%03d", n-1-i)))
	}
	if len(forth.BoundOps) != ownersMax || !forth.MoreOwners || !slices.Equal(forth.BoundOps, back.BoundOps) {
		t.Errorf("owners: want the same %d in any order, got %d and %v", ownersMax, len(forth.BoundOps), back.BoundOps)
	}
}

// Without bounds a provider that runs a job anew for ever, with a large result and
// every word of its own, makes a record that no bucket takes, and the fold of
// everybody stops at it.
func TestRecordsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.add(testOp, prepare(testOp, Contract{Status: true, Callback: true, Idempotent: true, Cancel: true}))
	s.add(testOp, start(1))
	s.add(testOp, accept(1, "j1"))
	large, err := JSONBlob([]byte(`"` + strings.Repeat("x", InlineMaxBytes-2) + `"`))
	if err != nil {
		t.Fatal(err)
	}
	for run := range 300 {
		for _, state := range []RemoteState{RemoteRunning, RemoteSucceeded, RemoteFailed, RemoteCancelled} {
			for _, o := range []*Observed{hook("j1", state), read("j1", state)} {
				o.Reading.Attempt, o.Reading.Result, o.Reading.Status = run, &large, strings.Repeat("s", 128)
				s.add(testOp, o)
			}
		}
		s.add(testOp, accept(1, fmt.Sprintf("other-%d", run)))
		s.add(testOp, prove(hook(fmt.Sprintf("proven-%d", run), RemoteRunning), testOp))
		s.add(testOp, &Unrecognised{Remote: ref("j1"), Status: strings.Repeat("u", 128), Source: SourcePoll})
		s.add(testOp, pass(ClockConfirm, run+1))
		s.addUnreadable(OperationSubject(testProvider, testOp), "broken")
	}
	b, err := EncodeRecord(s.job(testOp))
	if err != nil {
		t.Fatal(err)
	}
	const limit = 512 << 10 // half of what a message of the store may have
	if len(b) > limit {
		t.Errorf("record: want at most %d bytes, got %d", limit, len(b))
	}
	e := samples()[TypeAmbiguous]
	e.Data = &Ambiguous{N: 1, Class: strings.Repeat("x", textMaxBytes+1)}
	if _, err := Encode(e); !errors.Is(err, ErrInvalidEvent) {
		t.Errorf("a class beyond the limit: want it refused, got %v", err)
	}
}
