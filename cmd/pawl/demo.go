package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/reconciler/effects"
)

// Names and secrets of the demo. The secrets protect nothing: everything runs on
// loopback in one process.
const (
	demoGeneric    events.Provider = "render"  // honours tokens
	demoBlind      events.Provider = "predict" // does not
	demoEffect                     = "notify"
	demoHookSecret                 = "whsec_ZGVtby1zZWNyZXQtb2Ytbm8tdmFsdWU0MjQy"
	demoToken                      = "demo-token"
	demoBlindShare                 = 5 // every fifth operation goes to the blind provider
	demoTimeMax                    = 55 * time.Second
)

func newDemo() *cobra.Command {
	var o demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole loop against a provider that misbehaves, and compare the books",
		Long: `Run Pawl with embedded NATS in a temporary directory against two providers and
an effect target on loopback. They lose answers, answer 500 after committing, drop
30 % of the webhooks, duplicate, reorder and forge others, and lag. At the end the
providers' and the target's own books are compared with Pawl's. Exit code 3 means
that a promise was broken. All timeouts are scaled to about a second.`,
		Args: usage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.operations < 1 || o.operations > 10_000 {
				return withCode(exitUsage, errors.New("--operations: want 1 to 10000"))
			}
			return runDemo(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.IntVar(&o.operations, "operations", 200, "how many operations to submit")
	f.Int64Var(&o.seed, "seed", 1, "seed of the misbehaviour")
	f.BoolVar(&o.json, "json", false, "print the comparison as JSON")
	f.BoolVar(&o.keep, "keep", false, "keep the data directory and say where it is")
	return c
}

type demoOptions struct {
	operations int
	seed       int64
	json, keep bool
}

// Shapes of the demo's providers.
const (
	shapeGeneric   = "generic"   // honours tokens; description "generic"
	shapeReplicate = "replicate" // token-blind; description "replicate-prediction"
)

// demoFaults is how the providers of the demo misbehave.
func demoFaults() faults {
	return faults{
		LoseAnswer: 0.12, ErrorAfterCommit: 0.08, ErrorBeforeCommit: 0.05, Throttle: 0.05,
		DropWebhook: 0.30, DuplicateWebhook: 0.20, ReorderWebhooks: 0.15, WebhookBeforeAnswer: 0.10, BadSignature: 0.10,
		StatusError: 0.05, NotFoundAfterCreate: 0.10, StatusLag: 0.20, FailJob: 0.10, Slow: 0.05,
		LagFor: 400 * time.Millisecond, NotFoundFor: 300 * time.Millisecond, SlowFor: 300 * time.Millisecond,
	}
}

// demoRun is everything that a demo started.
type demoRun struct {
	opts    demoOptions
	dir     string
	app     *app
	generic *flakyProvider
	blind   *flakyProvider
	target  *flakyTarget
	began   time.Time
	closers []func()
}

func (d *demoRun) close() {
	for i := len(d.closers) - 1; i >= 0; i-- {
		d.closers[i]()
	}
}

func runDemo(ctx context.Context, o demoOptions, stdout, stderr io.Writer) error {
	d := &demoRun{opts: o}
	defer d.close()
	if err := d.start(ctx, stderr); err != nil {
		return err
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.app.run(run) }()
	err := d.play(run, ended, newProgress(stderr, o.json))
	var report demoReport
	if err == nil {
		report, err = d.compare(ctx)
	}
	stop()
	<-ended
	if err != nil {
		return err
	}
	if o.json {
		err = printJSON(stdout, report)
	} else {
		err = report.print(stdout)
	}
	if err == nil && !report.OK {
		err = withCode(exitBroken, errors.New("a promise was broken; run again with --keep and look at the history"))
	}
	return err
}

// start builds providers, target and Pawl, all on loopback.
func (d *demoRun) start(ctx context.Context, stderr io.Writer) error {
	dir, err := os.MkdirTemp("", "pawl-demo-")
	if err != nil {
		return fmt.Errorf("demo directory: %w", err)
	}
	d.dir = dir
	d.closers = append(d.closers, func() {
		if !d.opts.keep {
			_ = os.RemoveAll(dir) // a leftover in the temporary directory harms nothing
		}
	})
	if d.opts.keep {
		_, _ = fmt.Fprintf(stderr, "data directory: %s\n", dir) // nowhere else to say it
	}
	base := flakyProviderConfig{Seed: d.opts.seed, WebhookSecret: demoHookSecret, APIToken: demoToken, Faults: demoFaults(), JobMin: 100 * time.Millisecond, JobMax: 900 * time.Millisecond}
	generic, blind := base, base
	generic.Shape, blind.Shape = shapeGeneric, shapeReplicate
	if d.generic, err = newFlakyProvider(generic); err != nil {
		return err
	}
	d.closers = append(d.closers, func() { closeSoon(d.generic) })
	if d.blind, err = newFlakyProvider(blind); err != nil {
		return err
	}
	d.closers = append(d.closers, func() { closeSoon(d.blind) })
	d.target, err = newFlakyTarget(flakyTargetConfig{Seed: d.opts.seed, Secret: demoHookSecret, Faults: targetFaults{FailBefore: 0.10, FailAfter: 0.10, Slow: 0.05}})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, func() { closeSoon(d.target) })
	return d.startApp(ctx, stderr)
}

func closeSoon(c interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.Close(ctx) // the process ends next
}

func (d *demoRun) startApp(ctx context.Context, stderr io.Writer) error {
	log := slog.New(slog.DiscardHandler)
	if d.opts.keep {
		f, err := os.Create(filepath.Join(d.dir, "pawl.log"))
		if err != nil {
			return fmt.Errorf("demo log: %w", err)
		}
		d.closers = append(d.closers, func() { _ = f.Close() }) // nothing left to lose
		log = slog.New(slog.NewJSONHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg := Config{DataDir: d.dir}.withDefaults()
	store, closeStore, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	d.closers = append(d.closers, closeStore)
	key, err := cfg.masterKey()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("demo listener: %w", err)
	}
	s := settings{
		Store: store, Listener: listener, PublicURL: "http://" + listener.Addr().String(), MasterKey: key, Logger: log,
		Providers:      map[events.Provider]*provider.Provider{},
		Targets:        []effects.Target{{Name: demoEffect, Kind: effects.KindWebhook, URL: d.target.URL(), Secret: events.NewSecret(demoHookSecret)}},
		DefaultEffects: []string{demoEffect},
		EffectPolicy:   effects.Policy{SendBudget: 2 * time.Second, RequestTimeout: time.Second, LeaseMargin: 500 * time.Millisecond, RetryBase: 100 * time.Millisecond, RetryCap: time.Second},
	}
	for name, x := range map[events.Provider]struct{ description, url string }{
		demoGeneric: {"generic", d.generic.URL()}, demoBlind: {"replicate-prediction", d.blind.URL()},
	} {
		if s.Providers[name], err = demoProvider(name, x.description, x.url); err != nil {
			return err
		}
	}
	d.app, err = newApp(s)
	return err
}

// demoProvider compiles a shipped description with timeouts scaled to seconds.
func demoProvider(name events.Provider, description, url string) (*provider.Provider, error) {
	data, err := provider.Builtin(description)
	if err != nil {
		return nil, err
	}
	desc, err := provider.Parse(description, data)
	if err != nil {
		return nil, err
	}
	sec := func(n int) events.Duration { return events.Duration(time.Duration(n) * time.Second) }
	return provider.New(desc, provider.Settings{
		Name: name, BaseURL: url, WebhookSecrets: []events.Secret{events.NewSecret(demoHookSecret)},
		Credentials: map[string]events.Secret{"api_token": events.NewSecret(demoToken)},
		Deadlines:   events.Deadlines{Create: sec(20), Recon: sec(5), Result: sec(40), Confirm: sec(20), Collect: sec(20)},
		Policy: events.Policy{
			PollBase: 300 * time.Millisecond, PollCap: time.Second, RetryBase: 150 * time.Millisecond, RetryCap: time.Second,
			SendBudget: 2 * time.Second, RequestTimeout: time.Second, LeaseMargin: 500 * time.Millisecond, LookupDelay: 100 * time.Millisecond,
		},
	})
}

// operationName is the id of the i-th operation, from 1.
func operationName(i int) (events.OperationID, events.Provider) {
	p := demoGeneric
	if i%demoBlindShare == 0 {
		p = demoBlind
	}
	return events.OperationID(fmt.Sprintf("demo-%05d", i)), p
}

// play submits every intent on NATS, as a producer would, and waits until each
// operation is settled with its effect done, or waits for a person.
func (d *demoRun) play(ctx context.Context, ended <-chan error, show *progress) error {
	d.began = now()
	for i := 1; i <= d.opts.operations; i++ {
		op, p := operationName(i)
		input := map[string]any{"scene": i}
		if p == demoBlind {
			input = map[string]any{"version": "v1", "input": map[string]any{"prompt": i}}
		}
		body, err := json.Marshal(map[string]any{"operation_id": op, "input": input, "authorized_by": "demo"})
		if err != nil {
			return err
		}
		if _, err := d.app.s.Store.PublishIntent(ctx, p, body, ""); err != nil {
			return err
		}
	}
	for {
		st := d.tally()
		show.update(st, now().Sub(d.began))
		if st.Open == 0 && d.app.effects.Owing() == 0 && st.known() == d.opts.operations {
			show.done()
			return nil
		}
		if now().Sub(d.began) > demoTimeMax {
			show.done()
			return nil // the comparison says what is missing
		}
		select {
		case err := <-ended:
			return fmt.Errorf("pawl stopped during the demo: %w", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// tally counts the operations by where they stand.
func (d *demoRun) tally() demoTally {
	var t demoTally
	for i := 1; i <= d.opts.operations; i++ {
		op, _ := operationName(i)
		j, ok := d.app.index.Job(op)
		switch {
		case !ok:
			t.Unknown++
		case j.State.Settled():
			t.Settled++
			if s := j.LatestSettlement(); s == nil || !s.Public.Set() {
				t.Open++
			}
		case j.State.Suspended() && len(j.OpenReviews()) > 0:
			t.Review++
		default:
			t.Open++
			switch j.State {
			case events.StateCreateUnknown, events.StateReconciling, events.StateSubmitted:
				t.InDoubt++
			case events.StateConfirming:
				t.Confirming++
			}
		}
	}
	return t
}
