package provider

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"
)

// Limits of one expression. They count steps, never time: the same
// message reads the same on a slow machine.
const (
	expressionMaxBytes = 4096
	expressionNodesMax = 2000
	recursionMax       = 32
	nestingMax         = 2 // comprehensions inside each other
	costMax            = 1_000_000
	regexMaxSize       = 200
)

// Variables by where an expression stands.
var (
	requestVars = []string{"op", "token", "input", "callback_url"}
	statusVars  = []string{"job_id"}
	lookupVars  = []string{"op", "token"}
	answerVars  = []string{"status", "headers", "body"}
	foundVars   = []string{"status", "headers", "body", "op", "token"}
	webhookVars = []string{"headers", "body"}
)

// kind is what an expression has to give, as far as that is known beforehand:
// bodies have no schema, so most of it is known only when it runs.
type kind string

const (
	anyValue  kind = "a value"
	textValue kind = "text or a whole number"
	condition kind = "a condition (true or false)"
	numeric   kind = "a whole number"
	listValue kind = "a list"
)

// program is one compiled ${ … }.
type program struct {
	at     path // in the file, for errors
	run    cel.Program
	inputs [][]string // paths below input that it reads without asking first
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
		cel.CustomTypeAdapter(adapter{types.DefaultTypeAdapter}),
		cel.OptionalTypes(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		ext.Strings(), ext.Encoders(), ext.Lists(), ext.Sets(), ext.Math(),
		cel.ParserExpressionSizeLimit(expressionMaxBytes), cel.ParserRecursionLimit(recursionMax), cel.ExpressionNodeLimit(expressionNodesMax),
		cel.RegexProgramSizeLimit(regexMaxSize), cel.ASTValidators(cel.ValidateComprehensionNestingLimit(nestingMax)),
	}
	for _, v := range vars {
		t := cel.DynType
		switch v {
		case "op", "token", "callback_url", "job_id":
			t = cel.StringType
		case "status":
			t = cel.IntType
		case "headers":
			t = cel.MapType(cel.StringType, cel.StringType)
		}
		opts = append(opts, cel.Variable(v, t))
	}
	e, err := cel.NewEnv(opts...)
	if err == nil {
		c.envs[key] = e
	}
	return e, err
}

// program compiles what stands at an offset of a text of the file.
func (c *compiler) program(at path, text string, offset, end int, vars []string, want kind) *program {
	src := text[offset:end]
	fail := func(within int, format string, args ...any) *program {
		c.err = c.s.inside(at, text, offset+within, "%s: %s", at, fmt.Sprintf(format, args...))
		return nil
	}
	env, err := c.env(vars)
	if err != nil {
		return fail(0, "expression environment: %s", err)
	}
	ast, iss := env.Compile(src)
	if iss.Err() != nil {
		within, msg := firstIssue(src, iss)
		return fail(within, "%s; known here are %s", msg, strings.Join(vars, ", "))
	}
	if !want.fits(ast.OutputType()) {
		return fail(0, "gives %s, want %s", ast.OutputType(), want)
	}
	run, err := env.Program(ast, cel.CostLimit(costMax))
	if err != nil {
		return fail(0, "%s", err)
	}
	return &program{at: at, run: run, inputs: inputsOf(ast.NativeRep().Expr())}
}

// firstIssue gives the first complaint and its offset in the source.
func firstIssue(src string, iss *cel.Issues) (int, string) {
	errs := iss.Errors()
	if len(errs) == 0 {
		return 0, iss.Err().Error()
	}
	msg, _, _ := strings.Cut(errs[0].Message, "\n")
	lines := strings.SplitAfter(src, "\n")
	line := min(max(errs[0].Location.Line()-1, 0), len(lines)-1)
	column := max(errs[0].Location.Column(), 0)
	before := strings.Join(lines[:line], "")
	runes := []rune(lines[line])
	return len(before) + len(string(runes[:min(column, len(runes))])), msg
}

// fits reports whether a value of a static type may be of the kind.
func (k kind) fits(t *cel.Type) bool {
	if t.Kind() == types.OpaqueKind && t.TypeName() == "optional_type" && len(t.Parameters()) == 1 {
		t = t.Parameters()[0]
	}
	allowed := map[kind][]types.Kind{
		textValue: {types.StringKind, types.IntKind, types.UintKind, types.BoolKind, types.NullTypeKind},
		condition: {types.BoolKind},
		numeric:   {types.IntKind, types.UintKind, types.NullTypeKind},
		listValue: {types.ListKind},
	}[k]
	return allowed == nil || t.Kind() == types.DynKind || t.Kind() == types.AnyKind || slices.Contains(allowed, t.Kind())
}

// inputsOf finds chains such as input.a.b, so that an error can name the field
// that a producer forgot.
func inputsOf(e celast.Expr) [][]string {
	var out [][]string
	celast.PreOrderVisit(e, celast.NewExprVisitor(func(e celast.Expr) {
		if chain := chainOf(e); len(chain) > 0 {
			out = append(out, chain)
		}
	}))
	return out
}

func chainOf(e celast.Expr) []string {
	var chain []string
	for {
		switch e.Kind() {
		case celast.IdentKind:
			if e.AsIdent() != "input" {
				return nil
			}
			slices.Reverse(chain)
			return chain
		case celast.SelectKind:
			sel := e.AsSelect()
			if sel.IsTestOnly() {
				return nil
			}
			chain, e = append(chain, sel.FieldName()), sel.Operand()
		case celast.CallKind:
			call := e.AsCall()
			if call.FunctionName() != operators.Index || len(call.Args()) != 2 || call.Args()[1].Kind() != celast.LiteralKind {
				return nil
			}
			key, ok := call.Args()[1].AsLiteral().(types.String)
			if !ok {
				return nil
			}
			chain, e = append(chain, string(key)), call.Args()[0]
		default:
			return nil
		}
	}
}

// evalError names the expression that failed.
type evalError struct {
	p   *program
	err error
}

func (e *evalError) Error() string { return e.p.at.String() + ": " + e.err.Error() }
func (e *evalError) Unwrap() error { return e.err }

func (p *program) fail(err error) error { return &evalError{p, err} }

// eval runs a program. The error names the place in the file.
func (p *program) eval(vars map[string]any) (ref.Val, error) {
	v, _, err := p.run.Eval(vars)
	if err != nil {
		return nil, p.fail(err)
	}
	return v, nil
}

// json runs a program for a value that encoding/json writes; absent{} if there
// is none.
func (p *program) json(vars map[string]any) (any, error) {
	v, err := p.eval(vars)
	if err != nil {
		return nil, err
	}
	out, err := native(v, 0)
	if err != nil {
		return nil, p.fail(err)
	}
	return out, nil
}

// str runs a program for a text; a nil program is "".
func (p *program) str(vars map[string]any) (string, error) {
	if p == nil {
		return "", nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return "", err
	}
	s, err := textOf(v)
	if err != nil {
		return "", p.fail(err)
	}
	return s, nil
}

// boolean runs a program for a condition; a nil program is false.
func (p *program) boolean(vars map[string]any) (bool, error) {
	if p == nil {
		return false, nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return false, err
	}
	b, ok := v.(types.Bool)
	if !ok {
		return false, p.fail(fmt.Errorf("gives %s, want %s", v.Type().TypeName(), condition))
	}
	return bool(b), nil
}

// integer runs a program for a number; a nil program, null and absent are 0.
func (p *program) integer(vars map[string]any) (int64, error) {
	if p == nil {
		return 0, nil
	}
	v, err := p.eval(vars)
	if err != nil {
		return 0, err
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return 0, nil
		}
		v = o.GetValue()
	}
	switch x := v.(type) {
	case types.Null:
		return 0, nil
	case types.Int:
		return int64(x), nil
	case types.Uint:
		if x <= math.MaxInt64 {
			return int64(x), nil
		}
	}
	return 0, p.fail(fmt.Errorf("gives %s, want %s", v.Type().TypeName(), numeric))
}
