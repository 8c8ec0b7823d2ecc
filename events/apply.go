package events

import (
	"errors"
	"fmt"
)

// Verdict says what the fold did with an event. It is never an error.
type Verdict string

// Verdicts.
const (
	VerdictApplied Verdict = "applied" // a record changed
	VerdictStale   Verdict = "stale"   // known already: the sequence was folded before
	VerdictForeign Verdict = "foreign" // concerns no job: inbox, genesis
	VerdictUnknown Verdict = "unknown" // a type from elsewhere: folds as nothing
	VerdictParked  Verdict = "parked"  // broken: folds as nothing, a person should look
)

// View gives the fold the records that an event concerns. Each method returns
// the one record that later calls return too, a fresh one with nothing but its
// identity if there is none, and keeps it. Records are changed in place.
type View interface {
	Job(p Provider, op OperationID) (*Job, error)
	Remote(p Provider, key JobKey) (*Remote, error)
}

// Touched lists the records that an event changed.
type Touched struct {
	Jobs    []*Job
	Remotes []*Remote
}

// Apply folds one event of the stream into the records it concerns. Events must
// come in stream order, as often as they like: what was folded is stale. The
// error is the view's own; nothing is then half applied that a repeat would not
// complete.
func Apply(v View, rec Recorded) (Touched, Verdict, error) {
	if rec.Err != nil {
		if errors.Is(rec.Err, ErrUnknownType) {
			return Touched{}, VerdictUnknown, nil
		}
		return Touched{}, VerdictParked, nil
	}
	switch rec.Event.Subject.Kind {
	case SubjectOperation:
		return applyOperation(v, rec)
	case SubjectJob:
		return applyRemote(v, rec)
	case SubjectSettled:
		return applySettled(v, rec)
	default:
		return Touched{}, VerdictForeign, nil
	}
}

func applyOperation(v View, rec Recorded) (Touched, Verdict, error) {
	e := rec.Event
	j, err := v.Job(e.Subject.Provider, e.Subject.Operation())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view job: %w", err)
	}
	if rec.Seq <= j.OpSeq {
		return Touched{}, VerdictStale, nil
	}
	t := Touched{Jobs: []*Job{j}}
	ref := bindingOf(e.Data)
	if ref != nil {
		r, err := v.Remote(e.Subject.Provider, ref.Key)
		if err != nil {
			return Touched{}, "", fmt.Errorf("view remote: %w", err)
		}
		if r.Ref.ID == "" {
			r.Ref = *ref
			r.First = Mark{Seq: rec.Seq, At: e.Time}
		}
		if r.bind(j.Operation) {
			r.AppliedSeq = max(r.AppliedSeq, rec.Seq)
			t.Remotes = append(t.Remotes, r)
		}
		if err := shareRemote(v, r, rec.Seq, &t); err != nil {
			return Touched{}, "", err
		}
		j.joinRemote(r)
	}
	j.join(e, Mark{Seq: rec.Seq, At: e.Time})
	j.OpSeq = rec.Seq
	j.touch(rec.Seq)
	return t, VerdictApplied, nil
}

// bindingOf returns the job that an event binds to its operation.
func bindingOf(d Data) *RemoteRef {
	switch d := d.(type) {
	case *Accepted:
		return &d.Remote
	case *ReconFound:
		return &d.Remote
	default:
		return nil
	}
}

func applyRemote(v View, rec Recorded) (Touched, Verdict, error) {
	e := rec.Event
	r, err := v.Remote(e.Subject.Provider, e.Subject.Job())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view remote: %w", err)
	}
	if rec.Seq <= r.AppliedSeq {
		return Touched{}, VerdictStale, nil
	}
	r.join(e.Data, Mark{Seq: rec.Seq, At: e.Time})
	r.AppliedSeq = rec.Seq
	t := Touched{Remotes: []*Remote{r}}
	if err := shareRemote(v, r, rec.Seq, &t); err != nil {
		return Touched{}, "", err
	}
	if o, ok := e.Data.(*Observed); ok && o.Reference != nil && o.Reference.Proven {
		j, err := v.Job(e.Subject.Provider, o.Reference.Operation)
		if err != nil {
			return Touched{}, "", fmt.Errorf("view job: %w", err)
		}
		j.Proven = addBinding(j.Proven, Binding{Mark: Mark{Seq: rec.Seq, At: e.Time}, Remote: o.Remote, Via: "callback"})
		j.touch(rec.Seq)
		t.add(j)
	}
	return t, VerdictApplied, nil
}

// shareRemote brings the job's facts to every operation that owns it.
func shareRemote(v View, r *Remote, seq uint64, t *Touched) error {
	for _, op := range r.BoundOps {
		j, err := v.Job(r.Provider, op)
		if err != nil {
			return fmt.Errorf("view job: %w", err)
		}
		j.joinRemote(r)
		j.touch(seq)
		t.add(j)
	}
	return nil
}

func applySettled(v View, rec Recorded) (Touched, Verdict, error) {
	e := rec.Event
	d, ok := e.Data.(*Settled)
	if !ok {
		return Touched{}, VerdictForeign, nil
	}
	j, err := v.Job(e.Subject.Provider, e.Subject.Operation())
	if err != nil {
		return Touched{}, "", fmt.Errorf("view job: %w", err)
	}
	if m := j.public(d.G); m.Set() && m.Seq <= rec.Seq {
		return Touched{}, VerdictStale, nil
	}
	j.announce(d, Mark{Seq: rec.Seq, At: e.Time})
	j.touch(rec.Seq)
	return Touched{Jobs: []*Job{j}}, VerdictApplied, nil
}

func (t *Touched) add(j *Job) {
	for _, x := range t.Jobs {
		if x == j {
			return
		}
	}
	t.Jobs = append(t.Jobs, j)
}

// touch records the sequence and derives the state anew.
func (j *Job) touch(seq uint64) {
	j.AppliedSeq = max(j.AppliedSeq, seq)
	j.State, j.Why = j.derive()
	j.Outcome = OutcomeOf(j.State)
}

// NewJob returns the record of an operation that nothing is known about.
func NewJob(p Provider, op OperationID) *Job {
	j := &Job{Operation: op, Provider: p}
	j.touch(0)
	return j
}

// NewRemote returns the record of a remote job that nothing is known about.
func NewRemote(p Provider, key JobKey) *Remote {
	return &Remote{Provider: p, Ref: RemoteRef{Key: key}}
}
