package edge

import (
	"errors"
	"io"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Dependency is a dependency of the manifest, by its name. Calls to it are
// guarded by its object: the breaker, which the whole fleet shares, admits them,
// and their outcome is reported to it.
type Dependency string

// NewRequest makes a request for Fetch or Start. The target is a path with an
// optional query, relative to the dependency's url; for the plain Fetch an
// absolute URL. A nil body sends none. A body that tells its length (a
// strings.Reader, bytes.Reader or bytes.Buffer) and is small enough travels with
// the request, so that the host can repeat it; any other is streamed, and a
// streamed request is tried only once.
func NewRequest(method, target string, body io.Reader) (*Request, error) {
	if method == "" || target == "" {
		return nil, &CallError{Op: "new request", Code: Invalid, Detail: "method and target must not be empty"}
	}
	return &Request{Method: method, Body: body, target: target, decoded: true}, nil
}

// Fetch sends the request to the dependency and blocks until the head of its
// answer is there. Any status is an answer, not an error. The host sends it again
// as the dependency's retry in the manifest says, and the last answer is the one
// that counts: a function needs no loop of its own. The errors are
// BreakerOpen, Deferred, Overloaded and Unavailable, with a retry time and
// nothing sent; DependencyFailed; DeadlineExceeded, OutcomeUnknown; LeaseLost;
// Denied for a dependency that the manifest does not give to the function.
func (d Dependency) Fetch(r *Request) (*Response, error) { return start(string(d), r).Wait() }

// Start starts the requests without waiting. Each goes to the dependency,
// whatever its Dependency field says.
func (d Dependency) Start(requests ...*Request) Calls {
	calls := make(Calls, len(requests))
	for i, r := range requests {
		calls[i] = start(string(d), r)
	}
	return calls
}

// Fetch sends a request with an absolute URL to a host of the manifest's
// allow_hosts. No breaker guards it. It is Denied for any other host.
func Fetch(r *Request) (*Response, error) { return start("", r).Wait() }

// Start starts the requests, each to what its Dependency field names, without
// waiting. They run at the same time, except for streamed bodies, which are
// sent one after another while Wait is called.
func Start(requests ...*Request) Calls {
	calls := make(Calls, len(requests))
	for i, r := range requests {
		calls[i] = start(r.Dependency, r)
	}
	return calls
}

// Calls are requests under way, in the order of Start.
type Calls []*Call

// Wait waits for every call. The responses are in the order of the calls, nil
// for those that failed; the error joins all failures. To tell them apart, wait
// for each Call.
func (c Calls) Wait() ([]*Response, error) {
	responses := make([]*Response, len(c))
	errs := make([]error, len(c))
	for i, call := range c {
		responses[i], errs[i] = call.Wait()
	}
	return responses, errors.Join(errs...)
}

// A Call is one request under way.
type Call struct {
	op       string
	handle   int32
	body     io.Reader // to be streamed, nil once it has been
	response *Response // the result, once there is one
	err      error
}

func start(dependency string, r *Request) *Call {
	c := &Call{op: "fetch " + dependency}
	if dependency == "" {
		c.op = "fetch"
	}
	if r.Timeout < 0 {
		c.err = &CallError{Op: c.op, Code: Invalid, Detail: "the timeout is below zero"}
		return c
	}
	mode := uint32(abi.BodyNone)
	record := r.record()
	if r.Body != nil {
		content, inline, err := inlineBody(r.Body, abi.MaxHead-len(record)-64)
		switch {
		case err != nil:
			c.err = err
			return c
		case inline:
			mode = abi.BodyInline
			record = abi.AppendText(record, abi.FieldBody, content)
		default:
			mode = abi.BodyStream
			c.body = r.Body
		}
	}
	c.handle = host.Current().Fetch(dependency, record, mode, 0)
	c.err = check(c.handle, c.op)
	return c
}

// record returns the head of a request that the guest makes.
func (r *Request) record() []byte {
	b := make([]byte, 0, 512)
	b = abi.AppendText(b, abi.FieldMethod, r.Method)
	b = abi.AppendText(b, abi.FieldTarget, r.Target())
	if r.Timeout > 0 {
		b = abi.AppendNumber(b, abi.FieldTimeout, uint64(r.Timeout))
	}
	if r.Lease != nil {
		b = abi.AppendNumber(b, abi.FieldLease, uint64(r.Lease.handle))
	}
	return r.Header().append(b)
}

// inlineBody reads a body that says it has at most limit bytes.
func inlineBody(body io.Reader, limit int) (content []byte, inline bool, err error) {
	sized, ok := body.(interface{ Len() int })
	if !ok || sized.Len() > limit {
		return nil, false, nil
	}
	content = make([]byte, sized.Len())
	_, err = io.ReadFull(body, content)
	return content, true, err
}

// Wait blocks until the head of the answer is there, as Fetch does. Called
// again, it returns the same.
func (c *Call) Wait() (*Response, error) {
	if c.response != nil || c.err != nil {
		return c.response, c.err
	}
	if c.err = c.stream(); c.err != nil {
		return nil, c.err
	}
	head, n := fill(make([]byte, 0, 1024), func(p []byte) int32 { return host.Current().FetchHead(c.handle, p, 0) })
	if n < 0 {
		c.err = failure(n, c.op)
		_ = c.Close() // a request may make more calls than it can have handles
		return nil, c.err
	}
	c.response = newResponse(c, head)
	return c.response, nil
}

// Close gives the call up, or what is left of its answer. What has been sent may
// have had its effect. Only the first call does anything.
func (c *Call) Close() error {
	switch {
	case c.response != nil:
		return c.response.Body.Close()
	case c.handle <= 0:
		return nil
	case c.err == nil:
		c.err = &CallError{Op: c.op, Code: Canceled, Detail: "closed by the guest"}
	}
	handle := c.handle
	c.handle = 0
	return check(host.Current().Close(handle), c.op)
}

// stream sends the body. A body that the dependency does not take to its end is
// no failure yet: its answer says why. A body that cannot be read ends the call.
func (c *Call) stream() error {
	if c.body == nil {
		return nil
	}
	source := c.body
	c.body = nil
	buf := make([]byte, 32<<10)
	for {
		n, err := source.Read(buf)
		if _, refused := writeAll(c.handle, buf[:n], c.op); refused != nil {
			return nil //nolint:nilerr // fetch_head reports the verdict of the call
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			_ = c.Close()
			return err
		}
	}
	if host.Current().Finish(c.handle, nil) < 0 {
		return nil // as above
	}
	return nil
}

// A Response is the answer to a request that the guest made.
type Response struct {
	Status int           // such as 200
	Body   io.ReadCloser // never nil; read as it arrives; ends with the request if it is not closed before

	head   record
	header *Header
	body   body
}

func newResponse(c *Call, head []byte) *Response {
	r := &Response{head: record{bytes: head}, body: body{handle: c.handle, op: c.op}}
	r.Status = int(r.head.number(abi.FieldStatus, 0)) // zero, which no server sends, if the host is wrong
	r.Body = &r.body
	return r
}

// Protocol returns the dependency's protocol, such as "HTTP/1.1".
func (r *Response) Protocol() string { return r.head.field(abi.FieldProtocol) }

// Header returns the header fields.
func (r *Response) Header() *Header {
	if r.header == nil {
		r.header = new(Header)
		r.header.decode(&r.head)
	}
	return r.header
}

// Trailer returns the fields that followed the body, which must have been read
// to its end.
func (r *Response) Trailer() (*Header, error) { return r.body.trailer() }

// ContentLength returns the length of the body in bytes, -1 if it is unknown.
func (r *Response) ContentLength() int64 { return r.head.number(abi.FieldContentLength, -1) }

// An Outcome is what a call says about its dependency.
type Outcome int32

// The outcomes.
const (
	Success   Outcome = abi.OutcomeSuccess
	Failure   Outcome = abi.OutcomeFailure
	Abandoned Outcome = abi.OutcomeCanceled // the caller gave up: no verdict
	Excluded  Outcome = abi.OutcomeExcluded // an error that says nothing about the dependency: no verdict
)

// An Admission is the breaker's permission for one call to a dependency that
// the guest makes by other means than Fetch.
type Admission struct {
	op     string
	handle int32
}

// Admit asks the dependency's breaker for one call. The errors are those of
// Dependency.Fetch with which nothing is sent. An admission that is not reported
// ends with the request as Abandoned.
func (d Dependency) Admit() (*Admission, error) {
	op := "admit " + string(d)
	h := host.Current().Admit(string(d), 0)
	if h < 0 {
		return nil, failure(h, op)
	}
	return &Admission{op, h}, nil
}

// Report tells the breaker how the call went, once.
func (a *Admission) Report(o Outcome) error {
	return check(host.Current().Report(a.handle, int32(o)), a.op)
}

// remaining turns the ABI's nanoseconds into a duration that is not negative.
func remaining(nanos int64) time.Duration { return max(0, time.Duration(nanos)) }
