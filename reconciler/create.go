package reconciler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// create sends one attempt: render and compare with what was pinned, decide
// under the fence, send within the budget, record what the answer proves.
func (s *step) create(ctx context.Context) error {
	req, changed, err := s.render(ctx)
	if err != nil {
		return err
	}
	if changed {
		return s.review(ctx, events.WhyRequestChanged)
	}
	now := s.r.cfg.Now()
	p := s.r.policy
	sendBy := now.Add(p.SendBudget)
	if limit := s.job.SendLimit(); !limit.IsZero() && limit.Before(sendBy) {
		if sendBy = now.Add(limit.Sub(now)); !sendBy.After(now) {
			return nil // the window closed while the step waited; its clock is next
		}
	}
	data := &events.AttemptStarted{N: s.action.N, Window: s.action.Window, SendBy: sendBy.UTC(), LeaseUntil: sendBy.Add(p.RequestTimeout + p.LeaseMargin).UTC()}
	decideCtx, cancel := context.WithDeadlineCause(ctx, sendBy, errors.New("the send window closed before the decision was durable"))
	defer cancel()
	ok, err := s.decide(decideCtx, s.operation(), s.job.OpSeq, fmt.Sprintf("ca:%s:%d", s.job.Operation, s.action.N), data)
	if err != nil || !ok {
		return err
	}
	// now carries the monotonic clock, so a jump of the wall clock moves nothing.
	req.SendBy, req.Timeout = sendBy, p.RequestTimeout
	callCtx, stop := drain(ctx)
	defer stop()
	answer := s.r.cfg.Provider.ReadCreate(s.r.cfg.Caller.Call(callCtx, req), s.r.cfg.Now())
	s.r.cfg.Metrics.creates.WithLabelValues(string(s.job.Provider), string(answer.Kind)).Inc()
	s.r.log.Info("create answered", "operation", string(s.job.Operation), "attempt", s.action.N, "outcome", string(answer.Kind), "class", answer.Class)
	return s.recordAnswer(ctx, answer)
}

// render builds the request anew and reports whether it is still the pinned
// one: an attempt with other bytes would be another request under one token.
func (s *step) render(ctx context.Context) (events.Request, bool, error) {
	prepared, err := s.prepared(ctx)
	if err != nil {
		return events.Request{}, false, err
	}
	input := prepared.Intent.Input
	if ref := prepared.Intent.InputRef; ref != nil {
		if input, err = s.r.cfg.Objects.Get(ctx, ref.Ref); err != nil {
			return events.Request{}, false, fmt.Errorf("fetch input: %w", err)
		}
	}
	in := provider.CreateInput{Operation: s.job.Operation, Token: prepared.Token, Input: input}
	if prepared.Contract.Callback {
		in.CallbackURL = s.r.cfg.PublicURL + events.CallbackPath(s.r.cfg.MasterKey, s.job.Provider, s.job.Prepared.Account, s.job.Operation)
	}
	req, err := s.r.cfg.Provider.Create(in)
	var field *events.FieldError
	if errors.As(err, &field) {
		return events.Request{}, true, nil // the description no longer takes this input
	}
	if err != nil {
		return events.Request{}, false, fmt.Errorf("render create: %w", err)
	}
	return s.traced(req), provider.RequestSHA256(req) != prepared.RequestSHA256, nil
}

func (s *step) prepared(ctx context.Context) (*events.Prepared, error) {
	recs, err := s.r.cfg.Ledger.Read(ctx, s.operation(), 0, 1)
	if err != nil {
		return nil, fmt.Errorf("read intent: %w", err)
	}
	if len(recs) == 1 {
		if p, ok := recs[0].Event.Data.(*events.Prepared); ok {
			return p, nil
		}
	}
	return nil, fmt.Errorf("the subject of %s does not begin with its intent", s.job.Operation)
}

// traced adds the operation's trace id, after the request was hashed: it names
// the call, it is not part of what is asked.
func (s *step) traced(req events.Request) events.Request {
	if s.job.Prepared.Trace == "" {
		return req
	}
	h := make(map[string]string, len(req.Header)+1)
	for k, v := range req.Header {
		h[k] = v
	}
	h["Traceparent"] = s.job.Prepared.Trace
	req.Header = h
	return req
}

// recordAnswer stores what the answer to an attempt proves.
func (s *step) recordAnswer(ctx context.Context, a provider.CreateAnswer) error {
	n := s.action.N
	id := fmt.Sprintf("co:%s:%d:", s.job.Operation, n)
	switch a.Kind {
	case provider.CreateAccepted:
		return s.accepted(ctx, a)
	case provider.CreateRejected:
		return s.record(ctx, s.operation(), id+"rej", &events.Rejected{N: n, Class: a.Class, Status: a.Status, Code: a.Code, Message: a.Message})
	case provider.CreateThrottled:
		data := &events.Throttled{N: n}
		if a.RetryAfter > 0 {
			data.RetryAt = s.r.cfg.Now().Add(a.RetryAfter).UTC()
		}
		return s.record(ctx, s.operation(), id+"thr", data)
	case provider.CreateNotSent:
		return s.record(ctx, s.operation(), id+"ns", &events.NotSent{N: n, Class: a.Class, Detail: cut(a.Message)})
	default:
		s.r.cfg.Metrics.unknown.WithLabelValues(string(s.job.Provider)).Inc()
		return s.record(ctx, s.operation(), id+"amb:"+a.Class, &events.Ambiguous{N: n, Class: a.Class, Status: a.Status, Detail: cut(a.Message)})
	}
}

// accepted binds the job. A final state in the answer is stored first, on the
// job's own subject: facts wait there, so a crash between the two loses nothing.
func (s *step) accepted(ctx context.Context, a provider.CreateAnswer) error {
	ref := s.ref(a.RemoteID)
	state := events.RemoteState("")
	var lost error // of the reading; the binding is worth more and stands without it
	if a.Reading != nil {
		state = a.Reading.State
		if a.Reading.Authoritative && state.Terminal() {
			lost = s.observed(ctx, ref, *a.Reading, "create")
		}
	}
	err := s.record(ctx, s.operation(), fmt.Sprintf("co:%s:%d:acc:%s", s.job.Operation, s.action.N, ref.Key),
		&events.Accepted{N: s.action.N, Remote: ref, State: state})
	if err != nil {
		s.r.log.Error("a job is known here and nowhere else", "operation", string(s.job.Operation), "attempt", s.action.N, "remote_id", a.RemoteID)
	}
	return errors.Join(lost, err)
}

func (s *step) ref(remoteID string) events.RemoteRef {
	account := s.job.Prepared.Account
	return events.RemoteRef{ID: remoteID, Account: account, Key: events.MakeJobKey(s.job.Provider, account, remoteID)}
}

// lookup asks the provider whether it has a job for the token. What it proves
// covers only attempts that ended a settling time before the question.
func (s *step) lookup(ctx context.Context) error {
	began := s.r.cfg.Now()
	req, err := s.r.cfg.Provider.Lookup(s.job.Operation, s.job.Prepared.Token)
	if err != nil {
		s.polled = true // as asked, without an answer: the clocks go on
		return s.record(ctx, s.operation(), fmt.Sprintf("rx:%s:lookup:%d:unrenderable:%d", s.job.Operation, len(s.job.Attempts), bucket(began)),
			&events.ReconFailed{Class: "unrenderable"})
	}
	req.Timeout = s.r.policy.RequestTimeout
	a := s.r.cfg.Provider.ReadLookup(s.job.Operation, s.job.Prepared.Token, s.r.cfg.Caller.Call(ctx, s.traced(req)), s.r.cfg.Now())
	if ctx.Err() != nil {
		return context.Cause(ctx) // our own stop says nothing about the provider
	}
	s.polled = true
	s.r.cfg.Metrics.polls.WithLabelValues(string(s.job.Provider), string(a.Kind)).Inc()
	s.pause(a.RetryAfter)
	switch a.Kind {
	case provider.LookupFound:
		ref := s.ref(a.RemoteID)
		return s.record(ctx, s.operation(), fmt.Sprintf("rf:%s:%s", s.job.Operation, ref.Key), &events.ReconFound{Remote: ref, Via: "lookup"})
	case provider.LookupAbsent:
		covers := covered(s.job, began.Add(-s.r.policy.LookupDelay))
		if covers == 0 {
			return nil
		}
		return s.record(ctx, s.operation(), fmt.Sprintf("ra:%s:%d:%d", s.job.Operation, covers, began.UnixMilli()),
			&events.ReconAbsent{Covers: covers, AsOf: began.UTC()})
	default:
		// The number of attempts is part of the id: a failed look-up is what lets
		// the same token go again, and it must be newer than the attempt.
		return s.record(ctx, s.operation(), fmt.Sprintf("rx:%s:lookup:%d:%s:%d", s.job.Operation, len(s.job.Attempts), a.Class, bucket(began)),
			&events.ReconFailed{Class: a.Class})
	}
}

// covered is the highest attempt that, with all before it, ended by an instant.
func covered(j *events.Job, by time.Time) int {
	n := 0
	for _, a := range j.Attempts {
		if !a.Ended.Set() || a.Ended.At.After(by) {
			break
		}
		n = a.N
	}
	return n
}

func (s *step) pause(d time.Duration) {
	if d > 0 {
		s.readsAfter = s.r.cfg.Now().Add(d)
	}
}

// bucket numbers five-minute spans: a repeat within one makes the same id.
func bucket(t time.Time) int64 { return t.Unix() / int64(reasonBucket.Seconds()) }

// cut bounds a text from elsewhere.
func cut(text string) string {
	const limit = 512
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}
