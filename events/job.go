package events

import "time"

// FoldVersion changes whenever the same events would fold to other records. A
// bucket written by another version is rebuilt.
const FoldVersion = 2

// Job is the folded state of one operation: facts first, what they derive to
// last. Every fact is a join of evidence or a serialised decision; State, Why,
// Evidence and NextDue are recomputed from the facts whenever one changes.
type Job struct {
	Operation OperationID `json:"operation_id"`
	Provider  Provider    `json:"provider"`
	// OpSeq is the last sequence of the operation's own subject that is folded
	// here: the fence of every decision.
	OpSeq uint64 `json:"op_seq"`
	// AppliedSeq is the last sequence of any subject that touched this record.
	// Invariant: OpSeq <= AppliedSeq.
	AppliedSeq uint64 `json:"applied_seq"`
	// UpdatedAt is the latest writer's clock of any event folded here.
	UpdatedAt time.Time `json:"updated_at,omitzero"`

	Prepared    Preparation  `json:"prepared"`
	Attempts    []Attempt    `json:"attempts,omitempty"` // by N
	Covers      int          `json:"covers,omitempty"`   // attempts up to this one are proven absent
	Absent      Mark         `json:"absent,omitzero"`    // of the first proof that covers as much
	Declared    int          `json:"declared,omitempty"` // those of them that a person said made no job
	ReconFailed Mark         `json:"recon_failed,omitzero"`
	Bound       []Binding    `json:"bound,omitempty"`  // jobs proven for the token, by first sequence; at most bindingsMax
	Proven      []Binding    `json:"proven,omitempty"` // jobs whose verified webhook named us, not all bound yet
	Pick        Binding      `json:"pick,omitzero"`    // the job that a person chose, the latest choice
	Remotes     []*Remote    `json:"remotes,omitempty"`
	Fired       []Firing     `json:"fired,omitempty"`
	Grants      []Grant      `json:"grants,omitempty"` // by clock, the latest each
	Cancel      Latch        `json:"cancel,omitzero"`
	CancelCalls []CancelCall `json:"cancel_calls,omitempty"` // by N
	Foreign     []ForeignJob `json:"foreign,omitempty"`      // by key, the latest word each
	Results     []Result     `json:"results,omitempty"`      // by G
	Waiver      Waiver       `json:"waiver,omitzero"`
	Closed      Closure      `json:"closed,omitzero"`
	Acks        []Ack        `json:"acks,omitempty"` // by G, the latest each
	Settlements []Settlement `json:"settlements,omitempty"`
	Reviews     []Review     `json:"reviews,omitempty"`
	Effects     []Effect     `json:"effects,omitempty"` // by (G, Name)
	Unreadable  []Unreadable `json:"unreadable,omitempty"`
	Archived    *Tombstone   `json:"archived,omitempty"`

	State    State     `json:"state"`
	Why      string    `json:"why,omitempty"`      // closed set of reasons
	Evidence []uint64  `json:"evidence,omitempty"` // the sequences that State and Why rest on
	Outcome  Outcome   `json:"outcome"`
	Next     string    `json:"next,omitempty"`
	NextDue  time.Time `json:"next_due,omitzero"` // when the next action is due; zero: nothing is owed
}

// Bounds of a record's lists. What goes beyond is dropped in an order that does
// not depend on arrival; each bound is far beyond what a person could sort out.
const (
	bindingsMax   = 16
	unreadableMax = 16
	runsMax       = 16
	firedMax      = 256
)

// Preparation is the stored intent and what it pins. The input itself stays in
// the event: a job is rewritten often, an input never changes.
type Preparation struct {
	Mark
	Actor         string            `json:"actor,omitempty"`
	Trace         string            `json:"traceparent,omitempty"`
	Account       string            `json:"account"`
	Fingerprint   string            `json:"fingerprint"`
	Token         string            `json:"token"`
	Description   DescriptionRef    `json:"description"`
	RequestSHA256 string            `json:"request_sha256"`
	Contract      Contract          `json:"contract"`
	Deadlines     Deadlines         `json:"deadlines"`
	Effects       []string          `json:"effects,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// Attempt is one create attempt and every answer to it.
type Attempt struct {
	Mark                  // of the decision
	N          int        `json:"n"`
	Window     int        `json:"window"` // the attempt that opened this one's create window
	SendBy     time.Time  `json:"send_by"`
	LeaseUntil time.Time  `json:"lease_until"`
	Accepted   Mark       `json:"accepted,omitzero"`
	Rejected   *Rejected  `json:"rejected,omitempty"`
	Throttled  *Throttled `json:"throttled,omitempty"`
	NotSent    string     `json:"not_sent,omitempty"`  // class
	Ambiguous  string     `json:"ambiguous,omitempty"` // class
	Answered   Mark       `json:"answered,omitzero"`   // first answer
	Ended      Mark       `json:"ended,omitzero"`      // latest answer
}

// Binding is a job that belongs to the operation.
type Binding struct {
	Mark
	Remote RemoteRef `json:"remote"`
	Via    string    `json:"via"` // create, lookup, callback, review
}

// Firing is a clock that ran out.
type Firing struct {
	Mark
	Name Clock     `json:"name"`
	Gen  int       `json:"gen"`
	Due  time.Time `json:"due"` // the instant that has passed
}

// Grant is more time, given by a person.
type Grant struct {
	Mark
	Clock Clock     `json:"clock"`
	Until time.Time `json:"until"`
}

// Latch is the first wish to stop the operation.
type Latch struct {
	Mark
	ID       string `json:"id"`
	By       string `json:"by"`
	Reason   string `json:"reason,omitempty"`
	Expected string `json:"expected,omitempty"`
}

// CancelCall is one call to cancel a job and every answer to it.
type CancelCall struct {
	Mark                 // of the decision
	N          int       `json:"n"`
	Key        JobKey    `json:"job_key"`
	LeaseUntil time.Time `json:"lease_until"`
	Acked      Mark      `json:"acknowledged,omitzero"`
	Terminal   Mark      `json:"refused_terminal,omitzero"`
	Refused    Mark      `json:"refused_unsupported,omitzero"`
	NotSent    string    `json:"not_sent,omitempty"`  // class
	Ambiguous  string    `json:"ambiguous,omitempty"` // class
	RetryAt    time.Time `json:"retry_at,omitzero"`
	Ended      Mark      `json:"ended,omitzero"` // latest answer
}

// Result is one generation of collection. Stored wins over the others.
type Result struct {
	G           int           `json:"g"`
	Asked       Mark          `json:"asked,omitzero"` // a person wanted this generation; unset for the first
	Stored      *ResultStored `json:"stored,omitempty"`
	StoredAt    Mark          `json:"stored_at,omitzero"`
	Unavailable string        `json:"unavailable,omitempty"` // reason
	Invalid     string        `json:"invalid,omitempty"`     // rule
	EndedAt     Mark          `json:"ended_at,omitzero"`     // of Unavailable and Invalid, the latest
	Started     int           `json:"started,omitempty"`     // highest attempt that was decided
	StartedAt   Mark          `json:"started_at,omitzero"`
	LeaseUntil  time.Time     `json:"lease_until,omitzero"`
	Tried       int           `json:"tried,omitempty"`   // highest attempt that gave nothing yet
	TriedAt     Mark          `json:"tried_at,omitzero"` // latest of those
}

// Waiver is the acceptance of a success without its result.
type Waiver struct {
	Mark
	G  int    `json:"g"` // result generation
	By string `json:"by"`
}

// Closure is the end that a person made, the latest: whoever closes once more
// knows what was learned in between.
type Closure struct {
	Mark
	Disposition Outcome `json:"disposition"`
	By          string  `json:"by"`
}

// Ack is a person's word about announcement G (0: there is none yet).
type Ack struct {
	Mark
	G     int    `json:"g"`
	State State  `json:"state,omitempty"` // the true state; "": as the facts say
	By    string `json:"by"`
}

// ForeignJob is a person's word about a job that was made for the operation's
// token and is not the operation's.
type ForeignJob struct {
	Mark
	Key    JobKey `json:"job_key"`
	Cancel bool   `json:"cancel,omitempty"` // else it is left alone
}

// Settlement is one announcement, first by sequence in its generation.
type Settlement struct {
	Mark
	G       int      `json:"g"`
	State   State    `json:"state"`
	Settled *Settled `json:"settled,omitempty"` // nil in an archived operation
	Public  Mark     `json:"public,omitzero"`   // of the public copy; unset: the copy is owed
}

// Review is a question to a person, and the answer.
type Review struct {
	Mark
	ID       string     `json:"id"`
	Reason   string     `json:"reason"`
	Resolved Mark       `json:"resolved,omitzero"`
	Action   Resolution `json:"action,omitempty"`
	By       string     `json:"by,omitempty"`
	Note     string     `json:"note,omitempty"`
}

// Effect is one side effect of one settlement.
type Effect struct {
	Name   string        `json:"name"`
	G      int           `json:"g"`
	Claims []EffectClaim `json:"claims,omitempty"` // by N
	Done   Mark          `json:"done,omitzero"`
	Dead   Mark          `json:"dead,omitzero"`
	Reason string        `json:"reason,omitempty"` // of Dead
}

// EffectClaim is one decision to run an effect, and how it ended.
type EffectClaim struct {
	Mark
	N          int       `json:"n"`
	LeaseUntil time.Time `json:"lease_until"`
	Ended      Mark      `json:"ended,omitzero"`
	Class      string    `json:"class,omitempty"`
	RetryAt    time.Time `json:"retry_at,omitzero"`
}

// Unreadable is an event of the operation that this code must not pass over: a
// broken one, or one of an unknown type that calls itself critical.
type Unreadable struct {
	Seq       uint64 `json:"seq"`
	Reason    string `json:"reason"` // WhyUnreadable, WhyCritical
	Dismissed Mark   `json:"dismissed,omitzero"`
}

// Tombstone is an archived operation.
type Tombstone struct {
	Mark
	Data *Archived `json:"data"`
}
