package objects_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dependency(t testing.TB, h *objects.Host, name string, p objects.Policy) *objects.Dependency {
	t.Helper()
	d, err := h.Dependency(objects.ID{Namespace: "shop", Name: name}, p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func object(t testing.TB, h *objects.Host, name string) *objects.Object {
	t.Helper()
	o, err := h.Object(objects.ID{Namespace: "shop", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// pass lets time pass in a bubble, and everything happen that does until then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func snapshot(t testing.TB, b kvbucket.Bucket, name string) objects.Snapshot {
	t.Helper()
	s, err := objects.Inspect(t.Context(), b, objects.ID{Namespace: "shop", Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantMetric compares one sample, written as name{label=value,label=value}.
func wantMetric(t testing.TB, r *prometheus.Registry, sample string, want float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
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
					t.Errorf("%s is %v, want %v", sample, got, want)
				}
				return
			}
		}
	}
	t.Errorf("no metric %s", sample)
}
