package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Retries of a webhook that is not answered 2xx.
const (
	hookTries = 6
	hookPause = 150 * time.Millisecond
)

// plan tells a new job's life by webhooks: running, then the end. early sends
// the first before the create answer.
func (p *flakyProvider) plan(ctx context.Context, j *flakyJob, early bool) {
	if j.callback == "" {
		return
	}
	running, final := "running", j.final()
	reorder := p.dice.hits(p.cfg.Faults.ReorderWebhook, "reorder_webhook", j.op, 1)
	if early && !reorder {
		p.tell(ctx, j, running)
		running = ""
	}
	p.srv.spawn(func(ctx context.Context) {
		first, second := running, final
		if reorder {
			first, second = final, running
			p.count(func(h *hookTotals) { h.Reordered++ })
		} else {
			pause(ctx, time.Until(j.start.Add(j.end.Sub(j.start)/4)))
			p.tell(ctx, j, first)
			first = ""
		}
		pause(ctx, time.Until(j.end))
		for _, state := range []string{first, second} {
			p.tell(ctx, j, state)
		}
		if p.dice.hits(p.cfg.Faults.ForgedWebhook, "forged_webhook", j.op, 1) {
			p.forge(ctx, j)
		}
	})
}

// tell delivers one state: dropped, once, or twice.
func (p *flakyProvider) tell(ctx context.Context, j *flakyJob, state string) {
	if state == "" {
		return
	}
	p.count(func(h *hookTotals) { h.Due++ })
	if p.dice.hits(p.cfg.Faults.DropWebhook, "drop_webhook:"+state, j.op, 1) {
		p.count(func(h *hookTotals) { h.Dropped++ })
		return
	}
	copies := 1
	if p.dice.hits(p.cfg.Faults.DuplicateWebhook, "duplicate_webhook:"+state, j.op, 1) {
		copies = 2
		p.count(func(h *hookTotals) { h.Duplicated++ })
	}
	id := "msg_" + p.dice.id("delivery:"+state+j.id, j.op, 1, 16)
	for range copies {
		p.deliver(ctx, j, state, id)
	}
}

// deliver sends until it is answered 2xx, a few times.
func (p *flakyProvider) deliver(ctx context.Context, j *flakyJob, state, id string) {
	for n := range hookTries {
		p.count(func(h *hookTotals) { h.Sent++ })
		if code := p.post(ctx, j, state, id, p.cfg.WebhookSecret); code >= 200 && code <= 299 {
			p.count(func(h *hookTotals) { h.Acked++ })
			return
		}
		if !pause(ctx, hookPause<<n) {
			break
		}
	}
	p.count(func(h *hookTotals) { h.Unanswered++ })
}

// forge claims the opposite end with a signature of another secret.
func (p *flakyProvider) forge(ctx context.Context, j *flakyJob) {
	state := "failed"
	if j.failed {
		state = "succeeded"
	}
	switch code := p.post(ctx, j, state, "msg_forged_"+j.id, "whsec_"+base64.StdEncoding.EncodeToString([]byte("not the secret of this demo!"))); {
	case code == http.StatusUnauthorized:
		p.count(func(h *hookTotals) { h.Refused++ })
	case code >= 200 && code <= 299:
		p.count(func(h *hookTotals) { h.Fooled++ })
	}
}

func (p *flakyProvider) count(f func(*hookTotals)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.hooks)
}

// post makes one delivery and returns the status, 0 without an answer.
func (p *flakyProvider) post(ctx context.Context, j *flakyJob, state, id, secret string) int {
	var body []byte
	header := http.Header{"Content-Type": {"application/json"}}
	if p.cfg.Shape == shapeGeneric {
		body, _ = json.Marshal(map[string]any{"deliveryId": id, "jobId": j.id, "state": state, "seq": 2}) // plain values
		h := hmac.New(sha256.New, []byte(secret))
		_, _ = h.Write(body) // a hash never fails
		header.Set("X-Agent-Signature", "sha256="+hex.EncodeToString(h.Sum(nil)))
	} else {
		body, _ = json.Marshal(p.view(j, state)) // plain values
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		ts := strconv.FormatInt(now().Unix(), 10)
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(id + "." + ts + "." + string(body))) // as above
		header["Webhook-Id"], header["Webhook-Timestamp"] = []string{id}, []string{ts}
		header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.callback, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header = header
	resp, err := p.client.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()                      // the status is all that counts
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return resp.StatusCode
}
