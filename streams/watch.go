package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pawl-dev/pawl/events"
)

// Headers of a message of a bucket that say that its key is gone.
const (
	kvOperationHeader  = "KV-Operation"
	markerReasonHeader = "Nats-Marker-Reason"
)

const watchBatch = 256

// Entry is one thing that a watcher learns.
type Entry struct {
	// Key, Value and Revision are the key's newest state. Value belongs to the
	// receiver.
	Key      string
	Value    []byte
	Revision uint64
	// Deleted: the key is gone. It comes with Key and Revision alone.
	Deleted bool
	// InitDone: every key that existed when the watch or the relisting began has
	// been passed. It comes alone.
	InitDone bool
	// Reset: the bucket was deleted, purged or replaced. Forget every key; all
	// that exist follow, and InitDone again. It comes alone.
	Reset bool
}

// Watch passes every key to fn, then one entry with InitDone, then what
// changes, in order, until ctx ends or fn returns an error, which it returns.
// Between two updates of a key the earlier may be left out. Reconnects, leader
// changes and a bucket that goes away and comes back are lived through; see
// Entry.Reset. It keeps at most 256 entries in memory.
func (b *Bucket) Watch(ctx context.Context, fn func(Entry) error) error {
	w := watch{
		feed: feed{store: b.s, stream: b.stream(), latest: true},
		fn:   fn,
		key:  b.subject(""),
	}
	defer w.feed.close()
	for n := 0; ; {
		err := w.step(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			n = 0
		case errors.Is(err, events.ErrUnavailable):
			b.s.cfg.Logger.Warn("watch interrupted", "err", err)
			pause(ctx, n)
			n++
		default:
			return fmt.Errorf("watch: %w", err)
		}
	}
}

type watch struct {
	feed feed
	fn   func(Entry) error
	key  string // what precedes a key in its subject
	done bool   // InitDone was passed since the last listing began
	any  bool   // an entry was passed since then
}

// step waits for the next entries and passes them on.
func (w *watch) step(ctx context.Context) error {
	if err := w.feed.open(ctx); err != nil {
		return err
	}
	if w.feed.restarted {
		return w.reset()
	}
	if !w.done && w.feed.initial == 0 {
		if err := w.initDone(); err != nil {
			return err
		}
	}
	batch, err := w.feed.next(ctx, watchBatch)
	if err != nil {
		return err
	}
	if len(batch) == 0 && !w.feed.restarted && w.any {
		return w.checkPurged(ctx)
	}
	for _, m := range batch {
		e := Entry{Key: strings.TrimPrefix(m.Subject, w.key), Revision: m.Seq, Deleted: m.deleted}
		if !e.Deleted {
			e.Value = m.Data
		}
		w.any = true
		if err := w.fn(e); err != nil {
			return err
		}
		if !w.done && (m.waiting == 0 || w.feed.delivered >= w.feed.initial) && m.Seq == w.feed.last {
			if err := w.initDone(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *watch) initDone() error {
	w.done = true
	return w.fn(Entry{InitDone: true})
}

func (w *watch) reset() error {
	w.feed.restarted, w.done, w.any = false, false, false
	return w.fn(Entry{Reset: true})
}

// checkPurged notices in a quiet moment that a bucket was emptied or replaced,
// neither of which leaves messages.
func (w *watch) checkPurged(ctx context.Context) error {
	info, err := w.feed.check(ctx)
	if err != nil {
		return err
	}
	if w.feed.restarted {
		w.feed.close()
		return w.reset()
	}
	if info.State.Msgs == 0 {
		w.feed.close()
		w.feed.last = 0
		return w.reset()
	}
	return nil
}
