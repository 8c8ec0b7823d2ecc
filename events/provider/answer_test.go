package provider

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Without this classification an answer that proves nothing becomes a failure
// and a second, paid job.

func jsonAnswer(status int, body string) events.Response {
	return events.Response{Status: status, Header: map[string][]string{"content-type": {"application/json; charset=utf-8"}}, Body: []byte(body)}
}

// TestCreateStatuses walks every status there can be.
func TestCreateStatuses(t *testing.T) {
	t.Parallel()
	p, strict := described(t, "generic"), described(t, "searchable")
	for status := 100; status <= 999; status++ {
		for _, body := range []string{`{}`, `<html>`, ``} {
			kind, class := CreateAmbiguous, ClassUnexpected
			switch {
			case status/100 == 2:
				class = ClassUnparsable
			case status/100 == 3:
				class = ClassRedirect
			case slices.Contains([]int{400, 404, 405, 413, 415, 422}, status):
				kind, class = CreateRejected, ClassInvalidRequest
			case status == 401 || status == 403:
				kind, class = CreateNotSent, ClassCredentials
			case status == 409:
				class = ClassInProgress
			case status == 429:
				kind, class = CreateThrottled, ClassRateLimited
			case status == 408 || status == 425 || status >= 500:
				class = ClassServerError
			}
			a := p.ReadCreate(jsonAnswer(status, body), testNow)
			if a.Kind != kind || a.Class != class || a.Status != status || a.RemoteID != "" {
				t.Errorf("%d %s: want %s %s, got %+v", status, body, kind, class, a)
			}
			if status == 401 || status == 403 || status == 429 {
				kind = CreateAmbiguous // the description says that it proves nothing
			}
			if a := strict.ReadCreate(jsonAnswer(status, body), testNow); a.Kind != kind || a.Class != class {
				t.Errorf("strict %d %s: want %s %s, got %+v", status, body, kind, class, a)
			}
		}
	}
}

func TestCreateAnswers(t *testing.T) {
	t.Parallel()
	p := described(t, "generic")
	long := strings.Repeat("x", events.RemoteIDMaxBytes+1)
	cases := []struct {
		name  string
		r     events.Response
		kind  CreateKind
		class string
		id    string
	}{
		{"not sent", events.Response{Failure: events.CallNotSent}, CreateNotSent, ClassNotSent, ""},
		{"timeout", events.Response{Failure: events.CallTimeout}, CreateAmbiguous, "timeout", ""},
		{"broken", events.Response{Failure: events.CallBroken}, CreateAmbiguous, "connection_broken", ""},
		{"timeout after the status line", events.Response{Failure: events.CallTimeout, Status: 400}, CreateAmbiguous, "timeout", ""},
		{"truncated success", events.Response{Failure: events.CallTruncated, Status: 201, Body: []byte(`{"job_id":"j"}`)}, CreateAmbiguous, ClassUnparsable, ""},
		{"too large success", events.Response{Failure: events.CallTooLarge, Status: 201}, CreateAmbiguous, ClassUnparsable, ""},
		{"truncated refusal", events.Response{Failure: events.CallTruncated, Status: 422, Body: []byte(`{"err`)}, CreateRejected, ClassInvalidRequest, ""},
		{"failure of a later version", events.Response{Failure: "new", Status: 201, Body: []byte(`{"job_id":"j"}`)}, CreateAmbiguous, "new", ""},
		{"nothing at all", events.Response{}, CreateAmbiguous, ClassNoAnswer, ""},
		{"accepted", jsonAnswer(202, `{"job_id":"j1","state":"queued"}`), CreateAccepted, "", "j1"},
		{"no content type", events.Response{Status: 200, Body: []byte(`{"job_id":"j1"}`)}, CreateAccepted, "", "j1"},
		{"large number", jsonAnswer(200, `{"job_id":9007199254740993}`), CreateAccepted, "", "9007199254740993"},
		{"over 64 bits", jsonAnswer(200, `{"job_id":123456789012345678901234567890}`), CreateAccepted, "", "123456789012345678901234567890"},
		{"unsigned", jsonAnswer(200, `{"job_id":17454220438242315174}`), CreateAccepted, "", "17454220438242315174"},
		{"unknown state", jsonAnswer(200, `{"job_id":"j1","state":"hatching"}`), CreateAccepted, "", "j1"},
		{"state of another type", jsonAnswer(200, `{"job_id":"j1","state":{}}`), CreateAccepted, "", "j1"},
		{"HTML", events.Response{Status: 200, Header: map[string][]string{"Content-Type": {"text/html"}}, Body: []byte(`{"job_id":"j1"}`)}, CreateAmbiguous, ClassUnparsable, ""},
		{"bad content type", events.Response{Status: 200, Header: map[string][]string{"Content-Type": {"x;;"}}, Body: []byte(`{"job_id":"j1"}`)}, CreateAmbiguous, ClassUnparsable, ""},
		{"empty id", jsonAnswer(200, `{"job_id":""}`), CreateAmbiguous, ClassUnparsable, ""},
		{"null id", jsonAnswer(200, `{"job_id":null}`), CreateAmbiguous, ClassUnparsable, ""},
		{"id of another type", jsonAnswer(200, `{"job_id":["j"]}`), CreateAmbiguous, ClassUnparsable, ""},
		{"long id", jsonAnswer(200, `{"job_id":"`+long+`"}`), CreateAmbiguous, ClassUnparsable, ""},
		{"fraction id", jsonAnswer(200, `{"job_id":1.5}`), CreateAmbiguous, ClassUnparsable, ""},
		{"duplicate id", jsonAnswer(200, `{"job_id":"a","job_id":"b"}`), CreateAmbiguous, ClassUnparsable, ""},
		{"mismatch", jsonAnswer(422, `{"error":{"code":"idempotency_key_reused"}}`), CreateRejected, events.WhyTokenMismatch, ""},
		{"other 422", jsonAnswer(422, `{"error":{"code":"bad_input"}}`), CreateRejected, ClassInvalidRequest, ""},
		{"mismatch by another status", jsonAnswer(409, `{"error":{"code":"idempotency_key_reused"}}`), CreateAmbiguous, ClassInProgress, ""},
	}
	for _, c := range cases {
		a := p.ReadCreate(c.r, testNow)
		if a.Kind != c.kind || a.Class != c.class || a.RemoteID != c.id {
			t.Errorf("%s: want %s %q %q, got %+v", c.name, c.kind, c.class, c.id, a)
		}
		if a.Reading != nil && a.Reading.Authoritative {
			t.Errorf("%s: want no authoritative reading, got %+v", c.name, a.Reading)
		}
	}
	a := p.ReadCreate(jsonAnswer(400, `{"error":{"code":"bad","message":"`+strings.Repeat("é", 2000)+`"}}`), testNow)
	if a.Code != "bad" || len(a.Message) > messageMaxBytes || !strings.HasPrefix(a.Message, "éé") {
		t.Errorf("want the provider's words, bounded, got %q and %d bytes", a.Code, len(a.Message))
	}
}

// TestCreateFinal: only what the description calls final ends a job at once.
func TestCreateFinal(t *testing.T) {
	t.Parallel()
	p := described(t, "searchable")
	counts := `"counts":{"all":1,"good":1,"bad":0}`
	a := p.ReadCreate(jsonAnswer(200, `{"task":{"id":1,"state":"done",`+counts+`,"output":{"n":1.0}}}`), testNow)
	if a.Reading == nil || !a.Reading.Authoritative || a.Reading.State != events.RemoteSucceeded || a.Reading.Source != events.SourceCreate || string(a.Reading.Result.Inline) != `{"n":1.0}` {
		t.Errorf("want an authoritative success with its result, got %+v", a.Reading)
	}
	a = p.ReadCreate(jsonAnswer(200, `{"task":{"id":1,"state":"broken",`+counts+`}}`), testNow)
	if a.Reading == nil || a.Reading.Authoritative || a.Reading.State != events.RemoteFailed {
		t.Errorf("want a failure that is still to be read, got %+v", a.Reading)
	}
	a = p.ReadCreate(jsonAnswer(200, `{"task":{"id":1,"state":"done"}}`), testNow) // counts cannot be read
	if a.Kind != CreateAccepted || a.Reading == nil || a.Reading.Authoritative {
		t.Errorf("want an acceptance that is still to be read, got %+v", a)
	}
}

func TestReadStatus(t *testing.T) {
	t.Parallel()
	p := described(t, "generic")
	ref := events.RemoteRef{ID: "9007199254740993"}
	cases := []struct {
		name  string
		r     events.Response
		kind  StatusKind
		class string
	}{
		{"read", jsonAnswer(200, `{"job_id":9007199254740993,"state":"running"}`), StatusRead, ""},
		{"same id as text", jsonAnswer(200, `{"job_id":"9007199254740993","state":"running"}`), StatusRead, ""},
		{"neighbour", jsonAnswer(200, `{"job_id":9007199254740992,"state":"succeeded"}`), StatusDeferred, ClassWrongJob},
		{"no id", jsonAnswer(200, `{"state":"succeeded"}`), StatusDeferred, ClassUnreadable},
		{"unknown word", jsonAnswer(200, `{"job_id":9007199254740993,"state":"done"}`), StatusUnrecognised, ""},
		{"no state", jsonAnswer(200, `{"job_id":9007199254740993}`), StatusDeferred, ClassUnreadable},
		{"null state", jsonAnswer(200, `{"job_id":9007199254740993,"state":null}`), StatusUnrecognised, ""},
		{"odd extras", jsonAnswer(200, `{"job_id":9007199254740993,"state":"failed","seq":"x","finished_at":7e9,"error":[]}`), StatusRead, ""},
		{"HTML", jsonAnswer(200, `<html>`), StatusDeferred, ClassUnreadable},
		{"empty", jsonAnswer(204, ``), StatusDeferred, ClassUnreadable},
		{"gone", jsonAnswer(404, `<html>`), StatusGone, ""},
		{"gone for good", jsonAnswer(410, ``), StatusGone, ""},
		{"truncated 404", events.Response{Status: 404, Failure: events.CallTruncated}, StatusDeferred, "truncated"},
		{"timeout", events.Response{Failure: events.CallTimeout}, StatusDeferred, "timeout"},
		{"nothing", events.Response{}, StatusDeferred, ClassNoAnswer},
		{"limited", jsonAnswer(429, `{}`), StatusDeferred, ClassRateLimited},
		{"credentials", jsonAnswer(401, `{}`), StatusDeferred, ClassCredentials},
		{"server", jsonAnswer(503, `{}`), StatusDeferred, ClassServerError},
		{"redirect", jsonAnswer(302, `{}`), StatusDeferred, "status_3xx"},
		{"other", jsonAnswer(418, `{}`), StatusDeferred, "status_4xx"},
	}
	for _, c := range cases {
		a := p.ReadStatus(ref, c.r, testNow)
		if a.Kind != c.kind || a.Class != c.class {
			t.Errorf("%s: want %s %q, got %+v", c.name, c.kind, c.class, a)
		}
		if (a.Kind == StatusRead) != a.Reading.Authoritative {
			t.Errorf("%s: want authority exactly for a read, got %+v", c.name, a)
		}
	}
}

func TestReadLookup(t *testing.T) {
	t.Parallel()
	p := described(t, "searchable")
	cases := []struct {
		name, id, class string
		r               events.Response
		kind            LookupKind
	}{
		{"found", "7", "", jsonAnswer(200, `{"items":[{"reference":"tk","id":7,"state":"working"}]}`), LookupFound},
		{"same id twice", "7", "", jsonAnswer(200, `{"items":[{"reference":"tk","id":7,"state":"x"},{"reference":"tk","id":"7"}]}`), LookupFound},
		{"absent", "", "", jsonAnswer(200, `{"items":[],"complete":true}`), LookupAbsent},
		{"perhaps more pages", "", ClassUnreadable, jsonAnswer(200, `{"items":[],"complete":false}`), LookupFailed},
		{"others only", "", ClassUnreadable, jsonAnswer(200, `{"items":[{"reference":"other","id":1}],"complete":true}`), LookupFailed},
		{"two", "", ClassAmbiguousLookup, jsonAnswer(200, `{"items":[{"reference":"tk","id":1},{"reference":"tk","id":2}]}`), LookupFailed},
		{"object for an id", "", ClassUnreadable, jsonAnswer(200, `{"items":[{"reference":"tk","id":{"a":1}}]}`), LookupFailed},
		{"empty id", "", ClassUnreadable, jsonAnswer(200, `{"items":[{"reference":"tk","id":""}]}`), LookupFailed},
		{"no list", "", ClassUnreadable, jsonAnswer(200, `{}`), LookupFailed},
		{"HTML", "", ClassUnreadable, jsonAnswer(200, `<html>`), LookupFailed},
		{"404 is not absence", "", ClassUnreadable, jsonAnswer(404, `{"items":[],"complete":true}`), LookupFailed},
		{"absence told by a failing server", "", ClassServerError, jsonAnswer(500, `{"items":[],"complete":true}`), LookupFailed},
		{"limited", "", ClassRateLimited, jsonAnswer(429, `{}`), LookupFailed},
		{"credentials", "", ClassCredentials, jsonAnswer(403, `{"items":[],"complete":true}`), LookupFailed},
		{"timeout", "", "timeout", events.Response{Failure: events.CallTimeout}, LookupFailed},
		{"truncated", "", "truncated", events.Response{Status: 200, Failure: events.CallTruncated, Body: []byte(`{"items":[],"complete":true}`)}, LookupFailed},
	}
	for _, c := range cases {
		a := p.ReadLookup("op_1", "tk", c.r, testNow)
		if a.Kind != c.kind || a.Class != c.class || a.RemoteID != c.id {
			t.Errorf("%s: want %s %q %q, got %+v", c.name, c.kind, c.class, c.id, a)
		}
		if c.name == "found" && (a.Reading == nil || a.Reading.State != events.RemoteRunning || a.Reading.Authoritative || a.Reading.Source != events.SourceLookup) {
			t.Errorf("want the state of the match, not authoritative, got %+v", a.Reading)
		}
	}
	byID := parse(t, "byid.yaml", []byte(smallest+"base_url: https://x\nlookup: {path: '/jobs/${op}', found: '${[body.id]}', absent: '${status == 404}'}\n"))
	q := made(t, byID)
	if a := q.ReadLookup("op_1", "tk", jsonAnswer(404, `<html>`), testNow); a.Kind != LookupAbsent {
		t.Errorf("want absence by the description's own word, got %+v", a)
	}
	if a := q.ReadLookup("op_1", "tk", jsonAnswer(404, `{"id":"x"}`), testNow); a.Kind != LookupFailed || a.Class != ClassAmbiguousLookup {
		t.Errorf("want a match beside absence to prove nothing, got %+v", a)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	cases := map[string]time.Duration{
		"0": 0, "2": 2 * time.Second, "120.6": 120600 * time.Millisecond, "3600": time.Hour, "999999": time.Hour,
		"": 0, "-1": 0, "NaN": 0, "Inf": 0, "+Inf": 0, "1e9": 0, "0x10": 0, "1_0": 0, "soon": 0, "99999999999999999999": 0, " 5": 0,
		"Tue, 01 Dec 2026 12:00:30 GMT": 30 * time.Second, "Tue, 01 Dec 2026 11:00:00 GMT": 0, "Tue, 01 Dec 2099 11:00:00 GMT": time.Hour,
		"Tuesday, 01-Dec-26 12:01:00 GMT": time.Minute, "Tue Dec  1 12:00:05 2026": 5 * time.Second,
		"Tue, 01 Dec 2026 12:00:30 CET": 0, "Mon, 99 Dec 2026 12:00:30 GMT": 0,
	}
	for v, want := range cases {
		if got := retryAfter(events.Response{Header: map[string][]string{"retry-after": {v}}}, testNow); got != want {
			t.Errorf("Retry-After %q: want %s, got %s", v, want, got)
		}
	}
	h := map[string][]string{"Retry-After": {"9"}, "Retry-After-Ms": {"1500"}}
	if got := retryAfter(events.Response{Header: h}, testNow); got != 1500*time.Millisecond {
		t.Errorf("want the finer header to win, got %s", got)
	}
	h["Retry-After-Ms"] = []string{"x"}
	if got := retryAfter(events.Response{Header: h}, testNow); got != 9*time.Second {
		t.Errorf("want garbage to be ignored, got %s", got)
	}
	h["Retry-After"] = []string{"1", "2"}
	if got := retryAfter(events.Response{Header: h}, testNow); got != 0 {
		t.Errorf("want two values to say nothing, got %s", got)
	}
	a := described(t, "generic").ReadCreate(events.Response{Status: 429, Header: map[string][]string{"Retry-After": {"7"}}}, testNow)
	if a.Kind != CreateThrottled || a.RetryAfter != 7*time.Second {
		t.Errorf("want throttled for 7s, got %+v", a)
	}
}

// TestRunaway: an expression that would take hours is stopped by its cost and
// named.
func TestRunaway(t *testing.T) {
	t.Parallel()
	items := make([]int, 3000)
	body, err := json.Marshal(map[string]any{"id": "j", "state": "done", "l": items})
	if err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{
		`"${ body.l.exists(x, body.l.exists(y, x + y == 1)) ? 'a' : 'b' }"`,
		`"${ string(size(body.l.map(x, body.l.map(y, x + y)))) }"`,
		`"${ body.l.map(x, 'aaaaaaaaaaaaaaaa').join('b').matches('(a*)*c') ? 'a' : body.l.map(x, body.l.map(y, 'x').join()).join() }"`,
	} {
		d := parse(t, "runaway.yaml", []byte(strings.Replace(smallest, "${body.state}", src, 1)+"base_url: https://x\n"))
		a := made(t, d).ReadStatus(events.RemoteRef{ID: "j"}, jsonAnswer(200, string(body)), testNow)
		if a.Kind != StatusDeferred || !strings.HasPrefix(a.Detail, "status.state: ") || !strings.Contains(a.Detail, "limit exceeded") {
			t.Errorf("%s: want it stopped and named, got %+v", src, a)
		}
	}
}

// TestLargeResultIsPassedOn: limits on expressions are about what they compute,
// not about how much a provider has to say.
func TestLargeResultIsPassedOn(t *testing.T) {
	t.Parallel()
	items := make([]map[string]any, 5000)
	for i := range items {
		items[i] = map[string]any{"n": i, "text": "item"}
	}
	body, err := json.Marshal(map[string]any{"job_id": "j", "state": "succeeded", "result": items})
	if err != nil {
		t.Fatal(err)
	}
	a := described(t, "generic").ReadStatus(events.RemoteRef{ID: "j"}, jsonAnswer(200, string(body)), testNow)
	if a.Kind != StatusRead || a.Reading.Result == nil || a.Reading.Result.Size < 100_000 {
		t.Errorf("want the whole result, got %+v", a)
	}
}

func TestCreateInput(t *testing.T) {
	t.Parallel()
	cases := []struct{ provider, input, field string }{
		{"replicate-prediction", `{"input":{}}`, "input.version"},
		{"replicate-prediction", `{"version":"v"}`, "input.input"},
		{"replicate-prediction", `"text"`, "input"},
		{"replicate-prediction", `{"version":"v","input":{"a":1,"a":2}}`, "input.input.a"},
		{"replicate-prediction", `{`, "input"},
		{"replicate-prediction", ``, "input"},
		{"replicate-prediction", `{"version":"v","input":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "input.input.0.0"},
		{"searchable", `{}`, "input.kind"},
	}
	for _, c := range cases {
		_, err := described(t, c.provider).Create(CreateInput{Operation: "op_1", Token: "op_1", Input: json.RawMessage(c.input)})
		var fe *events.FieldError
		if !errors.As(err, &fe) || fe.Field != c.field && !strings.HasPrefix(fe.Field, c.field+".0") {
			t.Errorf("%s %.40s: want a field error for %s, got %v", c.provider, c.input, c.field, err)
		}
	}
}

// TestInjection: what a producer or a provider gives stays inside its place.
func TestInjection(t *testing.T) {
	t.Parallel()
	d := parse(t, "inject.yaml", []byte(strings.Replace(smallest, "  path: /jobs\n", "  path: /jobs/v${input.v}/x?q=${input.q}&fixed=1\n  headers: {x-tag: '${input.h}'}\n", 1)+"base_url: https://x/base\n"))
	p := made(t, d)
	create := func(v, q, h string) (events.Request, error) {
		input, err := json.Marshal(map[string]string{"v": v, "q": q, "h": h})
		if err != nil {
			t.Fatal(err)
		}
		return p.Create(CreateInput{Operation: "op_1", Input: input})
	}
	r, err := create("/../../etc?a#b", "1&admin=true#x +%", "plain")
	if want := "https://x/base/jobs/v%2F..%2F..%2Fetc%3Fa%23b/x?q=1%26admin%3Dtrue%23x+%2B%25&fixed=1"; err != nil || r.URL != want || r.Header["X-Tag"] != "plain" {
		t.Errorf("want %s, got %s %v, %v", want, r.URL, r.Header, err)
	}
	for _, h := range []string{"a\r\nX: y", "a\nb", "a\x00", "é", "a\x7f", "a\tb"} {
		if _, err := create("1", "2", h); err == nil {
			t.Errorf("header %q: want a refusal, got none", h)
		}
	}
	if _, err := create(strings.Repeat("a", urlMaxBytes), "", ""); err == nil {
		t.Error("want a long URL refused, got none")
	}
	for _, id := range []string{"", ".", ".."} {
		if r, err := p.Status(events.RemoteRef{ID: id}); err == nil {
			t.Errorf("id %q: want a refusal, got %s", id, r.URL)
		}
	}
}

// TestRequestSHA256 depends on what is asked and on nothing else.
func TestRequestSHA256(t *testing.T) {
	t.Parallel()
	r := events.Request{Method: "POST", URL: "u", Header: map[string]string{"A": "1", "B": "2"}, Body: []byte("x")}
	want := RequestSHA256(r)
	same := r
	same.SecretHeader, same.SecretValue, same.SendBy, same.Timeout, same.ResponseMaxBytes = "S", events.NewSecret("s"), testNow, 1, 1
	if RequestSHA256(same) != want {
		t.Error("want the same hash for another credential or budget, got another")
	}
	for i, other := range []events.Request{
		{Method: "PUT", URL: r.URL, Header: r.Header, Body: r.Body}, {Method: "POST", URL: "v", Header: r.Header, Body: r.Body},
		{Method: "POST", URL: "u", Header: map[string]string{"A": "1", "B": "3"}, Body: r.Body}, {Method: "POST", URL: "u", Header: r.Header, Body: []byte("y")},
		{Method: "POST", URL: "u", Header: map[string]string{"A": "1\nB"}, Body: r.Body},
	} {
		if RequestSHA256(other) == want {
			t.Errorf("%d: want another hash, got the same", i)
		}
	}
}

// TestDeterministic: maps are walked in any order, requests are not.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	p := described(t, "searchable")
	in := CreateInput{Operation: "op_1", Token: "op_1", Input: json.RawMessage(`{"kind":{"z":1,"a":[{"y":2,"b":3}]},"priority":1.50}`)}
	first, err := p.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if r, err := p.Create(in); err != nil || !reflect.DeepEqual(r, first) {
			t.Fatalf("want the same request, got %v, %v", r, err)
		}
	}
	if !strings.Contains(string(first.Body), `"priority":1.5`) {
		t.Errorf("want the priority, got %s", first.Body)
	}
	if s := fmt.Sprintf("%+v", described(t, "replicate-prediction").s); strings.Contains(s, "very-secret") {
		t.Errorf("want settings to print without secrets, got %s", s)
	}
}
