package events

import (
	"hash/fnv"
	"math"
	"time"
)

// scheduleSteps bounds the walk along a schedule: a week of one-minute polls.
const scheduleSteps = 10_080

// nextTick is the smallest t_k after the given instant in the schedule
//
//	t_k = t0 + Σ(i=0..k) min(base·2^i, limit)·(1 ± jitter(op, i))
//
// It is a pure function: whoever computes it, after any restart, gets the same
// instants, so polls neither bunch up nor need a stored counter.
func nextTick(op OperationID, t0, after time.Time, base, limit time.Duration, jitter float64) time.Time {
	t := t0
	for i := range scheduleSteps {
		t = t.Add(step(op, i, base, limit, jitter))
		if t.After(after) {
			return t
		}
	}
	return after.Add(step(op, scheduleSteps, base, limit, jitter))
}

// step is the i-th interval (from 0) of an operation's schedule.
func step(op OperationID, i int, base, limit time.Duration, jitter float64) time.Duration {
	d := min(base, limit)
	for n := i; n > 0 && d < limit; n-- {
		d = min(d, limit-d) + d // doubled, without overflow
	}
	return time.Duration(float64(d) * (1 + jitter*(2*dice(op, i)-1)))
}

// dice is a number in [0, 1) that depends on nothing but its arguments.
func dice(op OperationID, i int) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(op)) // a hash never fails
	_, _ = h.Write([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	x := h.Sum64()
	x ^= x >> 33 // FNV's high bits move little between neighbours
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / math.Exp2(53)
}

// Backoff is the n-th pause (from 0) of a growing schedule with jitter, the
// same for whoever computes it.
func Backoff(op OperationID, n int, base, limit time.Duration) time.Duration {
	return step(op, n, base, limit, 0.5)
}
