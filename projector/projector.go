package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// ErrLedgerRegressed means that the stream no longer holds what the bucket has
// folded: it was truncated, or restored from a backup. Every outgoing call must
// stop until a person has looked.
var ErrLedgerRegressed = errors.New("ledger regressed")

// ErrFoldVersion means that the bucket was folded by other code, so that the same
// events may have given other records.
var ErrFoldVersion = errors.New("the bucket was folded by another version")

// ErrFenced means that another projector took over the bucket.
var ErrFenced = errors.New("another projector owns the bucket")

// Limits of one batch.
const (
	batchEvents = 1000 // events folded before a commit
	batchKeys   = 900  // records changed in one commit; the store takes 999
	cacheKeys   = 20_000
)

// Ledger is what the projector needs of the stream.
type Ledger interface {
	events.Reader
	// At returns one event by sequence, or events.ErrNotFound.
	At(ctx context.Context, seq uint64) (events.Recorded, error)
	// LedgerID names the stream's genesis.
	LedgerID() string
}

// Config is what a projector needs. All fields but Policy, Park and Wait are
// required.
type Config struct {
	Ledger Ledger
	Bucket events.Bucket
	// Open starts a tail after a sequence. A tail ends with its context.
	Open func(ctx context.Context, after uint64) (events.Tail, error)
	// Policy paces the plan that each record shows; nil: the defaults.
	Policy func(events.Provider) events.Policy
	// Park keeps a note of an event that cannot be read, with the reason, where a
	// person finds it. It may be called again for the same event. An error that
	// wraps events.ErrUnavailable is tried again; nil: only the count tells.
	Park func(ctx context.Context, rec events.Recorded) error
	// Wait pauses between two tries and reports false when the context ended
	// first; nil: a timer.
	Wait    func(ctx context.Context, d time.Duration) bool
	Owner   string // fresh for each process
	Now     func() time.Time
	Logger  *slog.Logger
	Metrics *Metrics
}

// Projector folds one stream into one bucket. Run it in one goroutine.
type Projector struct {
	cfg     Config
	view    *view
	ckpt    events.Checkpoint
	ckptRev uint64
	applied atomic.Uint64
}

// New returns a projector that has not read anything yet.
func New(cfg Config) *Projector {
	if cfg.Policy == nil {
		cfg.Policy = func(events.Provider) events.Policy { return events.Policy{}.WithDefaults() }
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	return &Projector{cfg: cfg, view: newView(cfg.Ledger, cfg.Bucket)}
}

// Applied is the last sequence that is committed to the bucket, for metrics.
func (p *Projector) Applied() uint64 { return p.applied.Load() }

// Run takes over the bucket and folds until the context ends. It returns the
// context's cause, ErrFenced when another projector took over, and
// ErrLedgerRegressed when the stream has lost history.
func (p *Projector) Run(ctx context.Context) error {
	if err := p.TakeOver(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tail, err := p.cfg.Open(ctx, p.ckpt.Seq)
	if err != nil {
		return fmt.Errorf("open tail: %w", err)
	}
	for {
		recs, err := tail.Next(ctx, batchEvents)
		if err != nil {
			return fmt.Errorf("read stream: %w", err)
		}
		if err := p.Fold(ctx, recs); err != nil {
			return err
		}
	}
}

// TakeOver verifies the checkpoint against the stream and writes a new owner,
// which fences whoever wrote the last one. It returns ErrLedgerRegressed,
// ErrFoldVersion or ErrFenced when there is nothing to take over.
func (p *Projector) TakeOver(ctx context.Context) error {
	c, rev, err := p.cfg.Bucket.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	if rev != 0 {
		if err := p.verify(ctx, c); err != nil {
			return err
		}
	}
	c.LedgerID, c.FoldVersion, c.Owner = p.cfg.Ledger.LedgerID(), events.FoldVersion, p.cfg.Owner
	_, rev, err = p.cfg.Bucket.Commit(ctx, nil, c, rev)
	if errors.Is(err, events.ErrConflict) {
		return ErrFenced
	}
	if err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	p.ckpt, p.ckptRev = c, rev
	p.view.clear()
	p.applied.Store(c.Seq)
	p.cfg.Logger.Info("projector took over", "seq", c.Seq)
	return nil
}

// Verify compares the checkpoint with the stream without taking over: nobody may
// act on the bucket before. It returns ErrLedgerRegressed or ErrFoldVersion when
// they do not belong together, and another error when that is not known.
func (p *Projector) Verify(ctx context.Context) error {
	c, rev, err := p.cfg.Bucket.Checkpoint(ctx)
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	if rev == 0 {
		return nil
	}
	return p.verify(ctx, c)
}

func (p *Projector) verify(ctx context.Context, c events.Checkpoint) error {
	if c.LedgerID != p.cfg.Ledger.LedgerID() {
		return fmt.Errorf("%w: the bucket belongs to ledger %s, the stream is %s", ErrLedgerRegressed, c.LedgerID, p.cfg.Ledger.LedgerID())
	}
	if c.FoldVersion != events.FoldVersion {
		return fmt.Errorf("%w: %d, this is %d; stop, delete the bucket, and start again to fold it anew", ErrFoldVersion, c.FoldVersion, events.FoldVersion)
	}
	if c.Seq == 0 {
		return nil
	}
	rec, err := p.cfg.Ledger.At(ctx, c.Seq)
	switch {
	case errors.Is(err, events.ErrNotFound):
		return fmt.Errorf("%w: the bucket has folded sequence %d, the stream does not hold it", ErrLedgerRegressed, c.Seq)
	case err != nil:
		return fmt.Errorf("read event %d: %w", c.Seq, err)
	case rec.Event.ID != c.EventID:
		return fmt.Errorf("%w: sequence %d holds event %.80q, the bucket has folded %.80q", ErrLedgerRegressed, c.Seq, rec.Event.ID, c.EventID)
	}
	return nil
}

// Fold applies the next events of the stream and commits, in one or more commits.
// Run calls it; it is open so that the steps can be taken one by one.
func (p *Projector) Fold(ctx context.Context, recs []events.Recorded) error {
	for i, rec := range recs {
		p.view.current = rec
		touched, verdict, err := events.Apply(p.view, rec)
		if err != nil {
			p.view.clear() // records may be half changed; they are read again
			return fmt.Errorf("fold event %d: %w", rec.Seq, err)
		}
		p.cfg.Metrics.folded(verdict)
		if verdict == events.VerdictParked || verdict == events.VerdictUnknown {
			p.cfg.Logger.Warn("event folds as nothing", "seq", rec.Seq, "verdict", string(verdict), "err", rec.Err)
		}
		if verdict == events.VerdictParked {
			if err := p.park(ctx, rec); err != nil {
				p.view.clear()
				return err
			}
		}
		p.view.mark(touched)
		p.ckpt.Seq, p.ckpt.EventID = rec.Seq, rec.Event.ID
		if p.view.dirtyKeys() >= batchKeys || i == len(recs)-1 {
			if err := p.commit(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// park has a broken event noted before the checkpoint passes it. While the store
// is unavailable it waits: the commit would wait for the same store.
func (p *Projector) park(ctx context.Context, rec events.Recorded) error {
	if p.cfg.Park == nil {
		return nil
	}
	for {
		err := p.cfg.Park(ctx, rec)
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, events.ErrUnavailable) {
			p.cfg.Logger.Error("a broken event could not be noted", "seq", rec.Seq, "err", err)
			return nil // the count and the held operation tell of it
		}
		if !p.cfg.Wait(ctx, parkPause) {
			return context.Cause(ctx)
		}
	}
}

const parkPause = time.Second

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

// commit writes the changed records and the checkpoint. While the store is
// unavailable it tries again: nothing else could be done with the batch.
func (p *Projector) commit(ctx context.Context) error {
	now := p.cfg.Now()
	changes, err := p.view.changes(func(j *events.Job) { j.Plan(p.cfg.Policy(j.Provider), now) })
	if err != nil {
		return err
	}
	pause := 50 * time.Millisecond
	for {
		revs, rev, err := p.cfg.Bucket.Commit(ctx, changes, p.ckpt, p.ckptRev)
		if err == nil {
			p.ckptRev = rev
			p.view.committed(changes, revs)
			p.applied.Store(p.ckpt.Seq)
			p.cfg.Metrics.committed(len(changes), p.ckpt.Seq)
			return nil
		}
		if errors.Is(err, events.ErrConflict) {
			p.view.clear()
			return ErrFenced
		}
		if !errors.Is(err, events.ErrUnavailable) {
			return fmt.Errorf("commit: %w", err)
		}
		p.cfg.Logger.Warn("commit waits for the store", "err", err, "seq", p.ckpt.Seq)
		if !p.cfg.Wait(ctx, pause) {
			return context.Cause(ctx)
		}
		pause = min(2*pause, 5*time.Second)
	}
}
