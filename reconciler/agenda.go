package reconciler

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// agenda holds one entry a live job, ordered by when its next step is due. It
// is rebuilt from the bucket at every start; losing it loses nothing.
type agenda struct {
	now  func() time.Time
	next func(*entry, time.Time) events.Action

	mu      sync.Mutex
	entries map[events.OperationID]*entry
	queues  [classes]dueQueue
	out     [classes]int  // how many of a class are with workers
	calls   int           // how many calls may be out at a time
	wake    chan struct{} // one worker looks at the queues anew
}

// class groups steps by what they wait for, so that a provider that stalls holds
// up neither what needs no call nor the reads beside the creates.
type class int

const (
	local   class = iota // events only: settle, announce, deadline, …
	reads                // status and look-up
	creates              // at most half of the calls
	classes              // how many there are
)

func classOf(a events.Action) class {
	switch a.Kind {
	case events.ActPoll, events.ActLookup:
		return reads
	case events.ActCreate:
		return creates
	default:
		return local
	}
}

// free reports whether a worker may take a step of a class. The lock is held.
func (a *agenda) free(c class) bool {
	switch {
	case c == local:
		return true
	case a.out[reads]+a.out[creates] >= a.calls:
		return false
	default:
		return c == reads || a.out[creates] < max(1, a.calls/2)
	}
}

// entry is one job and what the reconciler remembers about it.
type entry struct {
	job    *events.Job
	memory events.Memory
	action events.Action
	// waitSeq holds the entry until the fold has reached what was appended last;
	// waitEnd gives up on that, because the fence makes a stale step harmless.
	waitSeq     uint64
	waitEnd     time.Time
	failedUntil time.Time // delays every step after an error
	audit       audit
	busy        bool  // a worker has it
	class       class // of the step: its queue
	index       int   // in the queue; -1: not queued
}

// audit counts reads that changed nothing.
type audit struct {
	count int
	since time.Time
}

func newAgenda(calls int, now func() time.Time, next func(*entry, time.Time) events.Action) *agenda {
	return &agenda{calls: max(calls, 1), now: now, next: next, entries: map[events.OperationID]*entry{}, wake: make(chan struct{}, 1)}
}

// observe takes over newer facts about a job and schedules its next step.
func (a *agenda) observe(j *events.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.entries[j.Operation]
	if e == nil {
		e = &entry{index: -1}
		a.entries[j.Operation] = e
	}
	if e.job != nil && j.AppliedSeq < e.job.AppliedSeq {
		return // an older record, seen again after a reconnect
	}
	e.job = j
	if !e.busy {
		a.schedule(e)
	}
}

// schedule computes the entry's next step and its place. The lock is held.
func (a *agenda) schedule(e *entry) {
	now := a.now()
	e.action = a.next(e, now)
	if e.action.Kind == events.ActNone {
		a.unqueue(e)
		if e.job.State.Settled() && e.job.AppliedSeq >= e.waitSeq && len(e.job.Questions()) == 0 {
			delete(a.entries, e.job.Operation) // nothing is owed; an event brings it back
		}
		return
	}
	if e.job.AppliedSeq < e.waitSeq && e.waitEnd.After(e.action.At) {
		e.action.At = e.waitEnd
	}
	if e.failedUntil.After(e.action.At) {
		e.action.At = e.failedUntil
	}
	if c := classOf(e.action); e.index < 0 || c != e.class {
		a.unqueue(e)
		e.class = c
		heap.Push(&a.queues[c], e)
	} else {
		heap.Fix(&a.queues[c], e.index)
	}
	if a.queues[e.class][0] == e {
		a.signal()
	}
}

func (a *agenda) unqueue(e *entry) {
	if e.index >= 0 {
		heap.Remove(&a.queues[e.class], e.index)
	}
}

func (a *agenda) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// take blocks until an entry is due and hands it to the caller alone, until
// done. It returns the context's error when that ends.
func (a *agenda) take(ctx context.Context) (*entry, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, wait := a.pop()
		if e != nil {
			return e, nil
		}
		timer := time.NewTimer(min(wait, idleWait))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		case <-a.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idleWait bounds a worker's sleep, so that a missed signal costs a second.
const idleWait = time.Second

// pop takes the entry that is due first among the classes that may be taken, or
// says how long to wait. The step is computed anew at this instant: an entry may
// have waited for a worker past a deadline, and a create must not go out after
// its window.
func (a *agenda) pop() (*entry, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for {
		e := a.first()
		if e == nil {
			return nil, idleWait
		}
		if at := e.action.At; at.After(now) {
			return nil, at.Sub(now)
		}
		fresh := a.next(e, now)
		if fresh.Kind == events.ActNone || fresh.At.After(now) || classOf(fresh) != e.class {
			a.schedule(e)
			continue
		}
		e.action = fresh
		a.unqueue(e)
		e.busy = true
		a.out[e.class]++
		if f := a.first(); f != nil && !f.action.At.After(now) {
			a.signal() // there is work for another worker
		}
		return e, 0
	}
}

// first is the entry that is due first among the classes that may be taken.
func (a *agenda) first() *entry {
	var e *entry
	for c := range classes {
		if q := a.queues[c]; len(q) > 0 && a.free(c) && (e == nil || q[0].action.At.Before(e.action.At)) {
			e = q[0]
		}
	}
	return e
}

// done gives an entry back after a step: change adjusts what is remembered.
func (a *agenda) done(e *entry, change func(*entry)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(e)
	e.busy = false
	a.out[e.class]--
	a.signal() // a class may have become free
	if a.entries[e.job.Operation] == e {
		a.schedule(e)
	}
}

// snapshot returns an entry's job, as a worker may read it: records are never
// changed in place once observed.
func (a *agenda) snapshot(e *entry) (*events.Job, events.Action, events.Memory) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.job, e.action, e.memory
}

// count returns how many entries satisfy a predicate.
func (a *agenda) count(is func(*events.Job) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, e := range a.entries {
		if is(e.job) {
			n++
		}
	}
	return n
}

// dueQueue is a heap by the instant of the next step.
type dueQueue []*entry

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].action.At.Before(q[j].action.At) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *dueQueue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *dueQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	e.index = -1
	return e
}

// auditOf returns the count of unchanged reads of an operation.
func (a *agenda) auditOf(op events.OperationID) audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.entries[op]; e != nil {
		return e.audit
	}
	return audit{}
}
