package events

import (
	"errors"
	"fmt"
	"slices"
)

// Verdict says what the fold did with an event. It is never an error.
type Verdict string

// Verdicts.
const (
	VerdictApplied Verdict = "applied" // a record changed
	VerdictStale   Verdict = "stale"   // known already: the sequence was folded before
	VerdictForeign Verdict = "foreign" // concerns no job: inbox, genesis
	VerdictUnknown Verdict = "unknown" // a type from elsewhere: folds as nothing, and holds the operation if it is critical
	VerdictParked  Verdict = "parked"  // broken: folds as nothing, and holds the operation that it is about
)

// Verdicts lists every verdict once.
func Verdicts() []Verdict {
	return []Verdict{VerdictApplied, VerdictStale, VerdictForeign, VerdictUnknown, VerdictParked}
}

// View gives the fold the records that an event concerns. Each method returns
// the one record that later calls return too, a fresh one with nothing but its
// identity if there is none, and keeps it. Records are changed in place, and a
// job shares the records of its remote jobs.
type View interface {
	Job(p Provider, op OperationID) (*Job, error)
	Remote(p Provider, key JobKey) (*Remote, error)
	Account(p Provider, key string) (*Account, error)
}

// Touched names the records that an event changed; nil: none.
type Touched struct {
	Job     *Job
	Others  []*Job // further operations that own the remote job, which is a conflict
	Remote  *Remote
	Account *Account
}

// Apply folds one event of the stream into the records it concerns. Events must
// come in stream order, as often as they like: what was folded is stale. The
// error is the view's own; nothing is then half applied that a repeat would not
// complete.
func Apply(v View, rec Recorded) (Touched, Verdict, error) {
	switch rec.Event.Subject.Kind {
	case SubjectOperation:
		return applyOperation(v, &rec)
	case SubjectJob:
		return applyRemote(v, &rec)
	case SubjectSettled:
		return applySettled(v, &rec)
	case SubjectAccount:
		return applyAccount(v, &rec)
	default:
		return Touched{}, verdictOf(&rec, VerdictForeign), nil
	}
}

// verdictOf is the verdict on an event that cannot be read, else the given one.
func verdictOf(rec *Recorded, read Verdict) Verdict {
	switch {
	case rec.Err == nil:
		return read
	case errors.Is(rec.Err, ErrUnknownType):
		return VerdictUnknown
	default:
		return VerdictParked
	}
}

// holding is why an event must not be passed over, "" if it may be.
func holding(rec *Recorded) string {
	switch verdictOf(rec, "") {
	case VerdictParked:
		return WhyUnreadable
	case VerdictUnknown:
		if rec.Event.Critical {
			return WhyCritical
		}
	}
	return ""
}

func (rec *Recorded) mark() Mark {
	at := rec.Event.Time
	if at.IsZero() {
		at = rec.At // an event that could not be read
	}
	return Mark{Seq: rec.Seq, At: at}
}

func applyOperation(v View, rec *Recorded) (Touched, Verdict, error) {
	e := &rec.Event
	j, err := v.Job(e.Subject.Provider, e.Subject.Operation())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view job: %w", err)
	}
	if rec.Seq <= j.OpSeq {
		return Touched{}, VerdictStale, nil
	}
	t := Touched{Job: j}
	m := rec.mark()
	if rec.Err != nil {
		// It folds as nothing, but it stands on the subject: the fence has seen it.
		if why := holding(rec); why != "" {
			j.hold(rec.Seq, why)
		}
	} else {
		if ref := bindingOf(e.Data); ref != nil {
			if err := bindRemote(v, j, ref, m, &t); err != nil {
				return Touched{}, "", err
			}
		}
		j.join(e, m)
	}
	j.OpSeq = rec.Seq
	j.touch(m)
	return t, verdictOf(rec, VerdictApplied), nil
}

// bindRemote joins a job's facts to the operation that an event binds it to, and
// tells the other operations that it has one more owner.
func bindRemote(v View, j *Job, ref *RemoteRef, m Mark, t *Touched) error {
	r, err := v.Remote(j.Provider, ref.Key)
	if err != nil {
		return fmt.Errorf("view remote: %w", err)
	}
	if r.Ref.ID == "" {
		r.Ref = *ref
		r.First = m
	}
	if r.bind(j.Operation) {
		r.AppliedSeq = max(r.AppliedSeq, m.Seq)
		t.Remote = r
	}
	j.joinRemote(r)
	for _, seq := range r.Unreadable {
		j.hold(seq, WhyCritical)
	}
	if len(r.BoundOps) == 1 {
		return nil // nobody else; the caller derives the operation itself
	}
	return shareRemote(v, r, m, t)
}

// bindingOf returns the job that an event binds to its operation.
func bindingOf(d Data) *RemoteRef {
	switch d := d.(type) {
	case *Accepted:
		return &d.Remote
	case *ReconFound:
		return &d.Remote
	case *ReviewResolved:
		if d.Action == ResolveBind {
			return d.Remote
		}
	}
	return nil
}

func applyRemote(v View, rec *Recorded) (Touched, Verdict, error) {
	e := &rec.Event
	r, err := v.Remote(e.Subject.Provider, e.Subject.Job())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view remote: %w", err)
	}
	if rec.Seq <= r.AppliedSeq {
		return Touched{}, VerdictStale, nil
	}
	m := rec.mark()
	if rec.Err == nil {
		r.join(e.Data, m)
	} else if holding(rec) == WhyCritical && len(r.Unreadable) < unreadableMax {
		r.Unreadable = append(r.Unreadable, rec.Seq) // a broken one is read again by the next poll
	}
	r.AppliedSeq = rec.Seq
	t := Touched{Remote: r}
	if err := shareRemote(v, r, m, &t); err != nil {
		return Touched{}, "", err
	}
	if o, ok := e.Data.(*Observed); ok && rec.Err == nil && o.Reference != nil && o.Reference.Proven {
		j, err := v.Job(e.Subject.Provider, o.Reference.Operation)
		if err != nil {
			return Touched{}, "", fmt.Errorf("view job: %w", err)
		}
		j.Proven = addBinding(j.Proven, Binding{Mark: m, Remote: o.Remote, Via: "callback"})
		j.touch(m)
		t.add(j)
	}
	return t, verdictOf(rec, VerdictApplied), nil
}

// shareRemote brings the job's facts to every operation that owns it.
func shareRemote(v View, r *Remote, m Mark, t *Touched) error {
	for _, op := range r.BoundOps {
		j, err := v.Job(r.Provider, op)
		if err != nil {
			return fmt.Errorf("view job: %w", err)
		}
		j.joinRemote(r)
		for _, seq := range r.Unreadable {
			j.hold(seq, WhyCritical)
		}
		j.touch(m)
		t.add(j)
	}
	return nil
}

func applySettled(v View, rec *Recorded) (Touched, Verdict, error) {
	e := &rec.Event
	j, err := v.Job(e.Subject.Provider, e.Subject.Operation())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view job: %w", err)
	}
	if m := j.public(e.Subject.G); m.Set() && m.Seq <= rec.Seq {
		return Touched{}, VerdictStale, nil
	}
	m := rec.mark()
	if d, ok := e.Data.(*Settled); ok && rec.Err == nil {
		j.announce(d, m)
	} else {
		// What stands there is not what we announced, and nothing else can: nobody
		// may act on it before a person looked.
		s := j.settlementOf(e.Subject.G)
		s.Public = earliest(s.Public, m)
		j.hold(rec.Seq, WhyUnreadable)
	}
	j.touch(m)
	return Touched{Job: j}, verdictOf(rec, VerdictApplied), nil
}

func applyAccount(v View, rec *Recorded) (Touched, Verdict, error) {
	e := &rec.Event
	a, err := v.Account(e.Subject.Provider, e.Subject.Key)
	if err != nil {
		return Touched{}, "", fmt.Errorf("view account: %w", err)
	}
	if rec.Seq <= a.AppliedSeq {
		return Touched{}, VerdictStale, nil
	}
	a.AppliedSeq = rec.Seq
	if rec.Err == nil {
		a.join(e.Data, rec.mark())
	}
	return Touched{Account: a}, verdictOf(rec, VerdictApplied), nil
}

func (t *Touched) add(j *Job) {
	switch {
	case t.Job == nil:
		t.Job = j
	case t.Job != j && !slices.Contains(t.Others, j):
		t.Others = append(t.Others, j)
	}
}

// touch records the sequence and derives the state anew.
func (j *Job) touch(m Mark) {
	j.AppliedSeq = max(j.AppliedSeq, m.Seq)
	j.UpdatedAt = laterTime(j.UpdatedAt, m.At)
	f := j.derive()
	j.State, j.Why = f.state, f.why
	j.Evidence = j.Evidence[:0]
	for _, seq := range f.on {
		if seq != 0 && !slices.Contains(j.Evidence, seq) {
			j.Evidence = append(j.Evidence, seq)
		}
	}
	slices.Sort(j.Evidence)
	j.Outcome = j.outcome()
}

// NewJob returns the record of an operation that nothing is known about.
func NewJob(p Provider, op OperationID) *Job {
	j := &Job{Operation: op, Provider: p}
	j.touch(Mark{})
	return j
}

// NewRemote returns the record of a remote job that nothing is known about.
func NewRemote(p Provider, key JobKey) *Remote {
	return &Remote{Provider: p, Ref: RemoteRef{Key: key}}
}
