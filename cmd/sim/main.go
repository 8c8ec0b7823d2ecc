package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// common is parsed once for all schedules.
var common *shared

func main() {
	os.Exit(run())
}

func run() int {
	schedules := flag.Uint64("schedules", 10_000, "how many schedules to run")
	budget := flag.Duration("budget", 0, "stop after this time; 0: when the schedules are done")
	least := flag.Int("at-least", 0, "fail when a budget ends before this many schedules")
	first := flag.Uint64("first", 1, "seed of the first schedule")
	seed := flag.Uint64("seed", 0, "run this one schedule and tell it; 0: many")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "schedules at a time")
	flag.Parse()
	debug.SetGCPercent(400) // short lives, little memory
	var err error
	if common, err = newShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if *seed != 0 {
		o := play(*seed, defect{}, os.Stdout)
		fmt.Printf("seed %d: %d events, %d kills, %d violations\n", *seed, o.events, o.kills, len(o.violations))
		return min(len(o.violations), 1)
	}
	began := time.Now()
	t := many(*first, *schedules, *workers, func() bool { return *budget > 0 && time.Since(began) > *budget })
	for _, o := range t.bad {
		fmt.Printf("seed %d: %s\n  reproduce: go run ./cmd/sim -seed %d\n", o.seed, o.violations[0], o.seed)
	}
	rate := float64(t.schedules) / time.Since(began).Seconds()
	fmt.Printf("%d schedules from seed %d, %d crashes at %d points, %d events, %.0f schedules/s, %d violations\n",
		t.schedules, *first, t.kills, t.points, t.events, rate, len(t.bad))
	switch {
	case len(t.bad) > 0:
		return 1
	case t.schedules < *least:
		fmt.Fprintf(os.Stderr, "only %d schedules, want at least %d: give it more time (-budget) or a quieter machine\n", t.schedules, *least)
		return 1
	default:
		return 0
	}
}

// tally sums up many schedules.
type tally struct {
	schedules, kills, events, points int
	bad                              []outcome // at most badMax
}

const badMax = 20

// many plays the schedules from a first seed, several at a time, until they are
// done, enough are bad, or stop says so.
func many(first, n uint64, workers int, stop func() bool) tally {
	var next atomic.Uint64
	var mu sync.Mutex
	var wg sync.WaitGroup
	var t tally
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := next.Add(1) - 1
				if i >= n || stop() {
					return
				}
				o := play(first+i, defect{}, nil)
				mu.Lock()
				t.schedules++
				t.kills += o.kills
				t.events += o.events
				t.points += o.points
				if len(o.violations) > 0 {
					t.bad = append(t.bad, o)
				}
				enough := len(t.bad) >= badMax
				mu.Unlock()
				if enough {
					return
				}
			}
		}()
	}
	wg.Wait()
	return t
}
