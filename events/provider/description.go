package provider

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/pawl-dev/pawl/events"
)

//go:embed *.yaml
var shipped embed.FS

// descriptionMaxBytes bounds one file.
const descriptionMaxBytes = 256 << 10

// SyntaxError refuses a description and says where.
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

// Builtins lists the shipped descriptions.
func Builtins() []string {
	files, _ := fs.Glob(shipped, "*.yaml") // the pattern is constant
	for i, f := range files {
		files[i] = strings.TrimSuffix(f, ".yaml")
	}
	return files
}

// Builtin returns a shipped description, or an error that wraps
// events.ErrNotFound.
func Builtin(name string) ([]byte, error) {
	if !slices.Contains(Builtins(), name) {
		return nil, fmt.Errorf("description %.40q: %w", name, events.ErrNotFound)
	}
	return shipped.ReadFile(name + ".yaml")
}

// file is the YAML form. Every field that holds ${ … } is named by its path in
// an error.
type file struct {
	Version     int               `yaml:"version"`
	Name        string            `yaml:"name"`
	BaseURL     string            `yaml:"base_url"`
	Auth        authFile          `yaml:"auth"`
	Create      createFile        `yaml:"create"`
	Idempotency idempotencyFile   `yaml:"idempotency"`
	Lookup      *lookupFile       `yaml:"lookup"`
	Status      *statusFile       `yaml:"status"`
	States      map[string]string `yaml:"states"`
	Webhook     *webhookFile      `yaml:"webhook"`
	Limits      limitsFile        `yaml:"limits"`
	Deadlines   deadlinesFile     `yaml:"deadlines"`
	Pacing      pacingFile        `yaml:"pacing"`
}

type authFile struct {
	Header     string `yaml:"header"`
	Prefix     string `yaml:"prefix"`
	Credential string `yaml:"credential"`
	Required   bool   `yaml:"required"`
	// AfterExecution: a 401 or 403 does not prove that nothing happened.
	AfterExecution bool `yaml:"after_execution"`
}

type createFile struct {
	Method  string            `yaml:"method"`
	Path    string            `yaml:"path"`
	Headers map[string]string `yaml:"headers"`
	Body    any               `yaml:"body"`
	// Callback: the request carries callback_url, and the provider pushes there.
	Callback      bool   `yaml:"callback"`
	ID            string `yaml:"id"`
	State         string `yaml:"state"`
	Final         string `yaml:"final"`  // bool: the answer is the job's end
	Result        string `yaml:"result"` // of a final answer
	TokenMismatch string `yaml:"token_mismatch"`
	ErrorCode     string `yaml:"error_code"`
	ErrorMessage  string `yaml:"error_message"`
	// ThrottleProcesses: a 429 may have been processed all the same.
	ThrottleProcesses bool `yaml:"throttle_processes"`
}

type idempotencyFile struct {
	Tokens    bool          `yaml:"tokens"`
	Retention time.Duration `yaml:"retention"` // 0: for ever
}

type lookupFile struct {
	Path   string `yaml:"path"`
	Found  string `yaml:"found"`  // list of ids
	Absent string `yaml:"absent"` // bool: proves that there is none
}

type statusFile struct {
	Path         string `yaml:"path"`
	ID           string `yaml:"id"`
	State        string `yaml:"state"`
	Detail       string `yaml:"detail"`
	Attempt      string `yaml:"attempt"`
	Seq          string `yaml:"seq"`
	Total        string `yaml:"total"`
	Completed    string `yaml:"completed"`
	Failed       string `yaml:"failed"`
	Result       string `yaml:"result"`
	ErrorCode    string `yaml:"error_code"`
	ErrorMessage string `yaml:"error_message"`
}

type webhookFile struct {
	Verify   verifyFile `yaml:"verify"`
	JobID    string     `yaml:"job_id"`
	State    string     `yaml:"state"`
	Detail   string     `yaml:"detail"`
	Attempt  string     `yaml:"attempt"`
	Seq      string     `yaml:"seq"`
	Delivery string     `yaml:"delivery"`
	Dedup    string     `yaml:"dedup"`
	Ignore   string     `yaml:"ignore"` // bool: signed, but about no job (ping, test)
	MaxBytes int64      `yaml:"max_bytes"`
	Ack      ackFile    `yaml:"ack"`
}

type verifyFile struct {
	Preset       string        `yaml:"preset"`        // standard_webhooks or hub
	Header       string        `yaml:"header"`        // hub
	HeaderPrefix string        `yaml:"header_prefix"` // standard_webhooks
	Tolerance    time.Duration `yaml:"tolerance"`
}

type ackFile struct {
	Status      int    `yaml:"status"`
	ContentType string `yaml:"content_type"`
	Body        string `yaml:"body"`
}

type limitsFile struct {
	Concurrency int `yaml:"concurrency"`
}

type deadlinesFile struct {
	Create  time.Duration `yaml:"create"`
	Recon   time.Duration `yaml:"recon"`
	Result  time.Duration `yaml:"result"`
	Confirm time.Duration `yaml:"confirm"`
	Collect time.Duration `yaml:"collect"`
}

type pacingFile struct {
	PollBase    time.Duration `yaml:"poll_base"`
	PollCap     time.Duration `yaml:"poll_cap"`
	LookupDelay time.Duration `yaml:"lookup_delay"`
}

// Description is a checked file with every expression compiled.
type Description struct {
	f      file
	sha256 string
	x      expressions
	states map[string]events.RemoteState
}

// Name is the description's own name.
func (d *Description) Name() string { return d.f.Name }

// Parse reads a description strictly. The error is a *SyntaxError with line and
// column. name is only shown.
func Parse(name string, data []byte) (*Description, error) {
	if len(data) > descriptionMaxBytes {
		return nil, &SyntaxError{File: name, Msg: fmt.Sprintf("%d bytes, limit %d", len(data), descriptionMaxBytes)}
	}
	tree, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, yamlError(name, err)
	}
	s := &source{name: name, tree: tree}
	if err := s.forbidAliases(); err != nil {
		return nil, err
	}
	d := &Description{sha256: events.HexSHA256(data)}
	if err := yaml.UnmarshalWithOptions(data, &d.f, yaml.Strict()); err != nil {
		return nil, yamlError(name, err)
	}
	if err := d.check(s); err != nil {
		return nil, err
	}
	if d.x, err = compileAll(s, &d.f); err != nil {
		return nil, err
	}
	return d, nil
}

// source finds the place of a path for errors.
type source struct {
	name string
	tree *ast.File
}

// at makes an error that points at a path such as $.create.id; a missing path
// points at its nearest parent.
func (s *source) at(path, format string, args ...any) error {
	e := &SyntaxError{File: s.name, Msg: fmt.Sprintf(format, args...)}
	for p := path; ; {
		if yp, err := yaml.PathString(p); err == nil {
			if node, err := yp.FilterFile(s.tree); err == nil && node != nil {
				pos := node.GetToken().Position
				e.Line, e.Column = pos.Line, pos.Column
				return e
			}
		}
		i := strings.LastIndexAny(p, ".[")
		if i <= 0 {
			e.Line, e.Column = 1, 1
			return e
		}
		p = p[:i]
	}
}

// aliasFinder stops at the first anchor or alias: they expand without limit and
// hide what a field says.
type aliasFinder struct{ found ast.Node }

// Visit implements ast.Visitor.
func (a *aliasFinder) Visit(n ast.Node) ast.Visitor {
	switch n.Type() {
	case ast.AliasType, ast.AnchorType, ast.MergeKeyType:
		if a.found == nil {
			a.found = n
		}
	}
	return a
}

func (s *source) forbidAliases() error {
	if len(s.tree.Docs) != 1 || s.tree.Docs[0].Body == nil {
		return &SyntaxError{File: s.name, Line: 1, Column: 1, Msg: "want exactly one YAML document"}
	}
	f := &aliasFinder{}
	ast.Walk(f, s.tree.Docs[0].Body)
	if f.found == nil {
		return nil
	}
	pos := f.found.GetToken().Position
	return &SyntaxError{File: s.name, Line: pos.Line, Column: pos.Column, Msg: "anchors, aliases and merge keys are not allowed; write the value out"}
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

// check applies the rules that the YAML types do not.
func (d *Description) check(s *source) error {
	f := &d.f
	switch {
	case f.Version != 1:
		return s.at("$.version", "version is %d, want 1", f.Version)
	case f.Name == "":
		return s.at("$.name", "name is required")
	case f.Create.Path == "" || f.Create.Path[0] != '/':
		return s.at("$.create.path", "create.path is required and begins with '/'")
	case f.Create.ID == "":
		return s.at("$.create", "create.id is required: where the answer names the job, e.g. ${body.id}")
	case f.Status == nil && f.Webhook == nil:
		return s.at("$.create", "status or webhook is required: without either no outcome is ever learned")
	case f.Auth.Credential != "" && f.Auth.Header == "":
		return s.at("$.auth", "auth.header is required with auth.credential")
	case f.Lookup != nil && (f.Lookup.Path == "" || f.Lookup.Found == "" || f.Lookup.Absent == ""):
		return s.at("$.lookup", "lookup needs path, found (a list of ids) and absent (what proves that there is none)")
	case f.Status != nil && (f.Status.Path == "" || f.Status.State == ""):
		return s.at("$.status", "status needs path and state")
	case f.Webhook != nil && (f.Webhook.JobID == "" || f.Webhook.State == "" || f.Webhook.Dedup == ""):
		return s.at("$.webhook", "webhook needs job_id, state and dedup (what makes a delivery unique)")
	}
	if f.Create.Method == "" {
		f.Create.Method = "POST"
	}
	if !slices.Contains([]string{"POST", "PUT", "PATCH"}, f.Create.Method) {
		return s.at("$.create.method", "method %.20q, want POST, PUT or PATCH", f.Create.Method)
	}
	d.states = make(map[string]events.RemoteState, len(f.States))
	for word, state := range f.States {
		if !events.RemoteState(state).Valid() {
			return s.at("$.states."+word, "state %.40q, want queued, running, cancelling, succeeded, failed or cancelled", state)
		}
		d.states[word] = events.RemoteState(state)
	}
	if len(d.states) == 0 {
		return s.at("$.states", "states is required: the provider's words and what they mean")
	}
	return d.checkVerify(s)
}

func (d *Description) checkVerify(s *source) error {
	if d.f.Webhook == nil {
		return nil
	}
	v := &d.f.Webhook.Verify
	switch v.Preset {
	case "standard_webhooks":
		if v.HeaderPrefix == "" {
			v.HeaderPrefix = "webhook-"
		}
		if v.Tolerance == 0 {
			v.Tolerance = 5 * time.Minute
		}
	case "hub":
		if v.Header == "" {
			return s.at("$.webhook.verify", "preset hub needs header, e.g. X-Hub-Signature-256")
		}
	default:
		return s.at("$.webhook.verify.preset", "preset %.40q is not known; known are standard_webhooks and hub", v.Preset)
	}
	return nil
}
