package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Without this test the README names a test that was renamed or never written,
// and a promise stands on nothing.
func TestPromisesNameRealTests(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("git", "ls-files", "../..").Output()
	if err != nil {
		out, err = exec.Command("find", "../..", "-name", "*_test.go").Output() // a tree without its history
	}
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]bool{}
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); !strings.HasSuffix(path, "_test.go") {
			continue
		}
		b, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			continue // listed, and gone from the tree
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing`).FindAllSubmatch(b, -1) {
			written[string(m[1])] = true
		}
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(readme), -1)
	for _, name := range names {
		if !written[name] {
			t.Errorf("README names %s, which does not exist", name)
		}
	}
	if len(names) < 20 {
		t.Errorf("tests named in the README: want at least 20, got %d", len(names))
	}
}
