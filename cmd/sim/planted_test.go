package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/streams"
	"github.com/pawl-dev/pawl/streams/streamstest"
)

func TestMain(m *testing.M) {
	var err error
	if common, err = newShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// port is a ledger with some of its calls replaced.
type port struct {
	ledger
	decide func(ctx context.Context, expected uint64, e events.Event) (events.Appended, error)
	record func(ctx context.Context, e events.Event) (events.Appended, error)
}

func (p port) Decide(ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
	if p.decide != nil {
		return p.decide(ctx, expected, e)
	}
	return p.ledger.Decide(ctx, expected, e)
}

func (p port) Record(ctx context.Context, e events.Event) (events.Appended, error) {
	if p.record != nil {
		return p.record(ctx, e)
	}
	return p.ledger.Record(ctx, e)
}

// onDecide plants a mistake into decisions.
func onDecide(f func(w *world, l ledger, ctx context.Context, expected uint64, e events.Event) (events.Appended, error)) func(*world, ledger) reconciler.Ledger {
	return func(w *world, l ledger) reconciler.Ledger {
		return port{ledger: l, decide: func(ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
			return f(w, l, ctx, expected, e)
		}}
	}
}

// onRecord plants a mistake into evidence: what is recorded instead, nil for
// nothing.
func onRecord(f func(w *world, e events.Event) *events.Event) func(*world, ledger) reconciler.Ledger {
	return func(w *world, l ledger) reconciler.Ledger {
		return port{ledger: l, record: func(ctx context.Context, e events.Event) (events.Appended, error) {
			if changed := f(w, e); changed != nil {
				return l.Record(ctx, *changed)
			}
			return events.Appended{Outcome: events.Stored, Seq: w.server.LastSeq()}, nil
		}}
	}
}

// onCall plants a mistake into outgoing calls.
func onCall(f func(w *world, r *events.Request)) func(*world, events.Caller) events.Caller {
	return func(w *world, c events.Caller) events.Caller {
		return callFunc(func(ctx context.Context, r events.Request) events.Response {
			h := map[string]string{}
			for k, v := range r.Header {
				h[k] = v
			}
			r.Header = h
			f(w, &r)
			return c.Call(ctx, r)
		})
	}
}

// unfenced stores a decision whatever stands on the subject: the last sequence is
// read and expected, as a careless writer would.
func unfenced(is func(events.Data) bool) func(*world, ledger) reconciler.Ledger {
	return onDecide(func(w *world, l ledger, ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
		for n := 0; is(e.Data) && n < 5; n++ {
			last := expected
			for {
				m, found, err := l.Wire.FirstAfter(ctx, l.Subject(e.Subject), last)
				if err != nil {
					return events.Appended{}, errors.Join(err, events.ErrUnavailable)
				}
				if !found {
					break
				}
				last = m.Seq
			}
			got, err := l.Decide(ctx, last, e)
			if err != nil || got.Outcome == events.Stored {
				return got, err
			}
		}
		return l.Decide(ctx, expected, e)
	})
}

func isOf[T events.Data](d events.Data) bool { _, ok := d.(T); return ok }

// lastMessage is the append rule read carelessly: after a lost answer it looks at
// the last message of the subject instead of the first behind the expected one.
type lastMessage struct{ streams.Wire }

func (l lastMessage) FirstAfter(ctx context.Context, subject string, seq uint64) (streams.Message, bool, error) {
	var last streams.Message
	found := false
	for {
		m, ok, err := l.Wire.FirstAfter(ctx, subject, seq)
		if err != nil || !ok {
			return last, found, err
		}
		last, found, seq = m, true, m.Seq
	}
}

// early commits the checkpoint before the records.
type early struct {
	*streamstest.Server
}

func (b early) Commit(ctx context.Context, changes []events.Change, c events.Checkpoint, revision uint64) ([]uint64, uint64, error) {
	_, rev, err := b.Server.Commit(ctx, nil, c, revision)
	if err != nil {
		return nil, 0, err
	}
	revs, rev, err := b.Server.Commit(ctx, changes, c, rev)
	return revs, rev, err
}

// blind writes records over whatever stands there.
type blind struct{ *streamstest.Server }

func (b blind) Commit(ctx context.Context, changes []events.Change, c events.Checkpoint, _ uint64) ([]uint64, uint64, error) {
	for i := range changes {
		_, changes[i].Revision = b.Peek(changes[i].Key)
	}
	_, rev := b.Peek(events.CheckpointKey)
	return b.Server.Commit(ctx, changes, c, rev)
}

// busy makes trouble frequent.
func busy(more ...func(h *habits)) func(h *habits) {
	return func(h *habits) {
		h.processes, h.workers, h.truncate = 2, 2, 0
		for _, f := range more {
			f(h)
		}
	}
}

// TestPlanted plants one mistake at a time between the components and their
// ports. Each is caught, or the simulation would not be worth trusting.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, d := range planted() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			const seeds = 6000
			for seed := uint64(1); seed <= seeds; seed++ {
				if o := play(seed, d, nil); len(o.violations) > 0 {
					t.Logf("caught by seed %d: %s", seed, strings.SplitN(o.violations[0], "\n", 2)[0])
					return
				}
			}
			t.Errorf("not caught by %d schedules", seeds)
		})
	}
}

func planted() []defect {
	token := func(h *habits) { h.provider = "token"; h.dropAnswer, h.lost = 0.4, 0.1 }
	seek := func(h *habits) { h.provider, h.dropAnswer, h.late = "seek", 0.4, 0 }
	paused := func(h *habits) { h.pause, h.pauseMax = 0.1, 3*time.Minute }
	killed := func(h *habits) { h.kill = 0.06 }
	return []defect{
		{name: "a fresh token for each attempt", habits: busy(token), wrapCaller: onCall(func(w *world, r *events.Request) {
			if r.Header["Idempotency-Key"] != "" && strings.HasPrefix(r.URL, providerURL) {
				r.Header["Idempotency-Key"] = fmt.Sprint(w.now.UnixNano())
			}
		})},
		{name: "a timeout is a refusal", habits: busy(token), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.Ambiguous); ok {
				e.Data = &events.Rejected{N: d.N, Class: d.Class}
			}
			return &e
		})},
		{name: "a timeout is nothing sent", habits: busy(seek), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.Ambiguous); ok {
				e.Data = &events.NotSent{N: d.N, Class: d.Class}
			}
			return &e
		})},
		{name: "a webhook is the truth", habits: busy(func(h *habits) { h.lie, h.mute, h.dropHook, h.provider = 0.8, false, 0, "token" }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.Observed); ok {
				c := *d
				c.Reading.Authoritative = true
				e.Data = &c
			}
			return &e
		})},
		{name: "an attempt without fence", habits: busy(seek, paused), wrapLedger: unfenced(isOf[*events.AttemptStarted])},
		{name: "a settlement without fence", habits: busy(paused, token), wrapLedger: unfenced(isOf[*events.Settled])},
		{name: "a claim of an effect without fence", habits: busy(paused), wrapLedger: unfenced(isOf[*events.EffectClaimed])},
		{name: "the last message is read after a lost answer", habits: busy(token, paused, func(h *habits) { h.lost, h.kill, h.deaf = 0.3, 0, 0 }), wrapLedger: func(_ *world, l ledger) reconciler.Ledger {
			l.Wire = lastMessage{l.Wire}
			return l
		}},
		{name: "no limit of sending, of creates", habits: busy(token, paused), wrapCaller: onCall(func(_ *world, r *events.Request) {
			if strings.HasPrefix(r.URL, providerURL) {
				r.SendBy = time.Time{}
			}
		})},
		{name: "no limit of sending, of effects", habits: busy(paused, func(h *habits) { h.targetKeyed = false }), wrapCaller: onCall(func(_ *world, r *events.Request) {
			if strings.HasPrefix(r.URL, targetURL) {
				r.SendBy = time.Time{}
			}
		})},
		{name: "a random key for each effect", habits: busy(func(h *habits) { h.targetDrops, h.targetKeyed = 0.4, true }), wrapCaller: onCall(func(w *world, r *events.Request) {
			if strings.HasPrefix(r.URL, targetURL) {
				r.Header["Idempotency-Key"] = fmt.Sprint(w.rng.Uint64())
			}
		})},
		{name: "the checkpoint before the records", habits: busy(killed), wrapBucket: func(_ *world, s *streamstest.Server) events.Bucket { return early{s} }},
		{name: "the bucket without fence", habits: busy(paused, killed), wrapBucket: func(_ *world, s *streamstest.Server) events.Bucket { return blind{s} }},
		{name: "a create that is not decided", habits: busy(token), wrapLedger: onDecide(func(w *world, l ledger, ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
			if isOf[*events.AttemptStarted](e.Data) {
				return events.Appended{Outcome: events.Stored, Seq: w.server.LastSeq()}, nil
			}
			return l.Decide(ctx, expected, e)
		})},
		{name: "a webhook that is answered and not kept", habits: busy(func(h *habits) { h.mute, h.dropHook = false, 0 }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.Observed); ok && d.Delivery != "" {
				return nil
			}
			return &e
		})},
		{name: "an acceptance that is not kept", habits: busy(func(h *habits) { h.provider, h.mute, h.kill = "push", true, 0 }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if isOf[*events.Accepted](e.Data) {
				return nil
			}
			return &e
		})},
		{name: "an answer of a target that is not kept", habits: busy(func(h *habits) { h.targetKeyed = false }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if isOf[*events.EffectDone](e.Data) {
				return nil
			}
			return &e
		})},
		{name: "an absence that covers too much", habits: busy(seek, func(h *habits) { h.dropAnswer, h.lag = 0.6, 3*time.Second }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.ReconAbsent); ok {
				c := *d
				c.Covers = d.Covers + 1
				e.Data = &c
			}
			return &e
		})},
		{name: "a secret in an event", habits: busy(), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if d, ok := e.Data.(*events.Ambiguous); ok {
				c := *d
				c.Detail = "sent with " + credential
				e.Data = &c
			}
			return &e
		})},
		{name: "reads that are events of their own", habits: busy(func(h *habits) {
			h.duration, h.provider, h.mute, h.busy, h.unsent = 10*time.Minute, "token", true, 0.5, 0
		}), wrapLedger: onRecord(func(w *world, e events.Event) *events.Event {
			if isOf[*events.Observed](e.Data) || isOf[*events.PollDeferred](e.Data) {
				e.ID += fmt.Sprint(w.now.UnixNano())
			}
			return &e
		})},
		{name: "a clock that is never told", habits: busy(func(h *habits) { h.provider = "push"; h.mute = true }), wrapLedger: onRecord(func(_ *world, e events.Event) *events.Event {
			if isOf[*events.DeadlinePassed](e.Data) {
				return nil
			}
			return &e
		})},
		{name: "the same request is another one", habits: busy(token, func(h *habits) { h.busy = 0.3 }), wrapCaller: onCall(func(w *world, r *events.Request) {
			if r.Method == "POST" && strings.HasPrefix(r.URL, providerURL) {
				r.Body = []byte(strings.Replace(string(r.Body), `"input":`, fmt.Sprintf(`"at":%d,"input":`, w.now.Unix()), 1))
			}
		})},
		{name: "lost history goes unnoticed", habits: func(h *habits) { h.truncate, h.processes = 1, 1 }, wrapBucket: func(w *world, s *streamstest.Server) events.Bucket { return forgetful{s} }},
		{name: "an operation of another request is accepted", habits: busy(func(h *habits) { h.mismatch = 1 }), wrapLedger: onDecide(func(_ *world, l ledger, ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
			got, err := l.Decide(ctx, expected, e)
			if isOf[*events.Prepared](e.Data) && err == nil {
				got.Outcome = events.Stored
			}
			return got, err
		})},
	}
}

// forgetful hides the checkpoint from whoever compares it with the stream.
type forgetful struct{ *streamstest.Server }

func (b forgetful) Checkpoint(ctx context.Context) (events.Checkpoint, uint64, error) {
	c, rev, err := b.Server.Checkpoint(ctx)
	if rev != 0 && c.Seq > b.LastSeq() {
		c.Seq = 0
	}
	return c, rev, err
}
