package events

import (
	"slices"
)

// Settlement builds the announcement of the present state, generation g. The
// state must be settled. It is a pure function of the facts, so two reconcilers
// announce the same thing.
func (j *Job) Settlement(g int) *Settled {
	s := &Settled{
		G: g, State: j.State, Outcome: j.Outcome, Reason: j.Why,
		Effects: j.Prepared.Effects, Labels: j.Prepared.Labels, SubmittedAt: j.Prepared.At,
		Evidence: []uint64{j.Prepared.Seq},
	}
	if len(j.Bound) == 0 {
		if c := j.creation(); c.rejected != nil {
			s.Evidence = append(s.Evidence, c.rejected.Ended.Seq)
			s.Error = &RemoteError{Code: c.rejected.Rejected.Code, Message: c.rejected.Rejected.Message}
			s.Reason = c.rejected.Rejected.Class
		} else if m := j.fired(ClockStartBy, 1); m.Set() {
			s.Evidence = append(s.Evidence, m.Seq)
		}
		return s
	}
	b := j.Bound[0]
	s.Remote = &b.Remote
	s.Evidence = append(s.Evidence, b.Seq)
	r := j.Remote()
	if r == nil {
		return s
	}
	if t := j.terminal(r); t != nil {
		s.Evidence = append(s.Evidence, t.First.Seq)
		s.Assurance = AssuranceWebhookOnly
		if t.Reading.Authoritative {
			s.Assurance = AssuranceRead
			if t.Reading.Source == SourceCreate {
				s.Assurance = AssuranceAnswer
			}
		}
		s.LearnedBy = r.learnedBy(t)
		s.Error, s.Counts = t.Reading.Error, t.Reading.Counts
	}
	for i := range j.Results {
		if x := &j.Results[i]; x.Stored != nil && j.State == StateSucceeded {
			s.Result = &x.Stored.Result
			s.Evidence = append(s.Evidence, x.StoredAt.Seq)
		}
	}
	slices.Sort(s.Evidence)
	return s
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

// OpenReviews returns the questions that the present state asks a person.
func (j *Job) OpenReviews() []Review {
	if !j.State.Suspended() {
		return nil
	}
	id := j.reviewID()
	var open []Review
	for _, r := range j.Reviews {
		if r.ID == id {
			open = append(open, r)
		}
	}
	return open
}

// ReviewID names the question that a suspended job asks.
func (j *Job) ReviewID() string { return j.reviewID() }
