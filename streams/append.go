package streams

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Wire is what the append rule needs of a stream server. Store has one over
// NATS; package streamstest has one in memory that fails on demand, so that the
// rule itself is what a simulation runs.
type Wire interface {
	// Publish sends one message once. An error that wraps ErrRefused says that it
	// is not stored and that a repeat would get the same answer; any other error
	// says nothing about it.
	Publish(ctx context.Context, p Publication) (Ack, error)
	// FirstAfter returns the first message after a sequence on a subject, which
	// may have wildcards, as the leader has it.
	FirstAfter(ctx context.Context, subject string, seq uint64) (Message, bool, error)
	// At returns one message by sequence, as the leader has it.
	At(ctx context.Context, seq uint64) (Message, bool, error)
	// Pause waits before try n (from 0) is repeated; false: the context ended.
	Pause(ctx context.Context, n int) bool
}

// ErrRefused says that the server will not store a message until somebody acts:
// it is full, the message is too large, JetStream is off.
var ErrRefused = errors.New("the store refuses")

// Publication is one message to store.
type Publication struct {
	Subject string
	Body    []byte
	// ID is the deduplication id of evidence; "" for a decision.
	ID string
	// Fence of a decision: the last message of Scope must still be at Seq.
	Fence *Fence
}

// Fence is what a decision expects.
type Fence struct {
	Scope string // a subject, which may have wildcards
	Seq   uint64 // 0: there is none
}

// Ack is the server's word that a message is stored.
type Ack struct {
	Seq       uint64
	Duplicate bool
}

// Message is one message of the stream.
type Message struct {
	Subject string
	Seq     uint64
	Time    time.Time
	Data    []byte
}

// Log is the event stream seen through a wire: it appends by the one rule, and
// reads back from the leader. It implements events.Decider, events.Recorder and
// events.Reader.
type Log struct {
	Wire   Wire
	Prefix string // of all subjects
}

// Subject gives an event's full subject.
func (l Log) Subject(s events.Subject) string { return l.Prefix + ".events." + s.String() }

// Decide implements events.Decider. A decision carries no deduplication id: one
// and three replicas answer a repeat differently, and nobody can claim its id
// beforehand.
func (l Log) Decide(ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
	body, err := events.Encode(e)
	if err != nil {
		return events.Appended{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	p := Publication{Subject: l.Subject(e.Subject), Body: body, Fence: &Fence{Scope: l.Subject(e.Subject), Seq: expected}}
	if _, ok := e.Data.(*events.Prepared); ok {
		// An operation id is unique over all providers.
		p.Fence.Scope = l.Prefix + ".events.*.op." + e.Subject.Key
	}
	for n := 0; ; n++ {
		ack, perr := l.Wire.Publish(ctx, p)
		if perr == nil {
			return events.Appended{Outcome: events.Stored, Seq: ack.Seq}, nil
		}
		// Anything but a clean acknowledgement says nothing. What stands first
		// after the expected sequence does; the last message would not, because
		// evidence may have landed after ours.
		first, found, rerr := l.Wire.FirstAfter(ctx, p.Fence.Scope, expected)
		switch {
		case rerr == nil && found:
			return judge(e, body, l.Decode(first)), nil
		case rerr == nil && errors.Is(perr, ErrRefused):
			return events.Appended{}, unavailable("append decision", perr)
		}
		if !l.Wire.Pause(ctx, n) {
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

// Record implements events.Recorder.
func (l Log) Record(ctx context.Context, e events.Event) (events.Appended, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	got, err := l.record(ctx, e)
	if err != nil || got.Outcome != events.Duplicate {
		return got, err
	}
	same, err := l.sameContent(ctx, e, got.Seq)
	if err != nil {
		return events.Appended{}, err
	}
	if same {
		return got, nil
	}
	// One id, two contents: a sender that reuses ids, or an attack. Both stay.
	hash, err := events.ContentHash(e)
	if err != nil {
		return events.Appended{}, err
	}
	// The short suffix is for people; the long one for who forges eight digits.
	id := e.ID
	for _, n := range []int{8, len(hash)} {
		suffix := "~" + hash[:n]
		e.ID = id[:min(len(id), eventIDMax-len(suffix))] + suffix
		got, err = l.record(ctx, e)
		if err != nil {
			return events.Appended{}, err
		}
		if got.Outcome == events.Stored {
			got.Outcome = events.Collision
			return got, nil
		}
		same, err := l.sameContent(ctx, e, got.Seq)
		if err != nil {
			return events.Appended{}, err
		}
		if same {
			return got, nil
		}
	}
	return events.Appended{}, fmt.Errorf("%w: id %.80q is taken with every suffix", events.ErrInvalidEvent, id)
}

// sameContent compares an event with what stands at the sequence that the
// server called its duplicate. What was deleted cannot vouch for anything.
func (l Log) sameContent(ctx context.Context, e events.Event, seq uint64) (bool, error) {
	var rec events.Recorded
	for n := 0; ; n++ {
		m, found, err := l.Wire.At(ctx, seq)
		if err == nil && !found {
			return false, nil
		}
		if err == nil {
			rec = l.Decode(m)
			break
		}
		if !l.Wire.Pause(ctx, n) {
			return false, err
		}
	}
	if rec.Err != nil || rec.Event.ID != e.ID {
		return false, nil
	}
	ours, err := events.ContentHash(e)
	if err != nil {
		return false, err
	}
	theirs, err := events.ContentHash(rec.Event)
	return err == nil && ours == theirs, nil
}

// record publishes one event under its id until it is acknowledged.
func (l Log) record(ctx context.Context, e events.Event) (events.Appended, error) {
	body, err := events.Encode(e)
	if err != nil {
		return events.Appended{}, err
	}
	p := Publication{Subject: l.Subject(e.Subject), ID: e.ID, Body: body}
	for n := 0; ; n++ {
		ack, err := l.Wire.Publish(ctx, p)
		switch {
		case err == nil && ack.Duplicate:
			return events.Appended{Outcome: events.Duplicate, Seq: ack.Seq}, nil
		case err == nil:
			return events.Appended{Outcome: events.Stored, Seq: ack.Seq}, nil
		case errors.Is(err, ErrRefused):
			return events.Appended{}, unavailable("append evidence", err)
		}
		if !l.Wire.Pause(ctx, n) {
			return events.Appended{}, fmt.Errorf("%w: append evidence: %w (last: %w)", events.ErrUnavailable, context.Cause(ctx), err)
		}
	}
}

// Read implements events.Reader.
func (l Log) Read(ctx context.Context, subject events.Subject, after uint64, limit int) ([]events.Recorded, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var out []events.Recorded
	for len(out) < limit {
		m, found, err := l.Wire.FirstAfter(ctx, l.Subject(subject), after)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		out = append(out, l.Decode(m))
		after = m.Seq
	}
	return out, nil
}

// At returns one event by sequence, or events.ErrNotFound.
func (l Log) At(ctx context.Context, seq uint64) (events.Recorded, error) {
	m, found, err := l.Wire.At(ctx, seq)
	if err != nil {
		return events.Recorded{}, err
	}
	if !found {
		return events.Recorded{}, events.ErrNotFound
	}
	return l.Decode(m), nil
}

// Decode turns a message into a recorded event. What cannot be decoded, or
// stands on another subject than it says, comes with Err.
func (l Log) Decode(m Message) events.Recorded {
	rec := events.Recorded{Seq: m.Seq, At: m.Time.UTC(), Bytes: m.Data}
	short := strings.TrimPrefix(m.Subject, l.Prefix+".events.")
	e, err := events.Decode(m.Data)
	if err == nil && e.Subject.String() != short {
		err = fmt.Errorf("%w: it says subject %s and stands on %s", events.ErrInvalidEvent, e.Subject, short)
	}
	if err != nil {
		rec.Err = err
		rec.Event.ID, rec.Event.Critical = e.ID, e.Critical
		if parsed, perr := events.ParseSubject(short); perr == nil {
			rec.Event.Subject = parsed
		}
		return rec
	}
	rec.Event = e
	return rec
}
