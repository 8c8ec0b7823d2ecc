package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-dev/pawl/events"
)

// historyMaxBytes bounds the payloads of one page; a page has one entry at least.
const historyMaxBytes = 8 << 20

type historyInput struct {
	ID    string `path:"id" doc:"The operation id."`
	After uint64 `query:"after" doc:"Only entries after this sequence."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"500"`
}

// History is a part of an operation's history, oldest first.
type History struct {
	OperationID events.OperationID `json:"operation_id"`
	Entries     []HistoryEntry     `json:"entries" nullable:"false"`
	Next        uint64             `json:"next_after,omitempty" doc:"Ask for the entries after this one. Left out at the end."`
}

// HistoryEntry is one event and what it changed.
type HistoryEntry struct {
	At      time.Time      `json:"at"`
	Actor   string         `json:"actor,omitempty" doc:"Who wrote it: a role, or a person for an intent."`
	From    events.State   `json:"from,omitempty"`
	To      events.State   `json:"to,omitempty"`
	Event   events.Type    `json:"event,omitempty" doc:"Left out for an event that could not be read."`
	EventID string         `json:"event_id,omitempty"`
	Cause   string         `json:"cause,omitempty" doc:"Event that led to it."`
	Reason  string         `json:"reason,omitempty"`
	Verdict events.Verdict `json:"verdict" doc:"What the fold did with it."`
	Seq     uint64         `json:"seq"`
	// Data is the event's payload as the ledger holds it.
	Data json.RawMessage `json:"data,omitempty"`
}

type historyOutput struct{ Body History }

func (s *server) registerHistory(api huma.API) {
	op := s.operation(api, "get-history", http.MethodGet, "/v1/operations/{id}/history", "Read an operation's history")
	op.Description = "Every event of the operation and of its remote jobs, with the state before and after, from the ledger."
	huma.Register(api, op, s.history)
}

func (s *server) history(ctx context.Context, in *historyInput) (*historyOutput, error) {
	op, err := events.ParseOperationID(in.ID)
	if err != nil {
		return nil, notFound()
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, err := s.provider(ctx, op)
	if err != nil {
		return nil, s.readProblem(err, op)
	}
	entries, _, err := events.History(ctx, s.Reader, p, op)
	if err != nil {
		return nil, s.readProblem(err, op)
	}
	page, err := pageOf(entries, in.After, in.Limit)
	if err != nil {
		return nil, s.readProblem(err, op)
	}
	page.OperationID = op
	return &historyOutput{Body: page}, nil
}

// pageOf cuts one page out of a history, by entries and by bytes.
func pageOf(entries []events.Entry, after uint64, limit int) (History, error) {
	h := History{Entries: []HistoryEntry{}}
	size := 0
	for i := range entries {
		if entries[i].Seq <= after {
			continue
		}
		v, err := entryOf(&entries[i])
		if err != nil {
			return h, err
		}
		size += len(v.Data)
		if n := len(h.Entries); n > 0 && (n == limit || size > historyMaxBytes) {
			h.Next = h.Entries[n-1].Seq
			break
		}
		h.Entries = append(h.Entries, v)
	}
	return h, nil
}

// provider says to whom an operation belongs.
func (s *server) provider(ctx context.Context, op events.OperationID) (events.Provider, error) {
	if j, ok := s.Jobs.Job(op); ok {
		return j.Provider, nil
	}
	return s.Find(ctx, op)
}

func entryOf(e *events.Entry) (HistoryEntry, error) {
	v := HistoryEntry{
		At: e.At.UTC(), Actor: e.Actor, From: e.From, To: e.To, Event: e.Event, EventID: e.EventID,
		Cause: e.Cause, Reason: e.Reason, Verdict: e.Verdict, Seq: e.Seq,
	}
	if e.Data == nil {
		return v, nil
	}
	var err error
	if v.Data, err = json.Marshal(e.Data); err != nil {
		return v, fmt.Errorf("encode event %d: %w", e.Seq, err)
	}
	return v, nil
}
