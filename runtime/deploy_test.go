package runtime_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

func TestDeployReplacesWithoutLosingRequests(t *testing.T) {
	h := open(t, runtime.Config{})
	counter := runtime.FunctionConfig{Name: "f", Module: conformance.Counter(), Routes: []string{"/f"}}
	hello := runtime.FunctionConfig{Name: "f", Module: conformance.Hello(), Routes: []string{"/f"}}
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{counter}})
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if resp, body := h.get(t, "/f"); resp.StatusCode != http.StatusOK {
					t.Errorf("got %d %s", resp.StatusCode, body)
				}
			}
		})
	}
	for i := range 20 {
		f := hello
		if i%2 == 1 {
			f = counter
		}
		h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{f}})
	}
	close(stop)
	clients.Wait()
}

func TestOldAppFinishesItsRequests(t *testing.T) {
	h := open(t, runtime.Config{})
	f := tools(t)
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{f}})
	h.get(t, "/tools/echo")
	answered := make(chan int, 1)
	go func() {
		resp, _ := h.get(t, "/tools/nap")
		answered <- resp.StatusCode
	}()
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "hello", Module: conformance.Hello(), Routes: []string{"/hello", "/tools/nap"}},
	}})
	if status := <-answered; status != http.StatusOK {
		t.Errorf("got %d, want 200 from the old app or the new", status)
	}
	if resp, _ := h.get(t, "/tools/echo"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("got %d, want 404 from the new app", resp.StatusCode)
	}
}

func TestRefusedDeployChangesNothing(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "f", Module: conformance.Hello()})
	for name, f := range map[string]runtime.FunctionConfig{
		"a bad module": {Name: "f", Module: conformance.NoHandle(), Routes: []string{"/f"}},
		"a bad route":  {Name: "f", Module: conformance.Hello(), Routes: []string{"/{f"}},
	} {
		if err := h.Deploy(t.Context(), runtime.App{Name: "app", Functions: []runtime.FunctionConfig{f}}); err == nil {
			t.Errorf("%s was deployed", name)
		}
	}
	err := h.Deploy(t.Context(), runtime.App{Name: "other", Functions: []runtime.FunctionConfig{
		{Name: "f", Module: conformance.Hello(), Routes: []string{"/f"}},
	}})
	if err == nil {
		t.Error("a second app took the route of the first")
	}
	if resp, _ := h.get(t, "/f"); resp.StatusCode != http.StatusOK {
		t.Errorf("the app that was there answers %d", resp.StatusCode)
	}
}

func TestAppsStandSideBySide(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "f", Module: conformance.Hello()})
	h.deploy(t, runtime.App{Name: "other", Functions: []runtime.FunctionConfig{{Name: "g", Module: conformance.Hello()}}})
	for _, path := range []string{"/f", "/g"} {
		if resp, _ := h.get(t, path); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got %d", path, resp.StatusCode)
		}
	}
}

func TestFullQueueIsOverloaded(t *testing.T) {
	f := tools(t)
	f.Instances, f.Queue, f.Timeout = 1, 1, 2*time.Second
	h := serve(t, f)
	var clients sync.WaitGroup
	defer clients.Wait()
	clients.Go(func() { h.get(t, "/tools/sleep") })
	h.waitForLog(t, "sleeping")
	begun := time.Now()
	refused := make(chan time.Duration, 2)
	for range 2 { // one of them waits
		clients.Go(func() {
			resp, body := h.get(t, "/tools/echo")
			if resp.StatusCode != http.StatusServiceUnavailable {
				return // it waited until the sleeper was stopped
			}
			wantProblem(t, resp, body, http.StatusServiceUnavailable, "overloaded")
			if after := resp.Header.Get("Retry-After"); after != "1" {
				t.Errorf("Retry-After %q, want 1", after)
			}
			refused <- time.Since(begun)
		})
	}
	if took := <-refused; took > 500*time.Millisecond {
		t.Errorf("refused after %v, want at once", took)
	}
}

func TestWaitingForAnInstanceEnds(t *testing.T) {
	f := tools(t)
	f.Instances, f.QueueWait, f.Timeout = 1, 100*time.Millisecond, time.Second
	h := serve(t, f)
	var client sync.WaitGroup
	defer client.Wait()
	client.Go(func() { h.get(t, "/tools/sleep") })
	h.waitForLog(t, "sleeping")
	begun := time.Now()
	resp, body := h.get(t, "/tools/echo")
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "overloaded")
	if took := time.Since(begun); took < 100*time.Millisecond || took > 600*time.Millisecond {
		t.Errorf("refused after %v, want 100ms", took)
	}
}

func TestCloseWaitsThenCuts(t *testing.T) {
	f := tools(t)
	f.Timeout = time.Minute
	h := serve(t, f)
	h.get(t, "/tools/echo")
	sleeping := make(chan int, 1)
	go func() {
		resp, _ := h.get(t, "/tools/sleep")
		sleeping <- resp.StatusCode
	}()
	h.waitForLog(t, "sleeping")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if err := h.Close(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took < 100*time.Millisecond || took > 2*time.Second {
		t.Errorf("closed after %v, want the time it was given", took)
	}
	if status := <-sleeping; status != http.StatusBadGateway && status != http.StatusGatewayTimeout {
		t.Errorf("the request that was cut got %d", status)
	}
	resp, body := h.get(t, "/tools/echo")
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "overloaded")
}

func TestMetricsCount(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := open(t, runtime.Config{Metrics: registry})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "hello", Module: conformance.Hello()},
		{Name: "trap", Module: conformance.Trap()},
		{Name: "loop", Module: conformance.Loop(), Timeout: 50 * time.Millisecond},
	}})
	for _, path := range []string{"/hello", "/hello", "/trap", "/loop", "/nothing"} {
		h.get(t, path)
	}
	want := `
# HELP edgehost_requests_total Requests answered, by the code of the answer.
# TYPE edgehost_requests_total counter
edgehost_requests_total{app="",code="no_route",function=""} 1
edgehost_requests_total{app="app",code="ok",function="hello"} 2
edgehost_requests_total{app="app",code="function_failed",function="trap"} 1
edgehost_requests_total{app="app",code="deadline_exceeded",function="loop"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "edgehost_requests_total"); err != nil {
		t.Error(err)
	}
	for name, least := range map[string]int{
		"edgehost_call_timeouts_total": 1, "edgehost_instances": 9, "edgehost_request_seconds": 3,
		"edgehost_cold_starts_total": 3, "edgehost_instances_retired_total": 1,
	} {
		if n, err := testutil.GatherAndCount(registry, name); err != nil || n < least {
			t.Errorf("%s has %d series, %v, want %d", name, n, err, least)
		}
	}
}
