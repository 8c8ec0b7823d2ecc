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

// adoptMarkers takes over the revisions of delete markers that stand where a
// change expects nothing: they stay behind when somebody deletes keys with
// another tool, and to Load such a key does not exist. It reports whether there
// was one.
func (b *Bucket) adoptMarkers(ctx context.Context, all []events.Change) bool {
	found := false
	for i, ch := range all {
		if ch.Revision != 0 {
			continue
		}
		m, ok, err := b.s.getMsg(ctx, b.stream(), map[string]any{"last_by_subj": b.subject(ch.Key)})
		if err == nil && ok && isMarker(m.Header) {
			all[i].Revision, found = m.Seq, true
		}
	}
	return found
}

func isMarker(header []byte) bool {
	return strings.Contains(string(header), kvOperationHeader+":") || strings.Contains(string(header), markerReasonHeader+":")
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
	revs, err := b.write(ctx, all)
	if err != nil && b.adoptMarkers(ctx, all) {
		revs, err = b.write(ctx, all)
	}
	if err != nil {
		return nil, 0, err
	}
	return revs[:len(changes):len(changes)], revs[len(changes)], nil
}

// write stores the changes in order, the checkpoint last, and returns their
// revisions.
func (b *Bucket) write(ctx context.Context, all []events.Change) ([]uint64, error) {
	if len(all) > 2 {
		return b.batch(ctx, all)
	}
	revs := make([]uint64, len(all))
	for i, ch := range all {
		var err error
		if revs[i], err = b.put(ctx, ch); err != nil {
			return nil, err
		}
	}
	return revs, nil
}

// put writes one key under its expected revision. A lost answer is settled by
// reading back: our value under a newer revision is ours.
func (b *Bucket) put(ctx context.Context, ch events.Change) (uint64, error) {
	ack, err := b.s.publish(ctx, b.msg(ch))
	if err == nil {
		return ack.Seq, nil
	}
	if isRefused(err) {
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
func (b *Bucket) batch(ctx context.Context, all []events.Change) ([]uint64, error) {
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
			return nil, rerr
		case rerr == nil && rev > ckpt.Revision && string(value) == string(ckpt.Value):
			last = rev
		case isWrongSeq(err):
			return nil, fmt.Errorf("%w: %w", events.ErrConflict, err)
		case rerr == nil && rev != ckpt.Revision:
			return nil, fmt.Errorf("%w: checkpoint", events.ErrConflict)
		default:
			return nil, unavailable("write bucket", err)
		}
	}
	revs := make([]uint64, len(all))
	for i := range all {
		revs[i] = last - uint64(len(all)-1-i)
	}
	return revs, nil
}

func isWrongSeq(err error) bool {
	var api *apiError
	return errors.As(err, &api) && (api.ErrCode == codeWrongLastSeq || api.ErrCode == codeWrongLastInFlight)
}
