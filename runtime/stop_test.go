package runtime_test

import (
	"context"
	"flag"
	"net/http"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
)

// stopRuns is how often each shape is stopped. Fewer are enough to see whether
// it is; the promise is about the median of twenty.
var stopRuns = flag.Int("stop.runs", 5, "how often guests of each shape are stopped")

// The promises are 10 ms for stopping and 5 ms for collecting. The tests leave
// room for loaded machines; without metering both take for ever.
const (
	stopBound    = 100 * time.Millisecond
	collectBound = 50 * time.Millisecond
)

// serveShape serves a shape as "/f" and a greeting as "/hello". A dependency
// hangs, and the lease of "doc/1" is held.
func serveShape(t *testing.T, s shape, timeout time.Duration) (h *host, url string) {
	t.Helper()
	coordination, err := objects.Open(t.Context(), objects.Config{Bucket: kvbucket.NewMemory()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := coordination.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	u := newUpstream(t)
	u.behave(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	document, err := coordination.Object(objects.ID{Namespace: "app", Name: "doc/1"})
	if err == nil {
		_, err = document.Acquire(t.Context(), objects.LeaseOptions{TTL: time.Minute})
	}
	if err != nil {
		t.Fatal(err)
	}
	f := runtime.FunctionConfig{Name: "f", Module: s.module, Routes: []string{"/f"}}
	if s.path != "" {
		f = tools(t)
		f.Dependencies, f.Objects = []string{"up"}, []string{"doc/*"}
	}
	f.Timeout, f.Instances, f.QueueWait = timeout, 1, time.Second
	h = open(t, runtime.Config{Objects: coordination})
	h.deploy(t, runtime.App{
		Name:         "app",
		Functions:    []runtime.FunctionConfig{f, {Name: "hello", Module: conformance.Hello()}},
		Dependencies: []runtime.DependencyConfig{{Name: "up", URL: u.URL, Timeout: time.Hour}},
	})
	if s.path != "" {
		return h, "/tools/" + s.path
	}
	return h, "/f"
}

// gone waits until no instance is at work.
func (h *host) gone() {
	for h.Live() > 0 {
		goruntime.Gosched()
	}
}

// Not parallel, like everything below: they measure time.
func TestGuestThatDoesNotEndIsStoppedAtTheDeadline(t *testing.T) {
	const timeout = 60 * time.Millisecond
	for _, s := range append(computing(), blocked()...) {
		t.Run(s.name, func(t *testing.T) {
			h, url := serveShape(t, s, timeout)
			var answered, stopped []time.Duration
			for range *stopRuns {
				begun := time.Now()
				resp, body := h.get(t, url)
				answered = append(answered, time.Since(begun)-timeout)
				h.gone()
				stopped = append(stopped, time.Since(begun)-timeout)
				wantProblem(t, resp, body, http.StatusGatewayTimeout, "deadline_exceeded")
			}
			t.Logf("answered %v and stopped %v after the deadline, at most %v", median(answered), median(stopped), slices.Max(stopped))
			if median(answered) > stopBound || median(stopped) > stopBound {
				t.Errorf("answered %v and stopped %v after the deadline, the bound is %v", median(answered), median(stopped), stopBound)
			}
			if slices.Min(answered) < 0 {
				t.Errorf("answered %v before the deadline", -slices.Min(answered))
			}
			if resp, _ := h.get(t, "/hello"); resp.StatusCode != http.StatusOK {
				t.Errorf("another function answered %d", resp.StatusCode)
			}
		})
	}
}

func TestRecursionEndsInATrap(t *testing.T) {
	for _, s := range recursive() {
		t.Run(s.name, func(t *testing.T) {
			h, url := serveShape(t, s, 10*time.Second)
			for range 2 {
				resp, body := h.get(t, url)
				wantProblem(t, resp, body, http.StatusBadGateway, "function_failed")
				if !strings.Contains(h.log.String(), "nest too deeply") {
					t.Error("the log does not say why")
				}
			}
		})
	}
}

func median(d []time.Duration) time.Duration { return quantile(d, 0.5) }

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[int(q*float64(len(d)-1))]
}

// A neighbour's requests, and the collector, get their turn beside a guest that
// computes.
func TestComputingGuestHoldsNobodyUp(t *testing.T) {
	samples, room := 40**stopRuns, time.Duration(10*raceFactor)
	control, _ := serveShape(t, shape{module: conformance.Wait()}, time.Minute)
	idle := quantile(besides(t, control, "/f", func() time.Duration { return neighbour(t, control) }, samples), 0.99)
	for _, s := range computing() {
		t.Run(s.name, func(t *testing.T) {
			h, url := serveShape(t, s, time.Minute)
			served := besides(t, h, url, func() time.Duration { return neighbour(t, h) }, samples)
			h, url = serveShape(t, s, time.Minute)
			collected := besides(t, h, url, collect, 2**stopRuns+1)
			p99, pause := quantile(served, 0.99), median(collected)
			t.Logf("p99 of a neighbour %v, beside an idle one %v; median collection %v", p99, idle, pause)
			if p99 > room*max(2*idle, time.Millisecond) {
				t.Errorf("p99 of a neighbour %v, beside an idle one %v", p99, idle)
			}
			if pause > collectBound {
				t.Errorf("a collection took %v, the bound is %v", pause, collectBound)
			}
		})
	}
}

// besides measures while a request to url is under way.
func besides(t *testing.T, h *host, url string, measure func() time.Duration, n int) (took []time.Duration) {
	t.Helper()
	neighbour(t, h) // its instance starts
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+url, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			t.Errorf("answered %d while others were measured", resp.StatusCode)
		}
	}()
	for h.Live() == 0 {
		goruntime.Gosched()
	}
	for range n {
		took = append(took, measure())
	}
	cancel()
	<-ended
	closing, stop := context.WithCancel(context.Background())
	stop() // nobody is to wait for the guest
	if err := h.Close(closing); err != nil {
		t.Error(err)
	}
	return took
}

func neighbour(t *testing.T, h *host) time.Duration {
	t.Helper()
	begun := time.Now()
	if resp, _ := h.get(t, "/hello"); resp.StatusCode != http.StatusOK {
		t.Errorf("the neighbour answered %d", resp.StatusCode)
	}
	return time.Since(begun)
}

func collect() time.Duration {
	begun := time.Now()
	goruntime.GC()
	return time.Since(begun)
}
