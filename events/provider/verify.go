package provider

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Header is an HTTP header as a plain value. Names match in any case.
type Header map[string][]string

// only returns the value of a header and how many there are. With more than one
// there is no value: two are a way to show one to the verifier and another to
// the reader.
func (h Header) only(name string) (string, int) {
	var value string
	n := 0
	for k, v := range h {
		if strings.EqualFold(k, name) && len(v) > 0 {
			n += len(v)
			value = v[0]
		}
	}
	if n != 1 {
		return "", n
	}
	return value, 1
}

// flat gives lower-case names and first values, for expressions. A name that
// stands there in two spellings is left out: which is first would be chance.
func (h Header) flat() map[string]string {
	out := make(map[string]string, len(h))
	twice := map[string]bool{}
	for k, v := range h {
		lower := strings.ToLower(k)
		if _, ok := out[lower]; ok {
			twice[lower] = true
		}
		if len(v) > 0 {
			out[lower] = v[0]
		}
	}
	for k := range twice {
		delete(out, k)
	}
	return out
}

// VerifyReason says which step of a verification failed. It is for our own logs
// and metrics; the sender is told nothing.
type VerifyReason string

// Reasons of a refusal.
const (
	ReasonMissingHeader      VerifyReason = "missing_header"
	ReasonMalformedSignature VerifyReason = "malformed_signature"
	ReasonMalformedTimestamp VerifyReason = "malformed_timestamp"
	ReasonStaleTimestamp     VerifyReason = "stale_timestamp"
	ReasonFutureTimestamp    VerifyReason = "future_timestamp"
	ReasonSignatureMismatch  VerifyReason = "signature_mismatch"
	ReasonUnsupportedVersion VerifyReason = "unsupported_version"
)

// VerifyError refuses a message.
type VerifyError struct{ Reason VerifyReason }

func (e *VerifyError) Error() string { return "verify webhook: " + string(e.Reason) }

// Presets of schemes.
const (
	// PresetStandardWebhooks is Standard Webhooks 1.0 with symmetric keys (v1).
	PresetStandardWebhooks = "standard_webhooks"
	// PresetHub is sha256=<hex HMAC-SHA256 of the body> in one header, as GitHub
	// sends it.
	PresetHub = "hub"
)

// Scheme is how a sender signs.
type Scheme struct {
	Preset       string
	Header       string        // hub: the header of the signature
	HeaderPrefix string        // standard_webhooks: webhook- (default) or svix-
	Tolerance    time.Duration // standard_webhooks: both directions; 0: 5 minutes
}

// Bounds of the signed headers.
const (
	signaturesMax  = 16
	headerMaxBytes = 4096
	keyMinBytes    = 16
	keysMax        = 5
)

// Verifier checks signatures over raw bytes with every active secret.
type Verifier struct {
	scheme Scheme
	keys   [][]byte
}

// NewVerifier decodes the secrets. Standard Webhooks secrets are whsec_ and
// base64; the prefix may be missing. Hub secrets are the key as text.
func NewVerifier(s Scheme, secrets []events.Secret) (*Verifier, error) {
	if len(secrets) == 0 || len(secrets) > keysMax {
		return nil, fmt.Errorf("%d secrets, want 1 to %d", len(secrets), keysMax)
	}
	s = s.withDefaults()
	if err := s.check(); err != nil {
		return nil, err
	}
	v := &Verifier{scheme: s}
	for i, secret := range secrets {
		key := []byte(secret.Reveal())
		if s.Preset == PresetStandardWebhooks {
			var err error
			text := strings.TrimPrefix(secret.Reveal(), "whsec_")
			if key, err = base64.StdEncoding.DecodeString(text); err != nil {
				if key, err = base64.RawStdEncoding.DecodeString(text); err != nil {
					return nil, fmt.Errorf("secret %d is not whsec_ and base64", i+1)
				}
			}
			if len(key) < keyMinBytes {
				return nil, fmt.Errorf("secret %d has %d bytes, want at least %d", i+1, len(key), keyMinBytes)
			}
		}
		if len(key) == 0 {
			return nil, fmt.Errorf("secret %d is empty", i+1)
		}
		v.keys = append(v.keys, key)
	}
	return v, nil
}

// Verify returns nil or a *VerifyError. The body is the raw bytes as received.
func (v *Verifier) Verify(h Header, body []byte, now time.Time) error {
	if v.scheme.Preset == PresetHub {
		return v.verifyHub(h, body)
	}
	return v.verifyStandard(h, body, now)
}

// verifyHub checks sha256=<hex>. The algorithm is pinned: the prefix of the
// header does not choose it.
func (v *Verifier) verifyHub(h Header, body []byte) error {
	value, n := h.only(v.scheme.Header)
	switch {
	case n > 1:
		return &VerifyError{ReasonMalformedSignature}
	case value == "":
		return &VerifyError{ReasonMissingHeader}
	}
	text, ok := strings.CutPrefix(value, "sha256=")
	got, err := hex.DecodeString(text)
	if !ok || err != nil || len(got) != sha256.Size {
		return &VerifyError{ReasonMalformedSignature}
	}
	if !v.match([][]byte{got}, "", body) {
		return &VerifyError{ReasonSignatureMismatch}
	}
	return nil
}

// verifyStandard checks Standard Webhooks 1.0: v1 signatures over id, timestamp
// and body. Other versions in the list are skipped.
func (v *Verifier) verifyStandard(h Header, body []byte, now time.Time) error {
	id, ids := h.only(v.scheme.HeaderPrefix + "id")
	ts, times := h.only(v.scheme.HeaderPrefix + "timestamp")
	list, lists := h.only(v.scheme.HeaderPrefix + "signature")
	switch {
	case ids > 1 || lists > 1 || len(id) > headerMaxBytes || len(list) > headerMaxBytes:
		return &VerifyError{ReasonMalformedSignature}
	case times > 1:
		return &VerifyError{ReasonMalformedTimestamp}
	case id == "" || ts == "" || list == "":
		return &VerifyError{ReasonMissingHeader}
	}
	secs, err := strconv.ParseInt(ts, 10, 64)
	if err != nil || strconv.FormatInt(secs, 10) != ts {
		return &VerifyError{ReasonMalformedTimestamp}
	}
	tolerance := int64(v.scheme.Tolerance / time.Second)
	switch {
	case secs < now.Unix()-tolerance:
		return &VerifyError{ReasonStaleTimestamp}
	case secs > now.Unix()+tolerance:
		return &VerifyError{ReasonFutureTimestamp}
	}
	given, reason := signatures(list)
	if len(given) == 0 {
		return &VerifyError{reason}
	}
	if !v.match(given, id+"."+ts+".", body) {
		return &VerifyError{ReasonSignatureMismatch}
	}
	return nil
}

// signatures reads the v1 entries of a list. Unreadable entries and other
// versions are skipped, because senders add some while they change keys; without
// any left it says why.
func signatures(list string) ([][]byte, VerifyReason) {
	var out [][]byte
	reason := ReasonMalformedSignature
	for i, entry := range strings.Fields(list) {
		if i >= signaturesMax {
			break
		}
		version, text, ok := strings.Cut(entry, ",")
		switch {
		case !ok || text == "":
			continue
		case version != "v1":
			if reason == ReasonMalformedSignature {
				reason = ReasonUnsupportedVersion
			}
			continue
		}
		sig, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			reason = ReasonSignatureMismatch // it is there, and no key gives it
			continue
		}
		out = append(out, sig)
	}
	return out, reason
}

// match compares every key with every signature, without leaving early, so that
// the time does not tell which one was close.
func (v *Verifier) match(given [][]byte, prefix string, body []byte) bool {
	ok := false
	for _, key := range v.keys {
		h := hmac.New(sha256.New, key)
		_, _ = h.Write([]byte(prefix)) // a hash never fails
		_, _ = h.Write(body)
		want := h.Sum(nil)
		for _, g := range given {
			if hmac.Equal(g, want) {
				ok = true
			}
		}
	}
	return ok
}

// ErrNoWebhookSecret refuses webhooks of a provider without secrets.
var ErrNoWebhookSecret = errors.New("no webhook secret is configured")

// Verify checks a message and returns the account whose secret verified it. The
// error is a *VerifyError, or ErrNoWebhookSecret.
func (p *Provider) Verify(h Header, body []byte, now time.Time) (string, error) {
	if p.verifier == nil {
		return "", ErrNoWebhookSecret
	}
	if err := p.verifier.Verify(h, body, now); err != nil {
		return "", err
	}
	return p.s.Account, nil
}
