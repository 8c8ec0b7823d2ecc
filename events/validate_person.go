package events

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

func (*CancelRequested) Type() Type    { return TypeCancelRequested }
func (*CancelStarted) Type() Type      { return TypeCancelStarted }
func (*CancelAcknowledged) Type() Type { return TypeCancelAcked }
func (*CancelRefused) Type() Type      { return TypeCancelRefused }
func (*CancelAmbiguous) Type() Type    { return TypeCancelAmbiguous }
func (*CancelNotSent) Type() Type      { return TypeCancelNotSent }
func (*CollectStarted) Type() Type     { return TypeCollectStarted }
func (*ReviewResolved) Type() Type     { return TypeReviewResolved }
func (*Note) Type() Type               { return TypeNote }
func (*Archived) Type() Type           { return TypeArchived }
func (*OrphanExpired) Type() Type      { return TypeOrphanExpired }
func (*Held) Type() Type               { return TypeHeld }
func (*Released) Type() Type           { return TypeReleased }

// noteMaxBytes bounds what a person writes beside a decision.
const noteMaxBytes = 4 << 10

func (d *CancelRequested) validate() error {
	if d.ID == "" || len(d.ID) > wordMaxBytes {
		return fmt.Errorf("id of %d bytes, want 1 to %d", len(d.ID), wordMaxBytes)
	}
	return person(d.By, d.Reason+d.Expected)
}

func (d *CancelStarted) validate() error {
	if d.SendBy.IsZero() || d.LeaseUntil.Before(d.SendBy) {
		return errors.New("send_by and a later lease_until are required")
	}
	if err := number("n", d.N); err != nil {
		return err
	}
	return d.Remote.validate()
}

func (d *CancelAcknowledged) validate() error { return number("n", d.N) }

func (d *CancelRefused) validate() error {
	if d.Why != RefusalTerminal && d.Why != RefusalUnsupported {
		return fmt.Errorf("why is %.40q, want %s or %s", d.Why, RefusalTerminal, RefusalUnsupported)
	}
	if err := bounded(d.Code, d.Message); err != nil {
		return err
	}
	return number("n", d.N)
}

func (d *CancelAmbiguous) validate() error { return classed(d.N, d.Class, d.Detail) }
func (d *CancelNotSent) validate() error   { return classed(d.N, d.Class) }

func (d *CollectStarted) validate() error {
	if d.SendBy.IsZero() || d.LeaseUntil.Before(d.SendBy) {
		return errors.New("send_by and a later lease_until are required")
	}
	if err := number("g", d.G); err != nil {
		return err
	}
	return number("n", d.N)
}

func (d *ReviewResolved) validate() error {
	if d.ID == "" || len(d.ID) > wordMaxBytes {
		return fmt.Errorf("id of %d bytes, want 1 to %d", len(d.ID), wordMaxBytes)
	}
	if err := person(d.By, d.Note); err != nil {
		return err
	}
	switch d.Action {
	case ResolveBind, ResolveForeignCancel:
		if d.Remote == nil {
			return fmt.Errorf("%s needs remote", d.Action)
		}
		return d.Remote.validate()
	case ResolveAbsent:
		if d.Covers < 0 || d.Covers > AttemptsMax {
			return fmt.Errorf("covers is %d, want 0 to %d", d.Covers, AttemptsMax)
		}
	case ResolveExtend:
		if !d.Clock.known() || d.Until.IsZero() {
			return errors.New("extend needs clock and until")
		}
	case ResolveRetry, ResolveWaive:
		return number("g", d.G)
	case ResolveClose:
		if d.Disposition != OutcomeFailed && d.Disposition != OutcomeCancelled {
			return fmt.Errorf("disposition is %.40q, want %s or %s", d.Disposition, OutcomeFailed, OutcomeCancelled)
		}
	case ResolveAcknowledge:
		if d.G < 0 || d.G > AttemptsMax {
			return fmt.Errorf("g is %d, want 0 to %d", d.G, AttemptsMax)
		}
		return acknowledgeable(d.State)
	case ResolveDismiss:
		if d.Remote != nil {
			return d.Remote.validate()
		}
	default:
		return fmt.Errorf("action %.40q, want one of %v", d.Action, Resolutions())
	}
	return nil
}

// acknowledgeable says which states a person may declare: those that a provider
// could have ended a job in, or none, to go by the facts.
func acknowledgeable(s State) error {
	switch s {
	case "", StateSucceeded, StateFailed, StateCancelled:
		return nil
	default:
		return fmt.Errorf("state %.40q cannot be acknowledged, want %s, %s, %s or none", s, StateSucceeded, StateFailed, StateCancelled)
	}
}

func (d *Note) validate() error {
	if d.Text == "" {
		return errors.New("text is required")
	}
	return person(d.By, d.Text)
}

func (d *Archived) validate() error {
	if !d.State.Settled() || d.Outcome == "" || d.Fingerprint == "" {
		return errors.New("a settled state, outcome and fingerprint are required")
	}
	if len(d.HistorySHA256) != 64 || d.Archive == "" {
		return errors.New("history_sha256 (hex) and archive are required")
	}
	for _, s := range d.Settlements {
		if err := number("settlements.g", s.G); err != nil {
			return err
		}
	}
	return nil
}

func (d *OrphanExpired) validate() error { return d.Remote.validate() }

func (d *Held) validate() error {
	if d.Account == "" || d.Reason == "" {
		return errors.New("account and reason are required")
	}
	return nil
}

func (d *Released) validate() error {
	if d.Account == "" || d.Reason == "" {
		return errors.New("account and reason are required")
	}
	return nil
}

func person(by, text string) error {
	if by == "" || len(by) > wordMaxBytes || !utf8.ValidString(by) {
		return fmt.Errorf("by of %d bytes, want 1 to %d of UTF-8", len(by), wordMaxBytes)
	}
	if len(text) > noteMaxBytes || !utf8.ValidString(text) {
		return fmt.Errorf("a text of %d bytes, want at most %d of UTF-8", len(text), noteMaxBytes)
	}
	return nil
}
