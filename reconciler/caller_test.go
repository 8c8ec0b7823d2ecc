package reconciler_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/reconciler"
)

func newCaller(t *testing.T) *reconciler.Caller {
	t.Helper()
	c := reconciler.NewCaller(time.Now)
	t.Cleanup(c.Close)
	return c
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// hijack takes the connection away from the server.
func hijack(t *testing.T, w http.ResponseWriter) net.Conn {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	return c
}

// decided is a request that a decision stands behind.
func decided(url string) events.Request {
	return events.Request{
		Method: "POST", URL: url, Body: []byte(`{"a":1}`), SendBy: time.Now().Add(time.Minute), Timeout: 10 * time.Second,
		Header: map[string]string{"Idempotency-Key": "op_1", "Content-Type": "application/json"},
	}
}

// A create that leaves after its budget is a create that nobody waits for: by
// then another worker may have called the attempt lost.
func TestNothingLeavesAfterSendBy(t *testing.T) {
	t.Parallel()
	var connections, requests atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	s.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateActive {
			connections.Add(1) // at least one byte came
		}
	}
	s.Start()
	defer s.Close()
	for name, url := range map[string]string{"plain": s.URL} {
		r := decided(url)
		r.SendBy = time.Now().Add(-time.Millisecond)
		got := newCaller(t).Call(t.Context(), r)
		if got.Failure != events.CallNotSent || got.Status != 0 {
			t.Errorf("%s: want %s, got %+v", name, events.CallNotSent, got)
		}
	}
	s.Close() // waits for the connections
	if connections.Load() != 0 || requests.Load() != 0 {
		t.Errorf("the server saw %d bytes' connections and %d requests, want none", connections.Load(), requests.Load())
	}
}

// A refused connection proves that nothing was sent; taken for unknown it would
// cost a look-up or a person.
func TestConnectionRefusedIsNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	_ = l.Close() // nobody listens from here
	if got := newCaller(t).Call(t.Context(), decided(url)); got.Failure != events.CallNotSent {
		t.Errorf("want %s, got %+v", events.CallNotSent, got)
	}
}

// A TLS handshake that fails has sent nothing of the request.
func TestFailedHandshakeIsNotSent(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = quietLog
	s.StartTLS() // with a certificate that nobody trusts
	t.Cleanup(s.Close)
	if got := newCaller(t).Call(t.Context(), decided(s.URL)); got.Failure != events.CallNotSent {
		t.Errorf("want %s, got %+v", events.CallNotSent, got)
	}
}

// Go's transport sends a request with an Idempotency-Key again by itself when a
// pooled connection breaks. Our attempts are counted; a hidden one is a lie.
func TestBrokenConnectionIsOneRequest(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if requests.Add(1) == 1 {
			_, _ = io.WriteString(w, "{}") // a first good answer would leave a pooled connection
			return
		}
		if c := hijack(t, w); c != nil {
			_ = c.Close()
		}
	})
	c := newCaller(t)
	if got := c.Call(t.Context(), decided(s.URL)); got.Status != 200 || got.Failure != "" {
		t.Fatalf("first call: want 200, got %+v", got)
	}
	got := c.Call(t.Context(), decided(s.URL))
	if got.Failure != events.CallBroken || got.Status != 0 {
		t.Errorf("no answer: want %s, got %+v", events.CallBroken, got)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("requests at the server: want 2, got %d", n)
	}
}

// Without a limit of its own a stalled provider holds a worker for ever.
func TestStalledAnswerIsTimeout(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		begin  bool // the answer begins
		status int
		sendBy bool
	}{{"create, no answer", false, 0, true}, {"create, half an answer", true, 200, true}, {"read, no answer", false, 0, false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			over := make(chan struct{})
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if tc.begin {
					w.Header().Set("Content-Length", "100")
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush()
				}
				<-over
			})
			t.Cleanup(func() { close(over) }) // before the server closes
			r := decided(s.URL)
			r.Timeout = 100 * time.Millisecond
			if !tc.sendBy {
				r.SendBy = time.Time{}
			}
			if got := newCaller(t).Call(t.Context(), r); got.Failure != events.CallTimeout || got.Status != tc.status {
				t.Errorf("want %s with status %d, got %+v", events.CallTimeout, tc.status, got)
			}
		})
	}
}

// Half a body must not be read as a whole one.
func TestIncompleteBodies(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/short":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"job_id":"1"}`)
		case "/chunked":
			if c := hijack(t, w); c != nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n")
				_ = c.Close()
			}
		case "/exact":
			_, _ = io.WriteString(w, strings.Repeat("x", 64))
		default:
			_, _ = io.WriteString(w, strings.Repeat("x", 65))
		}
	})
	for _, tc := range []struct {
		path string
		want events.CallFailure
		size int
	}{{"/short", events.CallTruncated, 14}, {"/chunked", events.CallTruncated, 5}, {"/exact", "", 64}, {"/large", events.CallTooLarge, 0}} {
		r := decided(s.URL + tc.path)
		r.ResponseMaxBytes = 64
		got := newCaller(t).Call(t.Context(), r)
		if got.Failure != tc.want || got.Status != 200 || len(got.Body) != tc.size {
			t.Errorf("%s: want %q with %d bytes, got %+v", tc.path, tc.want, tc.size, got)
		}
	}
}

// A followed redirect sends the credential, and the create, somewhere else.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32
	other := serve(t, func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	c := newCaller(t)
	for _, sendBy := range []time.Time{{}, time.Now().Add(time.Minute)} {
		r := decided(s.URL)
		r.SendBy = sendBy
		if got := c.Call(t.Context(), r); got.Status != http.StatusTemporaryRedirect || got.Failure != "" {
			t.Errorf("want the redirect itself, got %+v", got)
		}
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("requests at the redirect's target: want 0, got %d", n)
	}
}

// A credential in an error text ends up in events, logs and pages.
func TestSecretIsSentAndNeverTold(t *testing.T) {
	t.Parallel()
	const secret = "sk-very-secret"
	seen := make(chan string, 8)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		if c := hijack(t, w); c != nil {
			_ = c.Close()
		}
	})
	c := newCaller(t)
	for name, r := range map[string]events.Request{
		"broken":     decided(s.URL + "/jobs?key=" + secret),
		"refused":    decided("http://127.0.0.1:1/jobs?key=" + secret),
		"bad url":    decided("http://127.0.0.1:1/" + secret + "\x7f"),
		"bad header": decided(s.URL),
	} {
		r.SecretHeader, r.SecretValue = "Authorization", events.NewSecret("Bearer "+secret)
		if name == "bad header" {
			r.SecretValue = events.NewSecret(secret + "\r\nX: y")
		}
		got := c.Call(t.Context(), r)
		if got.Failure == "" {
			t.Errorf("%s: want a failure, got %+v", name, got)
		}
		if text := fmt.Sprintf("%+v %+v", got, r.SecretValue); strings.Contains(text, secret) {
			t.Errorf("%s: want no secret, got %s", name, text)
		}
	}
	if got := <-seen; got != "Bearer "+secret {
		t.Errorf("the server's Authorization: want the secret, got %q", got)
	}
	if n := len(seen); n != 0 {
		t.Errorf("further requests at the server: want 0, got %d", n)
	}
}

// Without pooled connections every poll costs a handshake. A create must have a
// connection of its own: only then is it known whether a byte left.
func TestReadsShareConnections(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := map[string]int{}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.Method+" "+r.RemoteAddr]++
		mu.Unlock()
		_, _ = io.WriteString(w, "{}")
	})
	c := newCaller(t)
	for range 5 {
		if got := c.Call(t.Context(), events.Request{Method: "GET", URL: s.URL}); got.Status != 200 {
			t.Fatalf("read: want 200, got %+v", got)
		}
		if got := c.Call(t.Context(), decided(s.URL)); got.Status != 200 {
			t.Fatalf("create: want 200, got %+v", got)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	gets, posts := 0, 0
	for k := range from {
		if strings.HasPrefix(k, "GET") {
			gets++
		} else {
			posts++
		}
	}
	if gets != 1 || posts != 5 {
		t.Errorf("connections: want 1 for reads and 5 for creates, got %d and %d", gets, posts)
	}
}

// Without scrubbing, a provider that repeats our credential in an error message
// puts it into events, history and effects.
func TestEchoedCredentialIsTakenOut(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":{"message":"bad token `+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")+` in `+r.Header.Get("Authorization")+`"}}`)
	}))
	t.Cleanup(srv.Close)
	c := reconciler.NewCaller(time.Now)
	defer c.Close()
	resp := c.Call(t.Context(), events.Request{Method: "GET", URL: srv.URL, SecretHeader: "Authorization", SecretValue: events.NewSecret("Bearer canary-4711-secret")})
	if all := fmt.Sprint(string(resp.Body), resp.Header, resp.Detail); strings.Contains(all, "canary-4711") || !strings.Contains(all, "[redacted]") {
		t.Errorf("answer: want the credential taken out, got %s", all)
	}
}
