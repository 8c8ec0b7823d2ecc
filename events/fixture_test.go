package events

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The tests of this package tell their histories with the words below: one
// provider, one operation unless a step names another, a clock that moves only
// when a step says so, and a stream that numbers what it is given.

const (
	testProvider = Provider("acme")
	testOp       = OperationID("op_1")
	otherOp      = OperationID("op_2")
	testULID     = "01HZY3M5Q8W0000000000000AB"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Contracts that the tests run under.
var (
	readable = Contract{Status: true}                                   // status, no token, no look-up
	blind    = Contract{Callback: true}                                 // only pushes
	tokened  = Contract{Status: true, Idempotent: true}                 // same token, same job
	findable = Contract{Status: true, Lookup: true}                     // look-up by reference
	fetching = Contract{Status: true, Callback: true, Result: true}     // success carries a result
	pushing  = Contract{Status: true, Callback: true, Idempotent: true} // the usual one
	full     = Contract{Status: true, Lookup: true, Idempotent: true}   // everything
	stubborn = Contract{Status: true, Lookup: true, RejectAuthoritative: true}
)

var testContracts = []Contract{readable, blind, tokened, findable, fetching, pushing, full, stubborn}

func ref(id string) RemoteRef {
	return RemoteRef{ID: id, Account: DefaultAccount, Key: MakeJobKey(testProvider, DefaultAccount, id)}
}

func prepare(op OperationID, c Contract) *Prepared {
	return &Prepared{
		Intent: Intent{
			OperationID: op, Provider: testProvider, Account: DefaultAccount, Input: []byte(`{"prompt":"a"}`),
			Effects: []string{"mail", "stock"}, Labels: map[string]string{"team": "a"},
		},
		Fingerprint: "sha256:" + strings.Repeat("a", 64), Token: string(op),
		Description:   DescriptionRef{Name: string(testProvider), SHA256: strings.Repeat("b", 64)},
		RequestSHA256: strings.Repeat("c", 64), Contract: c, Deadlines: DefaultDeadlines(c),
	}
}

func start(n int) *AttemptStarted       { return &AttemptStarted{N: n} } // the stage fills in the lease
func accept(n int, id string) *Accepted { return &Accepted{N: n, Remote: ref(id)} }
func reject(n int) *Rejected            { return &Rejected{N: n, Class: "invalid_request", Status: 422} }
func lose(n int) *Ambiguous             { return &Ambiguous{N: n, Class: "timeout"} }
func notSend(n int) *NotSent            { return &NotSent{N: n, Class: "dial"} }
func find(id, via string) *ReconFound   { return &ReconFound{Remote: ref(id), Via: via} }
func missing(covers int) *ReconAbsent   { return &ReconAbsent{Covers: covers, AsOf: testStart} }
func pass(c Clock, gen int) *DeadlinePassed {
	return &DeadlinePassed{Name: c, Gen: gen, Due: testStart}
}
func gone(id string) *Gone { return &Gone{Remote: ref(id), Status: 404} }

func hook(id string, s RemoteState) *Observed {
	return &Observed{Remote: ref(id), Reading: Reading{State: s, Source: SourceWebhook}, Delivery: "d"}
}

func read(id string, s RemoteState) *Observed {
	return &Observed{Remote: ref(id), Reading: Reading{State: s, Source: SourcePoll, Authoritative: true}}
}

func rerun(o *Observed, attempt int) *Observed {
	c := *o
	c.Reading.Attempt = attempt
	return &c
}

func prove(o *Observed, op OperationID) *Observed {
	c := *o
	c.Reference = &Reference{Operation: op, Proven: true}
	return &c
}

func keep(g int, value string) *ResultStored {
	b, err := JSONBlob([]byte(value))
	if err != nil {
		panic(err) // a test's own literal
	}
	return &ResultStored{G: g, N: 1, Result: b}
}

// settleNow and publish stand in a history for the decision that the job's own
// facts give, and for its public copy.
type (
	settleNow int
	publish   int
)

// at addresses a payload: a remote job's evidence on its subject, all else on
// the operation's.
func at(op OperationID, d Data) Subject {
	switch kindOf(d.Type()) {
	case SubjectJob:
		return JobSubject(testProvider, refOf(d).Key)
	case SubjectAccount:
		return AccountSubject(testProvider, DefaultAccount)
	}
	return OperationSubject(testProvider, op)
}

// stage is a stream and its fold.
type stage struct {
	t    testing.TB
	view *Memoir
	seq  uint64
	now  time.Time
	log  []Recorded
	late []Recorded                // stored, and not folded yet
	read map[OperationID]time.Time // when the operation was last asked about
}

func newStage(t testing.TB) *stage {
	return &stage{t: t, view: NewMemoir(), now: testStart, read: map[OperationID]time.Time{}}
}

func (s *stage) job(op OperationID) *Job {
	j, err := s.view.Job(testProvider, op)
	if err != nil {
		s.t.Fatalf("view: %v", err)
	}
	return j
}

// record makes the stream's next event out of a step.
func (s *stage) record(op OperationID, what any) Recorded {
	subject := OperationSubject(testProvider, op)
	var d Data
	switch w := what.(type) {
	case settleNow:
		d = s.job(op).Settlement(int(w))
	case publish:
		for _, x := range s.job(op).Settlements {
			if x.G == int(w) {
				d = x.Settled
			}
		}
		subject = SettledSubject(testProvider, op, int(w))
	case *AttemptStarted:
		c := *w
		c.SendBy, c.LeaseUntil = s.now.Add(10*time.Second), s.now.Add(45*time.Second)
		if a := s.job(op).createAction(Policy{}.WithDefaults()); c.Window == 0 && a.N == c.N {
			c.Window = a.Window
		}
		d = &c
	case *CancelStarted:
		c := *w
		c.SendBy, c.LeaseUntil = s.now.Add(10*time.Second), s.now.Add(45*time.Second)
		d = &c
	case *CollectStarted:
		c := *w
		c.SendBy, c.LeaseUntil = s.now.Add(10*time.Second), s.now.Add(45*time.Second)
		d = &c
	case *DeadlinePassed:
		c := *w
		c.Due = s.now
		for _, x := range s.job(op).clocks() {
			if x.name == c.Name {
				c.Due = x.at
			}
		}
		d = &c
	case *EffectClaimed:
		c := *w
		c.Key, c.SendBy, c.LeaseUntil = EffectKey(op, w.Name, w.G), s.now.Add(10*time.Second), s.now.Add(45*time.Second)
		d = &c
	case Data:
		d = w
		subject = at(op, d)
	default:
		s.t.Fatalf("no such step: %T", what)
	}
	s.seq++
	return Recorded{Seq: s.seq, At: s.now, Event: Event{
		ID: fmt.Sprintf("t:%d", s.seq), Subject: subject, Time: s.now, Actor: "test", Data: d,
	}}
}

// add appends a step, checks that it can stand in a stream, and folds it.
func (s *stage) add(op OperationID, what any) Verdict {
	s.t.Helper()
	rec := s.record(op, what)
	b, err := Encode(rec.Event)
	if err != nil {
		s.t.Fatalf("step %d does not encode: %v", rec.Seq, err)
	}
	if rec.Event, err = Decode(b); err != nil {
		s.t.Fatalf("step %d does not decode: %v", rec.Seq, err)
	}
	s.log = append(s.log, rec)
	return s.fold(rec)
}

func (s *stage) fold(rec Recorded) Verdict {
	s.t.Helper()
	_, v, err := Apply(s.view, rec)
	if err != nil {
		s.t.Fatalf("step %d does not fold: %v", rec.Seq, err)
	}
	return v
}

// next is the action that is owed at the stage's present, by a reconciler that
// last read at polled.
func (s *stage) next(op OperationID, polled time.Time) Action {
	return Next(s.job(op), Policy{}, s.now, Memory{Polled: polled})
}
