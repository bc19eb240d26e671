package edge

import (
	"context"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A requestContext is the context of one request. It asks the host for what can
// be asked. Only when somebody waits for its end, or derives a context from it,
// does it make the context that it stands for, whose timer costs more than a short
// request. Done and Value are those of that context, so that contexts derived
// from it need no goroutine.
type requestContext struct {
	mu       sync.Mutex // guards everything below
	over     bool       // the request has ended
	deadline time.Time
	ctx      context.Context // nil before it is made
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc
}

// Deadline implements context.Context.
func (c *requestContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(), true
}

// Done implements context.Context.
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Done()
}

// Value implements context.Context.
func (c *requestContext) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made().Value(key)
}

// Err asks the host.
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil && c.ctx.Err() != nil || c.over {
		return c.made().Err()
	}
	cause := CurrentStatus().end()
	if cause == nil {
		return nil
	}
	ctx := c.made()
	c.cancel(cause)
	return ctx.Err()
}

// end is what ends the context with the request.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.ctx != nil {
		c.stop()
	}
}

// due returns the deadline, which is the same for good.
func (c *requestContext) due() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now()
		if !c.over {
			c.deadline = c.deadline.Add(CurrentStatus().Remaining)
		}
	}
	return c.deadline
}

// made returns the context that c stands for.
func (c *requestContext) made() context.Context {
	if c.ctx == nil {
		causes, cancel := context.WithCancelCause(context.Background())
		if c.over {
			cancel(nil)
		}
		c.cancel = cancel
		c.ctx, c.stop = context.WithDeadlineCause(causes, c.due(), abi.DeadlineExceeded)
	}
	return c.ctx
}
