package events

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that reads and writes as text ("15m0s").
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return fmt.Errorf("duration %.40q: want text such as 90s, 15m or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// Std returns the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// String writes the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// Contract is what a provider declares about itself, as far as the fold and
// Next depend on it. It is pinned in OpPrepared, so that a later change of the
// description never changes what an operation in flight was promised.
type Contract struct {
	// Idempotent: the same token never makes a second job within TokenRetention.
	Idempotent bool `json:"idempotent,omitempty"`
	// TokenRetention is how long the provider remembers a token; 0 with
	// Idempotent means for ever.
	TokenRetention Duration `json:"token_retention,omitempty"`
	// Lookup: a job can be found by our token or reference.
	Lookup bool `json:"lookup,omitempty"`
	// Status: a job can be read by its id. Without it a terminal webhook is the
	// only confirmation there is (assurance webhook_only).
	Status bool `json:"status,omitempty"`
	// Callback: the provider pushes to the URL that the create request carries.
	Callback bool `json:"callback,omitempty"`
	// RejectAuthoritative: a rejection settles even while an earlier attempt is
	// ambiguous.
	RejectAuthoritative bool `json:"reject_authoritative,omitempty"`
	// Result: a success carries a result that is collected before it settles.
	Result bool `json:"result,omitempty"`
	// ResultOnce: a result can be fetched a single time, so a fetch whose answer
	// was lost is for a person.
	ResultOnce bool `json:"result_once,omitempty"`
	// Cancel: a job can be asked to stop.
	Cancel bool `json:"cancel,omitempty"`
	// CancelIdempotent: a cancel call may be sent again after a lost answer.
	CancelIdempotent bool `json:"cancel_idempotent,omitempty"`
	// ReviewLate: an outcome that comes after the result clock ran out is for a
	// person; otherwise it is adopted and told as late.
	ReviewLate bool `json:"review_late,omitempty"`
	// FourEyes: who submitted an operation may not resolve its reviews.
	FourEyes bool `json:"four_eyes,omitempty"`
}

// Deadlines are the clocks of one operation. Each starts with an event, see
// Clock; zero StartBy means none.
type Deadlines struct {
	StartBy time.Time `json:"start_by,omitzero"`
	Create  Duration  `json:"create"`
	Recon   Duration  `json:"recon"`
	Result  Duration  `json:"result"`
	Cancel  Duration  `json:"cancel"`
	Confirm Duration  `json:"confirm"`
	Collect Duration  `json:"collect"`
}

// DefaultDeadlines returns the defaults of STATE-MACHINE.md section 0 for a
// contract: a provider that offers neither look-up nor token leaves nothing to
// wait for, so a person is asked after ten minutes instead of a day.
func DefaultDeadlines(c Contract) Deadlines {
	d := Deadlines{
		Create:  Duration(15 * time.Minute),
		Recon:   Duration(24 * time.Hour),
		Result:  Duration(time.Hour),
		Cancel:  Duration(10 * time.Minute),
		Confirm: Duration(15 * time.Minute),
		Collect: Duration(time.Hour),
	}
	if !c.Lookup && !c.Idempotent {
		d.Recon = Duration(10 * time.Minute)
	}
	return d
}

// Overlay returns d with every positive clock of o in its place.
func (d Deadlines) Overlay(o Deadlines) Deadlines {
	set := func(dst *Duration, v Duration) {
		if v > 0 {
			*dst = v
		}
	}
	if !o.StartBy.IsZero() {
		d.StartBy = o.StartBy
	}
	set(&d.Create, o.Create)
	set(&d.Recon, o.Recon)
	set(&d.Result, o.Result)
	set(&d.Cancel, o.Cancel)
	set(&d.Confirm, o.Confirm)
	set(&d.Collect, o.Collect)
	return d
}

// Policy is the pacing of one provider. It decides when, never what, so it is
// not pinned and may change at any restart.
type Policy struct {
	PollBase          time.Duration // first interval of a poll schedule; default 2 s
	PollCap           time.Duration // longest interval; default 60 s
	PollJitter        float64       // share of an interval that varies, 0 to 0.9; default 0.5
	RetryBase         time.Duration // first pause after a create or look-up that came to nothing; default 1 s
	RetryCap          time.Duration // longest such pause; default 60 s
	SendBudget        time.Duration // a decision may leave this long after its claim; default 10 s
	RequestTimeout    time.Duration // one exchange with the provider; default 30 s
	LeaseMargin       time.Duration // lease_until = send_by + RequestTimeout + LeaseMargin; default 5 s
	LookupDelay       time.Duration // a look-up covers an attempt that ended this long before it; default 5 s
	ReconcileInterval time.Duration // first interval of the slow reads behind a review; default 1 h
	ReconcileCap      time.Duration // longest such interval; default 24 h
	WatchWindow       time.Duration // a settled operation is read, slowly, this long; 0: not at all
}

// WithDefaults returns p with every zero replaced by its default.
func (p Policy) WithDefaults() Policy {
	def := func(dst *time.Duration, v time.Duration) {
		if *dst <= 0 {
			*dst = v
		}
	}
	def(&p.PollBase, 2*time.Second)
	def(&p.PollCap, time.Minute)
	def(&p.RetryBase, time.Second)
	def(&p.RetryCap, time.Minute)
	def(&p.SendBudget, 10*time.Second)
	def(&p.RequestTimeout, 30*time.Second)
	def(&p.LeaseMargin, 5*time.Second)
	def(&p.LookupDelay, 5*time.Second)
	def(&p.ReconcileInterval, time.Hour)
	def(&p.ReconcileCap, max(24*time.Hour, p.ReconcileInterval))
	if p.PollJitter <= 0 || p.PollJitter > 0.9 {
		p.PollJitter = 0.5
	}
	return p
}

// Blob is a JSON value inside an event, or the address of bytes too large for
// one. Exactly one of Inline and Ref is set.
type Blob struct {
	Inline      json.RawMessage `json:"inline,omitempty"`
	Ref         string          `json:"ref,omitempty"` // address in the object store, sha256:<hex>
	SHA256      string          `json:"sha256"`        // hex, of the bytes as received
	Size        int64           `json:"size_bytes"`
	ContentType string          `json:"content_type,omitempty"`
}

// InlineMaxBytes is the largest input or result that an event carries itself.
const InlineMaxBytes = 32 << 10

// RawMaxBytes is the largest raw webhook body that an event carries itself.
const RawMaxBytes = 64 << 10
