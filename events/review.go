package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

func (j *Job) openReview(d *ReviewOpened, m Mark) {
	for i := range j.Reviews {
		if r := &j.Reviews[i]; r.ID == d.ID {
			r.Reason = d.Reason
			r.Mark = earliest(r.Mark, m)
			return
		}
	}
	j.addReview(Review{Mark: m, ID: d.ID, Reason: d.Reason})
}

func (j *Job) addReview(r Review) {
	j.Reviews = append(j.Reviews, r)
	slices.SortFunc(j.Reviews, func(a, b Review) int { return cmp.Compare(a.ID, b.ID) })
}

// resolve keeps a person's answer with its question, and the fact that it states.
func (j *Job) resolve(d *ReviewResolved, m Mark) {
	i := slices.IndexFunc(j.Reviews, func(r Review) bool { return r.ID == d.ID })
	if i < 0 {
		j.addReview(Review{ID: d.ID, Reason: reasonOf(d.ID)})
		i = slices.IndexFunc(j.Reviews, func(r Review) bool { return r.ID == d.ID })
	}
	if r := &j.Reviews[i]; !r.Resolved.Set() || m.Seq < r.Resolved.Seq {
		r.Resolved, r.Action, r.By, r.Note = m, d.Action, d.By, d.Note
	}
	switch d.Action {
	case ResolveBind:
		b := Binding{Mark: m, Remote: *d.Remote, Via: "review"}
		j.bind(b)
		if m.Seq > j.Pick.Seq {
			j.Pick = b
		}
	case ResolveAbsent:
		j.cover(d.Covers, m)
		j.Declared = max(j.Declared, d.Covers)
	case ResolveExtend:
		j.grant(Grant{Mark: m, Clock: d.Clock, Until: d.Until})
	case ResolveRetry:
		r := j.result(d.G)
		r.Asked = earliest(r.Asked, m)
	case ResolveWaive:
		if !j.Waiver.Set() || m.Seq < j.Waiver.Seq {
			j.Waiver = Waiver{Mark: m, G: d.G, By: d.By}
		}
	case ResolveClose:
		if m.Seq > j.Closed.Seq {
			j.Closed = Closure{Mark: m, Disposition: d.Disposition, By: d.By}
		}
	case ResolveAcknowledge:
		j.acknowledge(Ack{Mark: m, G: d.G, State: d.State, By: d.By})
	case ResolveForeignCancel:
		j.foreign(ForeignJob{Mark: m, Key: d.Remote.Key, Cancel: true})
	case ResolveDismiss:
		if u := j.unreadable(d.Event); u != nil {
			u.Dismissed = earliest(u.Dismissed, m)
		}
		if d.Remote != nil {
			j.foreign(ForeignJob{Mark: m, Key: d.Remote.Key})
		}
	}
}

// foreign keeps what a person said about a job that is not the operation's.
func (j *Job) foreign(f ForeignJob) {
	i, ok := slices.BinarySearchFunc(j.Foreign, f.Key, func(x ForeignJob, k JobKey) int { return cmp.Compare(x.Key, k) })
	switch {
	case !ok:
		j.Foreign = slices.Insert(j.Foreign, i, f)
	case f.Seq > j.Foreign[i].Seq:
		j.Foreign[i] = f
	}
}

// stray returns a job of another origin that nobody said anything about: it was
// made for the operation's token, is not the one that a person chose, and may go
// on, and cost, for ever. nil: there is none.
func (j *Job) stray() *Binding {
	if !j.Pick.Set() || !j.Prepared.Contract.Cancel {
		return nil
	}
	own := j.Own()
	for i := range j.Bound {
		b := &j.Bound[i]
		if own == nil || b.Remote.Key == own.Remote.Key ||
			slices.ContainsFunc(j.Foreign, func(f ForeignJob) bool { return f.Key == b.Remote.Key }) {
			continue
		}
		if r := j.remote(b.Remote.Key); r == nil || !r.State().Terminal() {
			return b
		}
	}
	return nil
}

func (j *Job) grant(g Grant) {
	i, ok := slices.BinarySearchFunc(j.Grants, g.Clock, func(x Grant, c Clock) int { return cmp.Compare(x.Clock, c) })
	switch {
	case !ok:
		j.Grants = slices.Insert(j.Grants, i, g)
	case g.Seq > j.Grants[i].Seq:
		j.Grants[i] = g
	}
}

func (j *Job) acknowledge(a Ack) {
	i, ok := slices.BinarySearchFunc(j.Acks, a.G, func(x Ack, g int) int { return cmp.Compare(x.G, g) })
	switch {
	case !ok:
		j.Acks = slices.Insert(j.Acks, i, a)
	case a.Seq > j.Acks[i].Seq:
		j.Acks[i] = a
	}
}

func (j *Job) unreadable(seq uint64) *Unreadable {
	for i := range j.Unreadable {
		if j.Unreadable[i].Seq == seq {
			return &j.Unreadable[i]
		}
	}
	return nil
}

// hold keeps an event that must not be passed over; of too many the first.
func (j *Job) hold(seq uint64, reason string) {
	i, ok := slices.BinarySearchFunc(j.Unreadable, seq, func(u Unreadable, s uint64) int { return cmp.Compare(u.Seq, s) })
	if !ok {
		j.Unreadable = slices.Insert(j.Unreadable, i, Unreadable{Seq: seq, Reason: reason})
		j.Unreadable = j.Unreadable[:min(len(j.Unreadable), unreadableMax)]
	}
}

// Held returns the first event that must not be passed over and that nobody
// dismissed, nil if there is none. While there is one, nothing is sent for the
// operation and no effect runs.
func (j *Job) Held() *Unreadable {
	for i := range j.Unreadable {
		if !j.Unreadable[i].Dismissed.Set() {
			return &j.Unreadable[i]
		}
	}
	return nil
}

// Questions are the reasons for which a person is needed now: the one that the
// state names, and those that do not stop the operation.
func (j *Job) Questions() []string {
	var q []string
	if j.State.Suspended() {
		q = append(q, j.Why)
	}
	if h := j.Held(); h != nil && !slices.Contains(q, h.Reason) {
		q = append(q, h.Reason)
	}
	if r := j.Remote(); r != nil && j.State.open() && len(r.Strange) > 0 && r.strange(j.limit(ClockConfirm).Std()) && !j.answered(WhyUnmapped) {
		q = append(q, WhyUnmapped)
	}
	if j.stray() != nil && !j.State.Suspended() {
		q = append(q, WhyForeign)
	}
	return q
}

// ReviewID names the present question for a reason: `<reason>:<gen>`. A reason
// that comes back after an answer is a new question.
func (j *Job) ReviewID(reason string) string {
	gen := 1
	for i := range j.Reviews {
		if r := &j.Reviews[i]; r.Reason == reason && r.Resolved.Set() {
			gen++
		}
	}
	return reason + ":" + strconv.Itoa(gen)
}

// answered reports whether somebody answered a question for the reason before.
func (j *Job) answered(reason string) bool {
	return slices.ContainsFunc(j.Reviews, func(r Review) bool { return r.Reason == reason && r.Resolved.Set() })
}

// review returns the open question for a reason, nil if nobody asked it yet.
func (j *Job) review(reason string) *Review {
	for i := range j.Reviews {
		if r := &j.Reviews[i]; r.Reason == reason && r.Set() && !r.Resolved.Set() {
			return r
		}
	}
	return nil
}

// OpenReviews returns the asked questions that still stand.
func (j *Job) OpenReviews() []Review {
	var open []Review
	for _, reason := range j.Questions() {
		if r := j.review(reason); r != nil {
			open = append(open, *r)
		}
	}
	return open
}

func reasonOf(id string) string {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i] == ':' {
			return id[:i]
		}
	}
	return id
}

// ErrResolution is wrapped when an answer does not fit the job as it stands.
var ErrResolution = errors.New("resolution does not fit")

// Answers lists the resolutions that fit the job as it stands, for the question
// of the given reason.
func (j *Job) Answers(reason string) []Resolution {
	switch {
	case reason == WhyForeign:
		return []Resolution{ResolveForeignCancel, ResolveDismiss}
	case reason == WhyUnmapped, j.Held() != nil && j.Held().Reason == reason:
		return []Resolution{ResolveDismiss}
	case !j.State.Suspended() || reason != j.Why:
		return nil
	}
	var out []Resolution
	switch j.State {
	case StateConflict:
		out = []Resolution{ResolveBind, ResolveAcknowledge}
	case StateReversed:
		out = []Resolution{ResolveAcknowledge}
	case StateResultUnavail, StateResultInvalid:
		out = []Resolution{ResolveRetry, ResolveWaive}
	case StateResultTimedOut, StateUnconfirmed:
		out = []Resolution{ResolveExtend, ResolveAcknowledge}
	default:
		out = j.answersToReview(reason)
	}
	if j.settlement() == nil {
		out = append(out, ResolveClose)
	}
	return out
}

func (j *Job) answersToReview(reason string) []Resolution {
	switch reason {
	case WhyCreateUnresolved:
		return []Resolution{ResolveBind, ResolveAbsent, ResolveExtend}
	case WhyRequestChanged, WhyTokenMismatch:
		return []Resolution{ResolveBind, ResolveAbsent}
	case WhyAttemptsExhausted, WhyNoIntent:
		return []Resolution{ResolveBind}
	case WhyClaimUnconfirmed, WhyContested, WhyJobGone:
		return []Resolution{ResolveAcknowledge, ResolveExtend}
	default: // contradictory reads, a late outcome, a job bound after the end
		return []Resolution{ResolveAcknowledge}
	}
}

// CheckResolution reports why an answer does not fit the job as it stands, with
// an error that wraps ErrResolution and says what would; nil if it fits. owner is
// an operation that the job named by d.Remote is bound to, "" if there is none
// but this one.
func (j *Job) CheckResolution(d *ReviewResolved, owner OperationID) error {
	if err := d.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrResolution, err)
	}
	var open *Review
	for _, r := range j.OpenReviews() {
		if r.ID == d.ID {
			open = &r
		}
	}
	if open == nil {
		return fmt.Errorf("%w: review %.80q is not open; the operation is %s (%s)", ErrResolution, d.ID, j.State, j.Why)
	}
	if j.Prepared.Contract.FourEyes && d.By == j.Prepared.Actor {
		return fmt.Errorf("%w: %.80s submitted the operation, another person has to answer", ErrResolution, d.By)
	}
	if fit := j.Answers(open.Reason); !slices.Contains(fit, d.Action) {
		return fmt.Errorf("%w: %s to %s; what fits is %v", ErrResolution, d.Action, open.Reason, fit)
	}
	if err := j.checkAnswer(d, owner); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrResolution, d.Action, err)
	}
	return nil
}

func (j *Job) checkAnswer(d *ReviewResolved, owner OperationID) error {
	switch d.Action {
	case ResolveBind:
		if owner != "" && owner != j.Operation {
			return fmt.Errorf("the job belongs to operation %s", owner)
		}
	case ResolveAbsent:
		if n := len(j.Attempts); n > 0 && d.Covers != j.Attempts[n-1].N {
			return fmt.Errorf("covers is %d, but the newest attempt is %d", d.Covers, j.Attempts[n-1].N)
		}
	case ResolveExtend:
		if c := j.stopped(); d.Clock != c {
			return fmt.Errorf("the clock that ran out is %s", c)
		}
		for i := range j.Fired {
			if f := &j.Fired[i]; f.Name == d.Clock && !d.Until.After(f.Due) {
				return fmt.Errorf("until is %s, want later than %s, which has passed", d.Until.Format(time.RFC3339), f.Due.Format(time.RFC3339))
			}
		}
	case ResolveRetry:
		if n := len(j.Results); n > 0 && d.G <= j.Results[n-1].G {
			return fmt.Errorf("g is %d, want %d", d.G, j.Results[n-1].G+1)
		}
	case ResolveAcknowledge:
		last := 0
		if s := j.settlement(); s != nil {
			last = s.G
		}
		if d.G != last {
			return fmt.Errorf("g is %d, but the newest announcement is %d", d.G, last)
		}
		if last == 0 && d.State == "" {
			return errors.New("nothing is announced yet, so state must say what is true")
		}
	case ResolveDismiss:
		if h := j.Held(); h != nil && d.Event != h.Seq {
			return fmt.Errorf("event is %d, but %d holds the operation", d.Event, h.Seq)
		}
		if b := j.stray(); d.Remote != nil && (b == nil || b.Remote.Key != d.Remote.Key) {
			return errors.New("nobody asks about that job")
		}
	case ResolveForeignCancel:
		if b := j.stray(); b == nil || b.Remote.Key != d.Remote.Key {
			return errors.New("nobody asks about that job")
		}
	}
	return nil
}
