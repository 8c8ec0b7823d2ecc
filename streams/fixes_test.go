package streams_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/streams"
)

// operator is somebody with another tool at the same server.
func operator(t *testing.T, ns *streams.Embedded) jetstream.JetStream {
	t.Helper()
	nc, err := ns.Dial(t.Context(), "operator")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func attended(t *testing.T, cfg streams.Config) (*streams.Embedded, *streams.Store) {
	t.Helper()
	ns, s := server(t, t.TempDir(), cfg)
	t.Cleanup(func() { _ = s.Close(); ns.Shutdown() })
	return ns, s
}

// Without limits that follow the budget a machine with less disk than the sum
// of the defaults cannot start, because the server reserves every limit.
func TestLimitsFitTheBudget(t *testing.T) {
	t.Parallel()
	for _, gib := range []int64{1, 12, 40} {
		ns, err := streams.StartEmbedded(streams.EmbeddedConfig{Dir: t.TempDir(), Logger: quiet, StoreMaxBytes: gib << 30})
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Shutdown()
		nc, err := ns.Dial(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		s, err := streams.Open(t.Context(), nc, streams.Config{BudgetBytes: ns.StoreMaxBytes(), Durability: ns.Durability()})
		if err != nil {
			t.Fatalf("store of %d GiB: %v", gib, err)
		}
		if s.Durability() != "fsync" {
			t.Errorf("durability: want fsync, got %s", s.Durability())
		}
		_ = s.Close()
	}
}

// Without keeping sizes a start with other defaults resizes the truth.
func TestDefaultsDoNotResizeAStream(t *testing.T) {
	t.Parallel()
	ns, s := attended(t, streams.Config{EventsMaxBytes: 123 << 20})
	nc, err := ns.Dial(t.Context(), "second")
	if err != nil {
		t.Fatal(err)
	}
	second, err := streams.Open(t.Context(), nc, streams.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	st, err := operator(t, ns).Stream(t.Context(), "PAWL_EVENTS")
	if err != nil || st.CachedInfo().Config.MaxBytes != 123<<20 {
		t.Errorf("max_bytes after a start without one: want %d, got %+v (%v)", 123<<20, st.CachedInfo().Config.MaxBytes, err)
	}
	if second.LedgerID() != s.LedgerID() {
		t.Errorf("ledger: want %s, got %s", s.LedgerID(), second.LedgerID())
	}
}

// Without looking at markers a key that somebody deleted can never be written
// again: it does not exist to Load, and it exists to the server.
func TestCommitOverDeletedKeys(t *testing.T) {
	t.Parallel()
	ns, s := attended(t, streams.Config{})
	kv, err := operator(t, ns).KeyValue(t.Context(), "PAWL_JOBS")
	if err != nil {
		t.Fatal(err)
	}
	b, rev := s.Bucket(), uint64(0)
	for _, keys := range [][]string{{"op.generic.a"}, {"op.generic.b", "op.generic.c"}} {
		for round := range uint64(2) {
			var changes []events.Change
			for _, k := range keys {
				changes = append(changes, events.Change{Key: k, Value: fmt.Appendf(nil, "%d", round)})
			}
			if _, rev, err = b.Commit(t.Context(), changes, events.Checkpoint{Seq: round}, rev); err != nil {
				t.Fatalf("commit of %v, round %d: %v", keys, round, err)
			}
			for _, k := range keys {
				if err := kv.Delete(t.Context(), k); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// Without noticing it, a reader of a stream that was replaced by a shorter one
// waits for ever, and skips what lands below where it was.
func TestTailNoticesAReplacedStream(t *testing.T) {
	t.Parallel()
	ns, s := attended(t, streams.Config{})
	for i := range 20 {
		if _, err := s.Record(t.Context(), observed("generic", "job", fmt.Sprint("a", i), events.RemoteRunning)); err != nil {
			t.Fatal(err)
		}
	}
	tail, err := s.Tail(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tail.Close()
	for n := 0; n < 21; {
		recs, err := tail.Next(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		n += len(recs)
	}
	js := operator(t, ns)
	if err := js.DeleteStream(t.Context(), "PAWL_EVENTS"); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), streams.MakeTopology(streams.Config{}).Events); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err = tail.Next(ctx, 10)
		if !errors.Is(err, events.ErrUnavailable) { // while there is no stream
			break
		}
	}
	if !errors.Is(err, streams.ErrLedgerRegressed) {
		t.Errorf("want ErrLedgerRegressed, got %v", err)
	}
}

// Without a reset a watcher of a bucket that was rebuilt goes deaf and keeps
// keys that are gone.
func TestWatchSurvivesAReplacedBucket(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"replaced", "purged"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ns, s := attended(t, streams.Config{})
			js, b := operator(t, ns), s.Bucket()
			if _, _, err := b.Commit(t.Context(), []events.Change{{Key: "op.generic.a", Value: []byte("1")}}, events.Checkpoint{Seq: 1}, 0); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var seen []string
			err := b.Watch(ctx, func(e streams.Entry) error {
				switch {
				case e.Reset:
					seen = append(seen, "reset")
					if how == "purged" {
						if _, err := js.Publish(ctx, "$KV.PAWL_JOBS.op.generic.b", []byte("2")); err != nil {
							return err
						}
					}
				case e.InitDone:
					seen = append(seen, "init")
					if len(seen) > 3 {
						return nil
					}
					if how == "purged" {
						st, err := js.Stream(ctx, "KV_PAWL_JOBS")
						if err != nil {
							return err
						}
						return st.Purge(ctx)
					}
					if err := js.DeleteStream(ctx, "KV_PAWL_JOBS"); err != nil {
						return err
					}
					if _, err := js.CreateStream(ctx, streams.MakeTopology(streams.Config{}).Jobs); err != nil {
						return err
					}
					_, err := js.Publish(ctx, "$KV.PAWL_JOBS.op.generic.b", []byte("2"))
					return err
				default:
					seen = append(seen, e.Key)
					if e.Key == "op.generic.b" {
						cancel()
					}
				}
				return nil
			})
			want := "[op.generic.a _ckpt init reset op.generic.b"
			if !errors.Is(err, context.Canceled) || len(fmt.Sprint(seen)) < len(want) || fmt.Sprint(seen)[:len(want)] != want {
				t.Errorf("want %s …], got %v (%v)", want, seen, err)
			}
		})
	}
}

// Without room for what waits for its next try, a thousand bad messages stop
// every good one behind them.
func TestManyFailingIntentsBlockNothing(t *testing.T) {
	t.Parallel()
	ns, s := attended(t, streams.Config{})
	js := operator(t, ns)
	for i := range 1100 {
		if _, err := js.PublishAsync("pawl.intents.generic", fmt.Append(nil, "bad", i), jetstream.WithStallWait(30*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	if _, err := s.PublishIntent(t.Context(), "generic", []byte("good"), ""); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Second)
	defer stop()
	var good atomic.Bool
	err := s.ConsumeIntents(ctx, 8, func(_ context.Context, m streams.IntentMessage) error {
		if string(m.Body) != "good" {
			return errors.New("bad")
		}
		good.Store(true)
		stop()
		return nil
	})
	if !good.Load() {
		t.Errorf("the good one was not delivered: %v", err)
	}
}

// Without telling those who wait, a call on a closed store hangs until its
// context ends.
func TestRecordOnAClosedStoreFails(t *testing.T) {
	t.Parallel()
	ns, s := server(t, t.TempDir(), streams.Config{})
	defer ns.Shutdown()
	_ = s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Record(ctx, observed("generic", "job", "x", events.RemoteRunning))
	if !errors.Is(err, events.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("want ErrUnavailable at once, got %v (context: %v)", err, ctx.Err())
	}
}

// The context library takes absolute paths only.
func TestContextPathMayBeRelative(t *testing.T) {
	t.Parallel()
	ns, _ := attended(t, streams.Config{})
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	rel, err := filepath.Rel(wd, ns.ContextFile())
	if err != nil {
		t.Fatal(err)
	}
	nc, err := streams.Dial(t.Context(), streams.ConnConfig{Context: rel})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func BenchmarkDecide(b *testing.B) {
	s := open(b)
	for i := 0; b.Loop(); i++ {
		op := events.OperationID(fmt.Sprint("op_", b.N, "_", i))
		if got, err := s.Decide(context.Background(), 0, prepared("generic", op, "c")); err != nil || got.Outcome != events.Stored {
			b.Fatal(got, err)
		}
	}
}

// Without the flag beside the error, an event of a later version that must not be
// passed over would be passed over.
func TestCriticalSurvivesAnUnknownType(t *testing.T) {
	t.Parallel()
	doc := `{"specversion":"1.0","id":"x","type":"dev.pawl.op.dreamt.v1","subject":"acme.op.op_1","time":"2026-12-01T08:00:00Z","critical":true,"data":{}}`
	rec := streams.Log{Prefix: "pawl"}.Decode(streams.Message{Subject: "pawl.events.acme.op.op_1", Seq: 7, Data: []byte(doc)})
	if rec.Err == nil || !rec.Event.Critical || rec.Event.Subject != events.OperationSubject("acme", "op_1") {
		t.Errorf("want an unknown, critical event of op_1, got %+v", rec)
	}
}
