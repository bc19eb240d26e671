package kvbucket

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts the writes that did not simply succeed.
type metrics struct {
	conflicts prometheus.Counter
	ambiguous *prometheus.CounterVec // by how the doubt was resolved
}

// The values of the label "resolved".
const (
	resolvedApplied    = "applied"
	resolvedNotApplied = "not_applied"
	resolvedUnknown    = "unknown"
)

// newMetrics registers the counters, or takes those that r already has.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehost_kv_conflicts_total",
			Help: "Writes refused because the key had another revision.",
		}),
		ambiguous: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "edgehost_kv_ambiguous_total",
			Help: "Writes whose acknowledgement got lost, by what the outcome turned out to be.",
		}, []string{"resolved"}),
	}
	if r == nil {
		return m, nil
	}
	var err error
	if m.conflicts, err = register(r, m.conflicts); err != nil {
		return nil, err
	}
	m.ambiguous, err = register(r, m.ambiguous)
	return m, err
}

func register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	if err == nil {
		return c, nil
	}
	if existing, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if c, ok := existing.ExistingCollector.(C); ok {
			return c, nil
		}
	}
	return c, fmt.Errorf("kvbucket: metrics: %w", err)
}

// count records the end of a write; doubt says that an acknowledgement got lost.
func (m *metrics) count(err error, doubt bool) {
	conflict := errors.Is(err, ErrConflict)
	if conflict {
		m.conflicts.Inc()
	}
	switch {
	case !doubt:
	case err == nil:
		m.ambiguous.WithLabelValues(resolvedApplied).Inc()
	case conflict:
		m.ambiguous.WithLabelValues(resolvedNotApplied).Inc()
	default:
		m.ambiguous.WithLabelValues(resolvedUnknown).Inc()
	}
}
