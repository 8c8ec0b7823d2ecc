package provider

import (
	"fmt"
	"strconv"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/traits"

	"github.com/pawl-dev/pawl/events"
)

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
	Reading    events.Reading // of a read; authoritative
	Word       string         // of an unrecognised state
	Status     int
	Class      string // why nothing was learned
	Detail     string // for people: which expression failed, or what the caller said
	RetryAfter time.Duration
}

// ReadStatus reads the answer to a status request about ref. An answer about
// another job teaches nothing.
func (p *Provider) ReadStatus(ref events.RemoteRef, r events.Response, now time.Time) StatusAnswer {
	a := StatusAnswer{Kind: StatusDeferred, Status: r.Status, RetryAfter: retryAfter(r, now), Detail: cut(r.Detail, messageMaxBytes)}
	if a.Class = failed(r); a.Class != "" {
		if r.Failure == "" && (r.Status == 404 || r.Status == 410) {
			a.Kind, a.Class = StatusGone, ""
		}
		return a
	}
	a.Class = ClassUnreadable
	vars := varsOf(r)
	if vars == nil || p.d.f.Status == nil {
		return a
	}
	x := &p.d.x.status
	if x.id != nil {
		id, err := x.id.str(vars)
		if err != nil {
			a.Detail = cut(err.Error(), messageMaxBytes)
			return a
		}
		if id != ref.ID {
			a.Class = ClassWrongJob
			return a
		}
	}
	g, word, err := x.reading(p.d.states, vars, events.SourcePoll)
	switch {
	case err != nil:
		a.Detail = cut(err.Error(), messageMaxBytes)
	case g == nil:
		a.Kind, a.Class, a.Word = StatusUnrecognised, "", word
	default:
		a.Kind, a.Class, a.Reading = StatusRead, "", *g
		a.Reading.Authoritative = true
	}
	return a
}

// failed classifies an answer to a read that is no 2xx; "" for one that is.
func failed(r events.Response) string {
	switch {
	case r.Failure != "":
		return string(r.Failure)
	case r.Status == 0:
		return ClassNoAnswer
	case r.Status == 429:
		return ClassRateLimited
	case r.Status == 401 || r.Status == 403:
		return ClassCredentials
	case r.Status >= 500:
		return ClassServerError
	case r.Status < 200 || r.Status > 299:
		return "status_" + strconv.Itoa(r.Status/100) + "xx"
	}
	return ""
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
	RemoteID   string          // of a find
	Reading    *events.Reading // of a find that says a known state; not authoritative
	Class      string          // of a failure
	Detail     string          // for people
	RetryAfter time.Duration
}

// ReadLookup reads the answer to a look-up. Only the description's own condition
// proves absence, and only on a 2xx, 404 or 410; more than one match, or a match
// beside a proof of absence, proves nothing.
func (p *Provider) ReadLookup(op events.OperationID, token string, r events.Response, now time.Time) LookupAnswer {
	a := LookupAnswer{Kind: LookupFailed, RetryAfter: retryAfter(r, now), Detail: cut(r.Detail, messageMaxBytes)}
	missing := r.Failure == "" && (r.Status == 404 || r.Status == 410)
	if a.Class = failed(r); a.Class != "" && !missing {
		return a
	}
	vars := varsOf(r)
	if missing {
		vars = refusalVars(r)
	}
	a.Class = ClassUnreadable
	if vars == nil || p.d.f.Lookup == nil {
		return a
	}
	vars["op"], vars["token"] = string(op), token
	absent, err := p.d.x.absent.boolean(vars)
	if err != nil {
		a.Detail = cut(err.Error(), messageMaxBytes)
		return a
	}
	ids, err := p.d.x.found.ids(vars)
	switch {
	case absent && len(ids) == 0: // found may fail on the shape of an answer that has nothing
		a.Kind, a.Class = LookupAbsent, ""
		return a
	case err != nil:
		a.Detail = cut(err.Error(), messageMaxBytes)
		return a
	case absent || len(ids) > 1:
		a.Class = ClassAmbiguousLookup
		return a
	case len(ids) == 0 || !validID(ids[0]):
		return a
	}
	a.Kind, a.Class, a.RemoteID = LookupFound, "", ids[0]
	if word, err := p.d.x.match.str(vars); err == nil { // without a state it is bound all the same
		if state, known := p.d.states[word]; known {
			a.Reading = &events.Reading{State: state, Status: cut(word, wordMaxBytes), Source: events.SourceLookup}
		}
	}
	return a
}

// ids runs a program for a list of ids, without repeats.
func (p *program) ids(vars map[string]any) ([]string, error) {
	v, err := p.eval(vars)
	if err != nil {
		return nil, err
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return nil, nil
		}
		v = o.GetValue()
	}
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, p.fail(fmt.Errorf("gives %s, want %s", v.Type().TypeName(), listValue))
	}
	var ids []string
	seen := map[string]bool{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		id, err := textOf(it.Next())
		if err != nil {
			return nil, p.fail(err)
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}
