package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buffer is a bytes.Buffer for a writer and a reader at once.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// service runs `pawl serve` in process until the test ends.
func service(t *testing.T, args ...string) (base, dir string) {
	t.Helper()
	dir = t.TempDir()
	listen := "127.0.0.1:" + freePort(t)
	ctx, stop := context.WithCancel(context.Background())
	log := &buffer{}
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"serve", "--data-dir", dir, "--listen", listen}, args...), io.Discard, log)
	}()
	t.Cleanup(func() {
		stop()
		if code := <-done; code != exitOK {
			t.Errorf("serve: want exit code 0, got %d\n%s", code, log)
		}
	})
	base = "http://" + listen
	awaitReady(t, base, log)
	return base, dir
}

func awaitReady(t *testing.T, base string, log fmt.Stringer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		if resp, err := http.Get(base + "/readyz"); err == nil {
			_ = resp.Body.Close() // the status is the answer
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if sleep(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("the service did not become ready\n%s", log)
		}
	}
}

// pawl runs one command line and returns what it printed.
func pawl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// Without the command line nobody but a program gets anything done.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	base, _ := service(t, "--with-demo-provider")
	server := "--server=" + base
	code, out, errs := pawl(t, "submit", server, "demo", "--id", "cli-1", "--input", `{"report":"q3"}`, "--wait", "30s")
	if code != exitOK || !strings.Contains(out, `"outcome": "confirmed"`) {
		t.Fatalf("submit and wait: code %d\n%s%s", code, out, errs)
	}
	if code, out, _ := pawl(t, "submit", server, "demo", "--id", "cli-1", "--input", `{"report":"q3"}`); code != exitOK || strings.TrimSpace(out) != "cli-1" {
		t.Errorf("same request again: want its id and code 0, got %d %q", code, out)
	}
	if code, _, errs := pawl(t, "submit", server, "demo", "--id", "cli-1", "--input", `{"report":"q4"}`); code != exitRefused || !strings.Contains(errs, "another request") {
		t.Errorf("another request: want a refusal, got %d %q", code, errs)
	}
	if code, _, errs := pawl(t, "submit", server, "demo", "--input", `{"n": 9007199254740993}`); code != exitRefused || !strings.Contains(errs, "input.n") {
		t.Errorf("a number that cannot be fingerprinted: want a refusal that names input.n, got %d %q", code, errs)
	}
	for _, args := range [][]string{{"get", "cli-1"}, {"get", "cli-1", "--json"}, {"get", "cli-1", "--history"}, {"list"}, {"list", "--json", "--state", "succeeded"}, {"watch", "cli-1"}} {
		code, out, errs := pawl(t, append(args, server)...)
		if code != exitOK || !strings.Contains(out, "succeeded") {
			t.Errorf("%v: code %d\n%s%s", args, code, out, errs)
		}
	}
	if code, _, _ := pawl(t, "get", "nothing", server); code != exitMissing {
		t.Errorf("get nothing: want code %d, got %d", exitMissing, code)
	}
	if code, out, _ := pawl(t, "version"); code != exitOK || !strings.HasPrefix(out, "pawl ") {
		t.Errorf("version: %d %q", code, out)
	}
}

// Without the lock two services corrupt one directory.
func TestSecondServeSaysWhoHoldsTheDirectory(t *testing.T) {
	t.Parallel()
	_, dir := service(t)
	code, _, errs := pawl(t, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
	if code == exitOK || !strings.Contains(errs, fmt.Sprint(os.Getpid())) {
		t.Errorf("second serve: want an error naming process %d, got %d %q", os.Getpid(), code, errs)
	}
}

// Without a position a typing error in a configuration is a search.
func TestConfigurationErrorsSayWhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broken := write("broken.yaml", "version: 1\nname: broken\ncreate:\n  path: /jobs\n  id: \"${body.id + }\"\nstatus: {path: /jobs, state: \"${body.s}\"}\nstates: {done: succeeded}\n")
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":      {"listen: 127.0.0.1:0\nlisten_on: x\n", "[2:1]"},
		"unknown provider": {"providers:\n  - name: nowhere\n", "neither shipped"},
		"missing secret":   {"providers:\n  - {name: replicate-prediction}\n", "api_token"},
		"secret as value":  {"effects:\n  - {name: n, kind: webhook, url: \"http://x\", secret: hunter2}\n", "want a reference"},
		"unknown effect":   {"default_effects: [nope]\n", `"nope"`},
		"description":      {"providers:\n  - {name: broken, description: " + broken + ", base_url: \"http://x\"}\n", "broken.yaml:5:"},
		"not yaml":         {"listen: [\n", "config"},
	} {
		path := write(strings.ReplaceAll(name, " ", "-")+".conf", c.text)
		code, _, errs := pawl(t, "serve", "--config", path, "--data-dir", filepath.Join(dir, "data"))
		if code != exitUsage || !strings.Contains(errs, c.want) || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: want code %d and %q, got %d %q", name, exitUsage, c.want, code, errs)
		}
	}
}

// Without the metrics nobody sees that webhooks fail quietly.
func TestMetricsAndHealth(t *testing.T) {
	t.Parallel()
	base, _ := service(t, "--with-demo-provider")
	get := func(path string) string {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // read below
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		return string(b)
	}
	metrics := get("/metrics")
	for _, name := range []string{
		`pawl_reconciler_rescues_total{provider="demo"} 0`, `pawl_ingress_webhooks_total{outcome="duplicate",provider="demo"} 0`,
		`pawl_reconciler_unknown_creates{provider="demo"} 0`, `pawl_reconciler_unknown_creates_total{provider="demo"} 0`,
		"pawl_projector_lag_events", `pawl_submit_to_settled_seconds_bucket{provider="demo",le="300"} 0`, `pawl_review_open{provider="demo"} 0`,
	} {
		if !strings.Contains(metrics, name) {
			t.Errorf("metrics: %s is missing", name)
		}
	}
	if h := get("/healthz"); !strings.Contains(h, `"status":"ok"`) || !strings.Contains(h, "fsync") {
		t.Errorf("healthz: %s", h)
	}
}

// Without the demo the first minute with Pawl shows nothing. It fails when a
// promise is broken.
func TestDemo(t *testing.T) {
	t.Parallel()
	code, out, errs := pawl(t, "demo", "--operations", "60", "--seed", "11", "--json")
	if code != exitOK || !strings.Contains(out, `"ok": true`) {
		t.Errorf("demo: code %d\n%s%s", code, out, errs)
	}
}
