// Package effects runs what a settled operation owes, once, under a claim: a
// signed callback to your system, or a message on a NATS subject.
//
// It is a consumer of its own, apart from the fold: a message on a settled
// subject wakes it, and a sweep over the jobs that still owe something finds
// what a lost message or a crash left behind. The claim is a decision under the
// operation's fence, so of any number of workers one sends. What the target
// answers is recorded; without a record, the claim blocks until its lease ends
// and the effect is sent again with the same idempotency key.
//
// The package promises one claim at a time, one key per effect and settlement,
// and no effect while the outcome is unknown or in review. It does not promise
// exactly once at a target that ignores the key: a crash between the target's
// answer and the record sends again.
package effects
