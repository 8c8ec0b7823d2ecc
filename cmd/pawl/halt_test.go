package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Without the halt, a service whose stream has lost what the bucket already
// holds asks providers again for what it has forgotten.
func TestLostHistoryHalts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := Config{DataDir: dir}.withDefaults()
	store, closeStore, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	// A checkpoint beyond the stream's end is what a truncated stream leaves.
	lost := events.Checkpoint{LedgerID: store.LedgerID(), Seq: 1000, EventID: "gone", FoldVersion: events.FoldVersion}
	if _, _, err := store.Bucket().Commit(t.Context(), nil, lost, 0); err != nil {
		t.Fatal(err)
	}
	closeStore()
	listen := "127.0.0.1:" + freePort(t)
	ctx, stop := context.WithCancel(context.Background())
	log := &buffer{}
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"serve", "--data-dir", dir, "--listen", listen, "--with-demo-provider"}, io.Discard, log)
	}()
	t.Cleanup(func() { stop(); <-done })
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		resp, err := http.Get("http://" + listen + "/readyz")
		if err == nil {
			b, _ := io.ReadAll(resp.Body) // an empty body is not what is awaited
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(b), `"halted"`) {
				break
			}
			if resp.StatusCode == http.StatusOK {
				t.Fatalf("ready on a stream that lost history: %s", b)
			}
		}
		if sleep(wait, readyPause) != nil {
			t.Fatal("the service did not halt\n" + log.String())
		}
	}
	if !strings.Contains(log.String(), "no call leaves") {
		t.Errorf("log: want it to say that no call leaves, got\n%s", log)
	}
}

// Without one place for each broken event, every start and every rebuild would
// note it once more, and a person would see a crowd.
func TestBrokenEventIsNotedOnce(t *testing.T) {
	t.Parallel()
	store, closeStore, err := openStore(t.Context(), Config{DataDir: t.TempDir()}.withDefaults(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeStore)
	role := newProjectorRole(settings{Store: store}, nil)
	for _, rec := range []events.Recorded{
		{Seq: 7, Event: events.Event{Subject: events.OperationSubject("acme", "op_1")}, Err: events.ErrInvalidEvent},
		{Seq: 7, Event: events.Event{Subject: events.OperationSubject("acme", "op_1")}, Err: events.ErrInvalidEvent},
		{Seq: 8, Err: fmt.Errorf("%w: %s", events.ErrInvalidEvent, strings.Repeat("x", 2*parkedReasonMax))},
	} {
		if err := role.park(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	tail, err := store.Tail(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var noted []uint64
	for len(noted) < 2 {
		recs, err := tail.Next(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range recs {
			if d, ok := rec.Event.Data.(*events.EventParked); ok {
				noted = append(noted, d.Seq)
			}
		}
	}
	if last, err := store.LastSeq(t.Context()); err != nil || last != 3 || noted[0] != 7 || noted[1] != 8 {
		t.Errorf("want the genesis and notes of 7 and 8, got %v up to sequence %d (%v)", noted, last, err)
	}
}
