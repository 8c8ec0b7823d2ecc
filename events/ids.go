package events

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// ErrInvalidID is wrapped by every Parse function of this package that refuses
// an identifier.
var ErrInvalidID = errors.New("invalid identifier")

// Provider is the configured name of one provider: 1 to 32 of [a-z0-9-]. It is
// a token of every subject, so its alphabet is NATS-safe by construction.
type Provider string

// OperationID is our identity for one intent: 1 to 64 of [A-Za-z0-9_-], unique
// over all providers of one installation. It doubles as the idempotency token.
type OperationID string

// JobKey names a remote job without carrying its id into a subject: the first
// 26 characters of lower-case base32 over SHA-256(provider, account, remote id).
type JobKey string

var (
	providerPattern  = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
	operationPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	jobKeyPattern    = regexp.MustCompile(`^[a-z2-7]{26}$`)
	inboxPattern     = regexp.MustCompile(`^[0-9A-Za-z]{26}$`)
)

// RemoteIDMaxBytes bounds what a provider may call its job. Longer ids are
// refused where they are read; they never enter a subject in any case.
const RemoteIDMaxBytes = 512

// ParseProvider returns s as a Provider, or an error that wraps ErrInvalidID.
func ParseProvider(s string) (Provider, error) {
	if !providerPattern.MatchString(s) {
		return "", fmt.Errorf("%w: provider %.80q must be 1 to 32 of a-z, 0-9 and '-'", ErrInvalidID, s)
	}
	return Provider(s), nil
}

// ParseOperationID returns s as an OperationID, or an error that wraps
// ErrInvalidID.
func ParseOperationID(s string) (OperationID, error) {
	if !operationPattern.MatchString(s) {
		return "", fmt.Errorf("%w: operation id %.80q must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'", ErrInvalidID, s)
	}
	return OperationID(s), nil
}

// ParseJobKey returns s as a JobKey, or an error that wraps ErrInvalidID.
func ParseJobKey(s string) (JobKey, error) {
	if !jobKeyPattern.MatchString(s) {
		return "", fmt.Errorf("%w: job key %.80q must be 26 of a-z and 2-7", ErrInvalidID, s)
	}
	return JobKey(s), nil
}

// NewOperationID makes `op_` and a ULID from the given instant and entropy.
func NewOperationID(now time.Time, entropy io.Reader) (OperationID, error) {
	id, err := NewULID(now, entropy)
	if err != nil {
		return "", err
	}
	return OperationID("op_" + id), nil
}

// NewULID makes a ULID from the given instant and entropy. It fails only when
// the entropy source does.
func NewULID(now time.Time, entropy io.Reader) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), entropy)
	if err != nil {
		return "", fmt.Errorf("new ulid: %w", err)
	}
	return id.String(), nil
}

// MakeJobKey derives the key of a remote job. account is the credential set
// whose secret verified it, so that two accounts of one provider never share a
// job even when their ids collide.
func MakeJobKey(p Provider, account, remoteID string) JobKey {
	return JobKey(digest26(string(p), account, remoteID))
}

// HashID derives a NATS-safe identifier of 26 characters from parts of any
// content. The parts are separated unambiguously.
func HashID(parts ...string) string { return digest26(parts...) }

func digest26(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// The length goes first: a part may hold any byte, a provider's id too.
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // a hash never fails
	}
	s := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
	return strings.ToLower(s[:26])
}
