package events

import (
	"testing"
	"time"
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
