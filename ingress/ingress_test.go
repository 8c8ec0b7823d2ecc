package ingress_test

// What goes wrong without the doors' care: a forged message reaches a parser, a
// provider is told "ok" for something that a crash then loses, a repeat becomes
// a second fact, a broken intent holds up the ones behind it or vanishes, one
// operation id is taken for two different requests.

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
	"github.com/pawl-dev/pawl/ingress"
	"github.com/pawl-dev/pawl/streams"
)

const (
	hubSecret  = "a hub secret of some length"
	masterKey  = "the master key of this installation"
	maxBody    = 256 << 10
	standardID = "replicate"
)

var (
	quiet    = slog.New(slog.DiscardHandler)
	now      = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	stdKey   = bytes.Repeat([]byte{7}, 32)
	server   *streams.Embedded
	prefixes atomic.Int64 // each test has streams of its own on the one server
)

// acme is a provider that pushes to callback URLs, ignores pings, and answers
// webhooks in a way of its own.
const acme = `
version: 1
name: acme
base_url: https://api.acme.example
create:
  path: /jobs
  body: {op: "${op}", n: "${input.n}", callback_url: "${callback_url}"}
  callback: true
  id: "${body.id}"
idempotency: {tokens: true}
status: {path: "/jobs/${job_id}", state: "${body.state}"}
states: {queued: queued, running: running, done: succeeded, error: failed}
webhook:
  verify: {preset: hub, header: X-Acme-Signature}
  job_id: "${body.id}"
  state: "${body.state}"
  delivery: "${string(body.?delivery.orValue(''))}"
  dedup: "${string(body.?delivery.orValue(''))}"
  ignore: "${body.?ping.orValue(false)}"
  max_bytes: 262144
  ack: {status: 202, content_type: application/json, body: '{"received":true}'}
deadlines: {result: 2h}
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ingress")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if server, err = streams.StartEmbedded(streams.EmbeddedConfig{Dir: dir, Logger: quiet, Relaxed: true}); err != nil {
		panic(err)
	}
	defer server.Shutdown()
	return m.Run()
}

type fixture struct {
	*testing.T
	store    *streams.Store
	in       *ingress.Ingress
	handler  http.Handler
	registry *prometheus.Registry
	replies  chan map[string]any
	start    uint64 // last sequence before the test
}

// Reply implements ingress.Replier.
func (f *fixture) Reply(_ context.Context, subject string, body []byte) error {
	v := map[string]any{"subject": subject}
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	f.replies <- v
	return nil
}

func setUp(t *testing.T, change ...func(*ingress.Config)) *fixture {
	t.Helper()
	f := &fixture{T: t, registry: prometheus.NewRegistry(), replies: make(chan map[string]any, 64)}
	nc, err := server.Dial(t.Context(), "test")
	f.ok(err)
	f.store, err = streams.Open(t.Context(), nc, streams.Config{
		Prefix: fmt.Sprintf("t%d", prefixes.Add(1)), EventsMaxBytes: 32 << 20, IntentsMaxBytes: 16 << 20, JobsMaxBytes: 16 << 20, ObjectsMaxBytes: 16 << 20,
	})
	f.ok(err)
	t.Cleanup(func() { _ = f.store.Close() })
	std, err := provider.Builtin("replicate-prediction")
	f.ok(err)
	providers := map[events.Provider]*provider.Provider{
		"acme":     f.provider("acme", []byte(acme), "team", hubSecret, nil),
		standardID: f.provider(standardID, std, "", "whsec_"+base64.StdEncoding.EncodeToString(stdKey), map[string]events.Secret{"api_token": events.NewSecret("token")}),
	}
	cfg := ingress.Config{
		Ledger: f.store, Objects: f.store.Objects(), Providers: providers, PublicURL: "https://pawl.example/",
		MasterKey: events.NewSecret(masterKey), EffectNames: []string{"mail", "invoice"}, DefaultEffects: []string{"mail"},
		Replier: f, RecordTimeout: 5 * time.Second, Now: func() time.Time { return now }, Entropy: rand.Reader, Logger: quiet,
		Metrics: ingress.NewMetrics(f.registry, []events.Provider{"acme", standardID}),
	}
	for _, c := range change {
		c(&cfg)
	}
	f.in, err = ingress.New(cfg)
	f.ok(err)
	f.handler = f.in.Webhooks()
	f.start, err = f.store.LastSeq(t.Context())
	f.ok(err)
	return f
}

func (f *fixture) provider(name events.Provider, text []byte, account, secret string, credentials map[string]events.Secret) *provider.Provider {
	f.Helper()
	d, err := provider.Parse(string(name)+".yaml", text)
	f.ok(err)
	p, err := provider.New(d, provider.Settings{
		Name: name, Account: account, Credentials: credentials, WebhookSecrets: []events.Secret{events.NewSecret(secret)},
	})
	f.ok(err)
	return p
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// recorded returns what the test has put into the stream, in order.
func (f *fixture) recorded() []events.Recorded {
	f.Helper()
	last, err := f.store.LastSeq(context.Background())
	f.ok(err)
	var all []events.Recorded
	for seq := f.start + 1; seq <= last; seq++ {
		rec, err := f.store.At(context.Background(), seq)
		f.ok(err)
		f.ok(rec.Err)
		all = append(all, rec)
	}
	return all
}

// one returns the payload of the only event that the test has put there.
func one[D events.Data](f *fixture) D {
	f.Helper()
	all := f.recorded()
	if len(all) != 1 {
		f.Fatalf("%d events in the stream, want 1", len(all))
	}
	d, ok := all[0].Event.Data.(D)
	if !ok {
		f.Fatalf("event is %s", all[0].Event.Data.Type())
	}
	return d
}

func (f *fixture) counted(metric, p, outcome string) float64 {
	f.Helper()
	families, err := f.registry.Gather()
	f.ok(err)
	for _, mf := range families {
		for _, m := range mf.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if mf.GetName() == metric && labels["provider"] == p && labels["outcome"] == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	f.Fatalf("no series %s{%s,%s}: every one must be there from the start", metric, p, outcome)
	return 0
}

func hubSign(body []byte) string {
	h := hmac.New(sha256.New, []byte(hubSecret))
	_, _ = h.Write(body)
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// post sends a signed webhook to the acme door.
func (f *fixture) post(path, body string, headers ...string) *httptest.ResponseRecorder {
	f.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("X-Acme-Signature", hubSign([]byte(body)))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return f.serve(r)
}

func (f *fixture) serve(r *http.Request) *httptest.ResponseRecorder {
	f.Helper()
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	if w.Header().Get("X-Content-Type-Options") != "nosniff" {
		f.Errorf("%s: no nosniff", r.URL)
	}
	return w
}

func webhook(id, state, delivery string) string {
	return fmt.Sprintf(`{"id":%q,"state":%q,"delivery":%q}`, id, state, delivery)
}

func TestMetricsStartAtZero(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	ingress.NewMetrics(r, []events.Provider{"acme"})
	n, err := testutil.GatherAndCount(r, "pawl_ingress_webhooks_total", "pawl_ingress_intents_total", "pawl_ingress_duplicates_total")
	if err != nil || n != 2*(12+6+1) {
		t.Errorf("%d series, want %d (%v)", n, 2*(12+6+1), err)
	}
}
