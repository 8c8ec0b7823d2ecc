package main

import (
	"maps"
	"slices"
	"time"
)

// providerBook is a snapshot of what the provider was asked, did and told,
// sorted by operation.
type providerBook struct {
	Shape      string              `json:"shape"`
	Seed       int64               `json:"seed"`
	Totals     providerTotals      `json:"totals"`
	Operations []providerOperation `json:"operations"`
}

// providerTotals sums a providerBook. ExtraJobs counts jobs beyond the first of
// their operation: work that was submitted twice.
type providerTotals struct {
	Operations   int            `json:"operations"`
	Requests     int            `json:"requests"` // creates that were read, also those that failed
	Jobs         int            `json:"jobs"`
	ExtraJobs    int            `json:"extra_jobs"`
	Unfinished   int            `json:"unfinished"`
	Gets         int            `json:"gets"` // of known jobs
	UnknownGets  int            `json:"unknown_gets"`
	Unauthorized int            `json:"unauthorized"`
	BadRequests  int            `json:"bad_requests"`
	Faults       map[string]int `json:"faults"`
	Webhooks     webhookBook    `json:"webhooks"`
}

// providerOperation is everything that happened around one operation. Bodies
// are distinct SHA-256 digests of create requests.
type providerOperation struct {
	Operation string         `json:"operation"`
	Requests  int            `json:"requests"`
	Tokens    []string       `json:"tokens"`
	Bodies    []string       `json:"bodies"`
	Gets      int            `json:"gets"`
	Faults    map[string]int `json:"faults"`
	Webhooks  webhookBook    `json:"webhooks"`
	Jobs      []providerJob  `json:"jobs"` // in order of creation
}

// providerJob is the truth about one job.
type providerJob struct {
	ID         string      `json:"id"`
	State      demoState   `json:"state"`
	CreatedAt  time.Time   `json:"created_at"`
	FinishedAt time.Time   `json:"finished_at,omitzero"`
	Gets       int         `json:"gets"`
	Webhooks   webhookBook `json:"webhooks"`
}

// webhookBook counts webhook requests and events. Once the provider is idle,
// Sent = Acked + Unanswered + the sum of Refused; forged ones are apart.
type webhookBook struct {
	Sent           int         `json:"sent"`       // requests, with retries and duplicates
	Acked          int         `json:"acked"`      // requests answered 2xx
	Unanswered     int         `json:"unanswered"` // requests without an answer
	Refused        map[int]int `json:"refused"`    // requests answered otherwise, by status code
	Dropped        int         `json:"dropped"`    // events never sent
	Duplicated     int         `json:"duplicated"` // events sent again after their acknowledgement
	GivenUp        int         `json:"given_up"`   // events never acknowledged
	Forged         int         `json:"forged"`
	ForgedRefused  int         `json:"forged_refused"`  // answered 401, as they must be
	ForgedBelieved int         `json:"forged_believed"` // answered 2xx
}

func (b *webhookBook) add(c webhookBook) {
	if b.Refused == nil {
		b.Refused = map[int]int{}
	}
	for code, n := range c.Refused {
		b.Refused[code] += n
	}
	b.Sent += c.Sent
	b.Acked += c.Acked
	b.Unanswered += c.Unanswered
	b.Dropped += c.Dropped
	b.Duplicated += c.Duplicated
	b.GivenUp += c.GivenUp
	b.Forged += c.Forged
	b.ForgedRefused += c.ForgedRefused
	b.ForgedBelieved += c.ForgedBelieved
}

// Book returns a copy of the books, which the caller owns.
func (p *flakyProvider) Book() providerBook {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := providerBook{Shape: p.cfg.Shape, Seed: p.cfg.Seed, Totals: p.totals}
	t := &b.Totals
	t.Faults = map[string]int{}
	t.Webhooks.add(webhookBook{})
	for _, name := range slices.Sorted(maps.Keys(p.ops)) {
		op := p.ops[name].snapshot(name)
		b.Operations = append(b.Operations, op)
		t.Operations++
		t.Requests += op.Requests
		t.Jobs += len(op.Jobs)
		t.ExtraJobs += max(0, len(op.Jobs)-1)
		t.Gets += op.Gets
		t.Webhooks.add(op.Webhooks)
		for kind, n := range op.Faults {
			t.Faults[kind] += n
		}
		for _, j := range op.Jobs {
			if !j.State.terminal() {
				t.Unfinished++
			}
		}
	}
	return b
}

// snapshot copies an operation; flakyProvider.mu is held.
func (o *demoOperation) snapshot(name string) providerOperation {
	out := providerOperation{
		Operation: name, Requests: o.requests, Faults: maps.Clone(o.faults),
		Tokens: slices.Sorted(maps.Keys(o.tokens)), Bodies: slices.Sorted(maps.Keys(o.bodies)),
	}
	out.Webhooks.add(webhookBook{})
	for _, j := range o.jobs {
		job := providerJob{ID: j.id, State: j.state, CreatedAt: j.created, FinishedAt: j.finished, Gets: j.gets}
		job.Webhooks.add(j.hooks)
		out.Gets += j.gets
		out.Webhooks.add(j.hooks)
		out.Jobs = append(out.Jobs, job)
	}
	return out
}
