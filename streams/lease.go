package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// ErrLeaseLost is the cause with which a role's context ends when another
// process may have taken over.
var ErrLeaseLost = errors.New("lease lost")

// leaseRenew leaves two tries within the time to live.
const leaseRenew = leaseTTL / 3

// Lead runs fn while this process holds the lease of a role, cancels it when
// the lease is lost, waits for it, and stands by again. It returns when the
// context ends or when fn returns an error of its own. The lease keeps two
// processes from doing the same work; the fence of the stream is what makes it
// safe when they do.
func (s *Store) Lead(ctx context.Context, role string, fn func(context.Context) error) error {
	owner, err := randomHex(8)
	if err != nil {
		return err
	}
	key := "$KV." + strings.TrimPrefix(s.topology.Leases.Name, "KV_") + "." + role
	for n := 0; ; n++ {
		rev, err := s.acquire(ctx, key, owner)
		if err == nil {
			err = s.hold(ctx, key, owner, rev, fn)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if !errors.Is(err, ErrLeaseLost) {
				return err
			}
			s.cfg.Logger.Warn("lease lost, standing by", "role", role)
			continue
		}
		if !errors.Is(err, events.ErrConflict) {
			level := slog.LevelDebug
			if n%30 == 29 {
				level = slog.LevelWarn // for half a minute nobody could
			}
			s.cfg.Logger.Log(ctx, level, "lease cannot be taken", "role", role, "err", err)
		}
		if !pause(ctx, max(n, 5)) {
			return context.Cause(ctx)
		}
	}
}

// acquire takes a lease that nobody holds. The stream's age limit is the time
// to live: what is not renewed disappears.
func (s *Store) acquire(ctx context.Context, key, owner string) (uint64, error) {
	held, found, err := s.getMsg(ctx, s.topology.Leases.Name, map[string]any{"last_by_subj": key})
	if isStreamMissing(err) {
		// Leases live in memory: a server that was restarted has forgotten the
		// stream itself.
		leases := s.topology.Leases
		if err := s.ensureStream(ctx, &leases, false); err != nil {
			return 0, unavailable("make leases again", err)
		}
		held, found, err = s.getMsg(ctx, s.topology.Leases.Name, map[string]any{"last_by_subj": key})
	}
	if err != nil {
		return 0, err
	}
	rev := uint64(0)
	if found {
		if len(held.Data) > 0 {
			return 0, fmt.Errorf("%w: lease held by %s", events.ErrConflict, held.Data)
		}
		rev = held.Seq
	}
	return s.writeLease(ctx, key, owner, rev)
}

func isStreamMissing(err error) bool {
	var api *apiError
	return errors.As(err, &api) && api.ErrCode == codeStreamNotFound
}

func (s *Store) writeLease(ctx context.Context, key, value string, rev uint64) (uint64, error) {
	m := nats.NewMsg(key)
	m.Data = []byte(value)
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(rev, 10))
	ack, err := s.publish(ctx, m)
	if isWrongSeq(err) {
		return 0, fmt.Errorf("%w: %w", events.ErrConflict, err)
	}
	if err != nil {
		return 0, unavailable("write lease", err)
	}
	return ack.Seq, nil
}

// hold runs fn under the lease and gives it back afterwards.
func (s *Store) hold(ctx context.Context, key, owner string, rev uint64, fn func(context.Context) error) error {
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- fn(run) }()
	ticker := time.NewTicker(leaseRenew)
	defer ticker.Stop()
	renewed := time.Now()
	for {
		select {
		case err := <-done:
			// An empty value is a free lease: the next one need not wait.
			give, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_, _ = s.writeLease(give, key, "", rev) // otherwise it runs out by itself
			stop()
			if errors.Is(context.Cause(run), ErrLeaseLost) {
				return ErrLeaseLost
			}
			return err
		case <-ticker.C:
			// A renewal that hangs must be over before the lease is.
			try, stop := context.WithTimeout(run, leaseRenew/2)
			next, err := s.writeLease(try, key, owner, rev)
			if errors.Is(err, events.ErrConflict) {
				// Perhaps it is our own renewal, whose answer was lost.
				if held, found, rerr := s.getMsg(try, s.topology.Leases.Name, map[string]any{"last_by_subj": key}); rerr == nil && found && string(held.Data) == owner {
					next, err = held.Seq, nil
				}
			}
			stop()
			switch {
			case err == nil:
				rev, renewed = next, time.Now()
			case errors.Is(err, events.ErrConflict), time.Since(renewed) > leaseTTL-leaseRenew:
				cancel(ErrLeaseLost)
			}
		}
	}
}
