package events

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Entry is one line of an operation's history: an event, and what it changed.
type Entry struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor,omitempty"`
	Event   Type      `json:"event"`
	EventID string    `json:"event_id"`
	Cause   string    `json:"cause,omitempty"`
	From    State     `json:"from"`
	To      State     `json:"to"`
	Reason  string    `json:"reason,omitempty"`
	Verdict Verdict   `json:"verdict"`
	Data    Data      `json:"data"`
}

// Memoir is a View in memory, for folding a few subjects apart from the bucket.
type Memoir struct {
	jobs     map[OperationID]*Job
	remotes  map[JobKey]*Remote
	accounts map[string]*Account
}

// NewMemoir returns an empty view.
func NewMemoir() *Memoir {
	return &Memoir{jobs: map[OperationID]*Job{}, remotes: map[JobKey]*Remote{}, accounts: map[string]*Account{}}
}

// Job implements View.
func (m *Memoir) Job(p Provider, op OperationID) (*Job, error) {
	j := m.jobs[op]
	if j == nil {
		j = NewJob(p, op)
		m.jobs[op] = j
	}
	return j, nil
}

// Remote implements View.
func (m *Memoir) Remote(p Provider, key JobKey) (*Remote, error) {
	r := m.remotes[key]
	if r == nil {
		r = NewRemote(p, key)
		m.remotes[key] = r
	}
	return r, nil
}

// Account implements View.
func (m *Memoir) Account(p Provider, key string) (*Account, error) {
	a := m.accounts[key]
	if a == nil {
		a = NewAccount(p, key)
		m.accounts[key] = a
	}
	return a, nil
}

// HistoryLimit bounds the events of one operation that are read for its history.
const HistoryLimit = 10_000

// History folds one operation from its subjects and returns every line with the
// state before and after. It returns ErrNotFound if there is no such operation.
func History(ctx context.Context, r Reader, p Provider, op OperationID) ([]Entry, *Job, error) {
	recs, err := gather(ctx, r, p, op)
	if err != nil {
		return nil, nil, err
	}
	if len(recs) == 0 {
		return nil, nil, ErrNotFound
	}
	m := NewMemoir()
	job, _ := m.Job(p, op) // a memoir never fails
	entries := make([]Entry, 0, len(recs))
	for _, rec := range recs {
		from := job.State
		if job.AppliedSeq == 0 {
			from = ""
		}
		_, verdict, err := Apply(m, rec)
		if err != nil {
			return nil, nil, err
		}
		e := Entry{Seq: rec.Seq, At: rec.At, EventID: rec.Event.ID, Actor: rec.Event.Actor, Cause: rec.Event.Cause, From: from, To: job.State, Verdict: verdict, Data: rec.Event.Data}
		if job.AppliedSeq == 0 {
			e.To = "" // evidence about a job that is not bound yet
		}
		if rec.Event.Data != nil {
			e.Event = rec.Event.Data.Type()
		}
		if from != e.To {
			e.Reason = job.Why
		}
		entries = append(entries, e)
	}
	return entries, job, nil
}

// Refold folds one operation from its own subject and those of its jobs. It is
// the read after a 202 that the bucket has not caught up with.
func Refold(ctx context.Context, r Reader, p Provider, op OperationID) (*Job, error) {
	_, job, err := History(ctx, r, p, op)
	return job, err
}

// gather reads the operation's subject, the subjects of every job that it names
// and its settlements, in stream order.
func gather(ctx context.Context, r Reader, p Provider, op OperationID) ([]Recorded, error) {
	recs, err := r.Read(ctx, OperationSubject(p, op), 0, HistoryLimit)
	if err != nil || len(recs) == 0 {
		return nil, err
	}
	seen := map[Subject]bool{}
	for _, rec := range slices.Clone(recs) {
		var s Subject
		if ref := bindingOf(rec.Event.Data); ref != nil {
			s = JobSubject(p, ref.Key)
		} else if d, ok := rec.Event.Data.(*Settled); ok {
			s = SettledSubject(p, op, d.G)
		} else {
			continue
		}
		if seen[s] {
			continue
		}
		seen[s] = true
		more, err := r.Read(ctx, s, 0, HistoryLimit)
		if err != nil {
			return nil, err
		}
		recs = append(recs, more...)
	}
	slices.SortFunc(recs, func(a, b Recorded) int { return cmp.Compare(a.Seq, b.Seq) })
	return recs, nil
}
