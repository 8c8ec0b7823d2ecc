package ingress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// Defaults of the webhook door's limits.
const (
	inFlightDefault      = 1024
	inFlightBytesDefault = 256 << 20
	recordTimeoutDefault = 15 * time.Second // longer than a leader election
)

// Ledger is what the doors write to.
type Ledger interface {
	events.Decider
	events.Recorder
}

// Replier answers the producer of an intent on the subject that it named.
type Replier interface {
	// Reply sends body to a subject. It is told once and not repeated: the
	// producer that needs certainty asks again, or watches the stream.
	Reply(ctx context.Context, subject string, body []byte) error
}

// Config is what the doors need. Ledger, Objects, Providers and Now are
// required; PublicURL and MasterKey are when a provider pushes to a callback URL.
type Config struct {
	Ledger  Ledger
	Objects events.Objects
	// Providers by their configured name.
	Providers map[events.Provider]*provider.Provider
	// PublicURL is where providers reach the webhook door, without path below
	// it: https://pawl.example.com.
	PublicURL string
	// MasterKey makes the macs of callback URLs. Whoever changes it turns the
	// URLs that are out into hints.
	MasterKey events.Secret
	// EffectNames are the configured effects; an intent that names another is
	// refused. DefaultEffects are those of an intent that names none.
	EffectNames    []string
	DefaultEffects []string
	// Replier answers intents that name a reply subject; nil: nobody does.
	Replier Replier
	// InFlight bounds the webhooks handled at a time, 0: 1024; InFlightBytes
	// their bodies in memory, 0: 256 MiB. Beyond either the answer is 503.
	InFlight      int
	InFlightBytes int64
	// RecordTimeout bounds the storing of one webhook, 0: 15 s. Then the answer
	// is 503; a sender that gives up earlier repeats, and finds it stored.
	RecordTimeout time.Duration
	// Now is the clock. It also sets the network deadline of a body, so behind a
	// real server it must be the wall clock.
	Now func() time.Time
	// Entropy makes trace ids and claims; nil: crypto/rand.
	Entropy io.Reader
	Logger  *slog.Logger
	Metrics *Metrics // nil counts nothing
}

func (c Config) withDefaults() Config {
	if c.InFlight <= 0 {
		c.InFlight = inFlightDefault
	}
	if c.InFlightBytes <= 0 {
		c.InFlightBytes = inFlightBytesDefault
	}
	if c.RecordTimeout <= 0 {
		c.RecordTimeout = recordTimeoutDefault
	}
	if c.Entropy == nil {
		c.Entropy = rand.Reader
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.PublicURL = strings.TrimRight(c.PublicURL, "/")
	return c
}

func (c Config) validate() error {
	if c.Ledger == nil || c.Objects == nil || c.Now == nil {
		return errors.New("ingress: Ledger, Objects and Now are required")
	}
	for _, name := range c.DefaultEffects {
		if !slices.Contains(c.EffectNames, name) {
			return fmt.Errorf("ingress: default effect %q is not configured", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p := c.Providers[name]
		if p == nil {
			return fmt.Errorf("ingress: provider %q is nil", name)
		}
		if p.Contract().Callback {
			if err := c.validateCallback(); err != nil {
				return fmt.Errorf("ingress: provider %q pushes to a callback URL: %w", name, err)
			}
		}
	}
	return nil
}

// validateCallback refuses a configuration in which callback URLs would lead
// nowhere, or in which anybody could make a proven one.
func (c Config) validateCallback() error {
	if c.MasterKey.Empty() {
		return errors.New("MasterKey is required")
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("PublicURL must be an absolute http or https URL without query")
	}
	return nil
}

// Ingress is both doors. All methods are safe for concurrent use.
type Ingress struct {
	cfg      Config
	entropy  *lockedReader
	inFlight chan struct{} // a slot for each webhook being handled
	bytes    budget        // bodies of those in memory
}

// New checks the configuration and returns the doors.
func New(cfg Config) (*Ingress, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Ingress{
		cfg:      cfg,
		entropy:  &lockedReader{r: cfg.Entropy},
		inFlight: make(chan struct{}, cfg.InFlight),
		bytes:    budget{max: cfg.InFlightBytes},
	}, nil
}

// lockedReader makes any entropy source safe for concurrent use.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return io.ReadFull(l.r, p)
}
