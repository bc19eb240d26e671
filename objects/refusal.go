package objects

import (
	"context"
	"fmt"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
)

// A Refusal is the error of a call that was not let through. It unwraps to its
// Code.
type Refusal struct {
	// Code is one of breaker_open, deferred, lease_busy, overloaded, unavailable.
	Code abi.Code
	// RetryAfter is when a next try may succeed. It is above zero; with unavailable
	// and overloaded it is a guess.
	RetryAfter time.Duration
	// Reason is a constant for logs and metrics, such as "cooldown".
	Reason string
}

// Error returns the code, the reason and the retry time.
func (r *Refusal) Error() string {
	return fmt.Sprintf("objects: %v (%s), retry after %v", r.Code, r.Reason, r.RetryAfter)
}

// Unwrap returns the code.
func (r *Refusal) Unwrap() error { return r.Code }

// A ConflictError is the error of a Put whose revision was not the newest. It
// unwraps to abi.Conflict.
type ConflictError struct {
	// Revision is the key's revision as read after the conflict: a hint. Zero
	// means that the key could not be read.
	Revision kvbucket.Revision
}

// Error names the revision.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("objects: conflict, the revision is now %d", e.Revision)
}

// Unwrap returns abi.Conflict.
func (e *ConflictError) Unwrap() error { return abi.Conflict }

// unavailable refuses for want of the store, which may be back after an election
// or a restart: a few seconds.
func unavailable() error {
	return &Refusal{Code: abi.Unavailable, RetryAfter: jittered(2 * time.Second), Reason: reasonStore}
}

// closed refuses for the host has been closed, or is being closed.
func closed() error {
	return &Refusal{Code: abi.Unavailable, RetryAfter: jittered(2 * time.Second), Reason: "closed"}
}

// contextError wraps the end of ctx.
func contextError(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // the same value, or another error
		return fmt.Errorf("objects: %w: %w", ctx.Err(), cause)
	}
	return fmt.Errorf("objects: %w", ctx.Err())
}

// refusal turns an answer that is not a grant into an error.
func (a reply) refusal() error {
	switch {
	case a.Code == abi.Unavailable:
		return unavailable()
	case a.err != nil:
		return fmt.Errorf("objects: %w: %w", a.Code, a.err)
	case a.Code == abi.LeaseBusy:
		return &Refusal{Code: a.Code, RetryAfter: a.RetryAfter, Reason: "held"}
	case a.Code == abi.Overloaded:
		return &Refusal{Code: a.Code, RetryAfter: jittered(time.Second), Reason: "full"}
	}
	return fmt.Errorf("objects: %w", a.Code)
}
