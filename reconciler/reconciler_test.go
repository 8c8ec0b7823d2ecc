package reconciler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// The whole trip: without any of its steps an intent has no outcome.
func TestIntentBecomesASettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateSucceeded)
	s := j.LatestSettlement().Settled
	if s.Outcome != events.OutcomeConfirmed || s.Assurance != events.AssuranceRead || s.Remote == nil || s.Remote.ID != "job-1" {
		t.Errorf("settlement: want job-1 confirmed by a read, got %+v", s)
	}
	if s.Result == nil || string(s.Result.Inline) != `{"answer":42}` {
		t.Errorf("result: want the provider's, got %+v", s.Result)
	}
	copies, err := w.store.Read(t.Context(), events.SettledSubject("acme", "op_1", 1), 0, 10)
	if err != nil || len(copies) != 1 {
		t.Fatalf("public copies: want 1, got %d, %v", len(copies), err)
	}
	if got := copies[0].Event.Data.(*events.Settled); got.State != s.State || got.SubmittedAt != s.SubmittedAt {
		t.Errorf("public copy: want %+v, got %+v", s, got)
	}
	creates := w.remote.seen()
	if len(creates) != 1 {
		t.Fatalf("creates: want 1, got %d", len(creates))
	}
	if !strings.Contains(creates[0].body, `"prompt":"a <b>"`) || !strings.Contains(creates[0].body, publicURL+"/webhooks/acme/op_1/") {
		t.Errorf("create: want input and callback URL, got %s", creates[0].body)
	}
	if creates[0].token != "op_1" || creates[0].trace != j.Prepared.Trace {
		t.Errorf("create: want token op_1 and trace %s, got %+v", j.Prepared.Trace, creates[0])
	}
	want := map[events.Type]int{
		events.TypePrepared: 1, events.TypeAttemptStarted: 1, events.TypeAccepted: 1, events.TypeObserved: 2,
		events.TypeResultStored: 1, events.TypeSettled: 2,
	}
	if got := w.history("op_1"); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("history: want %v, got %v", want, got)
	}
}

// An answer that was lost is not a failure: another token makes a second job,
// no retry leaves the operation hanging.
func TestLostAnswerIsRetriedWithTheSameToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.remote.onCreate = func(rw http.ResponseWriter, n int, id string) bool { return n == 1 && id != "" && drop(rw) }
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateSucceeded)
	creates := w.remote.seen()
	if len(creates) != 2 || creates[0] != creates[1] {
		t.Errorf("creates: want the same one twice, got %+v", creates)
	}
	if w.remote.made != 1 {
		t.Errorf("jobs: want 1, got %d", w.remote.made)
	}
	if len(j.Attempts) != 2 || j.Attempts[0].Ambiguous != string(events.CallBroken) {
		t.Errorf("attempts: want 2, the first broken, got %+v", j.Attempts)
	}
}

// Where no token protects, a second create may be a second job. Only proof that
// comes from the provider may bind the first.
func TestBlindProviderIsNotAskedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, blindYAML)
	w.remote.onCreate = func(rw http.ResponseWriter, _ int, id string) bool { return id != "" && drop(rw) }
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.until("op_1", "an unknown create", func(j *events.Job) bool { return j.State == events.StateCreateUnknown })
	if j.Next != string(events.ActDeadline) {
		t.Errorf("next step: want %s, got %q", events.ActDeadline, j.Next)
	}
	ref := events.RemoteRef{ID: "job-1", Account: events.DefaultAccount, Key: events.MakeJobKey("acme", events.DefaultAccount, "job-1")}
	if _, err := w.store.Record(t.Context(), events.Event{
		ID: "wh:1", Subject: events.JobSubject("acme", ref.Key), Time: time.Now().UTC(), Actor: "ingress",
		Data: &events.Observed{
			Remote: ref, Reading: events.Reading{State: events.RemoteSucceeded, Source: events.SourceWebhook},
			Reference: &events.Reference{Operation: "op_1", Proven: true},
		},
	}); err != nil {
		t.Fatal(err)
	}
	j = w.settled("op_1", events.StateSucceeded)
	if len(j.Bound) != 1 || j.Bound[0].Via != "callback" {
		t.Errorf("binding: want one by callback, got %+v", j.Bound)
	}
	if got := j.LatestSettlement().Settled; got.LearnedBy != events.SourceWebhook || got.Assurance != events.AssuranceRead {
		t.Errorf("settlement: want told by a webhook and read, got %+v", got)
	}
	if n := len(w.remote.seen()); n != 1 {
		t.Errorf("creates: want 1, got %d", n)
	}
}

// An outage of the provider says nothing about the job, and must not fill the
// stream: one event a reason in five minutes.
func TestFailingReadsAreDeferred(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.remote.onRead = func(rw http.ResponseWriter, n int, _ string) bool {
		if n >= 2 && n <= 9 {
			answer(rw, http.StatusInternalServerError, `{}`)
			return true
		}
		return false
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	w.settled("op_1", events.StateSucceeded)
	// Two if the five minutes end within the test.
	if got := w.history("op_1")[events.TypePollDeferred]; got < 1 || got > 2 {
		t.Errorf("deferrals of 8 failing reads in the stream: want 1, got %d", got)
	}
}

// A token with other bytes behind it is another request: providers refuse it, or
// worse, answer for the first.
func TestChangedRequestIsNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	data, err := provider.Builtin("generic")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(data), "    operation_id:", "    operation:", 1)
	if changed == string(data) {
		t.Fatal("the shipped description has no operation_id to change")
	}
	w.reconcile(describe(t, changed, w.remote.URL))
	w.submit("op_1")
	j := w.until("op_1", "an open review", func(j *events.Job) bool { return len(j.OpenReviews()) > 0 })
	if j.State != events.StateNeedsReview || j.OpenReviews()[0].Reason != events.WhyRequestChanged || j.Next != "" {
		t.Errorf("want review %s and nothing more, got %s %+v next %q", events.WhyRequestChanged, j.State, j.OpenReviews(), j.Next)
	}
	if n := len(w.remote.seen()); n != 0 || len(j.Attempts) != 0 {
		t.Errorf("want nothing sent and no attempt, got %d requests, %+v", n, j.Attempts)
	}
}

// A definite refusal is an outcome; sent again it is refused again, for ever.
func TestRefusedCreateSettles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.remote.onCreate = func(rw http.ResponseWriter, _ int, _ string) bool {
		answer(rw, http.StatusUnprocessableEntity, `{"error":{"code":"bad_prompt","message":"no"}}`)
		return true
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateRejected)
	s := j.LatestSettlement().Settled
	if s.Outcome != events.OutcomeFailed || s.Error == nil || s.Error.Code != "bad_prompt" {
		t.Errorf("settlement: want failed with the provider's words, got %+v", s)
	}
	if n := len(w.remote.seen()); n != 1 {
		t.Errorf("creates: want 1, got %d", n)
	}
}

// Providers that answer from replicas do not know a job for a moment after they
// made it. Believed, that would lose a job that runs.
func TestNotFoundAfterCreateIsNotGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.remote.onRead = func(rw http.ResponseWriter, n int, id string) bool {
		switch {
		case n <= 2:
			answer(rw, http.StatusNotFound, `{}`)
		case n == 3:
			answer(rw, http.StatusOK, fmt.Sprintf(`{"job_id":%q,"state":"running"}`, id))
		default:
			return false
		}
		return true
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	w.settled("op_1", events.StateSucceeded)
	if got := w.history("op_1")[events.TypeGone]; got != 1 {
		t.Errorf("gone in the stream: want 1 for two answers, got %d", got)
	}
}

// A worker that died after its decision may have sent the request. Its lease
// says from when on others may act, and the attempt then counts as unknown.
func TestAttemptOfADeadWorkerExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	p := w.submit("op_1")
	past := time.Now().Add(-time.Minute).UTC()
	w.decide(events.OperationSubject("acme", "op_1"), p.Seq, "ca:op_1:1", &events.AttemptStarted{N: 1, SendBy: past, LeaseUntil: past.Add(time.Second)})
	w.reconcile(w.provider)
	j := w.settled("op_1", events.StateSucceeded)
	if len(j.Attempts) != 2 || j.Attempts[0].Ambiguous != "lease_expired" || !j.Attempts[1].Accepted.Set() {
		t.Errorf("attempts: want the first expired and the second accepted, got %+v", j.Attempts)
	}
	if n := len(w.remote.seen()); n != 1 {
		t.Errorf("creates: want 1, got %d", n)
	}
}

// A lease that two processes believe to hold must cost nothing: the fence alone
// decides who sends.
func TestTwoReconcilersSendOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.reconcile(w.provider)
	w.reconcile(w.provider)
	const ops = 20
	for i := range ops {
		w.submit(events.OperationID(fmt.Sprintf("op_%d", i)))
	}
	for i := range ops {
		op := events.OperationID(fmt.Sprintf("op_%d", i))
		j := w.settled(op, events.StateSucceeded)
		if len(j.Attempts) != 1 {
			t.Errorf("%s: attempts: want 1, got %+v", op, j.Attempts)
		}
		if got := w.history(op); got[events.TypeSettled] != 2 || got[events.TypeAccepted] != 1 {
			t.Errorf("%s: want one settlement with its copy and one acceptance, got %v", op, got)
		}
	}
	sent := map[string]int{}
	for _, c := range w.remote.seen() {
		sent[c.token]++
	}
	for token, n := range sent {
		if n != 1 {
			t.Errorf("creates with token %s: want 1, got %d", token, n)
		}
	}
	if len(sent) != ops || w.remote.made != ops {
		t.Errorf("want %d tokens and jobs, got %d and %d", ops, len(sent), w.remote.made)
	}
}

// An event has a limit, a result has none.
func TestLargeResultGoesToObjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	want := `{"text":"` + strings.Repeat("<x>", events.InlineMaxBytes) + `"}`
	w.remote.result = want
	w.reconcile(w.provider)
	w.submit("op_1")
	j := w.settled("op_1", events.StateSucceeded)
	r := j.LatestSettlement().Settled.Result
	if r == nil || r.Inline != nil || r.Ref == "" {
		t.Fatalf("result: want a reference, got %+v", r)
	}
	got, err := w.store.Objects().Get(t.Context(), r.Ref)
	if err != nil || string(got) != want {
		t.Errorf("object: want the result of %d bytes, got %d, %v", len(want), len(got), err)
	}
	if sum := events.HexSHA256(got); r.SHA256 != sum || r.Size != int64(len(want)) {
		t.Errorf("blob: want %s of %d bytes, got %+v", sum, len(want), r)
	}
}

// A provider that asks us to wait has done nothing; a new attempt is due then.
func TestThrottledCreateIsSentLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	var first, second time.Time
	w.remote.onCreate = func(rw http.ResponseWriter, n int, _ string) bool {
		if n > 1 {
			second = time.Now()
			return false
		}
		first = time.Now()
		rw.Header().Set("Retry-After-Ms", "300")
		answer(rw, http.StatusTooManyRequests, `{}`)
		return true
	}
	w.reconcile(w.provider)
	w.submit("op_1")
	w.settled("op_1", events.StateSucceeded)
	w.remote.mu.Lock()
	defer w.remote.mu.Unlock()
	if d := second.Sub(first); d < 300*time.Millisecond {
		t.Errorf("pause after a 429: want at least 300ms, got %s", d)
	}
}

// A crash between the decision and its public copy leaves an outcome that nobody
// hears of.
func TestPublicCopyIsOwedAfterACrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	s := events.OperationSubject("acme", "op_1")
	p := w.submit("op_1")
	now := time.Now().UTC()
	w.decide(s, p.Seq, "ca:op_1:1", &events.AttemptStarted{N: 1, SendBy: now, LeaseUntil: now.Add(time.Minute)})
	if _, err := w.store.Record(t.Context(), events.Event{
		ID: "co:op_1:1:rej", Subject: s, Time: now, Actor: "test", Data: &events.Rejected{N: 1, Class: "invalid_request", Status: 422},
	}); err != nil {
		t.Fatal(err)
	}
	j, err := events.Refold(t.Context(), w.store, "acme", "op_1")
	if err != nil {
		t.Fatal(err)
	}
	decision := w.decide(s, j.OpSeq, "st:op_1:1", j.Settlement(1))
	w.until("op_1", "the decision", func(j *events.Job) bool { return j.OpSeq >= decision.Seq })
	w.reconcile(w.provider)
	j = w.settled("op_1", events.StateRejected)
	if got := w.history("op_1")[events.TypeSettled]; got != 2 || len(j.Settlements) != 1 {
		t.Errorf("want the decision and one copy of one settlement, got %d of %d", got, len(j.Settlements))
	}
	if n := len(w.remote.seen()); n != 0 {
		t.Errorf("creates: want 0, got %d", n)
	}
}

// A provider that wants to be left alone for long keeps that wish over a restart
// of ours.
func TestLongPauseIsStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "generic")
	w.remote.onRead = func(rw http.ResponseWriter, _ int, _ string) bool {
		rw.Header().Set("Retry-After", "120")
		answer(rw, http.StatusServiceUnavailable, `{}`)
		return true
	}
	w.reconcile(w.provider)
	began := time.Now()
	w.submit("op_1")
	j := w.until("op_1", "a deferred read", func(j *events.Job) bool { return len(j.Remotes) == 1 && j.Remotes[0].Deferred.Reason != "" })
	until := j.Remotes[0].Deferred.Until
	if d := until.Sub(began); d < 120*time.Second || d > 150*time.Second {
		t.Errorf("pause: want 120 to 150 s, got %s", d)
	}
	if j.Next != string(events.ActPoll) || j.NextDue.Before(until) {
		t.Errorf("plan: want a poll not before %s, got %s at %s", until, j.Next, j.NextDue)
	}
}
