package main

import (
	"testing"
	"time"
)

// Without the same life from the same seed, a failure could not be looked at.
func TestSameSeedSameSchedule(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 150; seed++ {
		a, b := play(seed, defect{}, nil), play(seed, defect{}, nil)
		if a.hash != b.hash || a.points != b.points || a.kills != b.kills {
			t.Fatalf("seed %d: want the same again, got %+v and %+v", seed, a, b)
		}
	}
}

// A short run of what the command does for hours.
func TestSchedules(t *testing.T) {
	t.Parallel()
	n := uint64(1500)
	if testing.Short() {
		n = 150
	}
	for seed := uint64(1_000_000); seed < 1_000_000+n; seed++ {
		if o := play(seed, defect{}, nil); len(o.violations) > 0 {
			t.Errorf("seed %d: %s (go run ./cmd/sim -seed %d)", seed, o.violations[0], seed)
		}
	}
}

// calm is a life without faults, so that the one that is planted is seen alone.
func calm(provider string, more func(h *habits)) func(h *habits) {
	return func(h *habits) {
		*h = habits{
			provider: provider, operations: 1, processes: 1, workers: 1, swap: h.swap, lag: time.Second, duration: time.Minute,
			delayHook: time.Second, targetKeyed: true, pauseMax: time.Minute,
		}
		if more != nil {
			more(h)
		}
	}
}

// Every place of a life is one where kill -9 may hit. Swarms of random kills miss
// some; a small life has few enough to try each, before and after the effect.
func TestEveryCrashPoint(t *testing.T) {
	t.Parallel()
	lives := map[string]func(h *habits){
		"token":                        nil,
		"token, the answer is dropped": func(h *habits) { h.dropAnswer = 0.5 },
		"seek, the answer is dropped":  func(h *habits) { h.dropAnswer = 0.5 },
		"push":                         nil,
		"push, webhooks twice":         func(h *habits) { h.twiceHook = 1 },
		"token, two processes":         func(h *habits) { h.processes, h.workers = 2, 2 },
		"token, all webhooks are lost": func(h *habits) { h.mute = true },
		"seek, the target fails":       func(h *habits) { h.targetBusy, h.targetDrops = 0.4, 0.4 },
	}
	for name, more := range lives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := name[:4]
			if kind == "toke" {
				kind = "token"
			}
			whole := play(7, defect{habits: calm(kind, more)}, nil)
			if len(whole.violations) > 0 {
				t.Fatalf("without a kill: %s", whole.violations[0])
			}
			step := 1
			if testing.Short() {
				step = 7
			}
			killed := 0
			for at := 1; at <= whole.points; at += step {
				o := play(7, defect{habits: calm(kind, more), killAt: at}, nil)
				killed += o.kills
				if len(o.violations) > 0 {
					t.Errorf("killed at point %d of %d: %s", at, whole.points, o.violations[0])
				}
			}
			if killed < whole.points/step/3 {
				t.Errorf("%d points, only %d kills", whole.points, killed)
			}
			t.Logf("%d points, %d kills", whole.points, killed)
		})
	}
}
