package streams

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

const (
	feedIdleCheck = 5 * time.Second // how long a silent loss can stay unseen
	feedInactive  = 5 * time.Minute // the server forgets a consumer that nobody reads
	regressChecks = 3               // a new leader may lag for a moment
	regressPause  = 5               // of pause: some 600 ms
)

// feed reads one stream in order, over a consumer that needs no
// acknowledgements and is thrown away at the first doubt: a gap in the
// consumer's own count, a reconnect, an abandoned fetch, a fetch that failed.
// The next consumer begins after the last message that was handed out, so that
// nothing is lost or repeated. It is for one goroutine.
type feed struct {
	store  *Store
	stream string
	last   uint64 // last sequence handed out
	latest bool   // begin with the last message of each subject
	// strict refuses a stream that ends before last, or that is not the one it
	// began with. A feed that is not strict reports restarted instead and begins
	// anew.
	strict bool

	cons       jetstream.Consumer // nil: made by the next read
	created    time.Time          // of the stream
	initial    uint64             // messages that waited when a latest feed began
	delivered  uint64             // the consumer's count of what it handed out
	reconnects uint64
	restarted  bool
}

// next blocks until there is a message and returns up to limit of those that
// wait. An empty result without error means that the feed has restarted, or
// that a while passed without a message.
func (f *feed) next(ctx context.Context, limit int) ([]storedMsg, error) {
	limit = max(limit, 1)
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	if f.restarted {
		return nil, nil
	}
	try, cancel := context.WithTimeout(ctx, feedIdleCheck)
	defer cancel()
	out, err := f.fetch(f.cons.Fetch(1, jetstream.FetchContext(try)))
	if err != nil || len(out) == 0 {
		return nil, f.idle(ctx, err)
	}
	if limit > 1 && f.cons != nil {
		// An empty answer here is not the end of the stream, only of this batch.
		more, err := f.fetch(f.cons.FetchNoWait(limit - 1))
		out = append(out, more...)
		if err != nil {
			f.drop()
		}
	}
	return out, nil
}

// fetch drains one request. A gap ends it: what came before is handed out.
func (f *feed) fetch(batch jetstream.MessageBatch, err error) ([]storedMsg, error) {
	if err != nil {
		return nil, err
	}
	var out []storedMsg
	gap := false
	for m := range batch.Messages() {
		if gap {
			continue // the batch's goroutine ends when its channel is drained
		}
		meta, err := m.Metadata()
		if err != nil || meta.Sequence.Consumer != f.delivered+1 || meta.Sequence.Stream <= f.last {
			gap = true
			continue
		}
		f.delivered++
		f.last = meta.Sequence.Stream
		out = append(out, storedMsg{
			Subject: m.Subject(), Seq: meta.Sequence.Stream, Data: m.Data(), Time: meta.Timestamp,
			deleted: m.Headers().Get(kvOperationHeader) != "" || m.Headers().Get(markerReasonHeader) != "", waiting: meta.NumPending,
		})
	}
	if gap {
		f.drop()
		return out, nil
	}
	return out, batch.Error()
}

// idle decides what an empty fetch means. Messages sent over a connection that
// then broke count as delivered, so silence is checked, not believed.
func (f *feed) idle(ctx context.Context, fetchErr error) error {
	quiet := fetchErr == nil || errors.Is(fetchErr, nats.ErrTimeout) || errors.Is(fetchErr, jetstream.ErrNoMessages) ||
		errors.Is(fetchErr, context.DeadlineExceeded)
	if ctx.Err() != nil {
		f.drop() // the server may have answered the request that we leave behind
		return context.Cause(ctx)
	}
	if !quiet {
		f.drop()
		f.store.cfg.Logger.Debug("feed interrupted", "stream", f.stream, "err", fetchErr)
		pause(ctx, 0)
		return nil
	}
	if f.cons == nil {
		return nil
	}
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	info, err := f.cons.Info(try)
	if err != nil || info.Delivered.Consumer != f.delivered {
		f.drop()
	}
	return nil
}

func (f *feed) drop() { f.cons = nil }

// open makes a consumer unless there is a good one.
func (f *feed) open(ctx context.Context) error {
	reconnects := f.store.nc.Stats().Reconnects
	if f.cons != nil && f.reconnects == reconnects {
		return nil
	}
	f.close()
	f.reconnects = reconnects
	info, err := f.check(ctx)
	if err != nil || f.restarted {
		return err
	}
	cfg := jetstream.ConsumerConfig{
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       f.last + 1,
		AckPolicy:         jetstream.AckNonePolicy,
		ReplayPolicy:      jetstream.ReplayInstantPolicy,
		InactiveThreshold: feedInactive,
		MemoryStorage:     true,
		Replicas:          1,
	}
	if f.latest && f.last == 0 {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverLastPerSubjectPolicy, 0
		cfg.FilterSubject = info.Config.Subjects[0]
	}
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cons, err := f.store.js.CreateConsumer(try, f.stream, cfg)
	if err != nil {
		return unavailable("consume "+f.stream, err)
	}
	f.cons, f.created, f.delivered = cons, info.Created, 0
	if f.last == 0 {
		f.initial = cons.CachedInfo().NumPending
	}
	return nil
}

// check compares the stream with what was read from it.
func (f *feed) check(ctx context.Context) (*jetstream.StreamInfo, error) {
	for n := 1; ; n++ {
		info, err := f.store.info(ctx, f.stream)
		if err != nil {
			return nil, err
		}
		replaced := !f.created.IsZero() && !info.Created.Equal(f.created)
		if !replaced && info.State.LastSeq >= f.last {
			return info, nil
		}
		if !f.strict {
			f.restarted, f.last, f.created = true, 0, time.Time{}
			return info, nil
		}
		if n == regressChecks || f.store.cfg.Replicas == 1 {
			return nil, fmt.Errorf("%w: %s ends at %d, read up to %d", ErrLedgerRegressed, f.stream, info.State.LastSeq, f.last)
		}
		if !pause(ctx, regressPause) {
			return nil, unavailable("consume "+f.stream, context.Cause(ctx))
		}
	}
}

// close tells the server that the consumer is no longer needed.
func (f *feed) close() {
	if f.cons == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if f.store.nc.IsConnected() {
		// What fails here the server forgets by itself after feedInactive.
		_ = f.store.js.DeleteConsumer(ctx, f.stream, f.cons.CachedInfo().Name)
	}
	f.cons = nil
}

// Tail reads the whole event stream in order. It is for one goroutine.
type Tail struct{ feed feed }

// Tail opens the event stream after sequence after. The error wraps
// ErrLedgerRegressed if the stream ends before that, or events.ErrUnavailable.
func (s *Store) Tail(ctx context.Context, after uint64) (*Tail, error) {
	t := &Tail{feed: feed{store: s, stream: s.topology.Events.Name, last: after, strict: true}}
	if err := t.feed.open(ctx); err != nil {
		return nil, fmt.Errorf("tail: %w", err)
	}
	return t, nil
}

// Next blocks until there is an event and returns up to limit of those that
// wait, in stream order. An event that cannot be decoded comes with Err set.
// The error is the context's, or wraps ErrLedgerRegressed or
// events.ErrUnavailable; after the latter the next call goes on where this one
// stopped.
func (t *Tail) Next(ctx context.Context, limit int) ([]events.Recorded, error) {
	for {
		batch, err := t.feed.next(ctx, limit)
		if ctx.Err() != nil && len(batch) == 0 {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("tail: %w", err)
		}
		if len(batch) == 0 {
			continue
		}
		out := make([]events.Recorded, len(batch))
		for i, m := range batch {
			out[i] = t.feed.store.Decode(m.message())
		}
		return out, nil
	}
}

// Close gives the server's side of the tail back. Call it from the goroutine
// that reads.
func (t *Tail) Close() { t.feed.close() }
