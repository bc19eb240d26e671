package wasmbin_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// buildGuest compiles a Go guest of testdata.
func buildGuest(tb testing.TB, name string, flags ...string) []byte {
	tb.Helper()
	out := filepath.Join(tb.TempDir(), name+".wasm")
	args := append([]string{"build", "-o", out}, flags...)
	cmd := exec.CommandContext(tb.Context(), "go", append(args, "./testdata/"+name)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", name, err, text)
	}
	return read(tb, out)
}

// reactor instantiates testdata/reactor.
func (h *host) reactor(tb testing.TB, wasm []byte) api.Module {
	tb.Helper()
	if h.rt.Module(wasi_snapshot_preview1.ModuleName) == nil {
		wasi_snapshot_preview1.MustInstantiate(context.Background(), h.rt)
	}
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	m, err := h.rt.InstantiateWithConfig(context.Background(), wasm, config)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// reactorCalls are calls that take some milliseconds.
func reactorCalls() []wasmbin.Kernel {
	return []wasmbin.Kernel{
		{Name: "arithmetic", N: 2_000_000},
		{Name: "sieve", N: 500_000},
		{Name: "maps", N: 50_000},
		{Name: "handler", N: 60},
		{Name: "fib", N: 22},
	}
}

func TestGoExportsComputeTheSame(t *testing.T) {
	t.Parallel()
	wasm := buildGuest(t, "reactor", "-buildmode=c-shared")
	h := newHost(t, false)
	plain, meter := h.reactor(t, wasm), h.reactor(t, metered(t, wasm))
	for _, c := range reactorCalls() {
		want, err := plain.ExportedFunction(c.Name).Call(t.Context(), c.N)
		if err != nil {
			t.Fatal(err)
		}
		got, err := meter.ExportedFunction(c.Name).Call(t.Context(), c.N)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s(%d) (-plain +metered):\n%s", c.Name, c.N, diff)
		}
	}
}

func TestGoCommandsPrintTheSame(t *testing.T) {
	t.Parallel()
	wasm := buildGuest(t, "command")
	want, got := runCommand(t, wasm), runCommand(t, metered(t, wasm))
	if len(want) < 500 {
		t.Fatalf("printed only %q", want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-plain +metered):\n%s", diff)
	}
}

func runCommand(t *testing.T, wasm []byte) string {
	t.Helper()
	h := newHost(t, false)
	wasi_snapshot_preview1.MustInstantiate(t.Context(), h.rt)
	var out bytes.Buffer
	config := wazero.NewModuleConfig().WithName("").WithStdout(&out).WithStderr(&out)
	if _, err := h.rt.InstantiateWithConfig(t.Context(), wasm, config); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return out.String()
}

func TestKernelsComputeTheSame(t *testing.T) {
	t.Parallel()
	for _, k := range wasmbin.Kernels() {
		h := newHost(t, false)
		plain, meter := h.instantiate(t, k.Wasm), h.instantiate(t, metered(t, k.Wasm))
		for _, n := range []uint64{1, 2, 10, k.N / 10} {
			want, err := plain.ExportedFunction("run").Call(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			got, err := meter.ExportedFunction("run").Call(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s(%d) (-plain +metered):\n%s", k.Name, n, diff)
			}
		}
	}
}
