package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/reconciler/effects"
)

// Config is the configuration file of `pawl serve`. Every field has a default;
// an empty file runs all roles on embedded NATS with no provider. Secrets are
// references: env:NAME, file:/path, or cred:NAME for a systemd credential.
type Config struct {
	Listen    string `yaml:"listen"`     // host:port of the HTTP server; default 127.0.0.1:8480
	PublicURL string `yaml:"public_url"` // where providers reach us; default http://<listen>
	DataDir   string `yaml:"data_dir"`   // default ./pawl-data
	LogLevel  string `yaml:"log_level"`  // debug, info, warn, error; default info
	// Durability of the embedded server: "fsync" (default) or "relaxed".
	Durability string           `yaml:"durability"`
	NATS       NATSConfig       `yaml:"nats"`
	MasterKey  string           `yaml:"master_key"` // secret reference; default: a file in data_dir, made once
	Providers  []ProviderConfig `yaml:"providers"`
	Effects    []EffectConfig   `yaml:"effects"`
	// DefaultEffects run for intents that name none.
	DefaultEffects []string     `yaml:"default_effects"`
	EffectPacing   EffectPacing `yaml:"effect_pacing"`
}

// NATSConfig chooses the server. Without url and context it is embedded.
type NATSConfig struct {
	URL      string `yaml:"url"`
	Context  string `yaml:"context"`   // name or path of a NATS CLI context
	Creds    string `yaml:"creds"`     // path of a credentials file
	Prefix   string `yaml:"prefix"`    // default pawl
	Replicas int    `yaml:"replicas"`  // of streams and buckets; default 1
	Port     int    `yaml:"port"`      // of the embedded server, on loopback; default: a free one
	MaxBytes int64  `yaml:"max_bytes"` // of the event stream; default: the store's own
}

// ProviderConfig is one provider.
type ProviderConfig struct {
	Name           string            `yaml:"name"`
	Description    string            `yaml:"description"` // name of a shipped one, or path of a file; default: name
	BaseURL        string            `yaml:"base_url"`
	Account        string            `yaml:"account"`
	Credentials    map[string]string `yaml:"credentials"`     // secret references, by the description's names
	WebhookSecrets []string          `yaml:"webhook_secrets"` // secret references, all active
	Deadlines      DeadlineConfig    `yaml:"deadlines"`
	Pacing         PacingConfig      `yaml:"pacing"`
}

// DeadlineConfig overlays the clocks of a description.
type DeadlineConfig struct {
	Create  time.Duration `yaml:"create"`
	Recon   time.Duration `yaml:"recon"`
	Result  time.Duration `yaml:"result"`
	Cancel  time.Duration `yaml:"cancel"`
	Confirm time.Duration `yaml:"confirm"`
	Collect time.Duration `yaml:"collect"`
}

// PacingConfig overlays the pacing of a description.
type PacingConfig struct {
	PollBase          time.Duration `yaml:"poll_base"`
	PollCap           time.Duration `yaml:"poll_cap"`
	RetryBase         time.Duration `yaml:"retry_base"`
	RetryCap          time.Duration `yaml:"retry_cap"`
	SendBudget        time.Duration `yaml:"send_budget"`
	RequestTimeout    time.Duration `yaml:"request_timeout"`
	LeaseMargin       time.Duration `yaml:"lease_margin"`
	LookupDelay       time.Duration `yaml:"lookup_delay"`
	ReconcileInterval time.Duration `yaml:"reconcile_interval"`
}

// EffectConfig is one side effect.
type EffectConfig struct {
	Name    string `yaml:"name"`
	Kind    string `yaml:"kind"`    // webhook or nats
	URL     string `yaml:"url"`     // of a webhook
	Secret  string `yaml:"secret"`  // secret reference, of a webhook
	Subject string `yaml:"subject"` // of a nats effect
}

// EffectPacing overlays the pacing of all effects.
type EffectPacing struct {
	SendBudget     time.Duration `yaml:"send_budget"`
	RequestTimeout time.Duration `yaml:"request_timeout"`
	LeaseMargin    time.Duration `yaml:"lease_margin"`
	RetryBase      time.Duration `yaml:"retry_base"`
	RetryCap       time.Duration `yaml:"retry_cap"`
	AttemptsMax    int           `yaml:"attempts_max"`
}

// readConfig reads a file strictly; "" gives the defaults. The error names line
// and column.
func readConfig(path string) (Config, error) {
	var c Config
	if path == "" {
		return c, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read config: %w", err)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return c, nil
	}
	if err := yaml.UnmarshalWithOptions(data, &c, yaml.Strict()); err != nil {
		return c, fmt.Errorf("config %s: %s", path, yaml.FormatError(err, false, true))
	}
	return c, nil
}

func (c Config) withDefaults() Config {
	def := func(dst *string, v string) {
		if *dst == "" {
			*dst = v
		}
	}
	def(&c.Listen, "127.0.0.1:8480")
	def(&c.DataDir, "./pawl-data")
	def(&c.LogLevel, "info")
	def(&c.Durability, "fsync")
	def(&c.NATS.Prefix, "pawl")
	if c.NATS.Replicas == 0 {
		c.NATS.Replicas = 1
	}
	return c
}

func (c Config) validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("listen %q: want host:port", c.Listen)
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return fmt.Errorf("public_url %q: want http(s)://host", c.PublicURL)
		}
	}
	if !c.embedded() && (c.PublicURL == "" || c.MasterKey == "") {
		return errors.New("public_url and master_key are required beside a NATS server: every process has to give providers the same callback URL")
	}
	if c.embedded() && c.NATS.Replicas != 1 {
		return fmt.Errorf("nats.replicas is %d, want 1: the embedded server is one node", c.NATS.Replicas)
	}
	if c.Durability != "fsync" && c.Durability != "relaxed" {
		return fmt.Errorf("durability %q: want fsync or relaxed", c.Durability)
	}
	for _, name := range c.DefaultEffects {
		if !slices.ContainsFunc(c.Effects, func(e EffectConfig) bool { return e.Name == name }) {
			return fmt.Errorf("default_effects: %q is not configured under effects", name)
		}
	}
	return nil
}

// embedded reports whether the NATS server runs in this process.
func (c Config) embedded() bool { return c.NATS.URL == "" && c.NATS.Context == "" }

// secret resolves a reference. The value never appears in the error.
func secret(field, ref string) (events.Secret, error) {
	kind, name, ok := strings.Cut(ref, ":")
	if !ok || name == "" {
		return events.Secret{}, fmt.Errorf("%s: want a reference env:NAME, file:/path or cred:NAME, not a value", field)
	}
	path := name
	switch kind {
	case "env":
		v := os.Getenv(name)
		if v == "" {
			return events.Secret{}, fmt.Errorf("%s: environment variable %s is not set", field, name)
		}
		return events.NewSecret(v), nil
	case "file":
	case "cred":
		dir := os.Getenv("CREDENTIALS_DIRECTORY")
		if dir == "" || strings.ContainsAny(name, `/\`) {
			return events.Secret{}, fmt.Errorf("%s: cred:%s needs a systemd credential of that name (CREDENTIALS_DIRECTORY)", field, name)
		}
		path = filepath.Join(dir, name)
	default:
		return events.Secret{}, fmt.Errorf("%s: reference kind %q is not known; known are env, file and cred", field, kind)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return events.Secret{}, fmt.Errorf("%s: %w", field, err)
	}
	v := strings.TrimRight(string(b), "\r\n")
	if v == "" {
		return events.Secret{}, fmt.Errorf("%s: %s is empty", field, path)
	}
	return events.NewSecret(v), nil
}

// masterKey resolves the configured key, or makes one in the data directory the
// first time. It must stay the same: callback URLs that are out depend on it.
func (c Config) masterKey() (events.Secret, error) {
	if c.MasterKey != "" {
		return secret("master_key", c.MasterKey)
	}
	path := filepath.Join(c.DataDir, "master.key")
	if b, err := os.ReadFile(path); err == nil {
		return events.NewSecret(strings.TrimSpace(string(b))), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return events.Secret{}, fmt.Errorf("master key: %w", err)
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return events.Secret{}, fmt.Errorf("master key: %w", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return events.Secret{}, fmt.Errorf("master key: %w", err)
	}
	text := hex.EncodeToString(key)
	if err := writeOnce(path, text+"\n"); err != nil {
		return events.Secret{}, fmt.Errorf("master key: %w", err)
	}
	return events.NewSecret(text), nil
}

// writeOnce writes a file that survives a power cut whole or not at all.
func writeOnce(path, text string) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	err = dir.Sync()
	if cerr := dir.Close(); err == nil {
		err = cerr
	}
	return err
}

// providers compiles the configured descriptions.
func (c Config) providers() (map[events.Provider]*provider.Provider, error) {
	out := map[events.Provider]*provider.Provider{}
	for i, pc := range c.Providers {
		at := fmt.Sprintf("providers[%d]", i)
		name, err := events.ParseProvider(pc.Name)
		if err != nil {
			return nil, fmt.Errorf("%s.name: %w", at, err)
		}
		if out[name] != nil {
			return nil, fmt.Errorf("%s.name: %q is configured twice", at, name)
		}
		p, err := pc.compile(at, name)
		if err != nil {
			return nil, err
		}
		out[name] = p
	}
	return out, nil
}

func (pc ProviderConfig) compile(at string, name events.Provider) (*provider.Provider, error) {
	which := pc.Description
	if which == "" {
		which = pc.Name
	}
	file := which
	data, err := provider.Builtin(which)
	if err != nil {
		if data, err = os.ReadFile(which); err != nil {
			return nil, fmt.Errorf("%s.description: %q is neither shipped (%s) nor a readable file: %w", at, which, strings.Join(provider.Builtins(), ", "), err)
		}
	}
	d, err := provider.Parse(file, data)
	if err != nil {
		return nil, fmt.Errorf("%s.description: %w", at, err)
	}
	s := provider.Settings{Name: name, BaseURL: pc.BaseURL, Account: pc.Account, Credentials: map[string]events.Secret{}, Deadlines: pc.Deadlines.deadlines(), Policy: pc.Pacing.policy()}
	for k, ref := range pc.Credentials {
		if s.Credentials[k], err = secret(at+".credentials."+k, ref); err != nil {
			return nil, err
		}
	}
	for j, ref := range pc.WebhookSecrets {
		v, err := secret(fmt.Sprintf("%s.webhook_secrets[%d]", at, j), ref)
		if err != nil {
			return nil, err
		}
		s.WebhookSecrets = append(s.WebhookSecrets, v)
	}
	p, err := provider.New(d, s)
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", at, name, err)
	}
	return p, nil
}

func (d DeadlineConfig) deadlines() events.Deadlines {
	return events.Deadlines{
		Create: events.Duration(d.Create), Recon: events.Duration(d.Recon), Result: events.Duration(d.Result),
		Cancel: events.Duration(d.Cancel), Confirm: events.Duration(d.Confirm), Collect: events.Duration(d.Collect),
	}
}

func (p PacingConfig) policy() events.Policy {
	return events.Policy{
		PollBase: p.PollBase, PollCap: p.PollCap, RetryBase: p.RetryBase, RetryCap: p.RetryCap,
		SendBudget: p.SendBudget, RequestTimeout: p.RequestTimeout, LeaseMargin: p.LeaseMargin,
		LookupDelay: p.LookupDelay, ReconcileInterval: p.ReconcileInterval,
	}
}

// targets resolves the configured effects.
func (c Config) targets() ([]effects.Target, error) {
	var out []effects.Target
	for i, e := range c.Effects {
		t := effects.Target{Name: e.Name, Kind: effects.Kind(e.Kind), URL: e.URL, Subject: e.Subject}
		if e.Secret != "" {
			var err error
			if t.Secret, err = secret(fmt.Sprintf("effects[%d].secret", i), e.Secret); err != nil {
				return nil, err
			}
		}
		if err := t.Validate(); err != nil {
			return nil, fmt.Errorf("effects[%d] (%s): %w", i, e.Name, err)
		}
		out = append(out, t)
	}
	return out, nil
}
