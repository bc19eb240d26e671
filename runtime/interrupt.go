package runtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// This file is the one place that knows how a guest is stopped while it
// computes. At the moment that is the engine's own switch, which looks at the
// call's context wherever compiled code loops.

// errInterrupted is what a host call panics with to unwind a guest that was
// stopped: it has no say in the matter any more.
var errInterrupted = errors.New("runtime: the guest was stopped")

// interruptible makes guests compiled with c stoppable.
func interruptible(c wazero.RuntimeConfig) wazero.RuntimeConfig {
	return c.WithCloseOnContextDone(true)
}

// A guestContext is the context of every call into one instance. It ends when
// the guest is to be stopped, which happens once: such an instance never serves
// again. It also leads host functions to their instance.
type guestContext struct {
	inst *instance
	once sync.Once
	done chan struct{}
}

type instanceKey struct{}

var _ context.Context = (*guestContext)(nil)

// Deadline implements context.Context. The deadline is kept by the request.
func (*guestContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context.
func (c *guestContext) Done() <-chan struct{} { return c.done }

// Err implements context.Context.
func (c *guestContext) Err() error {
	if c.stopped() {
		return context.Canceled
	}
	return nil
}

// Value implements context.Context.
func (c *guestContext) Value(key any) any {
	if _, ok := key.(instanceKey); ok {
		return c.inst
	}
	return nil
}

// stop ends what the guest is doing, in host calls too, and returns at once. It
// may be called at any time and by anybody.
func (c *guestContext) stop() { c.once.Do(func() { close(c.done) }) }

func (c *guestContext) stopped() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// call runs a function of the guest to its end. The stack holds its result.
func (c *guestContext) call(fn api.Function, stack []uint64) error {
	return fn.CallWithStack(c, stack)
}
