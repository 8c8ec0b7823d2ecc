package events

import (
	"bytes"
	"time"
	"unicode/utf8"
)

// Type names what happened. On the wire it is "dev.pawl.<type>.v1".
type Type string

// The event types. The comment says who writes it and whether it is a decision
// (fenced) or evidence (deduplicated).
const (
	TypeGenesis         Type = "ledger.genesis"         // decision: first message of a stream
	TypePrepared        Type = "op.prepared"            // decision: the intent door
	TypeAttemptStarted  Type = "create.attempt_started" // decision: the reconciler, before a create leaves
	TypeAccepted        Type = "create.accepted"        // evidence: the provider named its job
	TypeRejected        Type = "create.rejected"        // evidence: the provider refused
	TypeAmbiguous       Type = "create.ambiguous"       // evidence: nothing proves what happened
	TypeNotSent         Type = "create.not_sent"        // evidence: no byte left
	TypeThrottled       Type = "create.throttled"       // evidence: refused unprocessed, retry later
	TypeReconFound      Type = "recon.found"            // evidence: a job was bound by other means
	TypeReconAbsent     Type = "recon.absent"           // evidence: a look-up proved that there is none
	TypeReconFailed     Type = "recon.failed"           // evidence: a look-up gave no answer
	TypeObserved        Type = "remote.observed"        // evidence on the job: webhook, poll
	TypeUnrecognised    Type = "remote.unrecognised"    // evidence on the job: a status word without mapping
	TypeGone            Type = "remote.gone"            // evidence on the job: the provider no longer knows it
	TypePollDeferred    Type = "poll.deferred"          // evidence on the job: do not read before
	TypePollAudit       Type = "poll.audit"             // evidence on the job: unchanged reads, counted
	TypeDeadlinePassed  Type = "deadline.passed"        // evidence: a clock ran out
	TypeResultStored    Type = "result.stored"          // evidence: collected and validated
	TypeResultUnavail   Type = "result.unavailable"     // evidence: cannot be collected
	TypeResultInvalid   Type = "result.invalid"         // evidence: collected, fails a rule
	TypeSettled         Type = "op.settled"             // decision on the operation, then the public copy
	TypeReviewOpened    Type = "review.opened"          // decision: a person has to decide
	TypeEffectClaimed   Type = "effect.claimed"         // decision: the effects consumer, before an effect leaves
	TypeEffectAttempted Type = "effect.attempted"       // evidence: it did not work, again later
	TypeEffectDone      Type = "effect.done"            // evidence: the target took it
	TypeEffectDead      Type = "effect.dead"            // evidence: given up
	TypeCancelRequested Type = "cancel.requested"       // decision: somebody wants it stopped
	TypeCancelStarted   Type = "cancel.attempt_started" // decision: the reconciler, before a cancel call leaves
	TypeCancelAcked     Type = "cancel.acknowledged"    // evidence: the provider took it; not yet an outcome
	TypeCancelRefused   Type = "cancel.refused"         // evidence: the job is over, or cannot be cancelled
	TypeCancelAmbiguous Type = "cancel.ambiguous"       // evidence: nothing proves what happened
	TypeCancelNotSent   Type = "cancel.not_sent"        // evidence: nothing happened, again later
	TypeCollectStarted  Type = "result.attempt_started" // decision: the reconciler, before a result is fetched
	TypeReviewResolved  Type = "review.resolved"        // decision: what a person answered
	TypeNote            Type = "op.note"                // evidence: a remark of a person, changes nothing
	TypeArchived        Type = "op.archived"            // decision: the history is exported, this is what is left
	TypeOrphanExpired   Type = "orphan.expired"         // evidence on the job: nobody claimed it in time
	TypeHeld            Type = "provider.held"          // evidence on the account: send nothing
	TypeReleased        Type = "provider.released"      // evidence on the account: go on
	TypeIntentRefused   Type = "intent.refused"         // inbox
	TypeUnreadable      Type = "webhook.unreadable"     // inbox: verified, but not understood
	TypeParked          Type = "event.parked"           // inbox
)

// Data is the payload of one event type.
type Data interface {
	// Type names the event type that the payload belongs to.
	Type() Type
	// validate reports the first broken rule, or nil.
	validate() error
}

// RemoteRef names a remote job.
type RemoteRef struct {
	ID      string `json:"id"`      // the provider's word, at most RemoteIDMaxBytes
	Account string `json:"account"` // credential set
	Key     JobKey `json:"key"`     // MakeJobKey of the two
}

// Genesis opens a ledger.
type Genesis struct {
	LedgerID string `json:"ledger_id"` // ULID
}

// DescriptionRef pins the provider description that an operation was prepared
// with.
type DescriptionRef struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // hex, of the file
}

// Prepared stores an intent before anything leaves.
type Prepared struct {
	Intent        Intent         `json:"intent"`
	Fingerprint   string         `json:"fingerprint"` // sha256:<hex>, see Intent.Fingerprint
	Token         string         `json:"token"`       // idempotency token, the same for every attempt
	Description   DescriptionRef `json:"description"`
	RequestSHA256 string         `json:"request_sha256"` // hex, of the rendered request without credentials
	Contract      Contract       `json:"contract"`
	Deadlines     Deadlines      `json:"deadlines"` // resolved: description, then intent
}

// AttemptStarted is the decision to send create attempt N (from 1).
type AttemptStarted struct {
	N          int       `json:"n"`
	SendBy     time.Time `json:"send_by"`     // no first byte after it
	LeaseUntil time.Time `json:"lease_until"` // after it, others may call the attempt ambiguous
	// Window is the attempt that opened the create window this one belongs to:
	// itself if nothing was in doubt when it was decided, else the first attempt
	// since then. From 1 to N; 0 reads as N.
	Window int `json:"window,omitempty"`
}

// Accepted binds the job that the provider named in its answer.
type Accepted struct {
	N      int         `json:"n"`
	Remote RemoteRef   `json:"remote"`
	State  RemoteState `json:"state,omitempty"` // as answered; for display
}

// Rejected is a definite refusal.
type Rejected struct {
	N       int    `json:"n"`
	Class   string `json:"class"`             // e.g. invalid_request, token_payload_mismatch
	Status  int    `json:"status,omitempty"`  // HTTP status
	Code    string `json:"code,omitempty"`    // the provider's own code
	Message string `json:"message,omitempty"` // the provider's own words, at most 1 KiB
}

// Ambiguous says that an attempt ended without proof.
type Ambiguous struct {
	N      int    `json:"n"`
	Class  string `json:"class"` // e.g. timeout, server_error, unparsable_success, lease_expired
	Status int    `json:"status,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// NotSent says that not one byte of an attempt left.
type NotSent struct {
	N      int    `json:"n"`
	Class  string `json:"class"` // e.g. dial, late, credentials
	Detail string `json:"detail,omitempty"`
}

// Throttled says that the provider refused an attempt unprocessed.
type Throttled struct {
	N       int       `json:"n"`
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// ReconFound binds a job found by other means than the create answer.
type ReconFound struct {
	Remote RemoteRef `json:"remote"`
	Via    string    `json:"via"` // lookup, callback
}

// ReconAbsent proves that attempts up to Covers made no job.
type ReconAbsent struct {
	Covers int       `json:"covers"`
	AsOf   time.Time `json:"as_of"` // the look-up began here
}

// ReconFailed is a look-up that gave no answer.
type ReconFailed struct {
	Class  string `json:"class"`
	Detail string `json:"detail,omitempty"`
}

// Observed is one reading of a remote job.
type Observed struct {
	Remote  RemoteRef `json:"remote"`
	Reading Reading   `json:"reading"`
	// Reference is the operation that the provider's message names, if any.
	Reference *Reference `json:"reference,omitempty"`
	Delivery  string     `json:"delivery,omitempty"` // the sender's id of a webhook
	Raw       *Raw       `json:"raw,omitempty"`      // body of a webhook
}

// Reference is the operation that a callback URL names.
type Reference struct {
	Operation OperationID `json:"operation"`
	// Proven: the URL carried a valid mac and the message a valid signature.
	// Otherwise it is a hint, only shown.
	Proven bool `json:"proven,omitempty"`
}

// Unrecognised is a status word without mapping. The job keeps running.
type Unrecognised struct {
	Remote RemoteRef `json:"remote"`
	Status string    `json:"status"` // at most 128 bytes of the provider's word
	Source Source    `json:"source"`
}

// Gone is an authoritative answer that the job does not exist.
type Gone struct {
	Remote RemoteRef `json:"remote"`
	Status int       `json:"status"`
}

// PollDeferred says that no read is allowed or useful before Until.
type PollDeferred struct {
	Remote RemoteRef `json:"remote"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"` // retry_after, server_error, timeout, …
}

// PollAudit counts reads that changed nothing.
type PollAudit struct {
	Remote RemoteRef `json:"remote"`
	Count  int       `json:"count"`
	Since  time.Time `json:"since"`
}

// DeadlinePassed says that a clock ran out.
type DeadlinePassed struct {
	Name Clock     `json:"name"`
	Gen  int       `json:"gen"`
	Due  time.Time `json:"due"`
}

// ResultStored is a collected, validated result.
type ResultStored struct {
	G      int     `json:"g"` // result generation, from 1
	N      int     `json:"n"` // collection attempt; 0: it came with the confirming read
	Result Blob    `json:"result"`
	Counts *Counts `json:"counts,omitempty"`
}

// ResultUnavailable says that a result cannot be had.
type ResultUnavailable struct {
	G      int    `json:"g"`
	N      int    `json:"n"`
	Final  bool   `json:"final"`
	Reason string `json:"reason"`
}

// ResultInvalid says that a result broke a rule.
type ResultInvalid struct {
	G    int    `json:"g"`
	N    int    `json:"n"`
	Rule string `json:"rule"`
}

// Settled announces an outcome. The same payload stands on the operation's
// subject (the decision) and on the settled subject (the public copy).
type Settled struct {
	G           int               `json:"g"`
	State       State             `json:"state"`
	Outcome     Outcome           `json:"outcome"`
	Reason      string            `json:"reason"`
	Assurance   Assurance         `json:"assurance,omitempty"`
	LearnedBy   Source            `json:"learned_by,omitempty"` // who first told the terminal state
	Remote      *RemoteRef        `json:"remote,omitempty"`
	Evidence    []uint64          `json:"evidence"` // stream sequences that prove it
	Result      *Blob             `json:"result,omitempty"`
	Error       *RemoteError      `json:"error,omitempty"`
	Counts      *Counts           `json:"counts,omitempty"`
	Detail      string            `json:"detail,omitempty"`     // expired, partial, moderated
	Late        bool              `json:"late,omitempty"`       // the result clock had run out before
	Waived      bool              `json:"waived,omitempty"`     // a person accepted it without its result
	Cancel      CancelStatus      `json:"cancel,omitempty"`     // what became of a requested cancellation
	DecidedBy   string            `json:"decided_by,omitempty"` // the person, when one decided the outcome
	Effects     []string          `json:"effects,omitempty"`    // names that this settlement owes
	Labels      map[string]string `json:"labels,omitempty"`
	SubmittedAt time.Time         `json:"submitted_at"`
}

// ReviewOpened asks a person.
type ReviewOpened struct {
	ID     string `json:"id"`     // <reason>:<gen>
	Reason string `json:"reason"` // closed set, see Why
	State  State  `json:"state"`
}

// EffectClaimed is the decision to run an effect.
type EffectClaimed struct {
	Name       string    `json:"name"`
	G          int       `json:"g"`
	N          int       `json:"n"`   // claim, from 1
	Key        string    `json:"key"` // idempotency key, the same for every claim of (name, g)
	SendBy     time.Time `json:"send_by"`
	LeaseUntil time.Time `json:"lease_until"`
}

// EffectAttempted says that a claim did not get through.
type EffectAttempted struct {
	Name    string    `json:"name"`
	G       int       `json:"g"`
	N       int       `json:"n"`
	Class   string    `json:"class"`
	Status  int       `json:"status,omitempty"`
	RetryAt time.Time `json:"retry_at"`
}

// EffectDone says that the target took the effect.
type EffectDone struct {
	Name   string `json:"name"`
	G      int    `json:"g"`
	N      int    `json:"n"`
	Status int    `json:"status,omitempty"`
}

// EffectDead says that an effect was given up.
type EffectDead struct {
	Name   string `json:"name"`
	G      int    `json:"g"`
	N      int    `json:"n"`
	Reason string `json:"reason"`
}

// IntentRefused keeps an intent that was not accepted, with the reason.
type IntentRefused struct {
	Operation string `json:"operation,omitempty"` // as given, at most 80 bytes
	Field     string `json:"field"`
	Reason    string `json:"reason"`
	Body      Raw    `json:"body"`
}

// WebhookUnreadable keeps a verified message that was not understood.
type WebhookUnreadable struct {
	Reason    string     `json:"reason"`
	Delivery  string     `json:"delivery,omitempty"`
	Reference *Reference `json:"reference,omitempty"`
	Body      Raw        `json:"body"`
}

// EventParked points at a message of the stream that could not be folded.
type EventParked struct {
	Seq    uint64 `json:"seq"`
	Reason string `json:"reason"`
}

// Raw is a body of any content, exactly as it came. One of Text, Bytes and Ref
// is set, or none for an empty body.
type Raw struct {
	Text   string `json:"text,omitempty"`  // valid UTF-8
	Bytes  []byte `json:"bytes,omitempty"` // anything else
	Ref    string `json:"ref,omitempty"`   // over RawMaxBytes: address in the object store
	SHA256 string `json:"sha256"`          // hex, of the whole
	Size   int64  `json:"size_bytes"`      // of the whole
}

// NewRaw keeps a body of up to RawMaxBytes. A longer one is cut; put the whole
// into the object store and set Ref instead where that matters.
func NewRaw(body []byte) Raw {
	r := Raw{SHA256: HexSHA256(body), Size: int64(len(body))}
	kept := body[:min(len(body), RawMaxBytes)]
	if utf8.Valid(kept) {
		r.Text = string(kept)
	} else {
		r.Bytes = bytes.Clone(kept)
	}
	return r
}
