package streams

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// tailBuffer is how many events wait for a reader.
const tailBuffer = 2000

// Tail reads the event stream in order. It implements events.Tail; use it from
// one goroutine.
type Tail struct {
	ch   chan events.Recorded
	err  chan error
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Tail starts reading after a sequence. The error wraps ErrLedgerRegressed when
// the stream ends before it. The tail ends with its context or with Close.
func (s *Store) Tail(ctx context.Context, after uint64) (*Tail, error) {
	last, err := s.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	if last < after {
		return nil, fmt.Errorf("%w: it ends at %d, %d was read from it", ErrLedgerRegressed, last, after)
	}
	ctx, cancel := context.WithCancel(ctx)
	t := &Tail{ch: make(chan events.Recorded, tailBuffer), err: make(chan error, 1), stop: cancel}
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		t.err <- s.pump(ctx, after, t.ch)
	}()
	return t, nil
}

// Close ends the tail and waits for it.
func (t *Tail) Close() {
	t.stop()
	t.wg.Wait()
}

// Next implements events.Tail.
func (t *Tail) Next(ctx context.Context, limit int) ([]events.Recorded, error) {
	var out []events.Recorded
	select {
	case rec := <-t.ch:
		out = append(out, rec)
	case err := <-t.err:
		t.err <- err // for the next call
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for len(out) < limit {
		select {
		case rec := <-t.ch:
			out = append(out, rec)
		default:
			return out, nil
		}
	}
	return out, nil
}

// pump delivers events without gap until the context ends. The ordered consumer
// repairs itself; when it cannot, a new one continues where the last one was.
func (s *Store) pump(ctx context.Context, after uint64, ch chan<- events.Recorded) error {
	for n := 0; ; n++ {
		before := after
		err := s.follow(ctx, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		}, s.topology.Events.Name, func(m jetstream.Msg, meta *jetstream.MsgMetadata) error {
			seq := meta.Sequence.Stream
			if seq <= after {
				return nil
			}
			select {
			case ch <- s.decode(m.Subject(), seq, meta.Timestamp, m.Data()):
				after = seq
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, nil)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.cfg.Logger.Warn("stream reader starts again", "seq", after, "err", err)
		if after > before {
			n = 0
		}
		if !pause(ctx, n) {
			return context.Cause(ctx)
		}
	}
}

// follow hands every message of an ordered consumer to fn until the context
// ends or fn fails. begun, if not nil, is called first with how many messages
// wait.
func (s *Store) follow(ctx context.Context, cfg jetstream.OrderedConsumerConfig, stream string, fn func(jetstream.Msg, *jetstream.MsgMetadata) error, begun func(pending uint64) error) error {
	cfg.InactiveThreshold = time.Minute
	c, err := s.js.OrderedConsumer(ctx, stream, cfg)
	if err != nil {
		return unavailable("read stream", err)
	}
	if begun != nil {
		info, err := c.Info(ctx)
		if err != nil {
			return unavailable("read stream", err)
		}
		if err := begun(info.NumPending); err != nil {
			return err
		}
	}
	it, err := c.Messages(jetstream.PullMaxMessages(1000), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(2*time.Second))
	if err != nil {
		return unavailable("read stream", err)
	}
	defer it.Stop()
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			if errors.Is(err, jetstream.ErrNoHeartbeat) {
				continue // the consumer resets itself
			}
			return unavailable("read stream", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return unavailable("read stream", err)
		}
		if err := fn(m, meta); err != nil {
			return err
		}
	}
}
