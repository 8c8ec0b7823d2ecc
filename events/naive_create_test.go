package events

import "slices"

// Before a job is bound.

// How a call ended, the strongest answer first: what proves most wins.
const (
	answerAccepted    = "accepted"
	answerRejected    = "rejected"
	answerThrottled   = "throttled"
	answerAcked       = "acknowledged"
	answerTerminal    = "refused as over"
	answerUnsupported = "refused for good"
	answerNotSent     = "not sent"
	answerAmbiguous   = "ambiguous"
	answerNone        = "in flight"
)

var strongestFirst = []string{
	answerAccepted, answerRejected, answerThrottled, answerAcked, answerTerminal, answerUnsupported, answerNotSent, answerAmbiguous,
}

// createAnswer says which create attempt a payload answers, and how.
func createAnswer(d Data) (int, string) {
	switch d := d.(type) {
	case *Accepted:
		return d.N, answerAccepted
	case *Rejected:
		return d.N, answerRejected
	case *Throttled:
		return d.N, answerThrottled
	case *NotSent:
		return d.N, answerNotSent
	case *Ambiguous:
		return d.N, answerAmbiguous
	default:
		return 0, ""
	}
}

// cancelAnswer says which cancel call a payload answers, and how.
func cancelAnswer(d Data) (int, string) {
	switch d := d.(type) {
	case *CancelAcknowledged:
		return d.N, answerAcked
	case *CancelRefused:
		if d.Why == RefusalTerminal {
			return d.N, answerTerminal
		}
		return d.N, answerUnsupported
	case *CancelNotSent:
		return d.N, answerNotSent
	case *CancelAmbiguous:
		return d.N, answerAmbiguous
	default:
		return 0, ""
	}
}

// effective is the strongest answer to call n.
func (s story) effective(n int, answer func(Data) (int, string)) string {
	for _, want := range strongestFirst {
		for _, x := range mine[Data](s) {
			if got, how := answer(x.data); got == n && how == want {
				return want
			}
		}
	}
	return answerNone
}

// attempts lists the numbers of all create attempts, of those too that only an
// answer speaks of.
func (s story) attempts() []int {
	var list []int
	for _, x := range mine[Data](s) {
		if n, how := createAnswer(x.data); how != "" {
			list = append(list, n)
		}
		if a, ok := x.data.(*AttemptStarted); ok {
			list = append(list, a.N)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// decided is the decision to send attempt n.
func (s story) decided(n int) told[*AttemptStarted] {
	for _, a := range mine[*AttemptStarted](s) {
		if a.data.N == n {
			return a
		}
	}
	return told[*AttemptStarted]{data: &AttemptStarted{}}
}

// covers is the highest attempt that is proven to have made no job.
func (s story) covers() int {
	covers := 0
	for _, x := range mine[*ReconAbsent](s) {
		covers = max(covers, x.data.Covers)
	}
	for _, x := range s.answers(ResolveAbsent) {
		covers = max(covers, x.data.Covers)
	}
	return covers
}

// create is the state of an operation without a job.
func (s story) create() (State, string) {
	if len(s.answers(ResolveClose)) > 0 {
		return StateClosed, WhyClosed
	}
	if settled, announced := s.announcement(); announced {
		if settled.State == StateRejected {
			return StateRejected, WhyRejected
		}
		return settled.State, settled.Reason // only a job undoes it
	}
	for _, o := range mine[*ReviewOpened](s) {
		resolved := only(mine[*ReviewResolved](s), func(x told[*ReviewResolved]) bool { return x.data.ID == o.data.ID })
		if o.data.Reason == WhyRequestChanged && len(resolved) == 0 {
			return StateNeedsReview, WhyRequestChanged
		}
	}
	dirty := only(s.attempts(), func(n int) bool {
		how := s.effective(n, createAnswer)
		return n > s.covers() && (how == answerAmbiguous || how == answerNone)
	})
	refused, mismatched := s.refusals()
	if mismatched {
		return StateNeedsReview, WhyTokenMismatch
	}
	if refused && (len(dirty) == 0 || s.contract().RejectAuthoritative) {
		return StateRejected, WhyRejected
	}
	if len(dirty) == 0 {
		return s.clean()
	}
	switch {
	case len(s.reconOver()) > 0:
		return StateNeedsReview, WhyCreateUnresolved
	case len(s.createOver()) > 0:
		return StateReconciling, WhyCreateWindowClosed
	case s.effective(newest(s.attempts()), createAnswer) == answerNone:
		return StateSubmitted, WhyInFlight
	default:
		return StateCreateUnknown, WhyUnproven
	}
}

// refusals reports whether the provider refused an attempt, and whether it did
// because it knows the token with another request: that is no refusal but a
// question, until a person says that the token made no job.
func (s story) refusals() (refused, mismatched bool) {
	declared := 0
	for _, x := range s.answers(ResolveAbsent) {
		declared = max(declared, x.data.Covers)
	}
	for _, n := range s.attempts() {
		if s.effective(n, createAnswer) != answerRejected {
			continue
		}
		mismatch := only(mine[*Rejected](s), func(x told[*Rejected]) bool { return x.data.N == n && x.data.Class == WhyTokenMismatch })
		if len(mismatch) == 0 {
			refused = true
		} else if n > declared {
			mismatched = true
		}
	}
	return refused, mismatched
}

// clean is the state of an operation of which it is proven that nothing of it
// reached the provider.
func (s story) clean() (State, string) {
	limit := s.deadlines().StartBy
	switch {
	case len(mine[*CancelRequested](s)) > 0:
		return StateWithdrawn, WhyCancelledUnsent
	case !limit.IsZero() && len(s.passed(ClockStartBy, limit)) > 0:
		return StateWithdrawn, WhyStartByPassed
	case newest(s.attempts()) >= AttemptsMax:
		return StateNeedsReview, WhyAttemptsExhausted
	default:
		return StatePrepared, WhyNotSent
	}
}

// answered lists the answers to attempt n.
func (s story) answered(n int) []told[Data] {
	return only(mine[Data](s), func(x told[Data]) bool {
		got, how := createAnswer(x.data)
		return got == n && how != ""
	})
}

// createOver: the window opened with an attempt that the newest one names. An
// answer to what nobody decided to send opens it itself.
func (s story) createOver() []told[*DeadlinePassed] {
	last := newest(s.attempts())
	opened := s.decided(last).data.Window
	if opened == 0 {
		opened = last
	}
	began := s.decided(opened).moment
	if began.seq == 0 {
		began = s.decided(last).moment
	}
	if began.seq == 0 {
		began = newest(s.answered(last)).moment
	}
	return s.over(ClockCreate, began, s.deadlines().Create)
}

// reconOver: the time for reads begins as soon as no create will follow, which
// three things can bring about.
func (s story) reconOver() []told[*DeadlinePassed] {
	var began []moment
	for _, x := range s.createOver() {
		began = append(began, x.moment)
	}
	last := newest(s.attempts())
	for i, x := range mine[*CancelRequested](s) {
		if i == 0 {
			began = append(began, later(x.moment, s.decided(last).moment))
		}
	}
	if c := s.contract(); !c.Idempotent && !c.Lookup && len(s.answered(last)) > 0 {
		began = append(began, s.answered(last)[0].moment) // a later answer does not begin it anew
	}
	if len(began) == 0 {
		return nil
	}
	first := slices.MinFunc(began, func(a, b moment) int { return int(a.seq) - int(b.seq) }) //nolint:gosec // short lists
	return s.over(ClockRecon, first, s.deadlines().Recon)
}

// After a job is bound.
