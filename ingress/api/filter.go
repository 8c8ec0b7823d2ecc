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
		f.Outcome != "" && f.Outcome != j.PublicOutcome(),
		f.Review && len(j.Questions()) == 0,
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

// announced returns the newest settlement if it says what the job says now, and
// is still at hand: an archived operation keeps none.
func announced(j *events.Job) *events.Settlement {
	if s := j.Announced(); s != nil && s.Settled != nil {
		return s
	}
	return nil
}
