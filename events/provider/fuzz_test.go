package provider

import (
	"errors"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
)

func FuzzParse(f *testing.F) {
	for _, name := range Builtins() {
		data, err := Builtin(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{smallest, "", "a: &a [*a]", "? {a: b}\n: c", "version: !!int 1", "- - - -", "a: |\n  ${", "\x00", "%YAML 1.2\n---\n", "<<: {a: 1}", "a: ${b}${", "? "} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("f.yaml", data)
		var se *SyntaxError
		if err != nil && !errors.As(err, &se) {
			t.Errorf("want a *SyntaxError, got %T %v", err, err)
		}
		if err == nil {
			made(t, d)
		}
	})
}

func FuzzVerify(f *testing.F) {
	p := described(f, "replicate-prediction")
	v := vectors(f)[0]
	sig, _ := v.Headers.only("webhook-signature")
	f.Add("msg_1", "1796083200", sig, []byte(v.Body))
	f.Add("", "-1", "v1,", []byte{})
	f.Add("a", "9223372036854775807", "v1,AA== v1a,x  v9", []byte("{}"))
	f.Fuzz(func(t *testing.T, id, ts, list string, body []byte) {
		h := Header{"Webhook-Id": {id}, "webhook-Timestamp": {ts}, "webhook-signature": {list}}
		_, err := p.Verify(h, body, time.Unix(v.Now, 0))
		var ve *VerifyError
		switch {
		case err == nil && (id != "msg_1" || ts != "1796083200" || string(body) != v.Body):
			t.Errorf("want a forged message refused, got valid")
		case err != nil && (!errors.As(err, &ve) || ve.Reason == ""):
			t.Errorf("want a reason, got %v", err)
		}
	})
}

func FuzzReadWebhook(f *testing.F) {
	p, q := described(f, "generic"), described(f, "replicate-prediction")
	f.Add(payload(f, "generic-webhook"))
	f.Add(payload(f, "replicate-get"))
	f.Add([]byte(`{"id":1e400,"jobId":[{}],"state":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, p := range []*Provider{p, q} {
			hooks, err := p.ReadWebhook(Header{"webhook-id": {"m"}}, body)
			for _, w := range hooks {
				if err != nil || !validID(w.Remote) || w.DedupKey == "" || w.Unrecognised == (w.Reading != nil) {
					t.Errorf("want a whole webhook, got %+v, %v", w, err)
				}
				if w.Reading != nil && (!w.Reading.State.Valid() || w.Reading.Authoritative) {
					t.Errorf("want a valid reading without authority, got %+v", w.Reading)
				}
			}
		}
	})
}

func FuzzReadCreate(f *testing.F) {
	ps := []*Provider{described(f, "generic"), described(f, "replicate-prediction"), described(f, "searchable")}
	f.Add(201, "application/json", "1", payload(f, "generic-create"))
	f.Add(200, "", "Tue, 01 Dec 2026 12:00:30 GMT", payload(f, "replicate-create-starting"))
	f.Add(422, "text/html", "x", []byte(`{"error":{"code":"idempotency_key_reused"}}`))
	f.Add(-5, "a/b;", "-1", []byte(`{"task":{"id":{},"state":[]}}`))
	f.Fuzz(func(t *testing.T, status int, contentType, wait string, body []byte) {
		r := events.Response{Status: status, Header: map[string][]string{"Content-Type": {contentType}, "Retry-After": {wait}}, Body: body}
		for _, p := range ps {
			a := p.ReadCreate(r, testNow)
			switch {
			case a.Kind == "":
				t.Errorf("want a kind, got %+v", a)
			case (a.Kind == CreateAccepted) != (a.RemoteID != ""), a.Kind == CreateAccepted && status/100 != 2:
				t.Errorf("want an id exactly for an acceptance, got %+v", a)
			case a.Kind != CreateAccepted && a.Class == "":
				t.Errorf("want a class, got %+v", a)
			case a.RetryAfter < 0 || a.RetryAfter > retryAfterMax:
				t.Errorf("want a bounded pause, got %s", a.RetryAfter)
			}
			_ = p.ReadStatus(events.RemoteRef{ID: "1"}, r, testNow) // must not panic
			_ = p.ReadLookup("op_1", "op_1", r, testNow)            // as above
		}
	})
}
