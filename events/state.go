package events

// State is where an operation stands. It is derived from facts, never stored as
// truth.
type State string

// States of an operation. Settled ones have an announcement; suspended ones
// wait for a person while slow reads go on.
const (
	StatePrepared         State = "prepared"                 // stored; proof that nothing was sent
	StateSubmitted        State = "submitted"                // an attempt may have left
	StateCreateUnknown    State = "create_unknown"           // the last attempt ended without proof
	StateReconciling      State = "reconciling"              // the create window is closed: reads only
	StateAccepted         State = "accepted"                 // bound to a remote job, not observed yet
	StateObserving        State = "observing"                // the remote job was seen alive
	StateCancelRequested  State = "cancel_requested"         // somebody wants it stopped; the provider was not asked yet
	StateCancelling       State = "cancelling"               // the provider was asked; a read decides
	StateConfirming       State = "confirming"               // a webhook claims a terminal state; our read decides
	StateResultCollecting State = "result_collecting"        // success is confirmed, the result is not here yet
	StateSucceeded        State = "succeeded"                // settled
	StateFailed           State = "failed"                   // settled: the remote job failed
	StateCancelled        State = "cancelled"                // settled: the provider said so
	StateRejected         State = "rejected"                 // settled: refused, there is no remote job
	StateWithdrawn        State = "withdrawn"                // settled: nothing was ever sent
	StateClosed           State = "closed_by_operator"       // settled: a person ended it
	StateNeedsReview      State = "needs_review"             // suspended
	StateResultTimedOut   State = "result_timed_out"         // suspended
	StateUnconfirmed      State = "cancellation_unconfirmed" // suspended: nothing said in time that it was cancelled
	StateResultUnavail    State = "result_unavailable"       // suspended
	StateResultInvalid    State = "result_validation_failed" // suspended
	StateConflict         State = "conflict"                 // suspended: two jobs for one token
	StateReversed         State = "reversed"                 // suspended: the provider contradicts what was announced
)

// Settled reports whether the state is announced as an outcome.
func (s State) Settled() bool {
	switch s {
	case StateSucceeded, StateFailed, StateCancelled, StateRejected, StateWithdrawn, StateClosed:
		return true
	default:
		return false
	}
}

// Suspended reports whether the state waits for a person.
func (s State) Suspended() bool {
	switch s {
	case StateNeedsReview, StateResultTimedOut, StateUnconfirmed, StateResultUnavail, StateResultInvalid, StateConflict, StateReversed:
		return true
	default:
		return false
	}
}

// open reports whether a remote job is being followed.
func (s State) open() bool {
	switch s {
	case StateAccepted, StateObserving, StateCancelRequested, StateCancelling, StateConfirming:
		return true
	default:
		return false
	}
}

// States lists every state once, in the order of a normal life.
func States() []State {
	return []State{
		StatePrepared, StateSubmitted, StateCreateUnknown, StateReconciling, StateAccepted, StateObserving,
		StateCancelRequested, StateCancelling, StateConfirming, StateResultCollecting, StateSucceeded, StateFailed,
		StateCancelled, StateRejected, StateWithdrawn, StateClosed, StateNeedsReview, StateResultTimedOut,
		StateUnconfirmed, StateResultUnavail, StateResultInvalid, StateConflict, StateReversed,
	}
}

// Outcome is the narrow public answer about an operation.
type Outcome string

// The five public words.
const (
	OutcomePending       Outcome = "pending"
	OutcomeConfirmed     Outcome = "confirmed"
	OutcomeFailed        Outcome = "failed"
	OutcomeCancelled     Outcome = "cancelled"
	OutcomePendingReview Outcome = "pending_review"
)

// OutcomeOf gives the public word for a state. A withdrawal and a closure have
// two, by what led to them; see Job.Outcome.
func OutcomeOf(s State) Outcome {
	switch s {
	case StateSucceeded:
		return OutcomeConfirmed
	case StateFailed, StateRejected, StateWithdrawn, StateClosed:
		return OutcomeFailed
	case StateCancelled:
		return OutcomeCancelled
	default:
		if s.Suspended() {
			return OutcomePendingReview
		}
		return OutcomePending
	}
}

// outcome is the public word for the job's state and what led to it.
func (j *Job) outcome() Outcome {
	switch {
	case j.Archived != nil:
		return j.Archived.Data.Outcome
	case j.State == StateWithdrawn && j.Why == WhyCancelledUnsent:
		return OutcomeCancelled
	case j.State == StateClosed && j.Closed.Disposition != "":
		return j.Closed.Disposition
	default:
		return OutcomeOf(j.State)
	}
}

// Assurance says how a terminal state was confirmed.
type Assurance string

// Assurances.
const (
	AssuranceRead        Assurance = "status_read"  // our own read of the provider
	AssuranceWebhookOnly Assurance = "webhook_only" // the provider has no status endpoint
	AssuranceAnswer      Assurance = "create_answer"
	AssurancePerson      Assurance = "person" // somebody decided, see DecidedBy
)

// Clock names one of the deadlines of an operation.
type Clock string

// The clocks, and what starts each.
const (
	ClockStartBy Clock = "start_by" // absolute, given in the intent
	ClockCreate  Clock = "create"   // first attempt since the operation was last clean
	ClockRecon   Clock = "recon"    // the create window closed
	ClockResult  Clock = "result"   // bind
	ClockCancel  Clock = "cancel"   // first cancel call
	ClockConfirm Clock = "confirm"  // first effective claim, or effective gone
	ClockCollect Clock = "collect"  // confirmed success
)

func (c Clock) known() bool {
	switch c {
	case ClockStartBy, ClockCreate, ClockRecon, ClockResult, ClockCancel, ClockConfirm, ClockCollect:
		return true
	default:
		return false
	}
}
