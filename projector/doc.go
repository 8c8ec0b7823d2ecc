// Package projector folds the event stream into the bucket of jobs: exactly
// once on state, acting on nothing.
//
// It reads events in stream order from the checkpoint on, folds what waits in
// memory (a burst on one operation becomes one write), and commits the changed
// records together with the new checkpoint, each under its expected revision.
// A crash anywhere leaves a bucket that says how far it is; the rest is folded
// again. A former owner that wakes up late fails at the checkpoint: that is the
// fence.
//
// The package promises that the bucket never runs ahead of its checkpoint and
// never goes back. It does not promise that the bucket is current: whoever
// decides something does so under the fence of the stream, not from a read.
//
// The loop, in five lines:
//
//	take over: verify that the stream still holds what the checkpoint names
//	for the events that wait:
//	    events.Apply each to the cached records
//	    commit the touched ones and the checkpoint, all or nothing
//	    on a conflict: somebody else is the owner; stop
package projector
