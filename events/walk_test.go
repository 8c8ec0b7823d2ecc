package events

import (
	"fmt"
	"testing"
	"time"
)

// step is one line of a walk: what happens, how long after the line before, and
// where the operation stands then.
type walkStep struct {
	wait time.Duration
	what any
	want State
	why  string     // "": not looked at
	next ActionKind // what is due or comes first then, by a reconciler that never read
}

type walk struct {
	name     string
	contract Contract
	steps    []walkStep
}

const minute = time.Minute

// A walk is a life that went wrong in practice or on paper. Without the rule
// that it names, its last line would be another state: a second order, a lost
// one, or an outcome that nobody proved.
func TestWalks(t *testing.T) {
	t.Parallel()
	for _, w := range append(createWalks(), remoteWalks()...) {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.add(testOp, prepare(testOp, w.contract))
			for i, x := range w.steps {
				s.now = s.now.Add(x.wait)
				s.add(testOp, x.what)
				j := s.job(testOp)
				next := s.next(testOp, time.Time{}).Kind
				t.Logf("%2d +%-6s %-28s → %s (%s), then %s", i+1, x.wait, describe(x.what), j.State, j.Why, next)
				if j.State != x.want || (x.why != "" && j.Why != x.why) {
					t.Fatalf("after step %d (%s): want %s (%s), got %s (%s)", i+1, describe(x.what), x.want, x.why, j.State, j.Why)
				}
				if next != x.next {
					t.Fatalf("after step %d (%s): want %q next, got %q", i+1, describe(x.what), x.next, next)
				}
			}
		})
	}
}

func describe(what any) string {
	switch d := what.(type) {
	case *Observed:
		return fmt.Sprintf("%s %s", d.Reading.Source, d.Reading.State)
	case *DeadlinePassed:
		return fmt.Sprintf("%s passed", d.Name)
	case Data:
		return string(d.Type())
	case settleNow:
		return "op.settled"
	default:
		return "public copy"
	}
}

func review(why string) *ReviewOpened {
	return &ReviewOpened{ID: why + ":1", Reason: why, State: StateNeedsReview}
}

func createWalks() []walk {
	retry := &Throttled{N: 1, RetryAt: testStart.Add(5 * minute)}
	mismatch := &Rejected{N: 1, Class: WhyTokenMismatch}
	final := read("j1", RemoteSucceeded)
	final.Reading.Source = SourceCreate
	return []walk{
		{"lost answer, no token or look-up, the callback binds", blind, []walkStep{
			{0, start(1), StateSubmitted, WhyInFlight, ActExpireLease},
			{minute, lose(1), StateCreateUnknown, WhyUnproven, ActDeadline},
			{minute, prove(hook("j1", RemoteRunning), testOp), StateCreateUnknown, "", ActBind},
			{0, find("j1", "callback"), StateObserving, WhyAlive, ActDeadline},
		}},
		{"lost answer, no token or look-up, nobody calls: a person", readable, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActDeadline},
			{10 * minute, pass(ClockRecon, 1), StateNeedsReview, WhyCreateUnresolved, ActReview},
			{0, review(WhyCreateUnresolved), StateNeedsReview, "", ActNone},
			{minute, accept(1, "j1"), StateAccepted, WhyBound, ActPoll},
		}},
		{"ambiguous, the same token again, accepted: one job", tokened, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActCreate},
			{minute, start(2), StateSubmitted, "", ActExpireLease},
			{time.Second, accept(2, "j1"), StateAccepted, WhyBound, ActPoll},
			{time.Second, accept(1, "j1"), StateAccepted, WhyBound, ActPoll},
		}},
		{"ambiguous, look-up first, then the token", full, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{time.Second, lose(1), StateCreateUnknown, "", ActLookup},
			{minute, &ReconFailed{Class: "timeout"}, StateCreateUnknown, "", ActCreate},
			{minute, find("j1", "lookup"), StateAccepted, WhyBound, ActPoll},
		}},
		{"n1 ambiguous, n2 rejected, absent covers 2: rejected", findable, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActLookup},
			{minute, start(2), StateSubmitted, "", ActExpireLease},
			{minute, reject(2), StateCreateUnknown, WhyUnproven, ActLookup},
			{minute, missing(2), StateRejected, WhyRejected, ActSettle},
		}},
		{"a rejection is conclusive where the provider says so", stubborn, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActLookup},
			{minute, start(2), StateSubmitted, "", ActExpireLease},
			{minute, reject(2), StateRejected, WhyRejected, ActSettle},
		}},
		{"rejected alone is settled", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, reject(1), StateRejected, WhyRejected, ActSettle},
			{0, settleNow(1), StateRejected, "", ActAnnounce},
			{0, publish(1), StateRejected, "", ActNone},
			{minute, accept(1, "j1"), StateReversed, WhyChangedAfterAnnounce, ActReview},
		}},
		{"the token is known with another request: a person", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{0, mismatch, StateNeedsReview, WhyTokenMismatch, ActReview},
		}},
		{"late accepted of n1 after absent: no second create", findable, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActLookup},
			{minute, missing(1), StatePrepared, WhyNotSent, ActCreate},
			{minute, accept(1, "j1"), StateAccepted, WhyBound, ActPoll},
		}},
		{"not sent: prepared again", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, notSend(1), StatePrepared, WhyNotSent, ActCreate},
		}},
		{"throttled: prepared again, later", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, retry, StatePrepared, WhyNotSent, ActCreate},
		}},
		{"start_by passed with nothing sent: withdrawn", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, notSend(1), StatePrepared, "", ActCreate},
			{minute, pass(ClockStartBy, 1), StateWithdrawn, WhyStartByPassed, ActSettle},
			{0, settleNow(1), StateWithdrawn, "", ActAnnounce},
		}},
		{"create window closed: reads only, then a person", full, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{minute, lose(1), StateCreateUnknown, "", ActLookup},
			{15 * minute, pass(ClockCreate, 1), StateReconciling, WhyCreateWindowClosed, ActLookup},
			{24 * time.Hour, pass(ClockRecon, 1), StateNeedsReview, WhyCreateUnresolved, ActReview},
			{minute, find("j1", "lookup"), StateAccepted, "", ActPoll},
		}},
		{"the answer is the outcome: read before accepted", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{time.Second, final, StateSubmitted, "", ActExpireLease},
			{0, accept(1, "j1"), StateSucceeded, WhyConfirmed, ActSettle},
			{0, settleNow(1), StateSucceeded, "", ActAnnounce},
		}},
	}
}

func remoteWalks() []walk {
	begin := func(steps ...walkStep) []walkStep {
		return append([]walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{time.Second, accept(1, "j1"), StateAccepted, WhyBound, ActPoll},
		}, steps...)
	}
	ok, bad, dead := RemoteSucceeded, RemoteFailed, RemoteCancelled
	return []walk{
		{"404 just after create, then running", readable, begin(
			walkStep{time.Second, gone("j1"), StateAccepted, WhyBound, ActPoll},
			walkStep{time.Second, read("j1", RemoteRunning), StateObserving, WhyAlive, ActPoll},
		)},
		{"404, then running: the clock that was armed is moot", readable, begin(
			walkStep{time.Second, gone("j1"), StateAccepted, WhyBound, ActPoll},
			walkStep{15 * minute, read("j1", RemoteRunning), StateObserving, WhyAlive, ActPoll},
			walkStep{0, pass(ClockConfirm, 1), StateObserving, WhyAlive, ActPoll},
		)},
		{"404 until the confirm clock runs out: a person", readable, begin(
			walkStep{time.Second, gone("j1"), StateAccepted, "", ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 1), StateNeedsReview, WhyJobGone, ActReview},
			walkStep{minute, read("j1", ok), StateSucceeded, WhyConfirmed, ActSettle},
		)},
		{"webhook before the create answer", pushing, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{0, hook("j1", ok), StateSubmitted, "", ActExpireLease},
			{0, accept(1, "j1"), StateConfirming, WhyClaim, ActPoll},
		}},
		{"our reads contradict each other: a person", readable, begin(
			walkStep{minute, read("j1", bad), StateFailed, WhyConfirmed, ActSettle},
			walkStep{minute, read("j1", ok), StateNeedsReview, WhyContradictoryReads, ActReview},
		)},
		{"a re-run under the same id is no contradiction", readable, begin(
			walkStep{minute, read("j1", bad), StateFailed, WhyConfirmed, ActSettle},
			walkStep{minute, rerun(read("j1", ok), 1), StateSucceeded, WhyConfirmed, ActSettle},
		)},
		{"a claim that reads contradict, then a new one", pushing, begin(
			walkStep{minute, hook("j1", bad), StateConfirming, WhyClaim, ActPoll},
			walkStep{minute, read("j1", RemoteRunning), StateConfirming, WhyClaim, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 1), StateObserving, WhyAlive, ActPoll},
			walkStep{minute, hook("j1", ok), StateConfirming, WhyContested, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 2), StateNeedsReview, WhyContested, ActReview},
			walkStep{minute, read("j1", ok), StateSucceeded, WhyConfirmed, ActSettle},
		)},
		{"two claims, and reads say running: both contradicted", pushing, begin(
			walkStep{minute, hook("j1", bad), StateConfirming, WhyClaim, ActPoll},
			walkStep{minute, hook("j1", ok), StateConfirming, WhyContested, ActPoll},
			walkStep{minute, read("j1", RemoteRunning), StateConfirming, WhyContested, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 1), StateObserving, WhyAlive, ActPoll},
		)},
		{"gone after a contradicted claim arms its own clock", pushing, begin(
			walkStep{minute, hook("j1", bad), StateConfirming, WhyClaim, ActPoll},
			walkStep{minute, read("j1", RemoteRunning), StateConfirming, WhyClaim, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 1), StateObserving, WhyAlive, ActPoll},
			walkStep{minute, gone("j1"), StateObserving, WhyAlive, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 2), StateNeedsReview, WhyJobGone, ActReview},
		)},
		{"nobody confirms a claim: a person, then the read", pushing, begin(
			walkStep{minute, hook("j1", bad), StateConfirming, WhyClaim, ActPoll},
			walkStep{15 * minute, pass(ClockConfirm, 1), StateNeedsReview, WhyClaimUnconfirmed, ActReview},
			walkStep{0, review(WhyClaimUnconfirmed), StateNeedsReview, "", ActPoll},
			walkStep{minute, read("j1", dead), StateCancelled, WhyConfirmed, ActSettle},
		)},
		{"no status endpoint: the webhook confirms", blind, []walkStep{
			{0, start(1), StateSubmitted, "", ActExpireLease},
			{time.Second, accept(1, "j1"), StateAccepted, WhyBound, ActDeadline},
			{minute, hook("j1", ok), StateSucceeded, WhyWebhookOnly, ActSettle},
		}},
		{"two jobs for one token: conflict", tokened, begin(
			walkStep{minute, find("j2", "lookup"), StateConflict, WhyTwoJobs, ActReview},
			walkStep{minute, read("j1", ok), StateConflict, WhyTwoJobs, ActReview},
		)},
		{"result deadline, then a late success: collected", fetching, begin(
			walkStep{time.Hour, pass(ClockResult, 1), StateResultTimedOut, WhyResultDeadline, ActReview},
			walkStep{minute, read("j1", ok), StateResultCollecting, WhyResultPending, ActCollect},
			walkStep{minute, keep(1, `{"ok":true}`), StateSucceeded, WhyConfirmed, ActSettle},
		)},
		{"a result that is not there yet is tried again", fetching, begin(
			walkStep{minute, read("j1", ok), StateResultCollecting, WhyResultPending, ActCollect},
			walkStep{minute, &ResultUnavailable{G: 1, N: 1, Reason: "timeout"}, StateResultCollecting, WhyResultPending, ActCollect},
			walkStep{time.Hour, pass(ClockCollect, 1), StateResultUnavail, WhyResultUnavailable, ActReview},
			walkStep{minute, keep(1, `{}`), StateSucceeded, WhyConfirmed, ActSettle},
		)},
		{"an invalid result: a person", fetching, begin(
			walkStep{minute, read("j1", ok), StateResultCollecting, "", ActCollect},
			walkStep{minute, &ResultInvalid{G: 1, N: 1, Rule: "schema"}, StateResultInvalid, WhyResultInvalid, ActReview},
		)},
		{"settled, then the provider says otherwise: reversed", readable, begin(
			walkStep{minute, read("j1", ok), StateSucceeded, "", ActSettle},
			walkStep{0, settleNow(1), StateSucceeded, "", ActAnnounce},
			walkStep{0, publish(1), StateSucceeded, "", ActNone},
			walkStep{minute, read("j1", bad), StateReversed, WhyChangedAfterAnnounce, ActReview},
		)},
	}
}
