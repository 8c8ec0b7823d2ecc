package streams

import (
	"context"
	"encoding/json"
	"errors"
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

// FindOperation returns where an operation stands and its first event, or
// events.ErrNotFound.
func (s *Store) FindOperation(ctx context.Context, op events.OperationID) (events.Subject, events.Recorded, error) {
	if _, err := events.ParseOperationID(string(op)); err != nil {
		return events.Subject{}, events.Recorded{}, events.ErrNotFound
	}
	m, found, err := s.Wire.FirstAfter(ctx, s.cfg.Prefix+".events.*.op."+string(op), 0)
	if err != nil {
		return events.Subject{}, events.Recorded{}, err
	}
	if !found {
		return events.Subject{}, events.Recorded{}, events.ErrNotFound
	}
	rec := s.Decode(m)
	return rec.Event.Subject, rec, nil
}
