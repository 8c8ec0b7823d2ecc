package ingress

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
)

// unknownProvider stands, as a label and in inbox subjects, for a name that is
// not configured. Names from outside never become labels.
const unknownProvider = events.Provider("unknown")

// webhookOutcome is how one request at the webhook door ended.
type webhookOutcome string

const (
	webhookAccepted        webhookOutcome = "accepted"
	webhookDuplicate       webhookOutcome = "duplicate"
	webhookCollision       webhookOutcome = "collision"
	webhookBadSignature    webhookOutcome = "bad_signature"
	webhookTooLarge        webhookOutcome = "too_large"
	webhookEncoding        webhookOutcome = "encoding"
	webhookIncomplete      webhookOutcome = "incomplete"
	webhookUnreadable      webhookOutcome = "unreadable"
	webhookIgnored         webhookOutcome = "ignored"
	webhookUnavailable     webhookOutcome = "unavailable"
	webhookUnknownProvider webhookOutcome = "unknown_provider"
	webhookMethod          webhookOutcome = "method"
)

func webhookOutcomes() []webhookOutcome {
	return []webhookOutcome{
		webhookAccepted, webhookDuplicate, webhookCollision, webhookBadSignature, webhookTooLarge,
		webhookEncoding, webhookIncomplete, webhookUnreadable, webhookIgnored, webhookUnavailable,
		webhookUnknownProvider, webhookMethod,
	}
}

// Outcomes of intents.
const (
	intentAccepted    = "accepted"
	intentReplayed    = "replayed"
	intentRefused     = "refused"
	intentMismatch    = "mismatch"
	intentUnavailable = "unavailable"
	intentError       = "error"
)

func intentOutcomes() []string {
	return []string{intentAccepted, intentReplayed, intentRefused, intentMismatch, intentUnavailable, intentError}
}

func intentOutcome(r events.Receipt, err error) string {
	var refused *events.RefusedError
	switch {
	case err == nil && r.Replayed:
		return intentReplayed
	case err == nil:
		return intentAccepted
	case errors.As(err, &refused) && refused.Kind == events.RefusedMismatch:
		return intentMismatch
	case errors.As(err, &refused):
		return intentRefused
	case errors.Is(err, events.ErrUnavailable):
		return intentUnavailable
	default:
		return intentError
	}
}

// Metrics are the package's own. A nil *Metrics counts nothing.
type Metrics struct {
	known      map[events.Provider]bool
	webhooks   *prometheus.CounterVec
	intents    *prometheus.CounterVec
	duplicates *prometheus.CounterVec
}

// NewMetrics registers the metrics of the doors, every series at zero, so that
// the first refusal is a change and not a birth.
func NewMetrics(r prometheus.Registerer, providers []events.Provider) *Metrics {
	m := &Metrics{
		known: map[events.Provider]bool{},
		webhooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pawl_ingress_webhooks_total", Help: "Requests at the webhook door, by how they ended.",
		}, []string{"provider", "outcome"}),
		intents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pawl_ingress_intents_total", Help: "Intents submitted, by how they ended.",
		}, []string{"provider", "outcome"}),
		duplicates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pawl_ingress_duplicates_total", Help: "Events from outside that were durable already.",
		}, []string{"provider"}),
	}
	for _, p := range append([]events.Provider{unknownProvider}, providers...) {
		m.known[p] = true
		for _, o := range webhookOutcomes() {
			m.webhooks.WithLabelValues(string(p), string(o))
		}
		for _, o := range intentOutcomes() {
			m.intents.WithLabelValues(string(p), o)
		}
		m.duplicates.WithLabelValues(string(p))
	}
	r.MustRegister(m.webhooks, m.intents, m.duplicates)
	return m
}

// label keeps the label's values a closed set.
func (m *Metrics) label(p events.Provider) string {
	if m.known[p] {
		return string(p)
	}
	return string(unknownProvider)
}

func (m *Metrics) webhook(p events.Provider, o webhookOutcome) {
	if m != nil {
		m.webhooks.WithLabelValues(m.label(p), string(o)).Inc()
	}
}

func (m *Metrics) intent(p events.Provider, outcome string) {
	if m != nil {
		m.intents.WithLabelValues(m.label(p), outcome).Inc()
	}
}

func (m *Metrics) duplicate(p events.Provider) {
	if m != nil {
		m.duplicates.WithLabelValues(m.label(p)).Inc()
	}
}
