package attempt

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// Retries makes the attempts of all calls to one dependency. Its methods may be
// called by several goroutines.
type Retries struct {
	policy Policy
	budget Budget
	jitter func() float64
}

// NewRetries returns Retries by a policy that is resolved. The jitter is from
// [0, 1); nil means a random one.
func NewRetries(p Policy, jitter func() float64) *Retries {
	if jitter == nil {
		jitter = rand.Float64
	}
	return &Retries{policy: p, budget: Budget{share: p.Budget}, jitter: jitter}
}

// A Call is what is tried.
type Call struct {
	Idempotent bool          // it may have its effect twice
	Once       bool          // its body cannot be sent again
	Timeout    time.Duration // of one attempt
	Deadline   time.Time     // of all

	// Try makes an attempt, the number-th, for the reason that the decision
	// before it gave. The error says that nothing was sent because it may not be.
	Try func(number int, reason string) (Result, error)
	// Owned says why the call may not go on, such as that its lease is lost.
	Owned func() error
	// Open reports whether another attempt would be refused.
	Open func() bool
	// Decided takes note of what follows the number-th attempt; nil ignores it.
	Decided func(number int, d Decision)
}

// Do makes attempts until one stands, and returns what came of it. If another was
// due and is not admitted, the one before stands. The error is that of the last
// attempt, of a first one that was not admitted, or says why the call may not go
// on: that of Owned, or the cause of ctx.
func (r *Retries) Do(ctx context.Context, c Call) (*http.Response, error) {
	last, err := c.Try(1, "")
	if err != nil {
		return nil, err
	}
	r.budget.Call(time.Now())
	for number := 1; ; number++ {
		d := r.decide(c, number, last)
		if c.Decided != nil {
			c.Decided(number, d)
		}
		if !d.Retry {
			return last.Response, last.Err
		}
		shelve(last.Response)
		if err := await(ctx, d.Delay, c.Owned); err != nil {
			discard(last.Response)
			return nil, err
		}
		next, err := c.Try(number+1, d.Reason)
		switch {
		case err == nil:
			discard(last.Response)
			last = next
		case ctx.Err() != nil:
			discard(last.Response)
			return nil, ended(ctx)
		default:
			return last.Response, last.Err
		}
	}
}

func (r *Retries) decide(c Call, number int, last Result) Decision {
	now := time.Now()
	d := r.policy.Decide(Situation{
		Result: last, Number: number, Idempotent: c.Idempotent, Once: c.Once,
		Timeout: c.Timeout, Left: c.Deadline.Sub(now), Now: now, Jitter: r.jitter(),
		Open: c.Open(),
	})
	if d.Retry && !r.budget.Take(now) {
		return Decision{Reason: ReasonBudget}
	}
	return d
}

// await waits for the pause before an attempt, and says whether the call may go
// on then.
func await(ctx context.Context, pause time.Duration, owned func() error) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	return owned()
}

func ended(ctx context.Context) error { return fmt.Errorf("runtime: %w", context.Cause(ctx)) }

// maxShelved is the longest answer that is kept in memory.
const maxShelved = 16 << 10

// shelve reads a short answer, so that its connection is free while the call
// waits. It may yet turn out to be the one that stands.
func shelve(r *http.Response) {
	if r == nil || r.ContentLength < 0 || r.ContentLength > maxShelved {
		return
	}
	var text bytes.Buffer
	_, err := text.ReadFrom(r.Body)
	if err == nil {
		err = io.EOF
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&text, ending{err}), r.Body}
}

// ending is how a body ended.
type ending struct{ err error }

// Read implements io.Reader.
func (e ending) Read([]byte) (int, error) { return 0, e.err }

// discard gives up an answer.
func discard(r *http.Response) {
	if r != nil {
		_ = r.Body.Close() // nobody wants it
	}
}
