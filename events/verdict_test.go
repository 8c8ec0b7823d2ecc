package events

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// situations are histories that lead to each state, for each of its reasons.
func situations() []string {
	return []string{
		"prepare status token cancel",
		"prepare status token cancel; attempt 1",
		"prepare status lookup cancel; attempt 1; lose 1",
		"prepare status token cancel; attempt 1; lose 1; attempt 2; reject 2",
		"prepare status lookup; attempt 1; lose 1; passed create",
		"prepare status token cancel; attempt 1; accept 1 j1",
		"prepare status token cancel; attempt 1; accept 1 j1; read j1 running",
		"prepare callback; attempt 1; accept 1 j1; webhook j1 running",
		cancelS,
		cancelS + "; cancel-call j1",
		boundS + "; webhook j1 failed",
		boundS + "; webhook j1 failed; webhook j1 succeeded",
		fetchS,
		fetchS + "; collect 1 1",
		boundS + "; read j1 succeeded",
		doneS,
		fetchS + "; invalid 1; asked result_invalid; resolve accept_with_waiver; settle; publish",
		boundS + "; read j1 failed",
		boundS + "; read j1 cancelled; settle; publish",
		inFlightS + "; reject 1",
		inFlightS + "; reject 1; settle; publish",
		"prepare status token; cancel",
		"prepare status token start_by=1m; passed start_by; settle; publish",
		askedS + "; answer close failed",
		boundS + "; +1h passed result; ask; answer close cancelled; settle; publish",
		"webhook j1 running proves=op_1",
		unknownS + "; passed create; passed recon",
		"prepare status token; asked request_changed",
		inFlightS + "; reject 1 token_payload_mismatch",
		boundS + "; webhook j1 failed; passed confirm",
		boundS + "; gone j1; passed confirm",
		boundS + "; read j1 failed; read j1 succeeded",
		"prepare status review-late; attempt 1; accept 1 j1; passed result; read j1 succeeded",
		boundS + "; broken",
		boundS + "; passed result",
		cancelS + "; cancel-call j1; passed cancel",
		fetchS + "; unavailable 1 1 final",
		fetchS + "; invalid 1",
		twoJobs,
		"@op_2 prepare status token; @op_2 attempt 1; @op_2 accept 1 j1; " + boundS,
		doneS + "; read j1 failed",
		doneS + "; read j1 failed; asked contradicts_the_announced; resolve acknowledge failed; settle; publish",
		doneS + "; effect-done mail; effect-done stock; archive",
	}
}

// lines are one event of each type, more where it says different things. What
// stands on other subjects than those of operations and jobs comes from samples.
func lines() []string {
	return []string{
		"prepare status token cancel", "attempt 1", "attempt 3", "accept 1 j1", "accept 1 j2", "reject 1", "lose 1", "unsent 1", "throttle 1 1m",
		"found j1", "found j2", "absent 1", "absent 3", "unfound",
		"webhook j1 queued", "webhook j1 running", "webhook j1 succeeded", "webhook j1 failed", "webhook j1 running run=1", "webhook j2 running proves=op_1",
		"read j1 running", "read j1 succeeded", "read j1 failed", "read j1 cancelled", "read j1 running run=1", "read j1 failed run=1",
		"strange j1 warming", "gone j1", "defer j1 10m", "audit j1",
		"passed start_by", "passed create", "passed recon", "passed result", "passed cancel", "passed confirm", "passed collect",
		"cancel", "cancel-call j1", "cancel-ack 1", "cancel-refused 1 terminal", "cancel-refused 1 unsupported", "cancel-lost 1", "cancel-unsent 1",
		"collect 1 1", "stored 1", "unavailable 1 1", "unavailable 1 1 final", "invalid 1",
		"settled-as succeeded", "settled-as failed", "asked create_unresolved",
		"resolve bind_job j1", "resolve bind_job j2", "resolve declare_absent", "resolve extend 1h", "resolve retry_collection", "resolve accept_with_waiver",
		"resolve close failed", "resolve acknowledge cancelled", "resolve acknowledge facts", "resolve approve_foreign_cancel j2", "resolve dismiss 4",
		"effect-claim mail", "effect-failed mail", "effect-done mail", "effect-dead mail",
		"note asked the provider", "archived", "orphan-expired j1", "hold", "release", "broken", "critical", "unknown", "broken-copy 1", "critical-news j1",
	}
}

// Without an answer for each state and each event, the one that nobody thought
// of decides what happens to an order.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	states, types := map[State]bool{}, map[Type]bool{}
	pairs := 0
	for _, given := range situations() {
		s := tell(t, given)
		states[s.job(testOp).State] = true
		fmt.Fprintf(&out, "%s\n= %s\n", given, s.trace(testOp))
		want := s.trace(testOp)
		same := map[Verdict][]string{}
		for _, line := range lines() {
			s := tell(t, given)
			v, err := s.do(line)
			if err != nil {
				t.Fatalf("%s; %s: %v", given, line, err)
			}
			if d := s.log[len(s.log)-1].Event.Data; d != nil {
				types[d.Type()] = true
			}
			pairs++
			after := s.trace(testOp)
			if after == want {
				same[v] = append(same[v], line)
				continue
			}
			fmt.Fprintf(&out, "    %-36s %-8s %s\n", line, v, after)
		}
		for _, v := range Verdicts() {
			if len(same[v]) > 0 {
				fmt.Fprintf(&out, "    as before, %s: %s\n", v, strings.Join(same[v], "; "))
			}
		}
	}
	for _, name := range []Type{TypeGenesis, TypeIntentRefused, TypeUnreadable, TypeParked} {
		e := samples()[name]
		_, v, err := Apply(NewMemoir(), Recorded{Seq: 1, Event: e})
		if err != nil {
			t.Fatal(err)
		}
		types[name] = true
		fmt.Fprintf(&out, "%-40s %s\n", name, v)
	}
	golden(t, filepath.Join("testdata", "verdicts.txt"), []byte(out.String()))
	for _, st := range States() {
		if !states[st] {
			t.Errorf("no situation leads to %s", st)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(newData)) {
		if !types[name] {
			t.Errorf("no line is a %s", name)
		}
	}
	t.Logf("%d situations, %d lines, %d pairs", len(situations()), len(lines()), pairs)
}

// tell performs a history of lines that are separated by ';'.
func tell(t *testing.T, given string) *stage {
	t.Helper()
	s := newStage(t)
	for line := range strings.SplitSeq(given, ";") {
		if _, err := s.do(strings.TrimSpace(line)); err != nil {
			t.Fatalf("%s: %s: %v", given, line, err)
		}
	}
	return s
}
