// Package streams is JetStream behind the ports of package events: the event
// stream that is the only truth, the bucket of folded jobs, the work queue of
// intents, leases and objects. It is the only package that imports NATS.
//
// What it promises: an event that was acknowledged is on disk (or on a quorum);
// a decision stands only if nobody appended to its subject after the sequence
// that the decider had folded, and a lost answer never makes it stand twice;
// evidence with one id is stored once within the window, and a different content
// under one id is stored beside it; a full or unreachable store is
// events.ErrUnavailable and nothing else.
//
// What it does not promise: that an acknowledged message of a consumer is never
// seen again. Acks are a courtesy; only the stream and the fence are exact.
//
// Append, the one way to write, in ten lines:
//
//	decision: publish with Nats-Expected-Last-Subject-Sequence E, no Nats-Msg-Id
//	    clean ack            → stored
//	    anything else        → read the first message after E on that subject
//	        none             → publish the same bytes again
//	        the same bytes   → stored
//	        something else   → fenced
//	evidence: publish with Nats-Msg-Id, again until acknowledged
//	    duplicate            → compare contents; another one is stored beside it
package streams
