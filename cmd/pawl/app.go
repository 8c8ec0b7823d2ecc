package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/ingress"
	"github.com/pawl-dev/pawl/ingress/api"
	"github.com/pawl-dev/pawl/projector"
	"github.com/pawl-dev/pawl/reconciler"
	"github.com/pawl-dev/pawl/reconciler/effects"
	"github.com/pawl-dev/pawl/streams"
)

// Workers and limits of the parts that do not take them from a description.
const (
	intentWorkers   = 16
	settledWorkers  = 16
	effectWorkers   = 8
	restartPause    = time.Second
	gaugeInterval   = time.Second
	readyPause      = 50 * time.Millisecond
	shutdownTimeout = 15 * time.Second
)

// settings is what an app runs with: the configuration with every reference
// resolved. `serve` makes it from a file, `demo` by hand.
type settings struct {
	Store          *streams.Store
	Listener       net.Listener
	PublicURL      string
	MasterKey      events.Secret
	Providers      map[events.Provider]*provider.Provider
	Targets        []effects.Target
	DefaultEffects []string
	EffectPolicy   effects.Policy
	Hosts          []string
	Logger         *slog.Logger
}

// app is all roles of one process around one store:
//
//	intents ─┐                       ┌─▶ index ─▶ /v1
//	webhooks ┴▶ store ─▶ projector ─▶ bucket ─▶ feed ┼─▶ reconcilers ─▶ providers
//	                                                 └─▶ effects ─▶ targets
type app struct {
	s           settings
	registry    *prometheus.Registry
	ingress     *ingress.Ingress
	index       *api.Index
	caller      *reconciler.Caller
	projector   *projectorRole
	reconcilers []*reconciler.Reconciler
	effects     *effects.Runner
	effectStats *effects.Metrics
	fed         atomic.Bool // the feed has shown the whole bucket once
	halted      atomic.Pointer[string]
}

// now is the one clock of the process: wall time with a monotonic reading.
func now() time.Time { return time.Now() }

func newApp(s settings) (*app, error) {
	a := &app{s: s, registry: prometheus.NewRegistry(), index: api.NewIndex(), caller: reconciler.NewCaller(now)}
	names := make([]events.Provider, 0, len(s.Providers))
	for name := range s.Providers {
		names = append(names, name)
	}
	effectNames := make([]string, 0, len(s.Targets))
	for _, t := range s.Targets {
		effectNames = append(effectNames, t.Name)
	}
	var err error
	a.ingress, err = ingress.New(ingress.Config{
		Ledger: s.Store, Objects: s.Store.Objects(), Providers: s.Providers, PublicURL: s.PublicURL, MasterKey: s.MasterKey,
		EffectNames: effectNames, DefaultEffects: s.DefaultEffects, Replier: s.Store, Now: now, Entropy: rand.Reader,
		Logger: s.Logger.With("part", "ingress"), Metrics: ingress.NewMetrics(a.registry, names),
	})
	if err != nil {
		return nil, fmt.Errorf("ingress: %w", err)
	}
	metrics := reconciler.NewMetrics(a.registry, names)
	for _, p := range s.Providers {
		a.reconcilers = append(a.reconcilers, reconciler.New(reconciler.Config{
			Ledger: s.Store, Objects: s.Store.Objects(), Provider: p, Caller: a.caller, PublicURL: s.PublicURL, MasterKey: s.MasterKey,
			Now: now, Entropy: rand.Reader, Logger: s.Logger.With("part", "reconciler"), Metrics: metrics,
		}))
	}
	a.effectStats = effects.NewMetrics(a.registry, effectNames)
	a.effects, err = effects.New(effects.Config{
		Ledger: s.Store, Jobs: a.job, Caller: a.caller, Publisher: s.Store, Targets: s.Targets, Policy: s.EffectPolicy,
		Now: now, Entropy: rand.Reader, Logger: s.Logger.With("part", "effects"), Metrics: a.effectStats,
	})
	if err != nil {
		return nil, err
	}
	a.projector = newProjectorRole(s, projector.NewMetrics(a.registry))
	return a, nil
}

// job reads one job from the bucket, where the effects consumer looks.
func (a *app) job(ctx context.Context, p events.Provider, op events.OperationID) (*events.Job, error) {
	value, _, err := a.s.Store.Bucket().Load(ctx, events.JobBucketKey(p, op))
	if err != nil {
		return nil, err
	}
	return events.DecodeJob(value)
}

// run runs every role until the context ends or one fails. It returns after all
// have stopped.
func (a *app) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return a.serveHTTP(ctx) })
	g.Go(func() error { return a.feed(ctx) })
	g.Go(func() error { return a.runProjector(ctx) })
	g.Go(func() error { return a.gauges(ctx) })
	g.Go(func() error { return a.consumeIntents(ctx) })
	// Outgoing calls begin when the whole bucket has been seen, and end for good
	// when the ledger is found to have lost history.
	for _, r := range a.reconcilers {
		g.Go(func() error {
			return a.lead(ctx, "reconciler."+r.Name(), func(ctx context.Context) error { return a.reconcile(ctx, r) })
		})
	}
	g.Go(func() error { return a.lead(ctx, "effects.main", a.runEffects) })
	err := g.Wait()
	a.caller.Close()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead runs a role while this process holds its lease, and again after it
// failed.
func (a *app) lead(ctx context.Context, role string, fn func(context.Context) error) error {
	for {
		err := a.s.Store.Lead(ctx, role, fn)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.s.Logger.Warn("role stopped, starting again", "role", role, "err", err)
		if err := sleep(ctx, restartPause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// feed hands every record of the bucket to those that act on jobs or show them.
func (a *app) feed(ctx context.Context) error {
	for {
		err := a.s.Store.Bucket().Watch(ctx, a.observe)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.s.Logger.Warn("bucket watch ended, watching again", "err", err)
		if err := sleep(ctx, restartPause); err != nil {
			return err
		}
	}
}

func (a *app) observe(e streams.Entry) error {
	if e.InitDone {
		a.fed.Store(true)
		return nil
	}
	if !strings.HasPrefix(e.Key, events.JobBucketPrefix) {
		return nil
	}
	if e.Deleted {
		a.index.Forget(events.OperationID(e.Key[strings.LastIndexByte(e.Key, '.')+1:]))
		return nil
	}
	j, err := events.DecodeJob(e.Value)
	if err != nil {
		a.s.Logger.Error("job in the bucket cannot be read", "key", e.Key, "err", err)
		return nil
	}
	for _, r := range a.reconcilers {
		r.Observe(j)
	}
	a.effects.Observe(j)
	a.index.Observe(j) // last: who sees it here may rely on the others
	return nil
}

// ready waits until the feed has shown the whole bucket and the bucket is known
// to belong to the stream. A halt is never over.
func (a *app) ready(ctx context.Context) error {
	verify := a.projector.projector("verify")
	for {
		if a.fed.Load() && a.halted.Load() == nil {
			err := verify.Verify(ctx)
			if err == nil {
				return nil
			}
			if !a.halts(err) {
				a.s.Logger.Warn("bucket and stream cannot be compared yet", "err", err)
			}
		}
		if err := sleep(ctx, readyPause); err != nil {
			return err
		}
	}
}

func (a *app) reconcile(ctx context.Context, r *reconciler.Reconciler) error {
	if err := a.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := a.untilHalted(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for range r.Concurrency() {
		g.Go(func() error { return r.Work(ctx) })
	}
	return g.Wait()
}

func (a *app) runEffects(ctx context.Context) error {
	if err := a.ready(ctx); err != nil {
		return err
	}
	ctx, cancel := a.untilHalted(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for range effectWorkers {
		g.Go(func() error { return a.effects.Work(ctx) })
	}
	g.Go(func() error { return a.s.Store.ConsumeSettled(ctx, settledWorkers, a.effects.Handle) })
	return g.Wait()
}

// errHalted ends outgoing calls after the ledger was found to have lost history.
var errHalted = errors.New("halted: the ledger has lost history")

// untilHalted returns a context that ends with ctx or when calls have to stop.
func (a *app) untilHalted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unregister := a.projector.onHalt(func() { cancel(errHalted) })
	if a.halted.Load() != nil {
		cancel(errHalted) // it came before the registration
	}
	return ctx, func() { unregister(); cancel(nil) }
}

func (a *app) consumeIntents(ctx context.Context) error {
	for {
		err := a.s.Store.ConsumeIntents(ctx, intentWorkers, func(ctx context.Context, m streams.IntentMessage) error {
			return a.ingress.HandleIntent(ctx, ingress.IntentMessage{
				Provider: m.Provider, Body: m.Body, Seq: m.Seq, StreamCreated: m.StreamCreated, At: m.At, ReplyTo: m.ReplyTo,
			})
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a.s.Logger.Warn("intent consumer ended, starting again", "err", err)
		if err := sleep(ctx, restartPause); err != nil {
			return err
		}
	}
}

// gauges refreshes the metrics that are counts of the present.
func (a *app) gauges(ctx context.Context) error {
	for {
		if last, err := a.s.Store.LastSeq(ctx); err == nil {
			a.projector.setLag(last)
		}
		for _, r := range a.reconcilers {
			r.Gauge()
		}
		a.effectStats.SetOwing(a.effects.Owing())
		if err := sleep(ctx, gaugeInterval); err != nil {
			return err
		}
	}
}

func (a *app) serveHTTP(ctx context.Context) error {
	srv := &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(a.s.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(a.s.Listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("http: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // requests that outlast the limit are cut; their senders repeat them
	}
	<-done
	return context.Cause(ctx)
}
