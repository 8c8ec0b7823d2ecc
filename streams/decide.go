package streams

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// Decide implements events.Decider. A decision carries no Nats-Msg-Id: R1 and R3
// answer a repeat differently, and nobody can claim its id beforehand.
func (s *Store) Decide(ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
	body, err := events.Encode(e)
	if err != nil {
		return events.Appended{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m := nats.NewMsg(s.subject(e.Subject))
	m.Data = body
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expected, 10))
	scope := m.Subject
	if _, ok := e.Data.(*events.Prepared); ok {
		// An operation id is unique over all providers.
		scope = s.cfg.Prefix + ".events.*.op." + e.Subject.Key
		m.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, scope)
	}
	for n := 0; ; n++ {
		ack, perr := s.publish(ctx, m)
		if perr == nil {
			return events.Appended{Outcome: events.Stored, Seq: ack.Seq}, nil
		}
		// Anything but a clean acknowledgement says nothing. What stands first
		// after the expected sequence does; the last message would not, because
		// evidence may have landed after ours.
		first, found, rerr := s.firstAfter(ctx, scope, expected)
		switch {
		case rerr == nil && found:
			return judge(e, body, first), nil
		case rerr == nil && isRefused(perr):
			return events.Appended{}, unavailable("append decision", perr)
		}
		if !pause(ctx, n) {
			return events.Appended{}, fmt.Errorf("%w: append decision: %w (last: %w)", events.ErrUnavailable, context.Cause(ctx), perr)
		}
	}
}

// judge compares a decision with what stands in its place.
func judge(e events.Event, body []byte, first events.Recorded) events.Appended {
	if events.SameBytes(body, first.Bytes) || (first.Err == nil && events.SameAnnouncement(e, first.Event)) {
		return events.Appended{Outcome: events.Stored, Seq: first.Seq}
	}
	return events.Appended{Outcome: events.Fenced, Seq: first.Seq, Winner: &first}
}
