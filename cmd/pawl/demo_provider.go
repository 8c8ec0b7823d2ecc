package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Shapes of the flaky provider.
const (
	shapeGeneric   = "generic"   // honours tokens; description "generic"
	shapeReplicate = "replicate" // token-blind; description "replicate-prediction"
)

// flakyProvider runs jobs as a remote API would, and misbehaves as one can. Its
// books are the judge: how many jobs each token really made.
type flakyProvider struct {
	cfg    flakyProviderConfig
	dice   dice
	srv    *loopback
	client *http.Client

	mu     sync.Mutex
	jobs   map[string]*flakyJob // by id
	ops    map[string]*providerOperation
	tokens map[string]*flakyJob // generic: by token
	bodies map[string]string    // generic: hash of the first body of a token
	hooks  hookTotals
}

// flakyProviderConfig says what a provider is like.
type flakyProviderConfig struct {
	Seed           int64
	Shape          string
	Addr           string // a loopback host:port; "" is a free port of 127.0.0.1
	WebhookSecret  string
	APIToken       string // "" is not checked
	Faults         providerFaults
	JobMin, JobMax time.Duration // how long a job runs
}

// providerFaults are probabilities from 0 (never, the zero value) to 1 (always).
// A fault is drawn for an operation and an attempt, never by the clock.
type providerFaults struct {
	LoseAnswer          float64 // the job is made; the connection closes without an answer
	StallAnswer         float64 // the job is made; the answer comes after StallFor
	ErrorAfterCommit    float64 // the job is made; the answer is 500
	ErrorBeforeCommit   float64 // no job; the answer is 503
	Throttle            float64 // no job; the answer is 429
	DropWebhook         float64
	DuplicateWebhook    float64
	ReorderWebhook      float64 // the terminal webhook goes first
	EarlyWebhook        float64 // a webhook goes before the create answer
	ForgedWebhook       float64 // one more, with a wrong signature
	StatusError         float64 // 500 to a read
	NotFoundAfterCreate float64 // 404 to the first read
	StatusLag           float64 // reads show the earlier state for LagFor after the end
	FailJob             float64 // the job ends as failed
	StallFor, LagFor    time.Duration
}

// providerOperation is the book of one operation.
type providerOperation struct {
	Operation string         `json:"operation"`
	Creates   int            `json:"creates"` // create requests received
	Tokens    []string       `json:"tokens"`  // distinct
	Bodies    []string       `json:"bodies"`  // distinct hashes
	Jobs      []string       `json:"jobs"`    // ids made
	Final     string         `json:"final"`   // of the first job: succeeded or failed
	Ended     bool           `json:"ended"`   // the first job has ended
	Reads     int            `json:"reads"`
	Faults    map[string]int `json:"faults"`
}

// hookTotals count webhooks. Refused counts forged ones that were answered 401;
// Fooled counts forged ones that were taken.
type hookTotals struct {
	Due        int `json:"due"` // told once each, before faults
	Sent       int `json:"sent"`
	Dropped    int `json:"dropped"`
	Duplicated int `json:"duplicated"`
	Reordered  int `json:"reordered"`
	Acked      int `json:"acked"`
	Unanswered int `json:"unanswered"` // given up after retries
	Refused    int `json:"refused"`
	Fooled     int `json:"fooled"`
}

// providerBook is a snapshot, sorted by operation.
type providerBook struct {
	Operations []providerOperation `json:"operations"`
	Hooks      hookTotals          `json:"hooks"`
}

type flakyJob struct {
	id, op, callback string
	start, end       time.Time
	failed           bool
	reads            int
}

func newFlakyProvider(cfg flakyProviderConfig) (*flakyProvider, error) {
	p := &flakyProvider{
		cfg: cfg, dice: dice(cfg.Seed), client: &http.Client{Timeout: 5 * time.Second},
		jobs: map[string]*flakyJob{}, ops: map[string]*providerOperation{}, tokens: map[string]*flakyJob{}, bodies: map[string]string{},
	}
	mux := http.NewServeMux()
	switch cfg.Shape {
	case shapeGeneric:
		mux.HandleFunc("POST /jobs", p.create)
		mux.HandleFunc("GET /jobs/{id}", p.status)
	case shapeReplicate:
		mux.HandleFunc("POST /v1/predictions", p.create)
		mux.HandleFunc("GET /v1/predictions/{id}", p.status)
	default:
		return nil, fmt.Errorf("demo provider: shape %q is not known", cfg.Shape)
	}
	var err error
	if p.srv, err = startLoopback(cfg.Addr, mux); err != nil {
		return nil, fmt.Errorf("demo provider: %w", err)
	}
	return p, nil
}

// URL is the provider's base URL.
func (p *flakyProvider) URL() string { return p.srv.url() }

// Close stops the provider and waits for everything it started. The books stay
// readable.
func (p *flakyProvider) Close(ctx context.Context) error {
	err := p.srv.close(ctx)
	p.client.CloseIdleConnections()
	return err
}

// Book returns a copy of the books.
func (p *flakyProvider) Book() providerBook {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := providerBook{Hooks: p.hooks}
	for _, o := range p.ops {
		c := *o
		c.Tokens, c.Bodies, c.Jobs = slices.Clone(o.Tokens), slices.Clone(o.Bodies), slices.Clone(o.Jobs)
		c.Faults = map[string]int{}
		for k, v := range o.Faults {
			c.Faults[k] = v
		}
		if len(c.Jobs) > 0 {
			j := p.jobs[c.Jobs[0]]
			c.Final, c.Ended = j.final(), !now().Before(j.end)
		}
		b.Operations = append(b.Operations, c)
	}
	slices.SortFunc(b.Operations, func(x, y providerOperation) int { return strings.Compare(x.Operation, y.Operation) })
	return b
}

// createRequest is what both shapes ask, in one form.
type createRequest struct {
	op, token, callback string
	body                []byte
}

func (p *flakyProvider) readCreate(r *http.Request) (createRequest, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, demoBodyBytesMax))
	if err != nil {
		return createRequest{}, err
	}
	var in struct {
		Operation   string `json:"operation_id"`
		CallbackURL string `json:"callback_url"`
		Webhook     string `json:"webhook"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return createRequest{}, err
	}
	c := createRequest{op: in.Operation, token: r.Header.Get("Idempotency-Key"), callback: in.CallbackURL + in.Webhook, body: body}
	if c.op == "" { // the blind shape learns it from the callback path only
		if parts := strings.Split(c.callback, "/"); len(parts) >= 2 {
			c.op = parts[len(parts)-2]
		}
	}
	return c, nil
}

func (p *flakyProvider) create(w http.ResponseWriter, r *http.Request) {
	c, err := p.readCreate(r)
	if err != nil || (p.cfg.Shape == shapeGeneric && c.token == "") {
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]string{"code": "invalid", "message": "body or token is missing"}})
		return
	}
	if p.cfg.APIToken != "" && r.Header.Get("Authorization") != "Bearer "+p.cfg.APIToken {
		writeJSON(w, http.StatusUnauthorized, map[string]any{"error": map[string]string{"code": "unauthorized"}})
		return
	}
	o, n := p.bookCreate(c)
	hit := func(chance float64, kind string) bool { return p.draw(o, chance, kind, n) }
	f := p.cfg.Faults
	switch {
	case hit(f.ErrorBeforeCommit, "error_before_commit"):
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"error": map[string]string{"code": "unavailable"}})
		return
	case hit(f.Throttle, "throttle"):
		w.Header().Set("Retry-After", "1")
		writeJSON(w, http.StatusTooManyRequests, map[string]any{"error": map[string]string{"code": "slow_down"}})
		return
	}
	j, fresh, mismatch := p.commit(c, n)
	if mismatch {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]any{"error": map[string]string{"code": "idempotency_key_reused", "message": "the key was used with another body"}})
		return
	}
	if fresh {
		p.plan(r.Context(), j, hit(f.EarlyWebhook, "early_webhook"))
	}
	switch {
	case hit(f.LoseAnswer, "lose_answer"):
		vanish()
	case hit(f.StallAnswer, "stall_answer"):
		pause(r.Context(), f.StallFor)
	case hit(f.ErrorAfterCommit, "error_after_commit"):
		writeJSON(w, http.StatusInternalServerError, map[string]any{"error": map[string]string{"code": "internal"}})
		return
	}
	writeJSON(w, http.StatusCreated, p.view(j, "queued"))
}

// bookCreate books a request and returns the operation and how often it was
// asked so far, from 1.
func (p *flakyProvider) bookCreate(c createRequest) (*providerOperation, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.ops[c.op]
	if o == nil {
		o = &providerOperation{Operation: c.op, Faults: map[string]int{}}
		p.ops[c.op] = o
	}
	o.Creates++
	if c.token != "" && !slices.Contains(o.Tokens, c.token) {
		o.Tokens = append(o.Tokens, c.token)
	}
	if h := hashHex(c.body); !slices.Contains(o.Bodies, h) {
		o.Bodies = append(o.Bodies, h)
	}
	return o, o.Creates
}

func (p *flakyProvider) draw(o *providerOperation, chance float64, kind string, n int) bool {
	hit := p.dice.hits(chance, kind, o.Operation, n)
	if hit {
		p.mu.Lock()
		o.Faults[kind]++
		p.mu.Unlock()
	}
	return hit
}

// commit makes a job, or finds the one of the token.
func (p *flakyProvider) commit(c createRequest, n int) (j *flakyJob, fresh, mismatch bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.token != "" {
		if j := p.tokens[c.token]; j != nil {
			return j, false, p.bodies[c.token] != hashHex(c.body)
		}
	}
	span := p.cfg.JobMin + time.Duration(p.dice.float("duration", c.op, 1)*float64(p.cfg.JobMax-p.cfg.JobMin))
	j = &flakyJob{
		id: "job_" + p.dice.id("job", c.op, n, 12), op: c.op, callback: c.callback, start: now(),
		failed: p.dice.hits(p.cfg.Faults.FailJob, "fail_job", c.op, 1),
	}
	j.end = j.start.Add(span)
	p.jobs[j.id] = j
	p.ops[c.op].Jobs = append(p.ops[c.op].Jobs, j.id)
	if c.token != "" {
		p.tokens[c.token], p.bodies[c.token] = j, hashHex(c.body)
	}
	return j, true, false
}

func (j *flakyJob) final() string {
	if j.failed {
		return "failed"
	}
	return "succeeded"
}

// word is the state in the generic vocabulary.
func (j *flakyJob) word(at time.Time) string {
	switch {
	case !at.Before(j.end):
		return j.final()
	case at.After(j.start.Add(j.end.Sub(j.start) / 4)):
		return "running"
	default:
		return "queued"
	}
}

// view is the job as its API shows it in a state of the generic vocabulary.
func (p *flakyProvider) view(j *flakyJob, state string) map[string]any {
	output := map[string]any{"greeting": "done for " + j.op, "pages": 3}
	if p.cfg.Shape == shapeGeneric {
		v := map[string]any{"job_id": j.id, "state": state, "seq": slices.Index([]string{"queued", "running", "succeeded", "failed"}, state) + 1, "status_url": p.URL() + "/jobs/" + j.id}
		switch state {
		case "succeeded":
			v["result"], v["finished_at"] = output, j.end.UTC().Format(time.RFC3339)
		case "failed":
			v["error"], v["finished_at"] = map[string]string{"code": "render_failed", "message": "the renderer gave up"}, j.end.UTC().Format(time.RFC3339)
		}
		return v
	}
	status := map[string]string{"queued": "starting", "running": "processing"}[state]
	if status == "" {
		status = state
	}
	v := map[string]any{"id": j.id, "status": status, "created_at": j.start.UTC().Format(time.RFC3339), "output": nil, "error": nil, "logs": ""}
	switch state {
	case "succeeded":
		v["output"] = output
	case "failed":
		v["error"] = "the model gave up"
	}
	return v
}

func (p *flakyProvider) status(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	j := p.jobs[r.PathValue("id")]
	var o *providerOperation
	n := 0
	if j != nil {
		j.reads++
		n = j.reads
		o = p.ops[j.op]
		o.Reads++
	}
	p.mu.Unlock()
	f := p.cfg.Faults
	switch {
	case j == nil, n == 1 && p.draw(o, f.NotFoundAfterCreate, "not_found_after_create", n):
		writeJSON(w, http.StatusNotFound, map[string]any{"error": map[string]string{"code": "not_found"}})
		return
	case p.draw(o, f.StatusError, "status_error", n):
		writeJSON(w, http.StatusInternalServerError, map[string]any{"error": map[string]string{"code": "internal"}})
		return
	}
	at := now()
	if p.dice.hits(f.StatusLag, "status_lag", j.op, 1) {
		at = at.Add(-f.LagFor)
	}
	writeJSON(w, http.StatusOK, p.view(j, j.word(at)))
}
