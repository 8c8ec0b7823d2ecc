package events

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

//go:generate go test -run ^TestTransitionTable$|^TestVerdicts$ -count=1 . -update

// transition is one row of the table: a history, one more line, and what the
// specification says about it in words. Where it leads to is for the code to say.
type transition struct {
	id    string
	given string // lines, separated by ';'
	line  string
	when  string
}

const (
	tokenOne  = "prepare status token; "
	inFlightS = tokenOne + "attempt 1"
	unknownS  = "prepare status lookup; attempt 1; +1m lose 1"
	boundS    = tokenOne + "attempt 1; accept 1 j1"
	aliveS    = boundS + "; read j1 running"
	fetchS    = "prepare status result; attempt 1; accept 1 j1; read j1 succeeded"
	cancelS   = "prepare status token cancel; attempt 1; accept 1 j1; cancel"
	askedS    = unknownS + "; +15m passed create; +24h passed recon; ask"
	doneS     = boundS + "; read j1 succeeded; settle; publish"
	twoJobs   = aliveS + "; found j2"
)

// transitions are in the order of a life. The numbers are the specification's.
func transitions() []transition {
	return []transition{
		{"T1", "", "prepare status token", "the subject is empty"},
		{"T2", "prepare status token", "prepare status token", "there is one: the first stands"},
		{"T4", "prepare status token", "cancel", ""},
		{"T5", "prepare status token start_by=5m", "+5m passed start_by", ""},
		{"T6", "prepare status token", "attempt 1", ""},
		{"T7", inFlightS, "accept 1 j1", ""},
		{"T7", unknownS, "found j1 lookup", ""},
		{"T7", unknownS + "; passed create", "found j1 lookup", ""},
		{"T7", askedS, "accept 1 j1", "the answer comes late"},
		{"T7", unknownS + "; absent 1", "accept 1 j1", "the answer comes after a proof of absence"},
		{"T7", "prepare status callback; attempt 1; lose 1", "webhook j1 running proves=op_1", "it is signed and carries our reference"},
		{"T8", inFlightS + "; answer-says j1 succeeded", "accept 1 j1", "the answer was the outcome"},
		{"T9", inFlightS, "reject 1", ""},
		{"T9", "prepare status token reject-final; attempt 1; lose 1; attempt 2", "reject 2", "an earlier attempt is in doubt, the provider's refusals are final"},
		{"T10", tokenOne + "attempt 1; lose 1; attempt 2", "reject 2", "an earlier attempt is in doubt"},
		{"T11", inFlightS, "lose 1", ""},
		{"T11", inFlightS, "+45s lose 1 lease_expired", "its worker is gone"},
		{"T12", inFlightS, "unsent 1", "nothing else is in doubt"},
		{"T12", inFlightS, "throttle 1 1m", "nothing else is in doubt"},
		{"T12", inFlightS + "; cancel", "unsent 1", "somebody cancelled"},
		{"T12", tokenOne + "attempt 1; lose 1; attempt 2", "unsent 2", "an earlier attempt is in doubt"},
		{"T13", tokenOne + "attempt 1; +1m lose 1", "+1s attempt 2", "the token may be sent again"},
		{"T14", unknownS, "+1m absent 1", "it covers every attempt"},
		{"T14", "prepare status lookup token; attempt 1; lose 1; attempt 2; reject 2", "absent 2", "one attempt was refused, the others are covered"},
		{"T14", unknownS + "; cancel", "absent 1", "somebody cancelled"},
		{"T14", askedS, "absent 1", "it covers every attempt"},
		{"T15", inFlightS, "+15m passed create", ""},
		{"T15", unknownS, "+15m passed create", ""},
		{"T16", unknownS + "; passed create", "+24h passed recon", ""},
		{"T16", "prepare status; attempt 1; +1m lose 1", "+10m passed recon", "there is nothing to reconcile with"},
		{"T17", inFlightS, "cancel", ""},
		{"T17", tokenOne + "attempt 1; lose 1", "cancel", "the token is not sent again"},
		{"T17", unknownS + "; passed create", "cancel", ""},
		{"T18", boundS, "webhook j1 running", ""},
		{"T18", boundS, "read j1 running", ""},
		{"T19", boundS, "webhook j1 succeeded", ""},
		{"T19", aliveS, "webhook j1 failed", ""},
		{"T19", cancelS + "; cancel-call j1", "webhook j1 succeeded", ""},
		{"T19", aliveS + "; passed result", "webhook j1 succeeded", ""},
		{"T19", "prepare status token cancel; attempt 1; accept 1 j1; cancel; cancel-call j1; passed cancel", "webhook j1 cancelled", ""},
		{"T20", aliveS, "read j1 succeeded", "there is nothing to collect"},
		{"T20", "prepare status result; attempt 1; accept 1 j1", "read j1 succeeded", "there is a result"},
		{"T20", boundS + "; webhook j1 succeeded", "read j1 succeeded", ""},
		{"T20", boundS + "; webhook j1 failed; passed confirm; ask", "read j1 succeeded", ""},
		{"T21", aliveS, "read j1 failed", ""},
		{"T21", aliveS, "read j1 cancelled", ""},
		{"T22", boundS + "; webhook j1 failed", "read j1 running", ""},
		{"T22", "prepare status token cancel; attempt 1; accept 1 j1; webhook j1 failed; cancel", "read j1 running", "somebody cancelled: the claim does not hide it"},
		{"T23", boundS + "; webhook j1 failed", "read j1 succeeded", ""},
		{"T24", boundS + "; webhook j1 failed", "webhook j1 succeeded", ""},
		{"T25", boundS + "; webhook j1 failed", "passed confirm", "no read succeeded"},
		{"T25", boundS + "; webhook j1 failed; read j1 running", "passed confirm", "a later read found it alive"},
		{"T26", boundS, "gone j1", ""},
		{"T26", boundS + "; gone j1", "passed confirm", "no good read since"},
		{"T26", boundS + "; gone j1; read j1 running", "passed confirm", "a later read found it alive"},
		{"T27", "prepare status token cancel; attempt 1; accept 1 j1", "cancel", ""},
		{"T27", "prepare status token cancel; attempt 1; accept 1 j1; +1h passed result; ask", "cancel", ""},
		{"T27", boundS, "cancel", "the provider has no cancellation"},
		{"T28", cancelS, "cancel-call j1", ""},
		{"T29", cancelS + "; cancel-call j1", "cancel-ack 1", ""},
		{"T29", cancelS + "; cancel-call j1", "cancel-lost 1", "it may not be repeated"},
		{"T29", "prepare status token cancel cancel-again; attempt 1; accept 1 j1; cancel; cancel-call j1", "cancel-lost 1", "it may be repeated"},
		{"T29", cancelS + "; cancel-call j1", "cancel-unsent 1", ""},
		{"T30", cancelS + "; cancel-call j1; read j1 running", "+1s cancel-refused 1 terminal", ""},
		{"T31", cancelS + "; cancel-call j1", "cancel-refused 1 unsupported", "every call that reached it was refused"},
		{"T32", cancelS + "; cancel-call j1", "read j1 succeeded", ""},
		{"T33", cancelS + "; cancel-call j1", "+10m passed cancel", ""},
		{"T34", cancelS + "; cancel-call j1; +10m passed cancel; ask", "read j1 cancelled", ""},
		{"T35", aliveS, "+1h passed result", ""},
		{"T36", aliveS + "; +1h passed result; ask", "read j1 succeeded", "late outcomes are adopted"},
		{"T36", "prepare status review-late; attempt 1; accept 1 j1; +1h passed result; ask", "read j1 succeeded", "late outcomes are for a person"},
		{"T37", aliveS + "; +1h passed result; ask", "answer extend 1h", ""},
		{"T37", cancelS + "; cancel-call j1; +10m passed cancel; ask", "answer extend 1h", ""},
		{"T37", askedS, "answer extend 1h", ""},
		{"T38", fetchS, "collect 1 1", ""},
		{"T38", fetchS + "; collect 1 1", "stored 1", ""},
		{"T39", fetchS, "unavailable 1 1", "it may come yet"},
		{"T39", fetchS, "unavailable 1 1 final", ""},
		{"T39", fetchS, "invalid 1", ""},
		{"T39", fetchS, "+1h passed collect", ""},
		{"T40", fetchS + "; unavailable 1 1 final; ask", "stored 1", "it came after all"},
		{"T40", fetchS + "; unavailable 1 1 final; ask", "answer retry_collection", ""},
		{"T40", fetchS + "; invalid 1; ask", "answer accept_with_waiver", ""},
		{"T41", doneS, "read j1 failed", "announced"},
		{"T41", boundS + "; read j1 succeeded", "read j1 failed", "not announced yet"},
		{"T41", boundS + "; read j1 failed", "read j1 running run=1", "not announced yet, and run anew"},
		{"T41", doneS, "+1s webhook j1 failed", "announced; only a read may undo it"},
		{"T42", tokenOne + "attempt 1; reject 1; settle; publish", "accept 1 j1", "announced"},
		{"T42", tokenOne + "cancel; settle; publish", "found j1", "announced"},
		{"T43", inFlightS + "; reject 1", "accept 1 j1", "not announced yet"},
		{"T44", aliveS, "found j2", ""},
		{"T44", "@op_2 prepare status token; @op_2 attempt 1; @op_2 accept 1 j1; " + inFlightS, "accept 1 j1", "the job is another operation's"},
		{"T45", twoJobs + "; ask", "answer bind_job j2", ""},
		{"T46", askedS, "answer declare_absent", ""},
		{"T46", askedS, "answer bind_job j1", ""},
		{"T46", askedS, "answer close failed", ""},
		{"T47", boundS + "; +1h passed result; ask; answer close cancelled; settle; publish", "read j1 succeeded", ""},
		{"T47", askedS + "; answer close failed; settle; publish", "found j1", ""},
		{"T48", boundS + "; strange j1 warming; strange j1 warming", "strange j1 warming", "the third time"},
		{"T49", aliveS, "webhook j1 running", "known"},
		{"T50", aliveS, "webhook j1 queued", "overtaken"},
		{"T51", doneS + "; read j1 failed; ask", "answer acknowledge failed", ""},
		{"T51", tokenOne + "attempt 1; reject 1; settle; publish; accept 1 j1; ask", "answer acknowledge facts", "the job goes on"},
		{"T54", boundS, "broken", "an event cannot be read"},
		{"T54", boundS, "critical", "an event of a later version is critical"},
		{"T54", boundS, "unknown", "an event of a later version is not"},
		{"T54", doneS, "broken", "announced: effects wait"},
		{"T55", doneS + "; effect-done mail; effect-done stock", "archive", "nothing is owed"},
		{"T55", doneS + "; effect-done mail; effect-done stock; archive", "read j1 failed", ""},
	}
}

const (
	tableFile  = "DESIGN.md"
	tableBegin = "<!-- begin generated: transitions -->\n"
	tableEnd   = "<!-- end generated: transitions -->\n"
)

// P7: the table that people read is what the code does. Without it, the two would
// drift apart with the first change.
func TestTransitionTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| # | from | event | when | to | owed next |\n|---|---|---|---|---|---|\n")
	for _, x := range transitions() {
		b.WriteString(x.row(t))
	}
	doc, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(doc, []byte(tableBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", tableFile)
	}
	got := string(before) + tableBegin + b.String() + tableEnd + string(after)
	if *update {
		if err := os.WriteFile(tableFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !*update && got != string(doc) {
		t.Errorf("%s is not what the code does: run go generate, and read the difference", tableFile)
	}
}

// row performs the history and the line, and writes what became of it.
func (x transition) row(t *testing.T) string {
	t.Helper()
	s := newStage(t)
	if x.given != "" {
		s = tell(t, x.given)
	}
	from := "–"
	before := *s.job(testOp)
	if x.given != "" {
		from = string(before.State)
	}
	v, err := s.do(x.line)
	if err != nil {
		t.Fatalf("%s: %s: %v", x.id, x.line, err)
	}
	j := s.job(testOp)
	to := fmt.Sprintf("%s (%s)", j.State, j.Why)
	if from == string(j.State) && before.Why == j.Why {
		to = "unchanged"
	}
	event := "an unreadable event"
	if v != VerdictParked && v != VerdictUnknown {
		event = describe(s.log[len(s.log)-1].Event.Data)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", x.id, from, event, x.when, to, s.describe(s.next(testOp, s.read[testOp])))
}

// describe names an event with what tells it from others of its type.
func describe(d Data) string {
	t := string(d.Type())
	switch d := d.(type) {
	case *Observed:
		how := string(d.Reading.Source)
		if d.Reading.Source == SourcePoll {
			how = "read"
		}
		t += fmt.Sprintf(" (%s: %s)", how, d.Reading.State)
	case *DeadlinePassed:
		t += fmt.Sprintf(" (%s)", d.Name)
	case *CancelRefused:
		t += fmt.Sprintf(" (%s)", d.Why)
	case *ReviewResolved:
		t += fmt.Sprintf(" (%s)", d.Action)
	case *ResultUnavailable:
		if d.Final {
			t += " (final)"
		}
	}
	return t
}
