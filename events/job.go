package events

import (
	"cmp"
	"slices"
	"time"
)

// FoldVersion changes whenever the same events would fold to other records. A
// bucket written by another version is rebuilt.
const FoldVersion = 1

// Job is the folded state of one operation: facts first, what they derive to
// last. Every fact is a join of evidence or a serialised decision; State, Why
// and NextDue are recomputed from the facts whenever one changes.
type Job struct {
	Operation OperationID `json:"operation_id"`
	Provider  Provider    `json:"provider"`
	// OpSeq is the last sequence of the operation's own subject that is folded
	// here: the fence of every decision.
	OpSeq uint64 `json:"op_seq"`
	// AppliedSeq is the last sequence of any subject that touched this record.
	// Invariant: OpSeq <= AppliedSeq.
	AppliedSeq uint64 `json:"applied_seq"`

	Prepared    Preparation  `json:"prepared"`
	Attempts    []Attempt    `json:"attempts,omitempty"` // by N
	Covers      int          `json:"covers,omitempty"`   // attempts up to this one are proven absent
	ReconFailed Mark         `json:"recon_failed,omitzero"`
	Bound       []Binding    `json:"bound,omitempty"`  // jobs proven for the token, by first sequence
	Proven      []Binding    `json:"proven,omitempty"` // jobs whose verified webhook named us, not all bound yet
	Remotes     []Remote     `json:"remotes,omitempty"`
	Fired       []Firing     `json:"fired,omitempty"`
	Results     []Result     `json:"results,omitempty"` // by G
	Settlements []Settlement `json:"settlements,omitempty"`
	Reviews     []Review     `json:"reviews,omitempty"`
	Effects     []Effect     `json:"effects,omitempty"` // by (G, Name)

	State   State     `json:"state"`
	Why     string    `json:"why,omitempty"` // closed set of reasons
	Outcome Outcome   `json:"outcome"`
	Next    string    `json:"next,omitempty"`
	NextDue time.Time `json:"next_due,omitzero"` // when the next action is due; zero: nothing is owed
}

// Preparation is the stored intent and what it pins. The input itself stays in
// the event: a job is rewritten often, an input never changes.
type Preparation struct {
	Mark
	Actor         string            `json:"actor,omitempty"`
	Trace         string            `json:"traceparent,omitempty"`
	Account       string            `json:"account"`
	Fingerprint   string            `json:"fingerprint"`
	Token         string            `json:"token"`
	Description   DescriptionRef    `json:"description"`
	RequestSHA256 string            `json:"request_sha256"`
	Contract      Contract          `json:"contract"`
	Deadlines     Deadlines         `json:"deadlines"`
	Effects       []string          `json:"effects,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// Attempt is one create attempt and every answer to it.
type Attempt struct {
	Mark                  // of the decision
	N          int        `json:"n"`
	SendBy     time.Time  `json:"send_by"`
	LeaseUntil time.Time  `json:"lease_until"`
	Accepted   Mark       `json:"accepted,omitzero"`
	Rejected   *Rejected  `json:"rejected,omitempty"`
	Throttled  *Throttled `json:"throttled,omitempty"`
	NotSent    string     `json:"not_sent,omitempty"`  // class
	Ambiguous  string     `json:"ambiguous,omitempty"` // class
	Ended      Mark       `json:"ended,omitzero"`      // latest answer
}

// Binding is a job that belongs to the operation.
type Binding struct {
	Mark
	Remote RemoteRef `json:"remote"`
	Via    string    `json:"via"` // create, lookup, callback
}

// Firing is a clock that ran out.
type Firing struct {
	Mark
	Name Clock `json:"name"`
	Gen  int   `json:"gen"`
}

// Result is one generation of collection. Stored wins over the others.
type Result struct {
	G           int           `json:"g"`
	Stored      *ResultStored `json:"stored,omitempty"`
	StoredAt    Mark          `json:"stored_at,omitzero"`
	Unavailable string        `json:"unavailable,omitempty"` // reason
	Invalid     string        `json:"invalid,omitempty"`     // rule
	Tried       int           `json:"tried,omitempty"`       // highest attempt that gave nothing yet
	TriedAt     Mark          `json:"tried_at,omitzero"`     // latest of those
}

// Settlement is one announcement, first by sequence in its generation.
type Settlement struct {
	Mark
	G       int      `json:"g"`
	State   State    `json:"state"`
	Settled *Settled `json:"settled"`
	Public  Mark     `json:"public,omitzero"` // of the public copy; unset: the copy is owed
}

// Review is a question to a person.
type Review struct {
	Mark
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// Effect is one side effect of one settlement.
type Effect struct {
	Name   string        `json:"name"`
	G      int           `json:"g"`
	Claims []EffectClaim `json:"claims,omitempty"` // by N
	Done   Mark          `json:"done,omitzero"`
	Dead   Mark          `json:"dead,omitzero"`
	Reason string        `json:"reason,omitempty"` // of Dead
}

// EffectClaim is one decision to run an effect, and how it ended.
type EffectClaim struct {
	Mark
	N          int       `json:"n"`
	LeaseUntil time.Time `json:"lease_until"`
	Ended      Mark      `json:"ended,omitzero"`
	Class      string    `json:"class,omitempty"`
	RetryAt    time.Time `json:"retry_at,omitzero"`
}

// join folds the payload of one event of the operation's subject into the facts.
// It is commutative and idempotent but for decisions, which the fence orders.
func (j *Job) join(e Event, m Mark) {
	switch d := e.Data.(type) {
	case *Prepared:
		j.prepare(d, e, m)
	case *AttemptStarted, *Accepted, *Rejected, *Ambiguous, *NotSent, *Throttled:
		j.joinAttempt(d, m)
	case *ReconFound:
		j.bind(Binding{Mark: m, Remote: d.Remote, Via: d.Via})
	case *ReconAbsent:
		j.Covers = max(j.Covers, d.Covers)
	case *ReconFailed:
		j.ReconFailed = latest(j.ReconFailed, m)
	case *DeadlinePassed:
		j.fire(Firing{Mark: m, Name: d.Name, Gen: d.Gen})
	case *ResultStored, *ResultUnavailable, *ResultInvalid:
		j.joinResult(d, m)
	case *Settled:
		j.settle(d, m)
	case *ReviewOpened:
		if !slices.ContainsFunc(j.Reviews, func(r Review) bool { return r.ID == d.ID }) {
			j.Reviews = append(j.Reviews, Review{Mark: m, ID: d.ID, Reason: d.Reason})
		}
	case *EffectClaimed, *EffectAttempted, *EffectDone, *EffectDead:
		j.joinEffect(d, m)
	}
}

func (j *Job) prepare(d *Prepared, e Event, m Mark) {
	if j.Prepared.Set() && j.Prepared.Seq <= m.Seq {
		return // write-once: the first stands
	}
	j.Prepared = Preparation{
		Mark: m, Actor: e.Actor, Trace: e.Trace, Account: d.Intent.Account,
		Fingerprint: d.Fingerprint, Token: d.Token, Description: d.Description,
		RequestSHA256: d.RequestSHA256, Contract: d.Contract, Deadlines: d.Deadlines,
		Effects: d.Intent.Effects, Labels: d.Intent.Labels,
	}
}

func (j *Job) joinAttempt(data Data, m Mark) {
	switch d := data.(type) {
	case *AttemptStarted:
		a := j.attempt(d.N)
		if !a.Set() || m.Seq < a.Seq {
			a.Mark, a.SendBy, a.LeaseUntil = m, d.SendBy, d.LeaseUntil
		}
	case *Accepted:
		a := j.attempt(d.N)
		a.Accepted = earliest(a.Accepted, m)
		a.Ended = latest(a.Ended, m)
		j.bind(Binding{Mark: m, Remote: d.Remote, Via: "create"})
	case *Rejected:
		a := j.attempt(d.N)
		if a.Rejected == nil || d.before(a.Rejected) {
			a.Rejected = d
		}
		a.Ended = latest(a.Ended, m)
	case *Ambiguous:
		a := j.attempt(d.N)
		a.Ambiguous, a.Ended = firstWord(a.Ambiguous, d.Class), latest(a.Ended, m)
	case *NotSent:
		a := j.attempt(d.N)
		a.NotSent, a.Ended = firstWord(a.NotSent, d.Class), latest(a.Ended, m)
	case *Throttled:
		a := j.attempt(d.N)
		if a.Throttled == nil || d.RetryAt.After(a.Throttled.RetryAt) {
			a.Throttled = d
		}
		a.Ended = latest(a.Ended, m)
	}
}

// before orders two refusals of one attempt, so that the order of arrival does
// not show.
func (d *Rejected) before(o *Rejected) bool {
	return cmp.Or(cmp.Compare(d.Class, o.Class), cmp.Compare(d.Code, o.Code),
		cmp.Compare(d.Message, o.Message), cmp.Compare(d.Status, o.Status)) < 0
}

// firstWord joins two words that say the same thing differently: the smaller
// one stays, so that the order of arrival does not show.
func firstWord(a, b string) string {
	if a == "" || (b != "" && b < a) {
		return b
	}
	return a
}

func (j *Job) attempt(n int) *Attempt {
	i, ok := slices.BinarySearchFunc(j.Attempts, n, func(a Attempt, n int) int { return cmp.Compare(a.N, n) })
	if !ok {
		j.Attempts = slices.Insert(j.Attempts, i, Attempt{N: n})
	}
	return &j.Attempts[i]
}

func (j *Job) bind(b Binding) {
	j.Bound = addBinding(j.Bound, b)
}

func addBinding(list []Binding, b Binding) []Binding {
	for i := range list {
		if list[i].Remote.Key == b.Remote.Key {
			if b.Seq >= list[i].Seq {
				return list
			}
			list = slices.Delete(list, i, i+1)
			break
		}
	}
	list = append(list, b)
	slices.SortFunc(list, func(a, b Binding) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

func (j *Job) fire(f Firing) {
	for i := range j.Fired {
		if x := &j.Fired[i]; x.Name == f.Name && x.Gen == f.Gen {
			x.Mark = earliest(x.Mark, f.Mark)
			return
		}
	}
	j.Fired = append(j.Fired, f)
	slices.SortFunc(j.Fired, func(a, b Firing) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Gen, b.Gen))
	})
}

// fired returns the firing of a clock's generation; unset if it did not fire.
func (j *Job) fired(name Clock, gen int) Mark {
	for _, f := range j.Fired {
		if f.Name == name && f.Gen == gen {
			return f.Mark
		}
	}
	return Mark{}
}

// lastFired returns a clock's highest fired generation and its mark.
func (j *Job) lastFired(name Clock) (int, Mark) {
	gen, m := 0, Mark{}
	for _, f := range j.Fired {
		if f.Name == name && f.Gen > gen {
			gen, m = f.Gen, f.Mark
		}
	}
	return gen, m
}

func (j *Job) joinResult(data Data, m Mark) {
	switch d := data.(type) {
	case *ResultStored:
		r := j.result(d.G)
		if !r.StoredAt.Set() || m.Seq < r.StoredAt.Seq {
			r.Stored, r.StoredAt = d, m
		}
	case *ResultUnavailable:
		r := j.result(d.G)
		if !d.Final {
			r.Tried, r.TriedAt = max(r.Tried, d.N), latest(r.TriedAt, m)
			return // the collect clock decides when it is over
		}
		r.Unavailable = firstWord(r.Unavailable, cmp.Or(d.Reason, WhyResultUnavailable))
	case *ResultInvalid:
		r := j.result(d.G)
		r.Invalid = firstWord(r.Invalid, cmp.Or(d.Rule, WhyResultInvalid))
	}
}

func (j *Job) result(g int) *Result {
	i, ok := slices.BinarySearchFunc(j.Results, g, func(r Result, g int) int { return cmp.Compare(r.G, g) })
	if !ok {
		j.Results = slices.Insert(j.Results, i, Result{G: g})
	}
	return &j.Results[i]
}

func (j *Job) settle(d *Settled, m Mark) {
	for i := range j.Settlements {
		if s := &j.Settlements[i]; s.G == d.G {
			if !s.Set() || m.Seq < s.Seq {
				s.Mark, s.State, s.Settled = m, d.State, d
			}
			return
		}
	}
	j.Settlements = append(j.Settlements, Settlement{Mark: m, G: d.G, State: d.State, Settled: d})
	slices.SortFunc(j.Settlements, func(a, b Settlement) int { return cmp.Compare(a.G, b.G) })
}

// announce marks the public copy of settlement g as seen.
func (j *Job) announce(d *Settled, m Mark) {
	for i := range j.Settlements {
		if s := &j.Settlements[i]; s.G == d.G {
			s.Public = earliest(s.Public, m)
			return
		}
	}
	// The copy is always written after the decision; keeping it all the same
	// makes the join independent of that.
	j.Settlements = append(j.Settlements, Settlement{G: d.G, State: d.State, Settled: d, Public: m})
	slices.SortFunc(j.Settlements, func(a, b Settlement) int { return cmp.Compare(a.G, b.G) })
}

// public returns where the public copy of settlement g stands.
func (j *Job) public(g int) Mark {
	for i := range j.Settlements {
		if j.Settlements[i].G == g {
			return j.Settlements[i].Public
		}
	}
	return Mark{}
}

// settlement returns the newest announcement, nil if there is none.
func (j *Job) settlement() *Settlement {
	for i := len(j.Settlements) - 1; i >= 0; i-- {
		if j.Settlements[i].Set() {
			return &j.Settlements[i]
		}
	}
	return nil
}

// joinRemote takes over the present facts of a bound job.
func (j *Job) joinRemote(r *Remote) {
	for i := range j.Remotes {
		if j.Remotes[i].Ref.Key == r.Ref.Key {
			j.Remotes[i] = r.clone()
			return
		}
	}
	j.Remotes = append(j.Remotes, r.clone())
	slices.SortFunc(j.Remotes, func(a, b Remote) int { return cmp.Compare(a.Ref.Key, b.Ref.Key) })
}

// remote returns the joined copy of a job's facts, nil if it is not bound.
func (j *Job) remote(key JobKey) *Remote {
	for i := range j.Remotes {
		if j.Remotes[i].Ref.Key == key {
			return &j.Remotes[i]
		}
	}
	return nil
}

// Remote returns the facts of the job that the operation is bound to, nil if it
// is bound to none or to several.
func (j *Job) Remote() *Remote {
	if len(j.Bound) != 1 {
		return nil
	}
	return j.remote(j.Bound[0].Remote.Key)
}
