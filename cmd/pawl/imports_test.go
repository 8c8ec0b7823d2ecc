package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pawl-dev/pawl"

// allowed says which packages of the project a package may import. Without it
// spokes begin to import spokes, and the core begins to do I/O.
var allowed = map[string][]string{
	"events":              {},
	"events/provider":     {"events"},
	"streams":             {"events"},
	"projector":           {"events"},
	"reconciler":          {"events", "events/provider"},
	"reconciler/effects":  {"events"},
	"ingress":             {"events", "events/provider"},
	"ingress/api":         {"events"},
	"streams/streamstest": {"events", "streams"},
	"cmd/pawl":            nil, // everything
	"cmd/sim":             nil, // everything
}

// libraries says which modules from elsewhere a package may import. The loop
// itself stays on NATS, ULID, metrics and canonical JSON.
var libraries = map[string][]string{
	"events":              {"github.com/oklog/ulid/v2", "github.com/gowebpki/jcs"},
	"events/provider":     {"cel.dev/cel-go/", "github.com/goccy/go-yaml"},
	"streams":             {"github.com/nats-io/", "github.com/synadia-io/orbit.go/"},
	"projector":           {"github.com/prometheus/client_golang/"},
	"reconciler":          {"github.com/prometheus/client_golang/"},
	"reconciler/effects":  {"github.com/prometheus/client_golang/"},
	"ingress":             {"github.com/prometheus/client_golang/"},
	"ingress/api":         {"github.com/danielgtaylor/huma/v2"},
	"streams/streamstest": {"github.com/nats-io/"}, // the suite runs real servers too
	"cmd/pawl":            {"github.com/", "golang.org/x/", "cel.dev/"},
	"cmd/sim":             {"github.com/prometheus/client_golang/"},
}

// impure are packages of the standard library that the core must not touch.
var impure = map[string][]string{
	"events":          {"net", "net/http", "os", "log", "log/slog", "math/rand", "math/rand/v2", "sync", "crypto/rand"},
	"events/provider": {"net", "net/http", "os", "log", "log/slog", "math/rand", "math/rand/v2", "crypto/rand"},
}

func TestImports(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := 0
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if _, ok := allowed[name]; !ok {
			t.Errorf("%s: a package that the layout does not know", name)
			continue
		}
		seen++
		for _, i := range p.Imports {
			checkImport(t, name, i)
		}
	}
	if seen != len(allowed) {
		t.Errorf("packages: want %d, got %d", len(allowed), seen)
	}
}

func checkImport(t *testing.T, name, path string) {
	t.Helper()
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		if allowed[name] != nil && !slices.Contains(allowed[name], own) {
			t.Errorf("%s imports %s", name, own)
		}
		return
	}
	if !strings.Contains(strings.Split(path, "/")[0], ".") {
		if slices.Contains(impure[name], path) {
			t.Errorf("%s imports %s and is to stay pure", name, path)
		}
		return
	}
	if !slices.ContainsFunc(libraries[name], func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
		t.Errorf("%s imports the library %s", name, path)
	}
	if name != "streams" && strings.HasPrefix(path, "github.com/nats-io/") {
		t.Errorf("%s imports NATS; only streams does", name)
	}
}
