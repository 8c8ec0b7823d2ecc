package effects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Kind is how an effect leaves.
type Kind string

// Kinds of targets.
const (
	KindWebhook Kind = "webhook" // POST, signed by Standard Webhooks, with Idempotency-Key
	KindNATS    Kind = "nats"    // publish, Nats-Msg-Id is the idempotency key
)

// Target is one configured effect.
type Target struct {
	Name    string
	Kind    Kind
	URL     string        // of a webhook
	Secret  events.Secret // of a webhook: whsec_<base64>
	Subject string        // of a NATS publish
}

// Validate says what is wrong with a target, before anything runs.
func (t Target) Validate() error {
	_, err := newTarget(t)
	return err
}

// Ledger is what effects need of the stream.
type Ledger interface {
	events.Decider
	events.Recorder
}

// Publisher sends a NATS effect. The id lets the receiver drop repeats.
type Publisher interface {
	PublishEffect(ctx context.Context, subject, id string, body []byte) error
}

// Jobs reads one job as the bucket has it, or events.ErrNotFound.
type Jobs func(ctx context.Context, p events.Provider, op events.OperationID) (*events.Job, error)

// Policy paces and bounds effects. Zero values mean the defaults.
type Policy struct {
	SendBudget     time.Duration // 10 s
	RequestTimeout time.Duration // 15 s
	LeaseMargin    time.Duration // 5 s
	RetryBase      time.Duration // 1 s
	RetryCap       time.Duration // 10 min
	AttemptsMax    int           // 30; then the effect is dead and a person should look
}

func (p Policy) withDefaults() Policy {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&p.SendBudget, 10*time.Second)
	def(&p.RequestTimeout, 15*time.Second)
	def(&p.LeaseMargin, 5*time.Second)
	def(&p.RetryBase, time.Second)
	def(&p.RetryCap, 10*time.Minute)
	if p.AttemptsMax <= 0 {
		p.AttemptsMax = 30
	}
	return p
}

// Config is what a runner needs. All fields but Policy and Wait are required.
type Config struct {
	Ledger    Ledger
	Jobs      Jobs
	Caller    events.Caller
	Publisher Publisher
	Targets   []Target
	Policy    Policy
	Now       func() time.Time
	// Wait pauses between two tries and reports false when the context ended
	// first; nil: a timer.
	Wait    func(ctx context.Context, d time.Duration) bool
	Entropy io.Reader // safe for concurrent use
	Logger  *slog.Logger
	Metrics *Metrics
}

// ErrNotFolded means that the bucket has not seen the settlement yet; the
// message should come again shortly.
var ErrNotFolded = errors.New("the settlement is not folded yet")

// actor is the name under which effects write.
const actor = "effects"

// Runner runs effects. Its methods may be called concurrently.
type Runner struct {
	cfg     Config
	targets map[string]*target

	mu   sync.Mutex
	owed map[events.OperationID]*owing
}

// owing is a job that still owes an effect.
type owing struct {
	job         *events.Job
	busy        bool
	waitSeq     uint64    // the fold has not shown our last append yet
	refreshAt   time.Time // then the job is read again instead of waiting on
	failedUntil time.Time // after an error
}

// refreshAfter is how long an entry waits for the fold before it is read from
// the bucket: the job at hand may be an older copy that nothing updates.
const refreshAfter = time.Second

// New checks the targets and returns a runner.
func New(cfg Config) (*Runner, error) {
	cfg.Policy = cfg.Policy.withDefaults()
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	r := &Runner{cfg: cfg, targets: map[string]*target{}, owed: map[events.OperationID]*owing{}}
	for _, t := range cfg.Targets {
		made, err := newTarget(t)
		if err != nil {
			return nil, fmt.Errorf("effect %q: %w", t.Name, err)
		}
		if r.targets[t.Name] != nil {
			return nil, fmt.Errorf("effect %q is configured twice", t.Name)
		}
		r.targets[t.Name] = made
	}
	return r, nil
}

// Observe takes over a job as the bucket has it and keeps it while it owes
// something.
func (r *Runner) Observe(j *events.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owed[j.Operation]
	if o != nil && j.AppliedSeq < o.job.AppliedSeq {
		return
	}
	owes := len(j.Owed()) > 0
	switch {
	case o != nil:
		o.job = j
		if !owes && !o.busy {
			delete(r.owed, j.Operation)
		}
	case owes:
		r.owed[j.Operation] = &owing{job: j}
	}
}

// Owing is how many jobs owe an effect now.
func (r *Runner) Owing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.owed)
}

// Handle runs what one settlement owes. It returns ErrNotFolded when the job
// does not show the settlement yet, and another error when nothing could be
// decided; the message should then come again. Effects that failed at their
// target are recorded and tried again by Work, not by the message.
func (r *Runner) Handle(ctx context.Context, rec events.Recorded) error {
	s := rec.Event.Subject
	j, err := r.cfg.Jobs(ctx, s.Provider, s.Operation())
	if errors.Is(err, events.ErrNotFound) {
		return ErrNotFolded
	}
	if err != nil {
		return err
	}
	if j.AppliedSeq < rec.Seq {
		return ErrNotFolded
	}
	r.Observe(j)
	o := r.claimEntry(j.Operation, r.cfg.Now())
	if o == nil {
		return nil // nothing is owed or due, or a worker has it
	}
	return r.run(ctx, o)
}

// workTick bounds a worker's sleep between two looks at what is due.
const workTick = 250 * time.Millisecond

// Work runs what is owed as it comes due, until the context ends, and returns
// its cause.
func (r *Runner) Work(ctx context.Context) error {
	ticker := time.NewTicker(workTick)
	defer ticker.Stop()
	for {
		o := r.due(r.cfg.Now())
		if o == nil {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-ticker.C:
			}
			continue
		}
		if err := r.run(ctx, o); err != nil && ctx.Err() == nil {
			r.cfg.Logger.Warn("effect failed, will be tried again", "operation", string(o.job.Operation), "err", err)
		}
	}
}

// Step runs the one effect that is due, if there is one, and returns. Work does
// the same and waits by itself.
func (r *Runner) Step(ctx context.Context) (taken bool, err error) {
	o := r.due(r.cfg.Now())
	if o == nil {
		return false, nil
	}
	return true, r.run(ctx, o)
}

// due takes one job that owes something due, nil if there is none. What is due
// is few but for an outage of a target, so it is searched, not sorted.
func (r *Runner) due(now time.Time) *owing {
	r.mu.Lock()
	defer r.mu.Unlock()
	var first *owing
	for _, o := range r.owed {
		if r.ready(o, now) && (first == nil || o.job.Operation < first.job.Operation) {
			first = o
		}
	}
	if first != nil {
		first.busy = true
	}
	return first
}

func (r *Runner) claimEntry(op events.OperationID, now time.Time) *owing {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owed[op]
	if o == nil || !r.ready(o, now) {
		return nil
	}
	o.busy = true
	return o
}

func (r *Runner) ready(o *owing, now time.Time) bool {
	if o.busy || now.Before(o.failedUntil) {
		return false
	}
	if o.job.AppliedSeq < o.waitSeq {
		return now.After(o.refreshAt)
	}
	_, ok := r.firstDue(o.job, now)
	return ok
}

// firstDue returns the first effect that is due. One that is no longer
// configured comes last: it can only be complained about, and must not hold back
// the others.
func (r *Runner) firstDue(j *events.Job, now time.Time) (first events.EffectDue, ok bool) {
	for _, d := range j.Owed() {
		if d.At.After(now) {
			continue
		}
		if r.targets[d.Name] != nil {
			return d, true
		}
		if !ok {
			first, ok = d, true
		}
	}
	return first, ok
}

// run takes the first due effect of a job. The next one waits for the fold, so
// that every claim is decided on folded facts.
func (r *Runner) run(ctx context.Context, o *owing) error {
	r.mu.Lock()
	job, behind := o.job, o.job.AppliedSeq < o.waitSeq
	r.mu.Unlock()
	var seq uint64
	var err error
	if behind {
		var fresh *events.Job
		if fresh, err = r.cfg.Jobs(ctx, job.Provider, job.Operation); err == nil {
			r.Observe(fresh)
		}
	} else if d, ok := r.firstDue(job, r.cfg.Now()); ok {
		seq, err = r.effect(ctx, job, d)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o.busy = false
	o.waitSeq = max(o.waitSeq, seq)
	o.refreshAt = r.cfg.Now().Add(refreshAfter)
	o.failedUntil = time.Time{}
	if err != nil {
		o.failedUntil = r.cfg.Now().Add(time.Second)
	}
	if len(o.job.Owed()) == 0 {
		delete(r.owed, job.Operation)
	}
	return err
}
