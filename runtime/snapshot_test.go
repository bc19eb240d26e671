package runtime_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// secrets is the function that hides and seeks, with one instance.
func secrets(tb testing.TB) runtime.FunctionConfig {
	tb.Helper()
	return runtime.FunctionConfig{
		Name:      "secrets",
		Module:    module(tb, guests.secrets),
		Routes:    []string{"/secrets/{what}"},
		Isolation: runtime.IsolationRequest,
		Instances: 1,
		Timeout:   10 * time.Second,
	}
}

func TestRestoredGuestAnswers(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{
		Name: "hello", Module: module(t, guests.hello), Isolation: runtime.IsolationRequest,
	})
	for range 30 {
		resp, body := h.get(t, "/hello")
		if resp.StatusCode != http.StatusOK || body != conformance.HelloBody {
			t.Fatalf("got %d %q, want 200 %q", resp.StatusCode, body, conformance.HelloBody)
		}
	}
}

// seek looks for traces of earlier requests, as a guest can and as a host can.
func (h *host) seek(t *testing.T) {
	t.Helper()
	resp, body := h.get(t, "/secrets/seek")
	if resp.StatusCode != http.StatusOK || body != "" {
		t.Errorf("got %d, and found: %s", resp.StatusCode, body)
	}
	for _, difference := range h.Traces() {
		t.Error(difference)
	}
}

func TestNothingOfARequestIsVisibleToTheNext(t *testing.T) {
	h := serve(t, secrets(t))
	for n := range 12 { // until it is known which pages are written
		resp, body := h.get(t, fmt.Sprintf("/secrets/hide?secret=hush-%d", n))
		if resp.StatusCode != http.StatusOK || body != "hidden" {
			t.Fatalf("got %d %q", resp.StatusCode, body)
		}
		h.seek(t)
	}
	if log := h.log.String(); !strings.Contains(log, "text=unfinished") || !strings.Contains(log, "text=whole") {
		t.Error("the lines that the guest printed are not whole")
	}
	if n := h.ColdStarts(); n != 1 {
		t.Errorf("%d instances were started for requests that can be undone", n)
	}
}

// A guest that failed serves again where its state is nothing but what is
// restored. Otherwise the next request has another instance.
func TestFailedGuestServesAgainOnlyIfItCanBeRestored(t *testing.T) {
	for _, c := range []struct {
		what    string
		status  int
		retired string // why, or nothing
		limit   func(*runtime.FunctionConfig)
	}{
		{what: "panic", status: http.StatusBadGateway},
		{what: "crash", status: http.StatusBadGateway},
		{what: "deadlock", status: http.StatusBadGateway},
		{what: "exit", status: http.StatusBadGateway, retired: "exit"},
		{what: "recurse", status: http.StatusBadGateway, retired: "depth"},
		{what: "eat", status: http.StatusBadGateway, retired: "memory"},
		{what: "loop", status: http.StatusBadGateway, limit: func(f *runtime.FunctionConfig) { f.Fuel = 100_000_000 }},
		{what: "loop", status: http.StatusGatewayTimeout, retired: "timeout", limit: func(f *runtime.FunctionConfig) { f.Timeout = 300 * time.Millisecond }},
	} {
		t.Run(c.what+" "+c.retired, func(t *testing.T) {
			f := secrets(t)
			if c.limit != nil {
				c.limit(&f)
			}
			h := serve(t, f)
			h.seek(t)
			for n := range 3 {
				resp, body := h.get(t, "/secrets/"+c.what+"?secret=hush")
				if resp.StatusCode != c.status {
					t.Fatalf("got %d %q, want %d", resp.StatusCode, body, c.status)
				}
				h.seek(t)
				starts := 1
				if c.retired != "" {
					starts = n + 2
				}
				if h.ColdStarts() != starts || c.retired != "" && h.Retired(c.retired) != n+1 {
					t.Errorf("%d instances were started, want %d; %d have gone for %q", h.ColdStarts(), starts, h.Retired(c.retired), c.retired)
				}
			}
		})
	}
}

// restless returns a guest that says hello, but only to a request that finds
// memory, its size and a variable as they were initialized: with them, code that
// is put in front of the handler traps if it finds anything else, and leaves
// something of its own.
func restless(tb testing.TB) *wasmbin.Module {
	tb.Helper()
	m := decode(tb, conformance.Hello())
	handler, _ := handlerOf(m)
	m.Globals = append(m.Globals, wasmbin.Global{Type: wasmbin.GlobalType{Type: wasmbin.I64, Mutable: true}, Init: []byte{0x42, 0x07, 0x0b}})
	variable := byte(len(m.Globals) - 1)
	handler.Body = slices.Concat([]byte{
		0x23, variable, 0x42, 0x07, 0x52, 0x04, 0x40, 0x00, 0x0b, // if variable != 7: unreachable
		0x42, 0x09, 0x24, variable, // variable = 9
		0x3f, 0x00, 0x41, byte(m.Memories[0].Min), 0x47, 0x04, 0x40, 0x00, 0x0b, // if memory.size != min: unreachable
		0x41, 0x01, 0x40, 0x00, 0x1a, // grow by a page
		0x41, 0x80, 0xf8, 0x03, 0x28, 0x02, 0x00, 0x04, 0x40, 0x00, 0x0b, // if memory[0xfc00] != 0: unreachable
		0x41, 0x80, 0xf8, 0x03, 0x41, 0x01, 0x36, 0x02, 0x00, // memory[0xfc00] = 1
		0x3f, 0x00, 0x41, 0x10, 0x74, 0x41, 0x04, 0x6b, 0x28, 0x02, 0x00, 0x04, 0x40, 0x00, 0x0b, // if the last word != 0: unreachable
		0x3f, 0x00, 0x41, 0x10, 0x74, 0x41, 0x04, 0x6b, 0x41, 0x01, 0x36, 0x02, 0x00, // the last word = 1
	}, handler.Body)
	return m
}

func (h *host) hello(t *testing.T, times int) {
	t.Helper()
	for range times {
		if resp, body := h.get(t, "/hello"); resp.StatusCode != http.StatusOK || body != conformance.HelloBody {
			t.Fatalf("got %d %q", resp.StatusCode, body)
		}
	}
}

func TestHandWrittenGuestFindsNothingOfEarlierRequests(t *testing.T) {
	f := runtime.FunctionConfig{Name: "hello", Module: restless(t).Encode(), Instances: 1}
	control := serve(t, f)
	control.hello(t, 1)
	if resp, _ := control.get(t, "/hello"); resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("got %d from an instance that is used again", resp.StatusCode)
	}
	f.Isolation = runtime.IsolationRequest
	h := serve(t, f)
	h.hello(t, 30)
	if n := h.ColdStarts(); n != 1 {
		t.Errorf("%d instances were started", n)
	}
}

// handlerOf returns the handler of a guest, and its number.
func handlerOf(m *wasmbin.Module) (*wasmbin.Func, uint32) {
	export := slices.IndexFunc(m.Exports, func(e wasmbin.Export) bool { return e.Name == abi.ExportHandle })
	index := m.Exports[export].Index
	return &m.Funcs[index-uint32(len(m.Imports))], index
}

// What cannot be restored is started anew, so that it leaves nothing either.
func TestGuestWhoseStateIsOutOfReachIsStartedForEveryRequest(t *testing.T) {
	for name, change := range map[string]func(m *wasmbin.Module) []byte{
		"a table": func(m *wasmbin.Module) []byte {
			m.Tables = append(m.Tables, wasmbin.TableType{Element: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: 1}})
			_, handler := handlerOf(m)
			return []byte{
				0x41, 0x00, 0x25, 0x00, 0xd1, 0x45, 0x04, 0x40, 0x00, 0x0b, // if table[0] != null: unreachable
				0x41, 0x00, 0xd2, byte(handler), 0x26, 0x00, // table[0] = the handler
			}
		},
		"a passive segment": func(m *wasmbin.Module) []byte {
			m.Datas, m.DataCount = append(m.Datas, wasmbin.Data{Form: wasmbin.DataPassive, Init: []byte("data")}), true
			segment := byte(len(m.Datas) - 1)
			return []byte{
				0x41, 0x80, 0xf0, 0x03, 0x41, 0x00, 0x41, 0x04, 0xfc, 0x08, segment, 0x00, // memory.init, which traps if it was dropped
				0xfc, 0x09, segment, // data.drop
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := restless(t)
			code := change(m)
			handler, _ := handlerOf(m)
			handler.Body = slices.Concat(code, handler.Body)
			h := serve(t, runtime.FunctionConfig{Name: "hello", Module: m.Encode(), Isolation: runtime.IsolationRequest})
			h.hello(t, 5)
			if n := h.ColdStarts(); n != 5 || h.Retired("isolation") != 5 {
				t.Errorf("%d instances were started and %d have gone, want 5", n, h.Retired("isolation"))
			}
			if !strings.Contains(h.log.String(), "its state cannot be restored") {
				t.Error("the log does not say so")
			}
		})
	}
}

// resuming adds an edgehost_resume with some code to a guest, and to the handler
// that it traps unless a variable is 8, which began as 7.
func resuming(tb testing.TB, code ...byte) []byte {
	tb.Helper()
	m := restless(tb)
	variable := byte(len(m.Globals) - 1)
	handler, _ := handlerOf(m)
	handler.Body = slices.Concat([]byte{0x23, variable, 0x42, 0x08, 0x52, 0x04, 0x40, 0x00, 0x0b, 0x42, 0x07, 0x24, variable}, handler.Body)
	m.Types = append(m.Types, wasmbin.FuncType{})
	m.Exports = append(m.Exports, wasmbin.Export{Name: abi.ExportResume, Index: uint32(len(m.Imports) + len(m.Funcs))})
	m.Funcs = append(m.Funcs, wasmbin.Func{
		Type: uint32(len(m.Types) - 1),
		Body: slices.Concat(code, []byte{0x23, variable, 0x42, 0x01, 0x7c, 0x24, variable, 0x0b}), // variable += 1
	})
	return m.Encode()
}

func TestRestoredGuestIsResumed(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "hello", Module: resuming(t), Isolation: runtime.IsolationRequest})
	h.hello(t, 12)
}

func TestGuestThatCannotResumeFailsItsRequest(t *testing.T) {
	for name, c := range map[string]struct {
		code   []byte
		status int
	}{
		"trap": {[]byte{0x00}, http.StatusBadGateway},
		"loop": {[]byte{0x03, 0x40, 0x0c, 0x00, 0x0b}, http.StatusGatewayTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, runtime.FunctionConfig{
				Name: "hello", Module: resuming(t, c.code...), Isolation: runtime.IsolationRequest, Timeout: 300 * time.Millisecond,
			})
			for range 2 {
				if resp, body := h.get(t, "/hello"); resp.StatusCode != c.status {
					t.Errorf("got %d %q, want %d", resp.StatusCode, body, c.status)
				}
				h.gone()
			}
			if name == "trap" && !strings.Contains(h.log.String(), "edgehost_resume") {
				t.Error("the log does not say where")
			}
		})
	}
}

func TestInitializationIsTheSameForAllAndCryptographicRandomnessIsNot(t *testing.T) {
	f := secrets(t)
	f.Instances = 4
	h := serve(t, f)
	seen := make(map[string]int)
	var last int64
	for range 8 {
		_, body := h.get(t, "/secrets/random")
		var number, hash, secret string
		var since int64
		if _, err := fmt.Sscan(body, &number, &hash, &secret, &since); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		seen[number+" "+hash]++
		seen[secret]++
		if since <= last {
			t.Errorf("%d ns have passed since initialization, after %d", since, last)
		}
		last = since
	}
	if len(seen) != 9 {
		t.Errorf("got %v, want one pair for all, and 8 secrets", seen)
	}
	if n := strings.Count(h.log.String(), "has drawn random numbers in its initialization"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}

// Requests that come at the same time share the snapshot and nothing else.
func TestInstancesAtTheSameTimeDoNotSeeEachOther(t *testing.T) {
	f := secrets(t)
	f.Instances = 8
	h := serve(t, f)
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for n := range 6 {
				if resp, body := h.get(t, fmt.Sprintf("/secrets/hide?secret=hush-%d-%d", c, n)); body != "hidden" {
					t.Errorf("got %d %q", resp.StatusCode, body)
				}
				if resp, body := h.get(t, "/secrets/seek"); resp.StatusCode != http.StatusOK || body != "" {
					t.Errorf("got %d, and found: %s", resp.StatusCode, body)
				}
			}
		})
	}
	clients.Wait()
	for _, difference := range h.Traces() {
		t.Error(difference)
	}
}

func TestAdviceSaysWhatIsolationCosts(t *testing.T) {
	drawing := restless(t)
	drawing.Imports = append(drawing.Imports, wasmbin.Import{Module: "wasi_snapshot_preview1", Name: "random_get"})
	resumed := restless(t)
	resumed.Imports = drawing.Imports
	resumed.Exports = append(resumed.Exports, wasmbin.Export{Name: abi.ExportResume})
	hidden := restless(t)
	hidden.Funcs[0].Body = slices.Concat([]byte{0xfc, 13, 0}, hidden.Funcs[0].Body)
	for _, c := range []struct {
		name, want string
		module     *wasmbin.Module
	}{
		{"a guest with nothing special", "", restless(t)},
		{"a guest that draws random numbers", "random numbers", drawing},
		{"one that draws them again", "", resumed},
		{"a guest whose state is out of reach", "drops a segment", hidden},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := runtime.FunctionConfig{Module: c.module.Encode(), Isolation: runtime.IsolationRequest}
			if got := strings.Join(runtime.Advise(f), "\n"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("got %q, want %q", got, c.want)
			}
			f.Isolation = runtime.IsolationInstance
			if got := runtime.Advise(f); got != nil {
				t.Errorf("got %q without isolation", got)
			}
		})
	}
}

// Not parallel: it measures time. The target is 20; in memory, without the cost
// of HTTP, it is some 200.
func TestRestoringIsFasterThanStarting(t *testing.T) {
	f := runtime.FunctionConfig{Name: "hello", Module: module(t, guests.hello), MaxRequests: 1}
	fresh := serve(t, f)
	f.Isolation, f.MaxRequests = runtime.IsolationRequest, 0
	restored := serve(t, f)
	cost := func(h *host, n int) time.Duration {
		fastest := time.Hour
		for range n {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/hello", nil)
			begun := time.Now()
			h.ServeHTTP(w, r)
			fastest = min(fastest, time.Since(begun))
		}
		return fastest
	}
	starting, restoring := cost(fresh, 20), cost(restored, 200)
	t.Logf("%v by starting an instance, %v by restoring one: %d ×", starting, restoring, starting/restoring)
	if starting < 20*restoring {
		t.Errorf("%v by starting an instance, %v by restoring one", starting, restoring)
	}
}

func TestStartFunctionAndDataAreThereForEveryInstance(t *testing.T) {
	m := restless(t)
	start := uint32(len(m.Imports) + len(m.Funcs))
	m.Start, m.Types = &start, append(m.Types, wasmbin.FuncType{})
	variable := byte(len(m.Globals) - 1)
	m.Globals[variable].Init = []byte{0x42, 0x06, 0x0b}
	m.Funcs = append(m.Funcs, wasmbin.Func{
		Type: uint32(len(m.Types) - 1),
		Body: []byte{0x23, variable, 0x42, 0x01, 0x7c, 0x24, variable, 0x0b}, // variable += 1
	})
	for name, f := range map[string]runtime.FunctionConfig{
		"restored": {Isolation: runtime.IsolationRequest},
		"fresh":    {MaxRequests: 1},
	} {
		t.Run(name, func(t *testing.T) {
			f.Name, f.Module = "hello", m.Encode()
			serve(t, f).hello(t, 5)
		})
	}
}
