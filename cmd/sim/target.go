package main

import (
	"github.com/pawl-dev/pawl/events"
)

// target is the system that effects go to, and its book.
type target struct {
	w *world
	// taken counts what happened, by idempotency key. A target that honours keys
	// counts a repeat as none.
	taken map[string]int
	sent  []targetCall
}

type targetCall struct{ key, body string }

func (t *target) handle(r events.Request) events.Response {
	w, h := t.w, &t.w.habits
	if w.remote.frozen && w.current.proc != nil {
		w.violate("I24", "an effect after the stream had lost history")
	}
	key := r.Header["Idempotency-Key"]
	if key == "" {
		key = r.Header["Webhook-Id"]
	}
	if w.chance(h.targetBusy) {
		return events.Response{Status: 503}
	}
	t.sent = append(t.sent, targetCall{key: key, body: string(r.Body)})
	if !h.targetKeyed || t.taken[key] == 0 {
		t.taken[key]++
	}
	w.checkEffect(r)
	if w.chance(h.targetDrops) {
		return events.Response{Failure: events.CallBroken}
	}
	return events.Response{Status: 200}
}
