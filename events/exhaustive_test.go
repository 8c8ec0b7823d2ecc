package events

import (
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// observations are evidence that the state may not depend on the order of. The
// clocks are not among them: whether a read came after a claim is what they ask,
// and a cancellation asks the same.
func observations() []Data {
	return []Data{
		accept(1, "j1"), lose(1), reject(1), notSend(1), &Throttled{N: 1, RetryAt: testStart}, missing(1), find("j2", "lookup"),
		hook("j1", RemoteRunning), hook("j1", RemoteSucceeded), hook("j1", RemoteFailed),
		read("j1", RemoteRunning), read("j1", RemoteSucceeded), rerun(read("j1", RemoteFailed), 1), gone("j1"),
		&Unrecognised{Remote: ref("j1"), Status: "warming", Source: SourcePoll},
		keep(1, `{}`), &ResultInvalid{G: 1, N: 1, Rule: "schema"}, &ResultUnavailable{G: 1, N: 1, Final: true, Reason: "expired"},
	}
}

// P3: without it, two installations that saw the same things would say different
// things about one operation. Small enough to try every order: all sequences,
// with repeats, of up to four observations. PAWL_EXHAUSTIVE=5 tries one more.
func TestStateDependsOnTheSetOfObservations(t *testing.T) {
	t.Parallel()
	longest := 4
	if testing.Short() {
		longest = 3
	}
	if n, err := strconv.Atoi(os.Getenv("PAWL_EXHAUSTIVE")); err == nil {
		longest = n
	}
	total := 0
	for _, c := range []Contract{readable, blind, fetching, full} {
		e := &enumeration{t: t, contract: c, states: map[uint]State{}, all: observations()}
		for _, d := range e.all {
			e.subjects = append(e.subjects, at(testOp, d))
		}
		e.recs = []Recorded{
			{Seq: 1, Event: Event{Subject: OperationSubject(testProvider, testOp), Time: testStart, Data: prepare(testOp, c)}},
			{Seq: 2, Event: Event{Subject: OperationSubject(testProvider, testOp), Time: testStart, Data: &AttemptStarted{N: 1, SendBy: testStart, LeaseUntil: testStart}}},
		}
		e.extend(0, longest)
		total += e.count
	}
	t.Logf("%d sequences of up to %d of %d observations, repeats among them, under 4 contracts: one state for each set", total, longest, len(observations()))
}

// enumeration tries every sequence of observations.
type enumeration struct {
	t        *testing.T
	contract Contract
	all      []Data
	subjects []Subject
	recs     []Recorded
	states   map[uint]State // by the set of observations
	count    int
}

func (e *enumeration) extend(used uint, left int) {
	m := NewMemoir()
	for _, rec := range e.recs {
		if _, _, err := Apply(m, rec); err != nil {
			e.t.Fatal(err)
		}
	}
	e.count++
	j, _ := m.Job(testProvider, testOp)
	want, seen := e.states[used]
	if !seen {
		e.states[used] = j.State
	} else if want != j.State {
		var order []string
		for _, rec := range e.recs {
			order = append(order, describe(rec.Event.Data))
		}
		e.t.Fatalf("contract %+v, order %q: want %s as in another order, got %s", e.contract, order, want, j.State)
	}
	if left == 0 {
		return
	}
	for i, d := range e.all {
		seq := uint64(len(e.recs) + 1)
		e.recs = append(e.recs, Recorded{Seq: seq, Event: Event{
			Subject: e.subjects[i], Time: testStart.Add(time.Duration(seq) * time.Second), Data: d,
		}})
		e.extend(used|1<<i, left-1)
		e.recs = e.recs[:len(e.recs)-1]
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
		&Rejected{N: 1, Class: WhyTokenMismatch}, missing(1), &ResultUnavailable{G: 1, N: 1, Final: true, Reason: "gone"},
		&CancelAcknowledged{N: 1}, &CancelRefused{N: 1, Why: RefusalTerminal}, &CancelRefused{N: 1, Why: RefusalUnsupported},
		&CancelAmbiguous{N: 1, Class: "b"}, &CancelAmbiguous{N: 1, Class: "a"}, &CancelNotSent{N: 1, Class: "a", RetryAt: soon}, &CancelNotSent{N: 1, Class: "a", RetryAt: later},
		&Unrecognised{Remote: ref("j1"), Status: "b", Source: SourcePoll}, &Unrecognised{Remote: ref("j1"), Status: "a", Source: SourcePoll}, &OrphanExpired{Remote: ref("j1")},
	}
}

// P2 over all triples: without it, a tie would be won by whoever came first, and
// a rebuilt record would differ.
func TestTiesDoNotShowTheOrder(t *testing.T) {
	t.Parallel()
	all := twins()
	if testing.Short() {
		all = all[:20]
	}
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
	x, y := *a, *b
	if len(x.Evidence)+len(y.Evidence) == 0 {
		x.Evidence, y.Evidence = nil, nil // emptied and never filled are the same
	}
	return reflect.DeepEqual(x, y)
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
