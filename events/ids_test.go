package events

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// hostileIDs would leave their token of a subject, a header or a log line.
func hostileIDs() []string {
	return []string{
		"", "*", ">", "a.b", ".", "a b", " a", "a ", "a\r\nb", "a\n", "a\x00", "\x7f", "é", "日本", "a/b", "a\\b",
		"$SYS", "a\u200b", "\xff", "a*", "a>", "%2e", strings.Repeat("a", 5<<10),
	}
}

// Without the alphabet, an id from outside would be a wildcard or another
// operation's subject.
func TestParseRefusesHostileIDs(t *testing.T) {
	t.Parallel()
	parsers := map[string]func(string) error{
		"provider":  func(s string) error { _, err := ParseProvider(s); return err },
		"operation": func(s string) error { _, err := ParseOperationID(s); return err },
		"job key":   func(s string) error { _, err := ParseJobKey(s); return err },
		"subject of an operation": func(s string) error {
			_, err := ParseSubject(OperationSubject(testProvider, OperationID(s)).String())
			return err
		},
		"subject of a job": func(s string) error { _, err := ParseSubject(JobSubject(testProvider, JobKey(s)).String()); return err },
		"subject of a settlement": func(s string) error {
			_, err := ParseSubject(SettledSubject(testProvider, OperationID(s), 1).String())
			return err
		},
		"subject of the inbox": func(s string) error { _, err := ParseSubject(InboxSubject(testProvider, s).String()); return err },
		"subject of a provider": func(s string) error {
			_, err := ParseSubject(OperationSubject(Provider(s), testOp).String())
			return err
		},
	}
	for name, parse := range parsers {
		for _, s := range hostileIDs() {
			if err := parse(s); !errors.Is(err, ErrInvalidID) {
				t.Errorf("%s %.20q: want ErrInvalidID, got %v", name, s, err)
			} else if len(err.Error()) > 600 {
				t.Errorf("%s %.20q: want a short error, got %d bytes", name, s, len(err.Error()))
			}
		}
	}
	for name, s := range map[string]string{
		"provider": "Acme", "operation": strings.Repeat("a", 65), "job key": strings.Repeat("A", 26),
	} {
		if err := parsers[name](s); !errors.Is(err, ErrInvalidID) {
			t.Errorf("%s %q: want ErrInvalidID, got %v", name, s, err)
		}
	}
}

// Without an exact way back, an event would be filed under another subject than
// the one it says.
func TestSubjectRoundTrip(t *testing.T) {
	t.Parallel()
	key := ref("j1").Key
	tests := []struct {
		text string
		want Subject
		op   OperationID
		job  JobKey
	}{
		{"acme.op.op_1", OperationSubject(testProvider, testOp), testOp, ""},
		{"acme.job." + string(key), JobSubject(testProvider, key), "", key},
		{"acme.settled.op_1.12", SettledSubject(testProvider, testOp, 12), testOp, ""},
		{"acme.inbox." + testULID, InboxSubject(testProvider, testULID), "", ""},
		{"ledger.genesis", GenesisSubject(), "", ""},
		{"ledger.op.x", OperationSubject("ledger", "x"), "x", ""},
	}
	for _, tt := range tests {
		got, err := ParseSubject(tt.text)
		if err != nil || got != tt.want || got.String() != tt.text {
			t.Errorf("%s: want %+v, got %+v (%v)", tt.text, tt.want, got, err)
		}
		if got.Operation() != tt.op || got.Job() != tt.job {
			t.Errorf("%s: want operation %q and job %q, got %q and %q", tt.text, tt.op, tt.job, got.Operation(), got.Job())
		}
	}
	for _, text := range []string{
		"", "acme", "acme.op", "acme.op.op_1.1", "acme.settled.op_1", "acme.settled.op_1.0", "acme.settled.op_1.01",
		"acme.settled.op_1.+1", "acme.settled.op_1.x", "acme.settled.op_1.99999999999999999999", "acme.settled.op_1.1.1",
		"acme.other.op_1", "ledger.other", "ledger.genesis.x", ".op.op_1",
	} {
		if got, err := ParseSubject(text); !errors.Is(err, ErrInvalidID) || got != (Subject{}) {
			t.Errorf("%q: want ErrInvalidID and nothing else, got %+v (%v)", text, got, err)
		}
	}
}

// Without separation, two jobs of two accounts would share one record, and one
// provider's id could be built to meet another's.
func TestMakeJobKey(t *testing.T) {
	t.Parallel()
	seen := map[JobKey][3]string{}
	for _, parts := range [][3]string{
		{"a", "bc", "d"}, {"ab", "c", "d"}, {"a", "b", "cd"}, {"a", "", "bcd"}, {"a", "bcd", ""},
		{"a", "b\x00c", "d"}, {"a", "b", "c\x00d"}, {"a", "1:b", "d"}, {"a", "1:", "bd"}, {"a", "B", "cd"},
		{"a", "b", ">"}, {"a", "b", "*.x y\r\n"}, {"a", "b", strings.Repeat("x", 5<<10)},
	} {
		key := MakeJobKey(Provider(parts[0]), parts[1], parts[2])
		if _, err := ParseJobKey(string(key)); err != nil {
			t.Errorf("%.40q: want a key, got %q (%v)", parts, key, err)
		}
		if again := MakeJobKey(Provider(parts[0]), parts[1], parts[2]); again != key {
			t.Errorf("%.40q: want %s again, got %s", parts, key, again)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%.40q and %.40q share key %s", parts, other, key)
		}
		seen[key] = parts
	}
	if HashID("a", "b") == HashID("a\x00b") || HashID("a", "bc") == HashID("ab", "c") || HashID("a") == HashID("a", "") {
		t.Error("want parts of any content apart, got one hash for two lists")
	}
	// The key of a job never changes: it is in the subjects of every ledger.
	if want, got := JobKey("goohkh2orcmih4trmyi5ulpbju"), MakeJobKey("acme", "default", "j1"); want != got {
		t.Errorf("key of acme, default, j1: want %s, got %s", want, got)
	}
}

// Without the prefix and a good alphabet, an id that we make would not be one
// that we take.
func TestNewOperationID(t *testing.T) {
	t.Parallel()
	id, err := NewOperationID(testStart, bytes.NewReader(make([]byte, 10)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseOperationID(string(id)); err != nil || !strings.HasPrefix(string(id), "op_") {
		t.Errorf("want an operation id, got %q (%v)", id, err)
	}
	if _, err := NewOperationID(testStart, bytes.NewReader(nil)); err == nil {
		t.Error("without entropy: want an error, got none")
	}
}

// Without every part in the mac, a callback URL of one operation would prove
// another; without hiding, the key would reach a log.
func TestCallback(t *testing.T) {
	t.Parallel()
	key := NewSecret("k1")
	path := CallbackPath(key, testProvider, "default", testOp)
	mac := path[strings.LastIndexByte(path, '/')+1:]
	if want := "/webhooks/acme/op_1/" + mac; path != want || len(mac) != 32 {
		t.Errorf("path: want %s with a mac of 32, got %s", want, path)
	}
	if !VerifyCallback(key, testProvider, "default", testOp, mac) {
		t.Error("want the own mac verified, got refused")
	}
	for name, ok := range map[string]bool{
		"key":       VerifyCallback(NewSecret("k2"), testProvider, "default", testOp, mac),
		"provider":  VerifyCallback(key, "other", "default", testOp, mac),
		"account":   VerifyCallback(key, testProvider, "other", testOp, mac),
		"operation": VerifyCallback(key, testProvider, "default", otherOp, mac),
		"mac":       VerifyCallback(key, testProvider, "default", testOp, mac[1:]+"a"),
		"nothing":   VerifyCallback(key, testProvider, "default", testOp, ""),
	} {
		if ok {
			t.Errorf("another %s: want refused, got verified", name)
		}
	}
	if b, err := marshal(map[string]any{"secret": key}); err != nil || strings.Contains(string(b), "k1") {
		t.Errorf("marshalled: want the key hidden, got %s (%v)", b, err)
	}
}
