package runtime

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errInterrupted is what host code panics with to unwind a guest that was
// stopped: it has no say in the matter any more.
var errInterrupted = errors.New("runtime: the guest was stopped")

// A guestContext is the context of every call into one instance. It ends when
// the guest is to be stopped, which happens once: such an instance never serves
// again. It also leads host functions to their instance.
//
// The guest itself does not look at it. It is stopped by the host function that
// it is in, or that it calls when its slice of fuel is used up.
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
