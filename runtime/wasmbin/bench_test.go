package wasmbin_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// variants are the three ways to run a guest.
type variants struct{ plain, metered, switched api.Module }

func kernelVariants(tb testing.TB, wasm []byte) variants {
	tb.Helper()
	return variants{
		plain:    newHost(tb, false).instantiate(tb, wasm),
		metered:  newHost(tb, false).instantiate(tb, metered(tb, wasm)),
		switched: newHost(tb, true).instantiate(tb, wasm),
	}
}

func reactorVariants(tb testing.TB) variants {
	tb.Helper()
	wasm := buildGuest(tb, "reactor", "-buildmode=c-shared")
	return variants{
		plain:    newHost(tb, false).reactor(tb, wasm),
		metered:  newHost(tb, false).reactor(tb, metered(tb, wasm)),
		switched: newHost(tb, true).reactor(tb, wasm),
	}
}

// cost is the fastest run of each variant.
type cost struct{ plain, metered, switched time.Duration }

func (c cost) ratio() float64     { return float64(c.metered) / float64(c.plain) }
func (c cost) switching() float64 { return float64(c.switched) / float64(c.plain) }

// measure runs the variants in turn, ten times, and on a busy machine up to ten
// times as often while metering seems to cost more than bound.
func (v variants) measure(tb testing.TB, name string, n uint64, bound float64) cost {
	tb.Helper()
	c := cost{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for run := range 100 {
		if run >= 10 && c.ratio() <= bound {
			break
		}
		c.plain = min(c.plain, timed(tb, v.plain, name, n))
		c.metered = min(c.metered, timed(tb, v.metered, name, n))
		if run < 3 {
			c.switched = min(c.switched, timed(tb, v.switched, name, n))
		}
	}
	return c
}

func timed(tb testing.TB, m api.Module, name string, n uint64) time.Duration {
	tb.Helper()
	f := m.ExportedFunction(name)
	start := time.Now()
	if _, err := f.Call(context.Background(), n); err != nil {
		tb.Fatal(err)
	}
	return time.Since(start)
}

// Not parallel: it measures time. The targets are 1.2 (geometric mean) and 1.3
// (each) for kernels, and 1.15 for Go; the bound leaves room for busy machines.
func TestMeteringCostsLittle(t *testing.T) {
	const bound = 1.6
	product := 1.0
	kernels := wasmbin.Kernels()
	for _, k := range kernels {
		c := kernelVariants(t, k.Wasm).measure(t, "run", k.N, bound)
		product *= c.ratio()
		c.report(t, k.Name, bound)
	}
	t.Logf("%-14s metered %.2f ×", "mean", math.Pow(product, 1/float64(len(kernels))))
	v := reactorVariants(t)
	for _, k := range reactorCalls() {
		v.measure(t, k.Name, k.N, bound).report(t, "Go "+k.Name, bound)
	}
}

func (c cost) report(t *testing.T, name string, bound float64) {
	t.Helper()
	t.Logf("%-14s metered %.2f ×, wazero's switch %.1f × of %v", name, c.ratio(), c.switching(), c.plain)
	if c.ratio() > bound {
		t.Errorf("%s: metering costs %.2f ×, the bound is %.2f ×", name, c.ratio(), bound)
	}
}

func BenchmarkKernels(b *testing.B) {
	for _, k := range wasmbin.Kernels() {
		b.Run(k.Name, func(b *testing.B) { kernelVariants(b, k.Wasm).benchmark(b, "run", k.N) })
	}
}

func BenchmarkGo(b *testing.B) {
	v := reactorVariants(b)
	for _, c := range reactorCalls() {
		b.Run(c.Name, func(b *testing.B) { v.benchmark(b, c.Name, c.N) })
	}
}

// BenchmarkCall measures a call that does nearly nothing.
func BenchmarkCall(b *testing.B) {
	k := wasmbin.Kernels()[3]
	kernelVariants(b, k.Wasm).benchmark(b, "run", 2)
}

func (v variants) benchmark(b *testing.B, name string, n uint64) {
	b.Helper()
	for _, variant := range []struct {
		name string
		m    api.Module
	}{{"plain", v.plain}, {"metered", v.metered}, {"switch", v.switched}} {
		b.Run(variant.name, func(b *testing.B) {
			f, stack := variant.m.ExportedFunction(name), make([]uint64, 1)
			for b.Loop() {
				stack[0] = n
				if err := f.CallWithStack(context.Background(), stack); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSlice measures one refuelling, with slices of a single unit.
func BenchmarkSlice(b *testing.B) {
	h := newHost(b, false)
	h.slice = 1
	k := wasmbin.Kernels()[0]
	f := h.instantiate(b, metered(b, k.Wasm)).ExportedFunction("run")
	for b.Loop() {
		if _, err := f.Call(context.Background(), 1000); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(h.slices.Load()), "ns/slice")
}

func BenchmarkRewrite(b *testing.B) {
	wasm := buildGuest(b, "reactor", "-buildmode=c-shared")
	b.SetBytes(int64(len(wasm)))
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			if _, err := wasmbin.Decode(wasm); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode, meter and encode", func(b *testing.B) {
		b.SetBytes(int64(len(wasm)))
		for b.Loop() {
			metered(b, wasm)
		}
	})
}
