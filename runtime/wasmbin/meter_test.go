package wasmbin_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

func TestACounterKeepsWhatItIsMadeOf(t *testing.T) {
	t.Parallel()
	for _, fuel := range []int64{0, 1, -1, 250_000, -1 << 41, 1<<42 - 1} {
		for _, depth := range []int32{0, 1, wasmbin.DefaultDepth, wasmbin.MaxDepth} {
			c := wasmbin.NewCounter(fuel, depth)
			if c.Fuel() != fuel || c.Depth() != depth {
				t.Errorf("NewCounter(%d, %d): fuel %d, depth %d", fuel, depth, c.Fuel(), c.Depth())
			}
		}
	}
}

func TestReservedNamesAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*wasmbin.Module){
		"an import": func(m *wasmbin.Module) {
			m.Imports = append(m.Imports, wasmbin.Import{Module: wasmbin.MeterModule, Name: "x", Kind: wasmbin.ExternFunc})
		},
		"an export": func(m *wasmbin.Module) {
			m.Exports = append(m.Exports, wasmbin.Export{Name: "edgehost:anything", Kind: wasmbin.ExternFunc})
		},
		"metered already": func(m *wasmbin.Module) {
			if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		m := kernel(t, "fib")
		change(m)
		if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); !errors.Is(err, wasmbin.ErrReserved) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func kernel(tb testing.TB, name string) *wasmbin.Module {
	tb.Helper()
	for _, k := range wasmbin.Kernels() {
		if k.Name == name {
			m, err := wasmbin.Decode(k.Wasm)
			if err != nil {
				tb.Fatal(err)
			}
			return m
		}
	}
	tb.Fatalf("no kernel %s", name)
	return nil
}

// Each index would name something that metering adds.
func TestIndicesThatNameNothingAreRefused(t *testing.T) {
	t.Parallel()
	body := func(instructions ...byte) func(*wasmbin.Module) {
		return func(m *wasmbin.Module) { m.Funcs[0].Body = append(instructions, 0x0b) }
	}
	for name, change := range map[string]func(*wasmbin.Module){
		"a call of a helper":      body(0x41, 0, 0x10, 1),
		"the counter, read":       body(0x23, 0, 0xa7),
		"the counter, written":    body(0x42, 0, 0x24, 0, 0x41, 0),
		"the local counter":       body(0x20, 1, 0xa7),
		"a reference to a helper": body(0xd2, 1, 0xd1),
		"an added type":           body(0x02, 2, 0x0b),
		"an added type, called":   body(0x41, 0, 0x11, 2, 0),
		"an added label":          body(0x0c, 1),
		"a label in a table":      body(0x41, 0, 0x0e, 1, 1, 0),
		"a table":                 body(0x41, 0, 0xd0, 0x70, 0x41, 0, 0xfc, 17, 0),
		"an exported function": func(m *wasmbin.Module) {
			m.Exports = append(m.Exports, wasmbin.Export{Name: "x", Kind: wasmbin.ExternFunc, Index: 1})
		},
		"an exported global": func(m *wasmbin.Module) {
			m.Exports = append(m.Exports, wasmbin.Export{Name: "x", Kind: wasmbin.ExternGlobal})
		},
		"a start function": func(m *wasmbin.Module) { start := uint32(1); m.Start = &start },
		"an element": func(m *wasmbin.Module) {
			m.Elements = []wasmbin.Element{{Form: wasmbin.ElementNotActive, Funcs: []uint32{1}}}
		},
		"an element expression": func(m *wasmbin.Module) {
			m.Elements = []wasmbin.Element{{
				Form: wasmbin.ElementNotActive | wasmbin.ElementHasExprs, Type: wasmbin.FuncRef, Exprs: []wasmbin.Expr{{0xd2, 1, 0x0b}},
			}}
		},
		"an offset": func(m *wasmbin.Module) {
			m.Datas = []wasmbin.Data{{Offset: wasmbin.Expr{0x23, 0, 0x0b}}}
		},
		"the type of a function": func(m *wasmbin.Module) { m.Funcs[0].Type = 2 },
	} {
		m := kernel(t, "fib")
		change(m)
		if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); !errors.Is(err, wasmbin.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 1000
	for _, c := range []struct {
		name   string
		limits wasmbin.Limits
		want   wasmbin.Limits
	}{
		{"without a maximum", wasmbin.Limits{Min: 1}, wasmbin.Limits{Min: 1, Max: limit, HasMax: true}},
		{"with a larger maximum", wasmbin.Limits{Min: 1, Max: math.MaxUint32, HasMax: true}, wasmbin.Limits{Min: 1, Max: limit, HasMax: true}},
		{"with a smaller maximum", wasmbin.Limits{Min: 1, Max: 7, HasMax: true}, wasmbin.Limits{Min: 1, Max: 7, HasMax: true}},
	} {
		m := kernel(t, "fib")
		m.Tables = []wasmbin.TableType{{Element: wasmbin.FuncRef, Limits: c.limits}}
		if err := wasmbin.Meter(m, wasmbin.MeterOptions{TableLimit: limit}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, m.Tables[0].Limits); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	m := kernel(t, "fib")
	m.Tables = []wasmbin.TableType{{Element: wasmbin.FuncRef, Limits: wasmbin.Limits{Min: limit + 1}}}
	if err := wasmbin.Meter(m, wasmbin.MeterOptions{TableLimit: limit}); !errors.Is(err, wasmbin.ErrTooLarge) {
		t.Errorf("a minimum above the limit: %v", err)
	}
}

func TestTooManyLocalsAreRefused(t *testing.T) {
	t.Parallel()
	m := kernel(t, "fib")
	m.Funcs[0].Locals = []wasmbin.Locals{{Count: math.MaxUint32, Type: wasmbin.I64}}
	if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); !errors.Is(err, wasmbin.ErrTooLarge) {
		t.Error(err)
	}
}

func TestFuelIsProportionalToWorkAndTheSameEveryTime(t *testing.T) {
	t.Parallel()
	for _, k := range wasmbin.Kernels() {
		h := newHost(t, false)
		m := h.instantiate(t, metered(t, k.Wasm))
		first := h.fuelOf(t, m, "run", 20)
		if again := h.fuelOf(t, m, "run", 20); again != first {
			t.Errorf("%s: %d units, then %d", k.Name, first, again)
		}
		h.slice = 100 // other slices, same sum
		if again := h.fuelOf(t, m, "run", 20); again != first {
			t.Errorf("%s: %d units, then %d with slices of 100", k.Name, first, again)
		}
	}
	h := newHost(t, false)
	m := h.instantiate(t, kernelMetered(t, "loop"))
	ten, thousand := h.fuelOf(t, m, "run", 10), h.fuelOf(t, m, "run", 1000)
	if perIteration := (thousand - ten) / 990; perIteration < 5 || perIteration > 15 {
		t.Errorf("an iteration of 9 instructions that work costs %d units", perIteration)
	}
}

func kernelMetered(tb testing.TB, name string) []byte {
	tb.Helper()
	return metered(tb, kernel(tb, name).Encode())
}

func TestGrowingCostsWhatWasAdded(t *testing.T) {
	t.Parallel()
	m := kernel(t, "fib")
	m.Memories[0] = wasmbin.Limits{Min: 1, Max: 10, HasMax: true}
	m.Funcs[0].Body = wasmbin.Expr{0x20, 0, 0x40, 0, 0x0b} // memory.grow
	h := newHost(t, false)
	guest := h.instantiate(t, metered(t, m.Encode()))
	if got := h.fuelOf(t, guest, "run", 100); got != 0 {
		t.Errorf("growing beyond the maximum cost %d units", got)
	}
	if got := h.fuelOf(t, guest, "run", 9); got != 9*65536/8 {
		t.Errorf("growing by 9 pages cost %d units", got)
	}
	if pages := guest.Memory().Size() >> 16; pages != 10 {
		t.Errorf("the memory has %d pages", pages)
	}
}

func TestTheStartFunctionIsMetered(t *testing.T) {
	t.Parallel()
	m := kernel(t, "fib")
	m.Types = append(m.Types, wasmbin.FuncType{})
	// Start calls run(20) and drops the result.
	m.Funcs = append(m.Funcs, wasmbin.Func{Type: uint32(len(m.Types) - 1), Body: wasmbin.Expr{0x41, 20, 0x10, 0, 0x1a, 0x0b}})
	start := uint32(1)
	m.Start = &start
	h := newHost(t, false)
	h.instantiate(t, metered(t, m.Encode()))
	if h.slices.Load() == 0 {
		t.Error("the start function ran without fuel")
	}
}

func TestNamesFollowTheFunctions(t *testing.T) {
	t.Parallel()
	m := kernel(t, "fib")
	m.Funcs[0].Body = wasmbin.Expr{0x00, 0x0b} // unreachable
	names := []byte{1, 7, 1, 0, 4, 'b', 'a', 'n', 'g', 3, 3, 1, 0, 0}
	m.Customs = []wasmbin.Custom{{Name: "name", Data: names}, {Name: ".debug_info", Data: []byte{1}}, {Name: "kept", Data: []byte{2}}}
	h := newHost(t, false)
	wasm := metered(t, m.Encode())
	_, err := h.instantiate(t, wasm).ExportedFunction("run").Call(t.Context(), 0)
	if err == nil || !strings.Contains(err.Error(), ".bang(i32) i32") {
		t.Errorf("the trap does not name the function: %v", err)
	}
	again, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, c := range again.Customs {
		kept = append(kept, c.Name)
	}
	if diff := cmp.Diff([]string{"name", "kept"}, kept); diff != "" {
		t.Errorf("custom sections (-want +got):\n%s", diff)
	}
}

func TestLoopsKeepWhatTheyCarryWhenTheyRefuel(t *testing.T) {
	t.Parallel()
	// One local of every type that a loop carries, each mixed in every iteration;
	// a slice of one unit refuels in each.
	h := newHost(t, false)
	h.slice = 1
	plain, meter := h.instantiate(t, wasmbin.Carry()), h.instantiate(t, metered(t, wasmbin.Carry()))
	for n := range uint64(20) {
		want, err := plain.ExportedFunction("run").Call(t.Context(), n+1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := meter.ExportedFunction("run").Call(t.Context(), n+1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("run(%d) (-plain +metered):\n%s", n+1, diff)
		}
	}
	if h.slices.Load() < 100 {
		t.Errorf("only %d slices", h.slices.Load())
	}
}

func TestInterfacesSayWhatAHostAsks(t *testing.T) {
	t.Parallel()
	m := kernel(t, "fib")
	m.Imports = []wasmbin.Import{{Module: "env", Name: "log", Kind: wasmbin.ExternFunc, Type: 1}}
	m.Exports[0].Index = 1
	m.Tables = []wasmbin.TableType{{Element: wasmbin.ExternRef, Limits: wasmbin.Limits{Min: 3}}}
	got, err := m.Interface()
	if err != nil {
		t.Fatal(err)
	}
	i32 := wasmbin.I32
	memory := wasmbin.Limits{Min: 64}
	want := &wasmbin.Interface{
		Imports: []wasmbin.Extern{{
			Module: "env", Name: "log", Kind: wasmbin.ExternFunc,
			Func: wasmbin.FuncType{Params: []wasmbin.ValueType{i32, i32, i32}},
		}},
		Exports: []wasmbin.Extern{
			{Name: "run", Kind: wasmbin.ExternFunc, Func: wasmbin.FuncType{Params: []wasmbin.ValueType{i32}, Results: []wasmbin.ValueType{i32}}},
			{Name: "memory", Kind: wasmbin.ExternMemory, Memory: memory},
		},
		Memories: []wasmbin.Limits{memory},
		Tables:   m.Tables,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e, ok := got.Find("memory"); !ok || e.String() != "memory memory" {
		t.Errorf("found %v", e)
	}
	m.Exports[0].Index = 7
	if _, err := m.Interface(); !errors.Is(err, wasmbin.ErrInvalid) {
		t.Errorf("an export of nothing: %v", err)
	}
}

func TestCallsOfTheHostSeeTheCounter(t *testing.T) {
	t.Parallel()
	// run calls the host from within a loop, where the counter is in a local.
	m := kernel(t, "fib")
	m.Imports = []wasmbin.Import{{Module: "env", Name: "look", Kind: wasmbin.ExternFunc, Type: 0}}
	m.Exports[0].Index = 1
	m.Funcs[0].Body = wasmbin.Expr{0x03, 0x40, 0x20, 0, 0x10, 0, 0x22, 0, 0x0d, 0, 0x0b, 0x20, 0, 0x0b}
	h := newHost(t, false)
	var seen []int64
	look := func(_ context.Context, guest api.Module, stack []uint64) {
		seen = append(seen, wasmbin.Counter(guest.ExportedGlobal(wasmbin.CounterExport).Get()).Fuel())
		stack[0]--
	}
	i32 := []api.ValueType{api.ValueTypeI32}
	if _, err := h.rt.NewHostModuleBuilder("env").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(look), i32, i32).Export("look").Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.fuelOf(t, h.instantiate(t, metered(t, m.Encode())), "run", 3)
	if len(seen) != 3 || seen[0] >= slice || seen[1] >= seen[0] || seen[1]-seen[2] != seen[0]-seen[1] {
		t.Errorf("the host saw %v", seen)
	}
}
