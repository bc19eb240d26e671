package runtime_test

import (
	"fmt"
	"io"
	"net/http"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

const manyBytes = 100 << 20

// peak watches the heap while fn runs, and returns by how much it grew at most.
func peak(fn func()) uint64 {
	goruntime.GC()
	var before goruntime.MemStats
	goruntime.ReadMemStats(&before)
	var highest atomic.Uint64
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				var now goruntime.MemStats
				goruntime.ReadMemStats(&now)
				highest.Store(max(highest.Load(), now.HeapInuse))
			}
		}
	})
	fn()
	close(done)
	group.Wait()
	return max(highest.Load(), before.HeapInuse) - before.HeapInuse
}

func TestBodiesStreamInBoundedMemory(t *testing.T) {
	const allowed = 16 << 20 // one instance, and what the collector has not got round to
	f := tools(t)
	f.Timeout, f.Instances = time.Minute, 1
	h := serve(t, f)
	h.get(t, "/tools/echo") // starts the instance
	for name, transfer := range map[string]func(t *testing.T) int64{
		"upload": func(t *testing.T) int64 {
			t.Helper()
			var n int64
			_, body := h.do(t, http.MethodPost, "/tools/upload", io.LimitReader(zeros{}, manyBytes))
			_, _ = fmt.Sscan(body, &n)
			return n
		},
		"download": func(t *testing.T) int64 {
			t.Helper()
			return discard(t, http.MethodGet, fmt.Sprint(h.url, "/tools/download?n=", manyBytes), nil)
		},
		"both ways at once": func(t *testing.T) int64 {
			t.Helper()
			return discard(t, http.MethodPost, h.url+"/tools/echo", io.LimitReader(zeros{}, manyBytes))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var n int64
			grown := peak(func() { n = transfer(t) })
			if n != manyBytes {
				t.Errorf("%d bytes arrived, want %d", n, manyBytes)
			}
			if grown > allowed {
				t.Errorf("the heap grew by %d MiB, want at most %d", grown>>20, allowed>>20)
			}
			t.Logf("the heap grew by %d KiB", grown>>10)
		})
	}
}

// discard sends a request and counts the bytes of its answer.
func discard(t *testing.T, method, url string, body io.Reader) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestManyClientsAtOnce(t *testing.T) {
	f := tools(t)
	f.Timeout, f.QueueWait, f.Instances = 30*time.Second, 30*time.Second, 4
	loop := runtime.FunctionConfig{Name: "loop", Module: conformance.Loop(), Timeout: 50 * time.Millisecond, Instances: 2}
	trap := runtime.FunctionConfig{Name: "trap", Module: conformance.Trap()}
	hello := runtime.FunctionConfig{Name: "hello", Module: conformance.Hello()}
	h := serve(t, f, loop, trap, hello)
	want := map[string]int{
		"/hello": 200, "/trap": 502, "/loop": 504, "/tools/head": 200,
		"/tools/panic": 502, "/tools/download?n=100000": 200, "/tools/nap": 200, "/nothing": 404,
	}
	var clients sync.WaitGroup
	for n := range 64 {
		clients.Go(func() {
			i := 0
			for path, status := range want {
				if i++; path == "/loop" && n%8 != 0 {
					continue
				}
				resp, err := http.Get(h.url + path)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != status && (path != "/loop" || resp.StatusCode != 503) {
					t.Errorf("%s: got %d, want %d", path, resp.StatusCode, status)
				}
			}
		})
	}
	clients.Wait()
}
