package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// IntentMessage is one message of the intent stream.
type IntentMessage struct {
	Provider string // last token of the subject, as it came
	Body     []byte
	Seq      uint64 // in the intent stream
	// StreamCreated is when the intent stream was created: together with Seq it
	// names the message, also after the stream was made anew.
	StreamCreated time.Time
	At            time.Time // when the stream stored it
	ReplyTo       string    // subject for the answer; "": none
}

// answer is what a producer is told on its reply subject.
type answer struct {
	OperationID events.OperationID `json:"operation_id,omitempty"`
	Provider    events.Provider    `json:"provider,omitempty"`
	Outcome     string             `json:"outcome"` // accepted, replayed, refused
	Field       string             `json:"field,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Seq         uint64             `json:"seq,omitempty"` // of op.prepared, or of the kept refusal
}

// HandleIntent takes one message of the intent stream. nil means that it is
// done: accepted, a repeat, or refused for good and kept in the inbox with the
// reason. An error means that nothing is known to be stored; the message must be
// delivered again. Every redelivery makes the same operation and the same inbox
// event, because both are named after the message and not after the delivery.
func (in *Ingress) HandleIntent(ctx context.Context, m IntentMessage) error {
	fallback, err := m.operation()
	if err != nil {
		return err
	}
	p, err := events.ParseProvider(m.Provider)
	if err != nil {
		r := refuse("", "provider", "the subject's last token is not the name of a provider: want 1 to 32 of a-z, 0-9 and '-'")
		in.cfg.Metrics.intent(unknownProvider, intentRefused)
		return in.keepRefused(ctx, m, unknownProvider, r)
	}
	receipt, err := in.Submit(ctx, m.Body, p, fallback)
	var r *events.RefusedError
	if errors.As(err, &r) {
		return in.keepRefused(ctx, m, p, r)
	}
	if err != nil {
		return fmt.Errorf("submit intent %d: %w", m.Seq, err)
	}
	a := answer{OperationID: receipt.OperationID, Provider: receipt.Provider, Outcome: intentAccepted, Seq: receipt.Seq}
	if receipt.Replayed {
		a.Outcome = intentReplayed
	}
	in.reply(ctx, m, a)
	return nil
}

// keepRefused stores a refusal in the inbox and tells the producer. Only then is
// the message done: a refusal that nobody can find would be a lost intent.
func (in *Ingress) keepRefused(ctx context.Context, m IntentMessage, p events.Provider, r *events.RefusedError) error {
	id, err := m.ulid("inbox")
	if err != nil {
		return err
	}
	body, err := in.raw(ctx, m.Body, events.RawMaxBytes)
	if err != nil {
		return fmt.Errorf("keep refused intent %d: %w", m.Seq, err)
	}
	got, err := in.cfg.Ledger.Record(ctx, events.Event{
		ID: "ir:" + id, Subject: events.InboxSubject(p, id), Time: in.cfg.Now().UTC(), Actor: actorIngress,
		Data: &events.IntentRefused{Operation: string(r.Operation), Field: r.Field, Reason: r.Reason, Body: body},
	})
	if err != nil {
		return fmt.Errorf("keep refused intent %d: %w", m.Seq, err)
	}
	if got.Outcome == events.Duplicate {
		in.cfg.Metrics.duplicate(p)
	}
	in.cfg.Logger.WarnContext(ctx, "intent refused", "operation", r.Operation, "provider", p, "kind", r.Kind, "field", r.Field, "reason", r.Reason, "seq", got.Seq)
	in.reply(ctx, m, answer{OperationID: r.Operation, Provider: p, Outcome: intentRefused, Field: r.Field, Reason: r.Reason, Seq: got.Seq})
	return nil
}

// reply answers the producer if it asked for it. What is stored is stored
// whether or not the answer arrives, so a failure is only logged.
func (in *Ingress) reply(ctx context.Context, m IntentMessage, a answer) {
	if m.ReplyTo == "" || in.cfg.Replier == nil {
		return
	}
	body, err := json.Marshal(a)
	if err == nil {
		err = in.cfg.Replier.Reply(ctx, m.ReplyTo, body)
	}
	if err != nil {
		in.cfg.Logger.WarnContext(ctx, "intent reply not sent", "operation", a.OperationID, "err", err)
	}
}

// operation names the operation of a message whose body does not.
func (m IntentMessage) operation() (events.OperationID, error) {
	id, err := m.ulid("operation")
	return events.OperationID("op_" + id), err
}

// ulid derives an identifier from what names the message: the instant of its
// storing, and a digest of stream and sequence in place of chance.
func (m IntentMessage) ulid(purpose string) (string, error) {
	h := sha256.New()
	_, _ = h.Write([]byte(purpose)) // a hash never fails
	_ = binary.Write(h, binary.BigEndian, m.StreamCreated.UnixNano())
	_ = binary.Write(h, binary.BigEndian, m.Seq)
	at := m.At
	if at.Before(time.Unix(0, 0)) {
		at = time.Unix(0, 0) // a ULID has no place for earlier instants
	}
	return events.NewULID(at, bytes.NewReader(h.Sum(nil)))
}
