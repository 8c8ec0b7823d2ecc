package events

import (
	"cmp"
	"slices"
	"time"
)

// Time enters the facts as events alone. A clock starts with an event; whoever's
// clock says that it ran out appends deadline.passed with the instant that has
// passed. A firing counts for every span of its clock that is due by that
// instant, so a firing that was decided for an earlier span ends no later one.

// span is one run of a clock.
type span struct {
	from Mark // what started it
	due  time.Time
}

// fire keeps a firing. Two that share a generation and differ in what has passed
// are two: the later one must not date the earlier one's word back.
func (j *Job) fire(f Firing) {
	i, ok := slices.BinarySearchFunc(j.Fired, f, func(x, f Firing) int {
		return cmp.Or(cmp.Compare(x.Name, f.Name), cmp.Compare(x.Gen, f.Gen), x.Due.Compare(f.Due))
	})
	if !ok {
		j.Fired = slices.Insert(j.Fired, i, f)
		j.Fired = j.Fired[:min(len(j.Fired), firedMax)]
		return
	}
	j.Fired[i].Mark = earliest(j.Fired[i].Mark, f.Mark)
}

// span gives the run of a clock from a start: as long as the operation's
// deadlines say, or until when a person has since extended it.
func (j *Job) span(c Clock, from Mark) span {
	if g := j.granted(c); g.Seq > from.Seq {
		return span{from: from, due: g.Until}
	}
	return span{from: from, due: from.At.Add(j.limit(c).Std())}
}

// over returns the first firing that ended the span; unset while it runs.
func (j *Job) over(c Clock, s span) Mark {
	var m Mark
	for i := range j.Fired {
		if f := &j.Fired[i]; f.Name == c && !f.Due.Before(s.due) {
			m = earliest(m, f.Mark)
		}
	}
	return m
}

func (j *Job) granted(c Clock) Grant {
	for i := range j.Grants {
		if j.Grants[i].Clock == c {
			return j.Grants[i]
		}
	}
	return Grant{}
}

// lastFired returns a clock's highest fired generation, and its latest firing. A
// generation counts from its first firing: said once more, it is no news.
func (j *Job) lastFired(c Clock) (int, Mark) {
	gen, last, first := 0, Mark{}, Mark{}
	for i := range j.Fired { // ordered by clock and generation
		f := &j.Fired[i]
		if f.Name != c {
			continue
		}
		if f.Gen != gen {
			last = latest(last, first)
			gen, first = f.Gen, f.Mark
		}
		first = earliest(first, f.Mark)
	}
	return gen, latest(last, first)
}

// limit is how long a clock runs. One that nobody set would never run out, and
// nobody would be asked; it has its default.
func (j *Job) limit(c Clock) Duration {
	d := j.Prepared.Deadlines.of(c)
	if d <= 0 {
		d = DefaultDeadlines(j.Prepared.Contract).of(c)
	}
	return d
}

// of returns one clock's duration; 0 for start_by, which is an instant.
func (d Deadlines) of(c Clock) Duration {
	switch c {
	case ClockCreate:
		return d.Create
	case ClockRecon:
		return d.Recon
	case ClockResult:
		return d.Result
	case ClockCancel:
		return d.Cancel
	case ClockConfirm:
		return d.Confirm
	case ClockCollect:
		return d.Collect
	default:
		return 0
	}
}

func (j *Job) createSpan(c *creation) span {
	from := c.newest.Mark // of a window that nobody decided to open; the fence forbids it
	if !from.Set() {
		from = c.newest.Ended // nor this attempt
	}
	for i := range j.Attempts {
		if a := &j.Attempts[i]; a.N == c.newest.Window && a.Set() {
			from = a.Mark
		}
	}
	return j.span(ClockCreate, from)
}

// createClosed is since when no further create may be sent: the create clock ran
// out, the operation was cancelled, or the provider offers no means to repeat a
// create safely. Unset: still open.
func (j *Job) createClosed(c *creation) Mark {
	m := j.over(ClockCreate, j.createSpan(c))
	if j.Cancel.Set() {
		m = earliest(m, latest(j.Cancel.Mark, c.newest.Mark))
	}
	k := &j.Prepared.Contract
	if !k.Idempotent && !k.Lookup && c.newest.outcome() != inFlight {
		m = earliest(m, c.newest.Answered)
	}
	return m
}

// reconOver returns the firing that ended the reconciliation; unset while it
// runs or has not begun.
func (j *Job) reconOver(c *creation) Mark {
	closed := j.createClosed(c)
	if !closed.Set() {
		return Mark{}
	}
	return j.over(ClockRecon, j.span(ClockRecon, closed))
}

func (j *Job) resultSpan(b *Binding) span { return j.span(ClockResult, b.Mark) }

func (j *Job) collectSpan(from Mark) span { return j.span(ClockCollect, from) }

// confirmPassed reports whether the confirm clock ran out on a claim, or on a
// "gone". News after the last firing arms the clock anew, and so does more time
// that a person gave. The two are asked about apart: a "gone" must not revive a
// claim that a read has contradicted, since no clock would then run on it.
func (j *Job) confirmPassed(news Mark) bool {
	_, fired := j.lastFired(ClockConfirm)
	return fired.Seq > max(news.Seq, j.granted(ClockConfirm).Seq)
}

// confirmSpan is the run of the confirm clock that the given first news starts.
func (j *Job) confirmSpan(news Mark) span {
	return j.span(ClockConfirm, news)
}

// claimArmed is the first claim that the confirm clock has not yet run out on.
func (j *Job) claimArmed(run *Run) Mark {
	_, fired := j.lastFired(ClockConfirm)
	var m Mark
	for i := range run.Claims {
		if c := run.Claims[i].news(run); c.Seq > fired.Seq {
			m = earliest(m, c)
		}
	}
	if !m.Set() { // an answered review armed it on an old claim
		m = run.lastNews()
	}
	return m
}

// stopped is the clock whose end brought the operation to its present question,
// the one that a person may extend; "" if none did.
func (j *Job) stopped() Clock {
	switch j.State {
	case StateResultTimedOut:
		return ClockResult
	case StateUnconfirmed:
		return ClockCancel
	case StateNeedsReview:
		switch j.Why {
		case WhyCreateUnresolved:
			return ClockRecon
		case WhyClaimUnconfirmed, WhyContested, WhyJobGone:
			return ClockConfirm
		}
	}
	return ""
}

// deadline is one running clock.
type deadline struct {
	name Clock
	gen  int
	at   time.Time
}

// clocks returns the clocks that run in the present state, at most three. None
// runs once an outcome stands or a person is asked.
func (j *Job) clocks() []deadline {
	var out []deadline
	if !j.Prepared.Set() || j.State.Settled() || j.State.Suspended() {
		return out
	}
	run := func(c Clock, s span) {
		if s.from.Set() && !j.over(c, s).Set() {
			gen, _ := j.lastFired(c)
			out = append(out, deadline{c, gen + 1, s.due})
		}
	}
	b := j.Own()
	if b == nil {
		c := j.creation()
		switch {
		case c.dirty != nil:
			run(ClockCreate, j.createSpan(&c))
			if closed := j.createClosed(&c); closed.Set() {
				run(ClockRecon, j.span(ClockRecon, closed))
			}
		case c.rejected == nil && !j.Prepared.Deadlines.StartBy.IsZero():
			run(ClockStartBy, span{from: j.Prepared.Mark, due: j.Prepared.Deadlines.StartBy})
		}
		return out
	}
	r := j.remote(b.Remote.Key)
	if r == nil {
		return out
	}
	confirm := func(news Mark) {
		gen, _ := j.lastFired(ClockConfirm)
		out = append(out, deadline{ClockConfirm, gen + 1, j.confirmSpan(news).due})
	}
	switch j.State {
	case StateAccepted, StateObserving, StateCancelRequested, StateCancelling:
		run(ClockResult, j.resultSpan(b))
		if first := j.cancelling(b.Remote.Key).first; first != nil && j.wantsCancel(b.Remote.Key) {
			run(ClockCancel, j.span(ClockCancel, first.Mark))
		}
		if r.gone() && !j.confirmPassed(r.Gone) {
			confirm(r.Gone)
		}
	case StateConfirming:
		confirm(j.claimArmed(r.newest()))
	case StateResultCollecting:
		run(ClockCollect, j.collectSpan(j.collecting(r).from))
	}
	return out
}
