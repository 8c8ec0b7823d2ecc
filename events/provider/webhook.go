package provider

import (
	"errors"
	"fmt"

	"github.com/pawl-dev/pawl/events"
)

// Webhook is one event of a webhook's body.
type Webhook struct {
	Remote       string          // the job's id
	Reading      *events.Reading // nil when unrecognised or ignored
	Word         string          // the state, when it is not in the map
	Unrecognised bool
	Ignored      bool   // signed, but about no job
	Delivery     string // the sender's id of the delivery
	DedupKey     string // what makes a delivery unique
}

// ReadWebhook reads a verified body. An error means that it was not understood;
// the caller keeps the message all the same.
func (p *Provider) ReadWebhook(h Header, body []byte) ([]Webhook, error) {
	v, err := decodeJSON(body)
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	vars := map[string]any{"status": 0, "headers": h.flat(), "body": v}
	x := &p.d.x
	if skip, err := x.ignore.boolean(vars); err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	} else if skip {
		return []Webhook{{Ignored: true}}, nil
	}
	var w Webhook
	if w.Remote, err = x.webhook.id.str(vars); err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	if w.Remote == "" || len(w.Remote) > events.RemoteIDMaxBytes {
		return nil, fmt.Errorf("read webhook: job id of %d bytes, want 1 to %d", len(w.Remote), events.RemoteIDMaxBytes)
	}
	if w.DedupKey, err = x.dedup.str(vars); err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	if w.DedupKey == "" {
		return nil, errors.New("read webhook: the delivery has no dedup key")
	}
	if w.Delivery, err = x.delivery.str(vars); err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	w.Delivery = cut(w.Delivery, wordMaxBytes)
	w.Reading, w.Word, err = p.reading(&x.webhook, vars, events.SourceWebhook)
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	w.Unrecognised = w.Reading == nil
	return []Webhook{w}, nil
}

// Ack is what the sender wants to hear once the message is stored.
func (p *Provider) Ack() (status int, contentType string, body []byte) {
	status, contentType, body = 200, "text/plain; charset=utf-8", []byte("ok\n")
	if w := p.d.f.Webhook; w != nil {
		if w.Ack.Status != 0 {
			status = w.Ack.Status
		}
		if w.Ack.ContentType != "" {
			contentType = w.Ack.ContentType
		}
		if w.Ack.Body != "" {
			body = []byte(w.Ack.Body)
		}
	}
	return status, contentType, body
}
