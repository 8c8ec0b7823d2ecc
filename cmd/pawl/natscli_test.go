package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestNatsCLI runs the commands that the README gives for the stock nats CLI,
// as they stand there. Without it a reader's first look from outside fails on a
// renamed subject. PAWL_NATS_CLI is the path of the program; .ci/run sets it.
func TestNatsCLI(t *testing.T) {
	t.Parallel()
	cli := os.Getenv("PAWL_NATS_CLI")
	if cli == "" {
		t.Skip("PAWL_NATS_CLI is not set")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- nats-cli -->\n```sh\n(.*?)```").FindSubmatch(readme)
	if block == nil {
		t.Fatal("README has no nats-cli block")
	}
	base, dir := service(t, "--with-demo-provider")
	work := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(work, "pawl-data")); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(cli, filepath.Join(bin, "nats")); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"pub": "Published", "kv get": "succeeded", "kv watch": "hello-1", "sub": "dev.pawl.op.settled.v1"}
	ran := 0
	for line := range strings.Lines(string(block[1])) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Contains(line, "kv get") {
			awaitOutcome(t, base, "hello-1")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+work, "XDG_CONFIG_HOME="+work)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		for part, text := range want {
			if strings.Contains(line, " "+part+" ") && !strings.Contains(string(out), text) {
				t.Errorf("%s: want %q in\n%s", line, text, out)
			}
		}
		ran++
	}
	if ran < 4 {
		t.Errorf("commands in the README: want at least 4, got %d", ran)
	}
}

// awaitOutcome waits until an operation that was published a moment ago exists
// and has its outcome.
func awaitOutcome(t *testing.T, base, op string) {
	t.Helper()
	for range 100 {
		code, out, errs := pawl(t, "watch", "--server="+base, op)
		switch code {
		case exitOK:
			return
		case exitMissing: // the intent is on its way
			if err := sleep(t.Context(), 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("watch: %s%s", out, errs)
		}
	}
	t.Fatalf("%s did not appear", op)
}
