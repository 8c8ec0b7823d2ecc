package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-dev/pawl/events"
)

type outcomeInput struct {
	ID   string `path:"id" doc:"The operation id."`
	Wait string `query:"wait" doc:"How long to wait while the outcome is pending, such as 30s; at most 60s. Default: not at all."`
}

// Resolve implements huma.Resolver: an answer that is waited for must not be
// cut off by a write deadline that was meant for quick ones. The wait itself is
// bounded.
func (in *outcomeInput) Resolve(ctx huma.Context) []error {
	if in.Wait != "" {
		_, w := humago.Unwrap(ctx)
		_ = http.NewResponseController(w).SetWriteDeadline(noDeadline) // not every writer can
	}
	return nil
}

// Outcome is the narrow answer about an operation, for a caller that wants to
// know only whether it may go on.
type Outcome struct {
	OperationID events.OperationID  `json:"operation_id"`
	Outcome     events.Outcome      `json:"outcome" doc:"pending, confirmed, failed, cancelled or pending_review."`
	State       events.State        `json:"state"`
	Reason      string              `json:"reason,omitempty"`
	Result      *Result             `json:"result,omitempty" doc:"Of a confirmed outcome."`
	Error       *events.RemoteError `json:"error,omitempty" doc:"The provider's own account of a failure."`
	Counts      *events.Counts      `json:"counts,omitempty"`
	Assurance   events.Assurance    `json:"assurance,omitempty" doc:"How it was confirmed."`
	Evidence    []uint64            `json:"evidence,omitempty" doc:"Sequences of the events that prove it."`
	Detail      string              `json:"detail,omitempty" doc:"expired, partial or moderated."`
	Late        bool                `json:"late,omitempty" doc:"It came after the time for it had run out."`
	Waived      bool                `json:"waived,omitempty" doc:"A person accepted the success without its result."`
	Cancel      events.CancelStatus `json:"cancel,omitempty" doc:"What became of a requested cancellation."`
	DecidedBy   string              `json:"decided_by,omitempty" doc:"The person, when one decided the outcome."`
	Settled     *SettledMark        `json:"settled,omitempty" doc:"The newest announcement. During a review it may differ from the outcome."`
	Seq         uint64              `json:"seq" doc:"Last event that is folded here."`
}

// SettledMark says which announcement was made when.
type SettledMark struct {
	G       int            `json:"g"`
	State   events.State   `json:"state"`
	Outcome events.Outcome `json:"outcome"`
	At      time.Time      `json:"at"`
	Seq     uint64         `json:"seq"`
}

// Result is the result itself or, if it is large, where it is.
type Result struct {
	Value       json.RawMessage `json:"value,omitempty"`
	Ref         string          `json:"ref,omitempty" doc:"Address in the object store."`
	SHA256      string          `json:"sha256"`
	Size        int64           `json:"size_bytes"`
	ContentType string          `json:"content_type,omitempty"`
}

type outcomeOutput struct {
	RetryAfter string `header:"Retry-After"`
	Body       Outcome
}

func (s *server) registerOutcome(api huma.API) {
	op := s.operation(api, "get-outcome", http.MethodGet, "/v1/operations/{id}/outcome", "Read or await an outcome")
	op.Description = "Answers at once when the outcome is not pending, else after wait at the latest."
	huma.Register(api, op, s.outcome)
}

func (s *server) outcome(ctx context.Context, in *outcomeInput) (*outcomeOutput, error) {
	op, err := events.ParseOperationID(in.ID)
	if err != nil {
		return nil, notFound()
	}
	wait, problem := parseWait(in.Wait)
	if problem != nil {
		return nil, problem
	}
	j, err := s.job(ctx, op)
	if err != nil {
		return nil, s.readProblem(err, op)
	}
	if wait > 0 && !decided(j) {
		if j, err = s.await(ctx, j, wait); err != nil {
			return nil, err
		}
	}
	out := &outcomeOutput{Body: outcomeView(j)}
	if !decided(j) {
		out.RetryAfter = "1"
	}
	return out, nil
}

func parseWait(text string) (time.Duration, *Problem) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil || wait < 0 || wait > WaitMax {
		return 0, parameter("query.wait", "want a duration from 0s to "+WaitMax.String())
	}
	return wait, nil
}

// decided reports whether there is something to tell. A job that waits for a
// person counts: nothing more happens by itself.
func decided(j *events.Job) bool { return j.PublicOutcome() != events.OutcomePending }

// await waits for an outcome, and returns the newest record there is.
func (s *server) await(ctx context.Context, known *events.Job, wait time.Duration) (*events.Job, error) {
	select {
	case s.waiting <- struct{}{}:
		defer func() { <-s.waiting }()
	default:
		return nil, unavailable("Too many callers wait already.")
	}
	waitCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	j, err := s.Jobs.Wait(waitCtx, known.Operation, decided)
	if err != nil && ctx.Err() != nil {
		return nil, unavailable("The wait was interrupted.")
	}
	if j == nil { // nothing feeds the index: the ledger may know more by now
		if j, err = s.job(ctx, known.Operation); err != nil {
			return nil, s.readProblem(err, known.Operation)
		}
	}
	if j.AppliedSeq < known.AppliedSeq {
		return known, nil // the index is still behind what the ledger said
	}
	return j, nil
}

func outcomeView(j *events.Job) Outcome {
	v := Outcome{
		OperationID: j.Operation, Outcome: j.PublicOutcome(), State: j.State, Reason: j.Why, Seq: j.AppliedSeq, Cancel: j.CancelStatus(),
	}
	if r := j.Remote(); r != nil && r.Counts.Set() {
		counts := r.Counts.Counts
		v.Counts = &counts
	}
	if s := j.LatestSettlement(); s != nil && s.Settled != nil {
		v.Settled = &SettledMark{G: s.G, State: s.State, Outcome: s.Settled.Outcome, At: s.At.UTC(), Seq: s.Seq}
	}
	s := announced(j)
	if s == nil {
		return v // nothing that may be acted on
	}
	d := s.Settled
	v.Reason, v.Assurance, v.Evidence, v.Error = d.Reason, d.Assurance, d.Evidence, d.Error
	v.Detail, v.Late, v.Waived, v.Cancel, v.DecidedBy = d.Detail, d.Late, d.Waived, d.Cancel, d.DecidedBy
	if d.Counts != nil {
		v.Counts = d.Counts
	}
	if b := d.Result; b != nil {
		v.Result = &Result{Value: b.Inline, Ref: b.Ref, SHA256: b.SHA256, Size: b.Size, ContentType: b.ContentType}
	}
	return v
}
