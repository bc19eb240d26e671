package runtime

import (
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/wasmbin"
)

// A snapshot is the state of a function's instances right after their
// initialization. The first instance takes it, and every other one, and every
// request, begins with it.
type snapshot struct {
	mu      sync.Mutex // held by the instance that takes it
	image   *image     // what memory holds after it; nil until it is taken
	globals []uint64   // of wasmbin.GlobalExport
	written *pagemap
}

// close releases the image. No instance may be left.
func (s *snapshot) close() {
	if s != nil && s.image != nil {
		s.image.close()
	}
}

// size is that of the memory, in bytes.
func (s *snapshot) size() int { return len(s.image.content) }

// globals returns the variables of an instance.
func globalsOf(m api.Module) (list []api.MutableGlobal) {
	for {
		global, ok := m.ExportedGlobal(wasmbin.GlobalExport + strconv.Itoa(len(list))).(api.MutableGlobal)
		if !ok {
			return list
		}
		list = append(list, global)
	}
}

// beginRestorable is what open does for an instance of a function with a
// snapshot: it takes it, or begins with it.
func (i *instance) beginRestorable(s *snapshot) error {
	if taken, err := i.takeOnce(s); taken || err != nil {
		return err
	}
	i.region.image = s.image
	if err := i.instantiate(); err != nil {
		return err
	}
	i.globals, i.resume = globalsOf(i.module), i.module.ExportedFunction(abi.ExportResume)
	missing := s.size() - int(i.memory.linear.Size())
	if _, ok := i.memory.linear.Grow(uint32(missing / pageSize)); !ok {
		return fmt.Errorf("memory does not grow to %d bytes", s.size())
	}
	i.setGlobals(s)
	if i.guest.stopped() {
		return errInterrupted // it has waited for the snapshot for too long
	}
	return nil
}

// takeOnce takes the snapshot unless it is taken.
func (i *instance) takeOnce(s *snapshot) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.image != nil {
		return false, nil
	}
	return true, i.take(s)
}

// take initializes the guest and keeps its state.
func (i *instance) take(s *snapshot) error {
	if err := i.begin(); err != nil {
		return err
	}
	i.function.module.begin = nil // nobody else needs it
	content, _ := i.memory.linear.Read(0, i.memory.linear.Size())
	image := newImage(content, s.written)
	i.region.adopt(image)
	i.globals, i.resume = globalsOf(i.module), i.module.ExportedFunction(abi.ExportResume)
	for _, global := range i.globals {
		s.globals = append(s.globals, global.Get())
	}
	s.image = image
	if i.random.drawn && i.resume == nil {
		i.function.logger.LogAttrs(i.function.engine.base, slog.LevelInfo, "function has drawn random numbers in its initialization, which are the same for all requests")
	}
	return nil
}

// wake lets a guest that was restored know of it.
func (i *instance) wake() error {
	if i.resume == nil {
		return nil
	}
	i.x.active = false
	defer func() { i.x.active = true }()
	err := i.meter.call(i.resume, nil, i.function.cfg.Fuel)
	i.function.metrics.fuel.Add(float64(i.meter.used.Load()))
	if err != nil {
		return fmt.Errorf("%s: %w", abi.ExportResume, err)
	}
	return nil
}

func (i *instance) setGlobals(s *snapshot) {
	for n, global := range i.globals {
		global.Set(s.globals[n])
	}
}

// restore brings the guest back to the snapshot after a request. The engine
// keeps nothing else of it: it cannot change tables or segments, it has no files,
// and the exchange is filled anew.
func (i *instance) restore() {
	s := i.function.module.snapshot
	if s == nil || i.retired() {
		return
	}
	size := i.memory.linear.Size()
	i.region.restore()
	if int(size) > s.size() {
		i.memory.linear.Grow(1) // to the region's size, see Reallocate
		if int(i.memory.linear.Size()) != s.size() {
			i.retire(retiredMemory)
		}
	}
	i.setGlobals(s)
	i.function.metrics.restores.Inc()
}

// trimAfter is how long an instance is idle before it is trimmed.
const trimAfter = time.Second

// trim gives back the pages that an idle guest keeps so that its next request
// need not ask for them. The pool calls it for those that nobody holds.
func (i *instance) trim(now time.Time) {
	if i.function.module.snapshot != nil && i.trimmed != i.used && now.Sub(i.used) >= trimAfter {
		i.trimmed = i.used
		i.region.trim()
	}
}

// end takes note of a request that ended for a reason to retire. A guest that
// can be restored goes on: its state is its memory and its globals and nothing
// else. One that has left its module closed, that is to be stopped or whose stack
// is large does not.
func (i *instance) end(reason string) {
	restorable := reason == retiredTrap || reason == retiredFuel || reason == retiredFailed || reason == retiredWish
	if i.function.module.snapshot == nil || !restorable {
		i.retire(reason)
	}
}

// checkRestorable retires an instance that cannot be restored because of what it
// is now: memory is made smaller by way of growing it, which the engine refuses
// where it is as large as can be.
func (i *instance) checkRestorable() {
	s := i.function.module.snapshot
	if s == nil {
		return
	}
	if size := int(i.memory.linear.Size()); size > s.size() && size >= i.region.limit {
		i.retire(retiredMemory)
	}
}
