package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func fingerprint(t testing.TB, doc string) string {
	t.Helper()
	in, err := ParseIntent([]byte(doc), testProvider, testOp)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	f, err := in.Fingerprint()
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return f
}

// Without a canonical form, a client that writes its map in another order would
// be refused its own retry; without the values in it, another request would
// pass for a retry.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	const base = `{"input":{"n":1.5,"i":1,"s":"é","a":[1,2]},"effects":["mail"]}`
	same := []string{
		`{"effects":["mail"],"input":{"a":[1,2],"s":"é","i":1,"n":1.5}}`,
		`{"input":{"n":15e-1,"i":1.0,"s":"\u00e9","a":[1e0,2.00]},"effects":["mail"]}`,
		"{ \"input\" : {\"n\":1.50,\n\"i\":1,\"s\":\"é\",\"a\":[ 1 , 2 ]},\"effects\":[\"mail\"]}",
		`{"labels":{"team":"b"},"deadlines":{"create":"1m"},"authorized_by":"eve",` + base[1:],
		`{"account":"default","provider":"acme","operation_id":"op_7",` + base[1:],
	}
	other := []string{
		`{"input":{"n":1.6,"i":1,"s":"é","a":[1,2]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":"1","s":"é","a":[1,2]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":true,"s":"é","a":[1,2]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":1,"s":"e\u0301","a":[1,2]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":1,"s":"é","a":[2,1]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":1,"s":"é","a":[1,2],"x":null},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":1,"S":"é","a":[1,2]},"effects":["mail"]}`,
		`{"input":{"n":1.5,"i":1,"s":"é","a":[1,2]},"effects":["stock"]}`,
		`{"input":{"n":1.5,"i":1,"s":"é","a":[1,2]},"effects":[]}`,
		`{"input":{"n":1.5,"i":1,"s":"é","a":[1,2]}}`,
		`{"account":"eu",` + base[1:],
	}
	want := fingerprint(t, base)
	for _, doc := range same {
		if got := fingerprint(t, doc); got != want {
			t.Errorf("%s: want the fingerprint of the first, got another", doc)
		}
	}
	seen := map[string]string{want: base}
	for _, doc := range other {
		got := fingerprint(t, doc)
		if twin, ok := seen[got]; ok {
			t.Errorf("%s and %s share a fingerprint", doc, twin)
		}
		seen[got] = doc
	}
	if !strings.HasPrefix(want, "sha256:") || len(want) != len("sha256:")+64 {
		t.Errorf("want sha256 in hex, got %s", want)
	}
}

// A lone surrogate is no text: two of them must not meet in one replacement
// character.
func TestFingerprintRefusesLoneSurrogates(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{`{"input":{"a":"\ud800"}}`, `{"input":{"a":"\udc00x"}}`, `{"input":{"\ud800":1}}`} {
		in, err := ParseIntent([]byte(doc), testProvider, testOp)
		if err == nil {
			_, err = in.Fingerprint()
		}
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%s: want refused, got %v", doc, err)
		}
	}
}

// value draws a JSON value as text; spelling varies, meaning often meets.
func value(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false", `""`}).Draw(t, "word")
		case 1:
			return rapid.StringMatching(`-?(0|[1-9][0-9]{0,16})(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		case 2:
			return rapid.SampledFrom([]string{"1", "1.0", "10e-1", "100", "1e2", "1E+2", "0.1", "1e21", "9007199254740992", "9007199254740993", "5e-324", "4e-324"}).Draw(t, "known number")
		case 3:
			return rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"1"`, `"é"`, `"\u00E9"`, `"<"`, `"\u003c"`, "\"\u2028\"", `"\u2028"`, `"\/"`, `"/"`, `"\ud83d\ude00"`, `"😀"`}).Draw(t, "text")
		case 4:
			return "[" + strings.Join(rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "array"), ",") + "]"
		default:
			return object(depth-1).Draw(t, "object")
		}
	})
}

func object(depth int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "<", "é", "", "10"}), 0, 3, rapid.ID[string]).Draw(t, "keys")
		members := make([]string, len(keys))
		for i, k := range keys {
			members[i] = fmt.Sprintf("%q:%s", k, value(depth).Draw(t, "value"))
		}
		return "{" + strings.Join(members, ",") + "}"
	})
}

// meaning writes a value with its numbers as exact fractions and its keys
// sorted: the dumb way to say what a document says.
func meaning(t *rapid.T, doc string) string {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	var exact func(any) any
	exact = func(v any) any {
		switch v := v.(type) {
		case json.Number:
			r, ok := new(big.Rat).SetString(v.String())
			if !ok {
				t.Fatalf("number %s", v)
			}
			return map[string]string{"number": r.RatString()}
		case []any:
			for i := range v {
				v[i] = exact(v[i])
			}
		case map[string]any:
			for k := range v {
				v[k] = exact(v[k])
			}
		}
		return v
	}
	b, err := json.Marshal(exact(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Two inputs share a fingerprint exactly when they say the same. Without it,
// one of two orders would be answered with the other's outcome.
func TestEqualFingerprintsMeanEqualInputs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := object(2).Draw(t, "one")
		b := rapid.OneOf(object(2), rapid.Just(a), rapid.Just(strings.NewReplacer("1.0", "1", "1e2", "100", `\u0061`, "a").Replace(a))).Draw(t, "other")
		var prints [2]string
		for i, doc := range []string{a, b} {
			in, err := ParseIntent([]byte(`{"input":`+doc+`}`), testProvider, testOp)
			if err != nil {
				return // refused for its numbers
			}
			if prints[i], err = in.Fingerprint(); err != nil {
				t.Fatal(err)
			}
		}
		if wantEqual, gotEqual := meaning(t, a) == meaning(t, b), prints[0] == prints[1]; wantEqual != gotEqual {
			t.Fatalf("%s and %s: same meaning is %v, same fingerprint is %v", a, b, wantEqual, gotEqual)
		}
	})
}

// Whatever is published, ParseIntent neither panics nor takes what could not be
// stored, fingerprinted or read back.
func FuzzParseIntent(f *testing.F) {
	for _, doc := range []string{
		`{"input":{}}`, `{"input":{"a":[1.0,1e21,-5,"é",null,true]},"effects":[],"labels":{"a":"b"}}`,
		`{"operation_id":"op_1","provider":"acme","deadlines":{"start_by":"2026-01-02T15:04:05Z","create":"1m"},"input":{"a":{}}}`,
		`{"input":{"a":"\ud800"}}`, `{"input":{"n":1e400}}`, `{"Input":{}}`, `{"input":{},"input":{}}`, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		in, err := ParseIntent(doc, testProvider, testOp)
		var refused *RefusedError
		if err != nil {
			if !errors.As(err, &refused) || refused.Reason == "" {
				t.Fatalf("want a RefusedError with a reason, got %v", err)
			}
			return
		}
		print, err := in.Fingerprint()
		if err != nil {
			if !errors.As(err, &refused) {
				t.Fatalf("want a RefusedError, got %v", err)
			}
			return
		}
		p := prepare(in.OperationID, full)
		p.Intent = in
		b, err := Encode(Event{ID: "p:1", Subject: OperationSubject(testProvider, in.OperationID), Time: testStart, Data: p})
		if err != nil {
			if len(doc) > EventMaxBytes/6 {
				return // the door moves such an input to the object store
			}
			t.Fatalf("encode: %v", err)
		}
		back, err := Decode(b)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		stored := back.Data.(*Prepared).Intent
		if again, err := stored.Fingerprint(); err != nil || again != print {
			t.Fatalf("fingerprint of what was stored: want %s, got %s (%v)", print, again, err)
		}
		if !bytes.HasPrefix(bytes.TrimSpace(stored.Input), []byte("{")) {
			t.Fatalf("want an object stored, got %.40s", stored.Input)
		}
	})
}
