package events

import (
	"context"
	"errors"
	"time"
)

// The ports are what the spokes need from outside. Package streams implements
// the ones over JetStream, the simulator implements all of them in memory.

// ErrUnavailable means that the ledger or the bucket cannot be reached or
// refuses to store (no leader, disk full, account limit). Nothing is known to
// be stored; the caller must not acknowledge anything to anybody.
var ErrUnavailable = errors.New("ledger unavailable")

// ErrNotFound means that the record asked for does not exist.
var ErrNotFound = errors.New("not found")

// ErrConflict means that another writer changed what a commit expected.
var ErrConflict = errors.New("conflict with another writer")

// AppendOutcome says what became of an append. None of them is an error.
type AppendOutcome int

const (
	// Stored: the event is durable, at Appended.Seq.
	Stored AppendOutcome = iota + 1
	// Duplicate: evidence with this id and this content was durable already.
	Duplicate
	// Fenced: a decision lost; somebody appended to the subject after the
	// sequence that the decider had folded. Nothing of ours is stored.
	Fenced
	// Collision: evidence with this id but another content exists. The event
	// was stored under a suffixed id, at Appended.Seq.
	Collision
)

// String returns the outcome as a metric label.
func (o AppendOutcome) String() string {
	switch o {
	case Stored:
		return "stored"
	case Duplicate:
		return "duplicate"
	case Fenced:
		return "fenced"
	case Collision:
		return "collision"
	default:
		return "unknown"
	}
}

// Appended is the answer to an append.
type Appended struct {
	Outcome AppendOutcome
	// Seq is the stream sequence: of the event for Stored and Collision, of the
	// earlier copy for Duplicate, of the event that won for Fenced.
	Seq uint64
	// Winner is what stands where a fenced decision wanted to stand, nil for
	// every other outcome.
	Winner *Recorded
}

// Decider appends decisions.
type Decider interface {
	// Decide appends a decision to its subject if the last message there is
	// still at sequence expected (0: there is none). The event carries a fresh
	// Claim per call. For OpPrepared the expectation covers the operation under
	// every provider. An error means that the outcome is unknown when the
	// context ended (it wraps the context's error and ErrUnavailable) or that
	// the event is invalid.
	Decide(ctx context.Context, expected uint64, e Event) (Appended, error)
}

// Recorder appends evidence.
type Recorder interface {
	// Record appends evidence, unfenced, deduplicated by the event's id. An
	// error means that the event is invalid or may not be stored; it then wraps
	// ErrUnavailable and the caller repeats it later under the same id.
	Record(ctx context.Context, e Event) (Appended, error)
}

// Reader reads history back from the leader.
type Reader interface {
	// Read returns the events of one subject in stream order, at most limit of
	// them, beginning after sequence after. No events is no error.
	Read(ctx context.Context, s Subject, after uint64, limit int) ([]Recorded, error)
}

// Objects holds what is too large for an event, by content hash.
type Objects interface {
	// Put stores data and returns its address, `sha256:<hex>`. Storing the same
	// bytes again is no error.
	Put(ctx context.Context, data []byte) (string, error)
	// Get returns the bytes of an address, or ErrNotFound. It verifies the hash.
	Get(ctx context.Context, address string) ([]byte, error)
}

// Tail is the whole event stream in order.
type Tail interface {
	// Next blocks until at least one event is there and returns up to limit of
	// those that wait, in stream order, without gap. A message that cannot be
	// decoded comes with Err set. It returns the context's error when it ends,
	// and ErrUnavailable when the stream cannot be read for now.
	Next(ctx context.Context, limit int) ([]Recorded, error)
}

// Checkpoint says how far a bucket has folded its stream.
type Checkpoint struct {
	LedgerID    string `json:"ledger_id"`
	Seq         uint64 `json:"seq"`          // last folded sequence, 0: none
	EventID     string `json:"event_id"`     // id of the event at Seq; "" for one that could not be decoded
	FoldVersion int    `json:"fold_version"` // FoldVersion of the code that wrote it
	Owner       string `json:"owner"`        // fresh for each take-over
}

// Change is one key of a commit.
type Change struct {
	Key   string
	Value []byte
	// Revision is what the key must still have; 0: the key must not exist.
	Revision uint64
}

// Bucket is the derived state: jobs, remote jobs and the checkpoint.
type Bucket interface {
	// Checkpoint returns the checkpoint and its revision, 0 for an empty bucket.
	Checkpoint(ctx context.Context) (Checkpoint, uint64, error)
	// Load returns a key's value and revision, or ErrNotFound.
	Load(ctx context.Context, key string) ([]byte, uint64, error)
	// Commit writes the changes and the checkpoint, all or nothing as far as a
	// reader of the checkpoint can tell. It returns the new revisions of the
	// changes and of the checkpoint, or ErrConflict if anything had moved.
	Commit(ctx context.Context, changes []Change, c Checkpoint, revision uint64) ([]uint64, uint64, error)
}

// Request is one call to somebody else's HTTP API, as a plain value.
type Request struct {
	Method string
	URL    string
	// Header holds canonical names. Credentials are not in it; see Secret.
	Header map[string]string
	Body   []byte
	// Secret names the header that carries a credential, and its value. The
	// caller of the network adds it last, so that it is part of no hash, log or
	// event. Empty: none.
	SecretHeader string
	SecretValue  Secret
	// SendBy is the last instant at which a first byte may leave; zero: none.
	SendBy time.Time
	// Timeout bounds the whole exchange; 0: the caller's default.
	Timeout time.Duration
	// ResponseMaxBytes bounds the body; 0: the caller's default.
	ResponseMaxBytes int64
}

// CallFailure says why there is no complete answer.
type CallFailure string

// Why a call has no complete answer.
const (
	// CallNotSent: not one byte left this machine (dial, TLS, late).
	CallNotSent CallFailure = "not_sent"
	// CallTimeout: something left, and no answer came in time.
	CallTimeout CallFailure = "timeout"
	// CallBroken: something left, and the connection broke.
	CallBroken CallFailure = "connection_broken"
	// CallTruncated: an answer began and its body did not arrive whole.
	CallTruncated CallFailure = "truncated"
	// CallTooLarge: the body is larger than the limit.
	CallTooLarge CallFailure = "too_large"
)

// Response is an answer, or the reason why there is none.
type Response struct {
	Status  int // 0 when no status line arrived
	Header  map[string][]string
	Body    []byte
	Failure CallFailure // "": complete
	Detail  string      // redacted text for people; no URL query, no header
}

// Caller makes one outgoing call. It never retries, never follows a redirect,
// and returns a value for every outcome.
type Caller interface {
	Call(ctx context.Context, r Request) Response
}

// Secret is a value that must not be shown. Every way of printing it gives
// [redacted]; Reveal gives the value.
type Secret struct{ value string }

// NewSecret wraps a value.
func NewSecret(value string) Secret { return Secret{value: value} }

// Reveal returns the value. Call it where the value leaves for its purpose.
func (s Secret) Reveal() string { return s.value }

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == "" }

// String implements fmt.Stringer and hides the value.
func (s Secret) String() string { return "[redacted]" }

// GoString implements fmt.GoStringer and hides the value.
func (s Secret) GoString() string { return "[redacted]" }

// MarshalText implements encoding.TextMarshaler and hides the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }
