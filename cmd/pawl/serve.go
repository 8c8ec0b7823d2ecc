package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/reconciler/effects"
	"github.com/pawl-dev/pawl/streams"
)

func newServe() *cobra.Command {
	var path string
	var flags Config
	var demoProvider bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run all roles, on embedded NATS unless the configuration names a server",
		Long: `Run all roles: intents, webhooks, API, projector, reconcilers, effects.

Without a configuration file everything runs in this process: NATS is embedded,
data is kept in ./pawl-data, HTTP listens on 127.0.0.1:8480. A flag overrides the
file.`,
		Args: usage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := readConfig(path)
			if err != nil {
				return withCode(exitUsage, err)
			}
			return serve(c.Context(), cfg.overlay(flags), demoProvider, c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVarP(&path, "config", "c", os.Getenv("PAWL_CONFIG"), "configuration file (YAML); also PAWL_CONFIG")
	f.StringVar(&flags.Listen, "listen", "", "host:port of the HTTP server (default 127.0.0.1:8480)")
	f.StringVar(&flags.DataDir, "data-dir", "", "directory of all data (default ./pawl-data)")
	f.StringVar(&flags.LogLevel, "log-level", "", "debug, info, warn or error (default info)")
	f.StringVar(&flags.NATS.URL, "server", os.Getenv("NATS_URL"), "URL of a NATS server; also NATS_URL (default: embedded)")
	f.StringVar(&flags.NATS.Context, "context", os.Getenv("NATS_CONTEXT"), "NATS CLI context, name or path; also NATS_CONTEXT")
	f.StringVar(&flags.NATS.Creds, "creds", os.Getenv("NATS_CREDS"), "NATS credentials file; also NATS_CREDS")
	f.BoolVar(&demoProvider, "with-demo-provider", false, `also run a well-behaved provider on loopback, as "demo"`)
	return c
}

// overlay returns c with every flag that was given in its place.
func (c Config) overlay(f Config) Config {
	set := func(dst *string, v string) {
		if v != "" {
			*dst = v
		}
	}
	set(&c.Listen, f.Listen)
	set(&c.DataDir, f.DataDir)
	set(&c.LogLevel, f.LogLevel)
	set(&c.NATS.URL, f.NATS.URL)
	set(&c.NATS.Context, f.NATS.Context)
	set(&c.NATS.Creds, f.NATS.Creds)
	return c
}

func serve(ctx context.Context, cfg Config, demoProvider bool, stderr io.Writer) (err error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return withCode(exitUsage, fmt.Errorf("config: %w", err))
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return withCode(exitUsage, fmt.Errorf("log_level %q: want debug, info, warn or error", cfg.LogLevel))
	}
	log := newLogger(stderr, level)
	s := settings{DefaultEffects: cfg.DefaultEffects, EffectPolicy: cfg.EffectPacing.policy(), Logger: log}
	if s.Providers, err = cfg.providers(); err != nil {
		return withCode(exitUsage, fmt.Errorf("config: %w", err))
	}
	if s.Targets, err = cfg.targets(); err != nil {
		return withCode(exitUsage, fmt.Errorf("config: %w", err))
	}
	if demoProvider {
		p, stop, err := startDemoProvider(s.Providers)
		if err != nil {
			return err
		}
		defer stop()
		log.Info("demo provider runs", "provider", "demo", "url", p)
	}
	store, closeStore, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer closeStore()
	s.Store = store
	if s.MasterKey, err = cfg.masterKey(); err != nil {
		return err
	}
	if s.Listener, err = net.Listen("tcp", cfg.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w", cfg.Listen, err)
	}
	if s.PublicURL = strings.TrimRight(cfg.PublicURL, "/"); s.PublicURL == "" {
		s.PublicURL = "http://" + s.Listener.Addr().String()
	}
	s.Hosts = hostsFor(s.Listener, s.PublicURL)
	a, err := newApp(s)
	if err != nil {
		return err
	}
	log.Info("serving", "http", s.Listener.Addr().String(), "public_url", s.PublicURL, "ledger", store.LedgerID(), "providers", len(s.Providers), "durability", store.Durability())
	return a.run(ctx)
}

// openStore starts or joins NATS and opens the store; the returned function
// closes both in order.
func openStore(ctx context.Context, cfg Config, log *slog.Logger) (*streams.Store, func(), error) {
	sc := streams.Config{Prefix: cfg.NATS.Prefix, Replicas: cfg.NATS.Replicas, EventsMaxBytes: cfg.NATS.MaxBytes, Logger: log}
	if !cfg.embedded() {
		nc, err := streams.Dial(ctx, streams.ConnConfig{URL: cfg.NATS.URL, Context: cfg.NATS.Context, Creds: cfg.NATS.Creds, Name: "pawl", Logger: log})
		if err != nil {
			return nil, nil, err
		}
		store, err := streams.Open(ctx, nc, sc)
		if err != nil {
			nc.Close()
			return nil, nil, err
		}
		return store, func() { _ = store.Close() }, nil // everything is stored or was not acknowledged
	}
	ns, err := streams.StartEmbedded(streams.EmbeddedConfig{
		Dir: cfg.DataDir, Port: cfg.NATS.Port, Relaxed: cfg.Durability == "relaxed", Logger: log.With("part", "nats"),
	})
	if err != nil {
		return nil, nil, err
	}
	sc.BudgetBytes, sc.Durability = ns.StoreMaxBytes(), ns.Durability()
	nc, err := ns.Dial(ctx, "pawl")
	if err != nil {
		ns.Shutdown()
		return nil, nil, err
	}
	store, err := streams.Open(ctx, nc, sc)
	if err != nil {
		nc.Close()
		ns.Shutdown()
		return nil, nil, err
	}
	log.Info("nats is embedded", "url", ns.URL(), "context", ns.ContextFile())
	return store, func() { _ = store.Close(); ns.Shutdown() }, nil // as above
}

// hostsFor lists the names under which the API answers: loopback names for a
// loopback listener, so that a foreign page cannot reach it by DNS rebinding;
// any name otherwise.
func hostsFor(l net.Listener, publicURL string) []string {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsLoopback() {
		return nil
	}
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if u, err := url.Parse(publicURL); err == nil && u.Hostname() != "" {
		hosts = append(hosts, u.Hostname())
	}
	return hosts
}

func (p EffectPacing) policy() effects.Policy {
	return effects.Policy{
		SendBudget: p.SendBudget, RequestTimeout: p.RequestTimeout, LeaseMargin: p.LeaseMargin,
		RetryBase: p.RetryBase, RetryCap: p.RetryCap, AttemptsMax: p.AttemptsMax,
	}
}

// errDuplicateProvider says that "demo" is taken.
var errDuplicateProvider = errors.New(`--with-demo-provider: a provider named "demo" is configured already`)

// demoName is the provider that --with-demo-provider adds.
const demoName events.Provider = "demo"
