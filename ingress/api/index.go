package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// scanMax bounds the jobs that one page looks at. A filter that matches little
// gets short pages with a cursor instead of a long silence.
const scanMax = 100_000

// Index holds every folded job in memory, for reading. It is fed by whoever
// watches the bucket, in any order: an older record never replaces a newer one.
// The zero value is not ready; see NewIndex. All methods are safe for
// concurrent use.
type Index struct {
	mu      sync.RWMutex
	jobs    map[events.OperationID]*entry
	order   []*entry // by Prepared.Seq, ascending
	waiters map[events.OperationID]*waiter
}

// entry is one job and what listing needs often.
type entry struct {
	job     *events.Job
	seq     uint64    // Prepared.Seq
	updated time.Time // see updatedAt
}

// waiter is shared by all who wait for one operation.
type waiter struct {
	changed chan struct{} // closed at the next change
	n       int           // how many wait
}

// NewIndex returns an empty index.
func NewIndex() *Index {
	return &Index{jobs: map[events.OperationID]*entry{}, waiters: map[events.OperationID]*waiter{}}
}

var _ Jobs = (*Index)(nil)

// Observe takes in a job as the bucket has it and wakes who waits for it. The
// index keeps the pointer; the caller must not change the job afterwards. A job
// that was never prepared (a webhook named an operation that does not exist) is
// not an operation and is left out, as is one older than what is known.
func (x *Index) Observe(j *events.Job) {
	if j == nil || !j.Prepared.Set() {
		return
	}
	e := &entry{job: j, seq: j.Prepared.Seq, updated: j.UpdatedAt}
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.jobs[j.Operation]; old != nil {
		if j.AppliedSeq < old.job.AppliedSeq {
			return
		}
		x.unlist(old)
	}
	x.jobs[j.Operation] = e
	i, _ := x.find(e.seq)
	x.order = slices.Insert(x.order, i, e)
	x.wake(j.Operation)
}

// Forget removes an operation: the bucket no longer has it.
func (x *Index) Forget(op events.OperationID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.jobs[op]; old != nil {
		x.unlist(old)
		delete(x.jobs, op)
		x.wake(op)
	}
}

// Len returns how many operations are known.
func (x *Index) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.jobs)
}

// Job implements Jobs.
func (x *Index) Job(op events.OperationID) (*events.Job, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e := x.jobs[op]
	if e == nil {
		return nil, false
	}
	return e.job, true
}

// Wait implements Jobs. It sleeps until Observe or Forget wakes it; it never
// polls. until runs under the index's lock and must not call it.
func (x *Index) Wait(ctx context.Context, op events.OperationID, until func(*events.Job) bool) (*events.Job, error) {
	for {
		j, w := x.check(op, until)
		if w == nil {
			return j, nil
		}
		select {
		case <-w.changed:
			x.leave(op, w)
		case <-ctx.Done():
			x.leave(op, w)
			j, _ := x.Job(op)
			return j, context.Cause(ctx)
		}
	}
}

// check returns the job if until holds for it, else a waiter that the caller
// has joined. Both happen under one lock, so no change falls between them.
func (x *Index) check(op events.OperationID, until func(*events.Job) bool) (*events.Job, *waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.jobs[op]; e != nil && until(e.job) {
		return e.job, nil
	}
	w := x.waiters[op]
	if w == nil {
		w = &waiter{changed: make(chan struct{})}
		x.waiters[op] = w
	}
	w.n++
	return nil, w
}

// leave drops a waiter that nobody needs, so that operations which never come
// leave nothing behind.
func (x *Index) leave(op events.OperationID, w *waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w.n--; w.n == 0 && x.waiters[op] == w {
		delete(x.waiters, op)
	}
}

func (x *Index) wake(op events.OperationID) {
	if w := x.waiters[op]; w != nil {
		delete(x.waiters, op)
		close(w.changed)
	}
}

// unlist takes an entry out of the order.
func (x *Index) unlist(e *entry) {
	if i, ok := x.find(e.seq); ok && x.order[i] == e {
		x.order = slices.Delete(x.order, i, i+1)
	}
}

func (x *Index) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(x.order, seq, func(e *entry, seq uint64) int { return cmp.Compare(e.seq, seq) })
}

// List implements Jobs.
func (x *Index) List(f Filter, c Cursor, limit int) Page {
	x.mu.RLock()
	defer x.mu.RUnlock()
	end := len(x.order)
	if c != 0 {
		end, _ = x.find(uint64(c))
	}
	var p Page
	stop := max(0, end-scanMax)
	for i := end - 1; i >= stop; i-- {
		e := x.order[i]
		if !f.match(e) {
			continue
		}
		if len(p.Jobs) == limit {
			p.Next = Cursor(p.Jobs[limit-1].Prepared.Seq)
			return p
		}
		p.Jobs = append(p.Jobs, e.job)
		p.Updated = append(p.Updated, e.updated)
	}
	if stop > 0 {
		p.Next = Cursor(x.order[stop].seq)
	}
	return p
}
