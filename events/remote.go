package events

import (
	"cmp"
	"slices"
	"time"
)

// Mark is a place in the stream and the writer's clock there. The zero Mark
// means "never".
type Mark struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
}

// Set reports whether the mark was ever made.
func (m Mark) Set() bool { return m.Seq != 0 }

func earliest(a, b Mark) Mark {
	if !a.Set() || (b.Set() && b.Seq < a.Seq) {
		return b
	}
	return a
}

func latest(a, b Mark) Mark {
	if b.Seq > a.Seq {
		return b
	}
	return a
}

// Remote is what is known about one remote job, whether an operation owns it or
// not. Every field is a join of the evidence, so arrival order does not matter.
type Remote struct {
	Provider   Provider  `json:"provider"`
	Ref        RemoteRef `json:"ref"`
	AppliedSeq uint64    `json:"applied_seq"` // last event of any subject that changed this record
	First      Mark      `json:"first"`
	// BoundOps are the operations that this job was bound to, sorted. Two mean
	// that one job was returned for two tokens: both operations are in conflict.
	BoundOps []OperationID `json:"bound_ops,omitempty"`
	// MoreOwners: there are more than BoundOps holds.
	MoreOwners bool `json:"more_owners,omitempty"`
	// Runs are the re-runs of the job under its one id, by attempt. A provider
	// without re-runs has one run, attempt 0.
	Runs []Run `json:"runs,omitempty"`
	// Gone is the latest authoritative "no such job". It is effective only while
	// newer than the last good read.
	Gone Mark `json:"gone,omitzero"`
	// Deferred asks not to read before Until; the latest Until counts.
	Deferred Deferred `json:"deferred,omitzero"`
	// Unrecognised is the latest status word without mapping, and Strange where
	// such words were first seen, at most strangeMax.
	Unrecognised Word   `json:"unrecognised,omitzero"`
	Strange      []Mark `json:"strange,omitempty"`
	// Expired: nobody claimed the job in time.
	Expired Mark `json:"expired,omitzero"`
	// Unreadable are events on the job's subject that its operations must not
	// pass over.
	Unreadable []uint64 `json:"unreadable,omitempty"`
	// Counts is the latest progress, for display only.
	Counts CountsMark `json:"counts,omitzero"`
}

// Deferred is a pause of the reads.
type Deferred struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
}

// Word is a status word and where it was last seen.
type Word struct {
	Mark
	Status string `json:"status"`
}

// CountsMark is a progress and where it was last seen.
type CountsMark struct {
	Mark
	Counts
}

// Run is one run of a remote job.
type Run struct {
	Attempt int `json:"attempt"`
	// Seen holds the first sight of each non-terminal state, by rank.
	Seen []Sight `json:"seen,omitempty"`
	// Claims are terminal states told by webhooks, at most one entry a state.
	Claims []Claim `json:"claims,omitempty"`
	// Confirms are terminal states read by ourselves, at most one entry a state.
	Confirms []Claim `json:"confirms,omitempty"`
	// Alive is the latest authoritative non-terminal read.
	Alive Mark `json:"alive,omitzero"`
}

// Sight is a state and its first mark.
type Sight struct {
	State RemoteState `json:"state"`
	First Mark        `json:"first"`
}

// Claim is a terminal state, where it was first and last told, and the first
// reading of it.
type Claim struct {
	State   RemoteState `json:"state"`
	First   Mark        `json:"first"`
	Last    Mark        `json:"last"`
	Reading *Reading    `json:"reading"` // the event's own; nobody changes it
}

// join folds one event of the job's subject into the record.
func (r *Remote) join(data Data, m Mark) {
	r.First = earliest(r.First, m)
	if ref := refOf(data); ref != nil {
		r.Ref = *ref
	}
	switch d := data.(type) {
	case *Observed:
		r.observe(&d.Reading, m)
	case *Unrecognised:
		if m.Seq > r.Unrecognised.Seq {
			r.Unrecognised = Word{Mark: m, Status: d.Status}
		}
		r.Strange = addMark(r.Strange, m, strangeMax)
	case *Gone:
		r.Gone = latest(r.Gone, m)
	case *OrphanExpired:
		r.Expired = earliest(r.Expired, m)
	case *PollDeferred:
		switch {
		case d.Until.After(r.Deferred.Until):
			r.Deferred = Deferred{Until: d.Until, Reason: d.Reason}
		case d.Until.Equal(r.Deferred.Until):
			r.Deferred.Reason = firstWord(r.Deferred.Reason, d.Reason)
		}
	}
}

// strangeMax unmapped words are enough to ask a person.
const strangeMax = 3

// addMark keeps the first of the marks, in order.
func addMark(list []Mark, m Mark, limit int) []Mark {
	i, ok := slices.BinarySearchFunc(list, m.Seq, func(x Mark, seq uint64) int { return cmp.Compare(x.Seq, seq) })
	if ok || i >= limit {
		return list
	}
	list = slices.Insert(list, i, m)
	return list[:min(len(list), limit)]
}

// strange reports whether a person should see that the provider uses a word
// which the description does not map: three times, or for as long as the confirm
// clock, with no read understood since.
func (r *Remote) strange(patience time.Duration) bool {
	if len(r.Strange) == 0 || r.Unrecognised.Seq < r.goodRead().Seq {
		return false
	}
	return len(r.Strange) == strangeMax || r.Unrecognised.At.Sub(r.Strange[0].At) >= patience
}

// Orphan reports whether no operation owns the job.
func (r *Remote) Orphan() bool { return len(r.BoundOps) == 0 }

func (r *Remote) observe(g *Reading, m Mark) {
	if g.Counts != nil && m.Seq > r.Counts.Seq {
		r.Counts = CountsMark{Mark: m, Counts: *g.Counts}
	}
	run := r.run(g.Attempt)
	switch {
	case !g.State.Terminal():
		run.see(g.State, m)
		if g.Authoritative {
			run.Alive = latest(run.Alive, m)
		}
	case g.Authoritative:
		run.Confirms = claim(run.Confirms, g, m)
	default:
		run.Claims = claim(run.Claims, g, m)
	}
	if len(r.Runs) > 1 {
		r.strip()
	}
}

// strip forgets the results of all runs but the newest: nobody collects them, and
// a job that is run anew again and again must not fill its record with them.
func (r *Remote) strip() {
	for i := range len(r.Runs) - 1 {
		for _, list := range [...][]Claim{r.Runs[i].Claims, r.Runs[i].Confirms} {
			for k := range list {
				if g := list[k].Reading; g.Result != nil {
					c := *g // the reading is the event's own
					c.Result = nil
					list[k].Reading = &c
				}
			}
		}
	}
}

// run returns the run of an attempt, made if absent.
func (r *Remote) run(attempt int) *Run {
	i, ok := slices.BinarySearchFunc(r.Runs, attempt, func(x Run, a int) int { return cmp.Compare(x.Attempt, a) })
	if !ok {
		if len(r.Runs) == runsMax {
			if i == 0 {
				return new(Run) // older than all that are kept: of no consequence
			}
			r.Runs = slices.Delete(r.Runs, 0, 1)
			i--
		}
		r.Runs = slices.Insert(r.Runs, i, Run{Attempt: attempt})
	}
	return &r.Runs[i]
}

// newest returns the newest run, or an empty one. The caller does not change it.
func (r *Remote) newest() *Run {
	if len(r.Runs) == 0 {
		return &emptyRun
	}
	return &r.Runs[len(r.Runs)-1]
}

var emptyRun Run

// judged returns the newest run that was seen by our own reads, or an empty one.
// After an announcement only such a run counts: a webhook alone must not undo it.
func (r *Remote) judged() *Run {
	for i := len(r.Runs) - 1; i >= 0; i-- {
		if run := &r.Runs[i]; run.Alive.Set() || len(run.Confirms) > 0 {
			return run
		}
	}
	return &emptyRun
}

// lastClaim is the latest terminal claim of the run.
func (run *Run) lastClaim() Mark {
	var m Mark
	for i := range run.Claims {
		m = latest(m, run.Claims[i].Last)
	}
	return m
}

// news is the mark of the latest claim that says something new: its first time,
// or its latest if a read in between found the job alive.
func (c *Claim) news(run *Run) Mark {
	if run.Alive.Seq > c.First.Seq && run.Alive.Seq < c.Last.Seq {
		return c.Last
	}
	return c.First
}

// lastNews is the latest news among the claims of the run.
func (run *Run) lastNews() Mark {
	var m Mark
	for i := range run.Claims {
		m = latest(m, run.Claims[i].news(run))
	}
	return m
}

func (run *Run) see(s RemoteState, m Mark) {
	for i := range run.Seen {
		if run.Seen[i].State == s {
			run.Seen[i].First = earliest(run.Seen[i].First, m)
			return
		}
	}
	i, _ := slices.BinarySearchFunc(run.Seen, s.rank(), func(x Sight, rank int) int { return cmp.Compare(x.State.rank(), rank) })
	run.Seen = slices.Insert(run.Seen, i, Sight{State: s, First: m})
}

func claim(list []Claim, g *Reading, m Mark) []Claim {
	for i := range list {
		c := &list[i]
		if c.State != g.State {
			continue
		}
		if m.Seq < c.First.Seq {
			c.First, c.Reading = m, g
		}
		c.Last = latest(c.Last, m)
		return list
	}
	i, _ := slices.BinarySearchFunc(list, g.State, func(c Claim, s RemoteState) int { return cmp.Compare(c.State, s) })
	return slices.Insert(list, i, Claim{State: g.State, First: m, Last: m, Reading: g})
}

// goodRead is the latest read that found the job.
func (r *Remote) goodRead() Mark {
	var m Mark
	for i := range r.Runs {
		run := &r.Runs[i]
		m = latest(m, run.Alive)
		for k := range run.Confirms {
			m = latest(m, run.Confirms[k].Last)
		}
	}
	return m
}

// gone reports whether "no such job" is newer than the last good read.
func (r *Remote) gone() bool { return r.Gone.Seq > r.goodRead().Seq }

// changed is the time of the last change of the mapped state: the start of the
// poll schedule. It is a join, the latest of the first sights.
func (r *Remote) changed() time.Time {
	t := r.First.At
	run := r.newest()
	for _, s := range run.Seen {
		if s.First.At.After(t) {
			t = s.First.At
		}
	}
	return t
}

// State is the remote state as far as it is known: a confirmed terminal state,
// else a claimed one, else the furthest non-terminal one; "" if nothing is.
func (r *Remote) State() RemoteState {
	run := r.newest()
	switch {
	case len(run.Confirms) > 0:
		return run.Confirms[0].State
	case len(run.Claims) > 0:
		return run.Claims[0].State
	case len(run.Seen) > 0:
		return run.Seen[len(run.Seen)-1].State
	default:
		return ""
	}
}

// Changes reports whether folding an authoritative reading would change what is
// known. The reconciler appends only such reads; the others are audited by
// count. A non-terminal read after a claim is a change: it contradicts it.
func (r *Remote) Changes(g Reading) bool {
	if g.Counts != nil && *g.Counts != r.Counts.Counts {
		return true
	}
	i, ok := slices.BinarySearchFunc(r.Runs, g.Attempt, func(x Run, a int) int { return cmp.Compare(x.Attempt, a) })
	if !ok {
		return true
	}
	run := &r.Runs[i]
	if g.State.Terminal() {
		return r.dissent().Seq > r.goodRead().Seq || // it is judged, and that must show
			!slices.ContainsFunc(run.Confirms, func(c Claim) bool { return c.State == g.State })
	}
	if run.Alive.Seq == 0 || run.Alive.Seq < max(r.newest().lastClaim().Seq, r.Gone.Seq) {
		return true
	}
	return !slices.ContainsFunc(run.Seen, func(s Sight) bool { return s.State == g.State })
}

// ownersMax bounds the operations that one job is known to belong to. Two are a
// conflict already; a provider that gives every request the same id must not
// make each event rewrite every operation.
const ownersMax = 16

// bind adds an operation to the job's owners and reports whether that changed
// the record. Of more than ownersMax the smallest stay, whatever the order.
func (r *Remote) bind(op OperationID) bool {
	i, ok := slices.BinarySearch(r.BoundOps, op)
	if ok {
		return false
	}
	r.BoundOps = slices.Insert(r.BoundOps, i, op)
	if len(r.BoundOps) > ownersMax {
		r.BoundOps, r.MoreOwners = r.BoundOps[:ownersMax], true
	}
	return true
}

// Contrary is the sequence of the latest evidence that a read can contradict: a
// terminal claim, "no such job", or news of a run that no read has seen; 0 if
// there is none.
func (r *Remote) Contrary() uint64 {
	return max(r.newest().lastClaim().Seq, r.Gone.Seq, r.dissent().Seq)
}

// IsGone reports whether "no such job" is newer than the last good read.
func (r *Remote) IsGone() bool { return r.gone() }

// LastGoodRead is the sequence of the latest read that found the job.
func (r *Remote) LastGoodRead() uint64 { return r.goodRead().Seq }
