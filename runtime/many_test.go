package runtime_test

import (
	"context"
	"log/slog"
	"net/http"
	goruntime "runtime"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

// More guests compute than there are processors. All of them get on, and a
// neighbour is not held up by more than it is by one.
func TestManyComputingGuestsHoldNobodyUp(t *testing.T) {
	h := open(t, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "loop", Module: conformance.Loop(), Timeout: time.Minute},
		{Name: "ends", Module: conformance.CallTree(24), Timeout: time.Minute},
		{Name: "hello", Module: conformance.Hello()},
	}})
	neighbour(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	loops := 4 * goruntime.GOMAXPROCS(0)
	for range loops {
		clients.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/loop", nil)
			if err != nil {
				t.Error(err)
				return
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
				t.Errorf("answered %d while others were measured", resp.StatusCode)
			}
		})
	}
	for h.Live() < loops {
		goruntime.Gosched()
	}
	var served, collected []time.Duration
	for range 100 {
		served = append(served, neighbour(t, h))
	}
	for range 5 {
		collected = append(collected, collect())
	}
	begun := time.Now()
	if resp, _ := h.get(t, "/ends"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("a guest that computes for a while was answered %d", resp.StatusCode)
	}
	t.Logf("beside %d loops: median of a neighbour %v, p99 %v; median collection %v; a computation took %v",
		loops, median(served), quantile(served, 0.99), median(collected), time.Since(begun))
	if median(served) > 5*time.Millisecond*raceFactor {
		t.Errorf("the median of a neighbour is %v", median(served))
	}
	if median(collected) > collectBound {
		t.Errorf("a collection took %v, the bound is %v", median(collected), collectBound)
	}
	cancel()
	closing, stop := context.WithCancel(context.Background())
	stop() // nobody is to wait for the guests
	if err := h.Close(closing); err != nil {
		t.Error(err)
	}
	clients.Wait()
}
