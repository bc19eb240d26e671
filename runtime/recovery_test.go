package runtime_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
)

// recovering is a dependency that is asked for its health soon after the first
// failure.
func recovering() runtime.DependencyConfig {
	return runtime.DependencyConfig{
		Timeout: time.Second,
		Probe:   "GET /healthz?deep=1",
		Policy:  objects.Policy{FailureThreshold: 1, ResetAfter: 100 * time.Millisecond},
	}
}

// waitUntilClosed waits until the record says that the breaker of "up" is closed,
// without a call to it.
func waitUntilClosed(tb testing.TB, b kvbucket.Bucket) {
	tb.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for {
		o, err := objects.Inspect(tb.Context(), b, objects.ID{Namespace: "app", Name: "up"})
		if err == nil && o.Breaker != nil && o.Breaker.State == objects.StateClosed {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline:
			tb.Fatalf("the breaker is %+v, %v", o.Breaker, err)
		}
	}
}

// ails lets calls fail, and answers the given number of questions about its
// health with 500 before it is well.
func (u *upstream) ails(sick int64) *atomic.Int64 {
	asked := new(atomic.Int64)
	u.behave(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() == "/base/healthz?deep=1" && r.Method == http.MethodGet && asked.Add(1) > sick {
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	return asked
}

func TestActiveProbeClosesTheBreakerWithoutTraffic(t *testing.T) {
	u := newUpstream(t)
	asked := u.ails(1)
	h, bucket := guardedBy(t, guardedApp(t, u, recovering()))
	h.get(t, callUp)
	waitUntilClosed(t, bucket)
	if n, all := asked.Load(), u.calls.Load(); n != 2 || all != 3 {
		t.Errorf("the dependency was asked %d times in %d calls, want 2 in 3: one failed", n, all)
	}
}

func TestRefusedDeploymentLeavesTheActiveProbe(t *testing.T) {
	u := newUpstream(t)
	u.ails(0)
	app := guardedApp(t, u, recovering())
	h, bucket := guardedBy(t, app)
	app.Functions = append(app.Functions, runtime.FunctionConfig{Name: "bad", Module: []byte("no module"), Routes: []string{"/bad"}})
	if err := h.Deploy(t.Context(), app); err == nil {
		t.Fatal("a function without code was deployed")
	}
	h.get(t, callUp)
	waitUntilClosed(t, bucket)
}

func TestProbeThatIsNoRequestIsRefused(t *testing.T) {
	for _, probe := range []string{"/healthz", "GET", "POST /healthz", "GET healthz", "GET /a/../b", "GET /a b"} {
		cfg := recovering()
		cfg.Probe = probe
		h := open(t, runtime.Config{})
		err := h.Deploy(t.Context(), guardedApp(t, newUpstream(t), cfg))
		if err == nil || !strings.Contains(err.Error(), "probe") {
			t.Errorf("%q: got %v, want a refusal", probe, err)
		}
	}
}

func TestCallsBeyondTheLimitAreRefused(t *testing.T) {
	u := newUpstream(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	u.behave(func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	cfg := runtime.DependencyConfig{Timeout: 10 * time.Second, Policy: objects.Policy{MaxInFlight: 2}}
	h, _ := guardedBy(t, guardedApp(t, u, cfg))
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			if resp, body := h.get(t, callUp); resp.StatusCode != http.StatusOK {
				t.Errorf("got %d %s within the limit", resp.StatusCode, body)
			}
		})
		<-arrived
	}
	resp, body := h.get(t, callUp)
	close(release)
	clients.Wait()
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "overloaded")
	if after := resp.Header.Get("Retry-After"); after == "" || after == "0" {
		t.Errorf("Retry-After %q", after)
	}
	u.behave(func(http.ResponseWriter, *http.Request) {})
	if resp, body := h.get(t, callUp); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d %s when the others had ended", resp.StatusCode, body)
	}
}
