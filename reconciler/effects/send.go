package effects

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// target is a checked Target.
type target struct {
	Target
	key []byte // decoded secret
}

func newTarget(t Target) (*target, error) {
	out := &target{Target: t}
	switch t.Kind {
	case KindWebhook:
		u, err := url.Parse(t.URL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			return nil, errors.New("url must be http(s)://host/path without credentials")
		}
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(t.Secret.Reveal(), "whsec_"))
		if err != nil || len(key) < 16 {
			return nil, errors.New("secret must be whsec_ and base64 of at least 16 bytes (try: openssl rand -base64 32)")
		}
		out.key = key
	case KindNATS:
		if t.Subject == "" || strings.ContainsAny(t.Subject, "*> \t\r\n") {
			return nil, errors.New("subject must be a literal NATS subject")
		}
	default:
		return nil, fmt.Errorf("kind %q is not known; known are %s and %s", t.Kind, KindWebhook, KindNATS)
	}
	return out, nil
}

// Message is what a target receives: a pure function of the settlement, so that
// every repeat is the same bytes.
type Message struct {
	Type        string              `json:"type"` // operation.settled
	OperationID events.OperationID  `json:"operation_id"`
	Provider    events.Provider     `json:"provider"`
	Generation  int                 `json:"generation"`
	State       events.State        `json:"state"`
	Outcome     events.Outcome      `json:"outcome"`
	Reason      string              `json:"reason"`
	RemoteID    string              `json:"remote_id,omitempty"`
	Result      *events.Blob        `json:"result,omitempty"`
	Error       *events.RemoteError `json:"error,omitempty"`
	Counts      *events.Counts      `json:"counts,omitempty"`
	Labels      map[string]string   `json:"labels,omitempty"`
	SubmittedAt time.Time           `json:"submitted_at"`
	SettledAt   time.Time           `json:"settled_at"`
	Seq         uint64              `json:"seq"` // of the settlement in the event stream
}

func message(j *events.Job, s *events.Settlement) ([]byte, error) {
	m := Message{
		Type: "operation.settled", OperationID: j.Operation, Provider: j.Provider, Generation: s.G,
		State: s.State, Outcome: s.Settled.Outcome, Reason: s.Settled.Reason, Result: s.Settled.Result,
		Error: s.Settled.Error, Counts: s.Settled.Counts, Labels: s.Settled.Labels,
		SubmittedAt: s.Settled.SubmittedAt, SettledAt: s.At, Seq: s.Seq,
	}
	if s.Settled.Remote != nil {
		m.RemoteID = s.Settled.Remote.ID
	}
	b, err := events.EncodeRecord(m) // not json.Marshal: its escapes would change the result's bytes
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	return b, nil
}

// effect claims, sends and records one effect, and returns the last sequence
// that it appended or that fenced it.
func (r *Runner) effect(ctx context.Context, j *events.Job, d events.EffectDue) (uint64, error) {
	t := r.targets[d.Name]
	if t == nil {
		return 0, fmt.Errorf("effect %q is owed but no longer configured; configure it again", d.Name)
	}
	body, err := message(j, j.LatestSettlement())
	if err != nil {
		return 0, err
	}
	now := r.cfg.Now()
	sendBy := now.Add(r.cfg.Policy.SendBudget)
	seq, won, err := r.claim(ctx, j, d, sendBy)
	if err != nil || !won {
		return seq, err
	}
	// The claim is made: what happens now is recorded even while we stop.
	stopping := ctx
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Policy.SendBudget+r.cfg.Policy.RequestTimeout)
	defer cancel()
	a := r.send(ctx, t, d, body, sendBy)
	data := r.judge(j, d, a)
	r.cfg.Metrics.count(d.Name, data)
	recordCtx, stop := drain(stopping)
	defer stop()
	got, err := r.record(recordCtx, r.event(j, recordID(j.Operation, d, data), data))
	if err != nil {
		return seq, fmt.Errorf("record %s: %w", data.Type(), err)
	}
	return max(seq, got.Seq), nil
}

// record stores what a target answered, again while the store refuses: without
// it the effect is sent once more when the claim's lease ends.
func (r *Runner) record(ctx context.Context, e events.Event) (events.Appended, error) {
	for {
		got, err := r.cfg.Ledger.Record(ctx, e)
		if err == nil || !errors.Is(err, events.ErrUnavailable) || !r.cfg.Wait(ctx, time.Second) {
			return got, err
		}
	}
}

// wait pauses and reports false when the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Times for keeping an answer.
const (
	recordTimeout = 2 * time.Minute
	drainTime     = 10 * time.Second // after a stop of ours
)

// drain returns a context that ends recordTimeout from now, or drainTime after
// ctx does.
func drain(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, cancel) })
	return out, func() { stop(); cancel() }
}

func (r *Runner) claim(ctx context.Context, j *events.Job, d events.EffectDue, sendBy time.Time) (uint64, bool, error) {
	ctx, cancel := context.WithDeadline(ctx, sendBy)
	defer cancel()
	p := r.cfg.Policy
	e := r.event(j, fmt.Sprintf("ec:%s:%s:%d:%d", j.Operation, d.Name, d.G, d.N), &events.EffectClaimed{
		Name: d.Name, G: d.G, N: d.N, Key: d.Key, SendBy: sendBy.UTC(), LeaseUntil: sendBy.Add(p.RequestTimeout + p.LeaseMargin).UTC(),
	})
	claim, err := events.NewULID(e.Time, r.cfg.Entropy)
	if err != nil {
		return 0, false, err
	}
	e.Claim = claim
	got, err := r.cfg.Ledger.Decide(ctx, j.OpSeq, e)
	if err != nil {
		return 0, false, fmt.Errorf("claim effect: %w", err)
	}
	return got.Seq, got.Outcome == events.Stored, nil
}

// answer is what a target said.
type answer struct {
	ok         bool
	status     int
	class      string
	stop       bool // the target asks never to be called again
	retryAfter time.Duration
}

func (r *Runner) send(ctx context.Context, t *target, d events.EffectDue, body []byte, sendBy time.Time) answer {
	if t.Kind == KindNATS {
		if r.cfg.Now().After(sendBy) {
			return answer{class: "late"}
		}
		if err := r.cfg.Publisher.PublishEffect(ctx, t.Subject, d.Key, body); err != nil {
			return answer{class: "publish_failed"}
		}
		return answer{ok: true}
	}
	resp := r.cfg.Caller.Call(ctx, events.Request{
		Method: "POST", URL: t.URL, Body: body, SendBy: sendBy, Timeout: r.cfg.Policy.RequestTimeout, ResponseMaxBytes: 64 << 10,
		Header: t.sign(d.Key, body, r.cfg.Now()),
	})
	a := answer{status: resp.Status, class: string(resp.Failure), ok: resp.Status >= 200 && resp.Status <= 299}
	if resp.Status != 0 {
		// The status line decides; a body cut short after it changes nothing.
		a.class = "status_" + strconv.Itoa(resp.Status/100) + "xx"
		a.stop = resp.Status == 410
	}
	if v := resp.Header["Retry-After"]; len(v) > 0 {
		if secs, err := strconv.Atoi(v[0]); err == nil && secs > 0 {
			a.retryAfter = min(time.Duration(secs)*time.Second, time.Hour)
		}
	}
	return a
}

// sign makes the headers of Standard Webhooks 1.0: the id is the idempotency
// key, so that a receiver of either kind drops repeats.
func (t *target) sign(id string, body []byte, now time.Time) map[string]string {
	ts := strconv.FormatInt(now.Unix(), 10)
	h := hmac.New(sha256.New, t.key)
	_, _ = h.Write([]byte(id + "." + ts + ".")) // a hash never fails
	_, _ = h.Write(body)
	return map[string]string{
		"Content-Type":      "application/json",
		"Idempotency-Key":   `"` + id + `"`,
		"Webhook-Id":        id,
		"Webhook-Timestamp": ts,
		"Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(h.Sum(nil)),
	}
}

// judge turns an answer into what is recorded: done, again later, or dead.
func (r *Runner) judge(j *events.Job, d events.EffectDue, a answer) events.Data {
	switch {
	case a.ok:
		return &events.EffectDone{Name: d.Name, G: d.G, N: d.N, Status: a.status}
	case a.stop:
		return &events.EffectDead{Name: d.Name, G: d.G, N: d.N, Reason: "target_gone"}
	case d.N >= r.cfg.Policy.AttemptsMax:
		r.cfg.Logger.Error("effect given up", "operation", string(j.Operation), "effect", d.Name, "attempt", d.N, "class", a.class)
		return &events.EffectDead{Name: d.Name, G: d.G, N: d.N, Reason: "attempts_exhausted"}
	default:
		p := r.cfg.Policy
		pause := events.Backoff(j.Operation, d.N-1, p.RetryBase, p.RetryCap)
		return &events.EffectAttempted{Name: d.Name, G: d.G, N: d.N, Class: a.class, Status: a.status, RetryAt: r.cfg.Now().Add(max(pause, a.retryAfter)).UTC()}
	}
}

func (r *Runner) event(j *events.Job, id string, data events.Data) events.Event {
	return events.Event{
		ID: id, Subject: events.OperationSubject(j.Provider, j.Operation), Time: r.cfg.Now().UTC(),
		Actor: actor, Trace: j.Prepared.Trace, Data: data,
	}
}

// recordID names the end of a claim. done is one per effect, whoever records it.
func recordID(op events.OperationID, d events.EffectDue, data events.Data) string {
	switch data.(type) {
	case *events.EffectDone:
		return fmt.Sprintf("ed:%s:%s:%d", op, d.Name, d.G)
	case *events.EffectDead:
		return fmt.Sprintf("ex:%s:%s:%d", op, d.Name, d.G)
	default:
		return fmt.Sprintf("ea:%s:%s:%d:%d", op, d.Name, d.G, d.N)
	}
}
