package objects_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/kvbucket/natstest"
	"github.com/edgehost/edgehost/objects"
)

func TestMain(m *testing.M) {
	if natstest.Serve() {
		return
	}
	goleak.VerifyTestMain(m)
}

func dependency(tb testing.TB, h *objects.Host, name string, p objects.Policy) *objects.Dependency {
	tb.Helper()
	d, err := h.Dependency(objects.ID{Namespace: "shop", Name: name}, p)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func object(tb testing.TB, h *objects.Host, name string) *objects.Object {
	tb.Helper()
	o, err := h.Object(objects.ID{Namespace: "shop", Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// pass lets time pass in a bubble, and everything happen that does until then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func snapshot(tb testing.TB, b kvbucket.Bucket, name string) objects.Snapshot {
	tb.Helper()
	s, err := objects.Inspect(tb.Context(), b, objects.ID{Namespace: "shop", Name: name})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// wantMetric compares one sample, written as name{label=value,label=value}.
func wantMetric(tb testing.TB, r *prometheus.Registry, sample string, want float64) {
	tb.Helper()
	families, err := r.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := f.GetName()
			if labels != nil {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if name == sample {
				if got := m.GetCounter().GetValue() + m.GetGauge().GetValue(); got != want {
					tb.Errorf("%s is %v, want %v", sample, got, want)
				}
				return
			}
		}
	}
	tb.Errorf("no metric %s", sample)
}
