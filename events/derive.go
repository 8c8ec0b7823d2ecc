package events

import "time"

// Reasons are the closed set of words in Job.Why, review reasons and
// settlement reasons.
const (
	WhyNotSent              = "not_sent"                  // nothing left, or it is proven that nothing happened
	WhyStartByPassed        = "start_by_passed"           // nothing was sent before the intent's own limit
	WhyInFlight             = "attempt_in_flight"         // an attempt may be on the wire
	WhyUnproven             = "answer_missing"            // nothing proves what became of the attempt
	WhyCreateWindowClosed   = "create_window_closed"      // only reads from here
	WhyCreateUnresolved     = "create_unresolved"         // nothing could prove it in time
	WhyAttemptsExhausted    = "attempts_exhausted"        // AttemptsMax is reached
	WhyRequestChanged       = "request_changed"           // the description renders other bytes than were pinned
	WhyTokenMismatch        = "token_payload_mismatch"    // the provider knows the token with another request
	WhyRejected             = "rejected"                  // refused; no job exists
	WhyTwoJobs              = "contract_violation"        // two jobs for one token
	WhySharedJob            = "job_bound_twice"           // one job for two tokens
	WhyBound                = "bound"                     // a job is known
	WhyAlive                = "seen_alive"                // the job was seen in a non-terminal state
	WhyClaim                = "claim"                     // a webhook says terminal; our read decides
	WhyContested            = "contested"                 // webhooks say two terminal states
	WhyClaimUnconfirmed     = "claim_unconfirmed"         // no read could confirm in time
	WhyJobGone              = "job_gone"                  // the provider no longer knows the job
	WhyContradictoryReads   = "contradictory_reads"       // our reads say two terminal states
	WhyConfirmed            = "confirmed"                 // read by ourselves
	WhyWebhookOnly          = "webhook_only"              // the provider has no status endpoint
	WhyResultPending        = "result_pending"            // confirmed; the result is not here yet
	WhyResultUnavailable    = "result_unavailable"        // it cannot be collected
	WhyResultInvalid        = "result_invalid"            // it fails a rule
	WhyResultDeadline       = "result_deadline_passed"    // no terminal state in time
	WhyChangedAfterAnnounce = "contradicts_the_announced" // the facts no longer give what was announced
	WhyNoIntent             = "no_intent"                 // evidence without op.prepared
)

// Derive names the state that the facts give. It is total: any set of facts has
// a state. First match wins.
func (j *Job) derive() (State, string) {
	s, why := j.deriveUnannounced()
	last := j.settlement()
	if last != nil && last.State != s && s != StateConflict {
		return StateReversed, WhyChangedAfterAnnounce
	}
	return s, why
}

func (j *Job) deriveUnannounced() (State, string) {
	switch len(j.Bound) {
	case 0:
		return j.deriveUnbound()
	case 1:
		r := j.remote(j.Bound[0].Remote.Key)
		if r == nil {
			return StateAccepted, WhyBound
		}
		if len(r.BoundOps) > 1 || r.MoreOwners {
			return StateConflict, WhySharedJob
		}
		return j.deriveBound(r)
	default:
		return StateConflict, WhyTwoJobs
	}
}

// outcome is the effective answer to an attempt: the strongest one counts,
// because a late definite answer corrects an early ambiguous one.
type outcome int

const (
	inFlight outcome = iota
	ambiguous
	notSent
	throttled
	rejected
	accepted
)

func (a *Attempt) outcome() outcome {
	switch {
	case a.Accepted.Set():
		return accepted
	case a.Rejected != nil:
		return rejected
	case a.Throttled != nil:
		return throttled
	case a.NotSent != "":
		return notSent
	case a.Ambiguous != "":
		return ambiguous
	default:
		return inFlight
	}
}

// creation sums up the attempts of an operation that is not bound.
type creation struct {
	newest   *Attempt
	dirty    *Attempt // first attempt that may have made a job; nil: clean
	rejected *Attempt // first effective rejection
}

func (j *Job) creation() creation {
	var c creation
	for i := range j.Attempts {
		a := &j.Attempts[i]
		c.newest = a
		switch o := a.outcome(); {
		case o == rejected && c.rejected == nil:
			c.rejected = a
		case (o == inFlight || o == ambiguous) && a.N > j.Covers && c.dirty == nil:
			c.dirty = a
		}
	}
	return c
}

func (j *Job) deriveUnbound() (State, string) {
	if !j.Prepared.Set() {
		return StateNeedsReview, WhyNoIntent
	}
	c := j.creation()
	if j.hasReview(WhyRequestChanged + ":1") {
		return StateNeedsReview, WhyRequestChanged
	}
	if c.rejected != nil && c.rejected.Rejected.Class == WhyTokenMismatch {
		return StateNeedsReview, WhyTokenMismatch
	}
	if c.rejected != nil && (c.dirty == nil || j.Prepared.Contract.RejectAuthoritative) {
		return StateRejected, WhyRejected
	}
	if c.dirty == nil {
		switch {
		case j.fired(ClockStartBy, 1).Set():
			return StateWithdrawn, WhyStartByPassed
		case c.newest != nil && c.newest.N >= AttemptsMax:
			return StateNeedsReview, WhyAttemptsExhausted
		default:
			return StatePrepared, WhyNotSent
		}
	}
	switch {
	case j.fired(ClockRecon, c.dirty.N).Set():
		return StateNeedsReview, WhyCreateUnresolved
	case j.fired(ClockCreate, c.dirty.N).Set():
		return StateReconciling, WhyCreateWindowClosed
	case c.newest.outcome() == inFlight:
		return StateSubmitted, WhyInFlight
	default:
		return StateCreateUnknown, WhyUnproven
	}
}

func (j *Job) deriveBound(r *Remote) (State, string) {
	run := r.newest()
	confirms, why := run.Confirms, WhyConfirmed
	if !j.Prepared.Contract.Status && len(confirms) == 0 {
		confirms, why = run.Claims, WhyWebhookOnly
	}
	if len(confirms) > 1 {
		return StateNeedsReview, WhyContradictoryReads
	}
	if len(confirms) == 1 {
		switch confirms[0].State {
		case RemoteFailed:
			return StateFailed, why
		case RemoteCancelled:
			return StateCancelled, why
		default:
			return j.deriveSucceeded(why)
		}
	}
	if len(run.Claims) > 0 {
		passed := j.confirmPassed(r.lastClaim())
		switch {
		case !passed && len(run.Claims) > 1:
			return StateConfirming, WhyContested
		case !passed:
			return StateConfirming, WhyClaim
		case run.Alive.Seq < r.lastClaim().Seq && len(run.Claims) > 1:
			return StateNeedsReview, WhyContested
		case run.Alive.Seq < r.lastClaim().Seq:
			return StateNeedsReview, WhyClaimUnconfirmed
		}
		// A later read found the job alive: the claim is contradicted.
	}
	if r.gone() && j.confirmPassed(r.Gone) {
		return StateNeedsReview, WhyJobGone
	}
	if j.fired(ClockResult, 1).Set() {
		return StateResultTimedOut, WhyResultDeadline
	}
	if len(run.Seen) > 0 || run.Alive.Set() {
		return StateObserving, WhyAlive
	}
	return StateAccepted, WhyBound
}

func (j *Job) deriveSucceeded(why string) (State, string) {
	if !j.Prepared.Contract.Result {
		return StateSucceeded, why
	}
	for i := len(j.Results) - 1; i >= 0; i-- {
		if j.Results[i].Stored != nil {
			return StateSucceeded, why
		}
	}
	if n := len(j.Results); n > 0 {
		switch r := &j.Results[n-1]; {
		case r.Invalid != "":
			return StateResultInvalid, WhyResultInvalid
		case r.Unavailable != "":
			return StateResultUnavail, WhyResultUnavailable
		}
	}
	if j.fired(ClockCollect, 1).Set() {
		return StateResultUnavail, WhyResultUnavailable
	}
	return StateResultCollecting, WhyResultPending
}

// confirmPassed reports whether the confirm clock ran out on the latest claim,
// or on the latest "gone". News after the last firing arms the clock anew. The
// two are asked about apart: a "gone" must not revive a claim that a read has
// contradicted, since no clock would then run on it.
func (j *Job) confirmPassed(news Mark) bool {
	_, fired := j.lastFired(ClockConfirm)
	return fired.Set() && fired.Seq > news.Seq
}

// due is one running clock.
type due struct {
	name Clock
	gen  int
	at   time.Time
}

// clocks returns the clocks that run in the present state, at most three. None
// runs once an outcome stands or a person is asked.
func (j *Job) clocks() []due {
	var out []due
	if j.State.Settled() || j.State.Suspended() {
		return out
	}
	run := func(name Clock, gen int, start time.Time, d Duration) {
		if !start.IsZero() && d > 0 && !j.fired(name, gen).Set() {
			out = append(out, due{name, gen, start.Add(d.Std())})
		}
	}
	// A clock that nobody set would never run out, and nobody would be asked.
	limits := DefaultDeadlines(j.Prepared.Contract).Overlay(j.Prepared.Deadlines)
	if len(j.Bound) == 0 {
		c := j.creation()
		if c.dirty != nil {
			began := c.dirty.Mark
			if !began.Set() {
				began = c.dirty.Ended // an answer without a decision; the fence forbids it
			}
			run(ClockCreate, c.dirty.N, began.At, limits.Create)
			run(ClockRecon, c.dirty.N, j.createClosed(c), limits.Recon)
		} else if c.rejected == nil && !limits.StartBy.IsZero() && !j.fired(ClockStartBy, 1).Set() {
			out = append(out, due{ClockStartBy, 1, limits.StartBy})
		}
		return out
	}
	r := j.Remote()
	if r == nil {
		return out
	}
	switch j.State {
	case StateAccepted, StateObserving:
		run(ClockResult, 1, j.Bound[0].At, limits.Result)
		if r.gone() && !j.confirmPassed(r.Gone) {
			run(ClockConfirm, j.nextGen(ClockConfirm), r.Gone.At, limits.Confirm)
		}
	case StateConfirming:
		run(ClockConfirm, j.nextGen(ClockConfirm), j.claimArmed(r), limits.Confirm)
	case StateResultCollecting:
		run(ClockCollect, 1, j.confirmedAt(r).At, limits.Collect)
	}
	return out
}

// createClosed is when no further create may be sent: the create clock ran out,
// or the provider offers no means to repeat one safely. Zero: still open.
func (j *Job) createClosed(c creation) time.Time {
	if m := j.fired(ClockCreate, c.dirty.N); m.Set() {
		return m.At
	}
	k := j.Prepared.Contract
	if !k.Idempotent && !k.Lookup && c.newest.outcome() != inFlight {
		return c.newest.Ended.At
	}
	return time.Time{}
}

func (j *Job) nextGen(name Clock) int {
	gen, _ := j.lastFired(name)
	return gen + 1
}

// claimArmed is when the first claim that the confirm clock has not yet run out
// on was made.
func (j *Job) claimArmed(r *Remote) time.Time {
	_, fired := j.lastFired(ClockConfirm)
	var m Mark
	for _, c := range r.newest().Claims {
		if !fired.Set() {
			m = earliest(m, c.First)
		} else if c.Last.Seq > fired.Seq {
			m = earliest(m, c.Last)
		}
	}
	return m.At
}

// confirmedAt is where the terminal state was confirmed, by the rule of the
// contract.
func (j *Job) confirmedAt(r *Remote) Mark {
	if c := j.terminal(r); c != nil {
		return c.First
	}
	return Mark{}
}

// terminal returns the one confirmed terminal state, nil if there is none or
// more than one.
func (j *Job) terminal(r *Remote) *Claim {
	run := r.newest()
	list := run.Confirms
	if len(list) == 0 && !j.Prepared.Contract.Status {
		list = run.Claims
	}
	if len(list) != 1 {
		return nil
	}
	return &list[0]
}
