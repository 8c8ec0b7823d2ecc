package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/projector"
	"github.com/pawl-dev/pawl/streams"
)

// The tests share one embedded server; each has streams of its own, by prefix.
var (
	quiet    = slog.New(slog.DiscardHandler)
	server   *streams.Embedded
	prefixes atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pawl-projector")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if server, err = streams.StartEmbedded(streams.EmbeddedConfig{Dir: dir, StoreMaxBytes: 64 << 30, Relaxed: true, Logger: quiet}); err != nil {
		panic(err)
	}
	code := m.Run()
	server.Shutdown()
	if err := goleak.Find(); code == 0 && err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

const (
	acme    = events.Provider("acme")
	timeout = 30 * time.Second
)

// world is one installation: a store, and a bucket that tells of its commits.
type world struct {
	t      *testing.T
	store  *streams.Store
	bucket *spy
	prefix string
	claims int

	mu     sync.Mutex
	parked []uint64 // sequences that a projector had noted
}

func (w *world) park(_ context.Context, rec events.Recorded) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = append(w.parked, rec.Seq)
	if len(w.parked) == 1 {
		return fmt.Errorf("the first time: %w", events.ErrUnavailable)
	}
	return nil
}

func newWorld(t *testing.T) *world {
	t.Helper()
	prefix := fmt.Sprintf("p%d", prefixes.Add(1))
	nc, err := server.Dial(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	s, err := streams.Open(t.Context(), nc, streams.Config{Prefix: prefix, BudgetBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &world{t: t, store: s, bucket: &spy{Bucket: s.Bucket(), changed: make(chan struct{})}, prefix: prefix}
}

// spy is the real bucket; it counts commits, lets a test wait for them, and can
// lose the answer to one, as a crash does.
type spy struct {
	events.Bucket

	mu      sync.Mutex
	seq     uint64
	commits int
	keys    int
	changed chan struct{}
	crashAt uint64 // after this sequence is committed, the answer is lost
	crash   error  // and this comes instead
}

var errCrash = errors.New("crash")

func (s *spy) Commit(ctx context.Context, changes []events.Change, c events.Checkpoint, rev uint64) ([]uint64, uint64, error) {
	revs, next, err := s.Bucket.Commit(ctx, changes, c, rev)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return nil, 0, err
	}
	s.commits++
	s.keys += len(changes)
	s.seq = c.Seq
	close(s.changed)
	s.changed = make(chan struct{})
	if s.crashAt != 0 && c.Seq >= s.crashAt {
		s.crashAt = 0
		return nil, 0, s.crash
	}
	return revs, next, nil
}

// wait blocks until a sequence is committed.
func (s *spy) wait(t *testing.T, seq uint64) {
	t.Helper()
	deadline := time.After(timeout)
	for {
		s.mu.Lock()
		at, changed := s.seq, s.changed
		s.mu.Unlock()
		if at >= seq {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("committed sequence: want %d, got %d", seq, at)
		}
	}
}

// running is a projector at work.
type running struct {
	*projector.Projector
	registry *prometheus.Registry
	stop     context.CancelFunc
	done     chan error
}

func (w *world) config(owner string, reg *prometheus.Registry) projector.Config {
	return projector.Config{
		Ledger: w.store, Bucket: w.bucket, Owner: owner, Now: time.Now, Logger: quiet, Metrics: projector.NewMetrics(reg), Park: w.park,
		Open: func(ctx context.Context, after uint64) (events.Tail, error) { return w.store.Tail(ctx, after) },
	}
}

func (w *world) start(owner string) *running {
	reg := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Projector: projector.New(w.config(owner, reg)), registry: reg, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- r.Run(ctx); close(r.done) }()
	w.t.Cleanup(func() { cancel(); r.result(w.t) })
	return r
}

// result waits for the end of Run.
func (r *running) result(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(timeout):
		t.Fatal("the projector did not end")
		return nil
	}
}

// count reads a counter; verdict is "" for one without labels.
func (r *running) count(t *testing.T, name, verdict string) int {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() == verdict {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	t.Fatalf("metric %s{%s} is not there", name, verdict)
	return 0
}

var start = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func ref(id string) events.RemoteRef {
	return events.RemoteRef{ID: id, Account: events.DefaultAccount, Key: events.MakeJobKey(acme, events.DefaultAccount, id)}
}

func (w *world) event(subject events.Subject, id string, d events.Data) events.Event {
	return events.Event{ID: id, Subject: subject, Time: start, Actor: "test", Data: d}
}

// decide appends a decision to an operation after what stands there.
func (w *world) decide(subject events.Subject, expected uint64, d events.Data) uint64 {
	w.t.Helper()
	w.claims++
	e := w.event(subject, fmt.Sprintf("d:%s:%d", subject, w.claims), d)
	e.Claim = fmt.Sprintf("claim-%d", w.claims)
	got, err := w.store.Decide(w.t.Context(), expected, e)
	if err != nil || got.Outcome != events.Stored {
		w.t.Fatalf("decide %s: want stored, got %v, %v", d.Type(), got.Outcome, err)
	}
	return got.Seq
}

func (w *world) record(subject events.Subject, id string, d events.Data) uint64 {
	w.t.Helper()
	got, err := w.store.Record(w.t.Context(), w.event(subject, id, d))
	if err != nil {
		w.t.Fatalf("record %s: %v", d.Type(), err)
	}
	return got.Seq
}

func (w *world) prepare(op events.OperationID) uint64 {
	w.t.Helper()
	return w.decide(events.OperationSubject(acme, op), 0, &events.Prepared{
		Intent:      events.Intent{OperationID: op, Provider: acme, Account: events.DefaultAccount, Input: json.RawMessage(`{"a":1}`), Effects: []string{"mail"}},
		Fingerprint: "sha256:00", Token: string(op), RequestSHA256: "00", Contract: events.Contract{Status: true, Callback: true},
	})
}

func (w *world) attempt(op events.OperationID, after uint64) uint64 {
	w.t.Helper()
	return w.decide(events.OperationSubject(acme, op), after, &events.AttemptStarted{N: 1, SendBy: start, LeaseUntil: start.Add(time.Minute)})
}

func (w *world) accept(op events.OperationID, id string) uint64 {
	w.t.Helper()
	return w.record(events.OperationSubject(acme, op), "acc:"+string(op), &events.Accepted{N: 1, Remote: ref(id)})
}

func (w *world) observe(id string, s events.RemoteState, source events.Source) uint64 {
	w.t.Helper()
	r := ref(id)
	return w.record(events.JobSubject(acme, r.Key), fmt.Sprintf("o:%s:%s:%s", id, s, source),
		&events.Observed{Remote: r, Reading: events.Reading{State: s, Source: source, Authoritative: source == events.SourcePoll}})
}

// finish takes an operation from its intent to the public copy of its success.
func (w *world) finish(op events.OperationID, id string) uint64 {
	w.t.Helper()
	w.attempt(op, w.prepare(op))
	w.accept(op, id)
	w.observe(id, events.RemoteRunning, events.SourcePoll)
	w.observe(id, events.RemoteSucceeded, events.SourceWebhook)
	w.observe(id, events.RemoteSucceeded, events.SourcePoll)
	j := w.refold(op)
	d := j.Settlement(1)
	w.decide(events.OperationSubject(acme, op), j.OpSeq, d)
	return w.decide(events.SettledSubject(acme, op, 1), 0, d)
}

func (w *world) refold(op events.OperationID) *events.Job {
	w.t.Helper()
	j, err := events.Refold(w.t.Context(), w.store, acme, op)
	if err != nil {
		w.t.Fatalf("refold %s: %v", op, err)
	}
	return j
}

func (w *world) job(op events.OperationID) *events.Job {
	w.t.Helper()
	value, _, err := w.bucket.Load(w.t.Context(), events.JobBucketKey(acme, op))
	if err != nil {
		w.t.Fatalf("load %s: %v", op, err)
	}
	j, err := events.DecodeJob(value)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// same compares what the bucket holds with a fresh fold of the stream.
func (w *world) same(op events.OperationID) {
	w.t.Helper()
	want, got := w.refold(op), w.job(op)
	if got.Next == "" != got.NextDue.IsZero() {
		w.t.Errorf("%s: want a plan with its instant or neither, got %q at %s", op, got.Next, got.NextDue)
	}
	got.Next, got.NextDue = "", time.Time{} // the plan is for lists, the fold has none
	if a, b := text(w.t, want), text(w.t, got); a != b {
		w.t.Errorf("%s in the bucket:\nwant %s\ngot  %s", op, a, b)
	}
	for _, r := range want.Remotes {
		value, _, err := w.bucket.Load(w.t.Context(), events.RemoteBucketKey(acme, r.Ref.Key))
		if err != nil {
			w.t.Fatalf("load %s: %v", r.Ref.ID, err)
		}
		if a := text(w.t, r); a != string(value) {
			w.t.Errorf("%s in the bucket:\nwant %s\ngot  %s", r.Ref.ID, a, value)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := events.EncodeRecord(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// raw is what an outsider with a NATS client can do to the installation.
func (w *world) raw() jetstream.JetStream {
	w.t.Helper()
	nc, err := server.Dial(w.t.Context(), "raw")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	return js
}

// kv is the bucket as another tool sees it.
func (w *world) kv() jetstream.KeyValue {
	w.t.Helper()
	kv, err := w.raw().KeyValue(w.t.Context(), strings.ToUpper(w.prefix)+"_JOBS")
	if err != nil {
		w.t.Fatal(err)
	}
	return kv
}
