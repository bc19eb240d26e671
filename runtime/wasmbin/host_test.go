package wasmbin_test

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync/atomic"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

var (
	errStopped = errors.New("stopped")
	errTooDeep = errors.New("too deep")
)

const (
	slice      = 200_000
	yieldEvery = 64 // slices, about a millisecond: yielding wakes other threads
)

// host is what a metered guest needs around it.
type host struct {
	rt      wazero.Runtime
	slice   int64
	stop    atomic.Bool   // stops the guest at its next slice
	slices  atomic.Int64  // how many were granted
	spent   atomic.Int64  // fuel, without what is left of the last slice
	running chan struct{} // told of the first slices, if not nil
}

// newHost makes a runtime, with wazero's own switch on if so asked.
func newHost(tb testing.TB, closeOnDone bool) *host {
	tb.Helper()
	ctx := context.Background()
	config := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(api.CoreFeaturesV2).WithCloseOnContextDone(closeOnDone)
	h := &host{slice: slice, rt: wazero.NewRuntimeWithConfig(ctx, config)}
	tb.Cleanup(func() {
		if err := h.rt.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := h.rt.NewHostModuleBuilder(wasmbin.MeterModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(h.refuel), i64, i64).Export(wasmbin.RefuelFunction).Instantiate(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

func (h *host) refuel(_ context.Context, stack []uint64) {
	c := wasmbin.Counter(stack[0])
	h.slices.Add(1)
	h.spent.Add(h.slice - c.Fuel())
	if h.running != nil {
		select {
		case h.running <- struct{}{}:
		default:
		}
	}
	switch {
	case c.Depth() < 0:
		panic(errTooDeep)
	case h.stop.Load():
		panic(errStopped)
	}
	if h.slices.Load()%yieldEvery == 0 {
		goruntime.Gosched()
	}
	stack[0] = uint64(wasmbin.NewCounter(h.slice, c.Depth()))
}

// instantiate makes an anonymous instance.
func (h *host) instantiate(tb testing.TB, wasm []byte) api.Module {
	tb.Helper()
	m, err := h.rt.InstantiateWithConfig(context.Background(), wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// metered rewrites a module.
func metered(tb testing.TB, wasm []byte) []byte {
	tb.Helper()
	m, err := wasmbin.Decode(wasm)
	if err != nil {
		tb.Fatal(err)
	}
	if err := wasmbin.Meter(m, wasmbin.MeterOptions{}); err != nil {
		tb.Fatal(err)
	}
	return m.Encode()
}

// fuelOf runs a call with a fresh slice and returns what it used.
func (h *host) fuelOf(tb testing.TB, m api.Module, name string, args ...uint64) int64 {
	tb.Helper()
	counter := m.ExportedGlobal(wasmbin.CounterExport).(api.MutableGlobal)
	counter.Set(uint64(wasmbin.NewCounter(slice, wasmbin.DefaultDepth)))
	h.spent.Store(0)
	if _, err := m.ExportedFunction(name).Call(context.Background(), args...); err != nil {
		tb.Fatal(err)
	}
	return h.spent.Load() + slice - wasmbin.Counter(counter.Get()).Fuel()
}
