package wasmbin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// expose is what is done to a module that a host is to stop and to restore. One
// that cannot be restored is metered only.
func expose(b []byte) ([]byte, error) {
	m, err := wasmbin.Decode(b)
	if err != nil {
		return nil, err
	}
	if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); err != nil {
		return nil, err
	}
	if err := wasmbin.Expose(m); err != nil && !errors.Is(err, wasmbin.ErrHidden) {
		return nil, err
	}
	return m.Encode(), nil
}

var errOutside = errors.New("data segment out of bounds")

// begin does what instantiating an exposed module leaves to the host.
func begin(ctx context.Context, m api.Module, wasm []byte) error {
	image, ok := wasmbin.ImageOf(wasm)
	if !ok {
		return nil
	}
	for at, b := range image.Segments() {
		if !m.Memory().Write(at, b) {
			return errors.Join(errOutside, m.Close(ctx))
		}
	}
	if start := m.ExportedFunction(wasmbin.StartExport); start != nil {
		if _, err := start.Call(ctx); err != nil {
			return errors.Join(err, m.Close(ctx))
		}
	}
	return nil
}

// origin is the state that an instance began with, and what was done with it.
type origin struct {
	memory  []byte
	globals []uint64
	calls   []call
}

type call struct {
	command
	outcome
}

func globals(m api.Module) (list []api.MutableGlobal) {
	for {
		g, ok := m.ExportedGlobal(wasmbin.GlobalExport + strconv.Itoa(len(list))).(api.MutableGlobal)
		if !ok {
			return list
		}
		list = append(list, g)
	}
}

// originOf returns nil for a module that cannot be restored, or whose state is
// also that of others.
func (w *world) originOf(t *testing.T, m api.Module, wasm []byte) *origin {
	t.Helper()
	if m.Name() != "" {
		return nil
	}
	rewritten, err := w.rewrite(wasm)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := wasmbin.ImageOf(rewritten); !ok {
		return nil
	}
	d, err := wasmbin.Decode(wasm)
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(d.Imports, func(i wasmbin.Import) bool { return i.Kind != wasmbin.ExternFunc }) {
		return nil
	}
	o := new(origin)
	if len(d.Memories) > 0 {
		memory, _ := m.Memory().Read(0, m.Memory().Size())
		o.memory = bytes.Clone(memory)
	}
	for _, g := range globals(m) {
		o.globals = append(o.globals, g.Get())
	}
	return o
}

// replay restores the last module and repeats what was done with it: everything
// must come out as it did.
func (w *world) replay(t *testing.T) {
	t.Helper()
	o := w.origin
	if w.origin = nil; o == nil {
		return
	}
	if o.memory != nil {
		if int(w.last.Memory().Size()) != len(o.memory) {
			return // it cannot be made smaller here
		}
		w.last.Memory().Write(0, o.memory)
	}
	for i, g := range globals(w.last) {
		g.Set(o.globals[i])
	}
	for _, c := range o.calls {
		if diff := cmp.Diff(c.outcome, w.run(t, c.command, nil, "")); diff != "" {
			t.Errorf("line %d, %s: another outcome after restoring (-first +second):\n%s", c.Line, c.Action.Field, diff)
		}
	}
}

func TestSpecScriptsRunTheSameWhenExposedAndAgainWhenRestored(t *testing.T) {
	t.Parallel()
	for _, path := range specFiles(t, filepath.Join("v2", "testdata", "*.json")) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			t.Parallel()
			runScript(t, path, expose)
		})
	}
}

func TestStateOutOfReachIsRefused(t *testing.T) {
	t.Parallel()
	end := []byte{0x0b}
	constant := wasmbin.Expr{0x41, 0x00, 0x0b}
	withGlobal := func(typ wasmbin.ValueType, init ...byte) func(*wasmbin.Module) {
		return func(m *wasmbin.Module) {
			m.Globals = []wasmbin.Global{{Type: wasmbin.GlobalType{Type: typ, Mutable: true}, Init: append(init, end...)}}
			m.Funcs[0].Body = slices.Concat([]byte{0x23, 0x00, 0x24, 0x00}, end)
		}
	}
	code := func(b ...byte) func(*wasmbin.Module) {
		return func(m *wasmbin.Module) { m.Funcs[0].Body = append(b, end...) }
	}
	for _, c := range []struct {
		name   string
		change func(*wasmbin.Module)
		want   error
		text   string
	}{
		{"nothing special", func(*wasmbin.Module) {}, nil, ""},
		{"memory.init", code(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 8, 0, 0), nil, ""},
		{"a variable", withGlobal(wasmbin.I64, 0x42, 0), nil, ""},
		{"a variable reference", withGlobal(wasmbin.FuncRef, 0xd0, 0x70), wasmbin.ErrHidden, "global 0 is a variable funcref"},
		{"a variable vector", withGlobal(wasmbin.V128, slices.Concat([]byte{0xfd, 12}, make([]byte, 16))...), wasmbin.ErrHidden, "global 0 is a variable v128"},
		{"table.set", code(0x41, 0, 0xd0, 0x70, 0x26, 0), wasmbin.ErrHidden, "changes a table"},
		{"table.grow", code(0xd0, 0x70, 0x41, 0, 0xfc, 15, 0, 0x1a), wasmbin.ErrHidden, "changes a table"},
		{"table.fill", code(0x41, 0, 0xd0, 0x70, 0x41, 0, 0xfc, 17, 0), wasmbin.ErrHidden, "changes a table"},
		{"table.copy", code(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 14, 0, 0), wasmbin.ErrHidden, "changes a table"},
		{"table.init", code(0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 12, 0, 0), wasmbin.ErrHidden, "changes a table"},
		{"elem.drop", code(0xfc, 13, 0), wasmbin.ErrHidden, "drops a segment"},
		{"data.drop", code(0xfc, 9, 0), wasmbin.ErrHidden, "drops a segment"},
		{"an offset that is imported", func(m *wasmbin.Module) {
			m.Imports = []wasmbin.Import{{Kind: wasmbin.ExternGlobal, Global: wasmbin.GlobalType{Type: wasmbin.I32}}}
			m.Datas = append(m.Datas, wasmbin.Data{Offset: wasmbin.Expr{0x23, 0, 0x0b}})
		}, wasmbin.ErrHidden, "data segment 1 has no constant offset"},
		{"an imported variable", func(m *wasmbin.Module) {
			m.Imports = []wasmbin.Import{{Kind: wasmbin.ExternGlobal, Global: wasmbin.GlobalType{Type: wasmbin.I32, Mutable: true}}}
			m.Funcs[0].Body = []byte{0x41, 0, 0x24, 0, 0x0b}
		}, wasmbin.ErrHidden, "global 0 is imported"},
		{"data without memory", func(m *wasmbin.Module) {
			m.Memories, m.Datas = nil, []wasmbin.Data{{Offset: constant}}
		}, wasmbin.ErrInvalid, "no memory"},
		{"a start function with a result", func(m *wasmbin.Module) {
			m.Types = append(m.Types, wasmbin.FuncType{Results: []wasmbin.ValueType{wasmbin.I32}})
			m.Funcs[0].Type, m.Start = 1, new(uint32)
		}, wasmbin.ErrInvalid, "parameters or results"},
		{"a start function", func(m *wasmbin.Module) { m.Start = new(uint32) }, nil, ""},
		{"a reserved name", func(m *wasmbin.Module) {
			m.Exports = []wasmbin.Export{{Name: wasmbin.StartExport}}
		}, wasmbin.ErrReserved, wasmbin.StartExport},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &wasmbin.Module{
				Types:     []wasmbin.FuncType{{}},
				Funcs:     []wasmbin.Func{{Body: end}},
				Tables:    []wasmbin.TableType{{Element: wasmbin.FuncRef}},
				Memories:  []wasmbin.Limits{{Min: 1}},
				Elements:  []wasmbin.Element{{Form: wasmbin.ElementNotActive}},
				Datas:     []wasmbin.Data{{Form: wasmbin.DataPassive}},
				DataCount: true,
			}
			c.change(m)
			before := m.Encode()
			err := wasmbin.Expose(m)
			if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v: …%s", err, c.want, c.text)
			}
			if err != nil && !bytes.Equal(m.Encode(), before) {
				t.Error("it was changed all the same")
			}
		})
	}
}

// What a Go guest finds in its memory, and what it computes, does not depend on
// who has put it there.
func TestExposedGuestIsTheSame(t *testing.T) {
	t.Parallel()
	wasm := buildGuest(t, "reactor", "-buildmode=c-shared")
	h := newHost(t, false)
	wasi_snapshot_preview1.MustInstantiate(t.Context(), h.rt)
	plain := h.instantiate(t, metered(t, wasm))
	rewritten, err := expose(wasm)
	if err != nil {
		t.Fatal(err)
	}
	exposed := h.instantiate(t, rewritten)
	if err := begin(t.Context(), exposed, rewritten); err != nil {
		t.Fatal(err)
	}
	want, _ := plain.Memory().Read(0, plain.Memory().Size())
	if got, _ := exposed.Memory().Read(0, exposed.Memory().Size()); !bytes.Equal(got, want) {
		t.Error("memory differs")
	}
	for _, m := range []api.Module{plain, exposed} {
		if _, err := m.ExportedFunction("_initialize").Call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range reactorCalls() {
		var results []string
		for _, m := range []api.Module{plain, exposed} {
			r, err := m.ExportedFunction(c.Name).Call(t.Context(), c.N/10)
			results = append(results, fmt.Sprint(r, err))
		}
		if results[0] != results[1] {
			t.Errorf("%s: got %s, want %s", c.Name, results[1], results[0])
		}
	}
}
