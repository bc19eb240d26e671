package runtime

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the engine's. Labels have few values: apps, functions, codes.
type metrics struct {
	registry   prometheus.Registerer
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	timeouts   *prometheus.CounterVec
	retired    *prometheus.CounterVec
	coldStarts *prometheus.CounterVec
	restores   *prometheus.CounterVec
	fuel       *prometheus.CounterVec
	retries    *prometheus.CounterVec
	instances  prometheus.Collector
}

// newMetrics registers the engine's metrics, the instances by asking census
// when they are read.
func newMetrics(r prometheus.Registerer, census func(func(app, function string, c census))) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: r,
		requests: counter("edgehost_requests_total", "Requests answered, by the code of the answer.", "app", "function", "code"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "edgehost_request_seconds",
			Help:    "Time from the arrival of a request to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14),
		}, []string{"app", "function"}),
		timeouts:   counter("edgehost_call_timeouts_total", "Requests answered at their deadline without the guest.", "app", "function"),
		retired:    counter("edgehost_instances_retired_total", "Instances that will not serve again.", "reason"),
		coldStarts: counter("edgehost_cold_starts_total", "Instances started.", "app", "function"),
		restores:   counter("edgehost_instance_restores_total", "Instances brought back to the state after their initialization, once for each request.", "app", "function"),
		fuel:       counter("edgehost_guest_fuel_total", "Fuel that guests have used: about the instructions they have executed.", "app", "function"),
		retries:    counter("edgehost_retries_total", "Attempts after the first of a call to a dependency, by what the one before came to.", "dependency", "reason"),
		instances:  instanceCollector(census),
	}
	if r == nil {
		return m, nil
	}
	for i, c := range m.collectors() {
		if err := r.Register(c); err != nil {
			for _, registered := range m.collectors()[:i] {
				r.Unregister(registered)
			}
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds, m.timeouts, m.retired, m.coldStarts, m.restores, m.fuel, m.retries, m.instances}
}

// close takes the metrics out of the registry.
func (m *metrics) close() {
	if m.registry == nil {
		return
	}
	for _, c := range m.collectors() {
		m.registry.Unregister(c)
	}
}

// functionMetrics are the series of one function. Each is looked up once.
type functionMetrics struct {
	vec           *prometheus.CounterVec
	app, function string
	requests      [slots]atomic.Pointer[prometheus.Counter] // by outcome.slot
	seconds       prometheus.Observer
	timeouts      prometheus.Counter
	coldStarts    prometheus.Counter
	restores      prometheus.Counter
	fuel          prometheus.Counter // what is left of a slice at a trap is not in it
}

func (m *metrics) of(app, function string) *functionMetrics {
	return &functionMetrics{
		vec: m.requests, app: app, function: function,
		seconds:    m.seconds.WithLabelValues(app, function),
		timeouts:   m.timeouts.WithLabelValues(app, function),
		coldStarts: m.coldStarts.WithLabelValues(app, function),
		restores:   m.restores.WithLabelValues(app, function),
		fuel:       m.fuel.WithLabelValues(app, function),
	}
}

// request returns the counter of one code. The series appears with the first
// request: most functions use few of them.
func (f *functionMetrics) request(slot int, code string) prometheus.Counter {
	if c := f.requests[slot].Load(); c != nil {
		return *c
	}
	c := f.vec.WithLabelValues(f.app, f.function, code)
	f.requests[slot].Store(&c)
	return c
}

// A census counts the instances of one function by what they do.
type census struct{ idle, busy, starting int }

// instanceCollector counts instances when it is asked, so that requests do not
// pay for it.
type instanceCollector func(func(app, function string, c census))

var instancesDesc = prometheus.NewDesc("edgehost_instances",
	"Instances that exist, by what they do.", []string{"app", "function", "state"}, nil)

// Describe implements prometheus.Collector.
func (instanceCollector) Describe(ch chan<- *prometheus.Desc) { ch <- instancesDesc }

// Collect implements prometheus.Collector.
func (c instanceCollector) Collect(ch chan<- prometheus.Metric) {
	c(func(app, function string, n census) {
		for state, count := range map[string]int{"idle": n.idle, "busy": n.busy, "starting": n.starting} {
			ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(count), app, function, state)
		}
	})
}
