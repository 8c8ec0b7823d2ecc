package events

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// observations are evidence that the state may not depend on the order of. The
// clocks are not among them: whether a read came after a claim is what they ask.
func observations() []Data {
	return []Data{
		accept(1, "j1"),
		lose(1),
		find("j2", "lookup"),
		hook("j1", RemoteRunning),
		hook("j1", RemoteSucceeded),
		hook("j1", RemoteFailed),
		read("j1", RemoteRunning),
		read("j1", RemoteSucceeded),
		rerun(read("j1", RemoteFailed), 1),
		keep(1, `{}`),
	}
}

// P3: without it, two installations that saw the same things would say
// different things about one operation. Small enough to try every order.
func TestStateDependsOnTheSetOfObservations(t *testing.T) {
	t.Parallel()
	const longest = 5
	all := observations()
	permutations := 0
	for _, c := range []Contract{readable, blind, fetching, full} {
		states := map[uint]State{}
		recs := []Recorded{
			{Seq: 1, Event: Event{Subject: OperationSubject(testProvider, testOp), Time: testStart, Data: prepare(testOp, c)}},
			{Seq: 2, Event: Event{Subject: OperationSubject(testProvider, testOp), Time: testStart, Data: &AttemptStarted{N: 1, SendBy: testStart, LeaseUntil: testStart}}},
		}
		var extend func(used uint)
		extend = func(used uint) {
			m := NewMemoir()
			for _, rec := range recs {
				if _, _, err := Apply(m, rec); err != nil {
					t.Fatal(err)
				}
			}
			permutations++
			j, _ := m.Job(testProvider, testOp)
			want, seen := states[used]
			if !seen {
				states[used] = j.State
			} else if want != j.State {
				var order []string
				for _, rec := range recs {
					order = append(order, describe(rec.Event.Data))
				}
				t.Fatalf("contract %+v, order %q: want %s as in another order, got %s", c, order, want, j.State)
			}
			if len(recs) == longest+2 {
				return
			}
			for i, d := range all {
				if used&(1<<i) != 0 {
					continue
				}
				seq := uint64(len(recs) + 1)
				recs = append(recs, Recorded{Seq: seq, Event: Event{
					Subject: at(testOp, d), Time: testStart.Add(time.Duration(seq) * time.Second), Data: d,
				}})
				extend(used | 1<<i)
				recs = recs[:len(recs)-1]
			}
		}
		extend(0)
	}
	t.Logf("%d permutations of up to %d of %d observations, under 4 contracts", permutations, longest, len(all))
}

func describe(d Data) string {
	switch d := d.(type) {
	case *Observed:
		return fmt.Sprintf("%s %s", d.Reading.Source, d.Reading.State)
	case *DeadlinePassed:
		return fmt.Sprintf("%s passed", d.Name)
	default:
		return string(d.Type())
	}
}

// twins are events that say nearly the same: the joins must choose between them
// by what they say, not by which came first.
func twins() []Data {
	soon, later := testStart.Add(time.Minute), testStart.Add(time.Hour)
	return []Data{
		&Rejected{N: 1, Class: "a", Code: "1"}, &Rejected{N: 1, Class: "a", Code: "2"}, &Rejected{N: 1, Class: "b"},
		&PollDeferred{Remote: ref("j1"), Until: later, Reason: "b"}, &PollDeferred{Remote: ref("j1"), Until: later, Reason: "a"},
		&PollDeferred{Remote: ref("j1"), Until: soon, Reason: "a"},
		accept(1, "j1"), find("j2", "lookup"), find("j1", "callback"),
		&Throttled{N: 1, RetryAt: soon}, &Throttled{N: 1, RetryAt: later},
		&Ambiguous{N: 1, Class: "b"}, &Ambiguous{N: 1, Class: "a"},
		pass(ClockConfirm, 1), pass(ClockConfirm, 2), pass(ClockCollect, 1),
		keep(1, `{"n":1}`), keep(1, `{"n":2}`), &ResultInvalid{G: 1, N: 1, Rule: "b"}, &ResultInvalid{G: 1, N: 2, Rule: "a"},
		hook("j1", RemoteFailed), read("j1", RemoteFailed), read("j1", RemoteRunning), gone("j1"),
	}
}

// P2 over all triples: without it, a tie would be won by whoever came first, and
// a rebuilt record would differ.
func TestTiesDoNotShowTheOrder(t *testing.T) {
	t.Parallel()
	all := twins()
	orders := [][3]int{{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
	compared := 0
	for a := range all {
		for b := range all {
			for c := range all {
				var recs []Recorded
				for i, d := range []Data{all[a], all[b], all[c]} {
					recs = append(recs, Recorded{Seq: uint64(i + 1), Event: Event{
						Subject: at(testOp, d), Time: testStart.Add(time.Duration(i) * time.Second), Data: d,
					}})
				}
				want, _ := unguarded(recs)
				for _, o := range orders {
					compared++
					got, _ := unguarded([]Recorded{recs[o[0]], recs[o[1]], recs[o[2]]})
					if !equalJobs(want, got) {
						t.Fatalf("%d, %d, %d in order %v (-in stream order +permuted):\n%s", a, b, c, o, cmp.Diff(want, got))
					}
				}
			}
		}
	}
	t.Logf("%d permutations of triples out of %d events", compared, len(all))
}

func equalJobs(a, b *Job) bool {
	x, errX := EncodeRecord(a)
	y, errY := EncodeRecord(b)
	return errX == nil && errY == nil && SameBytes(x, y)
}

// Without a round trip of the record, a job read back from the bucket would
// fold on from other facts.
func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	life(s, testOp, "j1")
	want := s.job(testOp)
	want.Plan(Policy{}, s.now)
	b, err := EncodeRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeJob(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job (-want +got):\n%s", diff)
	}
	r, err := s.view.Remote(testProvider, ref("j1").Key)
	if err != nil {
		t.Fatal(err)
	}
	if b, err = EncodeRecord(r); err != nil {
		t.Fatal(err)
	}
	back, err := DecodeRemote(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, back); diff != "" {
		t.Errorf("remote (-want +got):\n%s", diff)
	}
}
