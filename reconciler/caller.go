package reconciler

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pawl-dev/pawl/events"
)

// Defaults of one call.
const (
	callTimeout      = 30 * time.Second
	responseMaxBytes = 4 << 20
	dialTimeout      = 10 * time.Second
)

// Caller makes outgoing HTTP calls. It never retries and never follows a
// redirect. A request with SendBy (one that a decision stands behind) gets a
// connection of its own: only then is it known exactly whether a byte left, and
// the limit can be checked at the very write. Reads share pooled connections.
//
// Go's transport repeats a request with an Idempotency-Key header on a broken
// pooled connection by itself. Our attempts are counted and decided one by one,
// which is the other reason for the connection of their own.
type Caller struct {
	reads  *http.Transport
	dialer net.Dialer
	now    func() time.Time
}

// NewCaller returns a caller. now is the clock that SendBy is compared with.
func NewCaller(now func() time.Time) *Caller {
	c := &Caller{dialer: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}, now: now}
	c.reads = &http.Transport{
		Proxy:                  nil, // an environment variable must not reroute credentials
		DialContext:            c.dialer.DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxIdleConnsPerHost:    64,
		MaxConnsPerHost:        256,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ForceAttemptHTTP2:      true,
	}
	return c
}

// Close drops idle connections.
func (c *Caller) Close() { c.reads.CloseIdleConnections() }

// Call implements events.Caller. A credential that the other side echoes is
// taken out of the answer before anybody sees it: answers become events.
func (c *Caller) Call(ctx context.Context, r events.Request) events.Response {
	return scrub(c.call(ctx, r), r.SecretValue)
}

// secretMinBytes keeps a word that is too short to be a secret from being taken
// out of every answer.
const secretMinBytes = 8

// scrub removes a credential, with and without its scheme, from an answer.
func scrub(resp events.Response, secret events.Secret) events.Response {
	value := secret.Reveal()
	for _, word := range []string{value, value[strings.LastIndexByte(value, ' ')+1:]} {
		if len(word) < secretMinBytes {
			continue
		}
		resp.Body = bytes.ReplaceAll(resp.Body, []byte(word), []byte("[redacted]"))
		resp.Detail = strings.ReplaceAll(resp.Detail, word, "[redacted]")
		clean := make(map[string][]string, len(resp.Header))
		for k, list := range resp.Header {
			for _, v := range list {
				clean[k] = append(clean[k], strings.ReplaceAll(v, word, "[redacted]"))
			}
		}
		resp.Header = clean
	}
	return resp
}

func (c *Caller) call(ctx context.Context, r events.Request) events.Response {
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = callTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("request timeout"))
	defer cancel()
	req, err := c.build(ctx, r)
	if err != nil {
		return events.Response{Failure: events.CallNotSent, Detail: err.Error()}
	}
	transport := c.reads
	var wire wireState
	if !r.SendBy.IsZero() {
		transport = c.single(&wire, r.SendBy)
		defer transport.CloseIdleConnections()
	} else {
		wire.wrote.Store(true) // unknown on a pooled connection; assume it left
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return failed(ctx, err, &wire)
	}
	defer func() { _ = resp.Body.Close() }() // the answer is read or given up; nothing else to do
	return read(ctx, resp, r.ResponseMaxBytes)
}

func (c *Caller) build(ctx context.Context, r events.Request) (*http.Request, error) {
	var body io.Reader
	if len(r.Body) > 0 {
		// Not a bytes.Reader as such: without GetBody nothing can be sent twice.
		body = struct{ io.Reader }{bytes.NewReader(r.Body)}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		return nil, fmt.Errorf("build request: %w", redact(err))
	}
	req.ContentLength = int64(len(r.Body))
	for k, v := range r.Header {
		req.Header.Set(k, v)
	}
	if r.SecretHeader != "" {
		req.Header.Set(r.SecretHeader, r.SecretValue.Reveal())
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "pawl")
	}
	return req, nil
}

// wireState is what is known of the one connection of a decided request.
type wireState struct {
	wrote atomic.Bool // a byte of the request may have left
	late  atomic.Bool // SendBy passed before the first byte
}

// errLate ends a write that would begin after SendBy.
var errLate = errors.New("send_by passed before the first byte")

// single returns a transport for one exchange over one fresh connection. The
// guard sits above TLS, so a handshake does not count as sent.
func (c *Caller) single(w *wireState, sendBy time.Time) *http.Transport {
	guard := func(conn net.Conn, err error) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		return &guardedConn{Conn: conn, state: w, sendBy: sendBy, now: c.now}, nil
	}
	return &http.Transport{
		Proxy:                  nil,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return guard(c.dialer.DialContext(ctx, network, addr))
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := tls.Dialer{NetDialer: &c.dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}}
			return guard(d.DialContext(ctx, network, addr))
		},
	}
}

// guardedConn refuses a first write after sendBy and remembers that one happened.
type guardedConn struct {
	net.Conn
	state  *wireState
	sendBy time.Time
	now    func() time.Time
}

func (g *guardedConn) Write(b []byte) (int, error) {
	if !g.state.wrote.Load() {
		if g.now().After(g.sendBy) {
			g.state.late.Store(true)
			return 0, errLate
		}
		g.state.wrote.Store(true)
	}
	return g.Conn.Write(b)
}

func failed(ctx context.Context, err error, w *wireState) events.Response {
	r := events.Response{Failure: events.CallBroken, Detail: redact(err).Error()}
	switch {
	case w.late.Load() || !w.wrote.Load():
		r.Failure = events.CallNotSent
	case ctx.Err() != nil:
		r.Failure = events.CallTimeout
	}
	var timeout net.Error
	if r.Failure == events.CallBroken && errors.As(err, &timeout) && timeout.Timeout() {
		r.Failure = events.CallTimeout
	}
	return r
}

func read(ctx context.Context, resp *http.Response, limit int64) events.Response {
	if limit <= 0 {
		limit = responseMaxBytes
	}
	r := events.Response{Status: resp.StatusCode, Header: resp.Header}
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	r.Body = body
	switch {
	case err != nil && ctx.Err() != nil:
		r.Failure, r.Detail = events.CallTimeout, "the answer did not end in time"
	case err != nil:
		r.Failure, r.Detail = events.CallTruncated, redact(err).Error()
	case int64(len(body)) > limit:
		r.Failure, r.Detail = events.CallTooLarge, fmt.Sprintf("answer of over %d bytes", limit)
		r.Body = nil
	}
	return r
}

// redact takes the URL out of an error: paths and queries may carry secrets.
func redact(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
