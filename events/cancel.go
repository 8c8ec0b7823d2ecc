package events

import (
	"cmp"
	"slices"
)

// A cancellation is a latch: from the moment it is stored, nothing new is sent,
// and a job that is or becomes bound is asked to stop. What the provider answers
// to that is no outcome; a read says how the job ended.

func (j *Job) joinCancel(data Data, m Mark) {
	var c *CancelCall
	switch d := data.(type) {
	case *CancelStarted:
		c = j.cancelCall(d.N)
		if !c.Set() || m.Seq < c.Seq {
			c.Mark, c.Key, c.LeaseUntil = m, d.Remote.Key, d.LeaseUntil
		}
		return
	case *CancelAcknowledged:
		c = j.cancelCall(d.N)
		c.Acked = earliest(c.Acked, m)
	case *CancelRefused:
		c = j.cancelCall(d.N)
		if d.Why == RefusalTerminal {
			c.Terminal = earliest(c.Terminal, m)
		} else {
			c.Refused = earliest(c.Refused, m)
		}
	case *CancelAmbiguous:
		c = j.cancelCall(d.N)
		c.Ambiguous = firstWord(c.Ambiguous, d.Class)
	case *CancelNotSent:
		c = j.cancelCall(d.N)
		c.NotSent = firstWord(c.NotSent, d.Class)
		if d.RetryAt.After(c.RetryAt) {
			c.RetryAt = d.RetryAt
		}
	}
	c.Ended = latest(c.Ended, m)
}

func (j *Job) cancelCall(n int) *CancelCall {
	i, ok := slices.BinarySearchFunc(j.CancelCalls, n, func(c CancelCall, n int) int { return cmp.Compare(c.N, n) })
	if !ok {
		j.CancelCalls = slices.Insert(j.CancelCalls, i, CancelCall{N: n})
	}
	return &j.CancelCalls[i]
}

// answer is the effective answer to a cancel call: the strongest one counts,
// because a late definite answer corrects an early ambiguous one.
type answer int

const (
	cancelInFlight answer = iota
	cancelAmbiguous
	cancelNotSent
	cancelRefused  // this job cannot be cancelled
	cancelTerminal // the job was over
	cancelAcked
)

func (c *CancelCall) answer() answer {
	switch {
	case c.Acked.Set():
		return cancelAcked
	case c.Terminal.Set():
		return cancelTerminal
	case c.Refused.Set():
		return cancelRefused
	case c.NotSent != "":
		return cancelNotSent
	case c.Ambiguous != "":
		return cancelAmbiguous
	default:
		return cancelInFlight
	}
}

// cancelling sums up the cancel calls to one job.
type cancelling struct {
	first   *CancelCall
	newest  *CancelCall
	reached *CancelCall // newest that may have reached the provider
	refused bool        // every call that reached it was refused for good
	over    Mark        // the provider said that the job is over already
}

func (j *Job) cancelling(key JobKey) cancelling {
	var s cancelling
	all := true
	for i := range j.CancelCalls {
		c := &j.CancelCalls[i]
		if c.Key != key {
			continue
		}
		if s.first == nil {
			s.first = c
		}
		s.newest = c
		a := c.answer()
		if a == cancelNotSent {
			continue
		}
		s.reached = c
		all = all && a == cancelRefused
		s.over = latest(s.over, c.Terminal)
	}
	s.refused = s.reached != nil && all
	return s
}

// CancelStatus says what became of a requested cancellation.
type CancelStatus string

// Cancel statuses; "" means that nobody asked.
const (
	CancelLatched      CancelStatus = "latched"                 // stored; applied as soon as a job is known
	CancelSent         CancelStatus = "sent"                    // called; the answer is no outcome
	CancelDenied       CancelStatus = "refused"                 // the provider does not cancel this job
	CancelUnsupported  CancelStatus = "unsupported"             // the provider has no cancellation
	CancelNothingSent  CancelStatus = "nothing_was_sent"        // there is no job to cancel
	CancelConfirmed    CancelStatus = "confirmed"               // the provider says that it was cancelled
	CancelOvertaken    CancelStatus = "overtaken_by_completion" // the job ended by itself
	CancelUnconfirmed  CancelStatus = "unconfirmed"             // nothing said so in time
	cancelNobodyWanted CancelStatus = ""
)

// CancelStatus says what became of the cancellation, "" if nobody asked for one.
func (j *Job) CancelStatus() CancelStatus {
	if !j.Cancel.Set() {
		return cancelNobodyWanted
	}
	switch j.State {
	case StateCancelled:
		return CancelConfirmed
	case StateWithdrawn, StateRejected:
		return CancelNothingSent
	case StateSucceeded, StateFailed:
		return CancelOvertaken
	case StateUnconfirmed:
		return CancelUnconfirmed
	}
	b := j.Own()
	if b == nil {
		return CancelLatched
	}
	switch s := j.cancelling(b.Remote.Key); {
	case s.refused:
		return CancelDenied
	case s.reached != nil:
		return CancelSent
	case !j.Prepared.Contract.Cancel:
		return CancelUnsupported
	default:
		return CancelLatched
	}
}

// wantsCancel reports whether a job has still to be cancelled: somebody asked,
// the provider can, and it did not refuse for good.
func (j *Job) wantsCancel(key JobKey) bool {
	return j.Cancel.Set() && j.Prepared.Contract.Cancel && !j.cancelling(key).refused
}
