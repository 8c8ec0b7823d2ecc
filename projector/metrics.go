package projector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
)

// Metrics are the projector's own. A nil *Metrics counts nothing.
type Metrics struct {
	events  *prometheus.CounterVec
	commits prometheus.Counter
	keys    prometheus.Counter
	seq     prometheus.Gauge
	lag     prometheus.Gauge
}

// NewMetrics registers the projector's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pawl_projector_events_total", Help: "Events folded, by what the fold did with them.",
		}, []string{"verdict"}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pawl_projector_commits_total", Help: "Commits of changed records and checkpoint.",
		}),
		keys: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pawl_projector_records_total", Help: "Records written by commits.",
		}),
		seq: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pawl_projector_applied_seq", Help: "Last stream sequence that the bucket holds.",
		}),
		lag: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pawl_projector_lag_events", Help: "Events in the stream that the bucket does not hold yet.",
		}),
	}
	for _, v := range events.Verdicts() {
		m.events.WithLabelValues(string(v))
	}
	r.MustRegister(m.events, m.commits, m.keys, m.seq, m.lag)
	return m
}

// SetLag records how far the bucket is behind the stream.
func (m *Metrics) SetLag(events uint64) {
	if m != nil {
		m.lag.Set(float64(events))
	}
}

func (m *Metrics) folded(v events.Verdict) {
	if m != nil {
		m.events.WithLabelValues(string(v)).Inc()
	}
}

func (m *Metrics) committed(keys int, seq uint64) {
	if m != nil {
		m.commits.Inc()
		m.keys.Add(float64(keys))
		m.seq.Set(float64(seq))
	}
}
