package wasmbin_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// bulkCall is a call of one of the exports of wasmbin.Bulk.
type bulkCall struct {
	Name       string
	To, From   uint32
	Length     uint32
	wantFailed string
}

// bulkWorld is an instance of wasmbin.Bulk with something in its memory.
type bulkWorld struct{ api.Module }

func (h *host) bulkWorld(t *testing.T, wasm []byte) bulkWorld {
	t.Helper()
	w := bulkWorld{h.instantiate(t, wasm)}
	memory, _ := w.Memory().Read(0, w.Memory().Size())
	random := rand.New(rand.NewPCG(1, 2))
	for i := range memory {
		memory[i] = byte(random.Uint32())
	}
	return w
}

func (w bulkWorld) call(c bulkCall) string {
	_, err := w.ExportedFunction(c.Name).Call(context.Background(), uint64(c.To), uint64(c.From), uint64(c.Length))
	if err != nil {
		return reason(err)
	}
	return ""
}

// nulls looks at every 61st element of the table and at the edges of chunks.
func (w bulkWorld) nulls(t *testing.T) []bool {
	t.Helper()
	var nulls []bool
	for i := 0; i < 100_000; i += 61 {
		r, err := w.ExportedFunction("isnull").Call(t.Context(), uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		nulls = append(nulls, r[0] == 1)
	}
	return nulls
}

func (w bulkWorld) memory() []byte {
	b, _ := w.Memory().Read(0, w.Memory().Size())
	return b
}

const (
	kib       = 1 << 10
	memoryEnd = 1 << 20
	outOfMem  = "out of bounds memory access"
	outOfTab  = "invalid table access"
)

func TestBulkOperationsInPiecesDoTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		calls []bulkCall
	}{
		{"a fill of everything", []bulkCall{{"fill", 0, 7, memoryEnd, ""}}},
		{"fills around the length of a piece", []bulkCall{
			{"fill", 5, 7, 256*kib - 1, ""}, {"fill", 300 * kib, 8, 256 * kib, ""}, {"fill", 700 * kib, 9, 256*kib + 1, ""},
		}},
		{"a fill beyond the end writes nothing", []bulkCall{{"fill", 100, 7, memoryEnd - 99, outOfMem}}},
		{"a fill whose end wraps around", []bulkCall{{"fill", 1 << 20, 7, 1<<32 - 1, outOfMem}}},
		{"a copy to above within itself", []bulkCall{{"copy", 1, 0, memoryEnd - 1, ""}, {"copy", 300 * kib, 10, 700 * kib, ""}}},
		{"a copy to below within itself", []bulkCall{{"copy", 0, 1, memoryEnd - 1, ""}, {"copy", 10, 300 * kib, 700 * kib, ""}}},
		{"a copy onto itself", []bulkCall{{"copy", 3, 3, memoryEnd - 3, ""}}},
		{"a copy that shifts by nearly a piece", []bulkCall{{"copy", 256*kib - 1, 0, 600 * kib, ""}, {"copy", 0, 256*kib + 1, 600 * kib, ""}}},
		{"a copy from beyond the end writes nothing", []bulkCall{{"copy", 0, 1, memoryEnd, outOfMem}}},
		{"a copy to beyond the end writes nothing", []bulkCall{{"copy", 1, 0, memoryEnd, outOfMem}}},
		{"an init of all of a segment", []bulkCall{{"init", 77, 0, 600 * kib, ""}}},
		{"an init from the middle of a segment", []bulkCall{{"init", 77, 1000, 600*kib - 1000, ""}}},
		{"an init from beyond the segment writes nothing", []bulkCall{{"init", 0, 1, 600 * kib, outOfMem}}},
		{"an init to beyond the memory writes nothing", []bulkCall{{"init", 500 * kib, 0, 600 * kib, outOfMem}}},
		{"an init whose source wraps around", []bulkCall{{"init", 0, 1<<32 - 1, 300 * kib, outOfMem}}},
		{"an init from a dropped segment", []bulkCall{{"drop", 0, 0, 0, ""}, {"init", 0, 0, 300 * kib, outOfMem}, {"init", 0, 0, 0, ""}}},
		{"a fill of a table", []bulkCall{{"tfill", 10, 1, 99_990, ""}, {"tfill", 20_000, 0, 40_000, ""}}},
		{"a fill beyond the table writes nothing", []bulkCall{{"tfill", 50_000, 1, 50_001, outOfTab}}},
		{"an init of a table", []bulkCall{{"tinit", 11, 0, 70_000, ""}}},
		{"an init from beyond the elements writes nothing", []bulkCall{{"tinit", 0, 1, 70_000, outOfTab}}},
		{"an init from dropped elements", []bulkCall{{"drop", 0, 0, 0, ""}, {"tinit", 0, 0, 70_000, outOfTab}}},
		{"a copy in a table to above", []bulkCall{{"tinit", 0, 0, 70_000, ""}, {"tcopy", 17, 0, 90_000, ""}}},
		{"a copy in a table to below", []bulkCall{{"tinit", 30_000, 0, 70_000, ""}, {"tcopy", 0, 17, 90_000, ""}}},
		{"a copy beyond the table writes nothing", []bulkCall{{"tinit", 0, 0, 70_000, ""}, {"tcopy", 50_000, 0, 50_001, outOfTab}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, false)
			plain, meter := h.bulkWorld(t, wasmbin.Bulk()), h.bulkWorld(t, metered(t, wasmbin.Bulk()))
			for _, call := range c.calls {
				want, got := plain.call(call), meter.call(call)
				if want != call.wantFailed || got != want {
					t.Fatalf("%v: plain %q, metered %q", call, want, got)
				}
			}
			if !bytes.Equal(plain.memory(), meter.memory()) {
				t.Error("the memories differ")
			}
			if diff := cmp.Diff(plain.nulls(t), meter.nulls(t)); diff != "" {
				t.Errorf("the tables differ (-plain +metered):\n%s", diff)
			}
		})
	}
}

func TestBulkOperationsAtRandomDoTheSame(t *testing.T) {
	t.Parallel()
	h := newHost(t, false)
	plain, meter := h.bulkWorld(t, wasmbin.Bulk()), h.bulkWorld(t, metered(t, wasmbin.Bulk()))
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"fill", "copy", "copy", "init", "tfill", "tcopy", "tinit"}
	for range 300 {
		c := bulkCall{
			Name: names[random.IntN(len(names))],
			To:   random.Uint32N(memoryEnd / 2), From: random.Uint32N(memoryEnd / 2), Length: random.Uint32N(memoryEnd * 6 / 10),
		}
		if c.Name[0] == 't' {
			c.To, c.From, c.Length = c.To%50_000, c.From%20_000, c.Length%60_000
		}
		if want, got := plain.call(c), meter.call(c); want != got {
			t.Fatalf("%v: plain %q, metered %q", c, want, got)
		}
		if !bytes.Equal(plain.memory(), meter.memory()) {
			t.Fatalf("%v: the memories differ", c)
		}
	}
	if diff := cmp.Diff(plain.nulls(t), meter.nulls(t)); diff != "" {
		t.Errorf("the tables differ (-plain +metered):\n%s", diff)
	}
}

func TestBulkOperationsCostTheirLength(t *testing.T) {
	t.Parallel()
	h := newHost(t, false)
	m := h.instantiate(t, metered(t, wasmbin.Bulk()))
	for _, c := range []struct {
		call bulkCall
		want int64
	}{
		{bulkCall{Name: "fill", Length: 100}, 0},
		{bulkCall{Name: "fill", Length: memoryEnd}, memoryEnd / 8},
		{bulkCall{Name: "copy", Length: memoryEnd}, memoryEnd / 8},
		{bulkCall{Name: "init", Length: 600 * kib}, 600 * kib / 8},
		{bulkCall{Name: "tfill", Length: 100_000}, 100_000 + 84}, // ref.func makes it too expensive to leave to its callers
		{bulkCall{Name: "tcopy", Length: 100_000}, 100_000},
		{bulkCall{Name: "tinit", Length: 70_000}, 70_000},
	} {
		if got := h.fuelOf(t, m, c.call.Name, 0, 0, uint64(c.call.Length)); got != c.want {
			t.Errorf("%s of %d: %d units, want %d", c.call.Name, c.call.Length, got, c.want)
		}
	}
}
