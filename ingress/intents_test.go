package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/ingress"
	"github.com/pawl-dev/pawl/ingress/api"
	"github.com/pawl-dev/pawl/streams"
)

func TestSubmitPrepares(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body := `{"operation_id":"op-1","provider":"acme","input":{"n": 5},"authorized_by":"anna","labels":{"a":"b"},"deadlines":{"create":"3m"}}`
	got, err := f.in.Submit(t.Context(), []byte(body), "", "")
	f.ok(err)
	rec := f.recorded()[0]
	if got.Replayed || got.OperationID != "op-1" || got.Provider != "acme" || got.Seq != rec.Seq {
		t.Errorf("receipt = %+v, want seq %d", got, rec.Seq)
	}
	e, d := rec.Event, rec.Event.Data.(*events.Prepared)
	if e.ID != "p:op-1" || e.Subject != events.OperationSubject("acme", "op-1") || e.Actor != "anna" || len(e.Claim) != 26 {
		t.Errorf("event = %+v", e)
	}
	if !regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`).MatchString(e.Trace) {
		t.Errorf("traceparent = %q", e.Trace)
	}
	if d.Token != "op-1" || d.Intent.Account != "team" || strings.Join(d.Intent.Effects, ",") != "mail" || !d.Contract.Callback || d.Description.Name != "acme" {
		t.Errorf("prepared = %+v", d)
	}
	if d.Deadlines.Create.Std() != 3*time.Minute || d.Deadlines.Result.Std() != 2*time.Hour {
		t.Errorf("deadlines = %+v, want the description's and the intent's over them", d.Deadlines)
	}
	// A later attempt renders from what is stored; the bytes must be the same.
	url := "https://pawl.example" + events.CallbackPath(events.NewSecret(masterKey), "acme", "team", "op-1")
	request, err := f.provider("acme", []byte(acme), "team", hubSecret, nil).
		Create(provider.CreateInput{Operation: "op-1", Token: d.Token, Input: d.Intent.Input, CallbackURL: url})
	f.ok(err)
	if h := provider.RequestSHA256(request); h != d.RequestSHA256 {
		t.Errorf("request_sha256 = %s, and rendered again %s", d.RequestSHA256, h)
	}
	if !strings.Contains(string(request.Body), url) {
		t.Errorf("request %s does not carry the callback URL", request.Body)
	}
}

func TestSubmitAgain(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	submit := func(body string) (events.Receipt, error) {
		return f.in.Submit(t.Context(), []byte(body), "acme", "op-1")
	}
	first, err := submit(`{"input":{"n":5}}`)
	f.ok(err)
	again, err := submit(`{ "input" : {"n" : 5}, "labels":{"late":"label"}, "authorized_by":"someone else" }`)
	f.ok(err)
	if !again.Replayed || again.Seq != first.Seq || again.Provider != "acme" {
		t.Errorf("receipt = %+v, want a replay of %+v", again, first)
	}
	for _, other := range []string{`{"input":{"n":6}}`, `{"input":{"n":5},"effects":[]}`} {
		var refused *events.RefusedError
		if _, err := submit(other); !errors.As(err, &refused) || refused.Kind != events.RefusedMismatch || refused.Operation != "op-1" {
			t.Errorf("%s: error = %v, want a mismatch", other, err)
		}
	}
	var refused *events.RefusedError
	if _, err := f.in.Submit(t.Context(), []byte(`{"input":{"version":"v","input":{}}}`), standardID, "op-1"); !errors.As(err, &refused) || refused.Kind != events.RefusedMismatch {
		t.Errorf("another provider: error = %v, want a mismatch", err)
	}
	if n := len(f.recorded()); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// What stands in the operation's place is no intent: never a receipt.
func TestSubmitOverSomethingElse(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	_, err := f.store.Record(t.Context(), events.Event{
		ID: "stray", Subject: events.OperationSubject("acme", "op-1"), Time: now, Data: &events.ReconFailed{Class: "x"},
	})
	f.ok(err)
	var refused *events.RefusedError
	if _, err := f.in.Submit(t.Context(), []byte(`{"input":{"n":1}}`), "acme", "op-1"); !errors.As(err, &refused) || refused.Kind != events.RefusedMismatch {
		t.Errorf("error = %v, want a mismatch", err)
	}
}

func TestSubmitLargeInput(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	body := fmt.Sprintf(`{"operation_id":"big","input":{ "n":1, "pad":%q}}`, strings.Repeat("<x>", events.InlineMaxBytes/3))
	_, err := f.in.Submit(t.Context(), []byte(body), "acme", "")
	f.ok(err)
	d := one[*events.Prepared](f)
	if d.Intent.Input != nil || d.Intent.InputRef == nil {
		t.Fatalf("the input is not in the object store: %d bytes", len(d.Intent.Input))
	}
	got, err := f.store.Objects().Get(t.Context(), d.Intent.InputRef.Ref)
	f.ok(err)
	if !strings.HasPrefix(string(got), `{"n":1,"pad":"<x>`) || events.HexSHA256(got) != d.Intent.InputRef.SHA256 {
		t.Errorf("object = %.40s, want the input compacted", got)
	}
	again, err := f.in.Submit(t.Context(), []byte(body), "acme", "")
	f.ok(err)
	if !again.Replayed {
		t.Error("the same large input is not a replay")
	}
}

func TestSubmitRefuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, c := range map[string]struct{ body, field string }{
		"unknown provider":      {`{"provider":"nobody","input":{}}`, "provider"},
		"no provider":           {`{"input":{}}`, "provider"},
		"other account":         {`{"provider":"acme","account":"else","input":{"n":1}}`, "account"},
		"unknown effect":        {`{"provider":"acme","input":{"n":1},"effects":["mail","bomb"]}`, "effects.1"},
		"input does not render": {`{"provider":"acme","input":{}}`, "input.n"},
		"number loses digits":   {`{"provider":"acme","input":{"n":12345678901234567890}}`, "input.n"},
		"unknown field":         {`{"provider":"acme","input":{"n":1},"colour":"red"}`, "colour"},
		"not JSON":              {`{`, ""},
		"BOM":                   {"\ufeff{}", ""},
		"deep":                  {strings.Repeat("[", 10_000), ""},
		"NaN":                   {`{"provider":"acme","input":{"n":NaN}}`, "input.n"},
		"duplicate":             {`{"provider":"acme","provider":"acme","input":{"n":1}}`, "provider"},
	} {
		_, err := f.in.Submit(t.Context(), []byte(c.body), "", "op-x")
		var refused *events.RefusedError
		if !errors.As(err, &refused) || refused.Kind != events.RefusedInvalid || refused.Reason == "" {
			t.Errorf("%s: error = %v, want a refusal", name, err)
		} else if c.field != "" && refused.Field != c.field {
			t.Errorf("%s: field = %q (%s), want %q", name, refused.Field, refused.Reason, c.field)
		}
	}
	if n := len(f.recorded()); n != 0 {
		t.Errorf("%d events of refused intents", n)
	}
}

func message(p, body string, seq uint64) ingress.IntentMessage {
	return ingress.IntentMessage{Provider: p, Body: []byte(body), Seq: seq, StreamCreated: now.Add(-time.Hour), At: now.Add(-time.Minute), ReplyTo: "answers"}
}

// A redelivery makes the same operation, the same inbox event, and nothing new.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, m := range []ingress.IntentMessage{
		message("acme", `{"input":{"n":1}}`, 1),                                           // no operation id
		message("acme", `{"input":{}}`, 2),                                                // refused
		message("acme", `{"operation_id":"a","input":{"n":1}}`, 3),                        // accepted
		message("acme", `{"operation_id":"a","input":{"n":2}}`, 4),                        // mismatch
		message("Not A Provider", `{"input":{"n":2}}`, 5),                                 // no provider
		message("acme", "\x00\xff"+strings.Repeat("y", events.RawMaxBytes), 6),            // poison, large
		message("acme", `{"operation_id":"b","provider":"replicate","input":{"n":2}}`, 7), // subject and body differ
	} {
		var before int
		for delivery := range 3 {
			f.ok(f.in.HandleIntent(t.Context(), m))
			n := len(f.recorded())
			if delivery == 0 {
				before = n
			}
			if n != before {
				t.Errorf("message %d, delivery %d made another event", m.Seq, delivery+1)
			}
		}
	}
	all := f.recorded()
	if len(all) != 7 {
		t.Fatalf("%d events, want 7", len(all))
	}
	if op := string(all[0].Event.Subject.Key); !strings.HasPrefix(op, "op_") || len(op) != 29 {
		t.Errorf("derived operation = %q", op)
	}
	for i, want := range map[int]struct{ operation, field, provider string }{
		1: {"", "input.n", "acme"}, 3: {"a", "operation_id", "acme"}, 4: {"", "provider", "unknown"}, 5: {"", "", "acme"}, 6: {"b", "provider", "acme"},
	} {
		e := all[i].Event
		d, ok := e.Data.(*events.IntentRefused)
		if !ok {
			t.Errorf("event %d is %s", i, e.Data.Type())
			continue
		}
		if string(e.Subject.Provider) != want.provider || e.Subject.Kind != events.SubjectInbox || d.Reason == "" || d.Field != want.field {
			t.Errorf("event %d = %s %+v, want %+v", i, e.Subject, d, want)
		}
		if want.operation != "" && d.Operation != want.operation {
			t.Errorf("event %d: operation = %q, want %q", i, d.Operation, want.operation)
		}
	}
	if d := all[5].Event.Data.(*events.IntentRefused); d.Body.Ref == "" || d.Body.Size != int64(events.RawMaxBytes+2) {
		t.Errorf("a large body is cut: %+v", d.Body)
	}
	want := map[string]float64{"accepted": 2, "replayed": 4, "mismatch": 3, "refused": 9}
	for outcome, n := range want {
		if got := f.counted("pawl_ingress_intents_total", "acme", outcome); got != n {
			t.Errorf("counted %v %s, want %v", got, outcome, n)
		}
	}
}

// What is refused is told, and holds up nothing.
func TestConsumeGoesOn(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, body := range []string{"poison", `{"operation_id":"r","input":{}}`, `{"operation_id":"ok","input":{"n":1}}`, `{"operation_id":"ok","input":{"n":1}}`} {
		_, err := f.store.PublishIntent(t.Context(), "acme", []byte(body), "answers")
		f.ok(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- f.store.ConsumeIntents(ctx, 1, func(ctx context.Context, m streams.IntentMessage) error {
			return f.in.HandleIntent(ctx, ingress.IntentMessage{
				Provider: m.Provider, Body: m.Body, Seq: m.Seq, StreamCreated: m.StreamCreated, At: m.At, ReplyTo: m.ReplyTo,
			})
		})
	}()
	for _, want := range []struct{ outcome, operation, field string }{
		{"refused", "", ""}, {"refused", "r", "input.n"}, {"accepted", "ok", ""}, {"replayed", "ok", ""},
	} {
		got := <-f.replies
		if got["subject"] != "answers" || got["outcome"] != want.outcome || got["seq"] == nil {
			t.Errorf("answer = %v, want %+v", got, want)
		}
		if want.operation != "" && got["operation_id"] != want.operation {
			t.Errorf("answer = %v, want %+v", got, want)
		}
		if want.field != "" && (got["field"] != want.field || got["reason"] == "") {
			t.Errorf("answer = %v, want %+v", got, want)
		}
	}
	stop()
	<-done
}

// A message that cannot be stored is not done.
func TestIntentsWhenClosed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.ok(f.store.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for _, body := range []string{`{"operation_id":"a","input":{"n":1}}`, "poison"} {
		if err := f.in.HandleIntent(ctx, message("acme", body, 1)); !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("%s: error = %v, want ErrUnavailable", body, err)
		}
	}
	if len(f.replies) != 0 {
		t.Error("a producer was told something that is not stored")
	}
}

// Door and API together: the statuses of the contract.
func TestHTTP(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	h := api.New(api.Config{
		Submit: f.in.Submit, Jobs: api.NewIndex(), Reader: f.store, Now: time.Now, Logger: quiet,
		Find: func(ctx context.Context, op events.OperationID) (events.Provider, error) {
			s, _, err := f.store.FindOperation(ctx, op)
			return s.Provider, err
		},
	})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/operations", `{"operation_id":"h","provider":"acme","input":{"n":1}}`, 202},
		{"POST", "/v1/operations", `{"operation_id":"h","provider":"acme","input":{"n":1}}`, 200},
		{"POST", "/v1/operations", `{"operation_id":"h","provider":"acme","input":{"n":2}}`, 422},
		{"POST", "/v1/operations", `{"operation_id":"i","provider":"acme","input":{}}`, 422},
		{"POST", "/v1/operations", `{"provider":"acme","input":{"n":1}}`, 400},
		{"GET", "/v1/operations/h", "", 200},
		{"GET", "/v1/operations/h/history", "", 200},
		{"GET", "/v1/operations/i", "", 404},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != c.status {
			t.Errorf("%s %s %s: status = %d, want %d: %s", c.method, c.path, c.body, w.Code, c.status, w.Body)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	good := func() ingress.Config {
		return ingress.Config{
			Ledger: f.store, Objects: f.store.Objects(), Now: time.Now, PublicURL: "https://x.example", MasterKey: events.NewSecret("k"),
			Providers: map[events.Provider]*provider.Provider{"acme": f.provider("acme", []byte(acme), "", hubSecret, nil)},
		}
	}
	if _, err := ingress.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*ingress.Config){
		"no ledger":              func(c *ingress.Config) { c.Ledger = nil },
		"no clock":               func(c *ingress.Config) { c.Now = nil },
		"no master key":          func(c *ingress.Config) { c.MasterKey = events.Secret{} },
		"no public URL":          func(c *ingress.Config) { c.PublicURL = "" },
		"relative public URL":    func(c *ingress.Config) { c.PublicURL = "/pawl" },
		"unknown default effect": func(c *ingress.Config) { c.DefaultEffects = []string{"bomb"} },
	} {
		c := good()
		spoil(&c)
		if _, err := ingress.New(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
