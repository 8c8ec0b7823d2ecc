package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// killRounds is how often the service is killed.
const killRounds = 20

// TestKill kills the real binary with SIGKILL twenty times while it works, with
// provider and effect target living on in the test and keeping their books.
// Without a durable decision before the wire, a kill sends a create twice;
// without the fold from the stream, it loses a completion; without a key that
// survives, it repeats an effect. PAWL_KILL_OPS sets the number of operations.
func TestKill(t *testing.T) {
	ops := 100
	if v := os.Getenv("PAWL_KILL_OPS"); v != "" {
		var err error
		if ops, err = strconv.Atoi(v); err != nil {
			t.Fatalf("PAWL_KILL_OPS: %v", err)
		}
	}
	if testing.Short() {
		t.Skip("kills processes for half a minute")
	}
	k := newKillRun(t, ops)
	submitted := make(chan struct{})
	go func() { defer close(submitted); k.submitAll() }()
	for round := range killRounds {
		k.startService()
		time.Sleep(time.Duration(300+k.rand.IntN(1200)) * time.Millisecond) // how long it lives is the experiment, not a synchronisation
		k.kill()
		t.Logf("kill %d", round+1)
	}
	k.startService()
	defer k.kill()
	<-submitted
	k.awaitSettled()
	k.judge()
}

type killRun struct {
	t        *testing.T
	ops      int
	rand     *rand.Rand
	binary   string
	config   string
	base     string
	provider *flakyProvider
	target   *flakyTarget
	cmd      *exec.Cmd
	log      *os.File
}

func newKillRun(t *testing.T, ops int) *killRun {
	t.Helper()
	dir := t.TempDir()
	k := &killRun{t: t, ops: ops, rand: rand.New(rand.NewPCG(1, uint64(ops))), binary: filepath.Join(dir, "pawl"), config: filepath.Join(dir, "pawl.yaml")}
	build := exec.Command("go", "build", "-o", k.binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var err error
	if k.provider, err = newFlakyProvider(flakyProviderConfig{Seed: 7, Shape: shapeGeneric, WebhookSecret: demoHookSecret, APIToken: demoToken, Faults: demoFaults(), JobMin: 100 * time.Millisecond, JobMax: 1500 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(k.provider) })
	if k.target, err = newFlakyTarget(flakyTargetConfig{Seed: 7, Secret: demoHookSecret, Faults: targetFaults{FailBefore: 0.1, FailAfter: 0.1, Slow: 0.05}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(k.target) })
	port := freePort(t)
	k.base = "http://127.0.0.1:" + port
	text := fmt.Sprintf(`listen: 127.0.0.1:%s
data_dir: %s
log_level: warn
providers:
  - name: render
    description: generic
    base_url: %s
    credentials: {api_token: env:KILL_TOKEN}
    webhook_secrets: [env:KILL_SECRET]
    deadlines: {create: 5m, recon: 5m, result: 5m, confirm: 5m, collect: 5m}
    pacing: {poll_base: 300ms, poll_cap: 1s, retry_base: 150ms, retry_cap: 1s, send_budget: 2s, request_timeout: 1s, lease_margin: 500ms}
effects:
  - {name: notify, kind: webhook, url: "%s", secret: "env:KILL_SECRET"}
default_effects: [notify]
effect_pacing: {send_budget: 2s, request_timeout: 1s, lease_margin: 500ms, retry_base: 100ms, retry_cap: 1s}
`, port, filepath.Join(dir, "data"), k.provider.URL(), k.target.URL())
	if err := os.WriteFile(k.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if k.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			if b, err := os.ReadFile(k.log.Name()); err == nil {
				t.Logf("service log, last part:\n%s", b[max(0, len(b)-8000):])
			}
		}
	})
	return k
}

// freePort picks a port that nobody listens on, for a service that has to come
// back under the same address.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (k *killRun) startService() {
	k.t.Helper()
	k.cmd = exec.Command(k.binary, "serve", "--config", k.config)
	k.cmd.Env = append(os.Environ(), "KILL_TOKEN="+demoToken, "KILL_SECRET="+demoHookSecret)
	k.cmd.Stderr = k.log
	if err := k.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killRun) kill() {
	_ = k.cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself, which the books would show
	_ = k.cmd.Wait()
}

// submitAll submits every operation over HTTP, again until it is accepted: the
// same id and request again is what a careful producer does.
func (k *killRun) submitAll() {
	spread := time.Duration(killRounds) * time.Second / time.Duration(k.ops)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				k.submit(i)
			}
		})
	}
	tick := time.NewTicker(max(spread, time.Millisecond))
	defer tick.Stop()
	for i := range k.ops {
		<-tick.C
		work <- i
	}
	close(work)
	wg.Wait()
}

func (k *killRun) submit(i int) {
	body := fmt.Appendf(nil, `{"operation_id":"kill-%05d","provider":"render","input":{"scene":%d}}`, i, i)
	for try := range 600 {
		req, err := http.NewRequestWithContext(k.t.Context(), http.MethodPost, k.base+"/v1/operations", bytes.NewReader(body))
		if err != nil {
			k.t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close() // the status is the answer
			if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusOK {
				return
			}
			if resp.StatusCode < 500 {
				k.t.Errorf("submit %d: status %d", i, resp.StatusCode)
				return
			}
		}
		if sleep(k.t.Context(), min(time.Duration(try+1)*50*time.Millisecond, 500*time.Millisecond)) != nil {
			return
		}
	}
	k.t.Errorf("submit %d: never accepted", i)
}

// awaitSettled waits until the target has performed an effect of each operation;
// the judgement says what is missing after three minutes.
func (k *killRun) awaitSettled() {
	ctx, cancel := context.WithTimeout(k.t.Context(), 3*time.Minute)
	defer cancel()
	for sleep(ctx, 500*time.Millisecond) == nil {
		performed := 0
		for _, o := range k.target.Book().Operations {
			if o.Performed > 0 {
				performed++
			}
		}
		if performed == k.ops {
			return
		}
	}
}

func (k *killRun) judge() {
	remote := k.provider.Book()
	byOp := map[string]providerOperation{}
	duplicates, changed := 0, 0
	for _, o := range remote.Operations {
		byOp[o.Operation] = o
		if len(o.Jobs) > 1 {
			duplicates++
			k.t.Errorf("%s: the provider made %d jobs", o.Operation, len(o.Jobs))
		}
		if len(o.Bodies) > 1 || len(o.Tokens) > 1 {
			changed++
			k.t.Errorf("%s: attempts differ: %v %v", o.Operation, o.Bodies, o.Tokens)
		}
	}
	lost, once := 0, 0
	effects := map[string]targetOperation{}
	target := k.target.Book()
	for _, o := range target.Operations {
		effects[o.Operation] = o
	}
	for i := range k.ops {
		op := fmt.Sprintf("kill-%05d", i)
		got := k.outcome(op)
		final := demoState("no job")
		if jobs := byOp[op].Jobs; len(jobs) > 0 {
			final = jobs[0].State
		}
		want := map[demoState]string{demoSucceeded: "confirmed", demoFailed: "failed"}[final]
		if got != want || want == "" {
			lost++
			k.t.Errorf("%s: outcome %q, the provider says %q", op, got, final)
		}
		if n := effects[op].Performed; n != 1 {
			k.t.Errorf("%s: the effect was performed %d times", op, n)
		} else {
			once++
		}
	}
	if target.Totals.Violations > 0 || target.Totals.BadSignatures > 0 {
		k.t.Errorf("target: %d changed bodies, %d bad signatures", target.Totals.Violations, target.Totals.BadSignatures)
	}
	k.t.Logf("%d operations, %d kills: %d lost, %d with duplicate jobs, %d with changed requests, %d effects once (%d repeats recognised by key)",
		k.ops, killRounds, lost, duplicates, changed, once, target.Totals.Deduplicated)
}

func (k *killRun) outcome(op string) string {
	resp, err := http.Get(k.base + "/v1/operations/" + op + "/outcome?wait=10s")
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }() // read below
	var out struct {
		Outcome string `json:"outcome"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return err.Error()
	}
	return out.Outcome
}
