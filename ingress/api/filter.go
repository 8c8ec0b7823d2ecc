package api

import (
	"encoding/base64"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Filter selects jobs; its zero value selects all. Every condition must hold.
type Filter struct {
	States   []events.State // one of them; empty: any
	Outcome  events.Outcome
	Provider events.Provider
	Review   bool              // only those that wait for a person
	Labels   map[string]string // each with exactly this value
	// UpdatedBefore and UpdatedAfter bound the time of the last change, both
	// exclusive; zero: no bound.
	UpdatedBefore time.Time
	UpdatedAfter  time.Time
}

// Cursor is a place in the list: the page goes on below this sequence. Zero is
// the beginning, the newest operation.
type Cursor uint64

// Page is one page of a list.
type Page struct {
	Jobs    []*events.Job // newest first; nobody may change them
	Updated []time.Time   // of each job, when it last changed
	Next    Cursor        // zero: there is no more
}

const cursorPrefix = "v1:"

// ParseCursor reads what String wrote; "" is the beginning.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		if text, ok := strings.CutPrefix(string(b), cursorPrefix); ok {
			var n uint64
			if n, err = strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
				return Cursor(n), nil
			}
		}
	}
	return 0, errors.New("want the next_cursor of an earlier page")
}

// String writes the cursor as one opaque word, "" for the beginning.
func (c Cursor) String() string {
	if c == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(cursorPrefix + strconv.FormatUint(uint64(c), 10)))
}

func (f *Filter) match(e *entry) bool {
	j := e.job
	switch {
	case len(f.States) > 0 && !slices.Contains(f.States, j.State),
		f.Provider != "" && f.Provider != j.Provider,
		f.Outcome != "" && f.Outcome != outcomeOf(j),
		f.Review && !j.State.Suspended(),
		!f.UpdatedBefore.IsZero() && !e.updated.Before(f.UpdatedBefore),
		!f.UpdatedAfter.IsZero() && !e.updated.After(f.UpdatedAfter):
		return false
	}
	for k, v := range f.Labels {
		if got, ok := j.Prepared.Labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// outcomeOf is the public word for a job. A settled state that is not announced
// yet is still pending: nobody may act on it before the announcement.
func outcomeOf(j *events.Job) events.Outcome {
	if j.State.Settled() && announced(j) == nil {
		return events.OutcomePending
	}
	return events.OutcomeOf(j.State)
}

// announced returns the newest settlement if it says what the job says now.
func announced(j *events.Job) *events.Settlement {
	s := newestSettlement(j)
	if s == nil || s.State != j.State {
		return nil
	}
	return s
}

func newestSettlement(j *events.Job) *events.Settlement {
	for i := len(j.Settlements) - 1; i >= 0; i-- {
		if s := &j.Settlements[i]; s.Set() && s.Settled != nil {
			return s
		}
	}
	return nil
}

// updatedAt is the latest writer's clock of any fact of the job.
func updatedAt(j *events.Job) time.Time {
	var t time.Time
	see := func(marks ...events.Mark) {
		for _, m := range marks {
			if m.At.After(t) {
				t = m.At
			}
		}
	}
	see(j.Prepared.Mark, j.ReconFailed)
	for i := range j.Attempts {
		see(j.Attempts[i].Mark, j.Attempts[i].Ended)
	}
	for i := range j.Proven {
		see(j.Proven[i].Mark)
	}
	for i := range j.Bound {
		see(j.Bound[i].Mark)
	}
	for i := range j.Remotes {
		seeRemote(&j.Remotes[i], see)
	}
	for i := range j.Fired {
		see(j.Fired[i].Mark)
	}
	for i := range j.Results {
		see(j.Results[i].StoredAt)
	}
	for i := range j.Settlements {
		see(j.Settlements[i].Mark, j.Settlements[i].Public)
	}
	for i := range j.Reviews {
		see(j.Reviews[i].Mark)
	}
	for i := range j.Effects {
		see(j.Effects[i].Done, j.Effects[i].Dead)
		for _, c := range j.Effects[i].Claims {
			see(c.Mark, c.Ended)
		}
	}
	return t
}

func seeRemote(r *events.Remote, see func(...events.Mark)) {
	see(r.First, r.Gone, r.Unrecognised.Mark, r.Counts.Mark)
	for i := range r.Runs {
		run := &r.Runs[i]
		see(run.Alive)
		for _, s := range run.Seen {
			see(s.First)
		}
		for _, c := range run.Claims {
			see(c.First, c.Last)
		}
		for _, c := range run.Confirms {
			see(c.First, c.Last)
		}
	}
}
