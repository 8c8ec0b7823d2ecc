package main

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// errKilled is what every call of a killed process returns. It wraps
// ErrUnavailable: the code above gives up as it does for a store that is gone.
var errKilled = errors.Join(errors.New("process was killed"), events.ErrUnavailable)

// process is what dies together: actors that share memory.
type process struct {
	name     string
	killed   bool
	verified bool // bucket and stream belong together
	ctx      context.Context
	cancel   context.CancelFunc
}

// actor is one thread of the simulation, in a process or on the network.
type actor struct {
	name   string
	proc   *process // whose death it shares; nil: the world's own
	resume func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	done   bool

	wake time.Time   // runnable from then on
	cond func() bool // or as soon as this holds; nil: only by time
}

// spawn adds an actor. Its body runs until it returns.
func (w *world) spawn(name string, p *process, body func(a *actor)) *actor {
	a := &actor{name: name, proc: p, wake: w.now}
	a.resume, a.stop = iter.Pull(func(yield func(struct{}) bool) {
		a.yield = yield
		defer func() {
			if v := recover(); v != nil && v != errClosing {
				panic(v)
			}
		}()
		body(a)
	})
	w.actors = append(w.actors, a)
	return a
}

// run gives an actor the processor until it parks or ends.
func (w *world) run(a *actor) {
	w.current = a
	a.cond = nil
	if _, ok := a.resume(); !ok {
		a.done = true
	}
	w.current = nil
}

// dead reports whether the actor's process was killed.
func (a *actor) dead() bool { return a.proc != nil && a.proc.killed }

// park waits until an instant, or until a condition holds.
func (w *world) park(until time.Time, cond func() bool) {
	a := w.current
	a.wake, a.cond = until, cond
	if w.closing || !a.yield(struct{}{}) {
		panic(errClosing)
	}
}

// runnable reports whether an actor may go on now.
func (w *world) runnable(a *actor) bool {
	return !a.wake.After(w.now) || (a.cond != nil && a.cond())
}

// wait is the pause of the components: false when the process was killed.
func (w *world) wait(ctx context.Context, d time.Duration) bool {
	if w.current.dead() || ctx.Err() != nil {
		return false
	}
	w.park(w.now.Add(d), nil)
	return !w.current.dead() && ctx.Err() == nil
}

// spin performs runnable actors in random order, and lets time pass when none is,
// until the limit of steps, an instant, or a condition.
func (w *world) spin(steps int, until time.Time, ended func() bool) bool {
	var ready []*actor
	for range steps {
		if ended() {
			return true
		}
		ready = ready[:0]
		next := until
		alive := w.actors[:0]
		for _, a := range w.actors {
			if a.done {
				continue
			}
			alive = append(alive, a)
			if w.runnable(a) {
				ready = append(ready, a)
			} else if a.wake.Before(next) {
				next = a.wake
			}
		}
		w.actors = alive
		if len(ready) == 0 {
			if !next.Before(until) {
				w.now = until
				return ended()
			}
			w.now = next
			continue
		}
		w.run(ready[w.rng.IntN(len(ready))])
	}
	return ended()
}

// errClosing unwinds what still runs when a schedule is over.
var errClosing = errors.New("the schedule is over")

// close ends every coroutine.
func (w *world) close() {
	w.closing = true
	for _, a := range w.actors {
		if a.proc != nil {
			a.proc.killed = true
		}
		w.current = a
		a.stop()
	}
	w.current = nil
}
