package events

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Validation is the same before an append and after a read: a broken event is
// refused at the door, and one that stands in the stream all the same is parked
// instead of folded.

// AttemptsMax bounds create attempts, collection attempts and effect claims of
// one operation, so that no record grows without limit.
const AttemptsMax = 1000

func (*Genesis) Type() Type           { return TypeGenesis }
func (*Prepared) Type() Type          { return TypePrepared }
func (*AttemptStarted) Type() Type    { return TypeAttemptStarted }
func (*Accepted) Type() Type          { return TypeAccepted }
func (*Rejected) Type() Type          { return TypeRejected }
func (*Ambiguous) Type() Type         { return TypeAmbiguous }
func (*NotSent) Type() Type           { return TypeNotSent }
func (*Throttled) Type() Type         { return TypeThrottled }
func (*ReconFound) Type() Type        { return TypeReconFound }
func (*ReconAbsent) Type() Type       { return TypeReconAbsent }
func (*ReconFailed) Type() Type       { return TypeReconFailed }
func (*Observed) Type() Type          { return TypeObserved }
func (*Unrecognised) Type() Type      { return TypeUnrecognised }
func (*Gone) Type() Type              { return TypeGone }
func (*PollDeferred) Type() Type      { return TypePollDeferred }
func (*PollAudit) Type() Type         { return TypePollAudit }
func (*DeadlinePassed) Type() Type    { return TypeDeadlinePassed }
func (*ResultStored) Type() Type      { return TypeResultStored }
func (*ResultUnavailable) Type() Type { return TypeResultUnavail }
func (*ResultInvalid) Type() Type     { return TypeResultInvalid }
func (*Settled) Type() Type           { return TypeSettled }
func (*ReviewOpened) Type() Type      { return TypeReviewOpened }
func (*EffectClaimed) Type() Type     { return TypeEffectClaimed }
func (*EffectAttempted) Type() Type   { return TypeEffectAttempted }
func (*EffectDone) Type() Type        { return TypeEffectDone }
func (*EffectDead) Type() Type        { return TypeEffectDead }
func (*IntentRefused) Type() Type     { return TypeIntentRefused }
func (*WebhookUnreadable) Type() Type { return TypeUnreadable }
func (*EventParked) Type() Type       { return TypeParked }

func (d *Genesis) validate() error {
	if len(d.LedgerID) != 26 {
		return fmt.Errorf("ledger_id %.40q: want a ULID", d.LedgerID)
	}
	return nil
}

func (d *Prepared) validate() error {
	if d.Token == "" || d.Fingerprint == "" || d.RequestSHA256 == "" {
		return errors.New("token, fingerprint and request_sha256 are required")
	}
	return d.Intent.validate()
}

func (d *AttemptStarted) validate() error {
	if d.SendBy.IsZero() || d.LeaseUntil.Before(d.SendBy) {
		return errors.New("send_by and a later lease_until are required")
	}
	if d.Window < 0 || d.Window > d.N {
		return fmt.Errorf("window is %d, want 1 to n", d.Window)
	}
	return number("n", d.N)
}

func (d *Accepted) validate() error {
	if err := number("n", d.N); err != nil {
		return err
	}
	return d.Remote.validate()
}

func (d *Rejected) validate() error   { return classed(d.N, d.Class, d.Code, d.Message) }
func (d *Ambiguous) validate() error  { return classed(d.N, d.Class, d.Detail) }
func (d *NotSent) validate() error    { return classed(d.N, d.Class, d.Detail) }
func (d *Throttled) validate() error  { return number("n", d.N) }
func (d *ReconFound) validate() error { return d.Remote.validate() }

func (d *ReconAbsent) validate() error {
	if d.AsOf.IsZero() {
		return errors.New("as_of is required")
	}
	return number("covers", d.Covers)
}

func (d *ReconFailed) validate() error {
	if d.Class == "" {
		return errors.New("class is required")
	}
	return nil
}

func (d *Observed) validate() error {
	if d.Reading.State.rank() == 0 {
		return fmt.Errorf("reading.state %.40q is not a remote state", d.Reading.State)
	}
	if d.Reading.Attempt < 0 {
		return errors.New("reading.attempt is negative")
	}
	if err := d.Reading.bounded(); err != nil {
		return err
	}
	if d.Reference != nil {
		if _, err := ParseOperationID(string(d.Reference.Operation)); err != nil {
			return err
		}
	}
	return d.Remote.validate()
}

// bounded checks what a record keeps of a reading.
func (g *Reading) bounded() error {
	texts := []string{g.Detail, g.Status}
	if g.Error != nil {
		texts = append(texts, g.Error.Code, g.Error.Message)
	}
	if g.Result != nil {
		if len(g.Result.Inline) > 2*InlineMaxBytes {
			return fmt.Errorf("a result of %d bytes inside the event, limit %d", len(g.Result.Inline), 2*InlineMaxBytes)
		}
		texts = append(texts, g.Result.Ref, g.Result.SHA256, g.Result.ContentType)
	}
	return bounded(texts...)
}

func (d *Unrecognised) validate() error {
	if err := bounded(d.Status); err != nil {
		return err
	}
	return d.Remote.validate()
}

func (d *Gone) validate() error { return d.Remote.validate() }

func (d *PollDeferred) validate() error {
	if d.Until.IsZero() || d.Reason == "" {
		return errors.New("until and reason are required")
	}
	if err := bounded(d.Reason); err != nil {
		return err
	}
	return d.Remote.validate()
}

func (d *PollAudit) validate() error { return d.Remote.validate() }

func (d *DeadlinePassed) validate() error {
	if !d.Name.known() {
		return fmt.Errorf("name %.40q is not a clock", d.Name)
	}
	if d.Due.IsZero() {
		return errors.New("due is required")
	}
	return number("gen", d.Gen)
}

func (d *ResultStored) validate() error {
	if (d.Result.Inline == nil) == (d.Result.Ref == "") {
		return errors.New("result needs exactly one of inline and ref")
	}
	if len(d.Result.Inline) > 2*InlineMaxBytes {
		return fmt.Errorf("a result of %d bytes inside the event, limit %d", len(d.Result.Inline), 2*InlineMaxBytes)
	}
	return number("g", d.G)
}

func (d *ResultUnavailable) validate() error { return generation(d.G, d.Reason) }
func (d *ResultInvalid) validate() error     { return generation(d.G, d.Rule) }

func generation(g int, texts ...string) error {
	if err := bounded(texts...); err != nil {
		return err
	}
	return number("g", g)
}

func (d *Settled) validate() error {
	if d.State == "" || d.Outcome == "" {
		return errors.New("state and outcome are required")
	}
	if !d.State.Settled() {
		return fmt.Errorf("state %.40q is no outcome", d.State)
	}
	return number("g", d.G)
}

func (d *ReviewOpened) validate() error {
	if d.ID == "" || d.Reason == "" {
		return errors.New("id and reason are required")
	}
	return nil
}

func (d *EffectClaimed) validate() error {
	if d.Key == "" || d.SendBy.IsZero() || d.LeaseUntil.Before(d.SendBy) {
		return errors.New("key, send_by and a later lease_until are required")
	}
	return effect(d.Name, d.G, d.N)
}

func (d *EffectAttempted) validate() error { return effect(d.Name, d.G, d.N) }
func (d *EffectDone) validate() error      { return effect(d.Name, d.G, d.N) }
func (d *EffectDead) validate() error      { return effect(d.Name, d.G, d.N) }

func (d *IntentRefused) validate() error {
	if d.Reason == "" {
		return errors.New("reason is required")
	}
	return nil
}

func (d *WebhookUnreadable) validate() error {
	if d.Reason == "" {
		return errors.New("reason is required")
	}
	return nil
}

func (d *EventParked) validate() error {
	if d.Seq == 0 || d.Reason == "" {
		return errors.New("seq and reason are required")
	}
	return nil
}

func (r RemoteRef) validate() error {
	if r.ID == "" || len(r.ID) > RemoteIDMaxBytes {
		return fmt.Errorf("remote.id of %d bytes, want 1 to %d", len(r.ID), RemoteIDMaxBytes)
	}
	if !utf8.ValidString(r.ID) || !utf8.ValidString(r.Account) {
		return errors.New("remote.id or remote.account is not UTF-8")
	}
	_, err := ParseJobKey(string(r.Key))
	return err
}

func number(name string, n int) error {
	if n < 1 || n > AttemptsMax {
		return fmt.Errorf("%s is %d, want 1 to %d", name, n, AttemptsMax)
	}
	return nil
}

func classed(n int, class string, texts ...string) error {
	if class == "" {
		return errors.New("class is required")
	}
	if err := bounded(append(texts, class)...); err != nil {
		return err
	}
	return number("n", n)
}

// textMaxBytes bounds each text that a record keeps. Writers cut far below it;
// without the bound one event could make a record that no bucket takes.
const textMaxBytes = 8 << 10

func bounded(texts ...string) error {
	for _, t := range texts {
		if len(t) > textMaxBytes {
			return fmt.Errorf("a text of %d bytes, limit %d", len(t), textMaxBytes)
		}
	}
	return nil
}

func effect(name string, g, n int) error {
	if name == "" {
		return errors.New("name is required")
	}
	if err := number("g", g); err != nil {
		return err
	}
	return number("n", n)
}
