package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pawl-dev/pawl/events"
)

const (
	problemMedia = "application/problem+json"
	// problemBase begins every problem type. The types are identifiers; clients
	// compare them and need not fetch them.
	problemBase = "https://pawl.dev/problems/"
	retryAfter  = "5" // seconds, for whatever is unavailable
)

// The problems. Each is a stable name: a new situation gets a new one.
const (
	slugMalformed   = "malformed"              // the body is not one JSON value
	slugMissingKey  = "missing-key"            // neither Idempotency-Key nor operation_id
	slugBadKey      = "invalid-key"            // Idempotency-Key cannot be read
	slugKeyDiffers  = "key-differs"            // Idempotency-Key and operation_id name two operations
	slugInvalid     = "invalid-intent"         // a field of the intent is wrong
	slugMismatch    = "mismatch"               // the operation exists with another request
	slugTooLarge    = "too-large"              // the body is over the limit
	slugMediaType   = "unsupported-media-type" // not JSON, or compressed
	slugParameter   = "invalid-parameter"      // a path, query or header parameter is wrong
	slugNotFound    = "not-found"              // no such operation or path
	slugMethod      = "method-not-allowed"     // no such method at this path
	slugCrossOrigin = "cross-origin"           // a browser sent it for a foreign page
	slugMisdirected = "misdirected"            // the Host is not ours
	slugIncomplete  = "incomplete-body"        // the body did not arrive whole, or in time
	slugUnavailable = "unavailable"            // the ledger cannot store or read now
	slugInternal    = "internal"               // a fault of ours
)

// problemTitles says what each problem is; the text never varies.
var problemTitles = map[string]string{
	slugMalformed:   "The body is not readable as JSON",
	slugMissingKey:  "The request does not say which operation it is",
	slugBadKey:      "The idempotency key is not readable",
	slugKeyDiffers:  "Two different operations are named",
	slugInvalid:     "The intent is refused",
	slugMismatch:    "The operation exists with another request",
	slugTooLarge:    "The body is too large",
	slugMediaType:   "The body must be plain JSON",
	slugParameter:   "A parameter is wrong",
	slugNotFound:    "Not found",
	slugMethod:      "Method not allowed",
	slugCrossOrigin: "Cross-origin request refused",
	slugMisdirected: "Unknown host",
	slugIncomplete:  "The body did not arrive whole",
	slugUnavailable: "Unavailable for now",
	slugInternal:    "Internal fault",
}

// Problem is an RFC 9457 problem. It says where something is wrong and why; the
// offending value itself is not repeated.
type Problem struct {
	Type   string         `json:"type" format:"uri" doc:"Identifies the problem. Stable; compare it." example:"https://pawl.dev/problems/mismatch"`
	Title  string         `json:"title" doc:"What the type means. Does not vary."`
	Status int            `json:"status" doc:"The HTTP status."`
	Detail string         `json:"detail,omitempty" doc:"What happened this time, for people."`
	Errors []ProblemField `json:"errors,omitempty" doc:"The fields that are wrong."`

	header http.Header
}

// ProblemField is one wrong field.
type ProblemField struct {
	Location string `json:"location" doc:"Dotted path of the field, or path, query or header and the parameter's name. Empty: the whole document."`
	Message  string `json:"message" doc:"What is wrong and what to do."`
}

var problemType = reflect.TypeFor[Problem]()

func newProblem(status int, slug, detail string) *Problem {
	return &Problem{Type: problemBase + slug, Title: problemTitles[slug], Status: status, Detail: detail}
}

func (p *Problem) with(header, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(header, value)
	return p
}

func (p *Problem) field(location, message string) *Problem {
	p.Errors = append(p.Errors, ProblemField{Location: location, Message: message})
	return p
}

// Error implements error.
func (p *Problem) Error() string { return p.Title }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemMedia }

func writeProblem(w http.ResponseWriter, p *Problem) {
	for k, v := range p.header {
		w.Header()[k] = v
	}
	w.Header().Set("Content-Type", problemMedia)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that is gone needs no answer
}

// asProblem turns the framework's own errors, which repeat the value that they
// refuse, into problems, which do not. It is a transformer of this API and not
// a replacement of a package variable, so that nothing outside it changes.
func asProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	slug := slugParameter
	switch {
	case m.Status >= http.StatusInternalServerError:
		return newProblem(m.Status, slugInternal, ""), nil // its detail is ours alone
	case m.Status == http.StatusRequestEntityTooLarge:
		slug = slugTooLarge
	case m.Status == http.StatusNotAcceptable, m.Status == http.StatusUnsupportedMediaType:
		slug = slugMediaType
	}
	p := newProblem(m.Status, slug, "")
	for _, e := range m.Errors {
		if e != nil {
			p.field(cut(e.Location, 80), cut(e.Message, 200))
		}
	}
	return p, nil
}

func cut(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

func notFound() *Problem {
	return newProblem(http.StatusNotFound, slugNotFound, "There is no such operation.")
}

func unavailable(detail string) *Problem {
	return newProblem(http.StatusServiceUnavailable, slugUnavailable, detail).with("Retry-After", retryAfter)
}

// readProblem is the answer to an error of a read.
func (s *server) readProblem(err error, op events.OperationID) *Problem {
	switch {
	case errors.Is(err, events.ErrNotFound):
		return notFound()
	case errors.Is(err, events.ErrUnavailable), isContext(err):
		return unavailable("The ledger cannot be read now.")
	default:
		s.Logger.Error("read operation", "operation", op, "err", err)
		return newProblem(http.StatusInternalServerError, slugInternal, "")
	}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
