package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/pawl-dev/pawl/events"
)

// demoReport compares three sets of books: the providers', the target's, and
// Pawl's.
type demoReport struct {
	Seed       int64        `json:"seed"`
	Operations int          `json:"operations"`
	Seconds    float64      `json:"seconds"`
	Facts      []demoFact   `json:"facts"`
	Promises   []demoResult `json:"promises"`
	OK         bool         `json:"ok"`

	review int
}

// demoFact is a number worth seeing.
type demoFact struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

// demoResult is one promise and whether the books bear it out.
type demoResult struct {
	Promise string   `json:"promise"`
	Kept    bool     `json:"kept"`
	Detail  string   `json:"detail"`
	Broken  []string `json:"broken,omitempty"` // operations, at most ten
}

func (r *demoReport) fact(name string, v int) {
	r.Facts = append(r.Facts, demoFact{name, v})
}

func (r *demoReport) promise(text, detail string, broken []string) {
	r.Promises = append(r.Promises, demoResult{Promise: text, Kept: len(broken) == 0, Detail: detail, Broken: broken[:min(len(broken), 10)]})
}

func (r *demoReport) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "\nseed %d, %d operations, %.1f s\n\n", r.Seed, r.Operations, r.Seconds) // Flush reports errors
	for _, f := range r.Facts {
		_, _ = fmt.Fprintf(t, "  %s\t%d\n", f.Name, f.Value) // as above
	}
	_, _ = fmt.Fprintln(t) // as above
	for _, p := range r.Promises {
		mark := "kept  "
		if !p.Kept {
			mark = "BROKEN"
		}
		_, _ = fmt.Fprintf(t, "  %s  %s\t%s\n", mark, p.Promise, p.Detail) // as above
		for _, op := range p.Broken {
			_, _ = fmt.Fprintf(t, "          %s\n", op) // as above
		}
	}
	if r.review > 0 {
		_, _ = fmt.Fprintf(t, "\n  In review is not a failure: a token-blind provider lost the answer and every\n  webhook, so nothing can prove what happened, and a person is asked.\n") // as above
	}
	last := "every promise kept"
	if !r.OK {
		last = "A PROMISE WAS BROKEN"
	}
	_, _ = fmt.Fprintf(t, "\n%s\n", last) // as above
	return t.Flush()
}

// books are the three sets, by operation.
type books struct {
	remote map[string]providerOperation
	target map[string]targetOperation
	jobs   map[string]*events.Job
}

// compare reads all books and judges the promises.
func (d *demoRun) compare(ctx context.Context) (demoReport, error) {
	r := demoReport{Seed: d.opts.seed, Operations: d.opts.operations, Seconds: now().Sub(d.began).Round(time.Millisecond).Seconds()}
	generic, blind, target := d.generic.Book(), d.blind.Book(), d.target.Book()
	b := books{remote: map[string]providerOperation{}, target: map[string]targetOperation{}, jobs: map[string]*events.Job{}}
	for _, o := range append(generic.Operations, blind.Operations...) {
		b.remote[o.Operation] = o
	}
	for _, o := range target.Operations {
		b.target[o.Operation] = o
	}
	for i := 1; i <= d.opts.operations; i++ {
		op, _ := operationName(i)
		if j, ok := d.app.index.Job(op); ok {
			b.jobs[string(op)] = j
		}
	}
	hooks := generic.Totals.Webhooks
	hooks.add(blind.Totals.Webhooks)
	d.facts(&r, b, hooks, target)
	d.judgeCreates(&r, b)
	d.judgeOutcomes(&r, b)
	judgeEffects(&r, b, target)
	forged := []string{}
	if hooks.ForgedBelieved > 0 {
		forged = append(forged, fmt.Sprintf("%d forged webhooks were accepted", hooks.ForgedBelieved))
	}
	r.promise("a forged webhook is refused", fmt.Sprintf("%d refused", hooks.ForgedRefused), forged)
	if err := d.judgeBucket(ctx, &r, b); err != nil {
		return r, err
	}
	r.OK = true
	for _, p := range r.Promises {
		r.OK = r.OK && p.Kept
	}
	return r, nil
}

func (d *demoRun) facts(r *demoReport, b books, hooks webhookBook, target targetBook) {
	settled, rescued, review, doubt, resolved, creates, jobs := 0, 0, 0, 0, 0, 0, 0
	for _, j := range b.jobs {
		if j.State.Settled() {
			settled++
		}
		if j.Rescued() {
			rescued++
		}
		if j.State.Suspended() {
			review++
		}
		for _, a := range j.Attempts {
			if a.Ambiguous != "" {
				doubt++
				if j.State.Settled() {
					resolved++
				}
				break
			}
		}
	}
	for _, o := range b.remote {
		creates += o.Requests
		jobs += len(o.Jobs)
	}
	r.fact("operations settled", settled)
	r.fact("operations in review", review)
	r.review = review
	r.fact("creates that reached a provider", creates)
	r.fact("jobs that the providers made", jobs)
	r.fact("operations whose create was in doubt", doubt)
	r.fact("  of them resolved without a person", resolved)
	r.fact("webhooks sent by the providers", hooks.Sent)
	r.fact("  events dropped by them", hooks.Dropped)
	r.fact("  events sent twice", hooks.Duplicated)
	r.fact("  duplicates ignored by Pawl", sumMetric(d.app.registry, "pawl_ingress_webhooks_total", "outcome", "duplicate"))
	r.fact("settlements rescued by polling", rescued)
	r.fact("effects performed by the target", target.Totals.Performed)
	r.fact("  repeats that it recognised by key", target.Totals.Deduplicated)
}

// judgeCreates compares what left with what was made.
func (d *demoRun) judgeCreates(r *demoReport, b books) {
	var lost, twice, changed, undecided []string
	for i := 1; i <= d.opts.operations; i++ {
		op, _ := operationName(i)
		name := string(op)
		j, remote := b.jobs[name], b.remote[name]
		if j == nil || !j.Prepared.Set() {
			lost = append(lost, name)
			continue
		}
		if len(remote.Jobs) > 1 {
			twice = append(twice, name)
		}
		if len(remote.Bodies) > 1 || len(remote.Tokens) > 1 {
			changed = append(changed, name)
		}
		if remote.Requests > len(j.Attempts) {
			undecided = append(undecided, name)
		}
	}
	r.promise("every intent is stored", fmt.Sprintf("%d of %d", d.opts.operations-len(lost), d.opts.operations), lost)
	r.promise("no token made two jobs", "providers' books", twice)
	r.promise("every attempt was the same bytes", "providers' books", changed)
	r.promise("no create left without a decision", "requests against decisions", undecided)
}

// judgeOutcomes compares what Pawl announced with what the providers did.
func (d *demoRun) judgeOutcomes(r *demoReport, b books) {
	var missed, wrong []string
	settled, review := 0, 0
	for i := 1; i <= d.opts.operations; i++ {
		op, _ := operationName(i)
		j, remote := b.jobs[string(op)], b.remote[string(op)]
		if j == nil {
			continue
		}
		switch {
		case j.State.Settled():
			settled++
			if len(remote.Jobs) == 0 && j.State != events.StateRejected && j.State != events.StateWithdrawn {
				wrong = append(wrong, fmt.Sprintf("%s: announced %s, the provider made no job", op, j.State))
			}
			if len(remote.Jobs) > 0 && string(j.State) != string(remote.Jobs[0].State) {
				wrong = append(wrong, fmt.Sprintf("%s: announced %s, the provider says %s", op, j.State, remote.Jobs[0].State))
			}
		case j.State.Suspended():
			review++
		default:
			missed = append(missed, fmt.Sprintf("%s: %s (%s)", op, j.State, j.Why))
		}
	}
	r.promise("every operation settled or asks a person", fmt.Sprintf("%d settled, %d in review", settled, review), missed)
	r.promise("what was announced is what happened", "against providers' books", wrong)
}

func judgeEffects(r *demoReport, b books, target targetBook) {
	var wrong []string
	settled := 0
	for name, j := range b.jobs {
		want := 0
		if j.State.Settled() {
			want, settled = 1, settled+1
		}
		if got := b.target[name].Performed; got != want {
			wrong = append(wrong, fmt.Sprintf("%s: %s, performed %d times", name, j.State, got))
		}
	}
	if target.Totals.Violations > 0 || target.Totals.BadSignatures > 0 {
		wrong = append(wrong, fmt.Sprintf("%d changed bodies, %d bad signatures", target.Totals.Violations, target.Totals.BadSignatures))
	}
	r.promise("each settlement's effect happened once, no other did", fmt.Sprintf("%d of %d", target.Totals.Performed, settled), wrong)
}

// judgeBucket folds every operation afresh from the stream and compares.
func (d *demoRun) judgeBucket(ctx context.Context, r *demoReport, b books) error {
	var differs []string
	for name, j := range b.jobs {
		fresh, err := events.Refold(ctx, d.app.s.Store, j.Provider, j.Operation)
		if err != nil {
			return fmt.Errorf("fold %s again: %w", name, err)
		}
		if fresh.State != j.State && fresh.AppliedSeq <= j.AppliedSeq {
			differs = append(differs, fmt.Sprintf("%s: bucket %s, stream %s", name, j.State, fresh.State))
		}
	}
	r.promise("the bucket is what the stream says", fmt.Sprintf("%d folded again", len(b.jobs)), differs)
	return nil
}

// sumMetric adds up a counter's series with one label value.
func sumMetric(g prometheus.Gatherer, name, label, value string) int {
	families, err := g.Gather()
	if err != nil {
		return 0
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabel(m, label, value) {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return int(total)
}

func hasLabel(m *dto.Metric, label, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == label && l.GetValue() == value {
			return true
		}
	}
	return false
}
