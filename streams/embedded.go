package streams

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// ErrLocked means that another process runs on the data directory.
var ErrLocked = errors.New("data directory is in use")

// Limits of the embedded server.
const (
	storeMaxBytesDefault = 64 << 30
	memoryMaxBytes       = 256 << 20
	payloadMaxBytes      = 2 << 20
	startTimeout         = 2 * time.Minute // recovery reads the whole store after a crash
)

// EmbeddedConfig is what the server in this process runs with.
type EmbeddedConfig struct {
	Dir           string       // required; created with mode 0700
	Host          string       // default 127.0.0.1
	Port          int          // 0 or -1: a free one
	StoreMaxBytes int64        // default: the smaller of 64 GiB and 80 % of the free disk
	Relaxed       bool         // sync every second instead of before each ack: a power cut loses acknowledged events
	Logger        *slog.Logger // required
}

// Embedded is a NATS server in this process.
type Embedded struct {
	server   *server.Server
	lock     *os.File
	user     string
	password string
	context  string
	limit    int64
	relaxed  bool
}

// StartEmbedded starts the server and waits until it takes clients. Nothing in
// NATS locks a store directory, so this takes a file lock first; the error of a
// second process wraps ErrLocked and names the holder.
func StartEmbedded(cfg EmbeddedConfig) (*Embedded, error) {
	if cfg.Dir == "" || cfg.Logger == nil {
		return nil, errors.New("start embedded NATS: directory and logger are required")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	lock, err := takeLock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, err
	}
	e := &Embedded{lock: lock}
	if err := e.start(cfg); err != nil {
		_ = lock.Close() // the lock ends with the file
		return nil, fmt.Errorf("start embedded NATS: %w", err)
	}
	return e, nil
}

func (e *Embedded) start(cfg EmbeddedConfig) error {
	// A clustered server deletes streams that it has no assignment for. The mark
	// lets a clustered start refuse this directory.
	if err := os.WriteFile(filepath.Join(cfg.Dir, "embedded"), []byte("This JetStream store belongs to an embedded server.\nMove it to a cluster by backup and restore only.\n"), 0o600); err != nil {
		return err
	}
	e.user = "pawl"
	var err error
	if e.password, err = randomHex(24); err != nil {
		return err
	}
	e.limit, e.relaxed = storeLimit(cfg), cfg.Relaxed
	opts := &server.Options{
		ServerName: "pawl", Host: cfg.Host, Port: cfg.Port, Username: e.user, Password: e.password,
		JetStream: true, StoreDir: filepath.Join(cfg.Dir, "nats"),
		JetStreamMaxStore: e.limit, JetStreamMaxMemory: memoryMaxBytes, MaxPayload: payloadMaxBytes,
		SyncAlways: !cfg.Relaxed, SyncInterval: time.Second,
		NoSigs: true, NoSystemAccount: false, DisableShortFirstPing: true,
	}
	if opts.Host == "" {
		opts.Host = "127.0.0.1"
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	if e.server, err = server.NewServer(opts); err != nil {
		return err
	}
	e.server.SetLoggerV2(&serverLog{cfg.Logger}, false, false, false)
	e.server.Start()
	if !e.server.ReadyForConnections(startTimeout) || !e.server.JetStreamEnabled() {
		e.server.Shutdown()
		e.server.WaitForShutdown()
		return errors.New("the server did not become ready; its own messages are in the log")
	}
	e.context = filepath.Join(cfg.Dir, "nats-context.json")
	if err := e.writeContext(); err != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
		return err
	}
	return nil
}

// writeContext writes a context of the nats CLI, readable by the owner alone.
func (e *Embedded) writeContext() error {
	b, err := json.MarshalIndent(map[string]string{
		"description": "Pawl, embedded NATS", "url": e.URL(), "user": e.user, "password": e.password,
	}, "", "  ")
	if err != nil {
		return err
	}
	_ = os.Remove(e.context) // the mode of an older file must not stay
	return os.WriteFile(e.context, append(b, '\n'), 0o600)
}

// URL is where clients of this machine connect, without credentials.
func (e *Embedded) URL() string { return e.server.ClientURL() }

// ContextFile is the path of a context file for the nats CLI.
func (e *Embedded) ContextFile() string { return e.context }

// StoreMaxBytes is the disk that JetStream may use, for Config.BudgetBytes.
func (e *Embedded) StoreMaxBytes() int64 { return e.limit }

// Durability is "fsync" or "relaxed", for Config.Durability.
func (e *Embedded) Durability() string {
	if e.relaxed {
		return "relaxed"
	}
	return "fsync"
}

// Dial connects in process, without a socket.
func (e *Embedded) Dial(ctx context.Context, name string) (*nats.Conn, error) {
	return dial(ctx, e.URL(), append(connOptions(ConnConfig{Name: name}), nats.InProcessServer(e.server), nats.UserInfo(e.user, e.password)))
}

// Shutdown stops the server, waits for it and gives the directory free.
func (e *Embedded) Shutdown() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
	_ = e.lock.Close() // the lock ends with the file
}

// storeLimit is explicit: the server's own default is most of the free disk, and
// a full disk stays full until a restart.
func storeLimit(cfg EmbeddedConfig) int64 {
	if cfg.StoreMaxBytes > 0 {
		return cfg.StoreMaxBytes
	}
	free, err := freeBytes(cfg.Dir)
	if err != nil {
		return storeMaxBytesDefault
	}
	return min(storeMaxBytesDefault, max(free/10*8, 64<<20))
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}

// serverLog hands the server's messages to our logger. Its notices are traffic
// to us; its warnings and errors are not.
type serverLog struct{ log *slog.Logger }

func (l *serverLog) Noticef(f string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(f, v...))
}
func (l *serverLog) Warnf(f string, v ...any) {
	text := fmt.Sprintf(f, v...)
	if strings.Contains(text, "Plaintext passwords") {
		return // ours is random for each start and is never written but into the context file
	}
	l.log.Warn("nats server", "text", text)
}

func (l *serverLog) Fatalf(f string, v ...any) {
	l.log.Error("nats server", "text", fmt.Sprintf(f, v...))
}
func (l *serverLog) Errorf(f string, v ...any) {
	l.log.Error("nats server", "text", fmt.Sprintf(f, v...))
}
func (l *serverLog) Debugf(f string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(f, v...))
}
func (l *serverLog) Tracef(string, ...any) {}
