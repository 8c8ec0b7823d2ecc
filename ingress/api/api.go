package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pawl-dev/pawl/events"
)

// Limits of the API.
const (
	// WaitMax is the longest a caller may wait for an outcome.
	WaitMax = 60 * time.Second
	// PageMax and PageDefault bound one page of a list.
	PageMax     = 500
	PageDefault = 50
	// HistoryPageMax and HistoryPageDefault bound one page of a history.
	HistoryPageMax     = 1000
	HistoryPageDefault = 500

	waitersMax    = 4096             // concurrent waits for an outcome
	submitTimeout = 12 * time.Second // longer than a leader election
	readTimeout   = 15 * time.Second // one read of the ledger
	bodyTimeout   = 10 * time.Second // a request's body must be here by then
)

// Config is what the API needs. Hosts is optional, everything else required.
type Config struct {
	// Submit stores an intent. It returns a *events.RefusedError for a refusal
	// and an error that wraps events.ErrUnavailable when nothing is known to be
	// stored. data is not used after the call.
	Submit func(ctx context.Context, data []byte, p events.Provider, fallback events.OperationID) (events.Receipt, error)
	// Jobs holds the folded jobs, usually an *Index.
	Jobs Jobs
	// Reader reads the ledger back.
	Reader events.Reader
	// Find says from the ledger which provider an operation belongs to, or
	// events.ErrNotFound.
	Find func(ctx context.Context, op events.OperationID) (events.Provider, error)
	// Hosts are the names, without port, that a request's Host may have; empty
	// accepts all. A list defeats DNS rebinding, with which a foreign page
	// reaches a loopback address under a name of its own.
	Hosts []string
	// Now is the clock. It also sets the network deadline of a body, so behind a
	// real server it must be the wall clock.
	Now    func() time.Time
	Logger *slog.Logger
}

// Jobs is what the API reads. *Index implements it.
type Jobs interface {
	// Job returns the folded job; nobody may change it. False: not known here.
	Job(op events.OperationID) (*events.Job, bool)
	// List returns one page, newest first, and the cursor of the next one.
	List(f Filter, c Cursor, limit int) Page
	// Wait returns the job as soon as until holds for it. When the context ends
	// first it returns the job as it is then, nil if it is not known, and the
	// context's error.
	Wait(ctx context.Context, op events.OperationID, until func(*events.Job) bool) (*events.Job, error)
}

// server is the API behind its routes.
type server struct {
	Config
	waiting chan struct{} // a slot for each wait
}

// New returns the handler of /v1 and /openapi.json. It panics when a required
// part of the configuration is missing, which is a fault of the program.
func New(cfg Config) http.Handler {
	if cfg.Submit == nil || cfg.Jobs == nil || cfg.Reader == nil || cfg.Find == nil || cfg.Now == nil {
		panic("api: Submit, Jobs, Reader, Find and Now are required")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &server{Config: cfg, waiting: make(chan struct{}, waitersMax)}
	mux := http.NewServeMux()
	api := humago.New(mux, s.humaConfig())
	s.registerSubmit(api)
	s.registerOperations(api)
	s.registerOutcome(api)
	s.registerHistory(api)
	finishSpec(api.OpenAPI())
	s.registerSpec(mux, api.OpenAPI())
	s.registerFallbacks(mux)
	return s.guard(mux)
}

// humaConfig hardens the framework's defaults: no page that loads scripts from
// elsewhere, no schema links in answers, no error that echoes a value, JSON
// alone. The OpenAPI document is served by registerSpec, because the framework
// makes it on first use without a lock.
func (s *server) humaConfig() huma.Config {
	c := huma.DefaultConfig("Pawl", "1")
	c.Info.Description = "Owns operations at remote asynchronous APIs: asked once, observed twice, settled once, and never lost."
	c.Servers = []*huma.Server{{URL: "/", Description: "This installation."}}
	c.Security = []map[string][]string{{}}
	c.Tags = []*huma.Tag{{Name: "operations", Description: "Operations and their outcomes."}}
	c.OpenAPIPath = ""
	c.DocsPath = ""
	c.SchemasPath = ""
	c.CreateHooks = nil
	c.RejectUnknownQueryParameters = true
	c.AllowAdditionalPropertiesByDefault = true                                                                    // answers grow; a generated client must not break on it
	c.Formats = map[string]huma.Format{"application/json": huma.DefaultJSONFormat, "json": huma.DefaultJSONFormat} // the latter is the suffix +json
	c.Transformers = []huma.Transformer{asProblem}
	return c
}

// finishSpec removes what the framework adds for its own error model, which no
// answer of ours has.
func finishSpec(spec *huma.OpenAPI) {
	schemas := spec.Components.Schemas.Map()
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
}

func (s *server) registerSpec(mux *http.ServeMux, spec *huma.OpenAPI) {
	doc, err := json.Marshal(spec)
	if err != nil {
		panic("api: encode OpenAPI document: " + err.Error())
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(doc) // a client that is gone needs no answer
	})
}

// operation is the part that every route of ours shares.
func (s *server) operation(api huma.API, id, method, path, summary string) huma.Operation {
	problems := api.OpenAPI().Components.Schemas.Schema(problemType, true, "Problem")
	return huma.Operation{
		OperationID: id,
		Method:      method,
		Path:        path,
		Summary:     summary,
		Tags:        []string{"operations"},
		Responses: map[string]*huma.Response{"default": {
			Description: "A problem (RFC 9457). Its type is stable, its detail is for people.",
			Content:     map[string]*huma.MediaType{problemMedia: {Schema: problems}},
		}},
	}
}

// registerFallbacks answers what no route takes: a known path with another
// method, and every other path.
func (s *server) registerFallbacks(mux *http.ServeMux) {
	for path, allow := range map[string]string{
		"/openapi.json":               "GET, HEAD",
		"/v1/operations":              "GET, HEAD, POST",
		"/v1/operations/{id}":         "GET, HEAD",
		"/v1/operations/{id}/outcome": "GET, HEAD",
		"/v1/operations/{id}/history": "GET, HEAD",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			p := newProblem(http.StatusMethodNotAllowed, slugMethod, "This path answers "+allow+".")
			writeProblem(w, p.with("Allow", allow))
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, newProblem(http.StatusNotFound, slugNotFound, "There is nothing at this path."))
	})
}

// guard stands before every route: who may ask at all, and what every answer
// says to a browser.
func (s *server) guard(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	cross.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, newProblem(http.StatusForbidden, slugCrossOrigin, "A page of another origin may not change anything here."))
	}))
	inner := cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		defer s.recovered(r)
		if !s.hostAllowed(r.Host) {
			writeProblem(w, newProblem(http.StatusMisdirectedRequest, slugMisdirected, "This host name is not served here."))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// recovered keeps one broken request from being more than that. The connection
// is dropped, because nobody knows how much of an answer has left.
func (s *server) recovered(r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v != http.ErrAbortHandler && r.Context().Err() == nil {
		s.Logger.Error("api handler panicked", "method", r.Method, "route", r.Pattern, "panic", cut(fmt.Sprint(v), 200), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler)
}

func (s *server) hostAllowed(host string) bool {
	if len(s.Hosts) == 0 {
		return true
	}
	name := hostName(host)
	for _, h := range s.Hosts {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}

// hostName cuts the port off a Host header, and the brackets of an IPv6 address.
func hostName(host string) string {
	if rest, ok := strings.CutPrefix(host, "["); ok {
		name, _, _ := strings.Cut(rest, "]")
		return name
	}
	name, _, _ := strings.Cut(host, ":")
	return name
}
