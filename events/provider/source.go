package provider

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file. The parser's time grows with the square of the nesting, so
// brackets are counted before it runs.
const (
	descriptionMaxBytes = 64 << 10
	bracketsMax         = 2000
	yamlDepthMax        = 32
)

// SyntaxError refuses a description and says where and what was expected.
type SyntaxError struct {
	File         string
	Line, Column int // from 1; 0: the whole file
	Msg          string
}

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Msg)
}

// path is a place in a file, as keys from the top.
type path []string

func (p path) String() string { return strings.Join(p, ".") }

// at returns the place of a key below p, never sharing memory with p.
func (p path) at(key string) path { return append(slices.Clip(slices.Clone(p)), key) }

// source finds the place of a path for errors.
type source struct {
	name string
	body ast.Node
}

// parseSource reads one YAML document and checks it against the shape of file.
func parseSource(name string, data []byte) (*source, error) {
	whole := func(msg string) error { return &SyntaxError{File: name, Msg: msg} }
	if len(data) > descriptionMaxBytes {
		return nil, whole(fmt.Sprintf("%d bytes, want at most %d", len(data), descriptionMaxBytes))
	}
	if n := strings.Count(string(data), "[") + strings.Count(string(data), "{"); n > bracketsMax {
		return nil, whole(fmt.Sprintf("%d opening brackets, want at most %d", n, bracketsMax))
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, yamlError(name, err)
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return nil, &SyntaxError{File: name, Line: 1, Column: 1, Msg: "want exactly one YAML document"}
	}
	s := &source{name: name, body: tree.Docs[0].Body}
	if err := s.shape(s.body, reflect.TypeFor[file](), nil); err != nil {
		return nil, err
	}
	return s, nil
}

// yamlError takes line and column out of the library's error.
func yamlError(name string, err error) error {
	e := &SyntaxError{File: name, Msg: err.Error()}
	var ye yaml.Error
	if errors.As(err, &ye) {
		e.Msg = ye.GetMessage()
		if tok := ye.GetToken(); tok != nil {
			e.Line, e.Column = tok.Position.Line, tok.Position.Column
		}
	}
	return e
}

// on makes an error that points at a node.
func (s *source) on(n ast.Node, format string, args ...any) error {
	pos := start(n)
	return &SyntaxError{File: s.name, Line: pos.Line, Column: pos.Column, Msg: fmt.Sprintf(format, args...)}
}

// at makes an error that points at the value of a path, or at the nearest place
// above it that exists.
func (s *source) at(p path, format string, args ...any) error {
	return s.on(s.find(p), format, args...)
}

// inside makes an error that points at an offset, in bytes, of the text that
// stands at a path.
func (s *source) inside(p path, text string, offset int, format string, args ...any) error {
	n := s.find(p)
	e := &SyntaxError{File: s.name, Msg: fmt.Sprintf(format, args...)}
	pos := start(n)
	e.Line, e.Column = pos.Line, pos.Column
	before := text[:min(max(offset, 0), len(text))]
	line, last := strings.Count(before, "\n"), len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	switch x := n.(type) {
	case *ast.LiteralNode:
		e.Line, e.Column = x.Start.Position.Line+1+line, indent(x.Value.GetToken().Origin)+last+1
	case *ast.StringNode:
		if line == 0 { // a plain text over several lines is folded: its start has to do
			e.Column += last
			if t := x.GetToken().Type; t == token.DoubleQuoteType || t == token.SingleQuoteType {
				e.Column++
			}
		}
	}
	return e
}

// indent counts the spaces before the first line of a block.
func indent(origin string) int {
	origin = strings.TrimLeft(origin, "\n")
	return len(origin) - len(strings.TrimLeft(origin, " "))
}

// start is where a node begins; the token of a block mapping is its first colon.
func start(n ast.Node) *token.Position {
	switch x := n.(type) {
	case *ast.MappingNode:
		if len(x.Values) > 0 && !x.IsFlowStyle {
			return start(x.Values[0])
		}
	case *ast.MappingValueNode:
		return x.Key.GetToken().Position
	}
	return n.GetToken().Position
}

// find returns the node at a path, or the nearest one above it.
func (s *source) find(p path) ast.Node {
	n := s.body
	for _, key := range p {
		next := child(n, key)
		if next == nil {
			break
		}
		n = next
	}
	return n
}

func child(n ast.Node, key string) ast.Node {
	if seq, ok := n.(*ast.SequenceNode); ok {
		if i, err := strconv.Atoi(key); err == nil && i < len(seq.Values) {
			return seq.Values[i]
		}
		return nil
	}
	for _, v := range pairs(n) {
		if v.Key.GetToken().Value == key {
			return v.Value
		}
	}
	return nil
}

// pairs are the entries of a mapping, nil for anything else.
func pairs(n ast.Node) []*ast.MappingValueNode {
	switch x := n.(type) {
	case *ast.MappingNode:
		return x.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{x}
	}
	return nil
}

// shape checks a node against the type that will hold it. It is stricter than
// the decoder, and says what was expected in words of the file, not of Go.
func (s *source) shape(n ast.Node, t reflect.Type, p path) error {
	if len(p) > yamlDepthMax {
		return s.on(n, "nested deeper than %d", yamlDepthMax)
	}
	switch n.Type() {
	case ast.AliasType, ast.AnchorType, ast.MergeKeyType, ast.TagType:
		return s.on(n, "anchors, aliases, merge keys and tags are not allowed; write the value out")
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		text, ok := n.(*ast.StringNode)
		if !ok {
			return s.on(n, "%s: want a duration such as 90s, 15m or 24h", p)
		}
		if d, err := time.ParseDuration(text.Value); err != nil || d < 0 {
			return s.on(n, "%s: %.40q, want a duration such as 90s, 15m or 24h", p, text.Value)
		}
		return nil
	case t.Kind() == reflect.Struct:
		return s.mapping(n, p, fieldsOf(t), nil)
	case t.Kind() == reflect.Map:
		return s.mapping(n, p, nil, t.Elem())
	case t.Kind() == reflect.Interface:
		return s.anything(n, t, p)
	}
	want, ok := "text; put it in quotes if it looks like a number", false
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode:
		ok = t.Kind() == reflect.String
	case *ast.BoolNode:
		ok = t.Kind() == reflect.Bool
	case *ast.IntegerNode:
		ok = t.Kind() == reflect.Int || t.Kind() == reflect.Int64
	}
	switch t.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int64:
		want = "a whole number"
	}
	if !ok {
		return s.on(n, "%s: want %s", p, want)
	}
	return nil
}

// fieldsOf lists the keys that a struct takes.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		out[t.Field(i).Tag.Get("yaml")] = t.Field(i).Type
	}
	return out
}

// mapping checks a mapping with fixed keys (fields) or any keys (elem).
func (s *source) mapping(n ast.Node, p path, fields map[string]reflect.Type, elem reflect.Type) error {
	entries := pairs(n)
	if entries == nil && n.Type() != ast.MappingType {
		where := p.String()
		if where == "" {
			where = "description"
		}
		want := "any keys"
		if fields != nil {
			want = strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
		}
		return s.on(n, "%s: want a mapping with %s", where, want)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		key := e.Key.GetToken().Value
		t := elem
		if e.Key.IsMergeKey() {
			return s.on(e.Key, "anchors, aliases, merge keys and tags are not allowed; write the value out")
		}
		if fields != nil {
			if t = fields[key]; t == nil {
				return s.on(e.Key, "unknown key %.60q; known here are %s", key, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
		}
		if seen[key] {
			return s.on(e.Key, "key %.60q appears twice", key)
		}
		seen[key] = true
		if err := s.shape(e.Value, t, p.at(key)); err != nil {
			return err
		}
	}
	return nil
}

// anything checks a free value: a template may have any shape, but no alias.
func (s *source) anything(n ast.Node, t reflect.Type, p path) error {
	if seq, ok := n.(*ast.SequenceNode); ok {
		for i, v := range seq.Values {
			if err := s.shape(v, t, p.at(strconv.Itoa(i))); err != nil {
				return err
			}
		}
		return nil
	}
	if pairs(n) != nil {
		return s.mapping(n, p, nil, t)
	}
	return nil
}
