package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-dev/pawl/events"
)

// keyMaxBytes bounds an Idempotency-Key.
const keyMaxBytes = 255

// submitInput reads the body itself, because the intent must be judged by the
// bytes that came and not by what a decoder made of them.
type submitInput struct {
	Key string `header:"Idempotency-Key" doc:"Names the operation unless the body has operation_id. A valid operation id is taken as it is, anything else is hashed into one. Quoted or bare, at most 255 characters."`

	body    []byte
	problem *Problem // why the body could not be read
}

// serverKey carries the server to a resolver, which the framework gives nothing
// else to hold on to.
type serverKey struct{}

// Resolve implements huma.Resolver: it reads the body under a deadline and a
// limit.
func (in *submitInput) Resolve(ctx huma.Context) []error {
	r, w := humago.Unwrap(ctx)
	if in.problem = checkMedia(r.Header); in.problem != nil {
		return nil
	}
	rc := http.NewResponseController(w)
	if s, ok := ctx.Context().Value(serverKey{}).(*server); ok {
		_ = rc.SetReadDeadline(s.Now().Add(bodyTimeout)) // not every writer can; the server's own deadline remains
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, events.IntentMaxBytes))
	// Without this the deadline would end the request's context while the
	// intent is being stored.
	_ = rc.SetReadDeadline(noDeadline)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		in.problem = newProblem(http.StatusRequestEntityTooLarge, slugTooLarge, fmt.Sprintf("The limit is %d bytes.", events.IntentMaxBytes))
	case err != nil:
		in.problem = newProblem(http.StatusBadRequest, slugIncomplete, "The body did not arrive whole in time.")
	}
	in.body = body
	return nil
}

func checkMedia(h http.Header) *Problem {
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return newProblem(http.StatusUnsupportedMediaType, slugMediaType, "Send the body without Content-Encoding.")
	}
	ct := h.Get("Content-Type")
	if ct == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(ct)
	if err != nil || (media != "application/json" && !strings.HasSuffix(media, "+json")) {
		return newProblem(http.StatusUnsupportedMediaType, slugMediaType, "Send Content-Type: application/json.")
	}
	return nil
}

// Submitted is the answer to a submission.
type Submitted struct {
	OperationID events.OperationID `json:"operation_id"`
	Provider    events.Provider    `json:"provider"`
	State       events.State       `json:"state,omitempty" doc:"Where the operation stands; left out when it cannot be read right now."`
	Outcome     events.Outcome     `json:"outcome,omitempty" doc:"pending, confirmed, failed, cancelled or pending_review."`
	Seq         uint64             `json:"seq" doc:"Sequence of the stored intent in the event stream."`
	Links       Links              `json:"links"`
}

// Links lead to the other views of an operation.
type Links struct {
	Self    string `json:"self"`
	Outcome string `json:"outcome"`
	History string `json:"history"`
}

func linksOf(op events.OperationID) Links {
	self := "/v1/operations/" + string(op)
	return Links{Self: self, Outcome: self + "/outcome", History: self + "/history"}
}

type submitOutput struct {
	Status     int
	Location   string `header:"Location"`
	RetryAfter string `header:"Retry-After"`
	Replayed   string `header:"Idempotent-Replayed"`
	Body       Submitted
}

func (s *server) registerSubmit(api huma.API) {
	op := s.operation(api, "submit-operation", http.MethodPost, "/v1/operations", "Submit an intent")
	op.Description = "Stores an intent. 202: it is durable, and the operation goes on by itself. " +
		"The same request again: 200 with Idempotent-Replayed. The same operation with another request: 422."
	op.DefaultStatus = http.StatusAccepted
	submitted := api.OpenAPI().Components.Schemas.Schema(submittedType, true, "Submitted")
	op.Responses["200"] = &huma.Response{
		Description: "The same request was stored before.",
		Headers:     map[string]*huma.Param{"Idempotent-Replayed": {Description: "true", Schema: &huma.Schema{Type: huma.TypeString}}},
		Content:     map[string]*huma.MediaType{"application/json": {Schema: submitted}},
	}
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		next(huma.WithValue(ctx, serverKey{}, s))
	}}
	huma.Register(api, op, s.submit)
	// Described only now: the framework reads and judges a body that it knows of
	// at registration.
	api.OpenAPI().Paths[op.Path].Post.RequestBody = &huma.RequestBody{
		Required:    true,
		Description: "One JSON object, at most 1 MiB, without unknown or repeated fields.",
		Content:     map[string]*huma.MediaType{"application/json": {Schema: intentSchema()}},
	}
}

// submit hands the intent to the door and answers when it is durable.
func (s *server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	if in.problem != nil {
		return nil, in.problem
	}
	if err := events.CheckJSON(in.body); err != nil {
		return nil, fieldProblem(http.StatusBadRequest, slugMalformed, err)
	}
	fallback, problem := operationFor(in.Key, in.body)
	if problem != nil {
		return nil, problem
	}
	ctx, cancel := context.WithTimeoutCause(ctx, submitTimeout, errSubmitSlow)
	defer cancel()
	receipt, err := s.Submit(ctx, in.body, "", fallback)
	if err != nil {
		return nil, s.submitProblem(err, fallback)
	}
	return s.submitted(ctx, receipt), nil
}

var errSubmitSlow = errors.New("storing the intent takes too long")

func (s *server) submitted(ctx context.Context, r events.Receipt) *submitOutput {
	links := linksOf(r.OperationID)
	out := &submitOutput{
		Status:   http.StatusAccepted,
		Location: links.Self,
		Body: Submitted{
			OperationID: r.OperationID, Provider: r.Provider, Seq: r.Seq, Links: links,
			State: events.StatePrepared, Outcome: events.OutcomePending,
		},
	}
	if !r.Replayed {
		out.RetryAfter = "1"
		return out
	}
	out.Status, out.Replayed = http.StatusOK, "true"
	// An older operation may be anywhere by now. If that cannot be read, the
	// answer says nothing about it instead of something false.
	out.Body.State, out.Body.Outcome = "", ""
	if j, err := s.job(ctx, r.OperationID); err == nil {
		out.Body.State, out.Body.Outcome = j.State, j.PublicOutcome()
	}
	return out
}

func (s *server) submitProblem(err error, op events.OperationID) *Problem {
	var refused *events.RefusedError
	switch {
	case errors.As(err, &refused) && refused.Kind == events.RefusedMismatch:
		p := newProblem(http.StatusUnprocessableEntity, slugMismatch, "This operation was submitted before with another request. Nothing was changed.")
		return p.field(refused.Field, refused.Reason)
	case errors.As(err, &refused):
		return newProblem(http.StatusUnprocessableEntity, slugInvalid, "").field(refused.Field, refused.Reason)
	case errors.Is(err, events.ErrUnavailable), isContext(err), errors.Is(err, errSubmitSlow):
		return unavailable("It is not known whether the intent is stored. Send the same request with the same key again.")
	default:
		s.Logger.Error("submit intent", "operation", op, "err", err)
		return newProblem(http.StatusInternalServerError, slugInternal, "")
	}
}

// fieldProblem carries a refusal of the core over to a problem.
func fieldProblem(status int, slug string, err error) *Problem {
	p := newProblem(status, slug, "")
	var fe *events.FieldError
	if errors.As(err, &fe) {
		return p.field(fe.Field, fe.Reason)
	}
	return p
}

// operationFor names the operation that a request is about when its body does
// not: by the Idempotency-Key. It refuses a request that names none or two.
func operationFor(header string, body []byte) (events.OperationID, *Problem) {
	given, isObject := bodyOperation(body)
	if header == "" {
		if isObject && given == nil {
			return "", newProblem(http.StatusBadRequest, slugMissingKey, "Send an Idempotency-Key header or operation_id in the body, so that a repeat is not a second operation.")
		}
		return "", nil
	}
	key, ok := parseKey(header)
	if !ok {
		return "", newProblem(http.StatusBadRequest, slugBadKey, "").
			field("header.Idempotency-Key", fmt.Sprintf("want 1 to %d printable ASCII characters, bare or quoted", keyMaxBytes))
	}
	op, err := events.ParseOperationID(key)
	if err != nil {
		op = events.OperationID("op_" + events.HashID("idempotency-key", key))
	}
	if given != nil && *given != string(op) {
		return "", newProblem(http.StatusBadRequest, slugKeyDiffers, "Send one of Idempotency-Key and operation_id, or the same in both.")
	}
	return op, nil
}

// bodyOperation peeks at operation_id. A value that is no string is left to the
// intent door, which refuses it by name.
func bodyOperation(body []byte) (given *string, isObject bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return nil, false
	}
	raw, ok := fields["operation_id"]
	if !ok {
		return nil, true
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(bytes.TrimSpace(raw))
	}
	return &text, true
}

// parseKey reads an Idempotency-Key: a structured-field string, or the bare
// word that most clients send.
func parseKey(h string) (string, bool) {
	key := strings.TrimSpace(h)
	if strings.HasPrefix(key, `"`) {
		var ok bool
		if key, ok = unquote(key); !ok {
			return "", false
		}
	}
	if key == "" || len(key) > keyMaxBytes {
		return "", false
	}
	for i := range len(key) {
		if key[i] < 0x20 || key[i] > 0x7e {
			return "", false
		}
	}
	return key, true
}

// unquote reads a string of RFC 9651: quotes around, backslash before a quote or
// a backslash only.
func unquote(s string) (string, bool) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), i == len(s)-1
		case '\\':
			if i++; i == len(s) || (s[i] != '"' && s[i] != '\\') {
				return "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", false
}
