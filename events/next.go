package events

import "time"

// ActionKind is what the reconciler does next.
type ActionKind string

// The actions. Those marked D are decisions: appended under the fence before
// anything leaves or anybody is told.
const (
	ActNone          ActionKind = ""               // nothing is owed
	ActCreate        ActionKind = "create"         // D create.attempt_started, then the create call
	ActExpireLease   ActionKind = "expire_lease"   // an attempt's worker is gone: create.ambiguous{lease_expired}
	ActBind          ActionKind = "bind"           // recon.found: a proven callback named a job
	ActLookup        ActionKind = "lookup"         // ask the provider whether it has a job for us
	ActPoll          ActionKind = "poll"           // read the job's status
	ActCancel        ActionKind = "cancel"         // D cancel.attempt_started, then the cancel call
	ActExpireCancel  ActionKind = "expire_cancel"  // a cancel's worker is gone: cancel.ambiguous{lease_expired}
	ActCollect       ActionKind = "collect"        // store the result; D result.attempt_started before anything is fetched
	ActExpireCollect ActionKind = "expire_collect" // a fetch's worker is gone: result.unavailable{lease_expired}, final if it can be fetched once
	ActSettle        ActionKind = "settle"         // D op.settled
	ActAnnounce      ActionKind = "announce"       // the public copy of a settlement
	ActReview        ActionKind = "open_review"    // D review.opened
	ActDeadline      ActionKind = "deadline"       // deadline.passed
)

// Changes reports whether the action makes a call that may change something at
// the provider. A held account makes none.
func (k ActionKind) Changes() bool { return k == ActCreate || k == ActCancel || k == ActCollect }

// Action is the one next thing that an operation owes, and when.
type Action struct {
	Kind ActionKind
	At   time.Time // not before; meaningless for ActNone
	N    int       // create, cancel, collect: number of the attempt; expire_…: the attempt that ended
	G    int       // settle, announce: settlement; collect: result generation
	// Window is the create window that an attempt belongs to.
	Window int
	// Clock, Gen and Due are of a deadline.
	Clock Clock
	Gen   int
	Due   time.Time
	// Remote is the job to bind, to poll, to cancel or to collect from.
	Remote RemoteRef
	// Review and Reason are of a question to a person.
	Review string
	Reason string
}

// Memory is what a reconciler knows beside the facts of an operation and never
// stores with it: losing it costs one early read.
type Memory struct {
	Polled     time.Time // when the last status read or look-up ended; zero: not since the start
	ReadsAfter time.Time // no read before; a pause that the provider asked for
	Held       bool      // nothing may be sent for the account, see Account.Hold
}

// Next names the one action of a job that is due first: a pure function of the
// facts, the pacing and the clock. A deadline that is due goes before a create,
// so nothing is sent after its window; a read that is due goes before the
// deadlines that wait for reads, so an outage of ours does not decide for the
// provider.
func Next(j *Job, p Policy, now time.Time, m Memory) Action {
	q := plan{j: j, p: p.WithDefaults(), now: now, m: m}
	q.main()
	for _, c := range j.clocks() {
		d := Action{Kind: ActDeadline, At: c.at, Clock: c.name, Gen: c.gen, Due: c.at}
		if q.best.Kind == ActCreate && !d.At.After(now) {
			q.best = d
		}
		q.offer(d)
	}
	return q.best
}

// plan collects what an operation owes and keeps what is due first; of two that
// are due at one instant, the one that was offered first.
type plan struct {
	j    *Job
	p    Policy
	now  time.Time
	m    Memory
	best Action
}

func (q *plan) offer(a Action) {
	if a.Kind == ActNone || (q.m.Held && a.Kind.Changes()) {
		return
	}
	if q.best.Kind == ActNone || a.At.Before(q.best.At) {
		q.best = a
	}
}

// main offers everything but the clocks.
func (q *plan) main() {
	j := q.j
	if j.Archived != nil || (!j.Prepared.Set() && j.Held() == nil) {
		return
	}
	if b := j.unboundProof(); b != nil {
		q.offer(Action{Kind: ActBind, At: q.now, Remote: b.Remote})
		return
	}
	for i := range j.Settlements {
		if s := &j.Settlements[i]; s.Set() && s.Settled != nil && !s.Public.Set() {
			q.offer(Action{Kind: ActAnnounce, At: q.now, G: s.G})
			return
		}
	}
	for _, reason := range j.Questions() {
		if j.review(reason) == nil {
			q.offer(Action{Kind: ActReview, At: q.now, Reason: reason, Review: j.ReviewID(reason)})
			return
		}
	}
	if j.Held() != nil {
		return
	}
	q.foreign()
	switch {
	case j.State.Settled():
		q.settled()
	case j.State.Suspended():
		q.suspended()
	default:
		q.working()
	}
}

func (q *plan) working() {
	j := q.j
	switch j.State {
	case StatePrepared:
		q.offer(j.createAction(q.p))
	case StateSubmitted:
		a := j.creation().newest
		q.offer(Action{Kind: ActExpireLease, At: a.LeaseUntil, N: a.N})
	case StateCreateUnknown:
		q.unknown()
	case StateReconciling:
		q.offer(j.lookupAction(q.p, q.m))
	case StateResultCollecting:
		q.collect()
	case StateCancelRequested, StateCancelling:
		q.cancel()
		if q.best.Kind != ActCancel || q.best.At.After(q.now) {
			q.poll() // somebody waits for the cancellation, so it goes first
		}
	default: // accepted, observing, confirming
		q.poll()
	}
}

// unboundProof returns a job that a proven callback named and that is not bound.
func (j *Job) unboundProof() *Binding {
	if len(j.Bound) >= bindingsMax {
		return nil
	}
	for i := range j.Proven {
		if !j.isBound(j.Proven[i].Remote.Key) {
			return &j.Proven[i]
		}
	}
	return nil
}

func (j *Job) isBound(key JobKey) bool {
	for i := range j.Bound {
		if j.Bound[i].Remote.Key == key {
			return true
		}
	}
	return false
}

// createAction sends the first attempt at once and later ones at growing
// intervals, or when the provider said so.
func (j *Job) createAction(p Policy) Action {
	n := len(j.Attempts)
	if n == 0 {
		return Action{Kind: ActCreate, At: j.Prepared.At, N: 1, Window: 1}
	}
	last := &j.Attempts[n-1]
	at := last.Ended.At.Add(step(j.Operation, n-1, p.RetryBase, p.RetryCap, p.PollJitter))
	if last.outcome() == throttled && last.Throttled.RetryAt.After(at) {
		at = last.Throttled.RetryAt
	}
	a := Action{Kind: ActCreate, At: at, N: last.N + 1, Window: last.N + 1}
	if j.creation().dirty != nil {
		a.Window = last.Window
	}
	return a
}

// unknown looks up first where the provider offers it; else, or when the look-up
// gave no answer, sends the same token again while the contract covers it; else
// only the clocks run. Nothing is sent once somebody cancelled.
func (q *plan) unknown() {
	j := q.j
	k := &j.Prepared.Contract
	c := j.creation()
	if k.Lookup {
		q.offer(j.lookupAction(q.p, q.m))
		if j.ReconFailed.Seq < c.newest.Ended.Seq {
			return
		}
	}
	if !k.Idempotent || j.Cancel.Set() || c.newest.N >= AttemptsMax {
		return
	}
	again := j.createAction(q.p)
	// Judged at the instant it would leave: after an outage of ours the time that
	// it was due at says nothing.
	if end := j.retentionEnd(); end.IsZero() || laterTime(again.At, q.now).Before(end) {
		q.offer(again)
	}
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
