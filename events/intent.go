package events

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// IntentMaxBytes bounds one intent as published.
const IntentMaxBytes = 1 << 20

// Bounds of the parts of an intent.
const (
	labelsMax     = 16
	labelMaxBytes = 128
	effectsMax    = 16
	wordMaxBytes  = 256
)

// Intent is what a producer asks for. As published it is a JSON object with
// exactly these fields; all but input are optional on a NATS subject, where the
// last token names the provider.
type Intent struct {
	OperationID OperationID `json:"operation_id"`
	Provider    Provider    `json:"provider"`
	// Account is the credential set to use; "" means "default".
	Account string `json:"account,omitempty"`
	// Input is what the provider's description renders into a request: a JSON
	// object. In a stored event it is empty when InputRef is set.
	Input json.RawMessage `json:"input,omitempty"`
	// InputRef is set by us for an input over InlineMaxBytes.
	InputRef *Blob `json:"input_ref,omitempty"`
	// AuthorizedBy says who stands behind it; it becomes the event's actor.
	AuthorizedBy string `json:"authorized_by,omitempty"`
	// Effects names the configured effects to run on settlement; nil means the
	// configured default, an empty list none.
	Effects   []string          `json:"effects,omitzero"` // an empty list is kept
	Labels    map[string]string `json:"labels,omitempty"`
	Deadlines Deadlines         `json:"deadlines,omitzero"`
}

// DefaultAccount is the credential set of an intent that names none.
const DefaultAccount = "default"

// RefusedKind says how an intent was refused.
type RefusedKind string

// Kinds of refusals.
const (
	RefusedInvalid  RefusedKind = "invalid"  // the intent itself is wrong
	RefusedMismatch RefusedKind = "mismatch" // the operation exists with another request
)

// RefusedError refuses an intent for good; a repeat gives the same answer.
type RefusedError struct {
	Kind      RefusedKind
	Operation OperationID // "" if it could not be read
	Field     string
	Reason    string
}

func (e *RefusedError) Error() string {
	if e.Field == "" {
		return "intent refused: " + e.Reason
	}
	return "intent refused: " + e.Field + ": " + e.Reason
}

// ParseIntent reads an intent strictly: one JSON object, no unknown or repeated
// field, every type right, every number fit for a fingerprint. provider is the
// one that the address named ("" if it named none); operation is used when the
// document has no operation_id. It returns a *RefusedError for every refusal.
func ParseIntent(data []byte, provider Provider, operation OperationID) (Intent, error) {
	in := Intent{Provider: provider, OperationID: operation}
	if err := in.parse(data); err != nil {
		named, bad := ParseOperationID(string(in.OperationID))
		if bad != nil {
			named = ""
		}
		return Intent{}, &RefusedError{Kind: RefusedInvalid, Operation: named, Field: err.Field, Reason: err.Reason}
	}
	return in, nil
}

func (in *Intent) parse(data []byte) *FieldError {
	if len(data) > IntentMaxBytes {
		return &FieldError{Reason: fmt.Sprintf("%d bytes, limit %d", len(data), IntentMaxBytes)}
	}
	if err := CheckJSON(data); err != nil {
		return asFieldError(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		return &FieldError{Reason: "want a JSON object with the fields of an intent"}
	}
	// operation_id first, so that every later refusal can name the operation.
	for _, name := range append([]string{"operation_id"}, slices.Sorted(maps.Keys(fields))...) {
		raw, ok := fields[name]
		if !ok {
			continue
		}
		if err := in.field(name, raw); err != nil {
			return err
		}
	}
	if err := in.validate(); err != nil {
		return asFieldError(err)
	}
	if in.Account == "" {
		in.Account = DefaultAccount
	}
	return nil
}

func (in *Intent) field(name string, raw json.RawMessage) *FieldError {
	var err error
	switch name {
	case "operation_id":
		var s string
		if e := decodeField(name, raw, &s, "a string"); e != nil {
			return e
		}
		if in.OperationID, err = ParseOperationID(s); err != nil {
			return &FieldError{Field: name, Reason: err.Error()}
		}
	case "provider":
		var s string
		if e := decodeField(name, raw, &s, "a string"); e != nil {
			return e
		}
		if in.Provider != "" && string(in.Provider) != s {
			return &FieldError{Field: name, Reason: fmt.Sprintf("is %.40q, but the address names %q", s, in.Provider)}
		}
		if in.Provider, err = ParseProvider(s); err != nil {
			return &FieldError{Field: name, Reason: err.Error()}
		}
	case "account":
		return decodeField(name, raw, &in.Account, "a string")
	case "authorized_by":
		return decodeField(name, raw, &in.AuthorizedBy, "a string")
	case "effects":
		return decodeField(name, raw, &in.Effects, "an array of strings")
	case "labels":
		return in.labels(raw)
	case "deadlines":
		return in.deadlines(raw)
	case "input":
		if b := bytes.TrimSpace(raw); len(b) == 0 || b[0] != '{' {
			return &FieldError{Field: name, Reason: "want a JSON object"}
		}
		if err := CheckNumbers(name, raw); err != nil {
			return asFieldError(err)
		}
		in.Input = raw
	default:
		return &FieldError{Field: name, Reason: "unknown field; known are operation_id, provider, account, input, authorized_by, effects, labels, deadlines"}
	}
	return nil
}

// labels refuses a null value, which the decoder would take for "".
func (in *Intent) labels(raw json.RawMessage) *FieldError {
	var labels map[string]*string
	if e := decodeField("labels", raw, &labels, "an object of strings"); e != nil {
		return e
	}
	in.Labels = make(map[string]string, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if labels[k] == nil {
			return &FieldError{Field: join("labels", k), Reason: "is null; leave it out or give a string"}
		}
		in.Labels[k] = *labels[k]
	}
	return nil
}

func (in *Intent) deadlines(raw json.RawMessage) *FieldError {
	var fields map[string]json.RawMessage
	if e := decodeField("deadlines", raw, &fields, "an object"); e != nil {
		return e
	}
	d := &in.Deadlines
	clocks := map[string]*Duration{"create": &d.Create, "recon": &d.Recon, "result": &d.Result, "cancel": &d.Cancel, "confirm": &d.Confirm, "collect": &d.Collect}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at := "deadlines." + name
		if name == "start_by" {
			if e := decodeField(at, fields[name], &d.StartBy, "a time such as 2026-01-02T15:04:05Z"); e != nil {
				return e
			}
			d.StartBy = d.StartBy.UTC()
			if y := d.StartBy.Year(); y < 1970 || y > 9999 {
				return &FieldError{Field: at, Reason: fmt.Sprintf("is in the year %d, want 1970 to 9999", y)}
			}
			continue
		}
		dst, ok := clocks[name]
		if !ok {
			return &FieldError{Field: at, Reason: "unknown clock; known are start_by, create, recon, result, cancel, confirm, collect"}
		}
		if e := decodeField(at, fields[name], dst, "a duration such as \"90s\", \"15m\" or \"24h\""); e != nil {
			return e
		}
		if *dst < Duration(time.Second) || *dst > Duration(365*24*time.Hour) {
			return &FieldError{Field: at, Reason: fmt.Sprintf("is %s, want 1s to 8760h", *dst)}
		}
	}
	return nil
}

func decodeField(name string, raw json.RawMessage, dst any, want string) *FieldError {
	if string(raw) == "null" {
		return &FieldError{Field: name, Reason: "is null; leave it out or give " + want}
	}
	if err := json.Unmarshal(raw, dst); err != nil {
		return &FieldError{Field: name, Reason: "want " + want}
	}
	return nil
}

// validate checks what both a fresh and a stored intent must obey.
func (in *Intent) validate() error {
	if in.OperationID == "" {
		return &FieldError{Field: "operation_id", Reason: "is required"}
	}
	if _, err := ParseOperationID(string(in.OperationID)); err != nil {
		return &FieldError{Field: "operation_id", Reason: err.Error()}
	}
	if in.Provider == "" {
		return &FieldError{Field: "provider", Reason: "is required"}
	}
	if _, err := ParseProvider(string(in.Provider)); err != nil {
		return &FieldError{Field: "provider", Reason: err.Error()}
	}
	if in.Input == nil && in.InputRef == nil {
		return &FieldError{Field: "input", Reason: "is required"}
	}
	if len(in.Account) > wordMaxBytes || len(in.AuthorizedBy) > wordMaxBytes {
		return &FieldError{Field: "authorized_by", Reason: fmt.Sprintf("account and authorized_by are limited to %d bytes", wordMaxBytes)}
	}
	if len(in.Effects) > effectsMax {
		return &FieldError{Field: "effects", Reason: fmt.Sprintf("%d names, limit %d", len(in.Effects), effectsMax)}
	}
	for i, name := range in.Effects {
		if name == "" || len(name) > wordMaxBytes {
			return &FieldError{Field: "effects", Reason: fmt.Sprintf("names are 1 to %d bytes", wordMaxBytes)}
		}
		if slices.Contains(in.Effects[:i], name) {
			return &FieldError{Field: "effects", Reason: fmt.Sprintf("names %.40q twice", name)}
		}
	}
	if len(in.Labels) > labelsMax {
		return &FieldError{Field: "labels", Reason: fmt.Sprintf("%d labels, limit %d", len(in.Labels), labelsMax)}
	}
	for k, v := range in.Labels {
		if k == "" || len(k) > labelMaxBytes || len(v) > labelMaxBytes {
			return &FieldError{Field: "labels", Reason: fmt.Sprintf("keys are 1 to %d bytes, values at most %d", labelMaxBytes, labelMaxBytes)}
		}
	}
	return nil
}

// Fingerprint identifies the request that an intent makes: provider, account,
// input and effects. Who asks, labels and deadlines may differ between repeats.
// Input must be inline. The error is a *RefusedError.
func (in *Intent) Fingerprint() (string, error) {
	b, err := marshal(struct {
		Provider Provider        `json:"provider"`
		Account  string          `json:"account"`
		Input    json.RawMessage `json:"input"`
		Effects  []string        `json:"effects"`
	}{in.Provider, in.Account, in.Input, in.Effects})
	if err == nil {
		var f string
		if f, err = Fingerprint(b); err == nil {
			return f, nil
		}
	}
	return "", &RefusedError{Kind: RefusedInvalid, Operation: in.OperationID, Field: "input", Reason: err.Error()}
}

// Receipt is the answer to a submitted intent.
type Receipt struct {
	OperationID OperationID `json:"operation_id"`
	Provider    Provider    `json:"provider"`
	Seq         uint64      `json:"seq"` // of op.prepared in the event stream
	// Replayed: the operation existed already with the same request.
	Replayed bool `json:"replayed,omitempty"`
}

func asFieldError(err error) *FieldError {
	if fe, ok := err.(*FieldError); ok {
		return fe
	}
	return &FieldError{Reason: err.Error()}
}
