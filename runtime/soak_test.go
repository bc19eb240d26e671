package runtime_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"net/http"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

var soakKills = flag.Int("soak.kills", 10_000, "how many small guests are killed; a twentieth as many Go guests are, and a tenth as many apps deployed")

// soakScale is by how much less is done where everything takes longer.
func soakScale() int {
	if raceDetector {
		return 50
	}
	return 1
}

// A footprint is what a process takes.
type footprint struct {
	resident   int64
	goroutines int
}

// footprint measures after everything that can be given back was.
func (h *host) footprint(t *testing.T) footprint {
	t.Helper()
	h.gone()
	debug.FreeOSMemory()
	f := footprint{goroutines: goruntime.NumGoroutine()}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil { // not Linux: what the collector knows of
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		f.resident = int64(m.Sys - m.HeapReleased)
		return f
	}
	_, rest, _ := bytes.Cut(status, []byte("VmRSS:"))
	for _, c := range bytes.TrimSpace(rest) {
		if c < '0' || c > '9' {
			break
		}
		f.resident = f.resident*10 + int64(c-'0')
	}
	f.resident <<= 10
	return f
}

// wantSteady checks that work of any length leaves no more than a tenth of it
// does.
func wantSteady(t *testing.T, h *host, n int, work func(n int)) {
	t.Helper()
	work(n / 10)
	before := h.footprint(t)
	begun := time.Now()
	work(n)
	took := time.Since(begun)
	after := h.footprint(t)
	t.Logf("%d in %v: from %d to %d KiB resident, from %d to %d goroutines", n, took, before.resident>>10, after.resident>>10, before.goroutines, after.goroutines)
	if after.resident > before.resident+before.resident/10*raceFactor {
		t.Errorf("from %d to %d bytes resident", before.resident, after.resident)
	}
	if after.goroutines > before.goroutines+before.goroutines/10+32 { // connections are closed in the background
		t.Errorf("from %d to %d goroutines", before.goroutines, after.goroutines)
	}
}

func TestKilledGuestsLeaveNothingBehind(t *testing.T) {
	loop := tools(t)
	restored := loop
	restored.Isolation = runtime.IsolationRequest
	small := []runtime.FunctionConfig{
		{Name: "loop", Module: conformance.Loop()},
		{Name: "tree", Module: conformance.CallTree(60)},
		{Name: "fill", Module: conformance.MemoryFill(256)},
		{Name: "grow", Module: body(growing...)},
		{Name: "sleep", Module: conformance.SleepPoll()},
		{Name: "recursion", Module: conformance.Recursion()},
	}
	for name, c := range map[string]struct {
		n         int
		timeout   time.Duration
		functions []runtime.FunctionConfig
		paths     []string
	}{
		"small":       {*soakKills, 3 * time.Millisecond, small, []string{"/loop", "/tree", "/fill", "/grow", "/sleep", "/recursion"}},
		"restored Go": {*soakKills / 20, 40 * time.Millisecond, []runtime.FunctionConfig{restored}, []string{"/tools/loop", "/tools/storm", "/tools/exit", "/tools/recurse"}},
		"Go":          {*soakKills / 20, 40 * time.Millisecond, []runtime.FunctionConfig{loop}, []string{"/tools/loop", "/tools/storm", "/tools/sleep"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := open(t, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
			for i := range c.functions {
				c.functions[i].Timeout = c.timeout
			}
			h.deploy(t, runtime.App{Name: "app", Functions: c.functions})
			wantSteady(t, h, c.n/soakScale(), func(n int) { h.storm(t, n, c.paths) })
		})
	}
}

// storm sends n requests by 16 clients, none of which the guest answers.
func (h *host) storm(t *testing.T, n int, paths []string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	var clients sync.WaitGroup
	var next atomic.Int64
	for range 16 {
		clients.Go(func() {
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				resp, err := client.Get(h.url + paths[i%len(paths)])
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode < http.StatusInternalServerError {
					t.Errorf("%s was answered %d", paths[i%len(paths)], resp.StatusCode)
				}
			}
		})
	}
	clients.Wait()
	client.CloseIdleConnections()
}

func TestReloadsLeaveNothingBehind(t *testing.T) {
	h := open(t, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
	versions := [][]byte{conformance.Hello(), conformance.Counter()}
	wantSteady(t, h, *soakKills/10/soakScale(), func(n int) {
		for i := range n {
			h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{Name: "f", Module: versions[i%2]}}})
			if resp, _ := h.get(t, "/f"); resp.StatusCode != http.StatusOK {
				t.Fatalf("answered %d", resp.StatusCode)
			}
		}
	})
}

// 64 clients call guests of all kinds while the app is replaced and the engine
// closed.
func TestClosingDuringCallsEndsThem(t *testing.T) {
	loop := tools(t)
	loop.Timeout = time.Minute
	app := runtime.App{Name: "app", Functions: []runtime.FunctionConfig{
		{Name: "hello", Module: conformance.Hello()},
		{Name: "loop", Module: conformance.Loop(), Timeout: time.Minute},
		{Name: "fill", Module: conformance.MemoryFill(256), Timeout: time.Minute},
		{Name: "late", Module: conformance.CallTree(60), Timeout: 5 * time.Millisecond, MaxLateSettlement: time.Minute},
		{Name: "grow", Module: body(growing...), Timeout: 5 * time.Millisecond},
		{Name: "wait", Module: conformance.Wait(), Timeout: time.Minute},
		loop,
	}}
	for range 3 {
		h := open(t, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
		h.deploy(t, app)
		var answers atomic.Int64
		enough := make(chan struct{})
		var clients sync.WaitGroup
		for c := range 64 {
			paths := []string{"/hello", "/grow", "/hello", "/tools/random"}
			if c%2 == 0 { // these do not come back
				paths = []string{"/loop", "/fill", "/wait", "/tools/loop", "/tools/sleep", "/late"}
			}
			clients.Go(func() {
				for i := c / 2; h.status(t, paths[i%len(paths)]) != http.StatusServiceUnavailable; i++ {
					if answers.Add(1) == 150 {
						close(enough)
					}
				}
			})
		}
		<-enough
		h.deploy(t, app)
		closing, stop := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := h.Close(closing); err != nil {
			t.Error(err)
		}
		stop()
		clients.Wait()
	}
}

// status returns that of an answer: 503 once the engine is closed, and after an
// error.
func (h *host) status(t *testing.T, path string) int {
	t.Helper()
	resp, err := http.Get(h.url + path)
	if err != nil {
		t.Error(err)
		return http.StatusServiceUnavailable
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
