package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// storedMsg is a message as STREAM.MSG.GET answers. That call is served by the
// leader, so what it says is current; a direct get may be stale.
type storedMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Header  []byte    `json:"hdrs"`
	Time    time.Time `json:"time"`

	// What a feed knows beside: a bucket's key is gone, and how many messages
	// wait behind this one.
	deleted bool
	waiting uint64
}

// getMsg reads one message; found is false when there is none.
func (s *Store) getMsg(ctx context.Context, stream string, req map[string]any) (msg storedMsg, found bool, err error) {
	body, err := json.Marshal(req)
	if err != nil {
		return storedMsg{}, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	reply, err := s.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return storedMsg{}, false, unavailable("read", err)
	}
	var out struct {
		Message *storedMsg `json:"message"`
		Error   *apiError  `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &out); err != nil {
		return storedMsg{}, false, unavailable("read", err)
	}
	switch {
	case out.Error != nil && out.Error.ErrCode == codeNoMessage:
		return storedMsg{}, false, nil
	case out.Error != nil:
		return storedMsg{}, false, unavailable("read", out.Error)
	case out.Message == nil:
		return storedMsg{}, false, unavailable("read", errors.New("empty answer"))
	}
	return *out.Message, true, nil
}

// firstAfter reads the first event after a sequence on a subject, which may
// have wildcards.
func (s *Store) firstAfter(ctx context.Context, subject string, seq uint64) (events.Recorded, bool, error) {
	m, found, err := s.getMsg(ctx, s.topology.Events.Name, map[string]any{"seq": seq + 1, "next_by_subj": subject})
	if err != nil || !found {
		return events.Recorded{}, false, err
	}
	return s.decode(m.Subject, m.Seq, m.Time, m.Data), true, nil
}

// decode turns a message into a recorded event. What cannot be decoded, or
// stands on another subject than it says, comes with Err.
func (s *Store) decode(subject string, seq uint64, at time.Time, data []byte) events.Recorded {
	rec := events.Recorded{Seq: seq, At: at.UTC(), Bytes: data}
	short := strings.TrimPrefix(subject, s.cfg.Prefix+".events.")
	e, err := events.Decode(data)
	if err == nil && e.Subject.String() != short {
		err = fmt.Errorf("%w: it says subject %s and stands on %s", events.ErrInvalidEvent, e.Subject, short)
	}
	if err != nil {
		rec.Err = err
		rec.Event.ID = e.ID
		if parsed, perr := events.ParseSubject(short); perr == nil {
			rec.Event.Subject = parsed
		}
		return rec
	}
	rec.Event = e
	return rec
}

// Read implements events.Reader.
func (s *Store) Read(ctx context.Context, subject events.Subject, after uint64, limit int) ([]events.Recorded, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	var out []events.Recorded
	for len(out) < limit {
		rec, found, err := s.firstAfter(ctx, s.subject(subject), after)
		if err != nil {
			return nil, err
		}
		if !found {
			break
		}
		out = append(out, rec)
		after = rec.Seq
	}
	return out, nil
}

// At returns one event by sequence, or events.ErrNotFound.
func (s *Store) At(ctx context.Context, seq uint64) (events.Recorded, error) {
	m, found, err := s.getMsg(ctx, s.topology.Events.Name, map[string]any{"seq": seq})
	if err != nil {
		return events.Recorded{}, err
	}
	if !found {
		return events.Recorded{}, events.ErrNotFound
	}
	return s.decode(m.Subject, m.Seq, m.Time, m.Data), nil
}

// FindOperation returns where an operation stands and its first event, or
// events.ErrNotFound.
func (s *Store) FindOperation(ctx context.Context, op events.OperationID) (events.Subject, events.Recorded, error) {
	if _, err := events.ParseOperationID(string(op)); err != nil {
		return events.Subject{}, events.Recorded{}, events.ErrNotFound
	}
	rec, found, err := s.firstAfter(ctx, s.cfg.Prefix+".events.*.op."+string(op), 0)
	if err != nil {
		return events.Subject{}, events.Recorded{}, err
	}
	if !found {
		return events.Subject{}, events.Recorded{}, events.ErrNotFound
	}
	return rec.Event.Subject, rec, nil
}
