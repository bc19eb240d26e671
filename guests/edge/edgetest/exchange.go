//go:build !wasip1

package edgetest

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// maxChunk is the most that one write takes, so that guests have to go on where
// it ended.
const maxChunk = 32 << 10

// An exchange is the host functions for one request.
type exchange struct {
	host      *Host
	request   *http.Request
	head      []byte
	read      reader
	given     bool  // a final head has been given
	length    int64 // its Content-Length, -1 without one
	ended     bool  // the response body is complete
	committed bool  // the client has seen a part of the response
	broken    bool  // the guest has failed, whatever its result says
	response  Response
	handles   map[int32]any // *call, *grant, admission, or the error of an acquisition
	next      int32
	failure   abi.Failure
}

var _ host.Functions = (*exchange)(nil)

func newExchange(h *Host, r *http.Request) *exchange {
	x := &exchange{
		host:     h,
		request:  r,
		head:     requestHead(r),
		read:     reader{from: r.Body},
		handles:  map[int32]any{},
		next:     abi.HandleFunctionLease + 1,
		length:   -1,
		response: Response{Header: http.Header{}, Trailer: http.Header{}},
	}
	if r.Body == nil {
		x.read.ended = true
	}
	return x
}

// end drops the handles that the guest left open.
func (x *exchange) end() {
	for h := range x.handles {
		x.drop(h)
	}
}

// called notes a host call.
func (x *exchange) called(name string) {
	x.host.with(func() { x.host.calls = append(x.host.calls, name) })
}

// result turns an error into the result of a host call, and remembers it for
// the error function.
func (x *exchange) result(n int, err error) int32 {
	if err == nil {
		return int32(n)
	}
	x.failure = abi.Failure{Code: abi.CodeOf(err), Text: err.Error()}
	if e, ok := errors.AsType[*edge.CallError](err); ok {
		x.failure = abi.Failure{
			Code: e.Code, RetryAfter: int64(e.RetryAfter), Revision: uint64(e.Revision), Text: e.Detail,
		}
	}
	return int32(x.failure.Code)
}

// copyOut gives a value to a buffer that may be too small for it.
func copyOut[T string | []byte](p []byte, value T) int {
	if len(value) <= len(p) {
		copy(p, value)
	}
	return len(value)
}

// add makes a handle.
func (x *exchange) add(v any) (int, error) {
	if len(x.handles)+abi.HandleFunctionLease >= abi.MaxHandles {
		return 0, refusal(abi.Overloaded, "too many handles")
	}
	h := x.next
	x.next++
	x.handles[h] = v
	return int(h), nil
}

// handle returns what a handle stands for.
func handle[T any](x *exchange, h int32) (v T, err error) {
	known, ok := x.handles[h]
	if v, is := known.(T); is {
		return v, nil
	}
	if ok || h == abi.HandleRequestBody || h == abi.HandleResponseBody {
		return v, refusal(abi.Invalid, "the handle is of another kind")
	}
	return v, refusal(abi.NotFound, "no such handle")
}

// flags checks a flags argument.
func flagsKnown(flags uint32) error {
	if flags&^abi.FlagNoBlock != 0 {
		return refusal(abi.Unsupported, "undefined flags")
	}
	return nil
}

// named checks names that must not be empty.
func named(names ...string) error {
	for _, name := range names {
		if name == "" || len(name) > abi.MaxName {
			return refusal(abi.Invalid, "a name is empty or too long")
		}
	}
	return nil
}

func refusal(code abi.Code, text string) error { return &edge.CallError{Code: code, Detail: text} }

// alive fails once nobody waits for the response any more.
func (x *exchange) alive() (err error) {
	x.host.with(func() {
		switch {
		case x.host.status.Canceled:
			err = refusal(abi.Canceled, "the client went away")
		case x.host.status.Answered:
			err = refusal(abi.DeadlineExceeded, "the client has been answered")
		}
	})
	return err
}

// Error implements host.Functions.
func (x *exchange) Error(p []byte) int32 {
	x.called("error")
	return int32(copyOut(p, abi.AppendFailure(nil, x.failure)))
}

// Status implements host.Functions.
func (x *exchange) Status(out *host.Status) int32 {
	x.called("status")
	var s edge.Status
	x.host.with(func() { s = x.host.status })
	*out = host.Status{RemainingNanos: int64(s.Remaining), LateNanos: int64(s.Late), Fuel: s.Fuel}
	for flag, set := range map[uint32]bool{
		abi.StatusCanceled: s.Canceled, abi.StatusLate: s.Answered, abi.StatusLeaseLost: s.LeaseLost,
	} {
		if set {
			out.Flags |= flag
		}
	}
	return 0
}

// Log implements host.Functions.
func (x *exchange) Log(level int32, line []byte) int32 {
	x.called("log")
	entry := Log{slog.Level(level), string(line[:min(len(line), abi.MaxLogLine)])}
	x.host.tb.Logf("%v %s", entry.Level, entry.Line)
	x.host.with(func() { x.host.logs = append(x.host.logs, entry) })
	return 0
}

// Config implements host.Functions.
func (x *exchange) Config(kind int32, name string, p []byte) int32 {
	x.called("config")
	value, err := x.host.config(kind, name)
	return x.result(copyOut(p, value), err)
}

// RequestHead implements host.Functions.
func (x *exchange) RequestHead(p []byte) int32 {
	x.called("request_head")
	return x.result(copyOut(p, x.head), x.alive())
}

// Read implements host.Functions.
func (x *exchange) Read(h int32, p []byte, flags uint32) int32 {
	x.called("read")
	err := flagsKnown(flags)
	if err == nil && len(p) == 0 {
		err = refusal(abi.Invalid, "no room")
	}
	r := &x.read
	if err == nil && h != abi.HandleRequestBody {
		var c *call
		if c, err = handle[*call](x, h); err == nil {
			r, err = c.answer()
		}
	} else if err == nil {
		err = x.alive()
	}
	if err != nil {
		return x.result(0, err)
	}
	return x.result(r.take(p))
}

// Write implements host.Functions.
func (x *exchange) Write(h int32, p []byte, flags uint32) int32 {
	x.called("write")
	if err := flagsKnown(flags); err != nil {
		return x.result(0, err)
	}
	p = p[:min(len(p), maxChunk)]
	if h == abi.HandleResponseBody {
		return x.result(x.respond(p))
	}
	c, err := handle[*call](x, h)
	if err != nil {
		return x.result(0, err)
	}
	return x.result(c.write(p))
}

// Flush implements host.Functions.
func (x *exchange) Flush(h int32) int32 {
	x.called("flush")
	if h == abi.HandleResponseBody {
		return x.result(0, x.flush())
	}
	_, err := handle[*call](x, h)
	return x.result(0, err)
}

// Finish implements host.Functions.
func (x *exchange) Finish(h int32, trailers []byte) int32 {
	x.called("finish")
	header, err := parseHeader(trailers)
	if err != nil {
		return x.result(0, err)
	}
	if h == abi.HandleResponseBody {
		return x.result(0, x.finish(header))
	}
	c, err := handle[*call](x, h)
	if err == nil {
		err = c.finish(header)
	}
	return x.result(0, err)
}

// Trailers implements host.Functions.
func (x *exchange) Trailers(h int32, p []byte) int32 {
	x.called("trailers")
	r, trailer := &x.read, x.request.Trailer
	if h != abi.HandleRequestBody {
		c, err := handle[*call](x, h)
		if err != nil {
			return x.result(0, err)
		}
		r, trailer = &c.reader, c.trailer
	}
	if !r.ended {
		return x.result(0, refusal(abi.Conflict, "the body has not been read to its end"))
	}
	return x.result(copyOut(p, appendHeader(nil, trailer)), nil)
}

// Close implements host.Functions.
func (x *exchange) Close(h int32) int32 {
	x.called("close")
	_, known := x.handles[h]
	switch {
	case h == abi.HandleRequestBody:
		x.read.ended = true
	case h == abi.HandleResponseBody:
		x.broken = true
	case !known:
		return x.result(0, refusal(abi.NotFound, "no such handle"))
	case h == abi.HandleFunctionLease:
		return x.result(0, refusal(abi.Invalid, "the function's lease is the host's"))
	default:
		x.drop(h)
	}
	return 0
}

// drop cancels or releases what a handle stands for.
func (x *exchange) drop(h int32) {
	if g, ok := x.handles[h].(*grant); ok {
		_ = x.host.release(g) // a lease that was lost needs no release
	}
	delete(x.handles, h)
}
