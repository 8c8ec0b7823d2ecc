package provider

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Bounds of what is kept of an answer, and of the pauses that it may ask for.
const (
	wordMaxBytes    = 128
	messageMaxBytes = 1024
	retryAfterMax   = time.Hour
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

// CreateAnswer is a create answer in our words.
type CreateAnswer struct {
	Kind       CreateKind
	Class      string // closed set per Kind
	Status     int
	Code       string // the provider's own, of a rejection
	Message    string
	RemoteID   string          // of an acceptance
	Reading    *events.Reading // of an acceptance that says a state
	RetryAfter time.Duration   // 0: not said
}

// ReadCreate classifies the answer to a create. Only a complete answer that says
// so proves anything.
func (p *Provider) ReadCreate(r events.Response, now time.Time) CreateAnswer {
	a := CreateAnswer{Status: r.Status, RetryAfter: retryAfter(r, now)}
	switch {
	case r.Failure == events.CallNotSent:
		a.Kind, a.Class, a.Message = CreateNotSent, "not_sent", cut(r.Detail, messageMaxBytes)
		return a
	case r.Status == 0:
		a.Kind, a.Class, a.Message = CreateAmbiguous, string(r.Failure), cut(r.Detail, messageMaxBytes)
		return a
	case r.Status >= 200 && r.Status <= 299:
		return p.readAccepted(a, r)
	case r.Status >= 300 && r.Status <= 399:
		a.Kind, a.Class = CreateAmbiguous, "redirect"
		return a
	}
	vars := answerVarsOf(r)
	mismatch := vars != nil && p.isMismatch(vars)
	a.Code, a.Message = p.errorOf(vars)
	switch r.Status {
	case 400, 404, 405, 413, 415, 422:
		a.Kind, a.Class = CreateRejected, "invalid_request"
		if mismatch {
			a.Class = events.WhyTokenMismatch
		}
	case 401, 403:
		a.Kind, a.Class = CreateNotSent, "credentials"
		if p.d.f.Auth.AfterExecution {
			a.Kind = CreateAmbiguous
		}
	case 409:
		a.Kind, a.Class = CreateAmbiguous, "in_progress"
		if mismatch {
			a.Kind, a.Class = CreateRejected, events.WhyTokenMismatch
		}
	case 429:
		a.Kind, a.Class = CreateThrottled, "rate_limited"
		if p.d.f.Create.ThrottleProcesses {
			a.Kind = CreateAmbiguous
		}
	default:
		a.Kind, a.Class = CreateAmbiguous, "server_error"
		if r.Status < 500 && r.Status != 408 && r.Status != 425 {
			a.Class = "unexpected_status"
		}
	}
	return a
}

func (p *Provider) readAccepted(a CreateAnswer, r events.Response) CreateAnswer {
	a.Kind, a.Class = CreateAmbiguous, "unparsable_success"
	vars := answerVarsOf(r)
	if r.Failure != "" || vars == nil {
		return a
	}
	id, err := p.d.x.create.id.str(vars)
	if err != nil || id == "" || len(id) > events.RemoteIDMaxBytes {
		return a
	}
	a.Kind, a.Class, a.RemoteID = CreateAccepted, "", id
	word, err := p.d.x.create.state.str(vars)
	if err != nil {
		return a
	}
	state, known := p.d.states[word]
	if !known {
		return a
	}
	g := &events.Reading{State: state, Status: cut(word, wordMaxBytes), Source: events.SourceCreate}
	if final, err := p.d.x.create.final.boolean(vars); err == nil && final && state.Terminal() {
		g.Authoritative = true
		g.Result = resultOf(p.d.x.create.result, vars)
	}
	a.Reading = g
	return a
}

func (p *Provider) isMismatch(vars map[string]any) bool {
	yes, err := p.d.x.create.mismatch.boolean(vars)
	return err == nil && yes
}

func (p *Provider) errorOf(vars map[string]any) (code, message string) {
	if vars == nil {
		return "", ""
	}
	code, _ = p.d.x.create.code.str(vars)       // words for people; without them the class says enough
	message, _ = p.d.x.create.message.str(vars) // as above
	return cut(code, wordMaxBytes), cut(message, messageMaxBytes)
}

// StatusKind says what a status read gave.
type StatusKind string

// Kinds of status answers.
const (
	StatusRead         StatusKind = "read"
	StatusUnrecognised StatusKind = "unrecognised" // a word that is not in the map
	StatusGone         StatusKind = "gone"         // the provider does not know the job
	StatusDeferred     StatusKind = "deferred"     // nothing learned; read later
)

// StatusAnswer is a status read in our words.
type StatusAnswer struct {
	Kind       StatusKind
	Reading    events.Reading // of a read
	Word       string         // of an unrecognised state
	Status     int
	Class      string // why nothing was learned
	RetryAfter time.Duration
}

// ReadStatus reads the answer to a status request about ref.
func (p *Provider) ReadStatus(ref events.RemoteRef, r events.Response, now time.Time) StatusAnswer {
	a := StatusAnswer{Kind: StatusDeferred, Status: r.Status, RetryAfter: retryAfter(r, now)}
	switch {
	case r.Failure != "":
		a.Class = string(r.Failure)
		return a
	case r.Status == 404 || r.Status == 410:
		a.Kind = StatusGone
		return a
	case r.Status == 429:
		a.Class = "rate_limited"
		return a
	case r.Status >= 500:
		a.Class = "server_error"
		return a
	case r.Status < 200 || r.Status > 299:
		a.Class = "status_" + strconv.Itoa(r.Status/100) + "xx"
		return a
	}
	vars := answerVarsOf(r)
	if vars == nil {
		a.Class = "unparsable"
		return a
	}
	x := &p.d.x.status
	if x.id != nil {
		if id, err := x.id.str(vars); err != nil || id != ref.ID {
			a.Class = "wrong_job"
			return a
		}
	}
	g, word, err := p.reading(x, vars, events.SourcePoll)
	switch {
	case err != nil:
		a.Class = "unparsable"
	case g == nil:
		a.Kind, a.Word = StatusUnrecognised, word
	default:
		a.Kind, a.Reading = StatusRead, *g
		a.Reading.Authoritative = true
	}
	return a
}

// reading reads a job out of a body; nil with the word when its state is not in
// the map.
func (p *Provider) reading(x *readers, vars map[string]any, source events.Source) (*events.Reading, string, error) {
	word, err := x.state.str(vars)
	if err != nil {
		return nil, "", err
	}
	state, known := p.d.states[word]
	if !known {
		return nil, cut(word, wordMaxBytes), nil
	}
	g := &events.Reading{State: state, Status: cut(word, wordMaxBytes), Source: source}
	if g.Detail, err = x.detail.str(vars); err != nil {
		return nil, "", err
	}
	attempt, err := x.attempt.integer(vars)
	if err != nil || attempt < 0 || attempt > 1_000_000 {
		return nil, "", fmt.Errorf("attempt: %w", err)
	}
	g.Attempt = int(attempt)
	if g.ProviderSeq, err = x.seq.integer(vars); err != nil {
		return nil, "", err
	}
	if x.total != nil {
		c := &events.Counts{}
		for _, n := range []struct {
			p   *program
			dst *int64
		}{{x.total, &c.Total}, {x.completed, &c.Completed}, {x.failed, &c.Failed}} {
			if *n.dst, err = n.p.integer(vars); err != nil {
				return nil, "", err
			}
		}
		g.Counts = c
	}
	switch state {
	case events.RemoteSucceeded:
		g.Result = resultOf(x.result, vars)
	case events.RemoteFailed:
		code, _ := x.code.str(vars)       // words for people
		message, _ := x.message.str(vars) // as above
		if code != "" || message != "" {
			g.Error = &events.RemoteError{Code: cut(code, wordMaxBytes), Message: cut(message, messageMaxBytes)}
		}
	}
	return g, word, nil
}

// resultOf takes the result out of a body as JSON, nil if there is none.
func resultOf(p *program, vars map[string]any) *events.Blob {
	if p == nil {
		return nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return nil
	}
	data, err := encodeJSON(native(v))
	if err != nil {
		return nil
	}
	b, err := events.JSONBlob(data)
	if err != nil {
		return nil
	}
	return &b
}

// LookupKind says what a look-up proved.
type LookupKind string

// Kinds of look-up answers.
const (
	LookupFound  LookupKind = "found"
	LookupAbsent LookupKind = "absent"
	LookupFailed LookupKind = "failed"
)

// LookupAnswer is a look-up in our words.
type LookupAnswer struct {
	Kind       LookupKind
	RemoteID   string
	Class      string // of a failure
	RetryAfter time.Duration
}

// ReadLookup reads the answer to a look-up. Only the description's own condition
// proves absence; more than one match proves nothing.
func (p *Provider) ReadLookup(op events.OperationID, token string, r events.Response, now time.Time) LookupAnswer {
	a := LookupAnswer{Kind: LookupFailed, RetryAfter: retryAfter(r, now), Class: "unparsable"}
	if r.Failure != "" {
		a.Class = string(r.Failure)
		return a
	}
	vars := answerVarsOf(r)
	if vars == nil {
		if r.Status >= 300 {
			a.Class = "status_" + strconv.Itoa(r.Status/100) + "xx"
		}
		return a
	}
	vars["op"], vars["token"] = string(op), token
	if absent, err := p.d.x.absent.boolean(vars); err == nil && absent {
		a.Kind, a.Class = LookupAbsent, ""
		return a
	}
	v, err := p.d.x.found.eval(vars)
	if err != nil {
		return a
	}
	data, err := encodeJSON(native(v))
	var ids []json.RawMessage
	if err != nil || json.Unmarshal(data, &ids) != nil || len(ids) == 0 {
		return a
	}
	if len(ids) > 1 {
		a.Class = "ambiguous_lookup"
		return a
	}
	id := strings.Trim(string(ids[0]), `"`)
	if id == "" || id == "null" || len(id) > events.RemoteIDMaxBytes {
		return a
	}
	a.Kind, a.Class, a.RemoteID = LookupFound, "", id
	return a
}

// answerVarsOf gives an answer's variables, nil if the body is not JSON. The
// content type, where there is one, has to agree: gateways answer in HTML.
func answerVarsOf(r events.Response) map[string]any {
	if ct := Header(r.Header).get("Content-Type"); ct != "" {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || (media != "application/json" && !strings.HasSuffix(media, "+json") && media != "text/plain") {
			return nil
		}
	}
	body, err := decodeJSON(r.Body)
	if err != nil {
		return nil
	}
	return map[string]any{"status": r.Status, "headers": Header(r.Header).flat(), "body": body}
}

// retryAfter reads how long the provider asks to wait: retry-after-ms, seconds
// (whole or not), or a date. Nonsense is ignored, the rest is bounded.
func retryAfter(r events.Response, now time.Time) time.Duration {
	h := Header(r.Header)
	if ms, err := strconv.ParseFloat(h.get("Retry-After-Ms"), 64); err == nil {
		return clamp(ms / 1000)
	}
	v := h.get("Retry-After")
	if v == "" {
		return 0
	}
	if secs, err := strconv.ParseFloat(v, 64); err == nil {
		return clamp(secs)
	}
	for _, layout := range []string{time.RFC1123, "Monday, 02-Jan-06 15:04:05 MST", time.ANSIC} {
		if t, err := time.Parse(layout, v); err == nil {
			return clamp(t.Sub(now).Seconds())
		}
	}
	return 0
}

func clamp(secs float64) time.Duration {
	if math.IsNaN(secs) || secs <= 0 {
		return 0
	}
	return time.Duration(min(secs, retryAfterMax.Seconds()) * float64(time.Second))
}

// cut bounds a text from elsewhere and keeps it valid UTF-8.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
