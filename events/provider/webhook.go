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

// ReadWebhook reads a verified body; today every body holds one event. An error
// means that it was not understood; the caller keeps the message all the same.
// A reading of a webhook is never authoritative.
func (p *Provider) ReadWebhook(h Header, body []byte) ([]Webhook, error) {
	w, err := p.readWebhook(h, body)
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	return []Webhook{w}, nil
}

func (p *Provider) readWebhook(h Header, body []byte) (Webhook, error) {
	if p.d.f.Webhook == nil {
		return Webhook{}, errors.New("the description has no webhooks")
	}
	v, err := decodeJSON(body)
	if err != nil {
		return Webhook{}, err
	}
	vars := map[string]any{"headers": h.flat(), "body": v}
	x := &p.d.x
	if skip, err := x.ignore.boolean(vars); err != nil || skip {
		return Webhook{Ignored: skip}, err
	}
	var w Webhook
	if w.Remote, err = x.webhook.id.str(vars); err != nil {
		return Webhook{}, err
	}
	if !validID(w.Remote) {
		return Webhook{}, fmt.Errorf("job id of %d bytes, want 1 to %d", len(w.Remote), events.RemoteIDMaxBytes)
	}
	if w.DedupKey, err = x.dedup.str(vars); err != nil {
		return Webhook{}, err
	}
	if n := len(w.DedupKey); n == 0 || n > dedupMaxBytes {
		return Webhook{}, fmt.Errorf("dedup key of %d bytes, want 1 to %d", n, dedupMaxBytes)
	}
	if w.Delivery, err = x.delivery.str(vars); err != nil {
		return Webhook{}, err
	}
	w.Delivery = cut(w.Delivery, wordMaxBytes)
	if w.Reading, w.Word, err = x.webhook.reading(p.d.pushed, vars, events.SourceWebhook); err != nil {
		return Webhook{}, err
	}
	if w.Unrecognised = w.Reading == nil; !w.Unrecognised {
		w.Word = ""
	}
	return w, nil
}

// Ack is what the sender wants to hear once the message is stored.
func (p *Provider) Ack() (status int, contentType string, body []byte) {
	status, contentType, body = 200, "text/plain; charset=utf-8", []byte("ok")
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
