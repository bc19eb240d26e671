package runtime

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime/attempt"
)

// A guardedCall is a call to a dependency: admitted, attempted, judged, reported,
// and tried again, each attempt by itself.
type guardedCall struct {
	*dependency
	req     *http.Request
	timeout time.Duration // of an attempt, until the head of the answer
	whole   time.Time     // when no attempt may run any more
	owned   func() error  // why it may not be made any more
	steps   *steps
}

// do makes the call. The error is why nothing was sent, or what the last attempt
// came to.
func (c *guardedCall) do(ctx context.Context) (*http.Response, error) {
	return c.retries.Do(ctx, attempt.Call{
		Idempotent: attempt.Idempotent(c.req.Method) || c.keyed(),
		Once:       c.req.Body != nil && c.req.Body != http.NoBody && c.req.GetBody == nil,
		Timeout:    c.timeout,
		Deadline:   c.whole,
		Try:        func(number int, reason string) (attempt.Result, error) { return c.try(ctx, number, reason) },
		Owned:      c.owned,
		Open:       c.open,
		Decided:    c.steps.decided,
	})
}

// keyed reports whether the call carries the key by which the dependency knows
// that it is the same.
func (c *guardedCall) keyed() bool {
	return c.cfg.IdempotencyHeader != "" && c.req.Header.Get(c.cfg.IdempotencyHeader) != ""
}

// open reports whether another attempt would be refused.
func (c *guardedCall) open() bool {
	v := c.object.View()
	return v.State != objects.StateClosed || v.Guarded
}

// try makes one attempt if the breaker admits it, and reports what came of it.
func (c *guardedCall) try(ctx context.Context, number int, reason string) (attempt.Result, error) {
	req, err := c.again(ctx, number)
	if err != nil {
		return attempt.Result{}, err
	}
	admission, err := c.object.Admit(ctx)
	c.steps.admitted(admission, err)
	if err != nil {
		return attempt.Result{}, err
	}
	if number > 1 {
		c.retried.WithLabelValues(c.id().String(), reason).Inc()
	}
	c.steps.attempt(number, req.Header.Get(fenceHeader), c.keyed())
	if admission.Probe() {
		return c.probe(ctx, req, c.judged(admission)), nil //nolint:contextcheck // it ends with the app
	}
	r := measured(func() (*http.Response, error) {
		return limited(ctx, req, min(c.timeout, time.Until(c.whole)), c.client.Do)
	})
	c.judged(admission)(r) //nolint:contextcheck // the verdict must not end with the request
	return r, nil
}

// again returns the request of an attempt, with a body of its own.
func (c *guardedCall) again(ctx context.Context, number int) (*http.Request, error) {
	if number == 1 || c.req.GetBody == nil {
		return c.req, nil
	}
	content, err := c.req.GetBody()
	if err != nil {
		return nil, fmt.Errorf("runtime: the body cannot be sent again: %w", abi.Internal)
	}
	req := c.req.WithContext(ctx)
	req.Body = content
	return req, nil
}

// judged returns what takes the result of an attempt to the breaker.
func (c *guardedCall) judged(admission objects.Admission) func(attempt.Result) {
	return func(r attempt.Result) {
		outcome := r.Outcome(c.cfg.Timeout, c.excluded)
		c.steps.judged(r, outcome)
		c.steps.reported(c.report(admission, outcome))
	}
}

// measured makes an attempt.
func measured(do func() (*http.Response, error)) (r attempt.Result) {
	begun := time.Now()
	r.Response, r.Err = do() //nolint:bodyclose // it is the caller's
	r.Took = time.Since(begun)
	return r
}
