package main

import (
	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/streams/streamstest"
)

// defect is a mistake that a test plants into the installation, to show that the
// simulation would see it. It stands between the components and their ports, so
// that production code has no switch for it. The zero value is none.
type defect struct {
	name string
	// Each wraps one port; nil leaves it as it is.
	wrapLedger func(w *world, l ledger) reconciler.Ledger
	wrapCaller func(w *world, c events.Caller) events.Caller
	wrapBucket func(w *world, s *streamstest.Server) events.Bucket
	// killAt kills the process that is at this point; 0: none. It is no mistake of
	// ours, it is how every point is tried.
	killAt int
	// habits make the occasion for the mistake frequent.
	habits func(h *habits)
}

func (d defect) ledger(w *world, l ledger) reconciler.Ledger {
	if d.wrapLedger != nil {
		return d.wrapLedger(w, l)
	}
	return l
}

func (d defect) caller(w *world, c events.Caller) events.Caller {
	if d.wrapCaller != nil {
		return d.wrapCaller(w, c)
	}
	return c
}

func (d defect) bucket(w *world, s *streamstest.Server) events.Bucket {
	if d.wrapBucket != nil {
		return d.wrapBucket(w, s)
	}
	return s
}
