package events

import (
	"hash/fnv"
	"math"
	"time"
)

// nextTick is the smallest t_k after the given instant in a schedule whose
// intervals grow from base, doubling, up to limit, each varied by jitter:
//
//	t_k = t0 + Σ(i=0..k) base·2^i·(1 ± jitter(op, i))        while base·2^i < limit
//	t_k = T + n·limit + limit·(±jitter/2)(op, k), n = 1, 2 …  after that, T the last t
//
// It is a pure function: whoever computes it, after any restart, gets the same
// instants, so polls neither bunch up nor need a stored counter. It costs the
// same for an operation of any age.
func nextTick(op OperationID, t0, after time.Time, base, limit time.Duration, jitter float64) time.Time {
	base, limit = max(base, 1), max(limit, 1)
	t, grown := t0, 0
	for d := base; d < limit; d *= 2 {
		t = t.Add(step(op, grown, base, limit, jitter))
		if t.After(after) {
			return t
		}
		grown++
		if d > limit/2 {
			break
		}
	}
	for n := max(1, int64(after.Sub(t)/limit)); ; n++ { // at most two rounds
		wander := time.Duration(float64(limit) * jitter * (dice(op, grown+int(n)) - 0.5))
		if tick := t.Add(time.Duration(n)*limit + wander); tick.After(after) {
			return tick
		}
	}
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
