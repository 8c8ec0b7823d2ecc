package events

import (
	"fmt"
	"testing"
	"time"
)

// life is one operation as it mostly goes: 13 events from intent to effect.
func life(s *stage, op OperationID, id string) []Recorded {
	from := len(s.log)
	for _, what := range []any{
		prepare(op, pushing), start(1), accept(1, id), read(id, RemoteQueued), read(id, RemoteRunning), hook(id, RemoteRunning),
		hook(id, RemoteSucceeded), read(id, RemoteSucceeded), settleNow(1), publish(1), &EffectClaimed{Name: "mail", G: 1, N: 1},
		&EffectDone{Name: "mail", G: 1, N: 1, Status: 200}, hook(id, RemoteSucceeded),
	} {
		s.now = s.now.Add(time.Second)
		s.add(op, what)
	}
	return s.log[from:]
}

func BenchmarkFold(b *testing.B) {
	const operations = 1000
	s := newStage(b)
	for i := range operations {
		life(s, OperationID(fmt.Sprintf("op_%d", i)), fmt.Sprintf("j%d", i))
	}
	b.ReportAllocs()
	folded := 0
	for b.Loop() {
		m := NewMemoir()
		for _, rec := range s.log {
			if _, _, err := Apply(m, rec); err != nil {
				b.Fatal(err)
			}
		}
		folded += len(s.log)
	}
	b.ReportMetric(float64(folded)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(folded), "ns/event")
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []Type{TypePrepared, TypeObserved, TypeDeadlinePassed} {
		e := samples()[name]
		b.Run(string(name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Encode(e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []Type{TypePrepared, TypeObserved, TypeDeadlinePassed} {
		doc, err := Encode(samples()[name])
		if err != nil {
			b.Fatal(err)
		}
		b.Run(string(name), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				if _, err := Decode(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDerive(b *testing.B) {
	s := newStage(b)
	life(s, testOp, "j1")
	j := s.job(testOp)
	b.ReportAllocs()
	for b.Loop() {
		if f := j.derive(); f.state != StateSucceeded {
			b.Fatal(f.state)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	s := newStage(b)
	for _, what := range []any{prepare(testOp, pushing), start(1), accept(1, "j1"), read("j1", RemoteRunning)} {
		s.add(testOp, what)
	}
	for _, age := range []time.Duration{0, time.Minute, 24 * time.Hour} {
		b.Run(age.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Next(s.job(testOp), Policy{}, s.now.Add(age), Memory{Polled: s.now.Add(age)})
			}
		})
	}
}
