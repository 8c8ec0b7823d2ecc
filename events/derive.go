package events

// finding is what the facts give: a state, the reason, and the sequences that
// both rest on (unset ones are 0).
type finding struct {
	state State
	why   string
	on    [4]uint64
}

func is(s State, why string, on ...uint64) finding {
	f := finding{state: s, why: why}
	copy(f.on[:], on)
	return f
}

// derive names the state that the facts give. It is total: any set of facts has
// a state. First match wins.
func (j *Job) derive() finding {
	if a := j.Archived; a != nil {
		return is(a.Data.State, a.Data.Reason, a.Seq)
	}
	last := j.settlement()
	if h := j.Held(); h != nil && last == nil {
		return is(StateNeedsReview, h.Reason, h.Seq)
	}
	f := j.deriveSaid()
	if last == nil || f.state == StateConflict || (last.State == f.state && !j.saysElse(last)) {
		return f
	}
	if a := j.ack(); a != nil && a.G == last.G {
		return f // a person knows that the announcement is wrong
	}
	if f.state == StateReversed || f.why == WhyBoundAfterClose {
		return finding{state: StateReversed, why: f.why, on: f.on}
	}
	return is(StateReversed, WhyChangedAfterAnnounce, last.Seq, f.on[0], f.on[1], f.on[2])
}

// saysElse reports whether an announcement of the same state says something else
// than the facts: the same end of another job, because a person corrected which
// one is the operation's, or a closure with another disposition.
func (j *Job) saysElse(s *Settlement) bool {
	if s.Settled == nil {
		return false
	}
	if s.State == StateClosed && j.Closed.Set() && s.Settled.Outcome != j.Closed.Disposition {
		return true
	}
	b := j.Own()
	return s.Settled.Remote != nil && b != nil && b.Remote.Key != s.Settled.Remote.Key
}

// ack returns a person's newest word about an announcement, nil if there is none.
func (j *Job) ack() *Ack {
	if n := len(j.Acks); n > 0 {
		return &j.Acks[n-1]
	}
	return nil
}

// deriveSaid lets a person's word about the truth stand, until something that we
// learn later contradicts it, or a person closes the operation.
func (j *Job) deriveSaid() finding {
	a := j.ack()
	if a == nil || a.State == "" || a.Seq < j.Closed.Seq {
		return j.deriveFacts()
	}
	if n := len(j.Bound); n > 1 && j.Bound[n-1].Seq > a.Seq && j.Own() == nil {
		return j.deriveFacts()
	}
	r := j.Remote()
	if r == nil {
		return is(a.State, WhyAcknowledged, a.Seq)
	}
	run := r.newest()
	if j.Prepared.Contract.Status {
		run = r.judged()
	}
	ends, _ := j.ends(run)
	for i := range ends {
		if c := &ends[i]; c.First.Seq > a.Seq && c.State.settles() != a.State {
			return is(StateNeedsReview, WhyContradictoryReads, a.Seq, c.First.Seq)
		}
	}
	return is(a.State, WhyAcknowledged, a.Seq)
}

// ends are the terminal states that count as confirmed, and why they do: those
// that we read ourselves, or the claims where the provider offers no read.
func (j *Job) ends(run *Run) ([]Claim, string) {
	if len(run.Confirms) == 0 && !j.Prepared.Contract.Status {
		return run.Claims, WhyWebhookOnly
	}
	return run.Confirms, WhyConfirmed
}

// settles is the state that an operation ends in when its job ends in s.
func (s RemoteState) settles() State {
	switch s {
	case RemoteSucceeded:
		return StateSucceeded
	case RemoteFailed:
		return StateFailed
	case RemoteCancelled:
		return StateCancelled
	default:
		return ""
	}
}

func (j *Job) deriveFacts() finding {
	b := j.Own()
	if b == nil {
		if n := len(j.Bound); n > 1 {
			if j.Closed.Seq > j.Bound[n-1].Seq {
				return is(StateClosed, WhyClosed, j.Closed.Seq)
			}
			return is(StateConflict, WhyTwoJobs, j.Bound[0].Seq, j.Bound[n-1].Seq, j.Pick.Seq)
		}
		return j.deriveUnbound()
	}
	r := j.remote(b.Remote.Key)
	if r == nil {
		return is(StateAccepted, WhyBound, b.Seq)
	}
	if (len(r.BoundOps) > 1 || r.MoreOwners) && !j.Pick.Set() {
		if j.Closed.Set() {
			return is(StateClosed, WhyClosed, j.Closed.Seq) // the job is another operation's
		}
		return is(StateConflict, WhySharedJob, b.Seq)
	}
	if !j.Prepared.Set() {
		return is(StateNeedsReview, WhyNoIntent, b.Seq)
	}
	return j.deriveBound(b, r)
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
	mismatch *Attempt // first rejection because the token is known with another request
}

func (j *Job) creation() creation {
	var c creation
	for i := range j.Attempts {
		a := &j.Attempts[i]
		c.newest = a
		switch o := a.outcome(); {
		case o == rejected && a.Rejected.Class == WhyTokenMismatch:
			if a.N > j.Declared && c.mismatch == nil {
				c.mismatch = a
			}
		case o == rejected && c.rejected == nil:
			c.rejected = a
		case (o == inFlight || o == ambiguous) && a.N > j.Covers && c.dirty == nil:
			c.dirty = a
		}
	}
	return c
}

func (j *Job) deriveUnbound() finding {
	if !j.Prepared.Set() {
		return is(StateNeedsReview, WhyNoIntent, j.OpSeq)
	}
	if j.Closed.Set() {
		return is(StateClosed, WhyClosed, j.Closed.Seq)
	}
	if s := j.settlement(); s != nil && s.Settled != nil {
		// Announced without a job. Only a job can say otherwise: one more refusal of
		// what was never made changes nothing.
		why := s.Settled.Reason
		if s.State == StateRejected {
			why = WhyRejected
		}
		return is(s.State, why, s.Settled.Evidence...)
	}
	if q := j.review(WhyRequestChanged); q != nil {
		return is(StateNeedsReview, WhyRequestChanged, q.Seq)
	}
	c := j.creation()
	if c.mismatch != nil {
		return is(StateNeedsReview, WhyTokenMismatch, c.mismatch.Answered.Seq)
	}
	if c.rejected != nil && (c.dirty == nil || j.Prepared.Contract.RejectAuthoritative) {
		return is(StateRejected, WhyRejected, c.rejected.Ended.Seq)
	}
	if c.dirty == nil {
		return j.deriveClean(&c)
	}
	if m := j.reconOver(&c); m.Set() {
		return is(StateNeedsReview, WhyCreateUnresolved, c.dirty.Seq, c.dirty.Ended.Seq, m.Seq)
	}
	if m := j.over(ClockCreate, j.createSpan(&c)); m.Set() {
		return is(StateReconciling, WhyCreateWindowClosed, c.dirty.Seq, c.dirty.Ended.Seq, m.Seq)
	}
	if c.newest.outcome() == inFlight {
		return is(StateSubmitted, WhyInFlight, c.newest.Seq)
	}
	return is(StateCreateUnknown, WhyUnproven, c.dirty.Seq, c.dirty.Ended.Seq)
}

// deriveClean is of an operation of which it is proven that nothing happened.
func (j *Job) deriveClean(c *creation) finding {
	proof := j.Prepared.Seq
	if c.newest != nil {
		proof = c.newest.Ended.Seq
		if j.Covers >= c.newest.N {
			proof = max(proof, j.Absent.Seq)
		}
	}
	if j.Cancel.Set() {
		return is(StateWithdrawn, WhyCancelledUnsent, proof, j.Cancel.Seq)
	}
	if by := j.Prepared.Deadlines.StartBy; !by.IsZero() {
		if m := j.over(ClockStartBy, span{due: by}); m.Set() {
			return is(StateWithdrawn, WhyStartByPassed, proof, m.Seq)
		}
	}
	if c.newest != nil && c.newest.N >= AttemptsMax {
		return is(StateNeedsReview, WhyAttemptsExhausted, proof)
	}
	return is(StatePrepared, WhyNotSent, proof)
}

func (j *Job) deriveBound(b *Binding, r *Remote) finding {
	run := r.newest()
	if j.Prepared.Contract.Status && j.settlement() != nil {
		run = r.judged()
	}
	if j.Closed.Set() {
		return j.deriveClosed(b, run)
	}
	list, why := j.ends(run)
	if len(list) > 1 {
		return is(StateNeedsReview, WhyContradictoryReads, list[0].First.Seq, list[1].First.Seq)
	}
	if len(list) == 1 {
		return j.deriveConfirmed(b, r, &list[0], why)
	}
	if f := j.deriveClaimed(b, run); f.state != "" {
		return f
	}
	if r.gone() && j.confirmPassed(r.Gone) {
		_, m := j.lastFired(ClockConfirm)
		return is(StateNeedsReview, WhyJobGone, r.Gone.Seq, m.Seq)
	}
	if f := j.deriveCancelling(b); f.state != "" {
		return f
	}
	if m := j.over(ClockResult, j.resultSpan(b)); m.Set() {
		return is(StateResultTimedOut, WhyResultDeadline, b.Seq, m.Seq)
	}
	if n := len(run.Seen); n > 0 {
		return is(StateObserving, WhyAlive, b.Seq, run.Seen[n-1].First.Seq, run.Alive.Seq)
	}
	return is(StateAccepted, WhyBound, b.Seq)
}

// deriveClosed is of an operation that a person ended. What is learned later is
// told, never adopted.
func (j *Job) deriveClosed(b *Binding, run *Run) finding {
	ends, _ := j.ends(run)
	for i := range ends {
		if c := &ends[i]; c.First.Seq > j.Closed.Seq {
			return is(StateReversed, WhyAfterClose, j.Closed.Seq, c.First.Seq)
		}
	}
	if b.Seq > j.Closed.Seq {
		return is(StateNeedsReview, WhyBoundAfterClose, j.Closed.Seq, b.Seq)
	}
	return is(StateClosed, WhyClosed, j.Closed.Seq)
}

func (j *Job) deriveConfirmed(b *Binding, r *Remote, c *Claim, why string) finding {
	if j.Prepared.Contract.ReviewLate && j.settlement() == nil {
		if m := j.late(b, c); m.Set() {
			return is(StateNeedsReview, WhyLate, m.Seq, c.First.Seq)
		}
	}
	switch c.State {
	case RemoteFailed:
		return is(StateFailed, why, b.Seq, c.First.Seq)
	case RemoteCancelled:
		return is(StateCancelled, why, b.Seq, c.First.Seq)
	default:
		return j.deriveSucceeded(b, r, c, why)
	}
}

// late returns the end of the result clock if the outcome came after it.
func (j *Job) late(b *Binding, c *Claim) Mark {
	if m := j.over(ClockResult, j.resultSpan(b)); m.Set() && m.Seq < c.First.Seq {
		return m
	}
	return Mark{}
}

func (j *Job) deriveSucceeded(b *Binding, r *Remote, c *Claim, why string) finding {
	if !j.Prepared.Contract.Result {
		return is(StateSucceeded, why, b.Seq, c.First.Seq)
	}
	for i := len(j.Results) - 1; i >= 0; i-- {
		if x := &j.Results[i]; x.Stored != nil {
			return is(StateSucceeded, why, b.Seq, c.First.Seq, x.StoredAt.Seq)
		}
	}
	if j.Waiver.Set() {
		return is(StateSucceeded, WhyWaived, b.Seq, c.First.Seq, j.Waiver.Seq)
	}
	if n := len(j.Results); n > 0 {
		switch x := &j.Results[n-1]; {
		case x.Invalid != "":
			return is(StateResultInvalid, WhyResultInvalid, c.First.Seq, x.EndedAt.Seq)
		case x.Unavailable != "":
			return is(StateResultUnavail, WhyResultUnavailable, c.First.Seq, x.EndedAt.Seq)
		}
	}
	if m := j.over(ClockCollect, j.collectSpan(j.collecting(r).from)); m.Set() {
		return is(StateResultUnavail, WhyResultUnavailable, c.First.Seq, m.Seq)
	}
	return is(StateResultCollecting, WhyResultPending, b.Seq, c.First.Seq)
}

// deriveClaimed is of a job that webhooks call terminal and no read does. A read
// that found it alive later contradicts them: once the confirm clock ran out, or
// at once when it is to be cancelled, since a false claim must not keep a
// cancellation from being sent.
func (j *Job) deriveClaimed(b *Binding, run *Run) finding {
	if len(run.Claims) == 0 {
		return finding{}
	}
	last, news := run.lastClaim(), run.lastNews()
	contradicted := run.Alive.Seq > last.Seq
	passed := j.confirmPassed(news)
	contested := len(run.Claims) > 1
	switch {
	case contradicted && (passed || j.wantsCancel(b.Remote.Key)):
		return finding{}
	case !passed && contested:
		return is(StateConfirming, WhyContested, run.Claims[0].First.Seq, run.Claims[1].First.Seq)
	case !passed:
		return is(StateConfirming, WhyClaim, news.Seq)
	case contradicted:
		return finding{}
	}
	_, m := j.lastFired(ClockConfirm)
	if contested {
		return is(StateNeedsReview, WhyContested, run.Claims[0].First.Seq, run.Claims[1].First.Seq, m.Seq)
	}
	return is(StateNeedsReview, WhyClaimUnconfirmed, news.Seq, m.Seq)
}

func (j *Job) deriveCancelling(b *Binding) finding {
	if !j.wantsCancel(b.Remote.Key) {
		return finding{}
	}
	s := j.cancelling(b.Remote.Key)
	if s.first == nil {
		return is(StateCancelRequested, WhyCancelPending, b.Seq, j.Cancel.Seq)
	}
	if m := j.over(ClockCancel, j.span(ClockCancel, s.first.Mark)); m.Set() {
		return is(StateUnconfirmed, WhyCancelDeadline, j.Cancel.Seq, s.newest.Seq, m.Seq)
	}
	if s.reached == nil {
		return is(StateCancelRequested, WhyCancelPending, j.Cancel.Seq, s.newest.Ended.Seq)
	}
	return is(StateCancelling, WhyCancelSent, j.Cancel.Seq, s.reached.Seq, s.reached.Ended.Seq)
}

// collection is the present generation of collecting a result.
type collection struct {
	g    int
	from Mark    // what started it: the confirmed success, or a person
	last *Result // what is known of it, nil: nothing yet
}

func (j *Job) collecting(r *Remote) collection {
	c := collection{g: 1, from: j.confirmedAt(r)}
	if n := len(j.Results); n > 0 {
		c.last = &j.Results[n-1]
		c.g, c.from = c.last.G, latest(c.from, c.last.Asked)
	}
	return c
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
	if j.Prepared.Contract.Status && j.settlement() != nil {
		run = r.judged()
	}
	list, _ := j.ends(run)
	if len(list) != 1 {
		return nil
	}
	return &list[0]
}
