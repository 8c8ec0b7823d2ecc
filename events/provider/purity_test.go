package provider

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPure: with a clock or the network in here, a simulated history would no
// longer repeat.
func TestPure(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range tree.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Contains([]string{"net/http", "net", "os", "log", "log/slog", "context", "math/rand", "math/rand/v2", "crypto/rand"}, path) {
				t.Errorf("%s: want a pure package, got import %s", f.Name(), path)
			}
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: want no goroutine, got one", f.Name())
			case *ast.SelectorExpr:
				if id, ok := x.X.(*ast.Ident); ok && id.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep"}, x.Sel.Name) {
					t.Errorf("%s: want no clock, got time.%s", f.Name(), x.Sel.Name)
				}
			}
			return true
		})
	}
}
