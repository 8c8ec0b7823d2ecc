package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// A golden file is what a ledger of the first release holds. Without it, a
// renamed field would make old history unreadable, and nobody would notice.
func TestEventGolden(t *testing.T) {
	t.Parallel()
	all := samples()
	for name := range newData {
		if _, ok := all[name]; !ok {
			t.Errorf("%s has no sample", name)
		}
	}
	for name, e := range all {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			got, err := Encode(e)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "events", string(name)+".json")
			if *update {
				writeGolden(t, path, got)
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
			back, err := Decode(bytes.TrimSpace(want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e, back); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
	files, err := filepath.Glob(filepath.Join("testdata", "events", "*.json"))
	if err != nil || (!*update && len(files) != len(newData)) {
		t.Errorf("golden files: want one for each of %d types, got %d (%v)", len(newData), len(files), err)
	}
}

func writeGolden(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Without the required attributes, no other CloudEvents reader takes an event.
func TestCloudEventsAttributes(t *testing.T) {
	t.Parallel()
	for name, e := range samples() {
		b, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		for _, attribute := range []string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"} {
			if v := string(doc[attribute]); v == "" || v == `""` || v == "null" {
				t.Errorf("%s: want attribute %s, got %s", name, attribute, v)
			}
		}
		for attribute := range doc {
			if strings.Trim(attribute, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || len(attribute) > 20 {
				t.Errorf("%s: attribute %q is not a CloudEvents name", name, attribute)
			}
		}
	}
}

// Without the subject, an event of a later version could not even be parked.
func TestDecodeUnknown(t *testing.T) {
	t.Parallel()
	known, err := Encode(samples()[TypeAccepted])
	if err != nil {
		t.Fatal(err)
	}
	want := samples()[TypeAccepted].Subject
	for _, change := range [][2]string{
		{`"dev.pawl.create.accepted.v1"`, `"dev.pawl.create.accepted.v2"`},
		{`"dev.pawl.create.accepted.v1"`, `"dev.pawl.create.adopted.v1"`},
		{`"dev.pawl.create.accepted.v1"`, `"com.example.thing"`},
		{`"specversion":"1.0"`, `"specversion":"2.0"`},
	} {
		e, err := Decode(bytes.Replace(known, []byte(change[0]), []byte(change[1]), 1))
		if !errors.Is(err, ErrUnknownType) || errors.Is(err, ErrInvalidEvent) {
			t.Errorf("%s: want ErrUnknownType alone, got %v", change[1], err)
		}
		if e.Subject != want || e.ID == "" || e.Data != nil {
			t.Errorf("%s: want subject and id kept, got %+v", change[1], e)
		}
	}
}

// Without these refusals, a broken event would be durable for ever and fold to
// something that nobody meant.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	invalid := map[string]func(*Event){
		"no data":              func(e *Event) { e.Data = nil },
		"no id":                func(e *Event) { e.ID = "" },
		"id too long":          func(e *Event) { e.ID = strings.Repeat("x", 513) },
		"id with CRLF":         func(e *Event) { e.ID = "a\r\nNats-Expected-Last-Sequence: 0" },
		"id with NUL":          func(e *Event) { e.ID = "a\x00" },
		"id with tab":          func(e *Event) { e.ID = "a\tb" },
		"id with escape":       func(e *Event) { e.ID = "a\x1b[31m" },
		"id not UTF-8":         func(e *Event) { e.ID = "a\xff" },
		"no time":              func(e *Event) { e.Time = time.Time{} },
		"time beyond RFC 3339": func(e *Event) { e.Time = time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC) },
		"actor too long":       func(e *Event) { e.Actor = strings.Repeat("x", 257) },
		"job subject":          func(e *Event) { e.Subject = JobSubject(testProvider, ref("j1").Key) },
		"settled subject":      func(e *Event) { e.Subject = SettledSubject(testProvider, testOp, 1) },
		"inbox subject":        func(e *Event) { e.Subject = InboxSubject(testProvider, testULID) },
		"wildcard operation":   func(e *Event) { e.Subject = OperationSubject(testProvider, "*") },
		"no attempt number":    func(e *Event) { e.Data = &Accepted{Remote: ref("j1")} },
		"huge attempt number":  func(e *Event) { e.Data = &Accepted{N: AttemptsMax + 1, Remote: ref("j1")} },
		"no remote id":         func(e *Event) { e.Data = &Accepted{N: 1, Remote: RemoteRef{Key: ref("").Key}} },
		"remote id too long":   func(e *Event) { e.Data = accept(1, strings.Repeat("x", RemoteIDMaxBytes+1)) },
		"remote id not UTF-8":  func(e *Event) { e.Data = accept(1, "\xff") },
		"key of another job": func(e *Event) {
			e.Data = &Accepted{N: 1, Remote: RemoteRef{ID: "j1", Account: DefaultAccount, Key: ref("j2").Key}}
		},
		"another job's subject": func(e *Event) { e.Subject, e.Data = JobSubject(testProvider, ref("j1").Key), gone("j2") },
		"another's intent":      func(e *Event) { e.Data = prepare(otherOp, full) },
		"another settlement": func(e *Event) {
			e.Subject, e.Data = SettledSubject(testProvider, testOp, 2), samples()[TypeSettled].Data
		},
		"over the limit":       func(e *Event) { e.Data = &Ambiguous{N: 1, Class: "x", Detail: strings.Repeat("x", EventMaxBytes)} },
		"not a remote state":   func(e *Event) { e.Subject, e.Data = JobSubject(testProvider, ref("j1").Key), read("j1", "melted") },
		"not a clock":          func(e *Event) { e.Data = pass("lunch", 1) },
		"result without value": func(e *Event) { e.Data = &ResultStored{G: 1, N: 1} },
	}
	for _, name := range slices.Sorted(maps.Keys(invalid)) {
		e := samples()[TypeAccepted]
		invalid[name](&e)
		if _, err := Encode(e); !errors.Is(err, ErrInvalidEvent) {
			t.Errorf("%s: want ErrInvalidEvent, got %v", name, err)
		}
	}
}

// Without the same checks after a read, what another writer stored would fold.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	b, err := Encode(samples()[TypeAccepted])
	if err != nil {
		t.Fatal(err)
	}
	subject := samples()[TypeAccepted].Subject.String()
	swap := func(old, new string) []byte { return bytes.Replace(b, []byte(old), []byte(new), 1) }
	for name, doc := range map[string][]byte{
		"empty":             nil,
		"not JSON":          []byte("hello"),
		"null":              []byte("null"),
		"trailing data":     append(slices.Clone(b), '{'),
		"no subject":        swap(subject, ""),
		"foreign subject":   swap(subject, "acme.job."+string(ref("j1").Key)),
		"hostile subject":   swap(subject, "acme.op.>"),
		"no time":           swap(`"time":`, `"tyme":`),
		"data of null":      swap(`"data":{`, `"data":null,"x":{`),
		"no data":           swap(`"data":`, `"date":`),
		"wrong type inside": swap(`"n":1`, `"n":"1"`),
		"too large":         append(slices.Clone(b), bytes.Repeat([]byte(" "), EventMaxBytes)...),
	} {
		if _, err := Decode(doc); !errors.Is(err, ErrInvalidEvent) {
			t.Errorf("%s: want ErrInvalidEvent, got %v", name, err)
		}
	}
}

// Without plain bytes inside an event, the hash of a result that was verified
// before the append would be wrong after a read.
func TestBlobKeepsItsBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"{ \"html\" : \"<a href='x'>&amp;</a>\", \"sep\": \"\u2028\u2029\" }", `"<>&"`, `null`, `[1.0, 1e21, 9007199254740993]`,
		`{"a":"\u003c\ud83d\ude00\/"}`, "\"\u007f\U0001f600\"",
	} {
		blob, err := JSONBlob([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		e := samples()[TypeResultStored]
		e.Data = &ResultStored{G: 1, N: 1, Result: blob}
		b, err := Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		got := back.Data.(*ResultStored).Result
		if !bytes.Equal(blob.Inline, got.Inline) || HexSHA256(got.Inline) != blob.SHA256 || int64(len(got.Inline)) != got.Size {
			t.Errorf("%s: want %s with hash %s, got %s with hash %s", text, blob.Inline, blob.SHA256, got.Inline, HexSHA256(got.Inline))
		}
	}
	if _, err := JSONBlob([]byte(`{"a":`)); err == nil {
		t.Error("half a document: want an error, got none")
	}
}

// Without it, an empty list of effects ("none") would come back as no list
// ("the default").
func TestEmptyEffectsSurvive(t *testing.T) {
	t.Parallel()
	e := samples()[TypePrepared]
	e.Data.(*Prepared).Intent.Effects = []string{}
	b, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.Data.(*Prepared).Intent.Effects; got == nil || len(got) != 0 {
		t.Errorf("want an empty list, got %#v", got)
	}
}

// Whatever stands in a stream, Decode neither panics nor accepts what Encode
// would not write back equally. Without it, a rebuilt ledger could differ.
func FuzzDecode(f *testing.F) {
	for _, e := range samples() {
		b, err := Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrInvalidEvent) && !errors.Is(err, ErrUnknownType) {
				t.Fatalf("want a refusal by name, got %v", err)
			}
			return
		}
		again, err := Encode(e)
		if err != nil {
			if len(b) > EventMaxBytes/6 {
				return // escapes may make it longer than the limit
			}
			t.Fatalf("encode what was decoded: %v", err)
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		third, err := Encode(back)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("round trip: want %s, got %s (%v)", again, third, err)
		}
	})
}
