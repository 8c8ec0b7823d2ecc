package effects_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/reconciler/effects"
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
	dir, err := os.MkdirTemp("", "pawl-effects")
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
	acme        = events.Provider("acme")
	timeout     = 30 * time.Second
	attemptsMax = 3
	result      = `{"html":"<b>&"}`
)

var secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))

func webhook(name, url string) effects.Target {
	return effects.Target{Name: name, Kind: effects.KindWebhook, URL: url, Secret: events.NewSecret(secret)}
}

// target is a receiver behind a real socket.
type target struct {
	*httptest.Server

	mu       sync.Mutex
	requests []request
}

// newTarget answers as fn does; n counts requests from 1.
func newTarget(t *testing.T, fn func(w http.ResponseWriter, n int)) *target {
	t.Helper()
	x := &target{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q request
		q.read(r)
		x.mu.Lock()
		x.requests = append(x.requests, q)
		n := len(x.requests)
		x.mu.Unlock()
		fn(w, n)
	}))
	t.Cleanup(x.Close)
	return x
}

func (x *target) seen() []request {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]request(nil), x.requests...)
}

// world is one installation: a store and a projector at work.
type world struct {
	t       *testing.T
	store   *streams.Store
	prefix  string
	ctx     context.Context
	running sync.WaitGroup
	claims  atomic.Int64

	mu      sync.Mutex
	jobs    map[events.OperationID]*events.Job
	observe []func(*events.Job)
	changed chan struct{}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	prefix := fmt.Sprintf("e%d", prefixes.Add(1))
	nc, err := server.Dial(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	s, err := streams.Open(t.Context(), nc, streams.Config{Prefix: prefix, BudgetBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &world{t: t, store: s, prefix: prefix, ctx: ctx, jobs: map[events.OperationID]*events.Job{}, changed: make(chan struct{})}
	t.Cleanup(func() { stop(); w.running.Wait(); _ = s.Close() })
	p := projector.New(projector.Config{
		Ledger: s, Bucket: s.Bucket(), Owner: "test", Now: time.Now, Logger: quiet,
		Open: func(ctx context.Context, after uint64) (events.Tail, error) { return s.Tail(ctx, after) },
	})
	w.running.Go(func() {
		if err := p.Run(ctx); ctx.Err() == nil {
			t.Errorf("projector: %v", err)
		}
	})
	w.running.Go(func() {
		if err := s.Bucket().Watch(ctx, w.entry); ctx.Err() == nil {
			t.Errorf("watch: %v", err)
		}
	})
	return w
}

func (w *world) entry(e streams.Entry) error {
	if !strings.HasPrefix(e.Key, events.JobBucketPrefix) || e.Deleted {
		return nil
	}
	j, err := events.DecodeJob(e.Value)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[j.Operation] = j
	for _, f := range w.observe {
		f(j)
	}
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// load is the runner's own read of the bucket.
func (w *world) load(ctx context.Context, p events.Provider, op events.OperationID) (*events.Job, error) {
	value, _, err := w.store.Bucket().Load(ctx, events.JobBucketKey(p, op))
	if err != nil {
		return nil, err
	}
	return events.DecodeJob(value)
}

func (w *world) runner(targets ...effects.Target) *effects.Runner {
	w.t.Helper()
	c := reconciler.NewCaller(time.Now)
	w.t.Cleanup(c.Close)
	r, err := effects.New(effects.Config{
		Ledger: w.store, Jobs: w.load, Caller: c, Publisher: w.store, Targets: targets,
		Policy: effects.Policy{RetryBase: 10 * time.Millisecond, RetryCap: 20 * time.Millisecond, AttemptsMax: attemptsMax},
		Now:    time.Now, Entropy: rand.Reader, Logger: quiet, Metrics: effects.NewMetrics(prometheus.NewRegistry(), nil),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// work feeds a runner from the bucket and lets it sweep.
func (w *world) work(r *effects.Runner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		r.Observe(j)
	}
	w.observe = append(w.observe, r.Observe)
	w.running.Go(func() { _ = r.Work(w.ctx) }) // ends with the context, by its contract
}

func (w *world) decide(s events.Subject, expected uint64, id string, d events.Data) events.Recorded {
	w.t.Helper()
	e := events.Event{ID: id, Subject: s, Time: time.Now().UTC(), Actor: "test", Claim: fmt.Sprint("claim-", w.claims.Add(1)), Data: d}
	got, err := w.store.Decide(w.t.Context(), expected, e)
	if err != nil || got.Outcome != events.Stored {
		w.t.Fatalf("decide %s: want stored, got %v, %v", d.Type(), got.Outcome, err)
	}
	return events.Recorded{Seq: got.Seq, Event: e}
}

func (w *world) record(s events.Subject, id string, d events.Data) {
	w.t.Helper()
	if _, err := w.store.Record(w.t.Context(), events.Event{ID: id, Subject: s, Time: time.Now().UTC(), Actor: "test", Data: d}); err != nil {
		w.t.Fatalf("record %s: %v", d.Type(), err)
	}
}

func ref(id string) events.RemoteRef {
	return events.RemoteRef{ID: id, Account: events.DefaultAccount, Key: events.MakeJobKey(acme, events.DefaultAccount, id)}
}

// read records our own read of a job.
func (w *world) read(id string, s events.RemoteState) {
	w.t.Helper()
	w.record(events.JobSubject(acme, ref(id).Key), fmt.Sprintf("po:%s:%s", id, s),
		&events.Observed{Remote: ref(id), Reading: events.Reading{State: s, Source: events.SourcePoll, Authoritative: true}})
}

// decideSettled takes an operation up to the decision, without the public copy.
func (w *world) decideSettled(op events.OperationID, names ...string) events.Recorded {
	w.t.Helper()
	s := events.OperationSubject(acme, op)
	remote := "r-" + string(op)
	p := w.decide(s, 0, "p:"+string(op), &events.Prepared{
		Intent: events.Intent{
			OperationID: op, Provider: acme, Account: events.DefaultAccount, Input: json.RawMessage(`{}`), Effects: names,
			Labels: map[string]string{"team": "a"},
		},
		Fingerprint: "sha256:00", Token: string(op), RequestSHA256: "00", Contract: events.Contract{Status: true, Result: true},
	})
	now := time.Now().UTC()
	w.decide(s, p.Seq, "ca:"+string(op), &events.AttemptStarted{N: 1, SendBy: now, LeaseUntil: now.Add(time.Minute)})
	w.record(s, "acc:"+string(op), &events.Accepted{N: 1, Remote: ref(remote)})
	w.read(remote, events.RemoteSucceeded)
	blob, err := events.JSONBlob([]byte(result))
	if err != nil {
		w.t.Fatal(err)
	}
	w.record(s, "rx:"+string(op), &events.ResultStored{G: 1, Result: blob})
	j, err := events.Refold(w.t.Context(), w.store, acme, op)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.decide(s, j.OpSeq, "st:"+string(op), j.Settlement(1))
}

// settle takes an operation to the public copy of its success, folded.
func (w *world) settle(op events.OperationID, names ...string) *events.Job {
	w.t.Helper()
	d := w.decideSettled(op, names...)
	rec := w.decide(events.SettledSubject(acme, op, 1), 0, "st:"+string(op), d.Event.Data)
	return w.until(op, "the public copy", func(j *events.Job) bool { return j.AppliedSeq >= rec.Seq })
}

// public is the message that wakes a runner.
func (w *world) public(op events.OperationID) events.Recorded {
	w.t.Helper()
	recs, err := w.store.Read(w.t.Context(), events.SettledSubject(acme, op, 1), 0, 1)
	if err != nil || len(recs) != 1 {
		w.t.Fatalf("public copy of %s: want 1, got %d, %v", op, len(recs), err)
	}
	return recs[0]
}

// claim is made by a runner that dies before it records anything.
func (w *world) claim(j *events.Job, name string, leaseUntil time.Time) uint64 {
	w.t.Helper()
	return w.decide(events.OperationSubject(acme, j.Operation), j.OpSeq, fmt.Sprintf("ec:%s:%s:1:1", j.Operation, name), &events.EffectClaimed{
		Name: name, G: 1, N: 1, Key: events.EffectKey(j.Operation, name, 1), SendBy: leaseUntil.Add(-time.Second).UTC(), LeaseUntil: leaseUntil.UTC(),
	}).Seq
}

func (w *world) job(op events.OperationID) *events.Job {
	w.t.Helper()
	j, err := w.load(w.t.Context(), acme, op)
	if err != nil {
		w.t.Fatal(err)
	}
	return j
}

// until waits for a job that satisfies a predicate.
func (w *world) until(op events.OperationID, what string, is func(*events.Job) bool) *events.Job {
	w.t.Helper()
	deadline := time.After(timeout)
	for {
		w.mu.Lock()
		j, changed := w.jobs[op], w.changed
		w.mu.Unlock()
		if j != nil && is(j) {
			return j
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%s: want %s, got %+v", op, what, j)
		}
	}
}

// raw is a NATS client of somebody else.
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
