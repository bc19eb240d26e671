package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// The fuel of a slice is some 20 µs of work, and a few milliseconds at worst.
// Letting others run costs more than a refill, so that it waits for several.
const (
	sliceFuel  = 200_000
	yieldEvery = time.Millisecond
)

// turns are the processors that guests may use which compute for longer than
// yieldEvery: all but one, which is for everybody else. Go's scheduler looks for
// what has arrived from the network only when a processor has nothing to do, and
// otherwise every 10 ms.
type turns chan struct{}

func newTurns() turns { return make(turns, max(1, goruntime.GOMAXPROCS(0)-1)) }

var (
	errFuel    = errors.New("runtime: the guest has used up its fuel")
	errTooDeep = errors.New("runtime: the guest's calls nest too deeply")
)

// A meter counts the work of one guest, slice by slice, and is where the host
// gets hold of a guest that computes. It belongs to the goroutine of the
// instance; others may read used.
type meter struct {
	guest   *guestContext
	counter api.Global   // the guest's end of it
	limit   int64        // of fuel in this call; zero is none
	slice   int64        // what the guest was given last
	used    atomic.Int64 // in this call, up to the beginning of the slice
	turns   turns
	turn    bool      // it has one
	yielded time.Time // the last time that it took one, or began
}

// call runs a function of the guest to its end. The stack holds its result. A
// limit above zero bounds the fuel. After a trap, the fuel of the last slice is
// unknown and not counted.
func (m *meter) call(fn api.Function, stack []uint64, limit int64) error {
	m.limit = limit
	m.yielded = time.Now()
	m.used.Store(0)
	m.set(m.refill(wasmbin.DefaultDepth))
	err := fn.CallWithStack(m.guest, stack)
	m.rest()
	if err == nil {
		m.used.Store(m.spent())
		m.slice = 0
	}
	return err
}

func (m *meter) set(c wasmbin.Counter) {
	if counter, ok := m.counter.(api.MutableGlobal); ok { // the rewriting made it one
		counter.Set(uint64(c))
	}
}

// spent is the fuel used in this call. The guest must not be running, unless in
// a host call.
func (m *meter) spent() int64 {
	return m.used.Load() + m.slice - wasmbin.Counter(m.counter.Get()).Fuel()
}

// left is the fuel that the call may still use, or -1 if there is no limit.
func (m *meter) left() int64 {
	if m.limit == 0 {
		return -1
	}
	return max(0, m.limit-m.spent())
}

// refill begins a slice, which ends where the fuel does.
func (m *meter) refill(depth int32) wasmbin.Counter {
	m.slice = sliceFuel
	if m.limit > 0 {
		m.slice = min(m.slice, m.limit-m.used.Load())
	}
	return wasmbin.NewCounter(m.slice, depth)
}

// refuel is what a guest calls whose counter is exhausted: it goes on with the
// one that it gets, or not at all.
func (m *meter) refuel(c wasmbin.Counter) wasmbin.Counter {
	used := m.used.Add(m.slice - c.Fuel())
	m.slice = 0
	if time.Since(m.yielded) >= yieldEvery {
		m.yield()
	}
	switch {
	case m.guest.stopped():
		panic(errInterrupted)
	case c.Depth() < 0:
		panic(errTooDeep)
	case m.limit > 0 && used >= m.limit:
		panic(errFuel)
	}
	return m.refill(c.Depth())
}

// yield lets others run that have waited for longer.
func (m *meter) yield() {
	m.rest()
	goruntime.Gosched()
	select {
	case m.turns <- struct{}{}:
		m.turn = true
	case <-m.guest.done:
	}
	m.yielded = time.Now()
}

// rest takes note that the guest does not compute for the moment.
func (m *meter) rest() {
	if m.turn {
		m.turn = false
		<-m.turns
	}
}

// provideMeter makes importable in r what metered modules import.
func provideMeter(ctx context.Context, r wazero.Runtime) error {
	i64 := []api.ValueType{api.ValueTypeI64}
	_, err := r.NewHostModuleBuilder(wasmbin.MeterModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(ctx context.Context, stack []uint64) {
			i, _ := ctx.Value(instanceKey{}).(*instance)
			stack[0] = uint64(i.meter.refuel(wasmbin.Counter(stack[0])))
		}), i64, i64).
		Export(wasmbin.RefuelFunction).Instantiate(ctx)
	return err
}
