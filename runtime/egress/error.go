package egress

import (
	"errors"

	"github.com/edgehost/edgehost/guests/abi"
)

// A Kind is how a request failed, as far as it matters for trying again.
type Kind int

// The kinds. Only Connect and BeforeWrite prove that the server saw nothing.
const (
	Invalid     Kind = iota + 1 // the request is malformed; nothing was sent
	Denied                      // the target, its address or that of a redirect is not allowed
	Connect                     // no connection, name resolution and TLS handshake included
	BeforeWrite                 // the connection broke before a byte of the request was written to it
	AfterWrite                  // it broke later, or what came back is not HTTP
	Timeout                     // the context's deadline passed
	Canceled                    // the context was cancelled, or the client is closed
)

// String returns the kind's name for logs.
func (k Kind) String() string {
	switch k {
	case Invalid:
		return "invalid"
	case Denied:
		return "denied"
	case Connect:
		return "connect"
	case BeforeWrite:
		return "before write"
	case AfterWrite:
		return "after write"
	case Timeout:
		return "timeout"
	case Canceled:
		return "canceled"
	}
	return "unknown"
}

// An Error is why a request has no answer, or not all of it.
type Error struct {
	Kind Kind
	Sent bool  // bytes of the request may have reached a server
	Err  error // what happened, for the log
}

// Error returns the text for the log.
func (e *Error) Error() string { return "egress: " + e.Kind.String() + ": " + e.Err.Error() }

// Unwrap returns the code for the guest and what happened. If the context was
// cancelled with a code as its cause, such as LeaseLost, it is that code.
func (e *Error) Unwrap() []error { return []error{e.code(), e.Err} }

func (e *Error) code() abi.Code {
	switch e.Kind {
	case Invalid:
		return abi.Invalid
	case Denied:
		return abi.Denied
	case Timeout, Canceled:
		if code, ok := errors.AsType[abi.Code](e.Err); ok {
			return code
		}
		if e.Kind == Timeout {
			return abi.DeadlineExceeded
		}
		return abi.Canceled
	case Connect, BeforeWrite, AfterWrite:
		return abi.DependencyFailed
	}
	return abi.Internal
}
