package objects

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/objects/internal/record"
)

// metrics counts for operators. The labels "dependency" are namespace/name; their
// number is bounded by the manifests.
type metrics struct {
	registerer prometheus.Registerer
	registered []prometheus.Collector

	transitions   *prometheus.CounterVec
	probes        *prometheus.CounterVec
	rejected      *prometheus.CounterVec
	leaseFailures *prometheus.CounterVec
	staleFences   *prometheus.CounterVec
	ownerChanges  prometheus.Counter
	owned         atomic.Int64
}

// The kinds of stale fences.
const (
	staleProbe = "probe"
	staleLease = "lease"
	staleOwner = "owner"
)

func newMetrics(r prometheus.Registerer, h *Host) (*metrics, error) {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registerer: r,
		transitions: vec("edgehost_breaker_transitions_total",
			"Changes of a breaker's state that this host has committed.", "dependency", "from", "to"),
		probes: vec("edgehost_breaker_probes_total",
			"Probes that ended, as committed by this host.", "dependency", "result"),
		rejected: vec("edgehost_breaker_rejected_total",
			"Calls that were not admitted.", "dependency", "reason"),
		leaseFailures: vec("edgehost_lease_failures_total",
			"Lease operations that did not succeed.", "op", "reason"),
		staleFences: vec("edgehost_stale_fences_rejected_total",
			"Results and writes that were dropped because a newer fence had been given out.", "kind"),
		ownerChanges: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgehost_owner_changes_total", Help: "Records that this host has taken over from another.",
		}),
	}
	m.staleFences.WithLabelValues(staleProbe)
	m.staleFences.WithLabelValues(staleLease)
	m.staleFences.WithLabelValues(staleOwner)
	owned := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "edgehost_objects_owned", Help: "Records that this host owns.",
	}, func() float64 { return float64(m.owned.Load()) })
	return m, m.register(m.transitions, m.probes, m.rejected, m.leaseFailures, m.staleFences, m.ownerChanges, owned, stateCollector{h})
}

// register registers all collectors or none.
func (m *metrics) register(collectors ...prometheus.Collector) error {
	if m.registerer == nil {
		return nil
	}
	for _, c := range collectors {
		if err := m.registerer.Register(c); err != nil {
			m.unregister()
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
}

func (m *metrics) own(owned bool) {
	if owned {
		m.owned.Add(1)
	} else {
		m.owned.Add(-1)
	}
}

// count counts what a commit of this host has done to a breaker.
func (h *Host) count(key string, events []record.Event) {
	if len(events) == 0 {
		return
	}
	parts, err := record.ParseKey(key)
	if err != nil || len(parts) < 3 {
		return // no key of a dependency
	}
	id := ID{parts[1], parts[2]}.String()
	for _, e := range events {
		if e.To != "" {
			h.metrics.transitions.WithLabelValues(id, e.From, e.To).Inc()
			h.log.Info("the breaker has changed", "dependency", id, "from", e.From, "to", e.To)
		}
		if e.Probe != "" {
			h.metrics.probes.WithLabelValues(id, e.Probe).Inc()
		}
	}
}

// A stateCollector reads the breakers' states when it is asked, so that a
// dependency costs nothing between scrapes.
type stateCollector struct{ host *Host }

var stateDesc = prometheus.NewDesc("edgehost_breaker_state",
	"The breaker as this host knows it: 0 closed, 1 half-open, 2 open.", []string{"dependency"}, nil)

// Describe implements [prometheus.Collector].
func (stateCollector) Describe(out chan<- *prometheus.Desc) { out <- stateDesc }

// Collect implements [prometheus.Collector].
func (c stateCollector) Collect(out chan<- prometheus.Metric) {
	c.host.mu.Lock()
	views := make(map[string]State, len(c.host.dependencies))
	for id, d := range c.host.dependencies {
		views[id.String()] = d.View().State
	}
	c.host.mu.Unlock()
	for name, state := range views {
		out <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, stateNumber(state), name)
	}
}

func stateNumber(s State) float64 {
	switch s {
	case StateHalfOpen:
		return 1
	case StateOpen:
		return 2
	case StateClosed:
	}
	return 0
}
