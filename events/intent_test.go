package events

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Without strict reading, a misspelt limit would be no limit, and two readers
// of one document would see two requests.
func TestParseIntentRefuses(t *testing.T) {
	t.Parallel()
	const (
		null     = "is null; leave it out or give "
		unknown  = "unknown field; known are operation_id, provider, account, input, authorized_by, effects, labels, deadlines"
		asString = "; send it as a string"
	)
	loses := func(n string) string {
		return "number " + n + " loses digits as a float64 and cannot be fingerprinted" + asString
	}
	outside := func(n string) string {
		return "integer " + n + " is outside ±2^53 and cannot be fingerprinted" + asString
	}
	badOp := func(s string) string {
		return fmt.Sprintf("invalid identifier: operation id %.80q must be 1 to 64 of A-Z, a-z, 0-9, '_' and '-'", s)
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	object := "want a JSON object with the fields of an intent"
	tests := []struct {
		doc, field, reason string
	}{
		{``, "", "not valid JSON: it ends too early"},
		{`{`, "", "not valid JSON: it ends too early"},
		{`{"input":{}`, "", "not valid JSON: it ends too early"},
		{`null`, "", object},
		{`[]`, "", object},
		{`"x"`, "", object},
		{`{"input":{}} {}`, "", "more data after the JSON value"},
		{`{"input":{}}]`, "", "more data after the JSON value"},
		{"{\"input\":{\"a\":\"\xff\"}}", "", "not valid UTF-8"},
		{`{"input":{"a":"` + strings.Repeat("x", IntentMaxBytes) + `"}}`, "", "1048594 bytes, limit 1048576"},
		{`{"operation_id":"a","operation_id":"b","input":{}}`, "operation_id", "appears twice"},
		{`{"input":{"a":{"b":1,"b":1}}}`, "input.a.b", "appears twice"},
		{`{"input":{"a":1,"\u0061":2}}`, "input.a", "appears twice"},
		{`{"input":{"a":[{"b":1},{"c":1,"c":2}]}}`, "input.a.1.c", "appears twice"},
		{`{"input":{"a":` + deep(31) + `}}`, "input.a" + strings.Repeat(".0", 31), ""},
		{`{"input":` + deep(2000) + `}`, "input" + strings.Repeat(".0", 32), "nested deeper than 32"},
		{`{}`, "input", "is required"},
		{`{"Input":{}}`, "Input", unknown},
		{`{"input":{},"OPERATION_ID":"a"}`, "OPERATION_ID", unknown},
		{`{"input":{},"prompt":1}`, "prompt", unknown},
		{`{"input":{},"input_ref":{"ref":"sha256:00"}}`, "input_ref", unknown},
		{`{"input":null}`, "input", "want a JSON object"},
		{`{"input":[]}`, "input", "want a JSON object"},
		{`{"input":"x"}`, "input", "want a JSON object"},
		{`{"operation_id":null,"input":{}}`, "operation_id", null + "a string"},
		{`{"operation_id":7,"input":{}}`, "operation_id", "want a string"},
		{`{"operation_id":"","input":{}}`, "operation_id", badOp("")},
		{`{"operation_id":"a.b","input":{}}`, "operation_id", badOp("a.b")},
		{`{"operation_id":">","input":{}}`, "operation_id", badOp(">")},
		{`{"operation_id":"a\r\nb","input":{}}`, "operation_id", badOp("a\r\nb")},
		{`{"operation_id":"a\u0000","input":{}}`, "operation_id", badOp("a\x00")},
		{`{"provider":"other","input":{}}`, "provider", `is "other", but the address names "acme"`},
		{`{"provider":7,"input":{}}`, "provider", "want a string"},
		{`{"account":null,"input":{}}`, "account", null + "a string"},
		{`{"account":{},"input":{}}`, "account", "want a string"},
		{`{"authorized_by":["a"],"input":{}}`, "authorized_by", "want a string"},
		{`{"authorized_by":"` + strings.Repeat("x", 257) + `","input":{}}`, "authorized_by", "account and authorized_by are limited to 256 bytes"},
		{`{"effects":null,"input":{}}`, "effects", null + "an array of strings"},
		{`{"effects":"mail","input":{}}`, "effects", "want an array of strings"},
		{`{"effects":[7],"input":{}}`, "effects", "want an array of strings"},
		{`{"effects":[null],"input":{}}`, "effects", "names are 1 to 256 bytes"},
		{`{"effects":["a","b","a"],"input":{}}`, "effects", `names "a" twice`},
		{`{"effects":["` + strings.Join(strings.Split("abcdefghijklmnopq", ""), `","`) + `"],"input":{}}`, "effects", "17 names, limit 16"},
		{`{"labels":null,"input":{}}`, "labels", null + "an object of strings"},
		{`{"labels":{"a":1},"input":{}}`, "labels", "want an object of strings"},
		{`{"labels":{"a":null},"input":{}}`, "labels.a", null + "a string"},
		{`{"labels":{"":"x"},"input":{}}`, "labels", "keys are 1 to 128 bytes, values at most 128"},
		{`{"labels":{"a":"` + strings.Repeat("x", 129) + `"},"input":{}}`, "labels", "keys are 1 to 128 bytes, values at most 128"},
		{`{"deadlines":[],"input":{}}`, "deadlines", "want an object"},
		{`{"deadlines":null,"input":{}}`, "deadlines", null + "an object"},
		{`{"deadlines":{"Create":"1m"},"input":{}}`, "deadlines.Create", "unknown clock; known are start_by, create, recon, result, cancel, confirm, collect"},
		{`{"deadlines":{"create":60},"input":{}}`, "deadlines.create", `want a duration such as "90s", "15m" or "24h"`},
		{`{"deadlines":{"create":null},"input":{}}`, "deadlines.create", null + `a duration such as "90s", "15m" or "24h"`},
		{`{"deadlines":{"create":"0s"},"input":{}}`, "deadlines.create", "is 0s, want 1s to 8760h"},
		{`{"deadlines":{"recon":"-1h"},"input":{}}`, "deadlines.recon", "is -1h0m0s, want 1s to 8760h"},
		{`{"deadlines":{"result":"9000h"},"input":{}}`, "deadlines.result", "is 9000h0m0s, want 1s to 8760h"},
		{`{"deadlines":{"start_by":"soon"},"input":{}}`, "deadlines.start_by", "want a time such as 2026-01-02T15:04:05Z"},
		{`{"deadlines":{"start_by":"0001-01-01T00:00:00Z"},"input":{}}`, "deadlines.start_by", "is in the year 1, want 1970 to 9999"},
		{`{"deadlines":{"start_by":"9999-12-31T23:59:59-23:00"},"input":{}}`, "deadlines.start_by", "is in the year 10000, want 1970 to 9999"},
		{`{"input":{"n":9007199254740993}}`, "input.n", loses("9007199254740993")},
		{`{"input":{"n":9007199254740994}}`, "input.n", outside("9007199254740994")},
		{`{"input":{"n":-9007199254740994}}`, "input.n", outside("-9007199254740994")},
		{`{"input":{"n":17454220438242315174}}`, "input.n", loses("17454220438242315174")},
		{`{"input":{"n":1.00000000000000000001}}`, "input.n", loses("1.00000000000000000001")},
		{`{"input":{"n":1e400}}`, "input.n", "number 1e400 is outside the range of a float64" + asString},
		{`{"input":{"n":1e-400}}`, "input.n", loses("1e-400")},
		{`{"input":{"n":-0}}`, "input.n", "number -0 has the same canonical form as 0; send 0"},
		{`{"input":{"n":-0.0e1}}`, "input.n", "number -0 has the same canonical form as 0; send 0"},
		{`{"input":{"a":[[0.5,[9007199254740993]]]}}`, "input.a.0.1.0", loses("9007199254740993")},
		{`{"input":{"a":[1.5,{"b":9007199254740993.5}]}}`, "input.a.1.b", loses("9007199254740993.5")},
		{`{"input":{"n":0.` + strings.Repeat("0", 70) + `1}}`, "input.n", "number of over 64 characters cannot be fingerprinted" + asString},
	}
	for _, tt := range tests {
		got, err := ParseIntent([]byte(tt.doc), testProvider, testOp)
		if tt.reason == "" { // as deep as is allowed
			if err != nil {
				t.Errorf("%.60s: want accepted, got %v", tt.doc, err)
			}
			continue
		}
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%.60s: want a RefusedError, got %v (%+v)", tt.doc, err, got)
			continue
		}
		if refused.Kind != RefusedInvalid || refused.Field != tt.field || refused.Reason != tt.reason {
			t.Errorf("%.60s:\nwant %q: %q\ngot  %q: %q", tt.doc, tt.field, tt.reason, refused.Field, refused.Reason)
		}
	}
}

// A refusal must reach whoever asked: without the operation it would be lost.
// With an id that is none, it would be filed under a wildcard.
func TestRefusedNamesTheOperation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		doc  string
		op   OperationID
		want OperationID
	}{
		{`{"account":7,"operation_id":"op_9","input":{}}`, "", "op_9"},
		{`{"input":7}`, testOp, testOp},
		{`{"operation_id":"a.*","input":{}}`, testOp, ""},
		{`{"input":7}`, "a.*", ""},
		{`{`, "", ""},
	} {
		_, err := ParseIntent([]byte(tt.doc), testProvider, tt.op)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Operation != tt.want {
			t.Errorf("%s: want a refusal of %q, got %+v", tt.doc, tt.want, refused)
		}
	}
}

// Without the defaults in one place, two doors would store two intents.
func TestParseIntentAccepts(t *testing.T) {
	t.Parallel()
	got, err := ParseIntent([]byte(`{
		"operation_id": "op_9", "provider": "acme", "account": "eu", "authorized_by": "dana",
		"input": {"n": [0.1, 1.0, 1e21, 9007199254740992, -5, 0], "s": "9007199254740993"},
		"effects": [], "labels": {"team": "a"},
		"deadlines": {"create": "90s", "start_by": "2026-01-02T04:04:05+01:00"}
	}`), "", "")
	if err != nil {
		t.Fatal(err)
	}
	want := Intent{
		OperationID: "op_9", Provider: testProvider, Account: "eu", AuthorizedBy: "dana",
		Input:   []byte(`{"n": [0.1, 1.0, 1e21, 9007199254740992, -5, 0], "s": "9007199254740993"}`),
		Effects: []string{}, Labels: map[string]string{"team": "a"},
		Deadlines: Deadlines{StartBy: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Create: Duration(90 * time.Second)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("intent (-want +got):\n%s", diff)
	}
	got, err = ParseIntent([]byte(`{"input":{}}`), testProvider, testOp)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Intent{OperationID: testOp, Provider: testProvider, Account: DefaultAccount, Input: []byte(`{}`)}); !cmp.Equal(want, got) {
		t.Errorf("least intent: want %+v, got %+v", want, got)
	}
	for _, tt := range []struct {
		p     Provider
		op    OperationID
		field string
	}{{"", testOp, "provider"}, {testProvider, "", "operation_id"}, {"A", testOp, "provider"}} {
		_, err := ParseIntent([]byte(`{"input":{}}`), tt.p, tt.op)
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Field != tt.field {
			t.Errorf("provider %q, operation %q: want %s refused, got %v", tt.p, tt.op, tt.field, err)
		}
	}
}
