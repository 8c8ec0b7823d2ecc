package events

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Without these bounds, polls would bunch up, hammer a provider, or stop.
func TestNextTick(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		op := OperationID(rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "operation"))
		base := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(time.Hour)).Draw(t, "base"))
		limit := time.Duration(rapid.Int64Range(int64(base), int64(24*time.Hour)).Draw(t, "limit"))
		jitter := rapid.Float64Range(0, 0.9).Draw(t, "jitter")
		after := testStart.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "before")))
		last := testStart
		for i := range 30 {
			tick := nextTick(op, testStart, after, base, limit, jitter)
			if again := nextTick(op, testStart, after, base, limit, jitter); !again.Equal(tick) {
				t.Fatalf("tick %d: want %s again, got %s", i, tick, again)
			}
			if !tick.After(after) || !tick.After(last) {
				t.Fatalf("tick %d: want after %s and %s, got %s", i, after, last, tick)
			}
			whole := limit
			if i < 40 && base <= limit>>i {
				whole = base << i
			}
			least, most := time.Duration(float64(whole)*(1-jitter))-1, time.Duration(float64(whole)*(1+jitter))+1
			if d := tick.Sub(last); d < least || d > most {
				t.Fatalf("interval %d: want %s to %s, got %s", i, least, most, d)
			}
			// Any instant before the tick leads to the same tick.
			if mid := last.Add(tick.Sub(last) / 2); mid.After(after) {
				if again := nextTick(op, testStart, mid, base, limit, jitter); !again.Equal(tick) {
					t.Fatalf("tick %d from between: want %s, got %s", i, tick, again)
				}
			}
			last, after = tick, tick
		}
	})
}

// Without a way past the end of the walk, a very old operation would be polled
// in the past, without pause.
func TestNextTickFarAway(t *testing.T) {
	t.Parallel()
	after := testStart.Add(10 * 365 * 24 * time.Hour)
	got := nextTick(testOp, testStart, after, 2*time.Second, time.Minute, 0.5)
	if d := got.Sub(after); d <= 0 || d > 90*time.Second {
		t.Errorf("ten years later: want up to 90s after, got %s", d)
	}
}

// Without spread, all operations of one minute would be read in one second.
func TestJitterSpreads(t *testing.T) {
	t.Parallel()
	const n, buckets = 10_000, 10
	var count [buckets]int
	for i := range n {
		count[int(dice(OperationID(HashID(string(rune('a'+i%26)), string(rune(i)))), i%7)*buckets)]++
	}
	for b, c := range count {
		if c < n/buckets*8/10 || c > n/buckets*12/10 {
			t.Errorf("tenth %d: want about %d, got %d", b, n/buckets, c)
		}
	}
}
