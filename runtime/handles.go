package runtime

import (
	"fmt"
	"net/http"

	"github.com/edgehost/edgehost/guests/abi"
)

// A handle is something that belongs to a request and ends with it.
type handle interface {
	// ready returns which of the interests a call would serve at once.
	ready(interest uint32) (uint32, error)
	// drop cancels or releases what the handle stands for, without waiting.
	drop()
}

// A source is a handle to read a body from.
type source interface {
	handle
	read(dst []byte, noBlock bool) (int, error)
	trailers() (http.Header, error)
}

// A sink is a handle to write a body to.
type sink interface {
	handle
	write(src []byte, noBlock bool) (int, error)
	flush() error
	finish(trailers []byte) error
}

var (
	errHandle  = fmt.Errorf("there is no such handle: %w", abi.NotFound)
	errKind    = fmt.Errorf("the handle is of another kind: %w", abi.Invalid)
	errHandles = fmt.Errorf("too many handles are open: %w", abi.Overloaded)
)

// fixedHandles is the number of handles that every request has.
const fixedHandles = 3

// handles are the open handles of a request.
type handles struct {
	given  int32 // numbers are not used twice in a request
	open   map[int32]handle
	closed [fixedHandles + 1]bool
}

// add opens a handle.
func (x *exchange) add(h handle) (int32, error) {
	if err := x.room(); err != nil {
		return 0, err
	}
	if x.handles.open == nil {
		x.handles.open = make(map[int32]handle)
	}
	x.handles.given++
	number := fixedHandles + x.handles.given
	x.handles.open[number] = h
	return number, nil
}

// room says whether another handle may be opened. It comes before the effect
// that the handle stands for.
func (x *exchange) room() error {
	if len(x.handles.open) >= min(x.inst.function.cfg.MaxCalls, abi.MaxHandles-fixedHandles) {
		return errHandles
	}
	return nil
}

// lookup returns an open handle.
func (x *exchange) lookup(number uint32) (handle, error) {
	if number <= fixedHandles && x.handles.closed[number] {
		return nil, errHandle
	}
	switch number {
	case abi.HandleRequestBody:
		return &x.request, nil
	case abi.HandleResponseBody:
		return &x.response, nil
	}
	if h, ok := x.handles.open[int32(number)]; ok {
		return h, nil
	}
	return nil, errHandle
}

// find returns an open handle of one kind.
func find[T handle](x *exchange, number uint32) (kind T, err error) {
	h, err := x.lookup(number)
	if err != nil {
		return kind, err
	}
	kind, ok := h.(T)
	if !ok {
		return kind, errKind
	}
	return kind, nil
}

// forget takes a handle out of the table.
func (x *exchange) forget(number uint32) {
	if number <= fixedHandles {
		x.handles.closed[number] = true
		return
	}
	delete(x.handles.open, int32(number))
}

// drop drops all handles at the end of the request.
func (h *handles) drop() {
	for number, handle := range h.open {
		handle.drop()
		delete(h.open, number)
	}
	h.given, h.closed = 0, [fixedHandles + 1]bool{}
}
