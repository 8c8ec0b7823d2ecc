package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

const (
	recordersMax     = 32  // events of one body that are stored at a time
	deliveryMaxBytes = 256 // of the sender's id, as kept
	wordMaxBytes     = 128 // of a status word, as kept
)

var (
	plainKey     = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)
	plainAccount = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// message is one verified request.
type message struct {
	provider  *provider.Provider
	account   string
	header    provider.Header
	body      []byte
	reference *events.Reference
}

// record stores everything that a verified message says. nil error: all of it is
// durable, or there is nothing to store.
func (in *Ingress) record(ctx context.Context, m message) (webhookOutcome, error) {
	hooks, err := readWebhook(m)
	if err != nil {
		return in.keepUnreadable(ctx, m, err.Error())
	}
	batch, err := in.eventsOf(ctx, m, hooks)
	if err != nil {
		return "", err
	}
	if len(batch) == 0 {
		return webhookIgnored, nil
	}
	outcome, err := in.recordAll(ctx, m.provider.Name(), batch)
	if errors.Is(err, events.ErrInvalidEvent) {
		// The reading breaks a rule of ours, and would at every repeat: keep the
		// message for a person instead of asking for it for ever.
		return in.keepUnreadable(ctx, m, "an event of it is not valid: "+err.Error())
	}
	return outcome, err
}

// readWebhook reads the messages of a body. A fault in an expression of the
// description is the same as a body that it does not understand.
func readWebhook(m message) (hooks []provider.Webhook, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("reading it failed: a fault of this service")
		}
	}()
	return m.provider.ReadWebhook(m.header, m.body)
}

// eventsOf makes one event for each message that is not ignored, in order. The
// index in the id is that of the message in the body, the same at a repeat.
func (in *Ingress) eventsOf(ctx context.Context, m message, hooks []provider.Webhook) ([]events.Event, error) {
	kept := 0
	for i := range hooks {
		if !hooks[i].Ignored {
			kept++
		}
	}
	if kept == 0 {
		return nil, nil
	}
	// A body of many messages is kept once, not once a message.
	raw, err := in.raw(ctx, m.body, events.RawMaxBytes/kept)
	if err != nil {
		return nil, err
	}
	batch := make([]events.Event, 0, kept)
	for i := range hooks {
		if hooks[i].Ignored {
			continue
		}
		id := m.eventID(hooks[i].DedupKey)
		if len(hooks) > 1 {
			id += ":" + strconv.Itoa(i)
		}
		e, err := in.eventOf(ctx, m, &hooks[i], raw)
		if err != nil {
			return nil, err
		}
		e.ID = id
		batch = append(batch, e)
	}
	return batch, nil
}

func (in *Ingress) eventOf(ctx context.Context, m message, h *provider.Webhook, raw events.Raw) (events.Event, error) {
	p := m.provider.Name()
	ref := events.RemoteRef{ID: h.Remote, Account: m.account, Key: events.MakeJobKey(p, m.account, h.Remote)}
	e := events.Event{Subject: events.JobSubject(p, ref.Key), Time: in.cfg.Now().UTC(), Actor: actorIngress}
	if h.Unrecognised || h.Reading == nil {
		e.Data = &events.Unrecognised{Remote: ref, Status: clip(h.Word, wordMaxBytes), Source: events.SourceWebhook}
		return e, nil
	}
	reading := *h.Reading
	reading.Source, reading.Authoritative = events.SourceWebhook, false // a webhook never confirms
	result, err := in.result(ctx, reading.Result)
	if err != nil {
		return e, err
	}
	reading.Result = result
	e.Data = &events.Observed{
		Remote: ref, Reading: reading, Reference: m.reference,
		Delivery: clip(h.Delivery, deliveryMaxBytes), Raw: &raw,
	}
	return e, nil
}

// result moves a result that is too large for an event into the object store.
func (in *Ingress) result(ctx context.Context, b *events.Blob) (*events.Blob, error) {
	if b == nil || len(b.Inline) <= events.InlineMaxBytes {
		return b, nil
	}
	ref, err := in.cfg.Objects.Put(ctx, b.Inline)
	if err != nil {
		return nil, fmt.Errorf("put result: %w", err)
	}
	moved := *b
	moved.Ref, moved.SHA256, moved.Size = ref, events.HexSHA256(b.Inline), int64(len(b.Inline))
	moved.Inline = nil
	return &moved, nil
}

// recordAll stores the events side by side and waits for all. It goes on after a
// failure, because what is stored now is a duplicate at the repeat.
func (in *Ingress) recordAll(ctx context.Context, p events.Provider, batch []events.Event) (webhookOutcome, error) {
	got := make([]events.Appended, len(batch))
	errs := make([]error, len(batch))
	slots := make(chan struct{}, recordersMax)
	var wg sync.WaitGroup
	for i := range batch[1:] {
		slots <- struct{}{}
		wg.Go(func() {
			got[i+1], errs[i+1] = in.cfg.Ledger.Record(ctx, batch[i+1])
			<-slots
		})
	}
	got[0], errs[0] = in.cfg.Ledger.Record(ctx, batch[0])
	wg.Wait()
	if err := firstError(errs); err != nil {
		return "", fmt.Errorf("record webhook: %w", err)
	}
	return in.outcome(p, got), nil
}

// firstError prefers an error that a repeat may cure: only when no such one is
// there is the message given up as invalid.
func firstError(errs []error) error {
	var invalid error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !errors.Is(err, events.ErrInvalidEvent) {
			return err
		}
		if invalid == nil {
			invalid = err
		}
	}
	return invalid
}

// outcome names what was most remarkable: a collision, else something new, else
// a duplicate.
func (in *Ingress) outcome(p events.Provider, got []events.Appended) webhookOutcome {
	outcome := webhookDuplicate
	for _, g := range got {
		switch g.Outcome {
		case events.Collision:
			outcome = webhookCollision
		case events.Duplicate:
			in.cfg.Metrics.duplicate(p)
		default:
			if outcome == webhookDuplicate {
				outcome = webhookAccepted
			}
		}
	}
	return outcome
}

// keepUnreadable stores a verified message that was not understood. Its sender
// would only send the same again, so it is acknowledged.
func (in *Ingress) keepUnreadable(ctx context.Context, m message, reason string) (webhookOutcome, error) {
	p := m.provider.Name()
	raw, err := in.raw(ctx, m.body, events.RawMaxBytes)
	if err != nil {
		return "", err
	}
	delivery := deliveryOf(m.header)
	digest := events.HashID("unreadable", string(p), m.account, delivery, raw.SHA256)
	// A repeat must make the same subject, so the ULID has no clock in it.
	chance := sha256.Sum256([]byte(digest))
	inbox, err := events.NewULID(time.Unix(0, 0), bytes.NewReader(chance[:]))
	if err != nil {
		return "", err
	}
	got, err := in.cfg.Ledger.Record(ctx, events.Event{
		ID: "wu:" + string(p) + ":" + digest, Subject: events.InboxSubject(p, inbox),
		Time: in.cfg.Now().UTC(), Actor: actorIngress,
		Data: &events.WebhookUnreadable{Reason: clip(reason, 512), Delivery: delivery, Reference: m.reference, Body: raw},
	})
	if err != nil {
		return "", fmt.Errorf("record unreadable webhook: %w", err)
	}
	if got.Outcome == events.Duplicate {
		in.cfg.Metrics.duplicate(p)
	}
	in.cfg.Logger.ErrorContext(ctx, "webhook not understood", "provider", p, "seq", got.Seq)
	return webhookUnreadable, nil
}

// deliveryOf is the sender's id of a message that could not be read any further
// (Standard Webhooks; others have none that we know of).
func deliveryOf(h provider.Header) string {
	for name, values := range h {
		if strings.EqualFold(name, "webhook-id") && len(values) > 0 {
			return clip(values[0], deliveryMaxBytes)
		}
	}
	return ""
}

// eventID is made of what the description calls the identity of a delivery, so
// that the sender's repeat has the same. A message without such a key is the
// same when its bytes are.
func (m message) eventID(key string) string {
	if key == "" {
		key = events.HexSHA256(m.body)
	}
	if !plainKey.MatchString(key) {
		key = events.HashID(key)
	}
	account := m.account
	if !plainAccount.MatchString(account) {
		account = events.HashID(account)
	}
	return "wh:" + string(m.provider.Name()) + ":" + account + ":" + key
}

// clip cuts a text at a bound, never inside a character.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
