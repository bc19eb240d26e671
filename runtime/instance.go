package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// An instance is one running guest. A goroutine of its own makes it, makes
// every call into it, and closes it, so that no two of these ever meet. Between
// its start and its end it serves one request at a time.
type instance struct {
	function *function
	module   api.Module
	memory   memory
	region   region              // what memory is made of
	globals  []api.MutableGlobal // of a guest that can be restored
	handle   api.Function
	resume   api.Function // nil if the guest has none, or is never restored
	result   [1]uint64
	guest    guestContext
	meter    meter
	console  console
	random   randomness

	work chan struct{} // one token for each request; closed to retire the instance
	done chan struct{} // the guest has returned
	x    exchange

	timer  *time.Timer // for the deadline of the request
	expiry *time.Timer // for the end of the guest's time after that; guarded by x.mu

	born, used time.Time
	trimmed    time.Time // used, when it was trimmed last
	served     int
	reason     atomic.Pointer[string] // why it must not serve again
}

// Reasons for an instance to go, the values of a label.
const (
	retiredTrap        = "trap"
	retiredFuel        = "fuel"
	retiredExit        = "exit"
	retiredTimeout     = "timeout"
	retiredFailed      = "failed" // it said so itself, or broke the contract
	retiredWish        = "wish"   // it said that it should not be used again
	retiredMaxRequests = "max_requests"
	retiredAge         = "max_age"
	retiredIdle        = "idle"
	retiredDrained     = "drained"
	retiredInit        = "init"      // it could not be started
	retiredHost        = "host"      // a function of the host failed in the middle of a call
	retiredDepth       = "depth"     // calls nested too deeply
	retiredMemory      = "memory"    // it is too large to be restored
	retiredIsolation   = "isolation" // every request has one of its own
)

func newInstance(f *function) *instance {
	i := &instance{
		function: f,
		work:     make(chan struct{}, 1),
		done:     make(chan struct{}, 1),
		born:     time.Now(),
	}
	i.guest.inst = i
	i.guest.done = make(chan struct{})
	i.meter.guest, i.meter.turns = &i.guest, f.engine.turns
	i.console.inst, i.random.guest = i, &i.guest
	i.x.init(i)
	return i
}

// run is the instance's goroutine.
func (i *instance) run() {
	f := i.function
	defer f.pool.gone(i)
	if err := i.open(); err != nil {
		i.retire(retiredInit)
		i.close()
		f.pool.started(i, fmt.Errorf("%w: %w", errStart, err))
		return
	}
	f.pool.started(i, nil)
	for range i.work {
		i.serve()
		if !i.x.finish() {
			i.retire(retiredTimeout) // nobody waits for it any more
			break
		}
		i.restore()
		i.done <- struct{}{}
	}
	i.close()
}

// retire sees to it that the instance does not serve again, and that its
// goroutine ends. Only who holds the instance may call it: a request, the pool
// or its own goroutine. The first reason counts.
func (i *instance) retire(reason string) {
	if i.reason.CompareAndSwap(nil, &reason) {
		i.function.engine.metrics.retired.WithLabelValues(reason).Inc()
		close(i.work)
	}
}

func (i *instance) retired() bool { return i.reason.Load() != nil }

func (i *instance) tooOld(now time.Time) bool { return now.Sub(i.born) >= i.function.cfg.MaxAge }

// release gives the instance back after a request, if it may serve another one.
func (i *instance) release(now time.Time) {
	i.used = now
	i.served++
	switch {
	case i.function.startsAnew():
		i.retire(retiredIsolation)
	case i.served >= i.function.cfg.MaxRequests:
		i.retire(retiredMaxRequests)
	case i.tooOld(now):
		i.retire(retiredAge)
	}
	if !i.retired() {
		i.function.pool.release(i)
	}
}

var errStart = errors.New("runtime: an instance could not be started")

// open makes the guest ready to serve, within the time that a request has.
func (i *instance) open() error {
	f := i.function
	f.metrics.coldStarts.Inc()
	limit := time.AfterFunc(f.cfg.Timeout, i.guest.stop)
	defer limit.Stop()
	if s := f.module.snapshot; s != nil {
		return i.beginRestorable(s)
	}
	return i.begin()
}

// begin makes and initializes the guest.
func (i *instance) begin() error {
	if err := i.instantiate(); err != nil {
		return err
	}
	for at, b := range i.function.module.begin.Segments() {
		if !i.memory.linear.Write(at, b) {
			return fmt.Errorf("the data for address %d is outside of the memory", at)
		}
	}
	for _, export := range []string{wasmbin.StartExport, abi.ExportInit} {
		if err := i.initialize(export); err != nil {
			return err
		}
	}
	return nil
}

// instantiate makes the guest, which may have a start function.
func (i *instance) instantiate() error {
	ctx := experimental.WithMemoryAllocator(&i.guest, &i.region)
	m := i.function.module
	module, err := m.runtime.InstantiateModule(ctx, m.compiled, i.moduleConfig())
	i.meter.rest()
	if err != nil {
		return err
	}
	i.module = module
	i.meter.counter = module.ExportedGlobal(wasmbin.CounterExport)
	i.memory = memory{module.ExportedMemory(abi.ExportMemory)}
	i.handle = module.ExportedFunction(abi.ExportHandle)
	return nil
}

// initialize calls an export that comes before all requests, if there is one.
func (i *instance) initialize(export string) error {
	if fn := i.module.ExportedFunction(export); fn != nil {
		err := i.meter.call(fn, nil, 0)
		i.function.metrics.fuel.Add(float64(i.meter.used.Load()))
		if err != nil {
			return fmt.Errorf("%s: %w", export, err)
		}
	}
	i.console.flush()
	if i.module.IsClosed() || i.guest.stopped() {
		return fmt.Errorf("%s ended the guest", export)
	}
	return nil
}

// close ends the guest. Only its goroutine does, outside of any call.
func (i *instance) close() {
	i.x.mu.Lock()
	if i.expiry != nil {
		i.expiry.Stop()
	}
	i.x.mu.Unlock()
	i.console.flush()
	if i.module != nil {
		_ = i.module.Close(context.Background()) // it has no file system, whose errors these are
	}
	i.region.close()
}

// expire lets the guest go on for its late time at most.
func (i *instance) expire(late time.Duration) {
	if late <= 0 {
		i.guest.stop()
		return
	}
	i.x.mu.Lock()
	defer i.x.mu.Unlock()
	i.expiry = time.AfterFunc(late, i.guest.stop)
}

// errResult is the fault of a guest whose handler returned a number that the
// ABI does not know.
var errResult = errors.New("runtime: the guest returned a result that is not in the ABI")

// serve makes the call for one request. The exchange learns how it ended.
func (i *instance) serve() {
	f := i.function
	err := i.wake()
	if err == nil {
		err = i.meter.call(i.handle, i.result[:], f.cfg.Fuel)
		f.metrics.fuel.Add(float64(i.meter.used.Load()))
	}
	i.console.flush()
	switch result := int32(uint32(i.result[0])); {
	case err != nil:
		i.x.fault(fmt.Errorf("runtime: the guest failed: %w", err))
		i.end(i.failure(err))
	case result < 0:
		i.x.fault(fmt.Errorf("runtime: the guest gave up: %w", abi.Code(result)))
		i.end(retiredFailed)
	case result == abi.HandleRetire:
		i.end(retiredWish)
	case result != abi.HandleDone:
		i.x.fault(errResult)
		i.end(retiredFailed)
	}
	i.checkRestorable()
	i.x.settle()
}

func (i *instance) failure(err error) string {
	switch {
	case i.guest.stopped():
		return retiredTimeout
	case errors.Is(err, errFuel):
		return retiredFuel
	case errors.Is(err, errTooDeep):
		return retiredDepth
	}
	return reasonOf(err)
}

// reasonOf tells a guest's own fault from one of the host in a call that the guest
// made, which may have left anything behind.
func reasonOf(err error) string {
	if _, ok := errors.AsType[*sys.ExitError](err); ok {
		return retiredExit
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	if strings.Contains(first, "wasm error: ") { // which the engine writes only for traps
		return retiredTrap
	}
	return retiredHost
}
