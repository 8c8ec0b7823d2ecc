package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// ConnConfig says how to reach an external server.
type ConnConfig struct {
	URL      string // default: the context's
	Context  string // name or path of a NATS CLI context
	Creds    string // path of a credentials file
	User     string
	Password string
	Name     string // shown at the server
	Logger   *slog.Logger
}

// Dial connects to an external server. It reconnects for ever, and buffers
// nothing meanwhile: an abandoned decision must not be stored minutes later.
func Dial(ctx context.Context, cfg ConnConfig) (*nats.Conn, error) {
	opts := connOptions(cfg)
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.Context != "" {
		name := cfg.Context
		if strings.ContainsRune(name, filepath.Separator) || strings.HasSuffix(name, ".json") {
			// The context library takes a path only if it is absolute.
			abs, err := filepath.Abs(name)
			if err != nil {
				return nil, fmt.Errorf("connect to NATS context %q: %w", name, err)
			}
			name = abs
		}
		nc, _, err := natscontext.Connect(name, opts...)
		if err != nil {
			return nil, fmt.Errorf("connect to NATS context %q: %w", cfg.Context, err)
		}
		return nc, nil
	}
	return dial(ctx, cfg.URL, opts)
}

func dial(ctx context.Context, url string, opts []nats.Option) (*nats.Conn, error) {
	if d, ok := ctx.Deadline(); ok {
		opts = append(opts, nats.Timeout(time.Until(d)))
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

func connOptions(cfg ConnConfig) []nats.Option {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return []nats.Option{
		nats.Name(cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.PingInterval(20 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("nats disconnected", "err", err) }),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("nats reconnected") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrConnectionClosed) {
				log.Warn("nats connection error", "err", err)
			}
		}),
	}
}
