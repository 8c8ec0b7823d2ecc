package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Defaults of the demo provider.
const (
	demoJobMinDefault   = 100 * time.Millisecond
	demoJobMaxDefault   = 900 * time.Millisecond
	demoLagDefault      = 500 * time.Millisecond
	demoNotFoundDefault = 300 * time.Millisecond
	demoStallDefault    = 30 * time.Second
)

// flakyProvider is a remote asynchronous API on loopback that does its jobs
// faithfully and tells about them unfaithfully. Its books are the judge of
// "never submitted twice": they say how many jobs each operation really got,
// whatever the client believes. Which fault hits which operation depends on the
// seed, the operation and how often it asked, not on scheduling.
type flakyProvider struct {
	cfg    flakyProviderConfig
	dice   dice
	wire   demoWire
	srv    *loopback
	client *http.Client // for webhooks

	mu     sync.Mutex
	ops    map[string]*demoOperation
	jobs   map[string]*demoJob
	totals providerTotals // only the counts that belong to no operation
}

// flakyProviderConfig says what a provider looks like and how it misbehaves.
type flakyProviderConfig struct {
	Seed           int64
	Shape          string // "generic" or "replicate"
	Addr           string // a loopback host:port; "" is a free port of 127.0.0.1
	WebhookSecret  string // required; whsec_... for replicate, HMAC key bytes for generic
	APIToken       string // demanded as a bearer token; "" demands none
	Faults         faults
	JobMin, JobMax time.Duration // both 0 is 100 to 900 ms
}

// faults are probabilities from 0 (never) to 1 (always), and how long the slow
// ones last. The zero value is a perfect provider.
type faults struct {
	LoseAnswer          float64 // committed; then the connection closes or stalls, half each
	ErrorAfterCommit    float64 // committed; then 500
	ErrorBeforeCommit   float64 // 500 or 503, half each, nothing committed
	Throttle            float64 // 429 with Retry-After: 1, nothing committed
	DropWebhook         float64 // per event: never sent
	DuplicateWebhook    float64 // per event: sent again after it was acknowledged
	ReorderWebhooks     float64 // per job: the terminal event is sent before the running one
	WebhookBeforeAnswer float64 // per job: it ends, and tells, before the create answer
	BadSignature        float64 // per job: a forged terminal webhook as well
	StatusError         float64 // per GET: 500
	StatusLag           float64 // per job: GET says running for LagFor after the end
	NotFoundAfterCreate float64 // per job: GET says 404 for NotFoundFor after create
	FailJob             float64 // per job: it ends as failed
	Slow                float64 // per answer: waits for SlowFor

	LagFor      time.Duration // 0 is 500 ms
	NotFoundFor time.Duration // 0 is 300 ms
	SlowFor     time.Duration // 0 is 300 ms
	StallMax    time.Duration // longest stall of a client without a timeout; 0 is 30 s
}

// demoOperation is what one operation asked for. Guarded by flakyProvider.mu.
type demoOperation struct {
	requests int
	tokens   map[string]bool
	bodies   map[string]bool
	faults   map[string]int
	jobs     []*demoJob
	byToken  map[string]*demoJob // the promise to a token; unused by a blind shape
}

// demoJob is one job. All but the last fields are set once; those that change
// are guarded by flakyProvider.mu, and copies of a job are snapshots.
type demoJob struct {
	id, bodyHash string
	n            int // ordinal within its operation, from 1
	req          createRequest
	created      time.Time

	state             demoState
	started, finished time.Time
	gets              int
	hooks             webhookBook
}

// demoState is a job's state in generic words, whatever the shape.
type demoState string

// States of a job, in order; the last two are terminal.
const (
	demoQueued    demoState = "queued"
	demoRunning   demoState = "running"
	demoSucceeded demoState = "succeeded"
	demoFailed    demoState = "failed"
)

func (s demoState) terminal() bool { return s == demoSucceeded || s == demoFailed }

// seq is the number that the generic shape puts on a state.
func (s demoState) seq() int {
	switch s {
	case demoQueued:
		return 1
	case demoRunning:
		return 2
	default:
		return 3
	}
}

// newFlakyProvider starts a provider. It fails on an unknown shape, on a secret
// that the shape cannot use, on a range of durations that is none, and on an
// address that is not loopback or not free.
func newFlakyProvider(cfg flakyProviderConfig) (*flakyProvider, error) {
	cfg = cfg.withDefaults()
	if cfg.JobMin < 0 || cfg.JobMax < cfg.JobMin {
		return nil, fmt.Errorf("demo provider: job durations from %s to %s", cfg.JobMin, cfg.JobMax)
	}
	wire, err := newDemoWire(cfg)
	if err != nil {
		return nil, fmt.Errorf("demo provider: %w", err)
	}
	p := &flakyProvider{
		cfg: cfg, dice: dice(cfg.Seed), wire: wire, client: newWebhookClient(),
		ops: map[string]*demoOperation{}, jobs: map[string]*demoJob{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.path(), p.create)
	mux.HandleFunc("GET "+wire.path()+"/{id}", p.read)
	if p.srv, err = startLoopback(cfg.Addr, mux); err != nil {
		return nil, fmt.Errorf("demo provider: %w", err)
	}
	return p, nil
}

func (c flakyProviderConfig) withDefaults() flakyProviderConfig {
	if c.JobMin == 0 && c.JobMax == 0 {
		c.JobMin, c.JobMax = demoJobMinDefault, demoJobMaxDefault
	}
	f := &c.Faults
	f.LagFor = cmp.Or(f.LagFor, demoLagDefault)
	f.NotFoundFor = cmp.Or(f.NotFoundFor, demoNotFoundDefault)
	f.SlowFor = cmp.Or(f.SlowFor, demoSlowDefault)
	f.StallMax = cmp.Or(f.StallMax, demoStallDefault)
	return c
}

// URL is the base URL, without a path.
func (p *flakyProvider) URL() string { return p.srv.url() }

// Idle waits until every job is terminal and every webhook acknowledged,
// dropped or given up. It returns the cause of ctx if that ends first.
func (p *flakyProvider) Idle(ctx context.Context) error { return p.srv.idle(ctx) }

// Close stops the provider, its unfinished jobs and their webhooks, and waits
// for everything it started. The books stay readable.
func (p *flakyProvider) Close(ctx context.Context) error {
	err := p.srv.close(ctx)
	p.client.CloseIdleConnections()
	return err
}

func (p *flakyProvider) create(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, demoBodyBytesMax))
	if err != nil {
		p.refuse(w, http.StatusRequestEntityTooLarge, &p.totals.BadRequests, "body_too_large")
		return
	}
	if !p.authorized(r) {
		p.refuse(w, http.StatusUnauthorized, &p.totals.Unauthorized, "unauthorized")
		return
	}
	req, err := p.wire.parse(r, body)
	if err != nil {
		p.refuse(w, http.StatusBadRequest, &p.totals.BadRequests, err.Error())
		return
	}
	f, op, n := p.cfg.Faults, req.operation, p.receive(req)
	switch {
	case p.hit(f.Throttle, "throttle", op, n):
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusTooManyRequests, p.wire.failure("throttled", "slow down"))
		return
	case p.hit(f.ErrorBeforeCommit, "error_before_commit", op, n):
		code := http.StatusInternalServerError
		if p.dice.float("error_before_commit_how", op, n) < 0.5 {
			code = http.StatusServiceUnavailable
		}
		writeJSON(w, code, p.wire.failure("unavailable", "nothing was done"))
		return
	}
	job, ok := p.commit(r.Context(), req, n)
	if !ok {
		writeJSON(w, http.StatusUnprocessableEntity, p.wire.failure("idempotency_key_reused",
			"this idempotency key was used with another body"))
		return
	}
	p.answer(w, r, job, n)
}

// receive books a create request and returns how many its operation has made.
func (p *flakyProvider) receive(req createRequest) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	op := p.ops[req.operation]
	if op == nil {
		op = &demoOperation{
			tokens: map[string]bool{}, bodies: map[string]bool{},
			faults: map[string]int{}, byToken: map[string]*demoJob{},
		}
		p.ops[req.operation] = op
	}
	op.requests++
	op.bodies[hashHex(req.body)] = true
	if req.token != "" {
		op.tokens[req.token] = true
	}
	return op.requests
}

// commit makes the job of a request, or finds the one that its token was
// promised; ok is false when that one was made from another body. When the
// webhook-before-answer fault hits, it returns after the webhooks of the job
// have been tried once.
func (p *flakyProvider) commit(ctx context.Context, req createRequest, n int) (job demoJob, ok bool) {
	p.mu.Lock()
	op := p.ops[req.operation]
	if j := op.byToken[req.token]; j != nil && req.token != "" {
		defer p.mu.Unlock()
		ok = j.bodyHash == hashHex(req.body)
		if !ok {
			op.faults["idempotency_key_reused"]++
		}
		return *j, ok
	}
	j := &demoJob{
		n: len(op.jobs) + 1, req: req, bodyHash: hashHex(req.body),
		state: demoQueued, created: time.Now().UTC(), hooks: webhookBook{Refused: map[int]int{}},
	}
	j.id = p.wire.jobID(p.dice.id("job", req.operation, j.n, 26))
	op.jobs = append(op.jobs, j)
	p.jobs[j.id] = j
	if req.token != "" {
		op.byToken[req.token] = j
	}
	job = *j
	p.mu.Unlock()

	early := p.hit(p.cfg.Faults.WebhookBeforeAnswer, "webhook_before_answer", req.operation, n)
	told := make(chan struct{})
	if p.srv.spawn(func(ctx context.Context) { p.live(ctx, j, early, told) }) && early {
		select {
		case <-told:
		case <-ctx.Done():
		}
	}
	return job, true
}

// answer tells the client about a committed job, or fails to.
func (p *flakyProvider) answer(w http.ResponseWriter, r *http.Request, job demoJob, n int) {
	f, op := p.cfg.Faults, job.req.operation
	if p.dice.hits(f.LoseAnswer, "lose_answer", op, n) {
		if p.dice.float("lose_answer_how", op, n) < 0.5 {
			p.note(op, "lose_answer_closed")
		} else {
			p.note(op, "lose_answer_stalled")
			pause(r.Context(), f.StallMax) // it ends when the client gives up
		}
		vanish()
	}
	if p.hit(f.ErrorAfterCommit, "error_after_commit", op, n) {
		writeJSON(w, http.StatusInternalServerError, p.wire.failure("internal", "something went wrong"))
		return
	}
	if p.hit(f.Slow, "slow", op, n) {
		pause(r.Context(), f.SlowFor)
	}
	code, v := p.wire.created(job, p.URL())
	writeJSON(w, code, v)
}

func (p *flakyProvider) read(w http.ResponseWriter, r *http.Request) {
	if !p.authorized(r) {
		p.refuse(w, http.StatusUnauthorized, &p.totals.Unauthorized, "unauthorized")
		return
	}
	p.mu.Lock()
	j := p.jobs[r.PathValue("id")]
	if j == nil {
		p.mu.Unlock()
		p.refuse(w, http.StatusNotFound, &p.totals.UnknownGets, "not_found")
		return
	}
	j.gets++
	job := *j
	p.mu.Unlock()

	f, op, now := p.cfg.Faults, job.req.operation, time.Now()
	get := fmt.Sprintf("%s/%d", op, job.n) // each job's GETs are counted on their own
	if p.dice.hits(f.StatusError, "status_error", get, job.gets) {
		p.note(op, "status_error")
		writeJSON(w, http.StatusInternalServerError, p.wire.failure("internal", "something went wrong"))
		return
	}
	if now.Sub(job.created) < f.NotFoundFor && p.hit(f.NotFoundAfterCreate, "not_found_after_create", op, job.n) {
		writeJSON(w, http.StatusNotFound, p.wire.failure("not_found", "no such job"))
		return
	}
	if job.state.terminal() && now.Sub(job.finished) < f.LagFor && p.hit(f.StatusLag, "status_lag", op, job.n) {
		job.state, job.finished = demoRunning, time.Time{}
	}
	if p.dice.hits(f.Slow, "slow_get", get, job.gets) {
		p.note(op, "slow")
		pause(r.Context(), f.SlowFor)
	}
	writeJSON(w, http.StatusOK, p.wire.status(job, p.URL()))
}

func (p *flakyProvider) authorized(r *http.Request) bool {
	return p.cfg.APIToken == "" || r.Header.Get("Authorization") == "Bearer "+p.cfg.APIToken
}

func (p *flakyProvider) refuse(w http.ResponseWriter, status int, count *int, code string) {
	p.mu.Lock()
	*count++
	p.mu.Unlock()
	writeJSON(w, status, p.wire.failure(code, http.StatusText(status)))
}

// hit decides a fault and books it when it hits.
func (p *flakyProvider) hit(prob float64, kind, op string, n int) bool {
	if !p.dice.hits(prob, kind, op, n) {
		return false
	}
	p.note(op, kind)
	return true
}

func (p *flakyProvider) note(op, kind string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops[op].faults[kind]++
}

// live is the life of one job: queued, running, ended, and what it tells of
// that. told is closed when both events have been tried once. An early job
// ends at once.
func (p *flakyProvider) live(ctx context.Context, j *demoJob, early bool, told chan<- struct{}) {
	defer close(told)
	f, op := p.cfg.Faults, j.req.operation
	span := p.cfg.JobMin + time.Duration(p.dice.float("duration", op, j.n)*float64(p.cfg.JobMax-p.cfg.JobMin))
	if early {
		span = 0
	}
	end := demoSucceeded
	if p.hit(f.FailJob, "fail_job", op, j.n) {
		end = demoFailed
	}
	if j.req.callback != "" && p.hit(f.BadSignature, "bad_signature", op, j.n) {
		p.forge(j, end)
	}
	if !pause(ctx, span/3) {
		return
	}
	running := p.advance(j, demoRunning)
	reorder := p.sends(running) && p.sends(withState(running, end)) && p.hit(f.ReorderWebhooks, "reorder_webhooks", op, j.n)
	var first <-chan struct{}
	if !reorder {
		first = p.announce(j, running)
	}
	if !pause(ctx, span-span/3) {
		return
	}
	ended := p.advance(j, end)
	if !reorder {
		<-first
	}
	<-p.announce(j, ended)
	if reorder {
		<-p.announce(j, running)
	}
}

// advance moves a job to a state and returns its snapshot.
func (p *flakyProvider) advance(j *demoJob, to demoState) demoJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.state = to
	if to.terminal() {
		j.finished = time.Now().UTC()
	} else {
		j.started = time.Now().UTC()
	}
	return *j
}
