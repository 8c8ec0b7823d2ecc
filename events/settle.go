package events

import "slices"

// Settlement builds the announcement of the present state, generation g. The
// state must be settled. It is a pure function of the facts, so two reconcilers
// announce the same thing.
func (j *Job) Settlement(g int) *Settled {
	s := &Settled{
		G: g, State: j.State, Outcome: j.Outcome, Reason: j.Why, Cancel: j.CancelStatus(),
		Effects: j.Prepared.Effects, Labels: j.Prepared.Labels, SubmittedAt: j.Prepared.At,
		Evidence: []uint64{j.Prepared.Seq},
	}
	s.Evidence = append(s.Evidence, j.Evidence...)
	if b := j.Own(); b != nil {
		s.Remote = &b.Remote
		s.Evidence = append(s.Evidence, b.Seq)
		j.settleBound(s, b)
	} else {
		j.settleUnbound(s)
	}
	switch s.Reason {
	case WhyAcknowledged:
		s.DecidedBy, s.Assurance = j.ack().By, AssurancePerson
	case WhyClosed:
		s.DecidedBy, s.Assurance = j.Closed.By, AssurancePerson
	case WhyWaived:
		s.DecidedBy, s.Waived = j.Waiver.By, true
	}
	slices.Sort(s.Evidence)
	s.Evidence = slices.Compact(s.Evidence)
	if len(s.Evidence) > 0 && s.Evidence[0] == 0 {
		s.Evidence = s.Evidence[1:]
	}
	return s
}

func (j *Job) settleUnbound(s *Settled) {
	if j.State != StateRejected {
		return
	}
	if c := j.creation(); c.rejected != nil {
		s.Error = &RemoteError{Code: c.rejected.Rejected.Code, Message: c.rejected.Rejected.Message}
		s.Reason = c.rejected.Rejected.Class
	}
}

func (j *Job) settleBound(s *Settled, b *Binding) {
	r := j.remote(b.Remote.Key)
	if r == nil {
		return
	}
	t := j.terminal(r)
	if t == nil || t.State.settles() != j.State {
		return
	}
	s.Evidence = append(s.Evidence, t.First.Seq)
	s.Assurance = AssuranceWebhookOnly
	if t.Reading.Authoritative {
		s.Assurance = AssuranceRead
		if t.Reading.Source == SourceCreate {
			s.Assurance = AssuranceAnswer
		}
	}
	s.LearnedBy = r.learnedBy(t)
	s.Error, s.Counts, s.Detail = t.Reading.Error, t.Reading.Counts, t.Reading.Detail
	s.Late = j.late(b, t).Set()
	if j.State != StateSucceeded {
		return
	}
	for i := len(j.Results) - 1; i >= 0; i-- {
		if x := &j.Results[i]; x.Stored != nil {
			s.Result = &x.Stored.Result
			if x.Stored.Counts != nil {
				s.Counts = x.Stored.Counts
			}
			return
		}
	}
}

// learnedBy says who told the terminal state first: a webhook before our read,
// or the read. A read that came first although the provider pushes is a rescue.
func (r *Remote) learnedBy(t *Claim) Source {
	for _, c := range r.newest().Claims {
		if c.State == t.State && c.First.Seq < t.First.Seq {
			return SourceWebhook
		}
	}
	return t.Reading.Source
}

// InlineResult returns the result that came with the confirming read, nil if
// none did.
func (j *Job) InlineResult() *Blob {
	r := j.Remote()
	if r == nil {
		return nil
	}
	if t := j.terminal(r); t != nil {
		return t.Reading.Result
	}
	return nil
}

// Rescued reports whether the settled outcome was learned by polling although
// the provider should have pushed it.
func (j *Job) Rescued() bool {
	s := j.settlement()
	return s != nil && s.Settled != nil && j.Prepared.Contract.Callback && s.Settled.LearnedBy == SourcePoll
}

// LatestSettlement returns the newest announcement, nil if there is none.
func (j *Job) LatestSettlement() *Settlement { return j.settlement() }

// Announced returns the newest announcement if it says what the job says now,
// nil otherwise: nobody may act on a state before it is announced.
func (j *Job) Announced() *Settlement {
	if s := j.settlement(); s != nil && s.State == j.State && !j.saysElse(s) {
		return s
	}
	return nil
}

// PublicOutcome is the one word for whoever waits: a settled state that is not
// announced yet is still pending.
func (j *Job) PublicOutcome() Outcome {
	if j.State.Settled() && j.Announced() == nil {
		return OutcomePending
	}
	return j.Outcome
}
