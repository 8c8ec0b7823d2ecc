package reconciler

import (
	"fmt"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Without classes a provider whose creates stall holds up the reads and the
// steps that need no call at all.
func TestStalledCreatesHoldUpNothingElse(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	kinds := map[events.OperationID]events.ActionKind{}
	a := newAgenda(4, func() time.Time { return now }, func(e *entry, _ time.Time) events.Action {
		return events.Action{Kind: kinds[e.job.Operation], At: now}
	})
	add := func(name string, kind events.ActionKind) {
		j := events.NewJob("p", events.OperationID(name))
		kinds[j.Operation] = kind
		a.observe(j)
	}
	for i := range 10 {
		add(fmt.Sprint("create-", i), events.ActCreate)
	}
	for i := range 10 {
		add(fmt.Sprint("poll-", i), events.ActPoll)
	}
	for i := range 3 {
		add(fmt.Sprint("settle-", i), events.ActSettle)
	}
	got := map[events.ActionKind]int{}
	var taken []*entry
	for {
		e, _ := a.pop()
		if e == nil {
			break
		}
		got[e.action.Kind]++
		taken = append(taken, e)
	}
	if got[events.ActCreate] > 2 || got[events.ActCreate]+got[events.ActPoll] != 4 || got[events.ActSettle] != 3 {
		t.Errorf("taken at once: want at most 2 creates, 4 calls in all and 3 settlements, got %v", got)
	}
	for _, e := range taken {
		kinds[e.job.Operation] = events.ActNone
		a.done(e, func(*entry) {})
	}
	if e, _ := a.pop(); e == nil {
		t.Error("after the calls ended: want the next one, got nothing")
	}
}
