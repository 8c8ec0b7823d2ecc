package events

import (
	"fmt"
	"time"
)

// ActionKind is what the reconciler does next.
type ActionKind string

// The actions. Those marked D are decisions: appended under the fence before
// anything leaves or anybody is told.
const (
	ActNone        ActionKind = ""             // nothing is owed
	ActCreate      ActionKind = "create"       // D create.attempt_started, then the create call
	ActExpireLease ActionKind = "expire_lease" // an attempt's worker is gone: create.ambiguous{lease_expired}
	ActBind        ActionKind = "bind"         // recon.found: a proven callback named a job
	ActLookup      ActionKind = "lookup"       // ask the provider whether it has a job for us
	ActPoll        ActionKind = "poll"         // read the job's status
	ActCollect     ActionKind = "collect"      // store the result
	ActSettle      ActionKind = "settle"       // D op.settled
	ActAnnounce    ActionKind = "announce"     // the public copy of a settlement
	ActReview      ActionKind = "open_review"  // D review.opened
	ActDeadline    ActionKind = "deadline"     // deadline.passed
)

// Action is the one next thing that an operation owes, and when.
type Action struct {
	Kind ActionKind
	At   time.Time // not before; meaningless for ActNone
	N    int       // create, collect: number of the attempt; expire_lease: the attempt that ended
	G    int       // settle, announce: settlement; collect: result generation
	// Clock, Gen and Due are of a deadline.
	Clock Clock
	Gen   int
	Due   time.Time
	// Remote is the job to bind, to poll or to collect from.
	Remote RemoteRef
	// Reason is of a review.
	Reason string
}

// Memory is what a reconciler remembers about an operation and never stores:
// losing it costs one early read.
type Memory struct {
	Polled     time.Time // when the last status read or look-up ended; zero: not since the start
	ReadsAfter time.Time // no read before; a pause that the provider asked for
}

// Next names the one action of a job that is due first: a pure function of the
// facts, the pacing and the clock. A deadline that is due goes before a create,
// so nothing is sent after its window; a read that is due goes before the
// deadlines that wait for reads, so an outage of ours does not decide for the
// provider.
func Next(j *Job, p Policy, now time.Time, m Memory) Action {
	p = p.WithDefaults()
	main := j.mainAction(p, now, m)
	for _, c := range j.clocks() {
		d := Action{Kind: ActDeadline, At: c.at, Clock: c.name, Gen: c.gen, Due: c.at}
		switch {
		case main.Kind == ActNone:
			main = d
		case main.Kind == ActCreate && !d.At.After(now):
			main = d
		case d.At.Before(main.At):
			main = d
		}
	}
	return main
}

func (j *Job) mainAction(p Policy, now time.Time, m Memory) Action {
	if !j.Prepared.Set() {
		return Action{}
	}
	if b := j.unboundProof(); b != nil {
		return Action{Kind: ActBind, At: now, Remote: b.Remote}
	}
	for _, s := range j.Settlements {
		if s.Set() && !s.Public.Set() {
			return Action{Kind: ActAnnounce, At: now, G: s.G}
		}
	}
	switch {
	case j.State.Settled():
		if j.settlement() == nil {
			return Action{Kind: ActSettle, At: now, G: 1}
		}
		return Action{}
	case j.State.Suspended():
		return j.suspendedAction(p, now, m)
	}
	switch j.State {
	case StatePrepared:
		return j.createAction(p, now)
	case StateSubmitted:
		a := j.creation().newest
		return Action{Kind: ActExpireLease, At: a.LeaseUntil, N: a.N}
	case StateCreateUnknown:
		return j.unknownAction(p, now, m)
	case StateReconciling:
		return j.lookupAction(p, m)
	case StateResultCollecting:
		return j.collectAction(p)
	default: // accepted, observing, confirming
		return j.pollAction(p, m)
	}
}

// unboundProof returns a job that a proven callback named and that is not bound.
func (j *Job) unboundProof() *Binding {
	for i := range j.Proven {
		if !j.isBound(j.Proven[i].Remote.Key) {
			return &j.Proven[i]
		}
	}
	return nil
}

func (j *Job) isBound(key JobKey) bool {
	for _, b := range j.Bound {
		if b.Remote.Key == key {
			return true
		}
	}
	return false
}

// createAction sends the first attempt at once and later ones at growing
// intervals, or when the provider said so.
func (j *Job) createAction(p Policy, now time.Time) Action {
	n := len(j.Attempts)
	if n == 0 {
		return Action{Kind: ActCreate, At: j.Prepared.At, N: 1}
	}
	last := &j.Attempts[n-1]
	at := last.Ended.At.Add(step(j.Operation, n-1, p.RetryBase, p.RetryCap, p.PollJitter))
	if last.outcome() == throttled && last.Throttled.RetryAt.After(at) {
		at = last.Throttled.RetryAt
	}
	return Action{Kind: ActCreate, At: at, N: last.N + 1}
}

// unknownAction looks up first where the provider offers it; else, or when the
// look-up gave no answer, sends the same token again while the contract covers
// it; else only the clocks run.
func (j *Job) unknownAction(p Policy, now time.Time, m Memory) Action {
	k := j.Prepared.Contract
	c := j.creation()
	look := Action{}
	if k.Lookup {
		look = j.lookupAction(p, m)
		if j.ReconFailed.Seq < c.newest.Ended.Seq {
			return look
		}
	}
	if !k.Idempotent || c.newest.N >= AttemptsMax {
		return look
	}
	again := j.createAction(p, now)
	if k.TokenRetention > 0 {
		// Judged at the instant it would leave: after an outage of ours the time
		// that it was due at says nothing.
		if !laterTime(again.At, now).Before(j.retentionEnd()) {
			return look
		}
	}
	if look.Kind != ActNone && look.At.Before(again.At) {
		return look
	}
	return again
}

// retentionEnd is when the provider may have forgotten the token, with a margin;
// zero: never.
func (j *Job) retentionEnd() time.Time {
	keep := j.Prepared.Contract.TokenRetention.Std()
	if keep <= 0 || len(j.Attempts) == 0 {
		return time.Time{}
	}
	return j.Attempts[0].At.Add(keep - min(keep/10, time.Hour))
}

// SendLimit is the last instant at which the next create may leave: the
// intent's own limit, the end of the create window, the end of the token's
// retention. Zero: none.
func (j *Job) SendLimit() time.Time {
	limit := j.retentionEnd()
	for _, c := range j.clocks() {
		if (c.name == ClockStartBy || c.name == ClockCreate) && (limit.IsZero() || c.at.Before(limit)) {
			limit = c.at
		}
	}
	return limit
}

func (j *Job) lookupAction(p Policy, m Memory) Action {
	if !j.Prepared.Contract.Lookup {
		return Action{}
	}
	t0 := j.creation().newest.Ended.At.Add(p.LookupDelay)
	if m.Polled.Before(t0) {
		return Action{Kind: ActLookup, At: laterTime(t0, m.ReadsAfter)}
	}
	return Action{Kind: ActLookup, At: laterTime(nextTick(j.Operation, t0, m.Polled, p.RetryBase, p.RetryCap, p.PollJitter), m.ReadsAfter)}
}

func (j *Job) pollAction(p Policy, m Memory) Action {
	r := j.Remote()
	if r == nil || !j.Prepared.Contract.Status {
		return Action{}
	}
	a := Action{Kind: ActPoll, Remote: j.Bound[0].Remote}
	urgent := r.lastClaim()
	if r.gone() {
		urgent = latest(urgent, r.Gone)
	}
	switch {
	case urgent.Set() && m.Polled.Before(urgent.At):
		a.At = urgent.At // a claim is confirmed by reading at once
	case urgent.Set():
		a.At = nextTick(j.Operation, urgent.At, m.Polled, p.PollBase, p.PollCap, p.PollJitter)
	default:
		a.At = nextTick(j.Operation, laterTime(r.changed(), j.Bound[0].At), m.Polled, p.PollBase, p.PollCap, p.PollJitter)
	}
	return deferred(a, r, m)
}

// collectAction collects at once, and again at growing intervals after attempts
// that gave nothing yet.
func (j *Job) collectAction(p Policy) Action {
	r := j.Remote()
	if r == nil {
		return Action{}
	}
	a := Action{Kind: ActCollect, At: j.confirmedAt(r).At, G: 1, N: 1, Remote: j.Bound[0].Remote}
	if n := len(j.Results); n > 0 {
		last := &j.Results[n-1]
		a.G, a.N = last.G, last.Tried+1
		if last.TriedAt.Set() {
			a.At = last.TriedAt.At.Add(step(j.Operation, max(last.Tried-1, 0), p.RetryBase, p.RetryCap, p.PollJitter))
		}
	}
	return a
}

// suspendedAction asks a person, once a reason, and goes on reading slowly.
func (j *Job) suspendedAction(p Policy, now time.Time, m Memory) Action {
	if id := j.reviewID(); !j.hasReview(id) {
		return Action{Kind: ActReview, At: now, Reason: j.Why}
	}
	r := j.Remote()
	if r == nil || !j.Prepared.Contract.Status {
		if len(j.Bound) == 0 && j.Prepared.Contract.Lookup && len(j.Attempts) > 0 {
			a := j.lookupAction(p, m)
			a.At = laterTime(a.At, m.Polled.Add(p.ReconcileInterval))
			return a
		}
		return Action{}
	}
	if j.State == StateReversed || j.State == StateResultUnavail || j.State == StateResultInvalid {
		return Action{}
	}
	a := Action{Kind: ActPoll, Remote: j.Bound[0].Remote, At: now}
	if !m.Polled.IsZero() {
		a.At = m.Polled.Add(p.ReconcileInterval)
	}
	return deferred(a, r, m)
}

// deferred moves a read behind the pause that the provider asked for.
func deferred(a Action, r *Remote, m Memory) Action {
	a.At = laterTime(laterTime(a.At, r.Deferred.Until), m.ReadsAfter)
	return a
}

// reviewID names the question that the present state asks.
func (j *Job) reviewID() string { return fmt.Sprintf("%s:%d", j.Why, 1) }

func (j *Job) hasReview(id string) bool {
	for _, r := range j.Reviews {
		if r.ID == id {
			return true
		}
	}
	return false
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Plan writes the next action into the record, for people and for lists.
func (j *Job) Plan(p Policy, now time.Time) {
	a := Next(j, p, now, Memory{})
	j.Next, j.NextDue = string(a.Kind), a.At
	if a.Kind == ActNone {
		j.NextDue = time.Time{}
	}
}
