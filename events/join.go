package events

import (
	"cmp"
	"slices"
)

// join folds the payload of one event of the operation's subject into the facts.
// It is commutative and idempotent but for decisions, which the fence orders.
func (j *Job) join(e *Event, m Mark) {
	switch d := e.Data.(type) {
	case *Prepared:
		j.prepare(d, e, m)
	case *AttemptStarted, *Accepted, *Rejected, *Ambiguous, *NotSent, *Throttled:
		j.joinAttempt(d, m)
	case *ReconFound:
		j.bind(Binding{Mark: m, Remote: d.Remote, Via: d.Via})
	case *ReconAbsent:
		j.cover(d.Covers, m)
	case *ReconFailed:
		j.ReconFailed = latest(j.ReconFailed, m)
	case *DeadlinePassed:
		j.fire(Firing{Mark: m, Name: d.Name, Gen: d.Gen, Due: d.Due})
	case *CancelRequested:
		if !j.Cancel.Set() || m.Seq < j.Cancel.Seq {
			j.Cancel = Latch{Mark: m, ID: d.ID, By: d.By, Reason: d.Reason, Expected: d.Expected}
		}
	case *CancelStarted, *CancelAcknowledged, *CancelRefused, *CancelAmbiguous, *CancelNotSent:
		j.joinCancel(d, m)
	case *CollectStarted, *ResultStored, *ResultUnavailable, *ResultInvalid:
		j.joinResult(d, m)
	case *Settled:
		j.settle(d, m)
	case *ReviewOpened:
		j.openReview(d, m)
	case *ReviewResolved:
		j.resolve(d, m)
	case *EffectClaimed, *EffectAttempted, *EffectDone, *EffectDead:
		j.joinEffect(d, m)
	case *Archived:
		j.bury(d, m)
	}
}

func (j *Job) prepare(d *Prepared, e *Event, m Mark) {
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
	var a *Attempt
	switch d := data.(type) {
	case *AttemptStarted:
		a = j.attempt(d.N)
		if !a.Set() || m.Seq < a.Seq {
			a.Mark, a.SendBy, a.LeaseUntil = m, d.SendBy, d.LeaseUntil
			a.Window = cmp.Or(d.Window, d.N)
		}
		return
	case *Accepted:
		a = j.attempt(d.N)
		a.Accepted = earliest(a.Accepted, m)
		j.bind(Binding{Mark: m, Remote: d.Remote, Via: "create"})
	case *Rejected:
		a = j.attempt(d.N)
		if a.Rejected == nil || d.before(a.Rejected) {
			a.Rejected = d
		}
	case *Ambiguous:
		a = j.attempt(d.N)
		a.Ambiguous = firstWord(a.Ambiguous, d.Class)
	case *NotSent:
		a = j.attempt(d.N)
		a.NotSent = firstWord(a.NotSent, d.Class)
	case *Throttled:
		a = j.attempt(d.N)
		if a.Throttled == nil || d.RetryAt.After(a.Throttled.RetryAt) {
			a.Throttled = d
		}
	}
	a.Answered, a.Ended = earliest(a.Answered, m), latest(a.Ended, m)
}

// before orders two refusals of one attempt, so that the order of arrival does
// not show. The one that calls for a person comes first: a plain refusal beside
// it must not take the question back.
func (d *Rejected) before(o *Rejected) bool {
	if a, b := d.Class == WhyTokenMismatch, o.Class == WhyTokenMismatch; a != b {
		return a
	}
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
		j.Attempts = slices.Insert(j.Attempts, i, Attempt{N: n, Window: n})
	}
	return &j.Attempts[i]
}

func (j *Job) bind(b Binding) { j.Bound = addBinding(j.Bound, b) }

// addBinding keeps the earliest mark of each job, and of too many jobs those
// that came first.
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
	i, _ := slices.BinarySearchFunc(list, b.Seq, func(x Binding, seq uint64) int { return cmp.Compare(x.Seq, seq) })
	list = slices.Insert(list, i, b)
	return list[:min(len(list), bindingsMax)]
}

func (j *Job) joinResult(data Data, m Mark) {
	switch d := data.(type) {
	case *CollectStarted:
		r := j.result(d.G)
		if d.N > r.Started || (d.N == r.Started && m.Seq < r.StartedAt.Seq) {
			r.Started, r.StartedAt, r.LeaseUntil = d.N, m, d.LeaseUntil
		}
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
		r.Unavailable, r.EndedAt = firstWord(r.Unavailable, cmp.Or(d.Reason, WhyResultUnavailable)), latest(r.EndedAt, m)
	case *ResultInvalid:
		r := j.result(d.G)
		r.Invalid, r.EndedAt = firstWord(r.Invalid, cmp.Or(d.Rule, WhyResultInvalid)), latest(r.EndedAt, m)
	}
}

func (j *Job) result(g int) *Result {
	i, ok := slices.BinarySearchFunc(j.Results, g, func(r Result, g int) int { return cmp.Compare(r.G, g) })
	if !ok {
		j.Results = slices.Insert(j.Results, i, Result{G: g})
	}
	return &j.Results[i]
}

// settlementOf returns the record of announcement g, made if absent.
func (j *Job) settlementOf(g int) *Settlement {
	i, ok := slices.BinarySearchFunc(j.Settlements, g, func(s Settlement, g int) int { return cmp.Compare(s.G, g) })
	if !ok {
		j.Settlements = slices.Insert(j.Settlements, i, Settlement{G: g})
	}
	return &j.Settlements[i]
}

func (j *Job) settle(d *Settled, m Mark) {
	if s := j.settlementOf(d.G); !s.Set() || m.Seq < s.Seq {
		s.Mark, s.State, s.Settled = m, d.State, d
	}
}

// announce marks the public copy of a settlement as seen. The copy is always
// written after the decision; keeping what it says all the same makes the join
// independent of that.
func (j *Job) announce(d *Settled, m Mark) {
	s := j.settlementOf(d.G)
	if !s.Set() && s.Settled == nil {
		s.State, s.Settled = d.State, d
	}
	s.Public = earliest(s.Public, m)
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

// bury keeps what an archive says. Folded after the whole history it changes
// nothing but the flag; folded alone it stands for the history.
func (j *Job) bury(d *Archived, m Mark) {
	if j.Archived != nil && j.Archived.Seq <= m.Seq {
		return
	}
	j.Archived = &Tombstone{Mark: m, Data: d}
	if !j.Prepared.Set() {
		j.Prepared.Fingerprint = d.Fingerprint
	}
	for _, x := range d.Settlements {
		if s := j.settlementOf(x.G); !s.Set() {
			s.Mark, s.State, s.Public = Mark{Seq: x.Seq, At: d.PreparedAt}, x.State, Mark{Seq: x.Seq, At: d.PreparedAt}
		}
	}
	for _, x := range d.Effects {
		e := j.makeEffect(x.Name, x.G)
		if x.Done {
			e.Done = earliest(e.Done, m)
		} else {
			e.Dead = earliest(e.Dead, m)
		}
	}
}

// cover notes that the attempts up to n made no job.
func (j *Job) cover(n int, m Mark) {
	switch {
	case n > j.Covers:
		j.Covers, j.Absent = n, m
	case n == j.Covers:
		j.Absent = earliest(j.Absent, m)
	}
}

// joinRemote takes over the present facts of a bound job. The record is the
// view's own, so what is folded into it later shows here without a copy.
func (j *Job) joinRemote(r *Remote) {
	i, ok := slices.BinarySearchFunc(j.Remotes, r.Ref.Key, func(x *Remote, k JobKey) int { return cmp.Compare(x.Ref.Key, k) })
	if ok {
		j.Remotes[i] = r
		return
	}
	j.Remotes = slices.Insert(j.Remotes, i, r)
}

// remote returns the facts of a bound job, nil if it is not bound.
func (j *Job) remote(key JobKey) *Remote {
	for _, r := range j.Remotes {
		if r.Ref.Key == key {
			return r
		}
	}
	return nil
}

// Own returns the binding to the operation's own job: the one that a person
// chose, else the only one. It is nil while there is none, or several and nobody
// chose since the last of them came.
func (j *Job) Own() *Binding {
	if !j.Pick.Set() {
		if len(j.Bound) == 1 {
			return &j.Bound[0]
		}
		return nil
	}
	for i := range j.Bound {
		if b := &j.Bound[i]; b.Remote.Key != j.Pick.Remote.Key && b.Seq > j.Pick.Seq {
			return nil
		}
	}
	return &j.Pick
}

// Remote returns the facts of the operation's own job, nil if there is none.
func (j *Job) Remote() *Remote {
	if b := j.Own(); b != nil {
		return j.remote(b.Remote.Key)
	}
	return nil
}
