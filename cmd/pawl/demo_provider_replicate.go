package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Limits of webhook delivery.
const (
	demoHookTries   = 5
	demoHookTimeout = 5 * time.Second
	demoHookBackoff = 100 * time.Millisecond // doubled after each try
	demoHookConns   = 64
)

// demoWire is a shape: what the provider reads and writes. It decides nothing
// and keeps no books.
type demoWire interface {
	path() string
	jobID(random string) string
	parse(r *http.Request, body []byte) (createRequest, error) // the error is a code for the client
	created(j demoJob, base string) (status int, body any)
	status(j demoJob, base string) any
	failure(code, message string) any
	webhook(j demoJob, delivery, base string) any
	sign(h http.Header, delivery string, body []byte)
	wants(req createRequest, s demoState) bool
}

// createRequest is a create as the core sees it, whatever the shape.
type createRequest struct {
	operation string // what the books are kept by, never ""
	token     string // "" when the shape is blind to tokens
	callback  string // "" asks for no webhooks
	version   string
	events    []string
	input     json.RawMessage
	body      []byte
}

// newDemoWire makes the shape that cfg names.
func newDemoWire(cfg flakyProviderConfig) (demoWire, error) {
	switch {
	case cfg.WebhookSecret == "":
		return nil, errors.New("the webhook secret is empty")
	case cfg.Shape == "generic":
		return genericWire{secret: cfg.WebhookSecret}, nil
	case cfg.Shape == "replicate":
		signer, err := standardwebhooks.NewWebhook(cfg.WebhookSecret)
		if err != nil {
			return nil, fmt.Errorf("read webhook secret: %w", err)
		}
		return replicateWire{signer: signer}, nil
	default:
		return nil, fmt.Errorf("shape %q is not known; known are generic and replicate", cfg.Shape)
	}
}

// operationOf finds the operation in a callback URL, whose path ends in
// /webhooks/{provider}/{operation}/{mac}; "" when it has none.
func operationOf(callback string) string {
	_, rest, ok := strings.Cut(callback, "/webhooks/")
	if parts := strings.Split(rest, "/"); ok && len(parts) == 3 {
		return parts[1]
	}
	return ""
}

// genericWire honours idempotency tokens and signs with a plain HMAC.
type genericWire struct{ secret string }

func (genericWire) path() string                        { return "/jobs" }
func (genericWire) jobID(random string) string          { return "job_" + random }
func (genericWire) wants(createRequest, demoState) bool { return true }
func (genericWire) failure(code, message string) any {
	return map[string]any{"error": map[string]string{"code": code, "message": message}}
}

func (genericWire) parse(r *http.Request, body []byte) (createRequest, error) {
	var in struct {
		Operation string          `json:"operation_id"`
		Input     json.RawMessage `json:"input"`
		Callback  string          `json:"callback_url"`
	}
	if json.Unmarshal(body, &in) != nil {
		return createRequest{}, errors.New("invalid_json")
	}
	token := r.Header.Get("Idempotency-Key")
	if token == "" {
		return createRequest{}, errors.New("idempotency_key_missing")
	}
	return createRequest{
		operation: cmp.Or(in.Operation, operationOf(in.Callback), token),
		token:     token, callback: in.Callback, input: in.Input, body: body,
	}, nil
}

func (genericWire) created(j demoJob, base string) (int, any) {
	return http.StatusAccepted, map[string]any{
		"job_id": j.id, "state": j.state, "status_url": base + "/jobs/" + j.id,
	}
}

func (genericWire) status(j demoJob, _ string) any {
	out := map[string]any{"job_id": j.id, "state": j.state, "seq": j.state.seq()}
	if j.state.terminal() {
		out["finished_at"] = j.finished
	}
	switch j.state {
	case demoSucceeded:
		out["result"] = map[string]any{"echo": j.req.input}
	case demoFailed:
		out["error"] = map[string]string{"code": "job_failed", "message": "the job failed, as it was told to"}
	}
	return out
}

func (genericWire) webhook(j demoJob, delivery, _ string) any {
	out := map[string]any{"deliveryId": delivery, "jobId": j.id, "state": j.state, "seq": j.state.seq()}
	if j.state.terminal() {
		out["finishedAt"] = j.finished
	}
	return out
}

func (g genericWire) sign(h http.Header, _ string, body []byte) {
	mac := hmac.New(sha256.New, []byte(g.secret))
	_, _ = mac.Write(body) // a hash never fails
	h.Set("X-Agent-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
}

// replicateWire is blind to tokens: every create makes a job. The operation
// behind a job is known from its callback URL only.
type replicateWire struct{ signer *standardwebhooks.Webhook }

func (replicateWire) path() string               { return "/v1/predictions" }
func (replicateWire) jobID(random string) string { return random }

func (replicateWire) failure(code, message string) any {
	return map[string]string{"title": code, "detail": message}
}

func (replicateWire) parse(_ *http.Request, body []byte) (createRequest, error) {
	var in struct {
		Version string          `json:"version"`
		Input   json.RawMessage `json:"input"`
		Webhook string          `json:"webhook"`
		Events  []string        `json:"webhook_events_filter"`
	}
	if json.Unmarshal(body, &in) != nil {
		return createRequest{}, errors.New("invalid_json")
	}
	return createRequest{
		// Without a callback the body is the best name that there is.
		operation: cmp.Or(operationOf(in.Webhook), "body:"+hashHex(body)),
		callback:  in.Webhook, version: in.Version, events: in.Events, input: in.Input, body: body,
	}, nil
}

func (w replicateWire) created(j demoJob, base string) (int, any) {
	return http.StatusCreated, w.status(j, base)
}

func (w replicateWire) webhook(j demoJob, _, base string) any { return w.status(j, base) }

func (replicateWire) status(j demoJob, base string) any {
	out := map[string]any{
		"id": j.id, "version": j.req.version, "input": j.req.input, "output": nil, "error": nil,
		"logs": nil, "source": "api", "metrics": map[string]any{}, "webhook": j.req.callback,
		"created_at": j.created, "started_at": nil, "completed_at": nil,
		"urls": map[string]string{
			"get":    base + "/v1/predictions/" + j.id,
			"cancel": base + "/v1/predictions/" + j.id + "/cancel",
		},
	}
	out["status"] = map[demoState]string{
		demoQueued: "starting", demoRunning: "processing", demoSucceeded: "succeeded", demoFailed: "failed",
	}[j.state]
	if j.state != demoQueued {
		out["started_at"] = j.started
	}
	if j.state.terminal() {
		out["completed_at"] = j.finished
		out["metrics"] = map[string]any{"predict_time": j.finished.Sub(j.started).Seconds()}
	}
	switch j.state {
	case demoSucceeded:
		out["output"] = map[string]any{"echo": j.req.input}
	case demoFailed:
		out["error"] = "the prediction failed, as it was told to"
	}
	return out
}

func (w replicateWire) sign(h http.Header, delivery string, body []byte) {
	now := time.Now()
	signature, _ := w.signer.Sign(delivery, now, body) // it has no way to fail
	h.Set(standardwebhooks.HeaderWebhookID, delivery)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
}

func (replicateWire) wants(req createRequest, s demoState) bool {
	event := "start"
	if s.terminal() {
		event = "completed"
	}
	return len(req.events) == 0 || slices.Contains(req.events, event)
}

func newWebhookClient() *http.Client {
	return &http.Client{
		Timeout:       demoHookTimeout,
		Transport:     &http.Transport{MaxConnsPerHost: demoHookConns, MaxIdleConnsPerHost: demoHookConns},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func withState(j demoJob, s demoState) demoJob {
	j.state = s
	return j
}

// hookName names a webhook event for the dice, the same in every run.
func hookName(j demoJob) string {
	return fmt.Sprintf("%s/%d/%d", j.req.operation, j.n, j.state.seq())
}

// asked reports whether the client asked to be told of the state of j.
func (p *flakyProvider) asked(j demoJob) bool {
	return j.req.callback != "" && p.wire.wants(j.req, j.state)
}

// sends reports whether the webhook for the state of j leaves at all.
func (p *flakyProvider) sends(j demoJob) bool {
	return p.asked(j) && !p.dice.hits(p.cfg.Faults.DropWebhook, "drop_webhook", hookName(j), 1)
}

// announce starts to deliver the webhook for the snapshot j of job. The channel
// is closed once it was tried, or will not be.
func (p *flakyProvider) announce(job *demoJob, j demoJob) <-chan struct{} {
	tried := make(chan struct{})
	switch {
	case !p.asked(j):
		close(tried)
	case !p.sends(j):
		p.note(j.req.operation, "drop_webhook")
		p.book(job, func(b *webhookBook) { b.Dropped++ })
		close(tried)
	default:
		if !p.srv.spawn(func(ctx context.Context) { p.deliver(ctx, job, j, tried) }) {
			close(tried)
		}
	}
	return tried
}

// deliver sends one webhook until it is acknowledged or the tries are used up,
// and once more when the duplicate fault hits.
func (p *flakyProvider) deliver(ctx context.Context, job *demoJob, j demoJob, tried chan<- struct{}) {
	delivery := "msg_" + p.dice.id("delivery", hookName(j), 1, 24)
	acked := p.post(ctx, job, j, delivery)
	close(tried)
	for try := 1; try < demoHookTries && !acked; try++ {
		if !pause(ctx, demoHookBackoff<<(try-1)) {
			break
		}
		acked = p.post(ctx, job, j, delivery)
	}
	if !acked {
		p.book(job, func(b *webhookBook) { b.GivenUp++ })
		return
	}
	if p.dice.hits(p.cfg.Faults.DuplicateWebhook, "duplicate_webhook", hookName(j), 1) {
		p.note(j.req.operation, "duplicate_webhook")
		p.book(job, func(b *webhookBook) { b.Duplicated++ })
		p.post(ctx, job, j, delivery)
	}
}

// post makes one signed request and reports whether it was answered 2xx.
func (p *flakyProvider) post(ctx context.Context, job *demoJob, j demoJob, delivery string) bool {
	code := p.request(ctx, j, delivery, false)
	acked := code/100 == 2
	p.book(job, func(b *webhookBook) {
		b.Sent++
		switch {
		case acked:
			b.Acked++
		case code == 0:
			b.Unanswered++
		default:
			b.Refused[code]++
		}
	})
	return acked
}

// forge sends, once, a webhook that claims the end that the job will not have,
// signed over another body. A receiver that believes it claims what did not
// happen.
func (p *flakyProvider) forge(job *demoJob, end demoState) {
	p.mu.Lock()
	lie := *job
	p.mu.Unlock()
	lie.finished = time.Now().UTC()
	lie.state = demoFailed
	if end == demoFailed {
		lie.state = demoSucceeded
	}
	p.srv.spawn(func(ctx context.Context) {
		code := p.request(ctx, lie, "msg_"+p.dice.id("forged", hookName(lie), 1, 24), true)
		p.book(job, func(b *webhookBook) {
			b.Forged++
			switch {
			case code/100 == 2:
				b.ForgedBelieved++
			case code == http.StatusUnauthorized:
				b.ForgedRefused++
			}
		})
	})
}

// request returns the status code of the answer, 0 when there was none.
func (p *flakyProvider) request(ctx context.Context, j demoJob, delivery string, forged bool) int {
	body, err := json.Marshal(p.wire.webhook(j, delivery, p.URL()))
	if err != nil {
		panic(err) // only values that encode go in
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.req.callback, bytes.NewReader(body))
	if err != nil {
		return 0 // a callback that is no URL reaches nobody
	}
	req.Header.Set("Content-Type", "application/json")
	signed := body
	if forged {
		signed = append([]byte("another body than "), body...)
	}
	p.wire.sign(req.Header, delivery, signed)
	res, err := p.client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, demoBodyBytesMax)) // so that the connection can be used again
	return res.StatusCode
}

func (p *flakyProvider) book(job *demoJob, change func(*webhookBook)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&job.hooks)
}

// vanish ends a handler so that its client sees a closed connection, no answer.
func vanish() { panic(http.ErrAbortHandler) }

// pause waits for d, and reports false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that left needs no answer
}
