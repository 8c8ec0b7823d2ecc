package effects

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pawl-dev/pawl/events"
)

// Metrics are the effects' own.
type Metrics struct {
	total *prometheus.CounterVec
	owing prometheus.Gauge
}

// NewMetrics registers the metrics, with a zero for every configured effect.
func NewMetrics(r prometheus.Registerer, names []string) *Metrics {
	m := &Metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pawl_effects_total", Help: "Effects sent, by outcome: done, retry or dead.",
		}, []string{"effect", "outcome"}),
		owing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pawl_effects_owing", Help: "Operations that owe an effect now.",
		}),
	}
	for _, n := range names {
		for _, o := range []string{"done", "retry", "dead"} {
			m.total.WithLabelValues(n, o)
		}
	}
	r.MustRegister(m.total, m.owing)
	return m
}

// SetOwing records how many operations owe an effect.
func (m *Metrics) SetOwing(n int) { m.owing.Set(float64(n)) }

func (m *Metrics) count(name string, data events.Data) {
	outcome := "retry"
	switch data.(type) {
	case *events.EffectDone:
		outcome = "done"
	case *events.EffectDead:
		outcome = "dead"
	}
	m.total.WithLabelValues(name, outcome).Inc()
}
