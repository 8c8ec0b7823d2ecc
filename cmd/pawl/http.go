package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pawl-dev/pawl/events"
	"github.com/pawl-dev/pawl/ingress/api"
)

// health is the body of /healthz and /readyz.
type health struct {
	Status     string `json:"status"` // ok, starting, halted, unavailable
	Reason     string `json:"reason,omitempty"`
	Durability string `json:"durability"`
	LedgerID   string `json:"ledger_id"`
	Version    string `json:"version"`
}

// handler is the one HTTP surface of the process.
func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/webhooks/", a.ingress.Webhooks())
	v1 := api.New(api.Config{
		Submit: a.ingress.Submit, Jobs: a.index, Reader: a.s.Store, Hosts: a.s.Hosts, Now: now, Logger: a.s.Logger.With("part", "api"),
		Find: func(ctx context.Context, op events.OperationID) (events.Provider, error) {
			s, _, err := a.s.Store.FindOperation(ctx, op)
			return s.Provider, err
		},
	})
	mux.Handle("/v1/", v1)
	mux.Handle("/openapi.json", v1)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	return mux
}

// healthz says whether the process lives. A halt or an unreachable store is not
// cured by a restart, so it does not fail here.
func (a *app) healthz(w http.ResponseWriter, _ *http.Request) {
	h := a.health("ok")
	if reason := a.halted.Load(); reason != nil {
		h.Status, h.Reason = "halted", *reason
	}
	writeHealth(w, http.StatusOK, h)
}

// readyz says whether a webhook or an intent would be stored now.
func (a *app) readyz(w http.ResponseWriter, r *http.Request) {
	if reason := a.halted.Load(); reason != nil {
		h := a.health("halted")
		h.Reason = *reason
		writeHealth(w, http.StatusServiceUnavailable, h)
		return
	}
	if !a.fed.Load() {
		writeHealth(w, http.StatusServiceUnavailable, a.health("starting"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := a.s.Store.Ready(ctx); err != nil {
		h := a.health("unavailable")
		h.Reason = err.Error()
		writeHealth(w, http.StatusServiceUnavailable, h)
		return
	}
	writeHealth(w, http.StatusOK, a.health("ok"))
}

func (a *app) health(status string) health {
	return health{Status: status, Durability: a.s.Store.Durability(), LedgerID: a.s.Store.LedgerID(), Version: versionText()}
}

func writeHealth(w http.ResponseWriter, code int, h health) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(h) // a reader that went away needs no answer
}
