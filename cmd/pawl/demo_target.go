package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Limits of the demo servers.
const (
	demoBodyBytesMax  = 1 << 20
	demoHeaderTimeout = 5 * time.Second
	demoDrainMax      = time.Second // how long Close lets answers drain
	demoSlowDefault   = 300 * time.Millisecond
)

// flakyTarget receives effects as a careful receiver should, and answers as a
// careless network would. Its books are the judge of "once": they say how often
// each effect was really performed, whatever the sender believes.
type flakyTarget struct {
	cfg    flakyTargetConfig
	dice   dice
	verify *standardwebhooks.Webhook
	srv    *loopback

	mu     sync.Mutex
	keys   map[string]*targetKey
	totals targetTotals // only the counts that belong to no key
}

// flakyTargetConfig says where a target listens and how it misbehaves.
type flakyTargetConfig struct {
	Seed   int64
	Addr   string // a loopback host:port; "" is a free port of 127.0.0.1
	Secret string // whsec_..., required
	Faults targetFaults
}

// targetFaults are probabilities from 0 (never, the zero value) to 1 (always).
type targetFaults struct {
	FailBefore float64       // 500, nothing performed
	FailAfter  float64       // performed, then 500 or a closed connection, half each
	Slow       float64       // the answer waits for SlowFor
	SlowFor    time.Duration // 0 is 300 ms
}

// targetBook is a snapshot of what was performed, sorted by operation.
type targetBook struct {
	Seed       int64             `json:"seed"`
	Totals     targetTotals      `json:"totals"`
	Operations []targetOperation `json:"operations"`
}

// targetTotals sums a targetBook. TwiceOrMore counts keys performed more than
// once, which the target itself makes impossible unless it is broken;
// an operation that was performed under several keys shows in its Performed.
type targetTotals struct {
	Requests      int `json:"requests"` // with a good signature and a key
	Keys          int `json:"keys"`
	Performed     int `json:"performed"`
	TwiceOrMore   int `json:"twice_or_more"`
	Deduplicated  int `json:"deduplicated"`
	Violations    int `json:"violations"`
	BadSignatures int `json:"bad_signatures"`
	BadRequests   int `json:"bad_requests"` // no key, no JSON, no POST, too large
}

// targetOperation is everything that was asked for one operation. Operation is
// "" for bodies that name none.
type targetOperation struct {
	Operation    string      `json:"operation"`
	Outcomes     []string    `json:"outcomes"` // distinct, sorted
	Performed    int         `json:"performed"`
	Requests     int         `json:"requests"`
	Deduplicated int         `json:"deduplicated"`
	Keys         []targetKey `json:"keys"`
}

// targetKey is the record of one idempotency key. Violations counts requests
// that came with another body than the first one had.
type targetKey struct {
	Key          string         `json:"key"`
	Operation    string         `json:"operation"`
	Outcome      string         `json:"outcome"`
	BodyHash     string         `json:"body_hash"`
	Requests     int            `json:"requests"`
	Performed    int            `json:"performed"`
	Deduplicated int            `json:"deduplicated"`
	Violations   int            `json:"violations"`
	Faults       map[string]int `json:"faults"`
}

// newFlakyTarget starts a target. It fails on a secret that does not decode and
// on an address that is not loopback or not free.
func newFlakyTarget(cfg flakyTargetConfig) (*flakyTarget, error) {
	cfg.Faults.SlowFor = cmp.Or(cfg.Faults.SlowFor, demoSlowDefault)
	if cfg.Secret == "" {
		return nil, errors.New("demo target: the secret is empty")
	}
	verify, err := standardwebhooks.NewWebhook(cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("demo target: read secret: %w", err)
	}
	t := &flakyTarget{cfg: cfg, dice: dice(cfg.Seed), verify: verify, keys: map[string]*targetKey{}}
	if t.srv, err = startLoopback(cfg.Addr, http.HandlerFunc(t.receive)); err != nil {
		return nil, fmt.Errorf("demo target: %w", err)
	}
	return t, nil
}

// URL is where effects go, path included. Any other path works as well.
func (t *flakyTarget) URL() string { return t.srv.url() + "/effects" }

// Close stops the target and waits for everything it started. The books stay
// readable.
func (t *flakyTarget) Close(ctx context.Context) error { return t.srv.close(ctx) }

func (t *flakyTarget) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, demoBodyBytesMax))
	key := r.Header.Get("Idempotency-Key")
	switch {
	case r.Method != http.MethodPost:
		t.refuse(w, http.StatusMethodNotAllowed, &t.totals.BadRequests)
	case err != nil:
		t.refuse(w, http.StatusRequestEntityTooLarge, &t.totals.BadRequests)
	case t.verify.Verify(body, r.Header) != nil:
		t.refuse(w, http.StatusUnauthorized, &t.totals.BadSignatures)
	case key == "" || !json.Valid(body):
		t.refuse(w, http.StatusBadRequest, &t.totals.BadRequests)
	default:
		code, slow, lost := t.perform(key, body)
		if slow {
			pause(r.Context(), t.cfg.Faults.SlowFor)
		}
		if lost {
			vanish()
		}
		writeJSON(w, code, map[string]string{"key": key, "result": http.StatusText(code)})
	}
}

func (t *flakyTarget) refuse(w http.ResponseWriter, code int, count *int) {
	t.mu.Lock()
	*count++
	t.mu.Unlock()
	writeJSON(w, code, map[string]string{"error": http.StatusText(code)})
}

// perform books one request and says how to answer it. Looking the key up and
// performing are one step under the lock, so that two copies that arrive
// together cannot both perform.
func (t *flakyTarget) perform(key string, body []byte) (code int, slow, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.keys[key]
	if k == nil {
		k = &targetKey{Key: key, BodyHash: hashHex(body), Faults: map[string]int{}}
		k.Operation, k.Outcome = readEffect(body)
		t.keys[key] = k
	}
	k.Requests++
	draw := func(p float64, kind string) bool {
		hit := t.dice.hits(p, kind, key, k.Requests)
		if hit {
			k.Faults[kind]++
		}
		return hit
	}
	slow = draw(t.cfg.Faults.Slow, "slow")
	switch {
	case k.BodyHash != hashHex(body):
		k.Violations++
		return http.StatusUnprocessableEntity, slow, false
	case k.Performed > 0:
		k.Deduplicated++
		return http.StatusOK, slow, false
	case draw(t.cfg.Faults.FailBefore, "fail_before"):
		return http.StatusInternalServerError, slow, false
	}
	k.Performed++
	if draw(t.cfg.Faults.FailAfter, "fail_after") {
		return http.StatusInternalServerError, slow, t.dice.float("fail_after_how", key, k.Requests) < 0.5
	}
	return http.StatusOK, slow, false
}

// readEffect finds the operation and its outcome, at the top of the body or
// under "data", where Standard Webhooks payloads keep them.
func readEffect(body []byte) (operation, outcome string) {
	type fields struct {
		Operation string `json:"operation_id"`
		Outcome   string `json:"outcome"`
		State     string `json:"state"`
	}
	var top struct {
		fields
		Data json.RawMessage `json:"data"`
	}
	var data fields
	// A body of another form names no operation and is booked under "".
	_ = json.Unmarshal(body, &top)
	_ = json.Unmarshal(top.Data, &data)
	return cmp.Or(top.Operation, data.Operation), cmp.Or(top.Outcome, data.Outcome, top.State, data.State)
}

// Book returns a copy of the books, which the caller owns.
func (t *flakyTarget) Book() targetBook {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := targetBook{Seed: t.cfg.Seed, Totals: t.totals}
	ops := map[string]*targetOperation{}
	for _, key := range slices.Sorted(maps.Keys(t.keys)) {
		k := *t.keys[key]
		k.Faults = maps.Clone(k.Faults)
		op := ops[k.Operation]
		if op == nil {
			op = &targetOperation{Operation: k.Operation}
			ops[k.Operation] = op
		}
		op.Keys = append(op.Keys, k)
		op.Outcomes = append(op.Outcomes, k.Outcome)
		op.Performed += k.Performed
		op.Requests += k.Requests
		op.Deduplicated += k.Deduplicated
		b.Totals.Keys++
		b.Totals.Requests += k.Requests
		b.Totals.Performed += k.Performed
		b.Totals.Deduplicated += k.Deduplicated
		b.Totals.Violations += k.Violations
		if k.Performed > 1 {
			b.Totals.TwiceOrMore++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		op := ops[name]
		slices.Sort(op.Outcomes)
		op.Outcomes = slices.Compact(op.Outcomes)
		b.Operations = append(b.Operations, *op)
	}
	return b
}

// dice decides faults from the seed and from what is being done, never from a
// shared generator: scheduling then cannot move a fault to another operation.
type dice int64

// float returns a number in [0, 1), the same for the same arguments.
func (d dice) float(kind, token string, attempt int) float64 {
	sum := d.sum(kind, token, attempt)
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (1 << 53)
}

// hits reports whether an event of probability p happens.
func (d dice) hits(p float64, kind, token string, attempt int) bool {
	return d.float(kind, token, attempt) < p
}

// id returns n (at most 52) lower-case letters and digits.
func (d dice) id(kind, token string, attempt, n int) string {
	sum := d.sum(kind, token, attempt)
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:]))[:n]
}

func (d dice) sum(kind, token string, attempt int) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s\x00%d", int64(d), kind, token, attempt))
}

// loopback is an HTTP server that owns what it starts: close ends its handlers
// and every goroutine of spawn, and waits for them.
type loopback struct {
	http *http.Server
	addr string
	life context.Context // the server's own lifetime, no caller's context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	active int           // goroutines of spawn
	quiet  chan struct{} // closed while active is 0
}

func startLoopback(addr string, h http.Handler) (*loopback, error) {
	addr = cmp.Or(addr, "127.0.0.1:0")
	ap, err := netip.ParseAddrPort(addr)
	if err != nil || !ap.Addr().IsLoopback() {
		return nil, fmt.Errorf("listen on %q: a numeric loopback host:port is required", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l := &loopback{addr: ln.Addr().String(), quiet: make(chan struct{})}
	close(l.quiet)
	l.life, l.stop = context.WithCancel(context.Background())
	l.http = &http.Server{
		ReadHeaderTimeout: demoHeaderTimeout,
		BaseContext:       func(net.Listener) context.Context { return l.life },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !l.enter(0) {
				vanish()
			}
			defer l.leave(0)
			h.ServeHTTP(w, r)
		}),
	}
	l.wg.Go(func() { _ = l.http.Serve(ln) }) // it ends with ErrServerClosed, by close
	return l, nil
}

func (l *loopback) url() string { return "http://" + l.addr }

// spawn runs f on a goroutine that the server owns; after close it does nothing
// and returns false.
func (l *loopback) spawn(f func(context.Context)) bool {
	if !l.enter(1) {
		return false
	}
	go func() {
		defer l.leave(1)
		f(l.life)
	}()
	return true
}

func (l *loopback) enter(active int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.active == 0 && active > 0 {
		l.quiet = make(chan struct{})
	}
	l.active += active
	l.wg.Add(1)
	return true
}

func (l *loopback) leave(active int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active -= active
	if l.active == 0 && active > 0 {
		close(l.quiet)
	}
	l.wg.Done()
}

// idle waits until no goroutine of spawn is left.
func (l *loopback) idle(ctx context.Context) error {
	l.mu.Lock()
	quiet := l.quiet
	l.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *loopback) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	drain, cancel := context.WithTimeout(ctx, demoDrainMax)
	defer cancel()
	// Whatever did not drain in time is cut below.
	_ = l.http.Shutdown(drain)
	_ = l.http.Close()
	done := make(chan struct{})
	go func() {
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
