package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-dev/pawl/events"
)

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
	Data    any            `json:"data,omitempty"`
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
	out := &historyOutput{Body: History{OperationID: op, Entries: []HistoryEntry{}}}
	for i := range entries {
		e := &entries[i]
		if e.Seq <= in.After {
			continue
		}
		if len(out.Body.Entries) == in.Limit {
			out.Body.Next = out.Body.Entries[in.Limit-1].Seq
			break
		}
		out.Body.Entries = append(out.Body.Entries, entryOf(e))
	}
	return out, nil
}

// provider says to whom an operation belongs.
func (s *server) provider(ctx context.Context, op events.OperationID) (events.Provider, error) {
	if j, ok := s.Jobs.Job(op); ok {
		return j.Provider, nil
	}
	return s.Find(ctx, op)
}

func entryOf(e *events.Entry) HistoryEntry {
	v := HistoryEntry{
		At: e.At.UTC(), Actor: e.Actor, From: e.From, To: e.To, Event: e.Event, EventID: e.EventID,
		Cause: e.Cause, Reason: e.Reason, Verdict: e.Verdict, Seq: e.Seq,
	}
	if e.Data != nil {
		v.Data = e.Data
	}
	return v
}
