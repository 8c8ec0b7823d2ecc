package ingress

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// actorProducer is the actor of an intent that does not say who authorised it.
const actorProducer = "producer"

// Submit stores an intent as op.prepared and returns where it stands. provider
// is the one that the address names, "" if the body names it; fallback is the
// operation of a body without operation_id. data is not used after the call.
//
// It returns a *events.RefusedError when the intent can never be accepted, and
// an error that wraps events.ErrUnavailable when it is not known to be stored;
// the same intent again is then the right thing to do.
func (in *Ingress) Submit(ctx context.Context, data []byte, p events.Provider, fallback events.OperationID) (events.Receipt, error) {
	label := p
	r, err := in.submit(ctx, data, p, fallback, &label)
	in.cfg.Metrics.intent(label, intentOutcome(r, err))
	return r, err
}

func (in *Ingress) submit(ctx context.Context, data []byte, p events.Provider, fallback events.OperationID, label *events.Provider) (events.Receipt, error) {
	e, err := in.prepare(ctx, data, p, fallback, label)
	if err != nil {
		return events.Receipt{}, err
	}
	op := e.Subject.Operation()
	got, err := in.cfg.Ledger.Decide(ctx, 0, e)
	if errors.Is(err, events.ErrInvalidEvent) {
		return events.Receipt{}, refuse(op, "", "cannot be stored: "+err.Error())
	}
	if err != nil {
		return events.Receipt{}, fmt.Errorf("decide op.prepared: %w", err)
	}
	prepared := e.Data.(*events.Prepared)
	if got.Outcome == events.Stored {
		in.cfg.Logger.InfoContext(ctx, "intent accepted", "operation", op, "provider", e.Subject.Provider, "seq", got.Seq)
		return events.Receipt{OperationID: op, Provider: e.Subject.Provider, Seq: got.Seq}, nil
	}
	return replay(op, prepared.Fingerprint, got)
}

// replay answers an intent whose operation exists. Only the same request, read
// from what is stored, is a replay; anything that cannot be compared is not.
func replay(op events.OperationID, fingerprint string, got events.Appended) (events.Receipt, error) {
	mismatch := func(reason string) error {
		return &events.RefusedError{Kind: events.RefusedMismatch, Operation: op, Field: "operation_id", Reason: reason}
	}
	w := got.Winner
	if got.Outcome != events.Fenced || w == nil || w.Err != nil {
		return events.Receipt{}, mismatch("the operation exists, and what is stored for it cannot be read")
	}
	stored, ok := w.Event.Data.(*events.Prepared)
	if !ok || w.Event.Subject.Operation() != op {
		return events.Receipt{}, mismatch("the operation exists, and what is stored for it is no intent")
	}
	if stored.Fingerprint != fingerprint {
		return events.Receipt{}, mismatch("the operation exists with another request; use a new operation id")
	}
	return events.Receipt{OperationID: op, Provider: w.Event.Subject.Provider, Seq: w.Seq, Replayed: true}, nil
}

// prepare makes the op.prepared of an intent: everything that a later attempt
// needs, pinned. It sets *label to the provider as soon as it is known.
func (in *Ingress) prepare(ctx context.Context, data []byte, p events.Provider, fallback events.OperationID, label *events.Provider) (events.Event, error) {
	var intent events.Intent
	var d *events.Prepared
	err := guarded(fallback, func() (err error) {
		if intent, err = events.ParseIntent(data, p, fallback); err != nil {
			return err
		}
		*label = intent.Provider
		d, err = in.render(intent)
		return err
	})
	if err != nil {
		return events.Event{}, err
	}
	if err := in.store(ctx, &d.Intent); err != nil {
		return events.Event{}, err
	}
	now := in.cfg.Now().UTC()
	claim, err := events.NewULID(now, in.entropy)
	if err != nil {
		return events.Event{}, fmt.Errorf("make claim: %w", err)
	}
	trace, err := in.traceparent()
	if err != nil {
		return events.Event{}, err
	}
	actor := intent.AuthorizedBy
	if actor == "" {
		actor = actorProducer
	}
	return events.Event{
		ID: "p:" + string(intent.OperationID), Subject: events.OperationSubject(intent.Provider, intent.OperationID),
		Time: now, Actor: actor, Claim: claim, Trace: trace, Data: d,
	}, nil
}

// guarded keeps a fault in parsing or rendering from being more than the
// refusal of one intent.
func guarded(op events.OperationID, f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = refuse(op, "", "cannot be processed: a fault of this service, not of the intent; it is kept")
		}
	}()
	return f()
}

// render resolves what the intent leaves open and makes the request once, so
// that one which cannot be rendered is refused while the producer listens.
//
// The fingerprint is of the intent as it was asked, before defaults: the same
// bytes stay the same request when a default changes between two deliveries.
func (in *Ingress) render(intent events.Intent) (*events.Prepared, error) {
	op := intent.OperationID
	pr := in.cfg.Providers[intent.Provider]
	if pr == nil {
		return nil, refuse(op, "provider", "is not configured here")
	}
	fingerprint, err := intent.Fingerprint()
	if err != nil {
		return nil, err
	}
	if intent.Account == events.DefaultAccount {
		intent.Account = pr.Account()
	}
	if intent.Account != pr.Account() {
		return nil, refuse(op, "account", "is not the account that is configured for this provider")
	}
	if intent.Effects == nil {
		intent.Effects = slices.Clone(in.cfg.DefaultEffects)
	}
	for i, name := range intent.Effects {
		if !slices.Contains(in.cfg.EffectNames, name) {
			return nil, refuse(op, fmt.Sprintf("effects.%d", i), "names an effect that is not configured here")
		}
	}
	// An event carries the input compacted. The request is rendered from those
	// very bytes, so that a later attempt renders the same.
	input, err := events.JSONBlob(intent.Input)
	if err != nil {
		return nil, refused(op, "input", err)
	}
	intent.Input = input.Inline
	request, err := pr.Create(provider.CreateInput{
		Operation: op, Token: string(op), Input: intent.Input, CallbackURL: in.callbackURL(pr, op),
	})
	if err != nil {
		return nil, refused(op, "input", err)
	}
	return &events.Prepared{
		Intent: intent, Fingerprint: fingerprint, Token: string(op), Description: pr.Ref(),
		RequestSHA256: provider.RequestSHA256(request), Contract: pr.Contract(),
		Deadlines: pr.Deadlines().Overlay(intent.Deadlines),
	}, nil
}

func (in *Ingress) callbackURL(pr *provider.Provider, op events.OperationID) string {
	if !pr.Contract().Callback {
		return ""
	}
	return in.cfg.PublicURL + events.CallbackPath(in.cfg.MasterKey, pr.Name(), pr.Account(), op)
}

// store moves an input that is too large for an event into the object store,
// before the event that refers to it.
func (in *Ingress) store(ctx context.Context, intent *events.Intent) error {
	if len(intent.Input) <= events.InlineMaxBytes {
		return nil
	}
	ref, err := in.cfg.Objects.Put(ctx, intent.Input)
	if err != nil {
		return fmt.Errorf("put input: %w", err)
	}
	intent.InputRef = &events.Blob{
		Ref: ref, SHA256: events.HexSHA256(intent.Input), Size: int64(len(intent.Input)), ContentType: "application/json",
	}
	intent.Input = nil
	return nil
}

// traceparent makes the one trace of an operation (W3C Trace Context, version
// 00, sampled).
func (in *Ingress) traceparent() (string, error) {
	var id [24]byte
	for id == [24]byte{} { // all zeros is not valid
		if _, err := in.entropy.Read(id[:]); err != nil {
			return "", fmt.Errorf("make trace id: %w", err)
		}
	}
	return "00-" + hex.EncodeToString(id[:16]) + "-" + hex.EncodeToString(id[16:]) + "-01", nil
}

func refuse(op events.OperationID, field, reason string) *events.RefusedError {
	return &events.RefusedError{Kind: events.RefusedInvalid, Operation: op, Field: field, Reason: reason}
}

// refused turns a refusal of a field into one of the intent. below is where the
// field's path begins unless it says so itself.
func refused(op events.OperationID, below string, err error) *events.RefusedError {
	var fe *events.FieldError
	if !errors.As(err, &fe) {
		return refuse(op, below, "cannot be rendered into a request: "+err.Error())
	}
	field := fe.Field
	if field == "" {
		field = below
	}
	return refuse(op, field, fe.Reason)
}
