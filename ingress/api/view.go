package api

import (
	"time"

	"github.com/pawl-dev/pawl/events"
)

// The views are the stable representation of a job: they change by addition
// only, whatever happens to the folded record behind them.

// Operation is one operation as it stands.
type Operation struct {
	OperationID events.OperationID `json:"operation_id"`
	Provider    events.Provider    `json:"provider"`
	Account     string             `json:"account"`
	State       events.State       `json:"state" doc:"Where the operation stands."`
	Why         string             `json:"why,omitempty" doc:"Reason of the state, from a closed set."`
	Because     string             `json:"because,omitempty" doc:"The reason in words."`
	Evidence    []uint64           `json:"evidence,omitempty" doc:"Sequences of the events that state and reason rest on."`
	Outcome     events.Outcome     `json:"outcome" doc:"pending, confirmed, failed, cancelled or pending_review. Settled only once it is announced."`
	CreatedAt   time.Time          `json:"created_at"`
	UpdatedAt   time.Time          `json:"updated_at"`
	CreatedBy   string             `json:"created_by,omitempty" doc:"Who authorised the intent."`
	Next        string             `json:"next,omitempty" doc:"The one action that is due next."`
	NextDue     *time.Time         `json:"next_due,omitempty"`
	Remote      *RemoteJob         `json:"remote,omitempty" doc:"The operation's job at the provider."`
	Conflicting []RemoteJob        `json:"conflicting,omitempty" doc:"Further jobs that the provider made for the operation."`
	Cancel      *Cancel            `json:"cancel,omitempty" doc:"The cancellation that somebody asked for."`
	Attempts    []Attempt          `json:"attempts,omitempty"`
	Settlements []Settlement       `json:"settlements,omitempty"`
	Effects     []Effect           `json:"effects,omitempty"`
	Reviews     []Review           `json:"reviews,omitempty"`
	Passed      []Passed           `json:"deadlines_passed,omitempty"`
	Deadlines   Deadlines          `json:"deadlines"`
	Labels      map[string]string  `json:"labels,omitempty"`
	Seq         uint64             `json:"seq" doc:"Last event that is folded here."`
	Links       Links              `json:"links"`
}

// RemoteJob is the provider's side.
type RemoteJob struct {
	ID           string             `json:"id"`
	State        events.RemoteState `json:"state,omitempty"`
	Account      string             `json:"account"`
	Via          string             `json:"via" doc:"How it was bound: create, lookup, callback or review."`
	Counts       *events.Counts     `json:"counts,omitempty"`
	Unrecognised string             `json:"unrecognised,omitempty" doc:"Latest status word without a mapping."`
}

// Attempt is one create attempt.
type Attempt struct {
	N       int        `json:"n"`
	At      time.Time  `json:"at"`
	Outcome string     `json:"outcome" doc:"accepted, rejected, throttled, not_sent, ambiguous or in_flight."`
	Class   string     `json:"class,omitempty"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
	RetryAt *time.Time `json:"retry_at,omitempty"`
}

// Cancel is a requested cancellation and what became of it.
type Cancel struct {
	Status events.CancelStatus `json:"status" doc:"latched, sent, refused, unsupported, nothing_was_sent, confirmed, overtaken_by_completion or unconfirmed."`
	By     string              `json:"by"`
	Reason string              `json:"reason,omitempty"`
	At     time.Time           `json:"at"`
	Calls  int                 `json:"calls" doc:"Cancel calls decided so far."`
}

// Settlement is one announcement.
type Settlement struct {
	G         int              `json:"g" doc:"Generation, from 1."`
	State     events.State     `json:"state"`
	Outcome   events.Outcome   `json:"outcome"`
	Reason    string           `json:"reason,omitempty"`
	Assurance events.Assurance `json:"assurance,omitempty"`
	LearnedBy events.Source    `json:"learned_by,omitempty"`
	At        time.Time        `json:"at"`
	Seq       uint64           `json:"seq"`
	Public    bool             `json:"public" doc:"Whether the public copy stands."`
}

// Effect is one side effect of one settlement.
type Effect struct {
	Name    string     `json:"name"`
	G       int        `json:"g"`
	State   string     `json:"state" doc:"done, dead, claimed or waiting."`
	Claims  int        `json:"claims"`
	Class   string     `json:"class,omitempty" doc:"How the latest claim ended."`
	Reason  string     `json:"reason,omitempty" doc:"Why it was given up."`
	At      time.Time  `json:"at" doc:"When it reached this state."`
	RetryAt *time.Time `json:"retry_at,omitempty"`
}

// Review is a question to a person.
type Review struct {
	ID         string              `json:"id"`
	Reason     string              `json:"reason"`
	Because    string              `json:"because,omitempty" doc:"The reason in words."`
	At         time.Time           `json:"at"`
	Seq        uint64              `json:"seq"`
	Open       bool                `json:"open" doc:"Whether the question still stands."`
	Answers    []events.Resolution `json:"answers,omitempty" doc:"What fits an open question."`
	Resolution events.Resolution   `json:"resolution,omitempty"`
	ResolvedBy string              `json:"resolved_by,omitempty"`
	ResolvedAt *time.Time          `json:"resolved_at,omitempty"`
	Note       string              `json:"note,omitempty"`
}

// Passed is a clock that ran out.
type Passed struct {
	Name events.Clock `json:"name"`
	Gen  int          `json:"gen"`
	At   time.Time    `json:"at"`
}

// Deadlines are the clocks of an operation.
type Deadlines struct {
	StartBy *time.Time `json:"start_by,omitempty"`
	Create  string     `json:"create"`
	Recon   string     `json:"recon"`
	Result  string     `json:"result"`
	Cancel  string     `json:"cancel"`
	Confirm string     `json:"confirm"`
	Collect string     `json:"collect"`
}

func viewOf(j *events.Job, updated time.Time) Operation {
	p := &j.Prepared
	v := Operation{
		OperationID: j.Operation, Provider: j.Provider, Account: p.Account,
		State: j.State, Why: j.Why, Outcome: j.PublicOutcome(),
		CreatedAt: p.At.UTC(), UpdatedAt: updated.UTC(), CreatedBy: p.Actor,
		Because: events.WhyText(j.Why), Evidence: j.Evidence,
		Next: j.Next, NextDue: instant(j.NextDue),
		Deadlines: deadlinesOf(p.Deadlines), Labels: p.Labels,
		Seq: j.AppliedSeq, Links: linksOf(j.Operation),
	}
	own := j.Own()
	for i := range j.Bound {
		b := remoteOf(j, j.Bound[i])
		if own != nil && own.Remote.Key == j.Bound[i].Remote.Key {
			v.Remote = &b
			continue
		}
		v.Conflicting = append(v.Conflicting, b)
	}
	for i := range j.Attempts {
		v.Attempts = append(v.Attempts, attemptOf(&j.Attempts[i]))
	}
	for i := range j.Settlements {
		if s := &j.Settlements[i]; s.Set() && s.Settled != nil {
			v.Settlements = append(v.Settlements, settlementOf(s))
		}
	}
	for i := range j.Effects {
		v.Effects = append(v.Effects, effectOf(&j.Effects[i]))
	}
	if j.Cancel.Set() {
		v.Cancel = &Cancel{Status: j.CancelStatus(), By: j.Cancel.By, Reason: j.Cancel.Reason, At: j.Cancel.At.UTC(), Calls: len(j.CancelCalls)}
	}
	for i := range j.Reviews {
		v.Reviews = append(v.Reviews, reviewOf(j, &j.Reviews[i]))
	}
	for _, f := range j.Fired {
		v.Passed = append(v.Passed, Passed{Name: f.Name, Gen: f.Gen, At: f.At.UTC()})
	}
	return v
}

func reviewOf(j *events.Job, r *events.Review) Review {
	v := Review{ID: r.ID, Reason: r.Reason, Because: events.WhyText(r.Reason), At: r.At.UTC(), Seq: r.Seq}
	for _, open := range j.OpenReviews() {
		if open.ID == r.ID {
			v.Open, v.Answers = true, j.Answers(r.Reason)
		}
	}
	if r.Resolved.Set() {
		v.Resolution, v.ResolvedBy, v.Note, v.ResolvedAt = r.Action, r.By, r.Note, instant(r.Resolved.At)
	}
	return v
}

func remoteOf(j *events.Job, b events.Binding) RemoteJob {
	v := RemoteJob{ID: b.Remote.ID, Account: b.Remote.Account, Via: b.Via}
	for _, r := range j.Remotes {
		if r.Ref.Key != b.Remote.Key {
			continue
		}
		v.State = r.State()
		v.Unrecognised = r.Unrecognised.Status
		if r.Counts.Set() {
			counts := r.Counts.Counts
			v.Counts = &counts
		}
	}
	return v
}

// attemptOf names the effective answer: what proves more comes first.
func attemptOf(a *events.Attempt) Attempt {
	v := Attempt{N: a.N, At: a.At.UTC(), Outcome: "in_flight", EndedAt: instant(a.Ended.At)}
	switch {
	case a.Accepted.Set():
		v.Outcome = "accepted"
	case a.Rejected != nil:
		v.Outcome, v.Class = "rejected", a.Rejected.Class
	case a.Throttled != nil:
		v.Outcome, v.RetryAt = "throttled", instant(a.Throttled.RetryAt)
	case a.NotSent != "":
		v.Outcome, v.Class = "not_sent", a.NotSent
	case a.Ambiguous != "":
		v.Outcome, v.Class = "ambiguous", a.Ambiguous
	}
	return v
}

func settlementOf(s *events.Settlement) Settlement {
	return Settlement{
		G: s.G, State: s.State, Outcome: s.Settled.Outcome, Reason: s.Settled.Reason,
		Assurance: s.Settled.Assurance, LearnedBy: s.Settled.LearnedBy,
		At: s.At.UTC(), Seq: s.Seq, Public: s.Public.Set(),
	}
}

func effectOf(e *events.Effect) Effect {
	v := Effect{Name: e.Name, G: e.G, State: "waiting", Claims: len(e.Claims), Reason: e.Reason}
	if n := len(e.Claims); n > 0 {
		c := &e.Claims[n-1]
		v.Class = c.Class
		if c.Ended.Set() {
			v.At, v.RetryAt = c.Ended.At.UTC(), instant(c.RetryAt)
		} else {
			v.State, v.At = "claimed", c.At.UTC()
		}
	}
	switch {
	case e.Done.Set():
		v.State, v.At, v.RetryAt, v.Class = "done", e.Done.At.UTC(), nil, ""
	case e.Dead.Set():
		v.State, v.At, v.RetryAt = "dead", e.Dead.At.UTC(), nil
	}
	return v
}

func deadlinesOf(d events.Deadlines) Deadlines {
	return Deadlines{
		StartBy: instant(d.StartBy), Create: d.Create.String(), Recon: d.Recon.String(),
		Result: d.Result.String(), Cancel: d.Cancel.String(), Confirm: d.Confirm.String(), Collect: d.Collect.String(),
	}
}

// instant is nil for the zero time, so that absence is absence in JSON too.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
