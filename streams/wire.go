package streams

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsWire is the wire of a store.
type natsWire struct{ s *Store }

// Publish implements Wire. Evidence goes through the committer, which groups it.
func (w natsWire) Publish(ctx context.Context, p Publication) (Ack, error) {
	if p.Fence == nil {
		it := &pending{ctx: ctx, subject: p.Subject, id: p.ID, body: p.Body, done: make(chan result, 1)}
		r := w.s.committer.submit(ctx, it)
		return Ack{Seq: r.seq, Duplicate: r.duplicate}, refusal(r.err)
	}
	m := nats.NewMsg(p.Subject)
	m.Data = p.Body
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(p.Fence.Seq, 10))
	if p.Fence.Scope != p.Subject {
		m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, p.Fence.Scope)
	}
	ack, err := w.s.publish(ctx, m)
	return Ack{Seq: ack.Seq, Duplicate: ack.Duplicate}, refusal(err)
}

// refusal marks an error after which a repeat would get the same answer.
func refusal(err error) error {
	if err != nil && isRefused(err) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// FirstAfter implements Wire.
func (w natsWire) FirstAfter(ctx context.Context, subject string, seq uint64) (Message, bool, error) {
	m, found, err := w.s.getMsg(ctx, w.s.topology.Events.Name, map[string]any{"seq": seq + 1, "next_by_subj": subject})
	return m.message(), found, err
}

// At implements Wire.
func (w natsWire) At(ctx context.Context, seq uint64) (Message, bool, error) {
	m, found, err := w.s.getMsg(ctx, w.s.topology.Events.Name, map[string]any{"seq": seq})
	return m.message(), found, err
}

// Pause implements Wire.
func (w natsWire) Pause(ctx context.Context, n int) bool { return pause(ctx, n) }

func (m storedMsg) message() Message {
	return Message{Subject: m.Subject, Seq: m.Seq, Time: m.Time, Data: m.Data}
}
