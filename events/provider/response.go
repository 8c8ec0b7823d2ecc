package provider

import (
	"math"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Bounds of what is kept of an answer, and of the pauses that it may ask for.
const (
	wordMaxBytes    = 128
	messageMaxBytes = 1024
	dedupMaxBytes   = 512
	retryAfterMax   = time.Hour
)

// varsOf gives an answer's variables, nil if the body is not JSON. The content
// type, where there is one, has to agree: gateways answer in HTML. Text is let
// through, because servers that name no type are often labelled so, and then has
// to be JSON all the same.
func varsOf(r events.Response) map[string]any {
	h := Header(r.Header)
	if ct, n := h.only("Content-Type"); n > 0 {
		media, _, err := mime.ParseMediaType(ct)
		if err != nil || (media != "application/json" && !strings.HasSuffix(media, "+json") && media != "text/plain") {
			return nil
		}
	}
	if r.Failure != "" {
		return nil
	}
	body, err := decodeJSON(r.Body)
	if err != nil {
		return nil
	}
	return map[string]any{"status": r.Status, "headers": h.flat(), "body": body}
}

// refusalVars gives a refusal's variables; a body that is not JSON is null, so
// that a condition on the status alone still holds.
func refusalVars(r events.Response) map[string]any {
	if vars := varsOf(r); vars != nil {
		return vars
	}
	return map[string]any{"status": r.Status, "headers": Header(r.Header).flat(), "body": nil}
}

// reading reads a job out of a body; nil with the word when its state is not in
// the map.
func (x *readers) reading(states map[string]events.RemoteState, vars map[string]any, source events.Source) (*events.Reading, string, error) {
	word, err := x.state.str(vars)
	if err != nil {
		return nil, "", err
	}
	state, known := states[word]
	if !known {
		return nil, cut(word, wordMaxBytes), nil
	}
	g := &events.Reading{State: state, Status: cut(word, wordMaxBytes), Source: source}
	if g.Detail, err = x.detail.str(vars); err != nil {
		return nil, "", err
	}
	if !slices.Contains([]string{events.DetailExpired, events.DetailPartial, events.DetailModerated}, g.Detail) {
		g.Detail = ""
	}
	attempt, err := x.attempt.integer(vars)
	if err != nil {
		return nil, "", err
	}
	g.Attempt = int(min(max(attempt, 0), math.MaxInt32))
	if seq, err := x.seq.integer(vars); err == nil && seq > 0 { // shown only: a reading without it is as good
		g.ProviderSeq = seq
	}
	if x.at != nil {
		if v, err := x.at.eval(vars); err == nil { // as above
			g.ProviderAt = instantOf(v)
		}
	}
	if g.Counts, err = x.counts(vars); err != nil {
		return nil, "", err
	}
	switch state {
	case events.RemoteSucceeded:
		g.Result, err = resultOf(x.result, vars)
	case events.RemoteFailed:
		if code, message := words(x.code, x.message, vars); code != "" || message != "" {
			g.Error = &events.RemoteError{Code: code, Message: message}
		}
	}
	return g, word, err
}

func (x *readers) counts(vars map[string]any) (*events.Counts, error) {
	if x.total == nil {
		return nil, nil
	}
	var c events.Counts
	var err error
	for _, n := range []struct {
		p   *program
		dst *int64
	}{{x.total, &c.Total}, {x.completed, &c.Completed}, {x.failed, &c.Failed}} {
		if *n.dst, err = n.p.integer(vars); err != nil {
			return nil, err
		}
	}
	return &c, nil
}

// words reads the provider's own account for people. What cannot be read is
// left out: the state says enough.
func words(code, message *program, vars map[string]any) (string, string) {
	c, _ := code.str(vars)    // as said above
	m, _ := message.str(vars) // as said above
	return cut(c, wordMaxBytes), cut(m, messageMaxBytes)
}

// resultOf takes the result out of a body as JSON, nil if there is none. It is
// not bounded here; the caller moves a large one to the object store.
func resultOf(p *program, vars map[string]any) (*events.Blob, error) {
	if p == nil {
		return nil, nil
	}
	v, err := p.json(vars)
	if err != nil || v == (absent{}) {
		return nil, err
	}
	data, err := encodeJSON(v)
	if err != nil {
		return nil, p.fail(err)
	}
	b, err := events.JSONBlob(data)
	if err != nil {
		return nil, p.fail(err)
	}
	return &b, nil
}

// plainNumber keeps out what ParseFloat also takes: Inf, NaN, hex, underscores.
var plainNumber = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)

// dates are the three forms of an HTTP date (RFC 9110 section 5.6.7), all in
// GMT and read as such.
var dates = []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", "Mon Jan _2 15:04:05 2006"}

// retryAfter reads how long the provider asks to wait: milliseconds in their own
// header, seconds (whole or not), or a date. Nonsense is ignored, the rest is
// bounded.
func retryAfter(r events.Response, now time.Time) time.Duration {
	h := Header(r.Header)
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if v, _ := h.only(name); plainNumber.MatchString(v) {
			return seconds(v, 1000)
		}
	}
	v, _ := h.only("Retry-After")
	if plainNumber.MatchString(v) {
		return seconds(v, 1)
	}
	for _, layout := range dates {
		if t, err := time.Parse(layout, v); err == nil {
			return min(max(t.Sub(now), 0), retryAfterMax)
		}
	}
	return 0
}

func seconds(v string, unit float64) time.Duration {
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return 0 // cannot happen: the pattern is a number
	}
	return time.Duration(min(n/unit, retryAfterMax.Seconds()) * float64(time.Second))
}

// cut bounds a text from elsewhere and keeps it valid UTF-8.
func cut(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
