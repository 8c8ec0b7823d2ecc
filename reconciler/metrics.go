package reconciler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
)

// Metrics are shared by the reconcilers of all providers.
type Metrics struct {
	rescues  *prometheus.CounterVec
	unknown  *prometheus.CounterVec
	open     *prometheus.GaugeVec
	review   *prometheus.GaugeVec
	creates  *prometheus.CounterVec
	polls    *prometheus.CounterVec
	settled  *prometheus.CounterVec
	fenced   prometheus.Counter
	duration *prometheus.HistogramVec
}

// SettleObjectiveSeconds is the objective for submit-to-settled that the
// histogram has a bucket for.
const SettleObjectiveSeconds = 300

// NewMetrics registers the metrics, with a zero for every provider.
func NewMetrics(r prometheus.Registerer, providers []events.Provider) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"provider"})
	}
	m := &Metrics{
		rescues: counter("pawl_reconciler_rescues_total", "Terminal states first learned by polling although the provider should have pushed.", "provider"),
		unknown: counter("pawl_reconciler_unknown_creates_total", "Create attempts that ended without proof of what happened.", "provider"),
		open:    gauge("pawl_reconciler_unknown_creates", "Operations whose create is unresolved now."),
		review:  gauge("pawl_review_open", "Operations that wait for a person now."),
		creates: counter("pawl_reconciler_creates_total", "Create attempts, by what the answer proved.", "provider", "outcome"),
		polls:   counter("pawl_reconciler_polls_total", "Status reads and look-ups, by what they gave.", "provider", "outcome"),
		settled: counter("pawl_reconciler_settled_total", "Settlements announced, by outcome.", "provider", "outcome"),
		fenced:  prometheus.NewCounter(prometheus.CounterOpts{Name: "pawl_reconciler_fenced_total", Help: "Decisions dropped because somebody else decided or our view lagged."}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "pawl_submit_to_settled_seconds", Help: "From the stored intent to the announced settlement. The objective is 300 s.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 30, 60, 120, SettleObjectiveSeconds, 600, 1800, 3600, 14400, 86400},
		}, []string{"provider"}),
	}
	r.MustRegister(m.rescues, m.unknown, m.open, m.review, m.creates, m.polls, m.settled, m.fenced, m.duration)
	for _, p := range providers {
		m.start(string(p))
	}
	return m
}

func (m *Metrics) start(p string) {
	m.rescues.WithLabelValues(p)
	m.unknown.WithLabelValues(p)
	m.open.WithLabelValues(p)
	m.review.WithLabelValues(p)
	m.duration.WithLabelValues(p)
	for _, o := range []string{"accepted", "rejected", "ambiguous", "not_sent", "throttled"} {
		m.creates.WithLabelValues(p, o)
	}
	for _, o := range []string{"changed", "unchanged", "unrecognised", "gone", "deferred", "found", "absent", "failed"} {
		m.polls.WithLabelValues(p, o)
	}
	for _, o := range []events.Outcome{events.OutcomeConfirmed, events.OutcomeFailed, events.OutcomeCancelled} {
		m.settled.WithLabelValues(p, string(o))
	}
}

func (m *Metrics) announced(p events.Provider, s *events.Settled, callback bool, now time.Time) {
	m.settled.WithLabelValues(string(p), string(s.Outcome)).Inc()
	m.duration.WithLabelValues(string(p)).Observe(now.Sub(s.SubmittedAt).Seconds())
	if callback && s.LearnedBy == events.SourcePoll {
		m.rescues.WithLabelValues(string(p)).Inc()
	}
}
