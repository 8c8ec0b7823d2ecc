package streams

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pawl-dev/pawl/events"
)

// ErrLedgerRegressed means that the stream ends before a sequence that was read
// from it earlier.
var ErrLedgerRegressed = errors.New("the stream has lost history")

// Times of one append.
const (
	tryTimeout    = 5 * time.Second
	appendTimeout = 30 * time.Second // for a context without a deadline; longer than a leader election
	retryPause    = 20 * time.Millisecond
	retryPauseMax = time.Second
)

// Config shapes a store. The zero value is one replica under the prefix "pawl".
type Config struct {
	Prefix   string // of all subjects; upper-cased in stream names; default pawl
	Replicas int    // default 1
	// BudgetBytes is the disk that the limits below share when they are 0; default
	// 10 GiB. The server reserves every limit when it creates a stream, so give
	// Embedded.StoreMaxBytes, or what an account may use. It counts at creation: a
	// limit that is not given explicitly never changes an existing stream.
	BudgetBytes     int64
	EventsMaxBytes  int64  // default 55 % of the budget; the stream refuses beyond it
	IntentsMaxBytes int64  // default 5 %
	JobsMaxBytes    int64  // default 25 %
	ObjectsMaxBytes int64  // default 10 %
	Durability      string // what Store.Durability answers; default "quorum of N" or "single node"
	DedupWindow     time.Duration
	Logger          *slog.Logger
	Now             func() time.Time // default time.Now
	Entropy         io.Reader        // default crypto/rand
}

func (c Config) withDefaults() Config {
	if c.BudgetBytes == 0 {
		c.BudgetBytes = budgetBytes
	}
	size := func(v *int64, percent int64) {
		if *v == 0 {
			*v = c.BudgetBytes / 100 * percent
		}
	}
	if c.Prefix == "" {
		c.Prefix = "pawl"
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	size(&c.EventsMaxBytes, eventsShare)
	size(&c.IntentsMaxBytes, intentsShare)
	size(&c.JobsMaxBytes, jobsShare)
	size(&c.ObjectsMaxBytes, objectsShare)
	if c.DedupWindow == 0 {
		c.DedupWindow = dedupWindow
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Entropy == nil {
		c.Entropy = rand.Reader
	}
	return c
}

func (c Config) validate() error {
	if _, err := events.ParseProvider(c.Prefix); err != nil {
		return fmt.Errorf("prefix %q: want 1 to 32 of a-z, 0-9 and '-'", c.Prefix)
	}
	if c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		return fmt.Errorf("replicas %d: want 1, 3 or 5", c.Replicas)
	}
	return nil
}

// Store is one installation's streams and buckets. Its methods may be called
// concurrently.
type Store struct {
	Log // the event stream, through the store's own wire

	refused  atomic.Pointer[string] // why the last append was not stored, nil: it was
	cfg      Config
	nc       *nats.Conn
	js       jetstream.JetStream
	topology Topology
	objects  objectStore
	ledgerID string

	committer *committer
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// Open creates or checks the streams and returns the store, which owns the
// connection from now on.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	given := cfg
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, nc: nc, js: js}
	s.Log = Log{Wire: natsWire{s}, Prefix: cfg.Prefix}
	if err := s.ensure(ctx, given); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.committer = newCommitter(s)
	s.running.Add(1)
	go func() { defer s.running.Done(); s.committer.run(run) }()
	if err := s.openLedger(ctx); err != nil {
		stop()
		s.running.Wait()
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// openLedger reads the first message of the stream, and writes it into an empty
// one. Two processes that start at once agree by the fence.
func (s *Store) openLedger(ctx context.Context) error {
	id, err := events.NewULID(s.cfg.Now(), s.cfg.Entropy)
	if err != nil {
		return err
	}
	e := events.Event{
		ID: "genesis", Subject: events.GenesisSubject(), Time: s.cfg.Now().UTC(), Actor: "streams", Claim: id,
		Data: &events.Genesis{LedgerID: id},
	}
	got, err := s.Decide(ctx, 0, e)
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	if got.Outcome == events.Fenced && got.Winner != nil {
		e = got.Winner.Event
	}
	g, ok := e.Data.(*events.Genesis)
	if !ok {
		return errors.New("genesis: the subject holds something else")
	}
	s.ledgerID = g.LedgerID
	return nil
}

// Close waits for what the store runs itself and closes the connection.
func (s *Store) Close() error {
	s.stop()
	s.running.Wait()
	s.nc.Close()
	return nil
}

// LedgerID names the genesis of the event stream.
func (s *Store) LedgerID() string { return s.ledgerID }

// Objects is the store of what is too large for an event.
func (s *Store) Objects() events.Objects { return s.objects }

// LastSeq is the last sequence of the event stream.
func (s *Store) LastSeq(ctx context.Context) (uint64, error) {
	info, err := s.info(ctx, s.topology.Events.Name)
	if err != nil {
		return 0, err
	}
	return info.State.LastSeq, nil
}

func (s *Store) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	st, err := s.js.Stream(ctx, stream)
	if err != nil {
		return nil, unavailable("stream info", err)
	}
	return st.CachedInfo(), nil
}

// Ready reports whether an event could be stored now: the stream has a leader
// and is not full. The error wraps events.ErrUnavailable.
func (s *Store) Ready(ctx context.Context) error {
	info, err := s.info(ctx, s.topology.Events.Name)
	if err != nil {
		return err
	}
	if info.Cluster != nil && info.Cluster.Name != "" && info.Cluster.Leader == "" {
		return fmt.Errorf("%w: the event stream has no leader", events.ErrUnavailable)
	}
	if reason := s.refused.Load(); reason != nil {
		return fmt.Errorf("%w: %s; if the disk was full, make space and restart", events.ErrUnavailable, *reason)
	}
	if limit := info.Config.MaxBytes; limit > 0 && int64(info.State.Bytes)+events.EventMaxBytes > limit {
		return fmt.Errorf("%w: the event stream is full (%d of %d bytes)", events.ErrUnavailable, info.State.Bytes, limit)
	}
	return nil
}

// Durability says what an acknowledgement means, for health.
func (s *Store) Durability() string {
	if s.cfg.Durability != "" {
		return s.cfg.Durability
	}
	if s.cfg.Replicas > 1 {
		return fmt.Sprintf("quorum of %d", s.cfg.Replicas)
	}
	return "single node"
}

// unavailable wraps an error of the connection or the server.
func unavailable(doing string, err error) error {
	return fmt.Errorf("%w: %s: %w", events.ErrUnavailable, doing, err)
}

// pubAck is the server's answer to a publish.
type pubAck struct {
	Stream    string    `json:"stream"`
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
	Count     int       `json:"count"`
	Error     *apiError `json:"error"`
}

type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("nats: %s (%d)", e.Description, e.ErrCode) }

// Error codes of the server that mean something to us.
const (
	codeWrongLastSeq       = 10071
	codeDuplicateInProcess = 10158
	codeWrongLastInFlight  = 10164
	codeBatchDuplicate     = 10201
	codeNoMessage          = 10037
	codeStreamNotFound     = 10059
	codeTemporarilyAway    = 10008
	codeLastSeqAway        = 10163
	codeTooManyRequests    = 10167
	codeBatchIncomplete    = 10176
)

// isRefused reports whether an error says that the server will not store: it is
// full, the message is too large, JetStream is off. A repeat would get the same
// answer until somebody acts. An answer that is not known here is one of them:
// it must neither count as stored nor be repeated until the context ends.
func isRefused(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) || errors.Is(err, errClosed) {
		return true
	}
	var api *apiError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrCode {
	case codeWrongLastSeq, codeWrongLastInFlight, codeLastSeqAway, codeDuplicateInProcess, codeBatchDuplicate,
		codeTemporarilyAway, codeTooManyRequests, codeBatchIncomplete:
		return false
	default:
		return true
	}
}

// publish sends one message and waits for its acknowledgement.
func (s *Store) publish(ctx context.Context, m *nats.Msg) (pubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	reply, err := s.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			s.note(m.Subject, errors.New("the store does not answer"))
		}
		return pubAck{}, err
	}
	ack, err := parseAck(reply.Data)
	if err == nil || isRefused(err) {
		s.note(m.Subject, err)
	}
	return ack, err
}

// note remembers the last refusal to store an event, or that storing works
// again, so that readiness says what writers see: a server whose disk was full
// refuses until it is restarted, whatever its figures say.
func (s *Store) note(subject string, err error) {
	if !strings.HasPrefix(subject, s.cfg.Prefix+".events.") {
		return
	}
	if err == nil {
		if s.refused.Load() != nil {
			s.refused.Store(nil)
		}
		return
	}
	text := err.Error()
	s.refused.Store(&text)
}

func parseAck(data []byte) (pubAck, error) {
	var ack pubAck
	if err := json.Unmarshal(data, &ack); err != nil {
		return ack, fmt.Errorf("acknowledgement: %w", err)
	}
	if ack.Error != nil {
		return ack, ack.Error
	}
	return ack, nil
}

// pause waits before another try; it reports false when the context ended.
func pause(ctx context.Context, n int) bool {
	d := min(retryPause<<min(n, 10), retryPauseMax)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// withDeadline gives a context without a deadline the default one.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, appendTimeout)
}
