package provider

import (
	"time"

	"github.com/pawl-dev/pawl/events"
)

// CreateKind says what the answer to a create proves.
type CreateKind string

// Kinds of create answers.
const (
	CreateAccepted  CreateKind = "accepted"  // a job exists, RemoteID names it
	CreateRejected  CreateKind = "rejected"  // refused; this attempt made no job
	CreateAmbiguous CreateKind = "ambiguous" // nothing is proven
	CreateNotSent   CreateKind = "not_sent"  // nothing left, or it was refused before it could act
	CreateThrottled CreateKind = "throttled" // refused unprocessed, for now
)

// Classes of create answers. A rejection whose token is known with another
// request has events.WhyTokenMismatch.
const (
	ClassNotSent         = "not_sent"
	ClassCredentials     = "credentials"
	ClassInvalidRequest  = "invalid_request"
	ClassRateLimited     = "rate_limited"
	ClassInProgress      = "in_progress"
	ClassRedirect        = "redirect"
	ClassServerError     = "server_error"
	ClassUnparsable      = "unparsable_success"
	ClassUnexpected      = "unexpected_status"
	ClassNoAnswer        = "no_answer"
	ClassWrongJob        = "wrong_job"
	ClassUnreadable      = "unparsable"
	ClassAmbiguousLookup = "ambiguous_lookup"
)

// CreateAnswer is a create answer in our words.
type CreateAnswer struct {
	Kind       CreateKind
	Class      string // closed set per Kind; "" for an acceptance
	Status     int
	Code       string // the provider's own, of a refusal
	Message    string // as above; or which expression failed
	RemoteID   string // of an acceptance
	Reading    *events.Reading
	RetryAfter time.Duration // 0: not said
}

// ReadCreate classifies the answer to a create. Only a complete answer that says
// so proves anything. Reading is set for an acceptance that says a known state;
// it is authoritative when the description calls the answer final.
func (p *Provider) ReadCreate(r events.Response, now time.Time) CreateAnswer {
	a := CreateAnswer{Status: r.Status, RetryAfter: retryAfter(r, now), Message: cut(r.Detail, messageMaxBytes)}
	complete := r.Failure == "" || r.Failure == events.CallTruncated || r.Failure == events.CallTooLarge
	switch {
	case r.Failure == events.CallNotSent:
		a.Kind, a.Class = CreateNotSent, ClassNotSent
	case r.Failure != "" && (!complete || r.Status == 0):
		a.Kind, a.Class = CreateAmbiguous, string(r.Failure)
	case r.Status == 0:
		a.Kind, a.Class = CreateAmbiguous, ClassNoAnswer
	case r.Status >= 200 && r.Status <= 299:
		p.readAccepted(&a, r)
	case r.Status >= 300 && r.Status <= 399:
		a.Kind, a.Class = CreateAmbiguous, ClassRedirect
	default:
		p.readRefused(&a, r)
	}
	return a
}

// readRefused classifies by status; what a status proves is the description's
// to say where providers differ.
func (p *Provider) readRefused(a *CreateAnswer, r events.Response) {
	vars := refusalVars(r)
	if code, message := words(p.d.x.code, p.d.x.message, vars); code != "" || message != "" {
		a.Code, a.Message = code, message
	}
	mismatch, err := p.d.x.mismatch.boolean(vars)
	if err != nil {
		mismatch = false // a body of another shape does not say that the token is known
	}
	e := &p.d.f.Errors
	switch r.Status {
	case 400, 404, 405, 413, 415, 422:
		a.Kind, a.Class = CreateRejected, ClassInvalidRequest
	case 401, 403:
		a.Kind, a.Class = CreateAmbiguous, ClassCredentials
		if e.AuthPrecedesExecution == nil || *e.AuthPrecedesExecution {
			a.Kind = CreateNotSent
		}
		return
	case 409:
		a.Kind, a.Class = CreateAmbiguous, ClassInProgress
	case 429:
		a.Kind, a.Class = CreateAmbiguous, ClassRateLimited
		if e.ThrottleUnprocessed == nil || *e.ThrottleUnprocessed {
			a.Kind = CreateThrottled
		}
		return
	default:
		a.Kind, a.Class = CreateAmbiguous, ClassUnexpected
		if r.Status >= 500 || r.Status == 408 || r.Status == 425 {
			a.Class = ClassServerError
		}
		return
	}
	if mismatch {
		a.Kind, a.Class = CreateRejected, events.WhyTokenMismatch
	}
}

// readAccepted binds the job that a 2xx names. One that names none is ambiguous:
// the provider did something.
func (p *Provider) readAccepted(a *CreateAnswer, r events.Response) {
	a.Kind, a.Class = CreateAmbiguous, ClassUnparsable
	vars := varsOf(r)
	if vars == nil {
		return
	}
	x := &p.d.x
	id, err := x.id.str(vars)
	if err != nil {
		a.Message = cut(err.Error(), messageMaxBytes)
		return
	}
	if !validID(id) {
		return
	}
	a.Kind, a.Class, a.RemoteID = CreateAccepted, "", id
	word, err := x.state.str(vars)
	if err != nil {
		return // the id is what counts; the state is read later
	}
	state, known := p.d.states[word]
	if !known {
		return
	}
	a.Reading = &events.Reading{State: state, Status: cut(word, wordMaxBytes), Source: events.SourceCreate}
	if final, err := x.final.boolean(vars); err != nil || !final || !state.Terminal() {
		return // not final, or not readable as such: it is read again later
	}
	final := x.status
	final.state = x.state
	if g, _, err := final.reading(p.d.states, vars, events.SourceCreate); err == nil && g != nil {
		g.Authoritative = true
		a.Reading = g
	}
}

// validID reports whether a provider's id can name a job here: "." and ".."
// would name another path when the job is asked for.
func validID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= events.RemoteIDMaxBytes
}
