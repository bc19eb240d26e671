//go:build !wasip1

package edgetest

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest/internal/httptour"
	"github.com/edgehost/edgehost/guests/edge/edgetest/internal/tour"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// TestWasm serves the same requests to the tours as Go code and as Wasm guests, and
// wants the same host calls, logs and answers.
func TestWasm(t *testing.T) {
	t.Parallel()
	tours := []struct {
		guest   string
		stops   []string
		handler edge.Handler
	}{
		{"guest", tour.Stops(), tour.Handler},
		{"httpguest", httptour.Stops(), edgehttp.Handler(httptour.Handler())},
	}
	for _, tour := range tours {
		t.Run(tour.guest, func(t *testing.T) {
			t.Parallel()
			guest := compile(t, build(t, "./testdata/"+tour.guest))
			t.Run("imports and exports are those of the ABI", func(t *testing.T) {
				t.Parallel()
				checkModule(t, guest.module)
			})
			for _, stop := range tour.stops {
				t.Run(stop, func(t *testing.T) {
					t.Parallel()
					native := tourHost(t)
					native.Handle("/{stop}", tour.handler)
					inWasm := tourHost(t)
					inWasm.route("/{stop}", guest.instance(t))
					compare(t, native, inWasm, stop)
				})
			}
		})
	}
}

// compare takes both hosts to a stop.
func compare(t *testing.T, native, inWasm *Host, stop string) {
	t.Helper()
	want, got := native.Serve(tourRequest(stop)), inWasm.Serve(tourRequest(stop))
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("response (-native +wasm):\n%s", diff)
	}
	if diff := cmp.Diff(native.Calls(), inWasm.Calls()); diff != "" {
		t.Errorf("host calls (-native +wasm):\n%s", diff)
	}
	if diff := cmp.Diff(firstLines(native), firstLines(inWasm)); diff != "" {
		t.Errorf("logs (-native +wasm):\n%s", diff)
	}
	if failed := stop == "panic" || stop == "abort"; want.Failed != failed || want.Code == abi.Internal {
		t.Errorf("the tour went wrong: %+v", want)
	}
}

// checkModule looks at what a guest imports and exports.
func checkModule(t *testing.T, m wazero.CompiledModule) {
	t.Helper()
	known := map[string][]api.ValueType{}
	for _, f := range abi.Functions() {
		known[f.Name] = types(f.Params)
	}
	for _, f := range m.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == wasi_snapshot_preview1.ModuleName {
			continue
		}
		params, ok := known[name]
		if module != abi.Module || !ok || !slices.Equal(f.ParamTypes(), params) ||
			!slices.Equal(f.ResultTypes(), []api.ValueType{api.ValueTypeI32}) {
			t.Errorf("import %s.%s %v %v is not in the ABI", module, name, f.ParamTypes(), f.ResultTypes())
		}
	}
	exports := slices.Sorted(maps.Keys(m.ExportedFunctions()))
	if want := []string{abi.ExportInit, abi.ExportHandle}; !slices.Equal(exports, want) {
		t.Errorf("exports %v, want %v", exports, want)
	}
	if _, ok := m.ExportedMemories()[abi.ExportMemory]; !ok {
		t.Error("the memory is not exported")
	}
}

// TestWithoutHandler runs a guest that forgot to register one.
func TestWithoutHandler(t *testing.T) {
	t.Parallel()
	guest := compile(t, build(t, "./testdata/nohandler"))
	h := New(t)
	h.route("/", guest.instance(t))
	got := h.Serve(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if logs := h.Logs(); !got.Failed || len(logs) != 1 || !strings.Contains(logs[0].Line, "edge.Handle") {
		t.Errorf("got %+v, logs %v", got, logs)
	}
}

func tourHost(t *testing.T) *Host {
	t.Helper()
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		_, _ = io.WriteString(w, r.Method+r.RequestURI+r.Header.Get("X-Ask")+r.Header.Get("Edgehost-Fence")+string(content))
	})
	h := New(t)
	h.Dependency(string(tour.Dependency), echo)
	h.Refuse(string(tour.Refused), abi.Deferred, 1500*time.Millisecond)
	h.Allow("plain.example.com", echo)
	h.AllowObjects(string(tour.Object))
	h.SetEnv("LONG", strings.Repeat("long", 1000))
	h.SetSecret("KEY", "key")
	return h
}

func tourRequest(stop string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/"+stop+"?q=1", strings.NewReader(strings.Repeat("body", 10<<10)))
	r.Header["Multi"] = []string{"one", "two"}
	r.Trailer = http.Header{"Sum": {"9"}}
	return r
}

// firstLines returns the logs without the stacks of panics.
func firstLines(h *Host) (lines []string) {
	for _, l := range h.Logs() {
		first, _, _ := strings.Cut(l.Line, "\n")
		lines = append(lines, l.Level.String()+" "+first)
	}
	return lines
}

// build compiles a guest as its author would.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	for _, pattern := range []string{"../internal/host/*_wasip1.go", dir + "/*.go"} {
		sources, err := filepath.Glob(pattern)
		if err != nil || len(sources) == 0 {
			t.Fatalf("%s: no sources, %v", pattern, err)
		}
		for _, source := range sources { // so that the go command does not take a cached result
			if _, err := os.Stat(source); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, dir)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", dir, err, out)
	}
	wasm, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

type guest struct {
	runtime wazero.Runtime
	module  wazero.CompiledModule
}

// compile prepares a guest for the interpreter, which starts sooner than the
// compiler.
func compile(t *testing.T, wasm []byte) *guest {
	t.Helper()
	ctx := context.Background()
	g := &guest{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())}
	t.Cleanup(func() { _ = g.runtime.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, g.runtime)
	functions := g.runtime.NewHostModuleBuilder(abi.Module)
	for _, f := range abi.Functions() {
		functions.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, m api.Module, stack []uint64) {
			stack[0] = api.EncodeI32(arguments{m.Memory(), stack}.call(f.Name))
		}), types(f.Params), []api.ValueType{api.ValueTypeI32}).Export(f.Name)
	}
	_, err := functions.Instantiate(ctx)
	if err == nil {
		g.module, err = g.runtime.CompileModule(ctx, wasm)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// instance returns the export edgehost_handle of a new instance.
func (g *guest) instance(t *testing.T) func() int32 {
	t.Helper()
	ctx := context.Background()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions(abi.ExportInit).
		WithSysNanotime().WithSysWalltime().WithStderr(os.Stderr)
	instance, err := g.runtime.InstantiateModule(ctx, g.module, config)
	if err != nil {
		t.Fatal(err)
	}
	return func() int32 {
		result, err := instance.ExportedFunction(abi.ExportHandle).Call(ctx)
		if err != nil {
			t.Errorf("trap: %v", err)
			return int32(abi.Internal)
		}
		return api.DecodeI32(result[0])
	}
}

func types(params []abi.Type) []api.ValueType {
	converted := make([]api.ValueType, len(params))
	for i, p := range params {
		converted[i] = api.ValueType(p)
	}
	return converted
}

// arguments are those of one call of a host function.
type arguments struct {
	memory api.Memory
	stack  []uint64
}

func (a arguments) i(n int) int32  { return api.DecodeI32(a.stack[n]) }
func (a arguments) u(n int) uint32 { return api.DecodeU32(a.stack[n]) }

// b returns the memory that a pointer and a length name, for reading and
// writing.
func (a arguments) b(n int) []byte {
	view, ok := a.memory.Read(a.u(n), a.u(n+1))
	if !ok {
		panic("a pointer out of range")
	}
	return view
}

func (a arguments) s(n int) string { return string(a.b(n)) }

// out writes a record of 64-bit numbers.
func (a arguments) out(n int, result int32, numbers ...uint64) int32 {
	if a.u(n)%8 != 0 {
		panic("a misaligned pointer")
	}
	for i, number := range numbers {
		if !a.memory.Write(a.u(n)+uint32(8*i), binary.LittleEndian.AppendUint64(nil, number)) {
			panic("a pointer out of range")
		}
	}
	return result
}

func (a arguments) call(name string) int32 {
	h := host.Current()
	calls := map[string]func() int32{
		"error":         func() int32 { return h.Error(a.b(0)) },
		"status":        func() int32 { return a.status(h) },
		"log":           func() int32 { return h.Log(a.i(0), a.b(1)) },
		"config":        func() int32 { return h.Config(a.i(0), a.s(1), a.b(3)) },
		"request_head":  func() int32 { return h.RequestHead(a.b(0)) },
		"response_head": func() int32 { return h.ResponseHead(a.i(0), a.b(1), a.u(3)) },
		"response_fail": func() int32 { return h.ResponseFail(a.i(0), a.i(1), a.s(2)) },
		"read":          func() int32 { return h.Read(a.i(0), a.b(1), a.u(3)) },
		"write":         func() int32 { return h.Write(a.i(0), a.b(1), a.u(3)) },
		"flush":         func() int32 { return h.Flush(a.i(0)) },
		"finish":        func() int32 { return h.Finish(a.i(0), a.b(1)) },
		"trailers":      func() int32 { return h.Trailers(a.i(0), a.b(1)) },
		"close":         func() int32 { return h.Close(a.i(0)) },
		"fetch":         func() int32 { return h.Fetch(a.s(0), a.b(2), a.u(4), a.u(5)) },
		"fetch_head":    func() int32 { return h.FetchHead(a.i(0), a.b(1), a.u(3)) },
		"admit":         func() int32 { return h.Admit(a.s(0), a.u(2)) },
		"report":        func() int32 { return h.Report(a.i(0), a.i(1)) },
		"lease_acquire": func() int32 { return h.LeaseAcquire(a.s(0), a.s(2), a.b(4)) },
		"lease_result":  func() int32 { return a.leaseResult(h) },
		"lease_release": func() int32 { return h.LeaseRelease(a.i(0), a.u(1)) },
		"state_get":     func() int32 { return a.stateGet(h) },
		"state_put":     func() int32 { return a.statePut(h) },
	}
	call, ok := calls[name]
	if !ok {
		return int32(abi.Unsupported)
	}
	return call()
}

func (a arguments) status(h host.Functions) int32 {
	var s host.Status
	result := h.Status(&s)
	return a.out(0, result, uint64(s.RemainingNanos), uint64(s.LateNanos), uint64(s.Fuel), uint64(s.Flags))
}

func (a arguments) leaseResult(h host.Functions) int32 {
	var g host.Grant
	result := h.LeaseResult(a.i(0), &g, a.u(2))
	return a.out(1, result, g.Fence, uint64(g.RemainingNanos))
}

func (a arguments) stateGet(h host.Functions) int32 {
	var revision uint64
	result := h.StateGet(a.s(0), a.s(2), a.i(4), a.b(5), &revision)
	return a.out(7, result, revision)
}

func (a arguments) statePut(h host.Functions) int32 {
	var revision uint64
	result := h.StatePut(a.s(0), a.s(2), int64(a.stack[4]), a.i(5), a.b(6), &revision)
	return a.out(8, result, revision)
}
