package events

import (
	"slices"
	"time"
)

// What an operation with a known job owes: reads, cancel calls, the result, the
// announcement.

// poll reads the job: at once after news that only a read can judge, else along
// the schedule that begins with the last change.
func (q *plan) poll() {
	j := q.j
	b, r := j.Own(), j.Remote()
	if r == nil || !j.Prepared.Contract.Status {
		return
	}
	urgent := r.newest().lastClaim()
	if r.gone() {
		urgent = latest(urgent, r.Gone)
	}
	t0 := laterTime(r.changed(), b.At)
	if j.wantsCancel(b.Remote.Key) {
		s := j.cancelling(b.Remote.Key)
		urgent = latest(urgent, s.over)
		if s.newest != nil {
			t0 = laterTime(t0, s.newest.Ended.At)
		}
	}
	at := time.Time{}
	switch {
	case urgent.Set() && q.m.Polled.Before(urgent.At):
		at = urgent.At
	case urgent.Set():
		at = nextTick(j.Operation, urgent.At, q.m.Polled, q.p.PollBase, q.p.PollCap, q.p.PollJitter)
	default:
		at = nextTick(j.Operation, t0, q.m.Polled, q.p.PollBase, q.p.PollCap, q.p.PollJitter)
	}
	q.read(b.Remote, r, at)
}

// read offers a poll, behind the pause that the provider asked for.
func (q *plan) read(ref RemoteRef, r *Remote, at time.Time) {
	q.offer(Action{Kind: ActPoll, Remote: ref, At: laterTime(laterTime(at, r.Deferred.Until), q.m.ReadsAfter)})
}

// cancel asks the provider once. A call that did not reach it is made again; one
// whose answer was lost only where the provider declares that it may be.
func (q *plan) cancel() {
	j := q.j
	ref := j.Own().Remote
	if !j.wantsCancel(ref.Key) {
		return
	}
	q.cancelJob(ref, laterTime(j.Own().At, j.Cancel.At))
}

func (q *plan) cancelJob(ref RemoteRef, since time.Time) {
	j := q.j
	a := Action{Kind: ActCancel, Remote: ref, At: since, N: 1}
	if n := len(j.CancelCalls); n > 0 {
		a.N = j.CancelCalls[n-1].N + 1
	}
	if a.N > AttemptsMax {
		return
	}
	s := j.cancelling(ref.Key)
	if s.newest == nil {
		q.offer(a)
		return
	}
	again := s.newest.Ended.At.Add(step(j.Operation, a.N-1, q.p.RetryBase, q.p.RetryCap, q.p.PollJitter))
	switch s.newest.answer() {
	case cancelInFlight:
		q.offer(Action{Kind: ActExpireCancel, At: s.newest.LeaseUntil, N: s.newest.N})
	case cancelNotSent:
		if s.reached == nil || j.Prepared.Contract.CancelIdempotent {
			a.At = laterTime(again, s.newest.RetryAt)
			q.offer(a)
		}
	case cancelAmbiguous:
		if j.Prepared.Contract.CancelIdempotent {
			a.At = again
			q.offer(a)
		}
	}
}

// foreign cancels the jobs that are not the operation's and that a person wants
// gone.
func (q *plan) foreign() {
	j := q.j
	own := j.Own()
	if own == nil || !j.Prepared.Contract.Cancel {
		return
	}
	for i := range j.Foreign {
		f := &j.Foreign[i]
		if r := j.remote(f.Key); f.Cancel && r != nil && f.Key != own.Remote.Key && !j.cancelling(f.Key).refused {
			q.cancelJob(r.Ref, f.At)
		}
	}
}

// collect fetches at once, and again at growing intervals after attempts that
// gave nothing yet. While a fetch is on its way nobody starts another.
func (q *plan) collect() {
	j := q.j
	r := j.Remote()
	if r == nil {
		return
	}
	c := j.collecting(r)
	a := Action{Kind: ActCollect, At: c.from.At, G: c.g, N: 1, Remote: j.Own().Remote}
	if x := c.last; x != nil {
		if x.Started > x.Tried {
			q.offer(Action{Kind: ActExpireCollect, At: x.LeaseUntil, G: c.g, N: x.Started})
			return
		}
		a.N = x.Tried + 1
		if x.TriedAt.Set() {
			a.At = x.TriedAt.At.Add(step(j.Operation, max(x.Tried-1, 0), q.p.RetryBase, q.p.RetryCap, q.p.PollJitter))
		}
	}
	if a.N <= AttemptsMax {
		q.offer(a)
	}
}

// settled announces what is not announced, and goes on looking where a webhook
// said otherwise since, or where the provider is watched.
func (q *plan) settled() {
	j := q.j
	last := j.settlement()
	if j.Announced() == nil {
		g := 1
		if last != nil {
			g = last.G + 1
		}
		q.offer(Action{Kind: ActSettle, At: q.now, G: g})
		return
	}
	b, r := j.Own(), j.Remote()
	if r == nil || !j.Prepared.Contract.Status {
		return
	}
	if m := r.dissent(); m.Seq > max(r.goodRead().Seq, r.Gone.Seq) {
		// At once, and again until a read has judged it: one that failed has not.
		at := m.At
		if !q.m.Polled.Before(at) {
			at = nextTick(j.Operation, m.At, q.m.Polled, q.p.PollBase, q.p.ReconcileCap, q.p.PollJitter)
		}
		q.read(b.Remote, r, at)
	}
	if q.p.WatchWindow > 0 {
		at := q.slow(last.At)
		if at.Before(last.At.Add(q.p.WatchWindow)) {
			q.read(b.Remote, r, at)
		}
	}
}

// dissent is the latest news that says something else than our own reads: another
// end, or a run that no read has seen.
func (r *Remote) dissent() Mark {
	var m Mark
	confirms := r.judged().Confirms
	if r.newest().Attempt > r.judged().Attempt {
		for i := range r.newest().Seen {
			m = latest(m, r.newest().Seen[i].First)
		}
	}
	for i := range r.newest().Claims {
		c := &r.newest().Claims[i]
		if !slices.ContainsFunc(confirms, func(x Claim) bool { return x.State == c.State }) {
			m = latest(m, c.Last)
		}
	}
	return m
}

// slow is the next of the slow reads that began at t0. The first is due at once
// after a start, since nobody knows when the last one was.
func (q *plan) slow(t0 time.Time) time.Time {
	if q.m.Polled.IsZero() {
		return laterTime(t0.Add(q.p.ReconcileInterval), q.now)
	}
	return nextTick(q.j.Operation, t0, q.m.Polled, q.p.ReconcileInterval, q.p.ReconcileCap, q.p.PollJitter)
}

// suspended goes on reading, slowly, behind the question to a person.
func (q *plan) suspended() {
	j := q.j
	asked := j.Prepared.At
	if r := j.review(j.Why); r != nil {
		asked = r.At
	}
	switch j.State {
	case StateResultUnavail, StateResultInvalid:
		return // the end is known, only the result is missing
	case StateConflict:
		if n := len(j.Bound); n > 0 && j.Prepared.Contract.Status {
			// Both jobs are followed, in turns that need no memory.
			at := q.slow(asked)
			b := &j.Bound[int(at.Unix()/int64(q.p.ReconcileInterval.Seconds()+1))%n]
			if r := j.remote(b.Remote.Key); r != nil {
				q.read(b.Remote, r, at)
			}
		}
		return
	}
	b, r := j.Own(), j.Remote()
	switch {
	case r != nil && j.Prepared.Contract.Status:
		if ends, _ := j.ends(r.newest()); len(ends) == 0 {
			q.read(b.Remote, r, q.slow(asked))
		}
	case b == nil && j.Prepared.Contract.Lookup && len(j.Attempts) > 0 && j.State == StateNeedsReview:
		if a := j.lookupAction(q.p, q.m); a.Kind != ActNone {
			a.At = laterTime(a.At, q.slow(asked))
			q.offer(a)
		}
	}
}
