package edge

import (
	"context"
	"io"
	"iter"
	"net/url"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Request is a request that the guest answers, or one that it makes with
// NewRequest. Header works on both; what else a request from a client carries is
// decoded when it is asked for.
type Request struct {
	Method string    // such as "GET"
	Body   io.Reader // never nil on a request from a client

	// Dependency is where Start sends a request that the guest makes; empty for
	// the hosts of the manifest's allow_hosts. Requests from a client have none.
	Dependency string
	// Timeout bounds a request that the guest makes, from its start to the head
	// of the answer. Zero leaves it to the manifest; below zero is Invalid. No value lets a call
	// outlive the request that it is made for.
	Timeout time.Duration
	// Lease is what a request that the guest makes is sent under: it carries
	// the lease's fence to the dependency and is refused once the lease is lost.
	Lease *Lease

	target  string
	head    record // of a request from a client
	body    body
	header  Header
	decoded bool // header holds the head's fields
	ctx     *requestContext
}

// receive takes the next request from the host.
func (r *Request) receive() error {
	buf := r.head.bytes
	if buf == nil {
		buf = make([]byte, 0, headSize)
	}
	head, n := fill(buf, host.Current().RequestHead)
	if n < 0 {
		return failure(n, "request head")
	}
	r.header.reset()
	*r = Request{head: record{bytes: head}, header: r.header}
	r.body = body{handle: abi.HandleRequestBody, op: "read request"}
	r.Body = &r.body
	r.Method = methodName(r.head.value(abi.FieldMethod))
	return nil
}

// end releases what belongs to the request.
func (r *Request) end() {
	if r.ctx != nil {
		r.ctx.end()
		r.ctx = nil
	}
}

// Target returns the path and query as they were sent.
func (r *Request) Target() string {
	if r.target == "" {
		r.target = r.head.field(abi.FieldTarget)
	}
	return r.target
}

// URL parses the target, anew with every call.
func (r *Request) URL() *url.URL {
	u, err := url.ParseRequestURI(r.Target())
	if err != nil { // the host does not let such a target pass, except "*"
		return &url.URL{Path: r.Target()}
	}
	return u
}

// Header returns the header fields. Changing those of a request from a client
// has no effect outside of the guest.
func (r *Request) Header() *Header {
	if !r.decoded {
		r.decoded = true
		r.header.decode(&r.head)
	}
	return &r.header
}

// Trailer returns the fields that followed the body, which must have been read
// to its end.
func (r *Request) Trailer() (*Header, error) { return r.body.trailer() }

// PathValue returns what the wildcard name of the route matched, "" if the route
// has no such wildcard.
func (r *Request) PathValue(name string) string {
	key, value, ok := r.head.nextPair(abi.FieldPathValue, 0)
	for ; ok; key, value, ok = r.head.nextPair(abi.FieldPathValue, value.end) {
		if string(r.head.bytes[key.start:key.end]) == name {
			return r.head.string(value)
		}
	}
	return ""
}

// PathValues yields the wildcards of the route, in their order, and what they
// matched.
func (r *Request) PathValues() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		name, value, ok := r.head.nextPair(abi.FieldPathValue, 0)
		for ok && yield(r.head.string(name), r.head.string(value)) {
			name, value, ok = r.head.nextPair(abi.FieldPathValue, value.end)
		}
	}
}

// Protocol returns the client's protocol, such as "HTTP/1.1".
func (r *Request) Protocol() string { return r.head.field(abi.FieldProtocol) }

// Host returns the authority that the client asked for.
func (r *Request) Host() string { return r.head.field(abi.FieldHost) }

// Scheme returns "http" or "https".
func (r *Request) Scheme() string { return r.head.field(abi.FieldScheme) }

// RemoteAddr returns the client's address and port.
func (r *Request) RemoteAddr() string { return r.head.field(abi.FieldRemote) }

// RequestID returns the id that the response and the host's log carry.
func (r *Request) RequestID() string { return r.head.field(abi.FieldRequestID) }

// Route returns the pattern of the manifest that matched.
func (r *Request) Route() string { return r.head.field(abi.FieldRoute) }

// ContentLength returns the length of the body in bytes, -1 if it is unknown.
func (r *Request) ContentLength() int64 { return r.head.number(abi.FieldContentLength, -1) }

// Remaining returns the time until the client is answered, whatever the guest
// does by then; zero afterwards.
func (r *Request) Remaining() time.Duration { return CurrentStatus().Remaining }

// Context returns a context with the deadline of the request. Its Err asks the
// host, so it knows at once when the client has gone away or the function's
// lease is lost. Its Done channel closes at the deadline and when Err has found
// one of these; a guest that only waits for Done is not woken by them, because
// nothing can interrupt a guest. The same holds for contexts derived from it.
func (r *Request) Context() context.Context {
	if r.ctx == nil {
		r.ctx = new(requestContext)
	}
	return r.ctx
}

// A Status is how a request stands.
type Status struct {
	Remaining time.Duration // until the client is answered
	Late      time.Duration // until the guest is stopped, not less than Remaining
	Fuel      int64         // the computation left before the guest is stopped; -1 if it is not limited
	Canceled  bool          // the client has gone away
	Answered  bool          // the client has been answered without this guest
	LeaseLost bool          // the function's lease is over
}

// end returns why the request's context ends, nil while it does not.
func (s Status) end() error {
	switch {
	case s.Canceled:
		return abi.Canceled
	case s.LeaseLost:
		return abi.LeaseLost
	case s.Answered:
		return abi.DeadlineExceeded
	}
	return nil
}

// CurrentStatus asks the host how the request stands. Outside of a request it
// returns the zero value.
func CurrentStatus() Status {
	var s host.Status
	if host.Current().Status(&s) < 0 {
		return Status{}
	}
	return Status{
		Remaining: max(0, time.Duration(s.RemainingNanos)),
		Late:      max(0, time.Duration(s.LateNanos)),
		Fuel:      s.Fuel,
		Canceled:  s.Flags&abi.StatusCanceled != 0,
		Answered:  s.Flags&abi.StatusLate != 0,
		LeaseLost: s.Flags&abi.StatusLeaseLost != 0,
	}
}

// methodName spares the common methods an allocation.
func methodName(b []byte) string {
	switch string(b) {
	case "GET":
		return "GET"
	case "HEAD":
		return "HEAD"
	case "POST":
		return "POST"
	case "PUT":
		return "PUT"
	case "PATCH":
		return "PATCH"
	case "DELETE":
		return "DELETE"
	case "OPTIONS":
		return "OPTIONS"
	}
	return string(b)
}
