package events

import "slices"

// After a job is bound.

// sights lists every reading of a job's run that fits.
func (s story) sights(key JobKey, run int, authoritative, terminal bool) []told[*Observed] {
	return only(listed[*Observed](s.recs, JobSubject(testProvider, key)), func(x told[*Observed]) bool {
		r := x.data.Reading
		return r.Attempt == run && r.Authoritative == authoritative && r.State.Terminal() == terminal
	})
}

// noRun is the run of which nothing is known.
const noRun = -1

// newestRun is the highest run of a job that was seen, or read by ourselves.
func (s story) newestRun(key JobKey, authoritative bool) int {
	run := noRun
	for _, x := range listed[*Observed](s.recs, JobSubject(testProvider, key)) {
		if x.data.Reading.Authoritative || !authoritative {
			run = max(run, x.data.Reading.Attempt)
		}
	}
	return run
}

// end is a terminal state that a run was told to be in, and when.
type end struct {
	state       RemoteState
	first, last moment
}

func endsOf(list []told[*Observed]) []end {
	var ends []end
	for _, x := range list {
		i := slices.IndexFunc(ends, func(e end) bool { return e.state == x.data.Reading.State })
		if i < 0 {
			ends = append(ends, end{x.data.Reading.State, x.moment, x.moment})
		} else {
			ends[i].last = x.moment
		}
	}
	return ends
}

// confirmed lists the ends that count as proven, and what proves them. A provider
// that cannot be read is believed.
func (s story) confirmed(key JobKey, run int) ([]end, string) {
	ends := endsOf(s.sights(key, run, true, true))
	if len(ends) == 0 && !s.contract().Status {
		return endsOf(s.sights(key, run, false, true)), WhyWebhookOnly
	}
	return ends, WhyConfirmed
}

// follow is the state of an operation with a job.
func (s story) follow(own binding) (State, string) {
	// After an announcement a webhook alone does not begin a new run: it must not
	// undo what we read ourselves.
	_, announced := s.announcement()
	run := s.newestRun(own.key, announced && s.contract().Status)
	ends, why := s.confirmed(own.key, run)
	if closed := s.answers(ResolveClose); len(closed) > 0 {
		c := newest(closed) // who closes once more knows what was learned in between
		switch {
		case slices.ContainsFunc(ends, func(e end) bool { return e.first.seq > c.seq }):
			return StateReversed, WhyAfterClose
		case own.seq > c.seq:
			return StateNeedsReview, WhyBoundAfterClose
		default:
			return StateClosed, WhyClosed
		}
	}
	switch len(ends) {
	case 0:
		return s.running(own, run)
	case 1:
		return s.ended(own, ends[0], why)
	default:
		return StateNeedsReview, WhyContradictoryReads
	}
}

// ended is the state of an operation whose job has one proven end.
func (s story) ended(own binding, e end, why string) (State, string) {
	late := only(s.over(ClockResult, own.moment, s.deadlines().Result), func(x told[*DeadlinePassed]) bool {
		return x.seq < e.first.seq
	})
	if _, announced := s.announcement(); s.contract().ReviewLate && !announced && len(late) > 0 {
		return StateNeedsReview, WhyLate
	}
	switch {
	case e.state == RemoteFailed:
		return StateFailed, why
	case e.state == RemoteCancelled:
		return StateCancelled, why
	case s.contract().Result && len(mine[*ResultStored](s)) == 0:
		return s.collect(e.first)
	default:
		return StateSucceeded, why
	}
}

// collect is the state of a success whose result is not here.
func (s story) collect(success moment) (State, string) {
	if len(s.answers(ResolveWaive)) > 0 {
		return StateSucceeded, WhyWaived
	}
	g, began := s.generation(), success
	asked := only(s.answers(ResolveRetry), func(x told[*ReviewResolved]) bool { return x.data.G == g })
	if len(asked) > 0 {
		began = later(success, asked[0].moment) // to ask once more is no new generation
	}
	invalid := only(mine[*ResultInvalid](s), func(x told[*ResultInvalid]) bool { return x.data.G == g })
	lost := only(mine[*ResultUnavailable](s), func(x told[*ResultUnavailable]) bool { return x.data.G == g && x.data.Final })
	switch {
	case len(invalid) > 0:
		return StateResultInvalid, WhyResultInvalid
	case len(lost) > 0, len(s.over(ClockCollect, began, s.deadlines().Collect)) > 0:
		return StateResultUnavail, WhyResultUnavailable
	default:
		return StateResultCollecting, WhyResultPending
	}
}

// generation is the newest result generation that anything speaks of.
func (s story) generation() int {
	g := 1
	for _, x := range mine[Data](s) {
		switch d := x.data.(type) {
		case *CollectStarted:
			g = max(g, d.G)
		case *ResultInvalid:
			g = max(g, d.G)
		case *ResultUnavailable:
			g = max(g, d.G)
		case *ReviewResolved:
			if d.Action == ResolveRetry {
				g = max(g, d.G)
			}
		}
	}
	return g
}

// running is the state of an operation whose job has no proven end.
func (s story) running(own binding, run int) (State, string) {
	if state, why, ok := s.claimed(own.key, run); ok {
		return state, why
	}
	if s.gone(own.key) {
		return StateNeedsReview, WhyJobGone
	}
	if s.cancelWanted(own.key) {
		return s.cancelling(own.key)
	}
	if len(s.over(ClockResult, own.moment, s.deadlines().Result)) > 0 {
		return StateResultTimedOut, WhyResultDeadline
	}
	if len(s.sights(own.key, run, true, false))+len(s.sights(own.key, run, false, false)) > 0 {
		return StateObserving, WhyAlive
	}
	return StateAccepted, WhyBound
}

// claimed is the state while somebody says that the job is over and we have not
// read it; false if nobody does, or nothing depends on it any more.
func (s story) claimed(key JobKey, run int) (State, string, bool) {
	claims := endsOf(s.sights(key, run, false, true))
	if len(claims) == 0 {
		return "", "", false
	}
	alive := newest(s.sights(key, run, true, false)).seq
	var news, last uint64
	for _, c := range claims {
		last = max(last, c.last.seq)
		if c.first.seq < alive && alive < c.last.seq {
			news = max(news, c.last.seq) // said again after we had seen otherwise
		} else {
			news = max(news, c.first.seq)
		}
	}
	contradicted, passed := alive > last, s.confirmOver(news)
	switch {
	case contradicted && (passed || s.cancelWanted(key)):
		return "", "", false
	case !passed && len(claims) > 1:
		return StateConfirming, WhyContested, true
	case !passed:
		return StateConfirming, WhyClaim, true
	case len(claims) > 1:
		return StateNeedsReview, WhyContested, true
	default:
		return StateNeedsReview, WhyClaimUnconfirmed, true
	}
}

// gone reports whether the provider says that it does not know the job, nothing
// read since says otherwise, and the time for that is over.
func (s story) gone(key JobKey) bool {
	last := newest(listed[*Gone](s.recs, JobSubject(testProvider, key))).seq
	good := only(listed[*Observed](s.recs, JobSubject(testProvider, key)), func(x told[*Observed]) bool {
		return x.data.Reading.Authoritative
	})
	return last > newest(good).seq && s.confirmOver(last)
}

// calls lists the decisions to ask the provider to cancel this job.
func (s story) calls(key JobKey) []told[*CancelStarted] {
	return only(mine[*CancelStarted](s), func(x told[*CancelStarted]) bool { return x.data.Remote.Key == key })
}

// cancelWanted reports whether a cancellation is still to be had: not if the
// provider cannot, or said so every time that it was asked.
func (s story) cancelWanted(key JobKey) bool {
	if len(mine[*CancelRequested](s)) == 0 || !s.contract().Cancel {
		return false
	}
	asked, refused := 0, 0
	for _, c := range s.calls(key) {
		switch s.effective(c.data.N, cancelAnswer) {
		case answerNotSent:
		case answerUnsupported:
			asked, refused = asked+1, refused+1
		default:
			asked++
		}
	}
	return asked == 0 || refused < asked
}

// cancelling is the state of a job that is to be cancelled.
func (s story) cancelling(key JobKey) (State, string) {
	calls := s.calls(key)
	left := only(calls, func(x told[*CancelStarted]) bool { return s.effective(x.data.N, cancelAnswer) != answerNotSent })
	switch {
	case len(calls) > 0 && len(s.over(ClockCancel, calls[0].moment, s.deadlines().Cancel)) > 0:
		return StateUnconfirmed, WhyCancelDeadline
	case len(left) == 0:
		return StateCancelRequested, WhyCancelPending
	default:
		return StateCancelling, WhyCancelSent
	}
}
