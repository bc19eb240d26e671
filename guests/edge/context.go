package edge

import (
	"context"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// requestContext ends at the deadline by a timer, and for every other reason
// when Err learns of it. Deadline, Done and Value are those of the embedded
// context, so that contexts derived from it need no goroutine.
type requestContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc
}

func newRequestContext() *requestContext {
	causes, cancel := context.WithCancelCause(context.Background())
	ctx, stop := context.WithDeadlineCause(causes, time.Now().Add(CurrentStatus().Remaining), abi.DeadlineExceeded)
	return &requestContext{ctx, cancel, stop}
}

// Err asks the host.
func (c *requestContext) Err() error {
	if c.Context.Err() == nil {
		switch s := CurrentStatus(); {
		case s.Canceled:
			c.cancel(abi.Canceled)
		case s.LeaseLost:
			c.cancel(abi.LeaseLost)
		case s.Answered:
			c.cancel(abi.DeadlineExceeded)
		}
	}
	return c.Context.Err()
}
