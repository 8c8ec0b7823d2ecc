package events

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// EffectDue is a side effect that a settled job owes.
type EffectDue struct {
	Name string
	G    int
	N    int       // number of the claim to make, from 1
	At   time.Time // not before
	Key  string    // idempotency key, the same for every claim of (Name, G)
}

// Owed returns the effects that the newest settlement owes, in order of their
// names in the intent. It owes nothing while the outcome is in review, and
// nothing before the public copy of the settlement stands, nothing when a person
// has since called that settlement wrong. A claim without a
// recorded end blocks until its lease is over: whoever holds it may still act.
func (j *Job) Owed() []EffectDue {
	s := j.Announced()
	if s == nil || !s.Public.Set() || s.Settled == nil || !j.State.Settled() || j.Held() != nil {
		return nil
	}
	var due []EffectDue
	for _, name := range s.Settled.Effects {
		e := j.effect(name, s.G)
		d := EffectDue{Name: name, G: s.G, N: 1, At: s.Public.At, Key: EffectKey(j.Operation, name, s.G)}
		if e != nil {
			if e.Done.Set() || e.Dead.Set() {
				continue
			}
			if n := len(e.Claims); n > 0 {
				last := e.Claims[n-1]
				d.N, d.At = last.N+1, last.LeaseUntil
				if last.Ended.Set() {
					d.At = last.RetryAt
				}
			}
		}
		due = append(due, d)
	}
	return due
}

// EffectKey is the idempotency key of an effect: the same for every claim, and
// after any restart or replay.
func EffectKey(op OperationID, name string, g int) string {
	return "eff_" + HashID(string(op), name, strconv.Itoa(g))
}

func (j *Job) effect(name string, g int) *Effect {
	for i := range j.Effects {
		if j.Effects[i].Name == name && j.Effects[i].G == g {
			return &j.Effects[i]
		}
	}
	return nil
}

func (j *Job) joinEffect(data Data, m Mark) {
	switch d := data.(type) {
	case *EffectClaimed:
		c := j.makeEffect(d.Name, d.G).claim(d.N)
		if !c.Set() || m.Seq < c.Seq {
			c.Mark, c.LeaseUntil = m, d.LeaseUntil
		}
	case *EffectAttempted:
		c := j.makeEffect(d.Name, d.G).claim(d.N)
		c.Ended, c.Class = latest(c.Ended, m), firstWord(c.Class, d.Class)
		if d.RetryAt.After(c.RetryAt) {
			c.RetryAt = d.RetryAt
		}
	case *EffectDone:
		e := j.makeEffect(d.Name, d.G)
		e.Done = earliest(e.Done, m)
	case *EffectDead:
		e := j.makeEffect(d.Name, d.G)
		e.Dead, e.Reason = earliest(e.Dead, m), firstWord(e.Reason, d.Reason)
	}
}

func (j *Job) makeEffect(name string, g int) *Effect {
	if e := j.effect(name, g); e != nil {
		return e
	}
	j.Effects = append(j.Effects, Effect{Name: name, G: g})
	slices.SortFunc(j.Effects, func(a, b Effect) int {
		return cmp.Or(cmp.Compare(a.G, b.G), cmp.Compare(a.Name, b.Name))
	})
	return j.effect(name, g)
}

func (e *Effect) claim(n int) *EffectClaim {
	i, ok := slices.BinarySearchFunc(e.Claims, n, func(c EffectClaim, n int) int { return cmp.Compare(c.N, n) })
	if !ok {
		e.Claims = slices.Insert(e.Claims, i, EffectClaim{N: n})
	}
	return &e.Claims[i]
}
