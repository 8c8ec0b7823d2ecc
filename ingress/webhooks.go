package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/events/provider"
)

// Bounds of one request at the webhook door.
const (
	webhookBodyMaxDefault = 1 << 20          // when a description names no limit
	bodyTimeout           = 10 * time.Second // the body must be here by then
	retryAfterSeconds     = "5"
	bodyChunk             = 4 << 10 // doubled as bytes arrive, whatever length was announced
)

// problemBase begins the type of every problem, the same as in the API.
const problemBase = "https://pawl.dev/problems/"

// Webhooks returns the webhook door:
//
//	POST /webhooks/{provider}
//	POST /webhooks/{provider}/{operation}/{mac}
//
// It answers 404 for a provider that is not configured, 405, 415 for a
// compressed body, 413, 401 for a signature that does not verify, 503 when not
// everything could be stored, and otherwise as the provider expects, after every
// event is durable.
func (in *Ingress) Webhooks() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/webhooks/{provider}", in.serveWebhook)
	mux.HandleFunc("/webhooks/{provider}/{operation}/{mac}", in.serveWebhook)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		in.cfg.Metrics.webhook(unknownProvider, webhookUnknownProvider)
		problem(w, http.StatusNotFound, "not-found", "Not found")
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

func (in *Ingress) serveWebhook(w http.ResponseWriter, r *http.Request) {
	pr := in.cfg.Providers[events.Provider(r.PathValue("provider"))]
	if pr == nil {
		in.cfg.Metrics.webhook(unknownProvider, webhookUnknownProvider)
		problem(w, http.StatusNotFound, "not-found", "Not found")
		return
	}
	outcome := in.receive(w, r, pr)
	in.cfg.Metrics.webhook(pr.Name(), outcome)
}

// receive handles one request of a known provider. Every step that costs
// something comes after the one that can refuse more cheaply.
func (in *Ingress) receive(w http.ResponseWriter, r *http.Request, pr *provider.Provider) webhookOutcome {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem(w, http.StatusMethodNotAllowed, "method-not-allowed", "Method not allowed")
		return webhookMethod
	}
	for _, e := range r.Header.Values("Content-Encoding") {
		if e != "" && !strings.EqualFold(e, "identity") {
			problem(w, http.StatusUnsupportedMediaType, "unsupported-media-type", "Send the body without Content-Encoding")
			return webhookEncoding
		}
	}
	select {
	case in.inFlight <- struct{}{}:
		defer func() { <-in.inFlight }()
	default:
		busy(w)
		return webhookUnavailable
	}
	body, held, outcome := in.readBody(w, r, pr)
	defer in.bytes.give(held)
	if outcome != "" {
		return outcome
	}
	account, err := pr.Verify(provider.Header(r.Header), body, in.cfg.Now())
	if err != nil {
		in.badSignature(r.Context(), pr, err)
		problem(w, http.StatusUnauthorized, "unauthorized", "Unauthorized")
		return webhookBadSignature
	}
	m := message{provider: pr, account: account, header: provider.Header(r.Header), body: body}
	m.reference = in.reference(pr.Name(), account, r.PathValue("operation"), r.PathValue("mac"))
	// The message is verified. That its sender hangs up now must not lose it:
	// the sender may have no repeat left.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(r.Context()), in.cfg.RecordTimeout, errRecordSlow)
	defer cancel()
	outcome, err = in.record(ctx, m)
	if err != nil {
		in.cfg.Logger.WarnContext(ctx, "webhook not stored", "provider", pr.Name(), "err", err)
		busy(w)
		return webhookUnavailable
	}
	status, contentType, ack := pr.Ack()
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	w.WriteHeader(status)
	_, _ = w.Write(ack) // the event is stored; a sender that is gone repeats and is told again
	return outcome
}

var errRecordSlow = errors.New("storing the webhook takes too long")

// badSignature says why at Debug only. The sender is told nothing: a reason
// would help whoever is guessing.
func (in *Ingress) badSignature(ctx context.Context, pr *provider.Provider, err error) {
	reason := "not_configured" // no secret to verify with
	var ve *provider.VerifyError
	if errors.As(err, &ve) {
		reason = string(ve.Reason)
	}
	in.cfg.Logger.DebugContext(ctx, "webhook signature refused", "provider", pr.Name(), "reason", reason)
}

// readBody reads the raw body under a limit, a deadline and the budget of all
// bodies together. held is what the caller gives back to the budget. A non-empty
// outcome means that the request is answered.
func (in *Ingress) readBody(w http.ResponseWriter, r *http.Request, pr *provider.Provider) (body []byte, held int64, outcome webhookOutcome) {
	limit := pr.WebhookMaxBytes()
	if limit <= 0 {
		limit = webhookBodyMaxDefault
	}
	if r.ContentLength > limit { // said openly: not a byte of it is read
		return nil, 0, tooLarge(w, limit)
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(in.cfg.Now().Add(bodyTimeout)) // not every writer can; the server's own deadline remains
	// The deadline would otherwise end the request while it is being stored.
	defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	src := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(body) == cap(body) {
			grow := max(int64(cap(body)), bodyChunk)
			if !in.bytes.take(grow) {
				busy(w)
				return nil, held, webhookUnavailable
			}
			held += grow
			body = append(make([]byte, 0, int64(cap(body))+grow), body...)
		}
		n, err := src.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		var over *http.MaxBytesError
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return body, held, ""
		case errors.As(err, &over):
			return nil, held, tooLarge(w, limit)
		default:
			w.Header().Set("Connection", "close")
			problem(w, http.StatusBadRequest, "incomplete-body", "The body did not arrive whole in time")
			return nil, held, webhookIncomplete
		}
	}
}

func tooLarge(w http.ResponseWriter, limit int64) webhookOutcome {
	w.Header().Set("Connection", "close")
	problem(w, http.StatusRequestEntityTooLarge, "too-large", fmt.Sprintf("The limit is %d bytes", limit))
	return webhookTooLarge
}

// reference reads the operation that a callback URL names. A valid mac proves
// that we gave this URL away for it; without one the name is a hint.
func (in *Ingress) reference(p events.Provider, account, operation, mac string) *events.Reference {
	op, err := events.ParseOperationID(operation)
	if err != nil {
		return nil
	}
	// An empty key would make a mac that anybody can compute.
	proven := !in.cfg.MasterKey.Empty() && events.VerifyCallback(in.cfg.MasterKey, p, account, op, mac)
	return &events.Reference{Operation: op, Proven: proven}
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", retryAfterSeconds)
	problem(w, http.StatusServiceUnavailable, "unavailable", "Not stored; send it again")
}

// problem answers with an RFC 9457 problem that says nothing about the request.
func problem(w http.ResponseWriter, status int, slug, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"type": problemBase + slug, "title": title, "status": status}) // nobody to tell
}
