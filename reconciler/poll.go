package reconciler

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// poll reads a job's status. Only a reading that changes what is known becomes
// an event; the others are counted and told once in five minutes.
func (s *step) poll(ctx context.Context) error {
	ref := s.action.Remote
	req, err := s.r.cfg.Provider.Status(ref)
	if err != nil {
		// Nothing can ever be asked about this job; its clocks go on all the same.
		s.polled = true
		return s.deferred(ctx, ref, provider.StatusAnswer{Class: "unrenderable", Detail: err.Error()})
	}
	req.Timeout = s.r.policy.RequestTimeout
	a := s.r.cfg.Provider.ReadStatus(ref, s.r.cfg.Caller.Call(ctx, s.traced(req)), s.r.cfg.Now())
	if ctx.Err() != nil {
		return context.Cause(ctx) // our own stop says nothing about the provider
	}
	s.polled = true
	s.pause(a.RetryAfter)
	outcome := string(a.Kind)
	switch a.Kind {
	case provider.StatusRead:
		outcome, err = s.reading(ctx, ref, a.Reading)
	case provider.StatusUnrecognised:
		err = s.record(ctx, s.jobSubject(ref), fmt.Sprintf("pu:%s:%s:%d", ref.Key, events.HashID(a.Word), bucket(s.r.cfg.Now())),
			&events.Unrecognised{Remote: ref, Status: a.Word, Source: events.SourcePoll})
	case provider.StatusGone:
		err = s.gone(ctx, ref, a.Status)
	default:
		err = s.deferred(ctx, ref, a)
	}
	s.r.cfg.Metrics.polls.WithLabelValues(string(s.job.Provider), outcome).Inc()
	return err
}

func (s *step) jobSubject(ref events.RemoteRef) events.Subject {
	return events.JobSubject(s.job.Provider, ref.Key)
}

func (s *step) reading(ctx context.Context, ref events.RemoteRef, g events.Reading) (string, error) {
	if known := s.job.Remote(); known != nil && !known.Changes(g) {
		s.unchanged = true
		return "unchanged", s.audited(ctx, ref)
	}
	return "changed", s.observed(ctx, ref, g, "po")
}

// observed appends a reading. Its id names the state, and for a state that may
// come back the latest contrary evidence, so that a repeat is the same event and
// a contradiction is a new one.
func (s *step) observed(ctx context.Context, ref events.RemoteRef, g events.Reading, prefix string) error {
	if err := s.moveResult(ctx, &g); err != nil {
		return err
	}
	since := uint64(0)
	if known := s.job.Remote(); known != nil {
		since = known.Contrary()
	}
	shape, err := json.Marshal(struct {
		D string
		C *events.Counts
	}{g.Detail, g.Counts})
	if err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	id := fmt.Sprintf("%s:%s:%d:%s:%s:%d", prefix, ref.Key, g.Attempt, g.State, events.HashID(string(shape))[:8], since)
	return s.record(ctx, s.jobSubject(ref), id, &events.Observed{Remote: ref, Reading: g})
}

// moveResult puts a result that is too large for an event into the object store.
func (s *step) moveResult(ctx context.Context, g *events.Reading) error {
	if g.Result == nil || len(g.Result.Inline) <= events.InlineMaxBytes {
		return nil
	}
	ctx, stop := drain(ctx)
	defer stop()
	address, err := s.r.cfg.Objects.Put(ctx, g.Result.Inline)
	if err != nil {
		return fmt.Errorf("store result: %w", err)
	}
	moved := *g.Result
	moved.Inline, moved.Ref = nil, address
	g.Result = &moved
	return nil
}

// audited tells, once in five minutes, how many reads changed nothing.
func (s *step) audited(ctx context.Context, ref events.RemoteRef) error {
	seen := s.r.agenda.auditOf(s.job.Operation)
	if seen.count == 0 || s.r.cfg.Now().Sub(seen.since) < auditEvery {
		return nil
	}
	s.unchanged = false // the count starts anew
	return s.record(ctx, s.jobSubject(ref), fmt.Sprintf("pa:%s:%d", ref.Key, bucket(s.r.cfg.Now())),
		&events.PollAudit{Remote: ref, Count: seen.count + 1, Since: seen.since.UTC()})
}

func (s *step) gone(ctx context.Context, ref events.RemoteRef, status int) error {
	since := uint64(0)
	if known := s.job.Remote(); known != nil {
		if known.IsGone() {
			s.unchanged = true
			return nil
		}
		since = known.LastGoodRead()
	}
	return s.record(ctx, s.jobSubject(ref), fmt.Sprintf("pg:%s:%d", ref.Key, since), &events.Gone{Remote: ref, Status: status})
}

// pauseKept is the shortest pause that is stored. A restart that forgets a
// shorter one costs one early read.
const pauseKept = time.Minute

// deferred records why a read gave nothing, once a reason in five minutes, or
// until when the provider wants to be left alone. The event says nothing that
// its id does not: with the instant of each read in it, every failing read of an
// outage would be news under a taken id, and be stored.
func (s *step) deferred(ctx context.Context, ref events.RemoteRef, a provider.StatusAnswer) error {
	now := s.r.cfg.Now()
	until := now.Truncate(reasonBucket) // past: it holds nothing back
	if a.RetryAfter >= pauseKept {
		until = now.Add(a.RetryAfter + time.Second).Truncate(time.Second)
	}
	return s.record(ctx, s.jobSubject(ref), fmt.Sprintf("pd:%s:%s:%d", ref.Key, a.Class, until.Unix()),
		&events.PollDeferred{Remote: ref, Until: until.UTC(), Reason: a.Class})
}
