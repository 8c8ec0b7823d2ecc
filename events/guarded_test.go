package events

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A guarded history is one that can happen: decisions are what Next owes at that
// moment, a person answers what is asked with what fits, and the provider says
// what it likes, to what was sent, in any order and as often as it likes.

// driver draws guarded histories.
type driver struct {
	*stage
	rt      *rapid.T
	asked   []int // create attempts, cancel calls and look-ups that the provider may answer
	cancels []int
}

var guardedContracts = []Contract{
	{Status: true}, {Callback: true}, {Status: true, Idempotent: true, Cancel: true}, {Status: true, Lookup: true, Cancel: true, CancelIdempotent: true},
	{Status: true, Callback: true, Idempotent: true, Lookup: true, Cancel: true, Result: true},
	{Status: true, Lookup: true, RejectAuthoritative: true, ReviewLate: true}, {Callback: true, Idempotent: true, Cancel: true, Result: true, ResultOnce: true},
}

func newDriver(t testing.TB, rt *rapid.T) *driver {
	d := &driver{stage: newStage(t), rt: rt}
	p := prepare(testOp, rapid.SampledFrom(guardedContracts).Draw(rt, "contract"))
	if rapid.Bool().Draw(rt, "start by") {
		p.Deadlines.StartBy = d.now.Add(10 * time.Minute)
	}
	d.add(testOp, p)
	return d
}

func (d *driver) pick(label string, words ...string) string {
	return rapid.SampledFrom(words).Draw(d.rt, label)
}

// step appends one event and returns what it was; false: nothing could happen.
func (d *driver) step() (Data, bool) {
	d.now = d.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(d.rt, "seconds")) * time.Second)
	before := len(d.log)
	switch n := rapid.IntRange(0, 9).Draw(d.rt, "who"); {
	case n < 4:
		d.owed()
	case n < 8:
		d.provider()
	default:
		d.person()
	}
	if len(d.log) == before {
		return nil, false
	}
	return d.log[len(d.log)-1].Event.Data, true
}

// owed takes the step that Next names, waiting for it if need be.
func (d *driver) owed() {
	a := d.next(testOp, d.read[testOp])
	if a.Kind == ActNone {
		return
	}
	d.now = laterTime(d.now, a.At)
	j := d.job(testOp)
	switch a.Kind {
	case ActCreate:
		d.asked = append(d.asked, a.N)
		d.add(testOp, &AttemptStarted{N: a.N, Window: a.Window})
	case ActExpireLease:
		d.add(testOp, &Ambiguous{N: a.N, Class: "lease_expired"})
	case ActBind:
		d.add(testOp, &ReconFound{Remote: a.Remote, Via: "callback"})
	case ActLookup:
		d.read[testOp] = d.now
		d.lookup(j)
	case ActPoll:
		d.read[testOp] = d.now
		d.poll(a.Remote.ID)
	case ActCancel:
		d.cancels = append(d.cancels, a.N)
		d.add(testOp, &CancelStarted{N: a.N, Remote: a.Remote})
	case ActExpireCancel:
		d.add(testOp, &CancelAmbiguous{N: a.N, Class: "lease_expired"})
	case ActCollect:
		d.add(testOp, &CollectStarted{G: a.G, N: a.N})
	case ActExpireCollect:
		d.add(testOp, &ResultUnavailable{G: a.G, N: a.N, Final: j.Prepared.Contract.ResultOnce, Reason: "lease_expired"})
	case ActSettle:
		d.add(testOp, settleNow(a.G))
	case ActAnnounce:
		d.add(testOp, publish(a.G))
	case ActReview:
		d.add(testOp, &ReviewOpened{ID: a.Review, Reason: a.Reason, State: j.State})
	case ActDeadline:
		d.add(testOp, &DeadlinePassed{Name: a.Clock, Gen: a.Gen})
	default:
		d.rt.Fatalf("nobody takes the step %q", a.Kind)
	}
}

func (d *driver) lookup(j *Job) {
	ended := 0
	for _, a := range j.Attempts {
		if !a.Ended.Set() {
			break
		}
		ended = a.N
	}
	switch d.pick("look-up", "found", "absent", "failed") {
	case "found":
		d.add(testOp, find(d.pick("job", "j1", "j1", "j1", "j2"), "lookup"))
	case "absent":
		if ended > 0 {
			d.add(testOp, missing(ended))
		}
	default:
		d.add(testOp, &ReconFailed{Class: "timeout"})
	}
}

func (d *driver) poll(id string) {
	switch d.pick("read", "state", "state", "state", "gone", "strange", "defer") {
	case "state":
		d.add(testOp, rerun(read(id, d.remoteState()), rapid.IntRange(0, 1).Draw(d.rt, "run")))
	case "gone":
		d.add(testOp, gone(id))
	case "strange":
		d.add(testOp, &Unrecognised{Remote: ref(id), Status: "warming", Source: SourcePoll})
	default:
		d.add(testOp, &PollDeferred{Remote: ref(id), Until: d.now.Add(time.Minute), Reason: "retry_after"})
	}
}

func (d *driver) remoteState() RemoteState {
	return RemoteState(d.pick("state", "queued", "running", "running", "cancelling", "succeeded", "failed", "cancelled"))
}

// provider answers something that was sent, perhaps once more, or pushes.
func (d *driver) provider() {
	j := d.job(testOp)
	what := d.pick("provider", "create", "cancel", "result", "webhook", "webhook")
	switch {
	case what == "create" && len(d.asked) > 0:
		n := rapid.SampledFrom(d.asked).Draw(d.rt, "attempt")
		switch d.pick("answer", "accept", "accept", "reject", "lose", "unsent", "throttle") {
		case "accept":
			d.add(testOp, accept(n, d.pick("job", "j1", "j1", "j1", "j2")))
		case "reject":
			d.add(testOp, &Rejected{N: n, Class: d.pick("class", "invalid_request", "invalid_request", WhyTokenMismatch)})
		case "lose":
			d.add(testOp, lose(n))
		case "unsent":
			d.add(testOp, notSend(n))
		default:
			d.add(testOp, &Throttled{N: n, RetryAt: d.now.Add(time.Minute)})
		}
	case what == "cancel" && len(d.cancels) > 0:
		n := rapid.SampledFrom(d.cancels).Draw(d.rt, "call")
		switch d.pick("answer", "ack", "terminal", "unsupported", "lost", "unsent") {
		case "ack":
			d.add(testOp, &CancelAcknowledged{N: n})
		case "lost":
			d.add(testOp, &CancelAmbiguous{N: n, Class: "timeout"})
		case "unsent":
			d.add(testOp, &CancelNotSent{N: n, Class: "dial"})
		case "terminal":
			d.add(testOp, &CancelRefused{N: n, Why: RefusalTerminal})
		default:
			d.add(testOp, &CancelRefused{N: n, Why: RefusalUnsupported})
		}
	case what == "result" && len(j.Results) > 0 && j.Results[len(j.Results)-1].Started > 0:
		r := j.Results[len(j.Results)-1]
		switch d.pick("answer", "stored", "later", "final", "invalid") {
		case "stored":
			d.add(testOp, keep(r.G, `{}`))
		case "invalid":
			d.add(testOp, &ResultInvalid{G: r.G, N: r.Started, Rule: "schema"})
		case "later":
			d.add(testOp, &ResultUnavailable{G: r.G, N: r.Started, Reason: "not yet"})
		default:
			d.add(testOp, &ResultUnavailable{G: r.G, N: r.Started, Final: true, Reason: "expired"})
		}
	case what == "webhook" && len(d.asked) > 0: // nothing is sent, nothing is pushed
		o := rerun(hook(d.pick("job", "j1", "j1", "j1", "j2"), d.remoteState()), rapid.IntRange(0, 1).Draw(d.rt, "run"))
		if rapid.Bool().Draw(d.rt, "proves") {
			o = prove(o, testOp)
		}
		d.add(testOp, o)
	}
}

// person cancels, or answers what is asked with one of the answers that fit.
func (d *driver) person() {
	j := d.job(testOp)
	if !j.Cancel.Set() && d.pick("person", "cancel", "answer", "answer") == "cancel" {
		if j.settlement() == nil { // the door refuses it afterwards
			d.add(testOp, &CancelRequested{ID: "req-1", By: "dana"})
		}
		return
	}
	open := j.OpenReviews()
	if len(open) == 0 {
		return
	}
	r := rapid.SampledFrom(open).Draw(d.rt, "review")
	action := rapid.SampledFrom(j.Answers(r.Reason)).Draw(d.rt, "answer")
	line := string(action)
	switch action {
	case ResolveBind:
		line += " " + d.pick("job", "j1", "j2")
	case ResolveForeignCancel:
		line += " " + j.stray().Remote.ID
	case ResolveDismiss:
		if h := j.Held(); h != nil {
			line += fmt.Sprintf(" %d", h.Seq)
		} else if b := j.stray(); b != nil && r.Reason == WhyForeign {
			line += " " + b.Remote.ID
		}
	case ResolveExtend:
		line += " 100h"
	case ResolveClose:
		line += " failed"
	case ResolveAcknowledge:
		line += " " + d.pick("truth", "succeeded", "failed", "cancelled")
	}
	answer, err := d.answer(testOp, words{strings.Fields(line)})
	if err != nil {
		d.rt.Fatal(err)
	}
	answer.ID = r.ID
	if err := j.CheckResolution(answer, ""); err != nil {
		d.rt.Fatalf("%s to %s (%s): an answer that is offered must fit: %v", line, j.State, j.Why, err)
	}
	d.add(testOp, answer)
}

// progress ranks the states by how much is known. Suspended for want of proof
// ranks below a bound job: a person is no progress.
var progress = map[State]int{
	StatePrepared: 1, StateSubmitted: 2, StateCreateUnknown: 3, StateReconciling: 4, StateNeedsReview: 5, StateAccepted: 6,
	StateObserving: 7, StateResultTimedOut: 8, StateCancelRequested: 9, StateCancelling: 10, StateUnconfirmed: 11,
	StateConfirming: 12, StateResultCollecting: 13, StateResultUnavail: 14, StateResultInvalid: 14,
	StateSucceeded: 15, StateFailed: 15, StateCancelled: 15, StateRejected: 15, StateWithdrawn: 15, StateClosed: 15,
	StateReversed: 16, StateConflict: 16,
}

// sanctioned names the rule that allows an operation to fall from one state to
// another on an event; "" if none does. DESIGN.md says why each exists.
func sanctioned(from, to State, d Data, newRun bool) string {
	switch d := d.(type) {
	case *ReviewResolved:
		switch d.Action {
		case ResolveExtend:
			return "R3"
		case ResolveRetry:
			return "R7"
		case ResolveAbsent:
			return "R1"
		default:
			return "R5"
		}
	case *NotSent, *Throttled, *ReconAbsent:
		if to == StatePrepared {
			return "R1"
		}
	case *AttemptStarted:
		if to == StateSubmitted {
			return "R2"
		}
	case *CancelRequested, *CancelAcknowledged, *CancelRefused, *CancelAmbiguous, *CancelNotSent:
		return "R4"
	case *Observed:
		switch {
		case newRun:
			return "R7"
		case d.Reading.Authoritative && !d.Reading.State.Terminal() && from == StateConfirming && progress[to] <= progress[StateUnconfirmed]:
			return "R4" // the claim no longer hides the cancellation
		}
	case *DeadlinePassed:
		if d.Name == ClockConfirm {
			return "R6"
		}
	}
	switch {
	case to == StateNeedsReview:
		return "R6" // what was known is in doubt
	case from == StateRejected || from == StateWithdrawn:
		return "R6" // a refusal or a withdrawal that was not announced, and an attempt or a job that appears
	}
	return ""
}

// P5 and P8. Without them an operation would fall back silently: a customer would
// be told one thing, then another, and nobody would know that anything happened.
func TestGuardedHistories(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	states := map[State]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver(t, rt)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			j := d.job(testOp)
			from, announced, acked := j.State, j.settlement(), len(j.Acks)
			last := State("")
			if announced != nil {
				last = announced.State
			}
			runs, sizes := runsOf(j), sizesOf(j)
			e, ok := d.step()
			if !ok {
				continue
			}
			j = d.job(testOp)
			states[j.State] = true
			checkOwed(rt, j, d.now)
			if now := sizesOf(j); shrank(sizes, now) {
				rt.Fatalf("%s: facts shrank from %v to %v", describe(e), sizes, now)
			}
			if progress[j.State] < progress[from] {
				rule := sanctioned(from, j.State, e, runsOf(j) > runs || rerunOf(j))
				if rule == "" {
					rt.Fatalf("%s: from %s back to %s (%s), which no rule allows", describe(e), from, j.State, j.Why)
				}
				seen[rule]++
			}
			if last != "" && len(j.Acks) == acked && acked == 0 && j.State != last && j.State != StateReversed && j.State != StateConflict {
				rt.Fatalf("%s: announced as %s: want it, reversed or conflict, got %s (%s)", describe(e), last, j.State, j.Why)
			}
		}
	})
	t.Logf("regressions by rule: %v; %d of %d states reached", seen, len(states), len(States()))
}

// runsOf counts the runs of the operation's job.
func runsOf(j *Job) int {
	if r := j.Remote(); r != nil {
		return len(r.Runs)
	}
	return 0
}

// rerunOf reports whether the job was run anew.
func rerunOf(j *Job) bool {
	r := j.Remote()
	return r != nil && len(r.Runs) > 1
}

// sizesOf measures the facts: P4 says that none of it shrinks.
func sizesOf(j *Job) [14]int {
	s := [14]int{
		len(j.Attempts), j.Covers, len(j.Bound), len(j.Proven), len(j.Remotes), len(j.Fired), len(j.Grants), len(j.CancelCalls),
		len(j.Results), len(j.Settlements), len(j.Reviews), len(j.Acks), len(j.Unreadable),
	}
	for _, r := range j.Remotes {
		s[13] += len(r.Runs) + len(r.Strange)
		for _, run := range r.Runs {
			s[13] += len(run.Seen) + len(run.Claims) + len(run.Confirms)
		}
	}
	return s
}

func shrank(before, after [14]int) bool {
	for i := range before {
		if after[i] < before[i] {
			return true
		}
	}
	return false
}

// Without a way out of each question, an operation would be asked about for ever;
// without an end of each loop, it would be read, or tried, for ever. After any
// guarded history the provider begins to behave and a person answers: it ends.
func TestEveryHistoryEnds(t *testing.T) {
	t.Parallel()
	longest := 0
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver(t, rt)
		for range rapid.IntRange(0, 40).Draw(rt, "steps") {
			d.step()
		}
		const limit = 300
		for n := range limit {
			j := d.job(testOp)
			if s := j.Announced(); s != nil && s.Public.Set() && len(j.Questions()) == 0 {
				longest = max(longest, n)
				return
			}
			d.behave()
		}
		j := d.job(testOp)
		rt.Fatalf("%d steps later: %s (%s), asked %v, next %+v", limit, j.State, j.Why, j.Questions(), d.next(testOp, d.now))
	})
	t.Logf("at most %d steps to the end", longest)
}

// behave takes one step of an installation whose provider behaves and whose
// questions are answered.
func (d *driver) behave() {
	j := d.job(testOp)
	if open := j.OpenReviews(); len(open) > 0 {
		fit := j.Answers(open[0].Reason)
		line := string(fit[len(fit)-1]) // the last one ends most
		switch fit[len(fit)-1] {
		case ResolveClose:
			line += " failed"
		case ResolveAcknowledge:
			line += " failed"
		case ResolveDismiss:
			if h := j.Held(); h != nil {
				line += fmt.Sprintf(" %d", h.Seq)
			} else if b := j.stray(); b != nil && open[0].Reason == WhyForeign {
				line += " " + b.Remote.ID
			}
		case ResolveBind:
			line += " j1"
		}
		answer, err := d.answer(testOp, words{strings.Fields(line)})
		if err != nil {
			d.rt.Fatal(err)
		}
		answer.ID = open[0].ID
		if err := j.CheckResolution(answer, ""); err != nil {
			d.rt.Fatal(err)
		}
		d.add(testOp, answer)
		return
	}
	a := d.next(testOp, d.read[testOp])
	switch a.Kind {
	case ActPoll:
		d.now = laterTime(d.now, a.At)
		d.read[testOp] = d.now
		run := 0
		if r := j.Remote(); r != nil {
			run = r.newest().Attempt
		}
		d.add(testOp, rerun(read(a.Remote.ID, RemoteSucceeded), run))
	case ActCollect:
		d.now = laterTime(d.now, a.At)
		d.add(testOp, keep(a.G, `{}`))
	case ActLookup:
		d.now = laterTime(d.now, a.At)
		d.read[testOp] = d.now
		d.add(testOp, find("j1", "lookup"))
	case ActNone:
		d.rt.Fatalf("%s (%s): nothing is owed and nobody is asked", j.State, j.Why)
	default:
		d.owed()
	}
}
