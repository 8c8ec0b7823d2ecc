package events

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// unguarded joins events in the order given, whatever their sequences say: what
// the fold would be without the guard of stream order.
func unguarded(recs []Recorded) (*Job, []Remote) {
	j := NewJob(testProvider, testOp)
	remotes := map[JobKey]*Remote{}
	remote := func(r RemoteRef) *Remote {
		if remotes[r.Key] == nil {
			remotes[r.Key] = NewRemote(testProvider, r.Key)
		}
		return remotes[r.Key]
	}
	for _, rec := range recs {
		m := Mark{Seq: rec.Seq, At: rec.Event.Time}
		j.UpdatedAt = laterTime(j.UpdatedAt, m.At)
		if rec.Event.Subject.Kind == SubjectJob {
			r := remote(RemoteRef{Key: rec.Event.Subject.Job()})
			r.join(rec.Event.Data, m)
			continue
		}
		if ref := bindingOf(rec.Event.Data); ref != nil {
			r := remote(*ref)
			r.Ref, r.First = *ref, earliest(r.First, m)
			r.bind(testOp)
		}
		j.join(&rec.Event, m)
	}
	var all []Remote
	for _, r := range remotes {
		all = append(all, *r)
		if len(r.BoundOps) > 0 {
			j.joinRemote(r)
		}
	}
	slices.SortFunc(all, func(a, b Remote) int { return slices.Compare([]byte(a.Ref.Key), []byte(b.Ref.Key)) })
	j.touch(Mark{})
	return j, all
}

// evidence draws one piece of evidence about the test's operation or its jobs.
func evidence() *rapid.Generator[Data] {
	id := rapid.SampledFrom([]string{"j1", "j1", "j1", "j2"})
	n := rapid.IntRange(1, 3)
	state := rapid.SampledFrom([]RemoteState{RemoteQueued, RemoteRunning, RemoteCancelling, RemoteSucceeded, RemoteFailed, RemoteCancelled})
	word := rapid.SampledFrom([]string{"a", "b", "c"})
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return testStart.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "minutes")) * time.Minute)
	})
	return rapid.Custom(func(t *rapid.T) Data {
		switch rapid.IntRange(0, 20).Draw(t, "kind") {
		case 0:
			return accept(n.Draw(t, "n"), id.Draw(t, "id"))
		case 1:
			return &Rejected{N: n.Draw(t, "n"), Class: word.Draw(t, "class"), Code: word.Draw(t, "code")}
		case 2:
			return &Ambiguous{N: n.Draw(t, "n"), Class: word.Draw(t, "class")}
		case 3:
			return &NotSent{N: n.Draw(t, "n"), Class: word.Draw(t, "class")}
		case 4:
			return &Throttled{N: n.Draw(t, "n"), RetryAt: instant.Draw(t, "retry")}
		case 5:
			return find(id.Draw(t, "id"), "lookup")
		case 6:
			return missing(n.Draw(t, "covers"))
		case 7:
			return &ReconFailed{Class: word.Draw(t, "class")}
		case 8, 9:
			clock := rapid.SampledFrom([]Clock{ClockStartBy, ClockCreate, ClockRecon, ClockResult, ClockCancel, ClockConfirm, ClockConfirm, ClockCollect})
			return pass(clock.Draw(t, "clock"), n.Draw(t, "gen"))
		case 10:
			return &ResultUnavailable{G: 1, N: n.Draw(t, "n"), Final: rapid.Bool().Draw(t, "final"), Reason: word.Draw(t, "reason")}
		case 11:
			return rapid.SampledFrom([]Data{keep(1, `{"n":1}`), keep(2, `{"n":2}`), &ResultInvalid{G: 2, N: 1, Rule: "schema"}}).Draw(t, "result")
		case 12:
			return gone(id.Draw(t, "id"))
		case 13:
			return &PollDeferred{Remote: ref(id.Draw(t, "id")), Until: instant.Draw(t, "until"), Reason: word.Draw(t, "reason")}
		case 14:
			return &Unrecognised{Remote: ref(id.Draw(t, "id")), Status: word.Draw(t, "status")}
		case 15:
			return rapid.SampledFrom([]Data{
				&CancelAcknowledged{N: 1}, &CancelRefused{N: 1, Why: RefusalTerminal}, &CancelRefused{N: 2, Why: RefusalUnsupported},
				&CancelAmbiguous{N: 1, Class: word.Draw(t, "class")}, &CancelNotSent{N: 2, Class: "dial", RetryAt: instant.Draw(t, "retry")},
			}).Draw(t, "cancel")
		case 16:
			return rapid.SampledFrom([]Data{&OrphanExpired{Remote: ref("j1")}, &PollAudit{Remote: ref("j2"), Count: 1}, &Note{By: "dana", Text: "x"}}).Draw(t, "beside")
		case 17, 18:
			o := hook(id.Draw(t, "id"), state.Draw(t, "state"))
			o.Reading.Attempt = rapid.IntRange(0, 1).Draw(t, "run")
			return o
		default:
			o := read(id.Draw(t, "id"), state.Draw(t, "state"))
			o.Reading.Attempt = rapid.IntRange(0, 1).Draw(t, "run")
			o.Reading.Counts = &Counts{Total: 3, Completed: rapid.Int64Range(0, 3).Draw(t, "completed")}
			return o
		}
	})
}

// history is an intent, attempts and drawn evidence, numbered in stream order.
func history(t *rapid.T) []Recorded {
	s := &stage{view: NewMemoir(), now: testStart, read: map[OperationID]time.Time{}}
	recs := []Recorded{s.record(testOp, prepare(testOp, rapid.SampledFrom(testContracts).Draw(t, "contract")))}
	for n := range rapid.IntRange(0, 3).Draw(t, "attempts") {
		recs = append(recs, s.record(testOp, start(n+1)))
	}
	for _, d := range rapid.SliceOfN(evidence(), 0, 14).Draw(t, "evidence") {
		s.now = s.now.Add(time.Minute)
		recs = append(recs, s.record(testOp, d))
	}
	return recs
}

// P2: without it, a fold would depend on which consumer read first, and a
// rebuilt bucket would differ from the one it replaces.
func TestRecordDependsOnTheSetOfEvents(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		recs := history(t)
		want, wantRemotes := unguarded(recs)
		copies := rapid.SliceOfN(rapid.SampledFrom(recs), 0, 4).Draw(t, "copies")
		shuffled := rapid.Permutation(slices.Concat(recs, copies)).Draw(t, "order")
		got, gotRemotes := unguarded(shuffled)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("job (-in stream order +shuffled):\n%s", diff)
		}
		if diff := cmp.Diff(wantRemotes, gotRemotes, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("remotes (-in stream order +shuffled):\n%s", diff)
		}
	})
}

// Apply and the bare joins are two ways to the same record. Without it, the
// guards of Apply would hide or lose facts.
func TestApplyAgreesWithTheJoins(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		recs := history(t)
		m := NewMemoir()
		for _, rec := range recs {
			if _, _, err := Apply(m, rec); err != nil {
				t.Fatal(err)
			}
		}
		want, _ := unguarded(recs)
		got, _ := m.Job(testProvider, testOp)
		applied := cmpopts.IgnoreFields(Job{}, "OpSeq", "AppliedSeq", "UpdatedAt")
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), applied, cmpopts.IgnoreFields(Remote{}, "AppliedSeq")); diff != "" {
			t.Fatalf("job (-joined +applied):\n%s", diff)
		}
	})
}

// Without it, a redelivery would change a job.
func TestDuplicatesChangeNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		recs := history(t)
		once, twice := NewMemoir(), NewMemoir()
		for i, rec := range recs {
			mustApply(t, once, rec)
			mustApply(t, twice, rec)
			back := rapid.IntRange(0, i).Draw(t, "redelivered from")
			for _, old := range recs[back : i+1] {
				if v := mustApply(t, twice, old); v != VerdictStale {
					t.Fatalf("redelivered %d: want stale, got %s", old.Seq, v)
				}
			}
		}
		if diff := cmp.Diff(once.jobs, twice.jobs); diff != "" {
			t.Fatalf("jobs (-once +twice):\n%s", diff)
		}
		if diff := cmp.Diff(once.remotes, twice.remotes); diff != "" {
			t.Fatalf("remotes (-once +twice):\n%s", diff)
		}
	})
}

func mustApply(t *rapid.T, m *Memoir, rec Recorded) Verdict {
	_, v, err := Apply(m, rec)
	if err != nil {
		t.Fatalf("apply %d: %v", rec.Seq, err)
	}
	return v
}

// Without it, a state would be without a name, or an operation would be stuck:
// unsettled, nobody asked, and nothing due.
func TestEveryJobHasAStateAndSomethingDue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemoir()
		for _, rec := range history(t) {
			mustApply(t, m, rec)
			j, _ := m.Job(testProvider, testOp)
			checkOwed(t, j, rec.Event.Time)
		}
	})
}

func checkOwed(t *rapid.T, j *Job, now time.Time) {
	if !slices.Contains(States(), j.State) || WhyText(j.Why) == "" || j.Outcome == "" {
		t.Fatalf("want a known state with a known reason and an outcome, got %q (%q) %q", j.State, j.Why, j.Outcome)
	}
	a := Next(j, Policy{}, now, Memory{})
	if a.Kind != ActNone && a.At.IsZero() {
		t.Fatalf("%s: action %s without an instant", j.State, a.Kind)
	}
	j.Plan(Policy{}, now)
	if !j.Prepared.Set() {
		return
	}
	for _, reason := range j.Questions() {
		if j.review(reason) == nil {
			if a.Kind != ActReview && a.Kind != ActAnnounce && a.Kind != ActBind && a.Kind != ActDeadline {
				t.Fatalf("%s: want the question %s, got %q", j.State, reason, a.Kind)
			}
			return
		}
		if len(j.Answers(reason)) == 0 {
			t.Fatalf("%s: nothing fits as an answer to %s", j.State, reason)
		}
	}
	switch {
	case j.State.Settled() && j.Held() == nil:
		if (j.Announced() == nil) != (a.Kind == ActSettle) && a.Kind != ActAnnounce && a.Kind != ActBind && a.Kind != ActCancel && a.Kind != ActExpireCancel {
			t.Fatalf("%s, announced %v: got %q", j.State, j.Announced() != nil, a.Kind)
		}
	case j.State.Settled(), j.State.Suspended():
	case a.Kind == ActNone || j.NextDue.IsZero():
		t.Fatalf("%s (%s): nothing is due, ever", j.State, j.Why)
	}
	switch j.State {
	case StateCreateUnknown, StateReconciling, StateAccepted, StateObserving, StateConfirming, StateResultCollecting, StateCancelling:
		if len(j.clocks()) == 0 { // reads alone could go on for ever
			t.Fatalf("%s (%s): no clock runs", j.State, j.Why)
		}
	}
}

// Derive is total over facts that no history gives. Without it, one broken
// record would stop the projector.
func TestDeriveOnArbitraryFacts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		recs := history(t)
		some := rapid.SliceOfDistinct(rapid.SampledFrom(recs), func(r Recorded) uint64 { return r.Seq }).Draw(t, "some")
		j, _ := unguarded(some)
		if rapid.Bool().Draw(t, "forget remotes") {
			j.Remotes = nil
		}
		j.touch(Mark{})
		if !slices.Contains(States(), j.State) {
			t.Fatalf("want a known state, got %q", j.State)
		}
		j.Plan(Policy{}, testStart)
		j.Owed()
		j.Settlement(1)
	})
}

// Without it, an outcome that was announced would silently become another one.
func TestAfterSettlement(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemoir()
		var settled State
		shift := uint64(0)
		for _, rec := range history(t) {
			rec.Seq += shift
			mustApply(t, m, rec)
			j, _ := m.Job(testProvider, testOp)
			if settled == "" && j.State.Settled() {
				settled = j.State
				shift++
				mustApply(t, m, Recorded{Seq: rec.Seq + 1, Event: Event{
					ID: "st", Subject: OperationSubject(testProvider, testOp), Time: rec.Event.Time, Data: j.Settlement(1),
				}})
			}
			if settled != "" && j.State != settled && j.State != StateReversed && j.State != StateConflict {
				t.Fatalf("settled as %s: want it, reversed or conflict, got %s (%s)", settled, j.State, j.Why)
			}
		}
	})
}
