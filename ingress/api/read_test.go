package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/ingress/api"
)

var t0 = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

func mark(seq uint64) events.Mark {
	return events.Mark{Seq: seq, At: t0.Add(time.Duration(seq) * time.Minute)}
}

// job makes a folded job with its op.prepared at seq.
func job(op string, p events.Provider, seq uint64, s events.State) *events.Job {
	return &events.Job{
		Operation: events.OperationID(op), Provider: p, OpSeq: seq, AppliedSeq: seq, State: s, Outcome: events.OutcomeOf(s), UpdatedAt: mark(seq).At,
		Prepared: events.Preparation{
			Mark: mark(seq), Actor: "anna", Account: "default", Deadlines: events.DefaultDeadlines(events.Contract{}),
			Labels: map[string]string{"team": string(p)},
		},
	}
}

// settled makes a job whose outcome is announced.
func settled(op string, seq uint64, s events.State) *events.Job {
	j := job(op, "acme", seq, s)
	result := events.Blob{Inline: json.RawMessage(`{"ok":true}`), SHA256: "ab", Size: 11, ContentType: "application/json"}
	j.Settlements = []events.Settlement{{Mark: mark(seq + 5), G: 1, State: s, Settled: &events.Settled{
		G: 1, State: s, Outcome: events.OutcomeOf(s), Reason: "confirmed", Assurance: events.AssuranceRead,
		Evidence: []uint64{seq + 1, seq + 3}, Result: &result, Counts: &events.Counts{Total: 2, Completed: 2},
	}}}
	j.AppliedSeq, j.UpdatedAt = seq+5, mark(seq+5).At
	return j
}

func TestListPages(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var want []string
	for i := range 120 {
		op := fmt.Sprintf("list-%03d", i)
		f.index.Observe(job(op, "acme", uint64(i+1), events.StateObserving))
		want = append(want, op)
	}
	slices.Reverse(want)
	var got []string
	for cursor, pages := "", 0; ; pages++ {
		r := f.do("GET", "/v1/operations?limit=50&cursor="+cursor, "")
		f.want(r, 200, "")
		for _, o := range r.body["operations"].([]any) {
			got = append(got, o.(map[string]any)["operation_id"].(string))
		}
		if pages == 0 { // what comes meanwhile is newer, and moves no page
			f.index.Observe(job("list-late", "acme", 1000, events.StateObserving))
		}
		next, _ := r.body["next_cursor"].(string)
		if next == "" {
			break
		}
		cursor = next
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages gave %d operations %v, want %d in order", len(got), got[:min(3, len(got))], len(want))
	}
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	f := setUp(t, func(c *api.Config) { c.Now = func() time.Time { return t0.Add(10 * time.Hour) } })
	f.index.Observe(job("f-observing", "acme", 10, events.StateObserving))
	f.index.Observe(job("f-review", "acme", 20, events.StateNeedsReview))
	f.index.Observe(job("f-other", "zeta", 30, events.StateObserving))
	f.index.Observe(settled("f-done", 40, events.StateSucceeded))
	f.index.Observe(job("f-unannounced", "acme", 50, events.StateSucceeded))
	unprepared := job("f-never", "acme", 0, events.StatePrepared)
	unprepared.AppliedSeq = 60 // a webhook named an operation that does not exist
	f.index.Observe(unprepared)
	at := func(seq uint64) string { return mark(seq).At.Format(time.RFC3339) }
	for query, want := range map[string][]string{
		"":                                {"f-unannounced", "f-done", "f-other", "f-review", "f-observing"},
		"state=observing":                 {"f-other", "f-observing"},
		"state=observing&state=succeeded": {"f-unannounced", "f-done", "f-other", "f-observing"},
		"outcome=confirmed":               {"f-done"},
		"outcome=pending&state=succeeded": {"f-unannounced"},
		"provider=zeta":                   {"f-other"},
		"review=true":                     {"f-review"},
		"label=team:zeta":                 {"f-other"},
		"label=team:zeta&provider=acme":   {},
		"updated_after=" + at(20):         {"f-unannounced", "f-done", "f-other"},
		"updated_before=" + at(20):        {"f-observing"},
		"age=" + (10*time.Hour - 20*time.Minute).String(): {"f-observing"},
		"limit=1&state=needs_review":                      {"f-review"},
	} {
		r := f.do("GET", "/v1/operations?"+query, "")
		f.want(r, 200, "")
		got := []string{}
		for _, o := range r.body["operations"].([]any) {
			got = append(got, o.(map[string]any)["operation_id"].(string))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q = %v, want %v", query, got, want)
		}
		if _, more := r.body["next_cursor"]; more {
			t.Errorf("%q has a next page", query)
		}
	}
}

func TestIndexOrder(t *testing.T) {
	t.Parallel()
	x := api.NewIndex()
	newer, older := job("o", "acme", 1, events.StateObserving), job("o", "acme", 1, events.StatePrepared)
	newer.AppliedSeq = 9
	x.Observe(newer)
	x.Observe(older)
	if j, _ := x.Job("o"); j != newer {
		t.Error("an older record replaced a newer one")
	}
	if p := x.List(api.Filter{}, 0, 10); len(p.Jobs) != 1 {
		t.Errorf("%d rows for one operation", len(p.Jobs))
	}
	x.Forget("o")
	if _, ok := x.Job("o"); ok || x.Len() != 0 || len(x.List(api.Filter{}, 0, 10).Jobs) != 0 {
		t.Error("a forgotten operation is still there")
	}
}

// watched tells when a wait looks at a job. The index looks and begins to wait
// under one lock, so a change that comes after the signal must wake it.
type watched struct {
	*api.Index
	looked chan events.State
}

func (w watched) Wait(ctx context.Context, op events.OperationID, until func(*events.Job) bool) (*events.Job, error) {
	return w.Index.Wait(ctx, op, func(j *events.Job) bool {
		w.looked <- j.State
		return until(j)
	})
}

func TestOutcomeWaits(t *testing.T) {
	t.Parallel()
	w := watched{looked: make(chan events.State)}
	f := setUp(t, func(c *api.Config) { w.Index = c.Jobs.(*api.Index); c.Jobs = w })
	observe := func(seq uint64, s events.State) *events.Job {
		j := job("wait", "acme", 1, s)
		j.AppliedSeq = seq
		return j
	}
	f.index.Observe(observe(1, events.StateObserving))
	answers := make(chan reply, 1)
	go func() { answers <- f.do("GET", "/v1/operations/wait/outcome?wait=60s", "") }()
	final := settled("wait", 1, events.StateSucceeded)
	for _, next := range []*events.Job{
		observe(3, events.StateResultCollecting), // a change, but no outcome
		observe(4, events.StateSucceeded),        // derived, not announced
		final,
	} {
		<-w.looked
		f.index.Observe(next)
	}
	<-w.looked
	got := <-answers
	f.want(got, 200, "")
	if got.body["outcome"] != "confirmed" || got.body["assurance"] != "status_read" || got.body["settled"].(map[string]any)["g"] != float64(1) {
		t.Errorf("body = %v", got.body)
	}
	if v := got.body["result"].(map[string]any)["value"]; v == nil {
		t.Errorf("result = %v, want the value", got.body["result"])
	}
	if e := got.body["evidence"].([]any); len(e) != 2 {
		t.Errorf("evidence = %v", e)
	}
}

// Who waits for an operation that the index never hears of is told what the
// ledger says at the end.
func TestOutcomeWaitWithoutIndex(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.want(f.do("POST", "/v1/operations", intent("alone", "")), 202, "")
	got := f.do("GET", "/v1/operations/alone/outcome?wait=1ms", "")
	f.want(got, 200, "")
	if got.body["outcome"] != "pending" || got.body["state"] != "prepared" {
		t.Errorf("body = %v", got.body)
	}
}

// A caller that hangs up, and a forgotten operation, leave no wait behind.
func TestIndexWaitEnds(t *testing.T) {
	t.Parallel()
	x := api.NewIndex()
	never := func(*events.Job) bool { return false }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if j, err := x.Wait(ctx, "nobody", never); j != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("wait = %v, %v, want nothing and the context's error", j, err)
	}
	x.Observe(job("known", "acme", 1, events.StateObserving))
	if j, err := x.Wait(ctx, "known", never); j == nil || err == nil {
		t.Errorf("wait = %v, %v, want the job as it is and the context's error", j, err)
	}
}

func TestOutcomeAtOnce(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.index.Observe(job("pending", "acme", 1, events.StateObserving))
	f.index.Observe(job("review", "acme", 2, events.StateNeedsReview))
	reversed := settled("reversed", 10, events.StateSucceeded)
	reversed.State, reversed.Outcome = events.StateReversed, events.OutcomePendingReview
	f.index.Observe(reversed)
	for path, want := range map[string]string{
		"/v1/operations/pending/outcome":           "pending",
		"/v1/operations/pending/outcome?wait=1ms":  "pending",
		"/v1/operations/review/outcome?wait=60s":   "pending_review",
		"/v1/operations/reversed/outcome?wait=60s": "pending_review",
	} {
		got := f.do("GET", path, "")
		f.want(got, 200, "")
		if got.body["outcome"] != want {
			t.Errorf("%s = %v, want %s", path, got.body["outcome"], want)
		}
		if got.body["result"] != nil {
			t.Errorf("%s shows a result that may not be used", path)
		}
		if (got.Header().Get("Retry-After") != "") != (want == "pending") {
			t.Errorf("%s: Retry-After = %q", path, got.Header().Get("Retry-After"))
		}
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.want(f.do("POST", "/v1/operations", intent("hist", `,"labels":{"a":"b"}`)), 202, "")
	now := time.Now().UTC()
	_, err := f.store.Record(t.Context(), events.Event{
		ID: "co:hist:1:rej", Subject: events.OperationSubject("acme", "hist"), Time: now, Actor: "reconciler",
		Data: &events.Rejected{N: 1, Class: "invalid_request", Status: 400},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := f.do("GET", "/v1/operations/hist/history", "")
	f.want(got, 200, "")
	entries := got.body["entries"].([]any)
	if len(entries) != 2 {
		t.Fatalf("%d entries, want 2: %s", len(entries), got.Body)
	}
	first, second := entries[0].(map[string]any), entries[1].(map[string]any)
	if first["event"] != "op.prepared" || first["actor"] != "anna" || first["to"] != "prepared" || first["data"] == nil {
		t.Errorf("first = %v", first)
	}
	if second["event"] != "create.rejected" || second["from"] != "prepared" || second["to"] != "rejected" {
		t.Errorf("second = %v", second)
	}
	page := f.do("GET", "/v1/operations/hist/history?limit=1", "")
	if n := page.body["next_after"]; n != first["seq"] {
		t.Errorf("next_after = %v, want %v", n, first["seq"])
	}
	page = f.do("GET", fmt.Sprintf("/v1/operations/hist/history?after=%.0f", first["seq"]), "")
	if e := page.body["entries"].([]any); len(e) != 1 || page.body["next_after"] != nil {
		t.Errorf("second page = %s", page.Body)
	}
}

// The shape of an operation is a contract: this text changes by addition only.
func TestOperationShape(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	j := settled("shape", 7, events.StateSucceeded)
	ref := events.RemoteRef{ID: "r1", Account: "default", Key: events.MakeJobKey("acme", "default", "r1")}
	j.Bound = []events.Binding{{Mark: mark(8), Remote: ref, Via: "create"}}
	j.Remotes = []*events.Remote{{Provider: "acme", Ref: ref, Runs: []events.Run{{Seen: []events.Sight{{State: events.RemoteRunning, First: mark(9)}}}}}}
	j.Attempts = []events.Attempt{{Mark: mark(7), N: 1, Ambiguous: "timeout", Ended: mark(8)}}
	j.Effects = []events.Effect{{Name: "mail", G: 1, Claims: []events.EffectClaim{{Mark: mark(13), N: 1}}}}
	j.Reviews = []events.Review{{Mark: mark(11), ID: "claim_unconfirmed:1", Reason: "claim_unconfirmed"}}
	j.Fired = []events.Firing{{Mark: mark(10), Name: events.ClockConfirm, Gen: 1}}
	j.Next, j.NextDue, j.UpdatedAt = "poll", t0, mark(13).At
	j.Why, j.Evidence = events.WhyConfirmed, []uint64{8, 9}
	j.Cancel = events.Latch{Mark: mark(10), ID: "r-1", By: "dana", Reason: "by mistake"}
	j.CancelCalls = []events.CancelCall{{Mark: mark(10), N: 1, Key: ref.Key}}
	f.index.Observe(j)
	got := f.do("GET", "/v1/operations/shape", "")
	const want = `{"operation_id":"shape","provider":"acme","account":"default","state":"succeeded",` +
		`"why":"confirmed","because":"read by ourselves","evidence":[8,9],"outcome":"confirmed",` +
		`"created_at":"2026-12-01T08:07:00Z","updated_at":"2026-12-01T08:13:00Z","created_by":"anna","next":"poll","next_due":"2026-12-01T08:00:00Z",` +
		`"remote":{"id":"r1","state":"running","account":"default","via":"create"},` +
		`"cancel":{"status":"overtaken_by_completion","by":"dana","reason":"by mistake","at":"2026-12-01T08:10:00Z","calls":1},` +
		`"attempts":[{"n":1,"at":"2026-12-01T08:07:00Z","outcome":"ambiguous","class":"timeout","ended_at":"2026-12-01T08:08:00Z"}],` +
		`"settlements":[{"g":1,"state":"succeeded","outcome":"confirmed","reason":"confirmed","assurance":"status_read","at":"2026-12-01T08:12:00Z","seq":12,"public":false}],` +
		`"effects":[{"name":"mail","g":1,"state":"claimed","claims":1,"at":"2026-12-01T08:13:00Z"}],` +
		`"reviews":[{"id":"claim_unconfirmed:1","reason":"claim_unconfirmed","because":"a webhook says that the job is over, and no read could confirm it in time","at":"2026-12-01T08:11:00Z","seq":11,"open":false}],` +
		`"deadlines_passed":[{"name":"confirm","gen":1,"at":"2026-12-01T08:10:00Z"}],` +
		`"deadlines":{"create":"15m0s","recon":"10m0s","result":"1h0m0s","cancel":"10m0s","confirm":"15m0s","collect":"1h0m0s"},` +
		`"labels":{"team":"acme"},"seq":12,` +
		`"links":{"self":"/v1/operations/shape","outcome":"/v1/operations/shape/outcome","history":"/v1/operations/shape/history"}}`
	if text := strings.TrimSpace(got.Body.String()); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestSpec(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, httptest.NewRequest("GET", "/openapi.json", nil))
	var spec struct {
		OpenAPI string
		Paths   map[string]map[string]struct{ OperationID, Summary string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &spec); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(spec.OpenAPI, "3.1") {
		t.Errorf("openapi = %q, want 3.1", spec.OpenAPI)
	}
	for _, path := range []string{"/v1/operations", "/v1/operations/{id}", "/v1/operations/{id}/outcome", "/v1/operations/{id}/history"} {
		op := spec.Paths[path]["get"]
		if op.OperationID == "" || op.Summary == "" {
			t.Errorf("GET %s is not described", path)
		}
	}
	text := w.Body.String()
	if strings.Contains(text, "ErrorModel") || strings.Contains(text, "unpkg") || !strings.Contains(text, "Problem") {
		t.Error("the document is not the hardened one")
	}
}

// Of several answers to one attempt the one that proves most is shown.
func TestAttemptAndEffectWords(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	j := job("words", "acme", 1, events.StateConflict)
	j.Attempts = []events.Attempt{
		{Mark: mark(1), N: 1, Ambiguous: "timeout", Rejected: &events.Rejected{Class: "invalid_request"}},
		{Mark: mark(1), N: 2, Throttled: &events.Throttled{RetryAt: t0}},
		{Mark: mark(1), N: 3, NotSent: "dial"},
		{Mark: mark(1), N: 4},
		{Mark: mark(1), N: 5, Ambiguous: "timeout", Accepted: mark(2)},
	}
	claim := events.EffectClaim{Mark: mark(1), N: 1, Ended: mark(2), Class: "server_error", RetryAt: t0}
	j.Effects = []events.Effect{
		{Name: "a", G: 1, Claims: []events.EffectClaim{claim}},
		{Name: "b", G: 1, Claims: []events.EffectClaim{claim}, Done: mark(3)},
		{Name: "c", G: 1, Claims: []events.EffectClaim{claim}, Dead: mark(3), Reason: "exhausted"},
	}
	for _, id := range []string{"r1", "r2"} {
		ref := events.RemoteRef{ID: id, Account: "default", Key: events.MakeJobKey("acme", "default", id)}
		j.Bound = append(j.Bound, events.Binding{Mark: mark(2), Remote: ref, Via: "create"})
	}
	f.index.Observe(j)
	got := f.do("GET", "/v1/operations/words", "")
	f.want(got, 200, "")
	words := func(list, field string) string {
		var all []string
		for _, v := range got.body[list].([]any) {
			all = append(all, v.(map[string]any)[field].(string))
		}
		return strings.Join(all, " ")
	}
	if w := words("attempts", "outcome"); w != "rejected throttled not_sent in_flight accepted" {
		t.Errorf("attempts = %s", w)
	}
	if w := words("effects", "state"); w != "waiting done dead" {
		t.Errorf("effects = %s", w)
	}
	if w := words("conflicting", "id"); w != "r1 r2" || got.body["remote"] != nil {
		t.Errorf("conflicting = %s, remote = %v", w, got.body["remote"])
	}
}
