package provider

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// text is a string with expressions in it. $${ stands for a literal ${.
type text struct {
	parts []part
}

type part struct {
	literal string
	program *program // nil: literal
}

// text compiles a string. An empty one gives nil.
func (c *compiler) text(at path, s string, vars []string) *text {
	return c.parts(at, s, vars, textValue)
}

func (c *compiler) parts(at path, s string, vars []string, want kind) *text {
	if s == "" || c.err != nil {
		return nil
	}
	t := &text{}
	for pos := 0; pos < len(s); {
		i := strings.Index(s[pos:], "${")
		if i < 0 {
			t.parts = append(t.parts, part{literal: s[pos:]})
			break
		}
		i += pos
		if i > pos && s[i-1] == '$' {
			t.parts = append(t.parts, part{literal: s[pos:i-1] + "${"})
			pos = i + 2
			continue
		}
		if i > pos {
			t.parts = append(t.parts, part{literal: s[pos:i]})
		}
		n := closing(s[i+2:])
		if n < 0 {
			c.err = c.s.inside(at, s, i, "%s: ${ without its }", at)
			return nil
		}
		end := i + 2 + n
		w := want
		if i > 0 || end+1 < len(s) {
			w = textValue // a part of a longer text
		}
		p := c.program(at, s, i+2, end, vars, w)
		if c.err != nil {
			return nil
		}
		t.parts = append(t.parts, part{program: p})
		pos = end + 1
	}
	return t
}

// expr compiles a string that has to be one expression. An empty one gives nil.
func (c *compiler) expr(at path, s string, vars []string, want kind) *program {
	t := c.parts(at, s, vars, want)
	if t == nil {
		return nil
	}
	if p := t.whole(); p != nil {
		return p
	}
	c.err = c.s.at(at, "%s: want one expression, ${ … }, got %.60q", at, s)
	return nil
}

// closing finds the } that ends an expression, past strings and braces in it.
func closing(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch ch := s[i]; {
		case quote != 0:
			if ch == '\\' {
				i++
			} else if ch == quote {
				quote = 0
			}
		case ch == '\'' || ch == '"':
			quote = ch
		case ch == '{':
			depth++
		case ch == '}':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// whole returns the only expression of a text that is nothing else.
func (t *text) whole() *program {
	if len(t.parts) == 1 {
		return t.parts[0].program
	}
	return nil
}

// string gives the text as it is.
func (t *text) string(vars map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		s := p.literal
		if p.program != nil {
			var err error
			if s, err = p.program.str(vars); err != nil {
				return "", err
			}
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

// url gives the text as path and query of a URL. What an expression gives can
// neither end its segment or parameter nor begin another.
func (t *text) url(vars map[string]any) (string, error) {
	var b strings.Builder
	query := false
	for _, p := range t.parts {
		if p.program == nil {
			b.WriteString(p.literal)
			query = query || strings.Contains(p.literal, "?")
			continue
		}
		s, err := p.program.str(vars)
		if err != nil {
			return "", err
		}
		switch {
		case query:
			b.WriteString(url.QueryEscape(s))
		case s == "":
			return "", p.program.fail(errSegment)
		default:
			b.WriteString(url.PathEscape(s))
		}
	}
	rel, _, _ := strings.Cut(b.String(), "?")
	for segment := range strings.SplitSeq(rel, "/") {
		if segment == "." || segment == ".." {
			return "", errSegment
		}
	}
	return b.String(), nil
}

// errSegment refuses a path that a server would resolve to another resource.
var errSegment = errors.New("an empty value, '.' or '..' cannot stand in a URL path")

// template is a JSON value with texts in it. Exactly one field is set; none for
// null.
type template struct {
	text   *text
	object map[string]*template
	array  []*template
	value  any
}

func (c *compiler) template(at path, v any, vars []string) *template {
	switch x := v.(type) {
	case string:
		if !strings.Contains(x, "${") {
			return &template{value: x}
		}
		return &template{text: c.parts(at, x, vars, anyValue)}
	case map[string]any:
		out := &template{object: make(map[string]*template, len(x))}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out.object[k] = c.template(at.at(k), x[k], vars)
		}
		return out
	case []any:
		out := &template{array: make([]*template, len(x))}
		for i, e := range x {
			out.array[i] = c.template(at.at(strconv.Itoa(i)), e, vars)
		}
		return out
	default:
		return &template{value: v}
	}
}

// render gives the value; absent{} if it is one expression that gives none.
func (t *template) render(vars map[string]any) (any, error) {
	switch {
	case t.text != nil:
		if p := t.text.whole(); p != nil {
			return p.json(vars)
		}
		return t.text.string(vars)
	case t.object != nil:
		out := make(map[string]any, len(t.object))
		for _, k := range slices.Sorted(maps.Keys(t.object)) { // the first error is always the same one
			v, err := t.object[k].render(vars)
			if err != nil {
				return nil, err
			}
			if v != (absent{}) {
				out[k] = v
			}
		}
		return out, nil
	case t.array != nil:
		out := make([]any, 0, len(t.array))
		for _, e := range t.array {
			v, err := e.render(vars)
			if err != nil {
				return nil, err
			}
			if v != (absent{}) {
				out = append(out, v)
			}
		}
		return out, nil
	default:
		return t.value, nil
	}
}
