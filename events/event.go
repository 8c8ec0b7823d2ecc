package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// ErrInvalidEvent is wrapped by every refusal of Encode and Decode.
var ErrInvalidEvent = errors.New("invalid event")

// ErrUnknownType is wrapped when a well-formed event has a type or version that
// this code does not know. It folds as nothing.
var ErrUnknownType = errors.New("unknown event type")

// EventMaxBytes bounds one encoded event.
const EventMaxBytes = 512 << 10

// Event is one immutable fact: a CloudEvents 1.0 document.
type Event struct {
	// ID is made from the cause, so that a repeat makes the same id.
	ID string
	// Subject is where the event stands; it carries provider and operation.
	Subject Subject
	// Time is when the writer saw or decided it, UTC.
	Time time.Time
	// Actor is who wrote it: a role ("reconciler"), or a person for an intent.
	Actor string
	// Claim is a ULID, fresh for each Decide call, so that two decisions are
	// never the same bytes. Empty for evidence.
	Claim string
	// Cause is the id of the event that led to this one, if one did.
	Cause string
	// Trace is a W3C traceparent, the same for every call of an operation.
	Trace string
	// Critical: whoever does not know the type must not act on the operation.
	// Set by later versions of this code; kept here so that it is obeyed.
	Critical bool
	// Data is the payload; its type is the event's type.
	Data Data
}

// Recorded is an event as the stream holds it.
type Recorded struct {
	Seq   uint64    // stream sequence, from 1
	At    time.Time // when the stream stored it, UTC
	Event Event
	// Bytes is the message as stored. Nobody mutates it.
	Bytes []byte
	// Err is set when Bytes could not be decoded; Event then holds the Subject
	// alone, as far as the address could be read.
	Err error
}

const (
	typePrefix = "dev.pawl."
	typeSuffix = ".v1"
)

// wire is the JSON form. Attribute names follow CloudEvents: lower-case
// letters and digits.
type wire struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Actor           string          `json:"actor,omitempty"`
	Claim           string          `json:"claim,omitempty"`
	Cause           string          `json:"cause,omitempty"`
	TraceParent     string          `json:"traceparent,omitempty"`
	Critical        bool            `json:"critical,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// newData makes an empty payload for each known type. Decode fills it.
var newData = map[Type]func() Data{
	TypeGenesis:         func() Data { return new(Genesis) },
	TypePrepared:        func() Data { return new(Prepared) },
	TypeAttemptStarted:  func() Data { return new(AttemptStarted) },
	TypeAccepted:        func() Data { return new(Accepted) },
	TypeRejected:        func() Data { return new(Rejected) },
	TypeAmbiguous:       func() Data { return new(Ambiguous) },
	TypeNotSent:         func() Data { return new(NotSent) },
	TypeThrottled:       func() Data { return new(Throttled) },
	TypeReconFound:      func() Data { return new(ReconFound) },
	TypeReconAbsent:     func() Data { return new(ReconAbsent) },
	TypeReconFailed:     func() Data { return new(ReconFailed) },
	TypeObserved:        func() Data { return new(Observed) },
	TypeUnrecognised:    func() Data { return new(Unrecognised) },
	TypeGone:            func() Data { return new(Gone) },
	TypePollDeferred:    func() Data { return new(PollDeferred) },
	TypePollAudit:       func() Data { return new(PollAudit) },
	TypeDeadlinePassed:  func() Data { return new(DeadlinePassed) },
	TypeResultStored:    func() Data { return new(ResultStored) },
	TypeResultUnavail:   func() Data { return new(ResultUnavailable) },
	TypeResultInvalid:   func() Data { return new(ResultInvalid) },
	TypeSettled:         func() Data { return new(Settled) },
	TypeReviewOpened:    func() Data { return new(ReviewOpened) },
	TypeEffectClaimed:   func() Data { return new(EffectClaimed) },
	TypeEffectAttempted: func() Data { return new(EffectAttempted) },
	TypeEffectDone:      func() Data { return new(EffectDone) },
	TypeEffectDead:      func() Data { return new(EffectDead) },
	TypeCancelRequested: func() Data { return new(CancelRequested) },
	TypeCancelStarted:   func() Data { return new(CancelStarted) },
	TypeCancelAcked:     func() Data { return new(CancelAcknowledged) },
	TypeCancelRefused:   func() Data { return new(CancelRefused) },
	TypeCancelAmbiguous: func() Data { return new(CancelAmbiguous) },
	TypeCancelNotSent:   func() Data { return new(CancelNotSent) },
	TypeCollectStarted:  func() Data { return new(CollectStarted) },
	TypeReviewResolved:  func() Data { return new(ReviewResolved) },
	TypeNote:            func() Data { return new(Note) },
	TypeArchived:        func() Data { return new(Archived) },
	TypeOrphanExpired:   func() Data { return new(OrphanExpired) },
	TypeHeld:            func() Data { return new(Held) },
	TypeReleased:        func() Data { return new(Released) },
	TypeIntentRefused:   func() Data { return new(IntentRefused) },
	TypeUnreadable:      func() Data { return new(WebhookUnreadable) },
	TypeParked:          func() Data { return new(EventParked) },
}

// Encode validates the event and writes it as CloudEvents structured JSON. The
// error wraps ErrInvalidEvent.
func Encode(e Event) ([]byte, error) {
	if err := e.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	data, err := marshal(e.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: encode data: %w", ErrInvalidEvent, err)
	}
	b, err := marshal(wire{
		SpecVersion:     "1.0",
		ID:              e.ID,
		Source:          "pawl/" + e.source(),
		Type:            typePrefix + string(e.Data.Type()) + typeSuffix,
		Subject:         e.Subject.String(),
		Time:            e.Time.UTC(),
		DataContentType: "application/json",
		Actor:           e.Actor,
		Claim:           e.Claim,
		Cause:           e.Cause,
		TraceParent:     e.Trace,
		Critical:        e.Critical,
		Data:            data,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: encode: %w", ErrInvalidEvent, err)
	}
	if len(b) > EventMaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrInvalidEvent, len(b), EventMaxBytes)
	}
	return b, nil
}

// Decode reads what Encode wrote and validates it again. The error wraps
// ErrInvalidEvent, or ErrUnknownType for a type or version from elsewhere; the
// subject and id are then still filled in where they could be read.
func Decode(b []byte) (Event, error) {
	var w wire
	if len(b) > EventMaxBytes {
		return Event{}, fmt.Errorf("%w: %d bytes, limit %d", ErrInvalidEvent, len(b), EventMaxBytes)
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return Event{}, fmt.Errorf("%w: decode: %w", ErrInvalidEvent, err)
	}
	s, err := ParseSubject(w.Subject)
	if err != nil {
		return Event{}, fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	e := Event{ID: w.ID, Subject: s, Time: w.Time.UTC(), Actor: w.Actor, Claim: w.Claim, Cause: w.Cause, Trace: w.TraceParent, Critical: w.Critical}
	if w.SpecVersion != "1.0" {
		return e, fmt.Errorf("%w: specversion %.20q", ErrUnknownType, w.SpecVersion)
	}
	name, ok := strings.CutPrefix(w.Type, typePrefix)
	if ok {
		name, ok = strings.CutSuffix(name, typeSuffix)
	}
	makeData := newData[Type(name)]
	if !ok || makeData == nil {
		return e, fmt.Errorf("%w: %.80q", ErrUnknownType, w.Type)
	}
	e.Data = makeData()
	if err := json.Unmarshal(w.Data, e.Data); err != nil {
		return e, fmt.Errorf("%w: data of %s: %w", ErrInvalidEvent, name, err)
	}
	if err := e.validate(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrInvalidEvent, err)
	}
	return e, nil
}

// ContentHash is SHA-256, in hex, over what an event says: type, subject and
// data, not who wrote it when. Two events with one id and one content are
// copies.
func ContentHash(e Event) (string, error) {
	data, err := marshal(e.Data)
	if err != nil {
		return "", fmt.Errorf("%w: encode data: %w", ErrInvalidEvent, err)
	}
	h := sha256.New()
	_, _ = h.Write([]byte(e.Data.Type()))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(e.Subject.String()))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(data)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// SameAnnouncement reports whether two events announce the same thing with the
// same id, whoever claimed it: a settlement or a review that a second
// reconciler derived from the same facts.
func SameAnnouncement(a, b Event) bool {
	if a.ID != b.ID || a.Data == nil || b.Data == nil || a.Data.Type() != b.Data.Type() {
		return false
	}
	switch x := a.Data.(type) {
	case *Settled:
		y := b.Data.(*Settled)
		return x.G == y.G && x.State == y.State
	case *ReviewOpened:
		y := b.Data.(*ReviewOpened)
		return x.ID == y.ID && x.State == y.State
	default:
		return false
	}
}

// SameBytes reports whether two encoded events are identical.
func SameBytes(a, b []byte) bool { return bytes.Equal(a, b) }

func (e Event) source() string {
	if e.Subject.Provider == "" {
		return "ledger"
	}
	return string(e.Subject.Provider)
}

func (e Event) validate() error {
	if e.Data == nil {
		return errors.New("no data")
	}
	if e.ID == "" || len(e.ID) > 512 {
		return fmt.Errorf("id of %d bytes, want 1 to 512", len(e.ID))
	}
	if !utf8.ValidString(e.ID) || strings.ContainsFunc(e.ID, unicode.IsControl) {
		return errors.New("id contains a control character or is not UTF-8")
	}
	if e.Time.IsZero() {
		return errors.New("no time")
	}
	if y := e.Time.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("time in the year %d cannot be written", y)
	}
	if len(e.Actor) > 256 {
		return fmt.Errorf("actor of %d bytes, limit 256", len(e.Actor))
	}
	if want := kindOf(e.Data.Type()); want != "" && e.Subject.Kind != want {
		if e.Data.Type() != TypeSettled || e.Subject.Kind != SubjectSettled {
			return fmt.Errorf("%s on subject %s, want kind %s", e.Data.Type(), e.Subject, want)
		}
	}
	if _, err := ParseSubject(e.Subject.String()); err != nil {
		return err
	}
	if err := e.Data.validate(); err != nil {
		return fmt.Errorf("%s: %w", e.Data.Type(), err)
	}
	if err := e.belongs(); err != nil {
		return fmt.Errorf("%s on subject %s: %w", e.Data.Type(), e.Subject, err)
	}
	return nil
}

// belongs checks that the payload is about what the subject names: the fold
// files by the one and reads the other.
func (e Event) belongs() error {
	switch d := e.Data.(type) {
	case *Prepared:
		if d.Intent.Provider != e.Subject.Provider || string(d.Intent.OperationID) != e.Subject.Key {
			return errors.New("the intent names another operation")
		}
	case *Settled:
		if e.Subject.Kind == SubjectSettled && d.G != e.Subject.G {
			return fmt.Errorf("settlement is %d", d.G)
		}
	case *Held:
		return e.ofAccount(d.Account)
	case *Released:
		return e.ofAccount(d.Account)
	}
	ref := refOf(e.Data)
	if ref == nil {
		return nil
	}
	if ref.Key != MakeJobKey(e.Subject.Provider, ref.Account, ref.ID) {
		return errors.New("remote.key is not the key of remote.account and remote.id")
	}
	if e.Subject.Kind == SubjectJob && string(ref.Key) != e.Subject.Key {
		return errors.New("remote.key is another job's")
	}
	return nil
}

func (e Event) ofAccount(account string) error {
	if AccountSubject(e.Subject.Provider, account) != e.Subject {
		return errors.New("the subject is not the account's")
	}
	return nil
}

// refOf returns the remote job that a payload is about, nil if it is about none.
func refOf(d Data) *RemoteRef {
	switch d := d.(type) {
	case *Accepted:
		return &d.Remote
	case *ReconFound:
		return &d.Remote
	case *Observed:
		return &d.Remote
	case *Unrecognised:
		return &d.Remote
	case *Gone:
		return &d.Remote
	case *PollDeferred:
		return &d.Remote
	case *PollAudit:
		return &d.Remote
	case *OrphanExpired:
		return &d.Remote
	case *CancelStarted:
		return &d.Remote
	case *ReviewResolved:
		return d.Remote
	default:
		return nil
	}
}

// kindOf says on which kind of subject a type stands.
func kindOf(t Type) SubjectKind {
	switch t {
	case TypeGenesis:
		return SubjectLedger
	case TypeObserved, TypeUnrecognised, TypeGone, TypePollDeferred, TypePollAudit, TypeOrphanExpired:
		return SubjectJob
	case TypeHeld, TypeReleased:
		return SubjectAccount
	case TypeIntentRefused, TypeUnreadable, TypeParked:
		return SubjectInbox
	default:
		return SubjectOperation
	}
}
