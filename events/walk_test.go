package events

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A walk is a life that went wrong in practice or on paper, told as text: what
// happens, line by line, and below each line, indented, where the operation then
// stands, on what evidence, and what it owes. Without the rule that its first line
// names, its last line would be another one: a second order, a lost one, or an
// outcome that nobody proved.
//
// The files that begin with a number are the walks that the design names.
func TestWalks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "walks", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		if name[0] >= '0' && name[0] <= '1' {
			named++
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, path, walk(t, path))
		})
	}
	if named != 17 {
		t.Errorf("want 17 named walks, got %d", named)
	}
}

// walk performs the lines of a file and writes them again, each with its trace.
func walk(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	s := newStage(t)
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, " ") {
			continue // the trace of an earlier run
		}
		fmt.Fprintln(&out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := s.do(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		op := testOp
		if f := strings.Fields(line); strings.HasPrefix(f[0], "@") {
			op = OperationID(f[0][1:])
		}
		switch v {
		case "":
			fmt.Fprintf(&out, "    as it should\n")
		case VerdictApplied:
			fmt.Fprintf(&out, "    %d: %s\n", s.seq, s.trace(op))
		default:
			fmt.Fprintf(&out, "    %d: %s; %s\n", s.seq, v, s.trace(op))
		}
	}
	return out.Bytes()
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		writeGolden(t, path, bytes.TrimSuffix(got, []byte("\n")))
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
