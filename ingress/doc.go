// Package ingress turns everything from outside into immutable events. It has
// two doors and decides nothing:
//
//   - the intent door (Submit, HandleIntent) stores what a producer asks for,
//     once, before anything leaves the machine;
//   - the webhook door (Webhooks) stores what a provider says about a job.
//
// The package promises:
//
//   - a webhook is verified over its raw bytes before any parser sees it, and
//     answered 2xx only after every event in it is durable;
//   - a duplicate, an unknown job and a status word without mapping are answered
//     like any other message, because a sender cannot do anything about them;
//   - an intent is accepted at most once per operation: a repeat gives the same
//     receipt, another request under the same operation is refused;
//   - whatever is refused or not understood is kept in the inbox with the
//     reason, under an id that a redelivery makes again.
//
// It does not promise that a webhook is true: it says that a holder of the
// account's secret sent it. Only a read of ours confirms anything.
//
// The webhook door, in ten lines:
//
//	which provider?                       else 404
//	POST, not compressed, not too large?  else 405, 415, 413
//	verify(headers, raw body, now)        else 401 without a word
//	does the path prove an operation?     a reference, or a hint, or nothing
//	read the messages in the body         else keep it as unreadable, acknowledge
//	record each, under the id that its sender's repeat makes again
//	one not stored?                       503, the sender repeats all of it
//	acknowledge as the provider expects
package ingress
