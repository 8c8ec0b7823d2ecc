package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Limits of one expression.
const (
	expressionMaxBytes = 4096
	costLimit          = 1_000_000
	nestingLimit       = 2
	evalTimeout        = time.Second
	interruptEvery     = 1000
)

// Variables by where an expression stands.
var (
	requestVars = []string{"op", "token", "input", "callback_url"}
	statusVars  = []string{"job_id"}
	lookupVars  = []string{"op", "token"}
	answerVars  = []string{"status", "headers", "body"}
	foundVars   = []string{"status", "headers", "body", "op", "token"}
)

// program is one compiled ${ … }.
type program struct {
	path string // in the file, for errors
	run  cel.Program
}

// text is a string with expressions in it.
type text struct {
	parts []part
}

type part struct {
	literal string
	program *program // nil: literal
}

// whole returns the only expression of a text that is nothing else.
func (t *text) whole() *program {
	if len(t.parts) == 1 {
		return t.parts[0].program
	}
	return nil
}

// compiler compiles the expressions of one file and keeps the first error.
type compiler struct {
	s    *source
	envs map[string]*cel.Env
	err  error
}

func (c *compiler) env(vars []string) (*cel.Env, error) {
	key := strings.Join(vars, ",")
	if e := c.envs[key]; e != nil {
		return e, nil
	}
	opts := []cel.EnvOption{
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(expressionMaxBytes), cel.ParserRecursionLimit(64),
		cel.ASTValidators(cel.ValidateComprehensionNestingLimit(nestingLimit)),
		ext.Strings(), ext.Encoders(), ext.Lists(), ext.Sets(), ext.Math(),
	}
	for _, v := range vars {
		kind := cel.DynType
		switch v {
		case "op", "token", "callback_url", "job_id":
			kind = cel.StringType
		case "status":
			kind = cel.IntType
		case "headers":
			kind = cel.MapType(cel.StringType, cel.StringType)
		}
		opts = append(opts, cel.Variable(v, kind))
	}
	e, err := cel.NewEnv(opts...)
	if err == nil {
		c.envs[key] = e
	}
	return e, err
}

// text compiles a string. An empty one gives nil.
func (c *compiler) text(path, s string, vars []string) *text {
	if s == "" || c.err != nil {
		return nil
	}
	t := &text{}
	for rest := s; rest != ""; {
		i := strings.Index(rest, "${")
		if i < 0 {
			t.parts = append(t.parts, part{literal: rest})
			break
		}
		if i > 0 {
			t.parts = append(t.parts, part{literal: rest[:i]})
		}
		j := closing(rest[i+2:])
		if j < 0 {
			c.err = c.s.at(path, "${ without its }")
			return nil
		}
		p := c.program(path, rest[i+2:i+2+j], vars)
		if c.err != nil {
			return nil
		}
		t.parts = append(t.parts, part{program: p})
		rest = rest[i+2+j+1:]
	}
	return t
}

// expr compiles a string that has to be one expression.
func (c *compiler) expr(path, s string, vars []string) *program {
	t := c.text(path, s, vars)
	if t == nil {
		return nil
	}
	if p := t.whole(); p != nil {
		return p
	}
	c.err = c.s.at(path, "want one expression, ${ … }, got %.60q", s)
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

func (c *compiler) program(path, src string, vars []string) *program {
	env, err := c.env(vars)
	if err != nil {
		c.err = c.s.at(path, "expression environment: %s", err)
		return nil
	}
	ast, iss := env.Compile(src)
	if iss.Err() != nil {
		c.err = c.s.at(path, "expression %.80q: %s (known here: %s)", strings.TrimSpace(src), firstIssue(iss), strings.Join(vars, ", "))
		return nil
	}
	run, err := env.Program(ast, cel.CostLimit(costLimit), cel.InterruptCheckFrequency(interruptEvery), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		c.err = c.s.at(path, "expression %.80q: %s", strings.TrimSpace(src), err)
		return nil
	}
	return &program{path: strings.TrimPrefix(path, "$."), run: run}
}

func firstIssue(iss *cel.Issues) string {
	if errs := iss.Errors(); len(errs) > 0 {
		return errs[0].Message
	}
	return iss.Err().Error()
}

// eval runs a program. The error names the place in the file.
func (p *program) eval(vars map[string]any) (ref.Val, error) {
	ctx, cancel := context.WithTimeout(context.Background(), evalTimeout)
	defer cancel()
	v, _, err := p.run.ContextEval(ctx, vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.path, err)
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return types.NullValue, nil
		}
		v = o.GetValue()
	}
	return v, nil
}

// str runs a program for a text: strings as they are, numbers in their decimal
// form, null and absent as "".
func (p *program) str(vars map[string]any) (string, error) {
	if p == nil {
		return "", nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return "", err
	}
	return textOf(p.path, v)
}

func textOf(path string, v ref.Val) (string, error) {
	switch x := v.Value().(type) {
	case string:
		return x, nil
	case int64, uint64, bool:
		return fmt.Sprint(x), nil
	case json.Number:
		return x.String(), nil
	}
	if v == types.NullValue {
		return "", nil
	}
	return "", fmt.Errorf("%s: gives %s, want text or a whole number", path, v.Type().TypeName())
}

// boolean runs a program for a condition; nil is false.
func (p *program) boolean(vars map[string]any) (bool, error) {
	if p == nil {
		return false, nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return false, err
	}
	b, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("%s: gives %s, want a condition", p.path, v.Type().TypeName())
	}
	return b, nil
}

// integer runs a program for a number; nil is 0.
func (p *program) integer(vars map[string]any) (int64, error) {
	if p == nil {
		return 0, nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return 0, err
	}
	n, ok := v.Value().(int64)
	if !ok {
		return 0, fmt.Errorf("%s: gives %s, want a whole number", p.path, v.Type().TypeName())
	}
	return n, nil
}

// native turns a value into what encoding/json writes, keeping the numbers of
// the body as they were.
func native(v ref.Val) any {
	switch x := v.Value().(type) {
	case map[string]any, []any, string, bool, int64, uint64, float64, json.Number:
		return x
	}
	return cel2json(v)
}

// cel2json walks literals that an expression made, such as {'a': body.x}.
func cel2json(v ref.Val) any {
	switch x := v.Value().(type) {
	case map[ref.Val]ref.Val:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[fmt.Sprint(k.Value())] = cel2json(e)
		}
		return out
	case []ref.Val:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = cel2json(e)
		}
		return out
	default:
		if v == types.NullValue {
			return nil
		}
		return x
	}
}

// render gives the value of a text: typed if it is one expression.
func (t *text) render(vars map[string]any) (any, error) {
	if p := t.whole(); p != nil {
		v, err := p.eval(vars)
		if err != nil {
			return nil, err
		}
		return native(v), nil
	}
	return t.string(vars, func(s string) string { return s })
}

// string gives the text with every expression passed through escape.
func (t *text) string(vars map[string]any, escape func(string) string) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		if p.program == nil {
			b.WriteString(p.literal)
			continue
		}
		s, err := p.program.str(vars)
		if err != nil {
			return "", err
		}
		b.WriteString(escape(s))
	}
	return b.String(), nil
}

// template is a JSON value with texts in it.
type template struct {
	text   *text
	object map[string]*template
	array  []*template
	value  any
	kind   templateKind
}

type templateKind int

const (
	plainValue templateKind = iota
	textValue
	objectValue
	arrayValue
)

func (c *compiler) template(path string, v any, vars []string) *template {
	switch x := v.(type) {
	case string:
		if !strings.Contains(x, "${") {
			return &template{value: x}
		}
		return &template{kind: textValue, text: c.text(path, x, vars)}
	case map[string]any:
		out := &template{kind: objectValue, object: map[string]*template{}}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out.object[k] = c.template(path+"."+k, x[k], vars)
		}
		return out
	case []any:
		out := &template{kind: arrayValue}
		for i, e := range x {
			out.array = append(out.array, c.template(fmt.Sprintf("%s[%d]", path, i), e, vars))
		}
		return out
	default:
		return &template{value: v}
	}
}

func (t *template) render(vars map[string]any) (any, error) {
	switch t.kind {
	case textValue:
		return t.text.render(vars)
	case objectValue:
		out := make(map[string]any, len(t.object))
		for k, e := range t.object {
			v, err := e.render(vars)
			if err != nil {
				return nil, err
			}
			out[k] = v
		}
		return out, nil
	case arrayValue:
		out := make([]any, len(t.array))
		for i, e := range t.array {
			v, err := e.render(vars)
			if err != nil {
				return nil, err
			}
			out[i] = v
		}
		return out, nil
	default:
		return t.value, nil
	}
}

// expressions are all of a file's, compiled.
type expressions struct {
	createPath    *text
	createHeaders map[string]*text
	createBody    *template
	create        struct{ id, state, final, result, mismatch, code, message *program }
	statusPath    *text
	status        readers
	lookupPath    *text
	found, absent *program
	webhook       readers
	delivery      *program
	dedup, ignore *program
}

// readers are the expressions that read a job out of a body.
type readers struct {
	id, state, detail, attempt, seq, total, completed, failed, result, code, message *program
}

func compileAll(s *source, f *file) (expressions, error) {
	c := &compiler{s: s, envs: map[string]*cel.Env{}}
	var x expressions
	x.createPath = c.text("$.create.path", f.Create.Path, requestVars)
	x.createHeaders = map[string]*text{}
	for _, k := range slices.Sorted(maps.Keys(f.Create.Headers)) {
		x.createHeaders[k] = c.text("$.create.headers."+k, f.Create.Headers[k], requestVars)
	}
	if f.Create.Body != nil {
		x.createBody = c.template("$.create.body", f.Create.Body, requestVars)
	}
	x.create.id = c.expr("$.create.id", f.Create.ID, answerVars)
	x.create.state = c.expr("$.create.state", f.Create.State, answerVars)
	x.create.final = c.expr("$.create.final", f.Create.Final, answerVars)
	x.create.result = c.expr("$.create.result", f.Create.Result, answerVars)
	x.create.mismatch = c.expr("$.create.token_mismatch", f.Create.TokenMismatch, answerVars)
	x.create.code = c.expr("$.create.error_code", f.Create.ErrorCode, answerVars)
	x.create.message = c.expr("$.create.error_message", f.Create.ErrorMessage, answerVars)
	if st := f.Status; st != nil {
		x.statusPath = c.text("$.status.path", st.Path, statusVars)
		e := func(name, src string) *program { return c.expr("$.status."+name, src, answerVars) }
		x.status = readers{
			id: e("id", st.ID), state: e("state", st.State), detail: e("detail", st.Detail), attempt: e("attempt", st.Attempt),
			seq: e("seq", st.Seq), total: e("total", st.Total), completed: e("completed", st.Completed), failed: e("failed", st.Failed),
			result: e("result", st.Result), code: e("error_code", st.ErrorCode), message: e("error_message", st.ErrorMessage),
		}
	}
	if l := f.Lookup; l != nil {
		x.lookupPath = c.text("$.lookup.path", l.Path, lookupVars)
		x.found = c.expr("$.lookup.found", l.Found, foundVars)
		x.absent = c.expr("$.lookup.absent", l.Absent, foundVars)
	}
	if w := f.Webhook; w != nil {
		e := func(name, src string) *program { return c.expr("$.webhook."+name, src, answerVars) }
		x.webhook = readers{id: e("job_id", w.JobID), state: e("state", w.State), detail: e("detail", w.Detail), attempt: e("attempt", w.Attempt), seq: e("seq", w.Seq)}
		x.delivery, x.dedup, x.ignore = e("delivery", w.Delivery), e("dedup", w.Dedup), e("ignore", w.Ignore)
	}
	return x, c.err
}
