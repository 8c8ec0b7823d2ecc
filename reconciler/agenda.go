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
	queue   dueQueue
	wake    chan struct{} // one worker looks at the queue anew
}

// entry is one job and what the reconciler remembers about it.
type entry struct {
	job    *events.Job
	memory events.Memory
	action events.Action
	// waitSeq holds the entry until the fold has reached what was appended last;
	// waitEnd gives up on that, because the fence makes a stale step harmless.
	waitSeq uint64
	waitEnd time.Time
	// failedUntil delays every step after an error; readsAfter delays reads for as
	// long as the provider asked.
	failedUntil time.Time
	readsAfter  time.Time
	audit       audit
	busy        bool // a worker has it
	index       int  // in the queue; -1: not queued
}

// audit counts reads that changed nothing.
type audit struct {
	count int
	since time.Time
}

func newAgenda(now func() time.Time, next func(*entry, time.Time) events.Action) *agenda {
	return &agenda{now: now, next: next, entries: map[events.OperationID]*entry{}, wake: make(chan struct{}, 1)}
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
		if e.index >= 0 {
			heap.Remove(&a.queue, e.index)
		}
		if e.job.State.Settled() && e.job.AppliedSeq >= e.waitSeq {
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
	isRead := e.action.Kind == events.ActPoll || e.action.Kind == events.ActLookup
	if isRead && e.readsAfter.After(e.action.At) {
		e.action.At = e.readsAfter
	}
	if e.index >= 0 {
		heap.Fix(&a.queue, e.index)
	} else {
		heap.Push(&a.queue, e)
	}
	if a.queue[0] == e {
		a.signal()
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
		timer := time.NewTimer(wait)
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

// pop takes the entry that is due first, or says how long to wait. The step is
// computed anew at this instant: an entry may have waited for a worker past a
// deadline, and a create must not go out after its window.
func (a *agenda) pop() (*entry, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for len(a.queue) > 0 {
		e := a.queue[0]
		if at := e.action.At; at.After(now) {
			return nil, min(at.Sub(now), idleWait)
		}
		fresh := a.next(e, now)
		if fresh.Kind == events.ActNone || fresh.At.After(now) {
			a.schedule(e)
			continue
		}
		e.action = fresh
		heap.Pop(&a.queue)
		e.busy = true
		if len(a.queue) > 0 && !a.queue[0].action.At.After(now) {
			a.signal() // there is work for another worker
		}
		return e, 0
	}
	return nil, idleWait
}

// done gives an entry back after a step: change adjusts what is remembered.
func (a *agenda) done(e *entry, change func(*entry)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(e)
	e.busy = false
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
