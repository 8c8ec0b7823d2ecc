package provider

import (
	"maps"
	"net/textproto"
	"slices"

	"cel.dev/cel-go/cel"
)

// expressions are all of a file's, compiled. A nil program is one that the file
// does not have.
type expressions struct {
	createPath             *text
	createHeaders          map[string]*text // by canonical name
	createBody             *template
	id, state, final       *program // of a create answer
	mismatch               *program
	code, message          *program // of a refusal
	statusPath, lookupPath *text
	status, webhook        readers
	found, absent, match   *program
	delivery               *program
	dedup, ignore          *program
}

// readers are the expressions that read a job out of a body.
type readers struct {
	id, state, detail, attempt, seq, at, total, completed, failed, result, code, message *program
}

// compileAll compiles every expression of a file, or gives a *SyntaxError of the
// first that does not compile.
func compileAll(s *source, f *file) (expressions, error) {
	c := &compiler{s: s, envs: map[string]*cel.Env{}}
	var x expressions
	c.create(&x, f)
	c.reads(&x, f)
	if w := f.Webhook; w != nil {
		e := func(key, src string, want kind) *program { return c.expr(path{"webhook", key}, src, webhookVars, want) }
		x.webhook = readers{
			id: e("job_id", w.JobID, textValue), state: e("state", w.State, textValue), detail: e("detail", w.Detail, textValue),
			attempt: e("attempt", w.Attempt, numeric), seq: e("seq", w.Seq, numeric), at: e("at", w.At, anyValue), result: e("result", w.Result, anyValue),
			code: e("error_code", w.ErrorCode, textValue), message: e("error_message", w.ErrorMessage, textValue),
		}
		x.delivery, x.dedup, x.ignore = e("delivery", w.Delivery, textValue), e("dedup", w.Dedup, textValue), e("ignore", w.Ignore, condition)
	}
	return x, c.err
}

func (c *compiler) create(x *expressions, f *file) {
	at := path{"create"}
	x.createPath = c.text(at.at("path"), f.Create.Path, requestVars)
	x.createHeaders = map[string]*text{}
	for _, name := range slices.Sorted(maps.Keys(f.Create.Headers)) {
		x.createHeaders[textproto.CanonicalMIMEHeaderKey(name)] = c.text(path{"create", "headers", name}, f.Create.Headers[name], requestVars)
	}
	if f.Create.Body != nil {
		x.createBody = c.template(at.at("body"), f.Create.Body, requestVars)
	}
	x.id = c.expr(at.at("id"), f.Create.ID, answerVars, textValue)
	x.state = c.expr(at.at("state"), f.Create.State, answerVars, textValue)
	x.final = c.expr(at.at("final"), f.Create.Final, answerVars, condition)
	x.mismatch = c.expr(path{"idempotency", "mismatch"}, f.Idempotency.Mismatch, answerVars, condition)
	x.code = c.expr(path{"errors", "code"}, f.Errors.Code, answerVars, textValue)
	x.message = c.expr(path{"errors", "message"}, f.Errors.Message, answerVars, textValue)
}

func (c *compiler) reads(x *expressions, f *file) {
	result := c.expr(path{"result", "value"}, f.Result.Value, answerVars, anyValue)
	x.status.result = result
	if st := f.Status; st != nil {
		x.statusPath = c.text(path{"status", "path"}, st.Path, statusVars)
		e := func(key, src string, want kind) *program { return c.expr(path{"status", key}, src, answerVars, want) }
		x.status = readers{
			id: e("id", st.ID, textValue), state: e("state", st.State, textValue), detail: e("detail", st.Detail, textValue),
			attempt: e("attempt", st.Attempt, numeric), seq: e("seq", st.Seq, numeric), at: e("at", st.At, anyValue),
			total: e("total", st.Total, numeric), completed: e("completed", st.Completed, numeric), failed: e("failed", st.Failed, numeric),
			result: result, code: x.code, message: x.message,
		}
		if st.ErrorCode != "" {
			x.status.code = e("error_code", st.ErrorCode, textValue)
		}
		if st.ErrorMessage != "" {
			x.status.message = e("error_message", st.ErrorMessage, textValue)
		}
	}
	if l := f.Lookup; l != nil {
		x.lookupPath = c.text(path{"lookup", "path"}, l.Path, lookupVars)
		x.found = c.expr(path{"lookup", "found"}, l.Found, foundVars, listValue)
		x.absent = c.expr(path{"lookup", "absent"}, l.Absent, foundVars, condition)
		x.match = c.expr(path{"lookup", "state"}, l.State, foundVars, textValue)
	}
}
