package reconciler_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/projector"
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/streams"
)

// The tests share one embedded server; each has streams of its own, by prefix.
var (
	quiet    = slog.New(slog.DiscardHandler)
	quietLog = log.New(io.Discard, "", 0)
	server   *streams.Embedded
	prefixes atomic.Int64
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pawl-reconciler")
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

const timeout = 30 * time.Second

// blindYAML is a provider that takes no token and offers no look-up: a lost
// answer stays lost until it pushes.
const blindYAML = `
version: 1
name: blind
create:
  path: /jobs
  body:
    input: "${input}"
    callback_url: "${callback_url}"
  callback: true
  id: "${body.job_id}"
status:
  path: "/jobs/${job_id}"
  id: "${body.job_id}"
  state: "${body.state}"
result:
  value: "${body.?result.orValue(null)}"
states: {queued: queued, running: running, succeeded: succeeded, failed: failed}
webhook:
  verify: {preset: hub, header: X-Signature}
  job_id: "${body.job_id}"
  state: "${body.state}"
  dedup: "${body.delivery}"
`

// remote is a provider behind a real socket. It honours tokens, as far as it is
// given any, and a job succeeds at its second read.
type remote struct {
	*httptest.Server

	mu      sync.Mutex
	creates []create
	jobs    map[string]string // token to id
	reads   map[string]int
	made    int
	result  string // of every job
	// onCreate and onRead answer in the remote's place if they return true; n
	// counts from 1. made says whether the job exists by then.
	onCreate func(w http.ResponseWriter, n int, id string) bool
	onRead   func(w http.ResponseWriter, n int, id string) bool
}

type create struct {
	token, body, trace string
}

func newRemote(t *testing.T) *remote {
	t.Helper()
	r := &remote{jobs: map[string]string{}, reads: map[string]int{}, result: `{"answer":42}`}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.Config.ErrorLog = quietLog
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *remote) serve(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body) // a broken request shows in what is recorded
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Method == http.MethodPost {
		token := q.Header.Get("Idempotency-Key")
		r.creates = append(r.creates, create{token: token, body: string(body), trace: q.Header.Get("Traceparent")})
		id, known := r.jobs[token]
		if token == "" || !known {
			if r.onCreate != nil && r.onCreate(w, len(r.creates), "") {
				return
			}
			r.made++
			id = fmt.Sprintf("job-%d", r.made)
			r.jobs[token] = id
		}
		if r.onCreate != nil && r.onCreate(w, len(r.creates), id) {
			return
		}
		answer(w, http.StatusCreated, fmt.Sprintf(`{"job_id":%q,"state":"queued"}`, id))
		return
	}
	id := strings.TrimPrefix(q.URL.Path, "/jobs/")
	r.reads[id]++
	n := r.reads[id]
	if r.onRead != nil && r.onRead(w, n, id) {
		return
	}
	if n == 1 {
		answer(w, http.StatusOK, fmt.Sprintf(`{"job_id":%q,"state":"running"}`, id))
		return
	}
	answer(w, http.StatusOK, fmt.Sprintf(`{"job_id":%q,"state":"succeeded","result":%s}`, id, r.result))
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a client that went away shows in its own answer
}

// drop closes the connection without an answer.
func drop(w http.ResponseWriter) bool {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
	return true
}

func (r *remote) seen() []create {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]create(nil), r.creates...)
}

// world is one installation: store, projector, and reconcilers of one provider.
type world struct {
	t        *testing.T
	store    *streams.Store
	remote   *remote
	provider *provider.Provider
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
	claims   atomic.Int64

	mu      sync.Mutex
	jobs    map[events.OperationID]*events.Job
	observe []func(*events.Job)
	changed chan struct{}
}

var master = events.NewSecret("master-key-master-key-master-key")

const publicURL = "https://pawl.example"

func describe(t *testing.T, yaml, base string) *provider.Provider {
	t.Helper()
	data := []byte(yaml)
	if yaml == "generic" {
		var err error
		if data, err = provider.Builtin(yaml); err != nil {
			t.Fatal(err)
		}
	}
	d, err := provider.Parse("test.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := provider.New(d, provider.Settings{
		Name: "acme", BaseURL: base, WebhookSecrets: []events.Secret{events.NewSecret(strings.Repeat("k", 32))},
		Policy: events.Policy{
			PollBase: 20 * time.Millisecond, PollCap: 50 * time.Millisecond, RetryBase: 20 * time.Millisecond, RetryCap: 50 * time.Millisecond,
			LookupDelay: 10 * time.Millisecond, RequestTimeout: 5 * time.Second,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newWorld has a projector at work and no reconciler yet.
func newWorld(t *testing.T, yaml string) *world {
	t.Helper()
	prefix := fmt.Sprintf("r%d", prefixes.Add(1))
	nc, err := server.Dial(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	s, err := streams.Open(t.Context(), nc, streams.Config{Prefix: prefix, BudgetBytes: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: s, remote: newRemote(t), jobs: map[events.OperationID]*events.Job{}, changed: make(chan struct{})}
	w.provider = describe(t, yaml, w.remote.URL)
	w.ctx, w.stop = context.WithCancel(context.Background())
	t.Cleanup(func() { w.stop(); w.running.Wait(); _ = s.Close() })
	p := projector.New(projector.Config{
		Ledger: s, Bucket: s.Bucket(), Owner: "test", Now: time.Now, Logger: quiet,
		Open:   func(ctx context.Context, after uint64) (events.Tail, error) { return s.Tail(ctx, after) },
		Policy: func(events.Provider) events.Policy { return w.provider.Policy() },
	})
	w.running.Go(func() {
		if err := p.Run(w.ctx); w.ctx.Err() == nil {
			t.Errorf("projector: %v", err)
		}
	})
	w.running.Go(func() {
		if err := s.Bucket().Watch(w.ctx, w.entry); w.ctx.Err() == nil {
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

// reconcile starts a reconciler of its own with a few workers.
func (w *world) reconcile(p *provider.Provider) *reconciler.Reconciler {
	w.t.Helper()
	c := reconciler.NewCaller(time.Now)
	w.t.Cleanup(c.Close)
	r := reconciler.New(reconciler.Config{
		Ledger: w.store, Objects: w.store.Objects(), Provider: p, Caller: c, PublicURL: publicURL, MasterKey: master,
		Now: time.Now, Entropy: rand.Reader, Logger: quiet, Metrics: reconciler.NewMetrics(prometheus.NewRegistry(), []events.Provider{"acme"}),
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.jobs {
		r.Observe(j)
	}
	w.observe = append(w.observe, r.Observe)
	for range 4 {
		w.running.Go(func() { _ = r.Work(w.ctx) }) // ends with the context, by its contract
	}
	return r
}

// submit stores an intent as the door does.
func (w *world) submit(op events.OperationID) events.Appended {
	w.t.Helper()
	p := w.provider
	in := provider.CreateInput{Operation: op, Token: string(op), Input: json.RawMessage(`{"prompt":"a <b>"}`)}
	if p.Contract().Callback {
		in.CallbackURL = publicURL + events.CallbackPath(master, p.Name(), p.Account(), op)
	}
	req, err := p.Create(in)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.decide(events.OperationSubject(p.Name(), op), 0, "p:"+string(op), &events.Prepared{
		Intent:      events.Intent{OperationID: op, Provider: p.Name(), Account: p.Account(), Input: in.Input, Effects: []string{}},
		Fingerprint: "sha256:00", Token: in.Token, Description: p.Ref(), RequestSHA256: provider.RequestSHA256(req),
		Contract: p.Contract(), Deadlines: p.Deadlines(),
	})
}

func (w *world) decide(s events.Subject, expected uint64, id string, d events.Data) events.Appended {
	w.t.Helper()
	got, err := w.store.Decide(w.t.Context(), expected, events.Event{
		ID: id, Subject: s, Time: time.Now().UTC(), Actor: "test", Claim: fmt.Sprint("claim-", w.claims.Add(1)),
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Data: d,
	})
	if err != nil || got.Outcome != events.Stored {
		w.t.Fatalf("decide %s: want stored, got %v, %v", d.Type(), got.Outcome, err)
	}
	return got
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

// settled waits for the public copy of an outcome.
func (w *world) settled(op events.OperationID, want events.State) *events.Job {
	w.t.Helper()
	j := w.until(op, "a settlement", func(j *events.Job) bool {
		s := j.LatestSettlement()
		return s != nil && s.Public.Set()
	})
	if s := j.LatestSettlement(); s.State != want || j.State != want {
		w.t.Errorf("%s: want settled %s, got %s (state %s, %s)", op, want, s.State, j.State, j.Why)
	}
	return j
}

// history is what was appended about an operation, by type.
func (w *world) history(op events.OperationID) map[events.Type]int {
	w.t.Helper()
	entries, _, err := events.History(w.t.Context(), w.store, w.provider.Name(), op)
	if err != nil {
		w.t.Fatal(err)
	}
	n := map[events.Type]int{}
	for _, e := range entries {
		n[e.Event]++
	}
	return n
}
