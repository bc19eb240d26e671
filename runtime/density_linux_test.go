package runtime_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

// An idle instance takes what it has to itself of the snapshot, and what the
// engine keeps for it.
func TestIdleRestorableInstancesAreSmall(t *testing.T) {
	const n, bound = 200, 200 << 10
	h := open(t, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
	h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{
		Name: "hello", Module: module(t, guests.hello), Isolation: runtime.IsolationRequest, Instances: n,
	}}})
	request := func() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/hello", nil))
		if w.Code != http.StatusOK {
			t.Errorf("got %d", w.Code)
		}
	}
	for range 10 {
		request()
	}
	before := resident(t)
	if err := h.ServeByAll(n, request); err != nil {
		t.Fatal(err)
	}
	used := (resident(t) - before) / n
	h.Sweep()
	each := (resident(t) - before) / n
	t.Logf("%d KiB for each of %d instances, and before they were trimmed %d KiB", each>>10, n, used>>10)
	if each > bound*raceFactor {
		t.Errorf("%d bytes for each instance, the bound is %d", each, bound)
	}
}

func TestSnapshotsGoWithTheirFunctions(t *testing.T) {
	h := open(t, runtime.Config{})
	for range 10 {
		h.deploy(t, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{
			Name: "hello", Module: conformance.Hello(), Isolation: runtime.IsolationRequest,
		}}})
		h.hello(t, 10)
	}
	if n := mappings(t); n == 0 {
		t.Error("nothing is mapped while functions are served")
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := mappings(t); n != 0 {
		t.Errorf("%d mappings are left", n)
	}
}

// mappings counts those of snapshots, and the files behind them that are open.
func mappings(t *testing.T) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	n = bytes.Count(maps, []byte("edgehost-snapshot"))
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && strings.Contains(to, "edgehost-snapshot") {
			n++
		}
	}
	return n
}

// resident returns what the process takes, with its share of pages that it maps
// more than once, after everything that can be given back was.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	rollup, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(rollup, []byte("\nPss:"))
	var kib int64
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
