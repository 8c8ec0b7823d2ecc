// Package reconciler is the pull path and every outgoing call to a provider: it
// looks at a job and the clock and takes the one next step that events.Next
// names. The answer goes back into the stream as an event; the projector folds
// it; the job comes back through Observe, and the loop closes.
//
// It is level-triggered: what is owed follows from the facts, so a lost wake-up
// costs time, never work. Before anything leaves the machine the decision to
// send it is durable and fenced by the last sequence that was folded; being
// fenced means that somebody else decided, or that our view lags, and the step
// is dropped.
//
// The package promises that no create leaves without a durable decision, that
// every attempt of an operation is the same bytes with the same token, and that
// an answer which proves nothing is recorded as unknown. It does not promise
// that a provider honours tokens; what it declares is in its description.
//
// The loop, in ten lines:
//
//	Observe(job)                      // from the bucket, newest facts
//	agenda: one entry a job, due at Next(job).At
//	Work: for the entry that is due first
//	    create:   decide create.attempt_started → call → record the answer
//	    poll:     call → record a change, count the rest
//	    settle:   decide op.settled → public copy
//	    deadline, bind, look-up, collect, review: one event each
//	    then wait until the fold has seen what was appended
package reconciler
