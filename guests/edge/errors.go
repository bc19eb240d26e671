package edge

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Code says what the receiver of an error can do about it. It is an error
// itself, for use with errors.Is.
type Code = abi.Code

// The codes.
const (
	Invalid           = abi.Invalid           // an argument is wrong: fix the call
	NotFound          = abi.NotFound          // there is no such thing: do not retry
	Denied            = abi.Denied            // the manifest does not allow it: change the manifest
	Conflict          = abi.Conflict          // the state is not the one the call assumes: look again, then decide
	LeaseBusy         = abi.LeaseBusy         // another holder has the lease: try again after the retry time
	LeaseLost         = abi.LeaseLost         // this lease is over: stop acting under it
	Fenced            = abi.Fenced            // a newer fence has been seen: stop writing
	BreakerOpen       = abi.BreakerOpen       // the dependency is known to fail: try again after the retry time
	Deferred          = abi.Deferred          // somebody else is probing the dependency: try again after the retry time
	Overloaded        = abi.Overloaded        // a queue or bound is full: try again later, with less
	Unavailable       = abi.Unavailable       // the coordination store does not answer: try again later
	DeadlineExceeded  = abi.DeadlineExceeded  // the time is over: the outcome of work begun is unknown
	Canceled          = abi.Canceled          // the caller went away
	TooLarge          = abi.TooLarge          // a size limit was exceeded: send less
	InProgress        = abi.InProgress        // the same request is being executed: try again after the retry time
	Mismatch          = abi.Mismatch          // the idempotency key was used with another request
	ReservationLost   = abi.ReservationLost   // another holder took the reservation over: use its answer
	DependencyFailed  = abi.DependencyFailed  // the dependency could not be reached or broke off
	OutcomeUnknown    = abi.OutcomeUnknown    // an effect may have happened and cannot be known
	Unsupported       = abi.Unsupported       // this host does not have the function or option
	Internal          = abi.Internal          // a fault of the host, or an error without a code
	AnswerUnavailable = abi.AnswerUnavailable // the request was carried out and its answer is not kept: do not repeat it
)

// A CallError is a host call that failed. It unwraps to its code.
type CallError struct {
	Op         string        // what was tried, such as "fetch payments"
	Code       Code          // what to do about it
	RetryAfter time.Duration // when to try again; zero without advice
	Revision   Revision      // with Conflict, the newest revision that the host knows
	Detail     string        // the host's words, for a log and never for a client
}

// Error returns the operation, the code and the host's words.
func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString("edge: ")
	b.WriteString(e.Op)
	b.WriteString(": ")
	b.WriteString(e.Code.String())
	if e.Detail != "" {
		b.WriteString(": ")
		b.WriteString(e.Detail)
	}
	return b.String()
}

// Unwrap returns the code.
func (e *CallError) Unwrap() error { return e.Code }

// RetryAfter returns when the host advises to try again, zero without advice.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e.RetryAfter
	}
	return 0
}

// CurrentRevision returns the revision that made a Put fail with Conflict, zero
// if the host does not know it or err is another error.
func CurrentRevision(err error) Revision {
	if e, ok := errors.AsType[*CallError](err); ok {
		return e.Revision
	}
	return 0
}

// Is reports whether target is the error of package context that says the same as
// the code.
func (e *CallError) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Timeout() || target == context.Canceled && e.Code == Canceled
}

// Timeout reports whether the time was over, as net.Error has it.
func (e *CallError) Timeout() bool { return e.Code == DeadlineExceeded }

// Error answers the request with the problem document that belongs to the code
// of err, with its retry time if it has one. What was written before is dropped,
// later writes fail. If a part of it has gone out already, the response is broken
// off. The text of err goes to the log only.
func Error(w *ResponseWriter, err error) {
	w.fail(err)
}

// failure describes the host call that has just failed with code. It must be
// called before any other host call.
func failure(code int32, op string) error {
	e := &CallError{Op: op, Code: Code(code)}
	if !e.Code.Valid() {
		e.Code = Internal
	}
	record, n := fill(make([]byte, 0, 512), host.Current().Error)
	if n < 0 {
		return e
	}
	f, err := abi.ParseFailure(record)
	if err != nil || f.Code != e.Code {
		return e
	}
	e.RetryAfter = time.Duration(f.RetryAfter)
	e.Revision = Revision(f.Revision)
	e.Detail = f.Text
	return e
}

// check is failure for a result that may be good.
func check(result int32, op string) error {
	if result >= 0 {
		return nil
	}
	return failure(result, op)
}

// millis rounds up, so that nobody comes back too early.
func millis(d time.Duration) int32 {
	if d <= 0 {
		return 0
	}
	ms := (d + time.Millisecond - 1) / time.Millisecond
	return int32(min(ms, math.MaxInt32))
}
