package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// changesMax leaves room for the checkpoint in a batch.
const changesMax = batchMax - 1

// Bucket is the folded jobs. It implements events.Bucket.
type Bucket struct{ s *Store }

// Bucket returns the bucket of jobs.
func (s *Store) Bucket() *Bucket { return &Bucket{s} }

func (b *Bucket) stream() string { return b.s.topology.Jobs.Name }

func (b *Bucket) subject(key string) string {
	return "$KV." + strings.TrimPrefix(b.stream(), "KV_") + "." + key
}

// Load implements events.Bucket. It reads at the leader: a replica may be behind.
func (b *Bucket) Load(ctx context.Context, key string) ([]byte, uint64, error) {
	m, found, err := b.s.getMsg(ctx, b.stream(), map[string]any{"last_by_subj": b.subject(key)})
	if err != nil {
		return nil, 0, err
	}
	if !found {
		return nil, 0, events.ErrNotFound
	}
	if isMarker(m.Header) {
		return nil, 0, events.ErrNotFound
	}
	return m.Data, m.Seq, nil
}

func isMarker(header []byte) bool {
	return strings.Contains(string(header), "KV-Operation:") || strings.Contains(string(header), "Nats-Marker-Reason:")
}

// Checkpoint implements events.Bucket.
func (b *Bucket) Checkpoint(ctx context.Context) (events.Checkpoint, uint64, error) {
	var c events.Checkpoint
	value, rev, err := b.Load(ctx, events.CheckpointKey)
	if errors.Is(err, events.ErrNotFound) {
		return c, 0, nil
	}
	if err != nil {
		return c, 0, err
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return c, 0, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, rev, nil
}

// Commit implements events.Bucket. One changed key costs two synced writes, the
// checkpoint last; more go as one atomic batch.
func (b *Bucket) Commit(ctx context.Context, changes []events.Change, c events.Checkpoint, revision uint64) ([]uint64, uint64, error) {
	if len(changes) > changesMax {
		return nil, 0, fmt.Errorf("commit of %d changes, limit %d", len(changes), changesMax)
	}
	value, err := json.Marshal(c)
	if err != nil {
		return nil, 0, fmt.Errorf("encode checkpoint: %w", err)
	}
	all := append(append(make([]events.Change, 0, len(changes)+1), changes...), events.Change{Key: events.CheckpointKey, Value: value, Revision: revision})
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if len(changes) <= 1 {
		revs := make([]uint64, len(all))
		for i, ch := range all {
			if revs[i], err = b.put(ctx, ch); err != nil {
				return nil, 0, err
			}
		}
		return revs[:len(changes)], revs[len(changes)], nil
	}
	return b.batch(ctx, all)
}

// put writes one key under its expected revision. A lost answer is settled by
// reading back: our value under a newer revision is ours.
func (b *Bucket) put(ctx context.Context, ch events.Change) (uint64, error) {
	ack, err := b.s.publish(ctx, b.msg(ch))
	if err == nil {
		return ack.Seq, nil
	}
	if isFull(err) {
		return 0, unavailable("write bucket", err)
	}
	value, rev, rerr := b.Load(ctx, ch.Key)
	switch {
	case rerr != nil && !errors.Is(rerr, events.ErrNotFound):
		return 0, rerr
	case rerr == nil && rev > ch.Revision && string(value) == string(ch.Value):
		return rev, nil
	case rerr == nil && rev != ch.Revision, rerr != nil && ch.Revision != 0:
		return 0, fmt.Errorf("%w: %s", events.ErrConflict, ch.Key)
	}
	return 0, unavailable("write bucket", err)
}

func (b *Bucket) msg(ch events.Change) *nats.Msg {
	m := nats.NewMsg(b.subject(ch.Key))
	m.Data = ch.Value
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(ch.Revision, 10))
	return m
}

// batch writes all or nothing. After a lost answer the checkpoint, which is the
// last of the batch, tells whether it was stored.
func (b *Bucket) batch(ctx context.Context, all []events.Change) ([]uint64, uint64, error) {
	msgs := make([]*nats.Msg, len(all))
	for i, ch := range all {
		msgs[i] = b.msg(ch)
	}
	last, err := b.s.publishBatch(ctx, msgs)
	if err != nil {
		ckpt := all[len(all)-1]
		value, rev, rerr := b.Load(ctx, events.CheckpointKey)
		switch {
		case rerr != nil && !errors.Is(rerr, events.ErrNotFound):
			return nil, 0, rerr
		case rerr == nil && rev > ckpt.Revision && string(value) == string(ckpt.Value):
			last = rev
		case isWrongSeq(err):
			return nil, 0, fmt.Errorf("%w: %w", events.ErrConflict, err)
		case rerr == nil && rev != ckpt.Revision:
			return nil, 0, fmt.Errorf("%w: checkpoint", events.ErrConflict)
		default:
			return nil, 0, unavailable("write bucket", err)
		}
	}
	revs := make([]uint64, len(all))
	for i := range all {
		revs[i] = last - uint64(len(all)-1-i)
	}
	return revs[:len(all)-1], last, nil
}

func isWrongSeq(err error) bool {
	var api *apiError
	return errors.As(err, &api) && (api.ErrCode == codeWrongLastSeq || api.ErrCode == codeWrongLastInFlight)
}

// Entry is one key of the bucket as a watcher sees it. With InitDone alone set,
// everything that stood there when the watch began has been shown.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64
	Deleted  bool
	InitDone bool
}

// Watch shows the newest value of every key, then InitDone once, then every
// change, until the context ends or fn fails. It survives reconnects by
// beginning anew, so a key may be shown again.
func (b *Bucket) Watch(ctx context.Context, fn func(Entry) error) error {
	told := false
	done := func() error {
		if told {
			return nil
		}
		told = true
		return fn(Entry{InitDone: true})
	}
	prefix := b.subject("")
	for n := 0; ; n++ {
		var fnErr error
		err := b.s.follow(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy}, b.stream(),
			func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
				e := Entry{Key: strings.TrimPrefix(m.Subject(), prefix), Value: m.Data(), Revision: meta.Sequence.Stream}
				e.Deleted = m.Headers().Get("KV-Operation") != "" || m.Headers().Get("Nats-Marker-Reason") != ""
				if fnErr = fn(e); fnErr == nil && meta.NumPending == 0 {
					fnErr = done()
				}
				return fnErr
			},
			func(pending uint64) error {
				if pending == 0 {
					fnErr = done()
				}
				return fnErr
			})
		if fnErr != nil {
			return fnErr
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.s.cfg.Logger.Warn("bucket watch starts again", "err", err)
		if !pause(ctx, n) {
			return context.Cause(ctx)
		}
	}
}
