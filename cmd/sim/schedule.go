package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// outcome is what one schedule gave.
type outcome struct {
	seed       uint64
	kills      int
	points     int
	events     int
	hash       string // of the stream
	violations []string
}

// Limits of one schedule.
const (
	safetyTime  = 20 * time.Minute // of the phase in which everything may fail
	quietTime   = 30 * time.Hour   // then everything must have drained; the longest clock runs a day
	safetySteps = 20_000
	quietSteps  = 60_000
)

// play performs one schedule from its seed.
func play(seed uint64, d defect, story io.Writer) outcome {
	w := newWorld(seed, d, story)
	defer w.close()
	w.play()
	return outcome{seed: seed, kills: w.kills, points: w.points, events: len(w.server.Messages()), hash: w.hash(), violations: w.violations}
}

// play performs the world's schedule.
func (w *world) play() {
	w.tell("habits: %+v", w.habits)
	w.wishes()
	for range w.habits.processes {
		w.procs = append(w.procs, w.born())
	}
	w.spin(safetySteps, dawn.Add(2*time.Minute+time.Duration(w.rng.Int64N(int64(safetyTime)))), func() bool { return len(w.violations) > 0 || w.halted })
	if w.habits.truncate > 0 && !w.halted {
		w.powerCut()
	}
	w.faulty = false
	w.tell("from here on nothing fails")
	drained := func() bool { return len(w.violations) > 0 || w.halted || w.drained() }
	if !w.spin(quietSteps, w.now.Add(quietTime), drained) && !w.halted {
		w.violate("I14", "not drained: %s", w.undrained())
	}
	switch {
	case w.habits.truncate > 0 && w.remote.frozen && !w.halted:
		w.violate("I24", "the stream lost history and nobody noticed")
	case !w.halted:
		w.check()
	}
	w.tellStream()
}

// hash is of the whole stream: the same seed gives the same.
func (w *world) hash() string {
	h := sha256.New()
	for _, m := range w.server.Messages() {
		_, _ = fmt.Fprintf(h, "%d %s %s\n", m.Seq, m.Subject, m.Data) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// wishes draws what producers want.
func (w *world) wishes() {
	for n := range w.habits.operations {
		op := events.OperationID(fmt.Sprintf("op-%d", n+1))
		first := &intent{op: op, body: fmt.Sprintf(`{"operation_id":%q,"input":{"n":%d}}`, op, n), at: dawn.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))}
		w.intents = append(w.intents, first)
		if w.chance(w.habits.twice) {
			again := *first
			again.at = first.at.Add(time.Duration(w.rng.Int64N(int64(time.Minute))))
			w.intents = append(w.intents, &again)
		}
		if w.chance(w.habits.mismatch) {
			// Long after the first, so that it is the second whatever happens.
			w.intents = append(w.intents, &intent{op: op, body: fmt.Sprintf(`{"operation_id":%q,"input":{"n":%d}}`, op, n+100), at: dawn.Add(10 * time.Minute), other: true})
		}
		if w.chance(w.habits.cancels) {
			at := first.at.Add(time.Duration(w.rng.Int64N(int64(3 * time.Minute))))
			w.spawn("person", nil, func(*actor) { w.cancel(op, at) })
		}
	}
}

// cancel asks for a cancellation as the API does: a decision on the facts as the
// bucket has them, made again when it was fenced.
func (w *world) cancel(op events.OperationID, at time.Time) {
	w.park(at, nil)
	log := w.server.Log("pawl", nil)
	for range 20 {
		j := w.record(events.JobBucketKey(simProvider, op))
		if j == nil {
			w.park(w.now.Add(5*time.Second), nil)
			continue
		}
		if j.State.Settled() || j.Cancel.Set() {
			return
		}
		w.current.proc = nil
		got, err := quietly(w, func() (events.Appended, error) {
			return log.Decide(w.procs[0].ctx, j.OpSeq, events.Event{
				ID: "cr:" + string(op) + ":1", Subject: events.OperationSubject(simProvider, op), Time: w.now, Actor: "dana", Claim: fmt.Sprint(w.now.UnixNano()),
				Data: &events.CancelRequested{ID: "1", By: "dana", Reason: "by mistake"},
			})
		})
		if err == nil && got.Outcome == events.Stored {
			w.tell("cancelled %s at %d", op, got.Seq)
			return
		}
		w.park(w.now.Add(2*time.Second), nil)
	}
}

// quietly does something that no fault hits.
func quietly[T any](w *world, f func() (T, error)) (T, error) {
	a := w.current
	w.current = nil
	defer func() { w.current = a }()
	return f()
}

// powerCut kills everything at once and loses a tail of the stream that the
// bucket has folded already.
func (w *world) powerCut() {
	for _, p := range w.procs {
		w.kill(p)
	}
	c, rev, err := w.server.Checkpoint(w.procs[0].ctx)
	if err != nil || rev == 0 || c.Seq < 2 {
		return
	}
	keep := c.Seq - 1 - uint64(w.rng.IntN(int(min(c.Seq-1, 5))))
	w.tell("POWER CUT: the stream ends at %d, the bucket has folded %d", keep, c.Seq)
	w.server.Truncate(keep)
	w.decoded = nil
	w.remote.frozen = true // nothing may leave from here on
}

// tellStream ends a story with the whole history.
func (w *world) tellStream() {
	if w.story == nil {
		return
	}
	for _, rec := range w.stream() {
		data, _ := json.Marshal(rec.Event.Data) // for people
		_, _ = fmt.Fprintf(w.story, "%5d %10s %-40s %-24s %s\n", rec.Seq, rec.At.Sub(dawn).Round(time.Millisecond), rec.Event.Subject, typeOf(rec), data[:min(len(data), 220)])
	}
	for _, j := range w.remote.jobs {
		_, _ = fmt.Fprintf(w.story, "job %s of %s: created %s, fails %s, ends %s as %s\n", j.id, j.reference, j.created.Sub(dawn), j.fails.Sub(dawn), j.ends.Sub(dawn), j.end)
	}
}

func typeOf(rec events.Recorded) string {
	if rec.Event.Data == nil {
		return "unreadable"
	}
	return string(rec.Event.Data.Type())
}
