package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	wasm "github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/conformance"
)

// A stub answers host calls of a guest: write keeps its bytes, everything else
// answers zero.
type stub struct {
	calls   []string
	written []byte
}

func (s *stub) call(name string, memory wasm.Memory, args []uint64) uint64 {
	s.calls = append(s.calls, name)
	if name != "write" {
		return 0
	}
	b, _ := memory.Read(uint32(args[1]), uint32(args[2]))
	s.written = append(s.written, b...)
	return args[2]
}

// start instantiates a guest whose host functions are answered by call.
func start(t *testing.T, ctx context.Context, guest []byte, call func(string, wasm.Memory, []uint64) uint64) wasm.Module { //nolint:revive // the test comes first in helpers
	t.Helper()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithCloseOnContextDone(true).WithMemoryLimitPages(256))
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(ctx)) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	host := r.NewHostModuleBuilder(abi.Module)
	for _, f := range abi.Functions() {
		params := make([]wasm.ValueType, len(f.Params))
		for i, p := range f.Params {
			params[i] = wasm.ValueType(p)
		}
		host.NewFunctionBuilder().WithGoModuleFunction(wasm.GoModuleFunc(func(_ context.Context, m wasm.Module, stack []uint64) {
			result := call(f.Name, m.Memory(), slices.Clone(stack[:len(f.Params)]))
			stack[0] = result
		}), params, []wasm.ValueType{wasm.ValueTypeI32}).Export(f.Name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	config := wazero.NewModuleConfig().WithStartFunctions(abi.ExportInit)
	instance, err := r.InstantiateWithConfig(ctx, guest, config)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

// handle calls edgehost_handle.
func handle(t *testing.T, ctx context.Context, guest []byte) (*stub, int32, error) { //nolint:revive // the test comes first in helpers
	t.Helper()
	s := &stub{}
	instance := start(t, ctx, guest, s.call)
	results, err := instance.ExportedFunction(abi.ExportHandle).Call(ctx)
	if err != nil {
		return s, 0, err
	}
	return s, int32(uint32(results[0])), nil
}

func TestGuestsThatReturn(t *testing.T) {
	cases := []struct {
		name    string
		guest   []byte
		result  int32
		calls   string
		written string
	}{
		{"hello answers in two calls", conformance.Hello(), 0, "response_head write", conformance.HelloBody},
		{"silent calls nothing", conformance.Silent(), 0, "", ""},
		{"negative returns a failure", conformance.Negative(), -5, "", ""},
		{"nonsense returns an unknown result", conformance.Returns(7), 7, "", ""},
		{"bad header writes all the same", conformance.BadHeader("a b", "c"), 0, "response_head write", "sent with a bad header"},
		{"double answer gives two heads", conformance.DoubleAnswer(), 0, "response_head write finish response_head write finish", "an answeran answer"},
		{"retire asks to be discarded", conformance.Retire(), 1, "response_head write", conformance.HelloBody},
		{"counter counts", conformance.Counter(), 0, "response_head write", "1"},
		{"grow to limit tells its pages", conformance.GrowToLimit(), 0, "response_head write", "\x00\x01\x00\x00"},
		{"wait sleeps through the ABI", conformance.Wait(), 0, "wait", ""},
		{"a small call tree ends", conformance.CallTree(3), 0, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, result, err := handle(t, t.Context(), c.guest)
			if err != nil {
				t.Fatal(err)
			}
			if result != c.result {
				t.Errorf("result %d, want %d", result, c.result)
			}
			if calls := strings.Join(s.calls, " "); calls != c.calls {
				t.Errorf("called %q, want %q", calls, c.calls)
			}
			if string(s.written) != c.written {
				t.Errorf("wrote %q, want %q", s.written, c.written)
			}
		})
	}
}

func TestGuestsThatDoNotReturn(t *testing.T) {
	exit := func(code uint32) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*sys.ExitError](err)
			return ok && e.ExitCode() == code
		}
	}
	message := func(part string) func(error) bool {
		return func(err error) bool { return strings.Contains(err.Error(), part) }
	}
	stopped := exit(sys.ExitCodeDeadlineExceeded)
	cases := []struct {
		name  string
		guest []byte
		fails func(error) bool
	}{
		{"trap", conformance.Trap(), message("unreachable")},
		{"trap after a held head", conformance.TrapAfterHead(false), message("unreachable")},
		{"trap after a flushed head", conformance.TrapAfterHead(true), message("unreachable")},
		{"exit with a status", conformance.Exit(3), exit(3)},
		{"exit with success", conformance.Exit(0), exit(0)},
		{"loop", conformance.Loop(), stopped},
		{"recursion", conformance.Recursion(), message("stack overflow")},
		{"memory fill", conformance.MemoryFill(16), stopped},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, _, err := handle(t, ctx, c.guest); err == nil || !c.fails(err) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

func TestSleepPollSleepsForAnHour(t *testing.T) {
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	var slept time.Duration
	config := wazero.NewModuleConfig().WithNanosleep(func(ns int64) { slept += time.Duration(ns) })
	instance, err := r.InstantiateWithConfig(ctx, conformance.SleepPoll(), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := instance.ExportedFunction(abi.ExportHandle).Call(ctx); err != nil {
		t.Fatal(err)
	}
	if slept != time.Hour {
		t.Errorf("slept %v, want an hour", slept)
	}
}

func TestCounterCountsPerInstance(t *testing.T) {
	s := &stub{}
	instance := start(t, t.Context(), conformance.Counter(), s.call)
	for range 3 {
		if _, err := instance.ExportedFunction(abi.ExportHandle).Call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if string(s.written) != "123" {
		t.Errorf("wrote %q, want 123", s.written)
	}
}

// Modules to refuse are refused for what they are meant to show, so everything
// else about them must be in order.
func TestRefusedModulesAreValidOtherwise(t *testing.T) {
	cases := []struct {
		name   string
		module []byte
		fails  string
	}{
		{"unknown import", conformance.UnknownImport("edgehost_v9", "teleport"), ""},
		{"wrong import", conformance.WrongImport(), ""},
		{"huge memory", conformance.HugeMemory(2048), "memory"},
		{"no handle", conformance.NoHandle(), ""},
		{"no memory", conformance.NoMemory(), ""},
		{"wrong handle", conformance.WrongHandle(), ""},
		{"reserved export", conformance.ReservedExport(), ""},
		{"init trap", conformance.InitTrap(), ""},
		{"endless call tree", conformance.CallTree(60), ""},
		{"component", conformance.ComponentHeader(), "version"},
	}
	r := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(1024))
	t.Cleanup(func() { _ = r.Close(context.Background()) })
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.CompileModule(t.Context(), c.module)
			switch {
			case c.fails == "" && err != nil:
				t.Error(err)
			case c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("compiled with %v, want an error about %q", err, c.fails)
			}
		})
	}
}
