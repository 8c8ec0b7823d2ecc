package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-dev/pawl/events"
)

// labelFiltersMax bounds the labels of one query; an intent has no more.
const labelFiltersMax = 16

type listInput struct {
	State    []string `query:"state,explode"`
	Outcome  string   `query:"outcome"`
	Provider string   `query:"provider" doc:"Configured name of a provider."`
	Review   bool     `query:"review" doc:"Only operations that wait for a person."`
	Label    []string `query:"label,explode" doc:"key:value. May be repeated; all must hold."`
	// Times come as text, so that a wrong one is refused by our own words.
	UpdatedBefore string `query:"updated_before" doc:"RFC 3339. Last changed before this."`
	UpdatedAfter  string `query:"updated_after" doc:"RFC 3339. Last changed after this."`
	Age           string `query:"age" doc:"Duration such as 90s or 24h. Not changed for at least this long."`
	Cursor        string `query:"cursor" doc:"next_cursor of the page before."`
	Limit         int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}

// OperationPage is one page of operations.
type OperationPage struct {
	Operations []Operation `json:"operations" nullable:"false"`
	NextCursor string      `json:"next_cursor,omitempty" doc:"Left out on the last page. A page may be short and still have a next one."`
}

type listOutput struct{ Body OperationPage }

type operationInput struct {
	ID string `path:"id" doc:"The operation id."`
}

type operationOutput struct{ Body Operation }

func (s *server) registerOperations(api huma.API) {
	list := s.operation(api, "list-operations", http.MethodGet, "/v1/operations", "List operations, newest first")
	huma.Register(api, list, s.list)
	describeStates(api.OpenAPI().Paths["/v1/operations"].Get)
	huma.Register(api, s.operation(api, "get-operation", http.MethodGet, "/v1/operations/{id}", "Read an operation"), s.get)
}

func (s *server) list(_ context.Context, in *listInput) (*listOutput, error) {
	f, problem := s.filter(in)
	if problem != nil {
		return nil, problem
	}
	c, err := ParseCursor(in.Cursor)
	if err != nil {
		return nil, parameter("query.cursor", err.Error())
	}
	page := s.Jobs.List(f, c, in.Limit)
	out := &listOutput{Body: OperationPage{Operations: make([]Operation, 0, len(page.Jobs)), NextCursor: page.Next.String()}}
	for i, j := range page.Jobs {
		out.Body.Operations = append(out.Body.Operations, viewOf(j, page.Updated[i]))
	}
	return out, nil
}

// filter reads the query. Every word of a closed set is checked: a misspelt
// state that quietly matches nothing would look like an empty house.
func (s *server) filter(in *listInput) (Filter, *Problem) {
	f := Filter{Review: in.Review}
	for _, word := range in.State {
		if !slices.Contains(events.States(), events.State(word)) {
			return f, parameter("query.state", "want one of "+joined(events.States()))
		}
		f.States = append(f.States, events.State(word))
	}
	if f.Outcome = events.Outcome(in.Outcome); f.Outcome != "" && !slices.Contains(outcomes(), f.Outcome) {
		return f, parameter("query.outcome", "want one of "+joined(outcomes()))
	}
	if in.Provider != "" {
		p, err := events.ParseProvider(in.Provider)
		if err != nil {
			return f, parameter("query.provider", "want 1 to 32 of a-z, 0-9 and '-'")
		}
		f.Provider = p
	}
	if len(in.Label) > labelFiltersMax {
		return f, parameter("query.label", "too many labels")
	}
	for _, pair := range in.Label {
		k, v, ok := strings.Cut(pair, ":")
		if !ok || k == "" {
			return f, parameter("query.label", "want key:value")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		if had, twice := f.Labels[k]; twice && had != v {
			return f, parameter("query.label", "one key with two values matches nothing")
		}
		f.Labels[k] = v
	}
	problem := s.times(in, &f)
	return f, problem
}

func (s *server) times(in *listInput, f *Filter) *Problem {
	for _, p := range []struct {
		name, text string
		dst        *time.Time
	}{{"updated_before", in.UpdatedBefore, &f.UpdatedBefore}, {"updated_after", in.UpdatedAfter, &f.UpdatedAfter}} {
		if p.text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, p.text)
		if err != nil {
			return parameter("query."+p.name, "want a time such as 2026-01-02T15:04:05Z")
		}
		*p.dst = t
	}
	if in.Age == "" {
		return nil
	}
	age, err := time.ParseDuration(in.Age)
	if err != nil || age < 0 {
		return parameter("query.age", "want a duration such as 90s, 15m or 24h")
	}
	if t := s.Now().Add(-age); f.UpdatedBefore.IsZero() || t.Before(f.UpdatedBefore) {
		f.UpdatedBefore = t
	}
	return nil
}

func (s *server) get(ctx context.Context, in *operationInput) (*operationOutput, error) {
	op, err := events.ParseOperationID(in.ID)
	if err != nil {
		return nil, notFound()
	}
	j, err := s.job(ctx, op)
	if err != nil {
		return nil, s.readProblem(err, op)
	}
	return &operationOutput{Body: viewOf(j, j.UpdatedAt)}, nil
}

// job reads an operation from the index, or from the ledger when the index has
// not seen it: who was just told 202 must not be told 404. The error is
// events.ErrNotFound if the ledger has no such operation either.
func (s *server) job(ctx context.Context, op events.OperationID) (*events.Job, error) {
	if j, ok := s.Jobs.Job(op); ok {
		return j, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	p, err := s.Find(ctx, op)
	if err != nil {
		return nil, err
	}
	j, err := events.Refold(ctx, s.Reader, p, op)
	if err != nil {
		return nil, err
	}
	if !j.Prepared.Set() {
		return nil, events.ErrNotFound
	}
	return j, nil
}

func parameter(location, message string) *Problem {
	return newProblem(http.StatusUnprocessableEntity, slugParameter, "").field(location, message)
}
