package reconciler

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// reluctant is a ledger and an object store that refuse a number of times.
type reluctant struct {
	events.Decider
	events.Reader
	refuse int // evidence
	stored []events.Event
}

func (l *reluctant) Record(_ context.Context, e events.Event) (events.Appended, error) {
	if l.refuse > 0 {
		l.refuse--
		return events.Appended{}, fmt.Errorf("%w: full", events.ErrUnavailable)
	}
	l.stored = append(l.stored, e)
	return events.Appended{Outcome: events.Stored, Seq: uint64(len(l.stored))}, nil
}

func (l *reluctant) Put(context.Context, []byte) (string, error) {
	return "", fmt.Errorf("%w: full", events.ErrUnavailable)
}

func (l *reluctant) Get(context.Context, string) ([]byte, error) { return nil, events.ErrNotFound }

func answering(t *testing.T, l *reluctant) *step {
	t.Helper()
	data, err := provider.Builtin("generic")
	if err != nil {
		t.Fatal(err)
	}
	d, err := provider.Parse("generic", data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := provider.New(d, provider.Settings{Name: "acme", BaseURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r := New(Config{
		Ledger: l, Objects: l, Provider: p, Now: time.Now, Entropy: rand.Reader, Logger: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry(), []events.Provider{"acme"}),
	})
	j := events.NewJob("acme", "op-1")
	j.Prepared.Account = events.DefaultAccount
	return &step{r: r, job: j, action: events.Action{Kind: events.ActCreate, N: 1}}
}

func (l *reluctant) accepted() bool {
	for _, e := range l.stored {
		if _, ok := e.Data.(*events.Accepted); ok {
			return true
		}
	}
	return false
}

// Without trying again, one refusal of the store loses the only trace of a job
// that the provider has made.
func TestAcceptedAnswerOutlastsARefusal(t *testing.T) {
	t.Parallel()
	l := &reluctant{refuse: 1}
	if err := answering(t, l).recordAnswer(t.Context(), provider.CreateAnswer{Kind: provider.CreateAccepted, RemoteID: "r1"}); err != nil || !l.accepted() {
		t.Errorf("accepted after one refusal: want it stored, got %v, %v", l.stored, err)
	}
}

// Without binding first things first, a result that cannot be stored takes the
// job's id with it.
func TestAcceptedStandsWithoutItsResult(t *testing.T) {
	t.Parallel()
	result, err := events.JSONBlob([]byte(`"` + strings.Repeat("x", 2*events.InlineMaxBytes) + `"`))
	if err != nil {
		t.Fatal(err)
	}
	l := &reluctant{}
	err = answering(t, l).recordAnswer(t.Context(), provider.CreateAnswer{
		Kind: provider.CreateAccepted, RemoteID: "r1",
		Reading: &events.Reading{State: events.RemoteSucceeded, Authoritative: true, Source: events.SourceCreate, Result: &result},
	})
	if err == nil || !l.accepted() {
		t.Errorf("a result that no object store takes: want an error and the binding stored, got %v, %v", err, l.stored)
	}
}
