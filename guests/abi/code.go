package abi

import (
	"context"
	"errors"
)

// A Code tells the receiver of a failure what it can do about it. It is an
// error itself, so code on both sides of the boundary wraps and tests it with
// the errors package. The numbers are part of the ABI: negative, so that they
// fit beside the non-negative results of a host call, appended to and never
// reused.
type Code int32

// The codes. The comment of each says what its receiver can do.
const (
	Invalid           Code = -1  // an argument is wrong: fix the call
	NotFound          Code = -2  // there is no such thing: do not retry
	Denied            Code = -3  // the manifest does not allow it: change the manifest
	Conflict          Code = -4  // the state is not the one the call assumes: look again, then decide
	LeaseBusy         Code = -5  // another holder has the lease: try again after the retry time
	LeaseLost         Code = -6  // this lease is over: stop acting under it
	Fenced            Code = -7  // a newer fence has been seen: stop writing
	BreakerOpen       Code = -8  // the dependency is known to fail: try again after the retry time
	Deferred          Code = -9  // somebody else is probing the dependency: try again after the retry time
	Overloaded        Code = -10 // a queue or bound is full: try again later, with less
	Unavailable       Code = -11 // the coordination store does not answer: try again later
	DeadlineExceeded  Code = -12 // the time is over: the outcome of work begun is unknown
	Canceled          Code = -13 // the caller went away
	TooLarge          Code = -14 // a size limit was exceeded: send less
	InProgress        Code = -15 // the same request is being executed: try again after the retry time
	Mismatch          Code = -16 // the idempotency key was used with another request
	ReservationLost   Code = -17 // another holder took the reservation over: use its answer
	DependencyFailed  Code = -18 // the dependency could not be reached or broke off
	OutcomeUnknown    Code = -19 // an effect may have happened and cannot be known
	Unsupported       Code = -20 // this host does not have the function or option
	Again             Code = -21 // nothing is ready and the call was asked not to block
	Internal          Code = -22 // a fault of the host
	AnswerUnavailable Code = -23 // the request was carried out and its answer is not kept: do not repeat it
)

var codeNames = [...]string{
	"ok", "invalid", "not_found", "denied", "conflict", "lease_busy", "lease_lost", "fenced",
	"breaker_open", "deferred", "overloaded", "unavailable", "deadline_exceeded", "canceled",
	"too_large", "in_progress", "mismatch", "reservation_lost", "dependency_failed",
	"outcome_unknown", "unsupported", "again", "internal", "answer_unavailable",
}

// String returns the code's stable name, such as "lease_lost". Zero is "ok"; a
// number outside the table is "internal", since nobody can act on it.
func (c Code) String() string {
	if c > 0 || int(c) <= -len(codeNames) {
		return codeNames[-Internal]
	}
	return codeNames[-c]
}

// Error returns the code's stable name.
func (c Code) Error() string { return c.String() }

// Valid reports whether c is a code of the table, which zero is not.
func (c Code) Valid() bool { return c < 0 && int(c) > -len(codeNames) }

// CodeOf returns the code that err carries: zero for nil, the first Code in its
// tree, DeadlineExceeded and Canceled for the context errors, and Internal for
// everything else.
func CodeOf(err error) Code {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[Code](err); ok {
		return code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Internal
}
