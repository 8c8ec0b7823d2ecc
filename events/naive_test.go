package events

import (
	"errors"
	"slices"
	"time"
)

// This file holds the fold once more, as slow and as plain as possible: it looks
// through the whole list of events for every single question and keeps nothing.
// It shares with the real fold what the payloads mean by themselves and no line of
// what follows from them, so a mistake has to be made twice to go unnoticed.

// moment is a place in the stream; seq 0 is none. Which of two things came first
// is a question of seq alone, at is only for the length of a clock.
type moment struct {
	seq uint64
	at  time.Time
}

// told is a payload and where it stands.
type told[D Data] struct {
	moment
	data D
}

// story is everything that was stored, looked at for one operation.
type story struct {
	recs []Recorded
	op   OperationID
}

// listed is what stands on one subject, of one type, in stream order.
func listed[D Data](recs []Recorded, on Subject) []told[D] {
	var list []told[D]
	for _, r := range recs {
		if d, ok := r.Event.Data.(D); ok && r.Err == nil && r.Event.Subject == on {
			list = append(list, told[D]{moment{r.Seq, r.Event.Time}, d})
		}
	}
	return list
}

// mine lists what stands on the operation's own subject.
func mine[D Data](s story) []told[D] {
	return listed[D](s.recs, OperationSubject(testProvider, s.op))
}

// only keeps the elements that fit.
func only[T any](list []T, fits func(T) bool) []T {
	var kept []T
	for _, x := range list {
		if fits(x) {
			kept = append(kept, x)
		}
	}
	return kept
}

// newest is the last element, the zero value if there is none.
func newest[T any](list []T) T {
	var none T
	if len(list) == 0 {
		return none
	}
	return list[len(list)-1]
}

// later is the one of two moments that comes second in the stream.
func later(a, b moment) moment {
	if a.seq > b.seq {
		return a
	}
	return b
}

// answers lists what people answered with one kind of resolution.
func (s story) answers(r Resolution) []told[*ReviewResolved] {
	return only(mine[*ReviewResolved](s), func(x told[*ReviewResolved]) bool { return x.data.Action == r })
}

func (s story) prepared() told[*Prepared] {
	for _, p := range mine[*Prepared](s) {
		return p // stored once; what comes after it is a mistake of the writer
	}
	return told[*Prepared]{data: &Prepared{}}
}

func (s story) contract() Contract { return s.prepared().data.Contract }

func (s story) deadlines() Deadlines {
	return DefaultDeadlines(s.contract()).Overlay(s.prepared().data.Deadlines)
}

// naive is the state of an operation after the events, and why.
func naive(recs []Recorded, op OperationID) (State, string) {
	s := story{recs, op}
	for _, a := range mine[*Archived](s) {
		return a.data.State, a.data.Reason
	}
	settled, announced := s.announcement()
	if why := s.unreadable(); why != "" && !announced {
		return StateNeedsReview, why
	}
	word, spoken := s.word()
	state, why := s.truth()
	switch {
	case !announced, state == StateConflict, state == settled.State && !s.ofAnotherJob(settled) && !s.closedOtherwise(settled):
	case spoken && word.data.G == settled.G:
		// A person looked at just this announcement and said what holds instead.
	case state == StateReversed, why == WhyBoundAfterClose:
		state = StateReversed // and the reason says more than that it changed
	default:
		return StateReversed, WhyChangedAfterAnnounce
	}
	return state, why
}

// ofAnotherJob reports whether what was announced is about another job than the
// one that is followed now.
func (s story) ofAnotherJob(settled *Settled) bool {
	own, owned := s.own()
	return owned && settled.Remote != nil && settled.Remote.Key != own.key
}

// closedOtherwise reports whether a person closed the operation once more, with
// another word than the announced one.
func (s story) closedOtherwise(settled *Settled) bool {
	closed := s.answers(ResolveClose)
	return settled.State == StateClosed && len(closed) > 0 && newest(closed).data.Disposition != settled.Outcome
}

// announcement is the newest generation that was announced. The copy on the
// settled subject repeats a decision and is none.
func (s story) announcement() (*Settled, bool) {
	var best *Settled
	for _, x := range mine[*Settled](s) {
		if best == nil || x.data.G > best.G {
			best = x.data
		}
	}
	return best, best != nil
}

// unreadable says why an event of the operation must not be passed over, ""
// if none is left: the state would rest on what nobody could read.
func (s story) unreadable() string {
	for _, r := range s.recs {
		if r.Err == nil || r.Event.Subject != OperationSubject(testProvider, s.op) {
			continue
		}
		unknown := errors.Is(r.Err, ErrUnknownType)
		if unknown && !r.Event.Critical {
			continue // of a later version, which says that it may be skipped
		}
		dismissed := only(s.answers(ResolveDismiss), func(x told[*ReviewResolved]) bool {
			return x.data.Event == r.Seq && x.seq > r.Seq
		})
		switch {
		case len(dismissed) > 0:
		case unknown:
			return WhyCritical
		default:
			return WhyUnreadable
		}
	}
	return ""
}

// word is what a person said about the announcements: the newest word about the
// newest of them.
func (s story) word() (told[*ReviewResolved], bool) {
	var best told[*ReviewResolved]
	for _, x := range s.answers(ResolveAcknowledge) {
		if best.data == nil || x.data.G >= best.data.G {
			best = x
		}
	}
	return best, best.data != nil
}

// truth is the person's word where there is one that still holds, else what the
// facts say.
func (s story) truth() (State, string) {
	word, spoken := s.word()
	if !spoken || word.data.State == "" || newest(s.answers(ResolveClose)).seq > word.seq {
		return s.facts()
	}
	own, owned := s.own()
	bound := s.bound()
	if len(bound) > 1 && !owned && newest(bound).seq > word.seq {
		return s.facts() // the person did not know of this job
	}
	if owned {
		ends, _ := s.confirmed(own.key, s.newestRun(own.key, s.contract().Status))
		for _, e := range ends {
			if e.first.seq > word.seq && string(e.state) != string(word.data.State) {
				return StateNeedsReview, WhyContradictoryReads
			}
		}
	}
	return word.data.State, WhyAcknowledged
}

// facts is what the events say without a person's word about the outcome.
func (s story) facts() (State, string) {
	own, owned := s.own()
	bound := s.bound()
	closed := s.answers(ResolveClose)
	if len(bound) > 1 && !owned {
		if len(closed) > 0 && newest(closed).seq > newest(bound).seq {
			return StateClosed, WhyClosed // the person knew of all of them
		}
		return StateConflict, WhyTwoJobs
	}
	if owned && len(s.picks()) == 0 && s.shared(own.key) {
		if len(closed) > 0 {
			return StateClosed, WhyClosed
		}
		return StateConflict, WhySharedJob
	}
	if s.prepared().seq == 0 {
		return StateNeedsReview, WhyNoIntent
	}
	if owned {
		return s.follow(own)
	}
	return s.create()
}

// Which job is the operation's.

// binding is a job and since when it belongs to the operation.
type binding struct {
	moment
	key JobKey
}

// bindingKey is the job that a payload binds, "" if it binds none.
func bindingKey(d Data) JobKey {
	switch d := d.(type) {
	case *Accepted:
		return d.Remote.Key
	case *ReconFound:
		return d.Remote.Key
	case *ReviewResolved:
		if d.Action == ResolveBind {
			return d.Remote.Key
		}
	}
	return ""
}

// bound lists the jobs that were ever bound, each at its first time.
func (s story) bound() []binding {
	var list []binding
	for _, x := range mine[Data](s) {
		key := bindingKey(x.data)
		if key != "" && !slices.ContainsFunc(list, func(b binding) bool { return b.key == key }) {
			list = append(list, binding{x.moment, key})
		}
	}
	return list
}

func (s story) picks() []told[*ReviewResolved] { return s.answers(ResolveBind) }

// own is the job to follow. A person's choice stands until a job turns up that
// the person could not know of.
func (s story) own() (binding, bool) {
	bound := s.bound()
	if picks := s.picks(); len(picks) > 0 {
		pick := binding{newest(picks).moment, newest(picks).data.Remote.Key}
		for _, b := range bound {
			if b.key != pick.key && b.seq > pick.seq {
				return binding{}, false
			}
		}
		return pick, true
	}
	if len(bound) == 1 {
		return bound[0], true
	}
	return binding{}, false
}

// shared reports whether another operation has the job as well.
func (s story) shared(key JobKey) bool {
	for _, r := range s.recs {
		sub := r.Event.Subject
		if sub.Kind == SubjectOperation && sub.Key != string(s.op) && r.Err == nil && bindingKey(r.Event.Data) == key {
			return true
		}
	}
	return false
}

// Clocks.

// passed lists where clock c is said to have passed due.
func (s story) passed(c Clock, due time.Time) []told[*DeadlinePassed] {
	return only(mine[*DeadlinePassed](s), func(x told[*DeadlinePassed]) bool {
		return x.data.Name == c && !x.data.Due.Before(due)
	})
}

func (s story) grants(c Clock) []told[*ReviewResolved] {
	return only(s.answers(ResolveExtend), func(x told[*ReviewResolved]) bool { return x.data.Clock == c })
}

// over lists where a clock that began somewhere is said to have run out. Time
// that a person gave after it began stands in the place of its length.
func (s story) over(c Clock, began moment, length Duration) []told[*DeadlinePassed] {
	if began.seq == 0 {
		return nil
	}
	due := began.at.Add(length.Std())
	if g := newest(s.grants(c)); g.seq > began.seq {
		due = g.data.Until
	}
	return s.passed(c, due)
}

// confirmOver reports whether the time to confirm a piece of news ran out. It is
// judged by the stream's order: the firing was written after the news was. A copy
// of a firing says nothing about what came after the first.
func (s story) confirmOver(news uint64) bool {
	fired := only(mine[*DeadlinePassed](s), func(x told[*DeadlinePassed]) bool { return x.data.Name == ClockConfirm })
	heard := max(news, newest(s.grants(ClockConfirm)).seq)
	return slices.ContainsFunc(fired, func(x told[*DeadlinePassed]) bool {
		first := slices.IndexFunc(fired, func(y told[*DeadlinePassed]) bool { return y.data.Gen == x.data.Gen })
		return fired[first].seq > heard
	})
}
