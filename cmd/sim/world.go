package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/ingress"
	"github.com/pawl-dev/pawl/projector"
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/reconciler/effects"
	"github.com/pawl-dev/pawl/streams"
	"github.com/pawl-dev/pawl/streams/streamstest"
)

// world is one schedule: an installation, its surroundings, and what went wrong.
type world struct {
	seed   uint64
	rng    *rand.Rand
	habits habits
	defect defect
	now    time.Time
	faulty bool // anything may fail; false: nothing does

	server  *streamstest.Server
	remote  *remote
	target  *target
	leases  map[string]lease
	doors   map[*process]*ingress.Ingress
	procs   []*process
	actors  []*actor
	current *actor
	births  int
	closing bool
	halted  bool // a projector found that the stream lost history

	intents      []*intent
	acknowledged []string // webhook deliveries that were answered 2xx
	deliveries   int
	received     []received // create answers that reached their callers

	points, kills  int
	cachedRevision uint64 // of what undrained said last
	cached         string
	records        map[string]known
	decoded        []events.Recorded // of the stream, as far as somebody asked
	violations     []string
	story          io.Writer // told step by step; nil: not
}

// intent is one wish of a producer.
type intent struct {
	op    events.OperationID
	body  string
	at    time.Time
	other bool // the operation exists with another request
	done  bool // the door took it, or refused it for good
}

// lease says who is active in a role. It is a courtesy; the fences are what holds.
type lease struct {
	holder *process
	until  time.Time
}

const leaseTime = 10 * time.Second

// shared are what schedules have in common: parsed once, never changed.
type shared struct {
	providers map[string]*provider.Provider
	reconcile *reconciler.Metrics
	effect    *effects.Metrics
	door      *ingress.Metrics
	log       *slog.Logger
}

func newShared() (*shared, error) {
	s := &shared{providers: map[string]*provider.Provider{}, log: slog.New(slog.DiscardHandler)}
	for name, text := range descriptions {
		d, err := provider.Parse(name, []byte(text))
		if err != nil {
			return nil, fmt.Errorf("description %s: %w", name, err)
		}
		p, err := provider.New(d, provider.Settings{
			Name: simProvider, BaseURL: providerURL, Credentials: map[string]events.Secret{"api_token": events.NewSecret(credential)},
			WebhookSecrets: []events.Secret{events.NewSecret(hookSecret)},
		})
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		s.providers[name] = p
	}
	r := prometheus.NewRegistry()
	s.reconcile = reconciler.NewMetrics(r, []events.Provider{simProvider})
	s.effect = effects.NewMetrics(r, []string{"mail"})
	s.door = ingress.NewMetrics(r, []events.Provider{simProvider})
	return s, nil
}

func newWorld(seed uint64, d defect, story io.Writer) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x70617768)), defect: d, now: dawn, faulty: true,
		leases: map[string]lease{}, records: map[string]known{}, doors: map[*process]*ingress.Ingress{}, story: story,
	}
	w.habits = draw(w.rng)
	if d.habits != nil {
		d.habits(&w.habits)
	}
	w.server = streamstest.New(func() time.Time { return w.now })
	w.server.Replicated = w.habits.replicated
	w.server.Point = func(p streamstest.Point) error {
		if p.After {
			return w.point(p.Call, true)
		}
		return w.point(p.Call, false)
	}
	w.remote = &remote{w: w}
	w.target = &target{w: w, taken: map[string]int{}}
	return w
}

func (w *world) tell(format string, args ...any) {
	if w.story != nil {
		_, _ = fmt.Fprintf(w.story, "%10s  %-28s %s\n", w.now.Sub(dawn).Round(time.Millisecond), w.who(), fmt.Sprintf(format, args...)) // a story that cannot be told changes nothing
	}
}

func (w *world) who() string {
	if w.current == nil {
		return "–"
	}
	if p := w.current.proc; p != nil {
		return p.name + " " + w.current.name
	}
	return w.current.name
}

// chance reports whether something with a probability happens now. Nothing does
// in the quiet phase.
func (w *world) chance(p float64) bool { return w.faulty && p > 0 && w.rng.Float64() < p }

// point is a place before or after an effect of a port.
func (w *world) point(call string, after bool) error {
	a := w.current
	if a == nil {
		return nil // the checks read too
	}
	if a.dead() {
		return errKilled
	}
	w.points++
	if w.points == w.defect.killAt && a.proc != nil {
		w.kill(a.proc)
		return errKilled
	}
	h := &w.habits
	if a.proc != nil && w.chance(h.kill) {
		w.kill(a.proc)
		return errKilled
	}
	if a.proc != nil && w.chance(h.pause) {
		w.tell("paused in %s", call)
		w.park(w.now.Add(time.Duration(w.rng.Int64N(int64(h.pauseMax)+1))), nil)
	} else if w.rng.Float64() < h.swap {
		w.park(w.now, nil)
	}
	switch {
	case a.dead():
		return errKilled
	case call == "call":
		return nil // the way to a provider has faults of its own
	case !after && w.chance(h.deaf), after && w.chance(h.lost):
		return streamstest.ErrNoAnswer
	}
	return nil
}

// kill ends a process, as kill -9 does: every further call of its code fails.
func (w *world) kill(p *process) {
	if p.killed {
		return
	}
	w.tell("KILLED %s", p.name)
	w.kills++
	p.killed = true
	p.cancel()
	delete(w.doors, p)
	w.rebirth(p, time.Duration(w.rng.Int64N(int64(15*time.Second))))
}

// rebirth starts a process anew after a while.
func (w *world) rebirth(old *process, after time.Duration) {
	at := w.now.Add(after)
	w.spawn("supervisor", nil, func(*actor) {
		w.park(at, nil)
		for i, p := range w.procs {
			if p == old {
				w.procs[i] = w.born()
			}
		}
	})
}

// anyProcess is one that takes requests, nil if none does.
func (w *world) anyProcess() *process {
	var alive []*process
	for _, p := range w.procs {
		if !p.killed && w.doors[p] != nil {
			alive = append(alive, p)
		}
	}
	if len(alive) == 0 {
		return nil
	}
	return alive[w.rng.IntN(len(alive))]
}

// entropy is random for the components and repeats with the seed.
type entropy struct{ rng *rand.Rand }

func (e entropy) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(e.rng.Uint32())
	}
	return len(b), nil
}

// ledger is the event stream as one process sees it.
type ledger struct {
	streams.Log
	id func() string
}

func (l ledger) LedgerID() string { return l.id() }

// judged compares what the append rule says of each decision with the stream.
type judged struct {
	reconciler.Ledger
	w *world
}

func (l judged) Decide(ctx context.Context, expected uint64, e events.Event) (events.Appended, error) {
	got, err := l.Ledger.Decide(ctx, expected, e)
	if err != nil || e.Claim == "" {
		return got, err // unknown is always allowed to be said
	}
	stored := false
	for _, rec := range l.w.stream() {
		if rec.Event.ID == e.ID && rec.Event.Subject == e.Subject && (rec.Event.Claim == e.Claim || events.SameAnnouncement(rec.Event, e)) {
			stored = true
		}
	}
	if stored != (got.Outcome == events.Stored) {
		l.w.violate("I26", "decision %s is called %s, and that it stands is %t", e.ID, got.Outcome, stored)
	}
	return got, nil
}

// born starts a process with all its roles.
func (w *world) born() *process {
	w.births++
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: fmt.Sprintf("p%d", w.births), ctx: ctx, cancel: cancel}
	log := ledger{
		Log: w.server.Log("pawl", func(ctx context.Context, n int) bool {
			return w.wait(ctx, min(time.Second, 20*time.Millisecond<<min(n, 6)))
		}),
		id: w.ledgerID,
	}
	port := judged{w.defect.ledger(w, log), w}
	random := entropy{rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64()))}
	clock := func() time.Time { return w.now }
	door, err := ingress.New(ingress.Config{
		Ledger: port, Objects: w.server, Providers: map[events.Provider]*provider.Provider{simProvider: common.providers[w.habits.provider]},
		PublicURL: publicURL, MasterKey: events.NewSecret(masterKey), EffectNames: []string{"mail"}, DefaultEffects: []string{"mail"},
		Now: clock, Entropy: random, Logger: common.log, Metrics: common.door,
	})
	if err != nil {
		panic(err) // our own configuration
	}
	w.doors[p] = door
	w.spawn("door", p, func(a *actor) { w.takeIntents(a, door) })
	w.spawn("projector", p, func(a *actor) {
		if w.verify(a, log) { // nobody may act on the bucket before
			p.verified = true
			w.project(a, log)
		}
	})
	w.reconcilers(p, port, random)
	runner, err := effects.New(effects.Config{
		Ledger: port, Jobs: w.job, Caller: w.caller(), Targets: []effects.Target{{Name: "mail", Kind: effects.KindWebhook, URL: targetURL, Secret: events.NewSecret("whsec_" + effectSecret)}},
		Now: clock, Wait: w.wait, Entropy: random, Logger: common.log, Metrics: common.effect,
	})
	if err != nil {
		panic(err) // our own configuration
	}
	w.spawn("effects", p, func(a *actor) { w.runEffects(a, runner) })
	w.tell("born: %s", p.name)
	return p
}

func (w *world) ledgerID() string {
	if m := w.server.Messages(); len(m) > 0 {
		return m[0].Time.String()
	}
	return ""
}

// caller is the way to other people's systems.
func (w *world) caller() events.Caller {
	return w.defect.caller(w, callFunc(func(ctx context.Context, r events.Request) events.Response { return w.call(ctx, r, false) }))
}

type callFunc func(ctx context.Context, r events.Request) events.Response

func (f callFunc) Call(ctx context.Context, r events.Request) events.Response { return f(ctx, r) }

// hold takes or renews a lease and reports whether the process has it.
func (w *world) hold(role string, p *process) bool {
	l := w.leases[role]
	if l.holder != p && !w.now.After(l.until) {
		return false
	}
	w.leases[role] = lease{p, w.now.Add(leaseTime)}
	return true
}

// projector makes a projector as the service does.
func (w *world) projector(log ledger) *projector.Projector {
	w.births++
	return projector.New(projector.Config{
		Ledger: log, Bucket: w.defect.bucket(w, w.server), Owner: fmt.Sprintf("o%d", w.births), Now: func() time.Time { return w.now }, Wait: w.wait,
		Logger: common.log, Policy: func(events.Provider) events.Policy { return common.providers[w.habits.provider].Policy() },
		Open: func(context.Context, uint64) (events.Tail, error) { return nil, errors.New("read step by step") },
	})
}

// verify compares bucket and stream until it is known that they belong together.
func (w *world) verify(a *actor, log ledger) bool {
	for !a.dead() && !w.halted {
		err := w.projector(log).Verify(a.proc.ctx)
		if err == nil {
			return true
		}
		w.haltOn(err)
		w.park(w.now.Add(time.Second), nil)
	}
	return false
}

// haltOn stops everything that could leave when the stream has lost history.
func (w *world) haltOn(err error) {
	if !errors.Is(err, projector.ErrLedgerRegressed) {
		return
	}
	w.tell("HALT: %v", err)
	w.halted, w.remote.frozen = true, true
	for _, p := range w.procs {
		p.killed = true
		p.cancel()
	}
}

// project is the projector's role: active under a lease, fenced by its checkpoint.
func (w *world) project(a *actor, log ledger) {
	for !a.dead() && !w.halted {
		if !w.hold("projector", a.proc) {
			w.park(w.now.Add(time.Second), nil)
			continue
		}
		p := w.projector(log)
		err := p.TakeOver(a.proc.ctx)
		for err == nil && !a.dead() && w.hold("projector", a.proc) {
			var msgs []streams.Message
			if msgs, err = w.server.Tail(p.Applied(), 1+w.rng.IntN(20)); err != nil {
				break
			}
			if len(msgs) == 0 {
				after := p.Applied()
				w.park(w.now.Add(leaseTime/3), func() bool { return w.server.LastSeq() > after })
				continue
			}
			first, last := msgs[0].Seq, msgs[len(msgs)-1].Seq
			err = p.Fold(a.proc.ctx, slices.Clone(w.stream()[first-1:last]))
		}
		w.haltOn(err)
		if !a.dead() {
			w.park(w.now.Add(time.Second), nil)
		}
	}
}

// watch hands every change of the bucket to observe, in the order of keys, and
// returns the revision to go on from.
func (w *world) watch(after uint64, observe func(*events.Job)) uint64 {
	keys, now := w.server.Changed(after)
	for _, k := range keys {
		if strings.HasPrefix(k, events.JobBucketPrefix) {
			if j := w.record(k); j != nil {
				observe(j)
			}
		}
	}
	return now
}

// record is a job as the bucket has it, nil if it has none. It is decoded once
// for all who look: a record is never changed once observed.
func (w *world) record(key string) *events.Job {
	data, rev := w.server.Peek(key)
	if rev == 0 {
		return nil
	}
	if c := w.records[key]; c.revision == rev {
		return c.job
	}
	j, err := events.DecodeJob(data)
	if err != nil {
		w.violate("I0", "record %s: %v", key, err)
		return nil
	}
	w.records[key] = known{rev, j}
	return j
}

type known struct {
	revision uint64
	job      *events.Job
}

func (w *world) reconcilers(p *process, port reconciler.Ledger, random io.Reader) {
	r := reconciler.New(reconciler.Config{
		Ledger: port, Objects: w.server, Provider: common.providers[w.habits.provider], Caller: w.caller(), PublicURL: publicURL,
		MasterKey: events.NewSecret(masterKey), Now: func() time.Time { return w.now }, Wait: w.wait, Entropy: random, Logger: common.log, Metrics: common.reconcile,
	})
	seen := uint64(0)
	for n := range w.habits.workers {
		w.spawn(fmt.Sprintf("worker %d", n+1), p, func(a *actor) {
			for !a.dead() && !w.halted {
				if !p.verified || !w.hold("reconciler", p) {
					w.park(w.now.Add(time.Second), nil)
					continue
				}
				seen = w.watch(seen, r.Observe)
				taken, after := r.Step(p.ctx)
				if taken {
					w.park(w.now.Add(time.Millisecond), nil)
					continue
				}
				at := seen
				w.park(w.now.Add(min(after, leaseTime/3)), func() bool { return w.server.Revision() > at })
			}
		})
	}
}

func (w *world) runEffects(a *actor, r *effects.Runner) {
	seen := uint64(0)
	for !a.dead() && !w.halted {
		if !a.proc.verified {
			w.park(w.now.Add(time.Second), nil)
			continue
		}
		seen = w.watch(seen, r.Observe)
		if taken, _ := r.Step(a.proc.ctx); taken { // an effect that failed is owed, and tried again
			w.park(w.now.Add(time.Millisecond), nil)
			continue
		}
		at := seen
		w.park(w.now.Add(2*time.Second), func() bool { return w.server.Revision() > at })
	}
}

// job reads one record as the effects runner does.
func (w *world) job(ctx context.Context, p events.Provider, op events.OperationID) (*events.Job, error) {
	data, _, err := w.server.Load(ctx, events.JobBucketKey(p, op))
	if err != nil {
		return nil, err
	}
	return events.DecodeJob(data)
}

// takeIntents is the intent door: a work queue that delivers again what was not
// acknowledged.
func (w *world) takeIntents(a *actor, door *ingress.Ingress) {
	for !a.dead() && !w.halted {
		for _, in := range w.intents {
			if in.done || w.now.Before(in.at) || a.dead() {
				continue
			}
			_, err := door.Submit(a.proc.ctx, []byte(in.body), simProvider, in.op)
			var refused *events.RefusedError
			if err == nil || errors.As(err, &refused) {
				in.done = true
				if in.other && err == nil {
					w.violate("I2", "%s: another request under the same operation was accepted", in.op)
				}
			}
		}
		w.park(w.now.Add(time.Second), nil)
	}
}
