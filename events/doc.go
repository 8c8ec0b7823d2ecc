// Package events is the core of Pawl: what one operation is, as a pure function
// of recorded facts. It does no I/O, reads no clock, rolls no dice and starts
// no goroutine, so that a simulator can run the very code that production runs.
//
// The words are those of the design: an Intent asks for an Operation; Decisions
// (fenced by the sequence that the decider has folded) and Evidence (never
// fenced, any order, any number of copies) are Events on subjects; Apply folds
// them into a Job, the facts of one operation, a Remote, the facts of one remote
// job, and an Account, the facts of one credential set; the state is derived from
// the facts, with the reason and the events it rests on; Next names the one
// action that is due. A Settlement announces an outcome. A review asks a person,
// and CheckResolution says which answers fit.
//
// The loop, in ten lines:
//
//	for each event of the stream, in order:        // package projector
//	    touched := Apply(view, event)              // joins facts, derives state
//	    write touched records and the checkpoint
//	for each job whose Next(job, policy, now) is due: // package reconciler
//	    decide (fenced), act, record what was seen  // all as events again
//	for each settled job that owes an effect:       // package effects
//	    claim (fenced), run, record
//
// The package promises that the same set of events gives the same job in any
// order and any number of copies, that a job falls back by the seven rules of
// DESIGN.md alone, and that Decode gives back what Encode wrote. Where to begin:
// the walks in testdata/walks, each a life told in lines; then the transition
// table in DESIGN.md; then derive.go. It promises nothing about storage; the
// ports in ports.go say what it needs from there.
package events
