package wasmbin_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// The promises are 10 ms and 5 ms; tests leave room for loaded machines. Without
// metering both take for ever.
const (
	stopBound    = 100 * time.Millisecond
	collectBound = 250 * time.Millisecond
)

// start calls run and returns once it runs.
func (h *host) start(t *testing.T, m api.Module, n uint64) <-chan error {
	t.Helper()
	h.running = make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		_, err := m.ExportedFunction("run").Call(context.Background(), n)
		done <- err
	}()
	select {
	case <-h.running:
	case err := <-done:
		t.Fatalf("ended before it was stopped: %v", err)
	}
	return done
}

// Not parallel: they measure time.
func TestEndlessGuestsStopAndLetTheHostCollect(t *testing.T) {
	for _, k := range wasmbin.Endless() {
		t.Run(k.Name, func(t *testing.T) {
			h := newHost(t, false)
			done := h.start(t, h.instantiate(t, metered(t, k.Wasm)), k.N)
			var pauses []time.Duration
			for range 9 {
				start := time.Now()
				goruntime.GC()
				pauses = append(pauses, time.Since(start))
			}
			start := time.Now()
			h.stop.Store(true)
			err := <-done
			late := time.Since(start)
			if !errors.Is(err, errStopped) {
				t.Errorf("ended with %v", err)
			}
			slices.Sort(pauses)
			t.Logf("stopped after %v, median collection %v, %d slices", late, pauses[4], h.slices.Load())
			if late > stopBound {
				t.Errorf("stopped %v after the flag, the bound is %v", late, stopBound)
			}
			if pauses[4] > collectBound {
				t.Errorf("median collection took %v, the bound is %v", pauses[4], collectBound)
			}
		})
	}
}

func TestRecursionEndsAtTheDepthOfTheCounter(t *testing.T) {
	t.Parallel()
	const depth = 1000
	for _, k := range wasmbin.Recursions() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, false)
			m := h.instantiate(t, metered(t, k.Wasm))
			counter := m.ExportedGlobal(wasmbin.CounterExport).(api.MutableGlobal)
			run := func(n uint64) error {
				counter.Set(uint64(wasmbin.NewCounter(0, depth)))
				got, err := m.ExportedFunction("run").Call(t.Context(), n)
				if err == nil && got[0] != n {
					t.Errorf("run(%d) = %d", n, got[0])
				}
				return err
			}
			if err := run(depth - 1); err != nil {
				t.Errorf("within the depth: %v", err)
			}
			if got := wasmbin.Counter(counter.Get()).Depth(); got != depth {
				t.Errorf("a depth of %d is left after the call, want %d", got, depth)
			}
			if err := run(depth + 1); !errors.Is(err, errTooDeep) {
				t.Errorf("beyond the depth: %v", err)
			}
			if err := run(1 << 30); !errors.Is(err, errTooDeep) {
				t.Errorf("without end: %v", err)
			}
			if err := run(10); err != nil {
				t.Errorf("after it ended: %v", err)
			}
		})
	}
}
