package reconciler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// Ledger is what the reconciler needs of the stream.
type Ledger interface {
	events.Decider
	events.Recorder
	events.Reader
}

// Config is what one provider's reconciler needs. All fields but Wait are required.
type Config struct {
	Ledger    Ledger
	Objects   events.Objects
	Provider  *provider.Provider
	Caller    events.Caller
	PublicURL string // base of callback URLs, without a trailing slash
	MasterKey events.Secret
	Now       func() time.Time
	// Wait pauses between two tries and reports false when the context ended
	// first; nil: a timer.
	Wait    func(ctx context.Context, d time.Duration) bool
	Entropy io.Reader // safe for concurrent use
	Logger  *slog.Logger
	Metrics *Metrics
}

// Bounds of one step.
const (
	recordTimeout = 2 * time.Minute  // keeping an answer is worth waiting for
	foldWait      = 10 * time.Second // then a step is tried again from the facts at hand
	errorPause    = time.Second
	drainTime     = 10 * time.Second // a call on the wire may end by itself after a stop
	auditEvery    = 5 * time.Minute
	reasonBucket  = 5 * time.Minute // one event a reason in this time
)

// actor is the name under which the reconciler writes.
const actor = "reconciler"

// Reconciler drives the operations of one provider.
type Reconciler struct {
	cfg    Config
	policy events.Policy
	agenda *agenda
	log    *slog.Logger
}

// New returns a reconciler that knows no job yet.
func New(cfg Config) *Reconciler {
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	r := &Reconciler{cfg: cfg, policy: cfg.Provider.Policy(), log: cfg.Logger.With("provider", string(cfg.Provider.Name()))}
	r.agenda = newAgenda(cfg.Provider.ConcurrencyMax(), cfg.Now, func(e *entry, now time.Time) events.Action {
		return events.Next(e.job, r.policy, now, e.memory)
	})
	return r
}

// Observe takes over a job as the bucket has it. Jobs of other providers are
// ignored. The caller does not change the job afterwards.
func (r *Reconciler) Observe(j *events.Job) {
	if j.Provider == r.cfg.Provider.Name() {
		r.agenda.observe(j)
	}
}

// Name is the provider's configured name.
func (r *Reconciler) Name() string { return string(r.cfg.Provider.Name()) }

// localWorkers take the steps that need no call, besides those that wait for one.
const localWorkers = 8

// Concurrency is how many workers to run: as many as the description allows
// calls, and some for the steps that need none.
func (r *Reconciler) Concurrency() int { return r.cfg.Provider.ConcurrencyMax() + localWorkers }

// Gauge sets the metrics that are counts of present states.
func (r *Reconciler) Gauge() {
	name := string(r.cfg.Provider.Name())
	r.cfg.Metrics.open.WithLabelValues(name).Set(float64(r.agenda.count(func(j *events.Job) bool {
		return j.State == events.StateCreateUnknown || j.State == events.StateReconciling
	})))
	r.cfg.Metrics.review.WithLabelValues(name).Set(float64(r.agenda.count(func(j *events.Job) bool { return len(j.Questions()) > 0 })))
}

// Work takes steps as they come due until the context ends, and returns its
// cause. Several workers may run; one operation is never with two of them.
func (r *Reconciler) Work(ctx context.Context) error {
	for {
		e, err := r.agenda.take(ctx)
		if err != nil {
			return err
		}
		r.perform(ctx, e)
	}
}

// Step takes the one step that is due, if there is one, and returns. Else it says
// how long to wait, as far as it knows. Work does the same with several workers
// and waits by itself.
func (r *Reconciler) Step(ctx context.Context) (taken bool, after time.Duration) {
	e, after := r.agenda.pop()
	if e == nil {
		return false, after
	}
	r.perform(ctx, e)
	return true, 0
}

func (r *Reconciler) perform(ctx context.Context, e *entry) {
	job, action, memory := r.agenda.snapshot(e)
	s := &step{r: r, job: job, action: action}
	err := s.guarded(ctx)
	r.agenda.done(e, func(e *entry) { r.remember(e, s, memory, err) })
	if err != nil && ctx.Err() == nil {
		r.log.Warn("step failed, will be taken again", "operation", string(job.Operation), "step", string(action.Kind), "err", err)
	}
}

// remember writes the effect of a step into its entry.
func (r *Reconciler) remember(e *entry, s *step, memory events.Memory, err error) {
	now := r.cfg.Now()
	e.memory = memory
	if s.polled {
		e.memory.Polled, e.memory.ReadsAfter = now, s.readsAfter
	}
	if s.seq > 0 {
		e.waitSeq, e.waitEnd = s.seq, now.Add(foldWait)
	}
	e.failedUntil = time.Time{}
	// A step that stored nothing new would be due again at once. A read is not: its
	// schedule goes on from the read.
	if err != nil || (s.repeat && !s.polled && s.seq <= e.job.AppliedSeq) {
		e.failedUntil = now.Add(errorPause)
	}
	switch {
	case !s.unchanged:
		if s.polled {
			e.audit = audit{}
		}
	case e.audit.count == 0:
		e.audit = audit{count: 1, since: now}
	default:
		e.audit.count++
	}
}

// step is one action on one job, and what came of it.
type step struct {
	r      *Reconciler
	job    *events.Job
	action events.Action

	seq        uint64    // highest sequence that the step appended, or that fenced it
	polled     bool      // the provider was asked
	unchanged  bool      // and said nothing new
	repeat     bool      // what was appended stood there already
	readsAfter time.Time // a pause that the provider asked for
}

// guarded takes the step and turns a panic into an error: one description or one
// answer that breaks a reader must not take the other operations down.
func (s *step) guarded(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.r.log.Error("step panicked", "operation", string(s.job.Operation), "step", string(s.action.Kind), "stack", string(debug.Stack()))
			err = fmt.Errorf("step %s panicked", s.action.Kind)
		}
	}()
	return s.take(ctx)
}

// take performs the action. An error means that nothing is known to be stored;
// the step is then taken again later, from the facts.
func (s *step) take(ctx context.Context) error {
	switch s.action.Kind {
	case events.ActCreate:
		return s.create(ctx)
	case events.ActExpireLease:
		return s.record(ctx, s.operation(), fmt.Sprintf("co:%s:%d:amb:lease_expired", s.job.Operation, s.action.N),
			&events.Ambiguous{N: s.action.N, Class: "lease_expired"})
	case events.ActBind:
		return s.record(ctx, s.operation(), fmt.Sprintf("rf:%s:%s", s.job.Operation, s.action.Remote.Key),
			&events.ReconFound{Remote: s.action.Remote, Via: "callback"})
	case events.ActLookup:
		return s.lookup(ctx)
	case events.ActPoll:
		return s.poll(ctx)
	case events.ActCollect:
		return s.collect(ctx)
	case events.ActSettle:
		return s.settle(ctx)
	case events.ActAnnounce:
		return s.announce(ctx)
	case events.ActReview:
		return s.review(ctx, s.action.Reason)
	case events.ActExpireCancel:
		return s.record(ctx, s.operation(), fmt.Sprintf("cx:%s:%d:ambiguous:lease_expired", s.job.Operation, s.action.N),
			&events.CancelAmbiguous{N: s.action.N, Class: "lease_expired"})
	case events.ActExpireCollect:
		return s.record(ctx, s.operation(), fmt.Sprintf("rx:%s:%d:%d:lease_expired", s.job.Operation, s.action.G, s.action.N),
			&events.ResultUnavailable{G: s.action.G, N: s.action.N, Final: s.job.Prepared.Contract.ResultOnce, Reason: "lease_expired"})
	case events.ActDeadline:
		return s.record(ctx, s.operation(), fmt.Sprintf("dl:%s:%s:%d", s.job.Operation, s.action.Clock, s.action.Gen),
			&events.DeadlinePassed{Name: s.action.Clock, Gen: s.action.Gen, Due: s.action.Due})
	default:
		return nil
	}
}

func (s *step) operation() events.Subject {
	return events.OperationSubject(s.job.Provider, s.job.Operation)
}

func (s *step) event(subject events.Subject, id string, data events.Data) events.Event {
	return events.Event{
		ID: id, Subject: subject, Time: s.r.cfg.Now().UTC(), Actor: actor,
		Trace: s.job.Prepared.Trace, Data: data,
	}
}

// record appends evidence and waits long for it: an answer that is not stored
// is an answer lost.
func (s *step) record(ctx context.Context, subject events.Subject, id string, data events.Data) error {
	ctx, stop := drain(ctx)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, recordTimeout, errors.New("evidence could not be stored in time"))
	defer cancel()
	e := s.event(subject, id, data)
	for {
		got, err := s.r.cfg.Ledger.Record(ctx, e)
		if err == nil {
			s.seq = max(s.seq, got.Seq)
			s.repeat = got.Outcome == events.Duplicate
			return nil
		}
		if !errors.Is(err, events.ErrUnavailable) || !s.r.cfg.Wait(ctx, errorPause) {
			s.r.log.Error("what was learned could not be stored", "operation", string(s.job.Operation), "event_id", id, "err", err)
			return fmt.Errorf("record %s: %w", data.Type(), err)
		}
	}
}

// wait pauses and reports false when the context ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// decide appends a decision under the fence and reports whether it stands.
func (s *step) decide(ctx context.Context, subject events.Subject, expected uint64, id string, data events.Data) (bool, error) {
	e := s.event(subject, id, data)
	claim, err := events.NewULID(e.Time, s.r.cfg.Entropy)
	if err != nil {
		return false, err
	}
	e.Claim = claim
	got, err := s.r.cfg.Ledger.Decide(ctx, expected, e)
	if err != nil {
		return false, fmt.Errorf("decide %s: %w", data.Type(), err)
	}
	s.seq = max(s.seq, got.Seq)
	if got.Outcome == events.Fenced {
		s.r.cfg.Metrics.fenced.Inc()
		s.repeat = true
		return false, nil
	}
	return true, nil
}

// drain returns a context that outlives ctx by drainTime: a stop of ours should
// not turn an answer that is on its way into an unknown.
func drain(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(drainTime, cancel) })
	return out, func() { stop(); cancel() }
}

// settle announces the outcome: first the decision, then the public copy.
func (s *step) settle(ctx context.Context) error {
	data := s.job.Settlement(s.action.G)
	ok, err := s.decide(ctx, s.operation(), s.job.OpSeq, fmt.Sprintf("st:%s:%d", s.job.Operation, data.G), data)
	if err != nil || !ok {
		return err
	}
	s.r.cfg.Metrics.announced(s.job.Provider, data, s.job.Prepared.Contract.Callback, s.r.cfg.Now())
	s.r.log.Info("settled", "operation", string(s.job.Operation), "state", string(data.State), "learned_by", string(data.LearnedBy), "seq", s.seq)
	return s.publish(ctx, data)
}

// announce writes the public copy that a crash left owing.
func (s *step) announce(ctx context.Context) error {
	for _, x := range s.job.Settlements {
		if x.G == s.action.G && x.Settled != nil {
			return s.publish(ctx, x.Settled)
		}
	}
	return fmt.Errorf("settlement %d of %s is not in the job", s.action.G, s.job.Operation)
}

func (s *step) publish(ctx context.Context, data *events.Settled) error {
	subject := events.SettledSubject(s.job.Provider, s.job.Operation, data.G)
	_, err := s.decide(ctx, subject, 0, fmt.Sprintf("st:%s:%d", s.job.Operation, data.G), data)
	return err
}

func (s *step) review(ctx context.Context, reason string) error {
	id := s.job.ReviewID(reason)
	ok, err := s.decide(ctx, s.operation(), s.job.OpSeq, fmt.Sprintf("ro:%s:%s", s.job.Operation, id),
		&events.ReviewOpened{ID: id, Reason: reason, State: s.job.State})
	if ok {
		s.r.log.Error("a person has to decide", "operation", string(s.job.Operation), "reason", reason, "state", string(s.job.State))
	}
	return err
}

// collect stores the result. What came with the confirming read is stored as it
// is; nothing leaves the machine for it.
func (s *step) collect(ctx context.Context) error {
	result := s.job.InlineResult()
	if result == nil {
		return s.record(ctx, s.operation(), fmt.Sprintf("rx:%s:%d:0:unavailable", s.job.Operation, s.action.G),
			&events.ResultUnavailable{G: s.action.G, Final: true, Reason: "no_result"})
	}
	return s.record(ctx, s.operation(), fmt.Sprintf("rx:%s:%d:0:stored", s.job.Operation, s.action.G),
		&events.ResultStored{G: s.action.G, Result: *result})
}
