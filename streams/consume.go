package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// Settings of the durable consumers. MaxDeliver is unlimited on purpose: the
// server drops a message silently after the last delivery.
const (
	ackWait       = 30 * time.Second
	ackPendingMax = 100_000 // what failed counts until it is done: a small limit lets bad messages block good ones
	nakMax        = 30 * time.Second
)

// HeaderReply names the subject that the answer to an intent goes to.
const HeaderReply = "Pawl-Reply"

// IntentMessage is one message of the work queue of intents.
type IntentMessage struct {
	Provider      string // last token of the subject, as published
	Body          []byte
	Seq           uint64    // in the intents stream
	StreamCreated time.Time // of that stream, so that Seq is unique for ever
	At            time.Time // when the stream stored it
	Delivered     uint64    // from 1
	ReplyTo       string
}

// PublishIntent publishes as a producer does and returns the sequence in the
// work queue. It sends no Nats-Msg-Id: with the bare operation id a different
// request would be acknowledged and dropped.
func (s *Store) PublishIntent(ctx context.Context, p events.Provider, body []byte, replyTo string) (uint64, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m := nats.NewMsg(s.cfg.Prefix + ".intents." + string(p))
	m.Data = body
	if replyTo != "" {
		m.Header.Set(HeaderReply, replyTo)
	}
	ack, err := s.publish(ctx, m)
	if err != nil {
		return 0, unavailable("publish intent", err)
	}
	return ack.Seq, nil
}

// ConsumeIntents hands intents to fn, workers at a time, until the context
// ends. nil acknowledges; an error has the message delivered again later, and
// never holds up the ones behind it.
func (s *Store) ConsumeIntents(ctx context.Context, workers int, fn func(context.Context, IntentMessage) error) error {
	st, err := s.js.Stream(ctx, s.topology.Intents.Name)
	if err != nil {
		return unavailable("consume intents", err)
	}
	created := st.CachedInfo().Created
	return s.consume(ctx, s.topology.Intents.Name, "ingress", s.cfg.Prefix+".intents.*", workers, func(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		return fn(ctx, IntentMessage{
			Provider: strings.TrimPrefix(m.Subject(), s.cfg.Prefix+".intents."), Body: m.Data(), Seq: meta.Sequence.Stream,
			StreamCreated: created, At: meta.Timestamp, Delivered: meta.NumDelivered, ReplyTo: m.Headers().Get(HeaderReply),
		})
	})
}

// ConsumeSettled hands every public settlement to fn, in the same way. What
// cannot be decoded is acknowledged: it can never be acted on.
func (s *Store) ConsumeSettled(ctx context.Context, workers int, fn func(context.Context, events.Recorded) error) error {
	return s.consume(ctx, s.topology.Events.Name, "effects", s.cfg.Prefix+".events.*.settled.>", workers, func(ctx context.Context, m jetstream.Msg, meta *jetstream.MsgMetadata) error {
		rec := s.Decode(Message{Subject: m.Subject(), Seq: meta.Sequence.Stream, Time: meta.Timestamp, Data: m.Data()})
		if rec.Err != nil {
			s.cfg.Logger.Error("settlement cannot be read", "seq", rec.Seq, "err", rec.Err)
			return nil
		}
		return fn(ctx, rec)
	})
}

func (s *Store) consume(ctx context.Context, stream, durable, filter string, workers int, fn func(context.Context, jetstream.Msg, *jetstream.MsgMetadata) error) error {
	c, err := s.js.CreateOrUpdateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: filter, DeliverPolicy: jetstream.DeliverAllPolicy, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxDeliver: -1, MaxAckPending: ackPendingMax, ReplayPolicy: jetstream.ReplayInstantPolicy,
	})
	if err != nil {
		return unavailable("consume "+durable, err)
	}
	it, err := c.Messages(jetstream.PullMaxMessages(max(2*workers, 16)), jetstream.PullExpiry(10*time.Second), jetstream.PullHeartbeat(2*time.Second))
	if err != nil {
		return unavailable("consume "+durable, err)
	}
	defer it.Stop()
	work := make(chan jetstream.Msg)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(work)
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for m := range work {
				s.handle(ctx, m, fn)
			}
		}()
	}
	for {
		m, err := it.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, jetstream.ErrNoHeartbeat), errors.Is(err, nats.ErrTimeout):
			continue
		case err != nil:
			return unavailable("consume "+durable, err)
		}
		select {
		case work <- m:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Store) handle(ctx context.Context, m jetstream.Msg, fn func(context.Context, jetstream.Msg, *jetstream.MsgMetadata) error) {
	meta, err := m.Metadata()
	if err != nil {
		s.cfg.Logger.Error("message without metadata", "err", err)
		return
	}
	if err := fn(ctx, m, meta); err != nil {
		delay := min(50*time.Millisecond<<min(meta.NumDelivered-1, 10), nakMax)
		if ctx.Err() == nil {
			s.cfg.Logger.Debug("message will come again", "subject", m.Subject(), "attempt", meta.NumDelivered, "err", err)
		}
		_ = m.NakWithDelay(delay) // without it the message comes again after ackWait
		return
	}
	_ = m.Ack() // an ack that is lost costs a redelivery, which changes nothing
}

// Reply answers to a subject that somebody named. Subjects of the system and of
// Pawl itself are refused.
func (s *Store) Reply(_ context.Context, subject string, body []byte) error {
	if err := s.foreign(subject); err != nil {
		return err
	}
	if err := s.nc.Publish(subject, body); err != nil {
		return unavailable("reply", err)
	}
	return nil
}

// PublishEffect sends a NATS effect: stored under the id if a stream takes the
// subject, plainly published otherwise.
func (s *Store) PublishEffect(ctx context.Context, subject, id string, body []byte) error {
	if err := s.foreign(subject); err != nil {
		return err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m := nats.NewMsg(subject)
	m.Data = body
	m.Header.Set(jetstream.MsgIDHeader, id)
	m.Header.Set("Content-Type", "application/json")
	if _, err := s.js.StreamNameBySubject(ctx, subject); errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := s.nc.PublishMsg(m); err != nil {
			return unavailable("publish effect", err)
		}
		if err := s.nc.FlushWithContext(ctx); err != nil {
			return unavailable("publish effect", err)
		}
		return nil
	} else if err != nil {
		return unavailable("publish effect", err)
	}
	if _, err := s.publish(ctx, m); err != nil {
		return unavailable("publish effect", err)
	}
	return nil
}

// foreign refuses subjects that are not a plain subject of somebody else.
func (s *Store) foreign(subject string) error {
	if subject == "" || len(subject) > 512 || strings.ContainsAny(subject, "*> \t\r\n") || strings.HasPrefix(subject, "$") ||
		strings.HasPrefix(subject, s.cfg.Prefix+".") || strings.HasPrefix(subject, ".") || strings.HasSuffix(subject, ".") || strings.Contains(subject, "..") {
		return fmt.Errorf("subject %.80q: want a literal subject outside $… and %s.…", subject, s.cfg.Prefix)
	}
	return nil
}
