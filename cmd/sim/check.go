package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/streams"
)

// The invariants, by the numbers of the specification. Those of a single call are
// asked when it happens; the others when everything has drained. Who is right is
// what the provider and the target wrote into their own books.

func (w *world) violate(invariant, format string, args ...any) {
	text := invariant + ": " + fmt.Sprintf(format, args...)
	w.tell("VIOLATION %s", text)
	w.violations = append(w.violations, text)
}

// stream is the history of one schedule, decoded.
func (w *world) stream() []events.Recorded {
	log := streams.Log{Prefix: "pawl"}
	msgs := w.server.Messages()
	w.decoded = w.decoded[:min(len(w.decoded), len(msgs))] // a power cut may have shortened it
	for _, m := range msgs[len(w.decoded):] {
		w.decoded = append(w.decoded, log.Decode(m))
	}
	return w.decoded
}

// checkCreate asks, at the provider's door, whether this request may be there.
func (w *world) checkCreate(line remoteCreate) {
	decided, window := 0, time.Time{}
	for _, rec := range w.stream() {
		if rec.Event.Subject.Operation() != events.OperationID(line.operation) {
			continue
		}
		switch d := rec.Event.Data.(type) {
		case *events.AttemptStarted:
			decided++
			window = d.SendBy
		}
	}
	if w.remote.frozen {
		return // the decision may be what was lost
	}
	sent := 1
	for _, c := range w.remote.creates {
		if c.operation == line.operation {
			sent++
			if c.body != line.body {
				w.violate("I2", "%s: two requests differ: %s and %s", line.operation, c.body, line.body)
			}
		}
	}
	if sent > decided {
		w.violate("I1", "%s: request %d and %d decisions", line.operation, sent, decided)
	}
	// A request may be on the wire for as long as its caller waits.
	if !window.IsZero() && line.at.After(window.Add(31*time.Second)) {
		w.violate("I4", "%s: a create %s after it had to leave", line.operation, line.at.Sub(window))
	}
}

// checkEffect asks, at the target's door, whether this effect may be there.
func (w *world) checkEffect(r events.Request) {
	var m struct {
		Operation  string `json:"operation_id"`
		State      string `json:"state"`
		Generation int    `json:"generation"`
	}
	if err := json.Unmarshal(r.Body, &m); err != nil {
		w.violate("I8", "an effect that is not JSON")
		return
	}
	claimed := false
	sendBy := time.Time{}
	for _, rec := range w.stream() {
		if rec.Event.Subject.Kind != events.SubjectOperation || rec.Event.Subject.Key != m.Operation {
			continue
		}
		switch d := rec.Event.Data.(type) {
		case *events.Settled:
			if d.G == m.Generation && string(d.State) == m.State {
				claimed = true
			}
		case *events.EffectClaimed:
			if d.G == m.Generation && d.SendBy.After(sendBy) {
				sendBy = d.SendBy
			}
		}
	}
	if w.now.After(sendBy.Add(16 * time.Second)) { // on the wire for as long as its caller waits
		w.violate("I4", "%s: an effect %s after the last claim had to leave", m.Operation, w.now.Sub(sendBy))
	}
	if !claimed {
		w.violate("I8", "%s: an effect of settlement %d (%s), which does not exist", m.Operation, m.Generation, m.State)
	}
}

// refuses: a provider refuses the same request each time.
func (w *world) refuses(reference string) bool {
	h := 0
	for _, c := range reference {
		h = h*31 + int(c)
	}
	return w.habits.reject > 0 && float64((h+int(w.seed%1000))%100)/100 < w.habits.reject*3
}

// drained reports whether nothing is left to happen.
func (w *world) drained() bool {
	return w.undrained() == ""
}

func (w *world) undrained() string {
	if len(w.procs) == 0 {
		return "no process"
	}
	for _, in := range w.intents {
		if !in.done {
			return fmt.Sprintf("intent %s waits", in.op)
		}
	}
	w.cachedRevision, w.cached = w.drainOf()
	if w.cached != "" {
		return w.cached
	}
	a := w.current
	w.current = nil // asking is no step of anybody
	defer func() { w.current = a }()
	if c, _, err := w.server.Checkpoint(context.Background()); err != nil || c.Seq != w.server.LastSeq() {
		return fmt.Sprintf("folded up to %d of %d", c.Seq, w.server.LastSeq())
	}
	return ""
}

func (w *world) drainOf() (uint64, string) {
	rev := w.server.Revision()
	if rev == w.cachedRevision && rev > 0 {
		return rev, w.cached
	}
	for n := range w.habits.operations {
		op := events.OperationID(fmt.Sprintf("op-%d", n+1))
		j := w.record(events.JobBucketKey(simProvider, op))
		if j == nil {
			return rev, fmt.Sprintf("%s has no record", op)
		}
		switch {
		case len(j.Questions()) > 0 && len(j.OpenReviews()) == len(j.Questions()):
		case !j.State.Settled(), j.Announced() == nil, !j.Announced().Public.Set():
			return rev, fmt.Sprintf("%s is %s (%s), next %s", op, j.State, j.Why, j.Next)
		case len(j.Owed()) > 0:
			return rev, fmt.Sprintf("%s owes an effect", op)
		}
	}
	return rev, ""
}

// check compares everything when a schedule is over.
func (w *world) check() {
	recs := w.stream()
	w.checkFold(recs)
	w.checkStream(recs)
	for n := range w.habits.operations {
		w.checkOperation(events.OperationID(fmt.Sprintf("op-%d", n+1)), recs)
	}
	for key, n := range w.target.taken {
		if n > 1 && w.habits.targetKeyed {
			w.violate("I11", "effect %s took place %d times", key, n)
		}
	}
	for _, secret := range []string{masterKey, credential, hookSecret, effectSecret} {
		for _, m := range w.server.Messages() {
			if bytes.Contains(m.Data, []byte(secret)) {
				w.violate("I22", "a secret is in event %d", m.Seq)
			}
		}
		for k, v := range w.server.Values() {
			if bytes.Contains(v, []byte(secret)) {
				w.violate("I22", "a secret is in record %s", k)
			}
		}
	}
}

// checkFold: the bucket is what the stream says, and all of it.
func (w *world) checkFold(recs []events.Recorded) {
	view := events.NewMemoir()
	for _, rec := range recs {
		if _, v, err := events.Apply(view, rec); err != nil || v == events.VerdictParked || v == events.VerdictUnknown {
			w.violate("I19", "event %d: %s (%v, %v)", rec.Seq, v, err, rec.Err)
		}
	}
	values := w.server.Values()
	policy := common.providers[w.habits.provider].Policy()
	for n := range w.habits.operations {
		op := events.OperationID(fmt.Sprintf("op-%d", n+1))
		j, err := view.Job(simProvider, op)
		if err != nil {
			w.violate("I7", "%v", err)
			continue
		}
		var got events.Job
		if err := json.Unmarshal(values[events.JobBucketKey(simProvider, op)], &got); err != nil {
			w.violate("I7", "%s: %v", op, err)
			continue
		}
		got.Next, got.NextDue = "", time.Time{} // a plan is for lists
		a, _ := events.EncodeRecord(j)          // compared as bytes below; an error gives none
		b, _ := events.EncodeRecord(&got)
		if !bytes.Equal(a, b) {
			w.violate("I7", "%s: the bucket holds\n%s\nand the stream gives\n%s", op, b, a)
		}
		j.Plan(policy, w.now)
		if !j.State.Settled() && !j.State.Suspended() && j.NextDue.IsZero() {
			w.violate("I15", "%s: %s and nothing is due", op, j.State)
		}
	}
	c, _, err := w.server.Checkpoint(w.procs[0].ctx)
	if err != nil || c.Seq != w.server.LastSeq() {
		w.violate("I19", "folded up to %d of %d (%v)", c.Seq, w.server.LastSeq(), err)
	}
}

// checkStream asks what holds for the history as a whole.
func (w *world) checkStream(recs []events.Recorded) {
	ids := map[string]uint64{}
	pauses := map[string]int{}
	delivered := map[string]bool{}
	for _, rec := range recs {
		e := rec.Event
		key := e.Subject.String() + " " + e.ID
		if first, ok := ids[key]; ok && rec.At.Sub(recs[first-1].At) < w.server.DedupWindow {
			w.violate("I6", "event %s stands at %d and at %d", e.ID, first, rec.Seq)
		}
		ids[key] = rec.Seq
		switch d := e.Data.(type) {
		case *events.Observed:
			delivered[d.Delivery] = true
		case *events.PollDeferred:
			key := fmt.Sprintf("%s %s %d", e.Subject, d.Reason, e.Time.Unix()/300)
			if pauses[key]++; pauses[key] > 2 {
				w.violate("I21", "%s: a pause is told %d times in five minutes", key, pauses[key])
			}
		case *events.WebhookUnreadable:
			delivered[d.Delivery] = true
		}
	}
	for _, d := range w.acknowledged {
		if !delivered[d] {
			w.violate("I13", "delivery %s was answered and is nowhere", d)
		}
	}
	if limit := 400 * w.habits.operations; len(recs) > limit {
		w.violate("I21", "%d events for %d operations", len(recs), w.habits.operations)
	}
}

// checkOperation compares one operation with the provider's book.
func (w *world) checkOperation(op events.OperationID, recs []events.Recorded) {
	var mine []events.Recorded
	settled := map[int]uint64{}
	var last *events.Settled
	latched := uint64(0)
	for _, rec := range recs {
		if rec.Event.Subject != events.OperationSubject(simProvider, op) {
			continue
		}
		mine = append(mine, rec)
		switch d := rec.Event.Data.(type) {
		case *events.Settled:
			if settled[d.G] != 0 {
				w.violate("I8", "%s: settlement %d stands at %d and at %d", op, d.G, settled[d.G], rec.Seq)
			}
			settled[d.G] = rec.Seq
			last = d
		case *events.CancelRequested:
			latched = rec.Seq
		case *events.AttemptStarted:
			if latched != 0 {
				w.violate("I4", "%s: attempt %d was decided after the cancellation", op, d.N)
			}
		}
	}
	var jobs []*remoteJob
	for _, j := range w.remote.jobs {
		if j.reference == string(op) {
			jobs = append(jobs, j)
		}
	}
	state := w.stateOf(op)
	w.checkJobs(op, state, jobs)
	if last == nil || state == events.StateReversed || state == events.StateConflict {
		return
	}
	w.checkSettlement(op, last, jobs, mine)
}

// checkJobs: one job where the provider's contract makes that possible. One that
// is searched can only promise it if nothing arrives after its caller gave up.
func (w *world) checkJobs(op events.OperationID, state events.State, jobs []*remoteJob) {
	h := &w.habits
	one := (h.provider == "token" && !h.blindToTokens && h.forgets == 0) || (h.provider == "seek" && h.late == 0)
	if one && len(jobs) > 1 {
		w.violate("I3", "%s: %d jobs at a provider of kind %s", op, len(jobs), h.provider)
	}
	bound := map[string]bool{}
	if j := w.record(events.JobBucketKey(simProvider, op)); j != nil {
		for _, b := range j.Bound {
			bound[b.Remote.ID] = true
		}
	}
	if len(bound) > 1 && state != events.StateConflict {
		w.violate("I16", "%s: %d jobs are known, and it is %s", op, len(bound), state)
	}
	for _, r := range w.received {
		if r.operation == string(op) && !r.proc.killed && !bound[r.job] {
			w.violate("I25", "%s: the answer that named %s was received and is not stored", op, r.job)
		}
	}
}

func (w *world) stateOf(op events.OperationID) events.State {
	if j := w.record(events.JobBucketKey(simProvider, op)); j != nil {
		return j.State
	}
	return ""
}

// checkSettlement: what was announced is what happened.
func (w *world) checkSettlement(op events.OperationID, s *events.Settled, jobs []*remoteJob, mine []events.Recorded) {
	switch s.State {
	case events.StateRejected, events.StateWithdrawn:
		if len(jobs) > 0 {
			w.violate("I10", "%s: announced as %s, and the provider has %s", op, s.State, jobs[0].id)
		}
		return
	case events.StateSucceeded, events.StateFailed, events.StateCancelled:
	default:
		return
	}
	i := slices.IndexFunc(jobs, func(j *remoteJob) bool { return s.Remote != nil && j.id == s.Remote.ID })
	if i < 0 {
		w.violate("I9", "%s: announced as %s of a job that the provider never made", op, s.State)
		return
	}
	if rerun := jobs[i]; !rerun.fails.IsZero() && s.State == events.StateFailed {
		return // announced between two runs; without a webhook nobody can know of the second
	}
	if got := settles(jobs[i].end); got != s.State && !(w.habits.provider == "push" && w.habits.lie > 0) {
		w.violate("I9", "%s: announced as %s, the provider says %s", op, s.State, jobs[i].end)
	}
	if s.State == events.StateSucceeded && w.habits.provider != "push" && s.Assurance == events.AssuranceWebhookOnly {
		w.violate("I9", "%s: succeeded on a webhook's word", op)
	}
	if w.habits.targetKeyed {
		key := events.EffectKey(op, "mail", s.G)
		n := 0
		for k, times := range w.target.taken {
			if strings.Contains(k, key) {
				n += times
			}
		}
		if n != 1 {
			w.violate("I11", "%s: the effect of settlement %d took place %d times", op, s.G, n)
		}
	}
}

func settles(s events.RemoteState) events.State {
	switch s {
	case events.RemoteSucceeded:
		return events.StateSucceeded
	case events.RemoteFailed:
		return events.StateFailed
	default:
		return events.StateCancelled
	}
}
