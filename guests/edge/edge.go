// Package edge is the Go SDK for functions that edgehost runs.
//
// A function is a Wasm reactor built with the standard Go toolchain:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o hello.wasm .
//
// Its main does not run. An init function registers the handler, and the host
// calls it for every request, one at a time per instance:
//
//	func init() {
//		edge.Handle(func(w *edge.ResponseWriter, r *edge.Request) {
//			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
//			io.WriteString(w, "hello, "+r.PathValue("name"))
//		})
//	}
//
//	func main() {}
//
// # Errors
//
// Every error that comes from the host unwraps to a [Code], which says what its
// receiver can do: errors.Is(err, edge.Deferred). [RetryAfter] and
// [CurrentRevision] give what else the host knows, and [Error] lets the host
// answer the client.
//
// # Blocking
//
// An instance has one thread. A call that waits for the host (reading a body,
// fetching, acquiring a lease) stops all goroutines of the guest until it
// returns; to have several calls under way, use [Start]. A goroutine that still
// runs when the handler returns would be frozen until the next request, so the
// host discards such an instance.
//
// # Testing
//
// Outside of Wasm the package compiles against a fake host: package edgetest
// serves requests to the handler in a plain go test. Without either, every
// host call fails with Unsupported.
package edge

import (
	"fmt"
	goruntime "runtime"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Handler answers one request. Neither w nor r may be used after it has
// returned. One that returns without having written answers 200 with an empty
// body.
type Handler func(w *ResponseWriter, r *Request)

// Handle registers the guest's handler, from an init function. The last
// registration counts. If the handler panics, the stack goes to the log, the
// client gets the host's answer for a failed function, and the instance is
// discarded.
func Handle(h Handler) {
	host.Register((&instance{handler: h}).serve)
}

const (
	headSize  = 4 << 10 // room for most request heads at the first call
	stackSize = 8 << 10 // of a panic, in the log
)

// An instance serves the requests of one guest, one after another, and keeps
// the memory of each for the next.
type instance struct {
	handler  Handler
	request  Request
	response ResponseWriter
}

// serve is edgehost_handle.
func (in *instance) serve() (result int32) {
	goroutines := host.Goroutines()
	defer func() {
		in.request.end()
		if v := recover(); v != nil {
			logPanic(v)
			result = int32(abi.Internal)
		}
	}()
	if err := in.request.receive(); err != nil {
		return in.failed(err)
	}
	in.response.reset()
	in.handler(&in.response, &in.request)
	if err := in.response.end(); err != nil {
		return in.failed(err)
	}
	if host.LeftOver(goroutines) {
		Log.Warn("edge: goroutines are left running, so the instance is discarded")
		return abi.HandleRetire
	}
	return abi.HandleDone
}

// failed returns the result for an exchange that the host broke off. A client
// that went away or was answered at the deadline is no fault of the guest.
func (in *instance) failed(err error) int32 {
	code := abi.CodeOf(err)
	if code == abi.Canceled || code == abi.DeadlineExceeded {
		return abi.HandleDone
	}
	Log.Error("edge: the exchange with the client failed", "error", err)
	return int32(code)
}

func logPanic(v any) {
	stack := make([]byte, stackSize)
	stack = stack[:goruntime.Stack(stack, false)]
	host.Current().Log(abi.LogError, fmt.Appendf(nil, "edge: handler panicked: %v\n%s", v, stack))
}

// fill calls a host function that copies into a buffer, with a larger buffer
// until the result fits, and returns the filled part.
func fill(buf []byte, call func([]byte) int32) ([]byte, int32) {
	for {
		n := call(buf[:cap(buf)])
		if n < 0 {
			return buf[:0], n
		}
		if int(n) <= cap(buf) {
			return buf[:n], n
		}
		buf = make([]byte, n)
	}
}
