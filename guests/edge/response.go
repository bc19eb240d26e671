package edge

import (
	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// responseBuffer is how much of a body waits for more, so that a small response
// costs two host calls. A host holds at least as much back itself.
const responseBuffer = 4 << 10

// A ResponseWriter is the answer to a request. Head and body are buffered until
// the body outgrows a few kilobytes, Flush is called, or the handler returns. A
// response without a Content-Length gets one from the host, if the host sees its
// end before it sends it.
type ResponseWriter struct {
	header  Header
	trailer Header
	status  int
	sent    bool   // the head is out
	failed  bool   // the answer is the host's
	body    []byte // not yet sent
	record  []byte // memory for heads
	err     error  // the first failure; final
}

// reset makes w ready for the next request.
func (w *ResponseWriter) reset() {
	w.header.reset()
	w.trailer.reset()
	*w = ResponseWriter{
		header: w.header, trailer: w.trailer,
		body: w.body[:0], record: w.record[:0],
	}
}

// Header returns the header fields that the head will carry. Changes after the
// head was sent have no effect. The host leaves out what belongs to the
// connection, such as Transfer-Encoding.
func (w *ResponseWriter) Header() *Header { return &w.header }

// Trailer returns the fields that follow the body. They may be set until the
// handler returns.
func (w *ResponseWriter) Trailer() *Header { return &w.trailer }

// WriteHeader sets the status, 200 to 599; without it, the first Write sets 200. A
// status below 200 is sent at once with the header fields so far, and another may
// follow. A second final status is logged and ignored.
func (w *ResponseWriter) WriteHeader(status int) {
	switch {
	case w.status != 0 || w.failed:
		Log.Warn("edge: superfluous WriteHeader", "status", status)
	case status < 200:
		_ = w.keep(w.sendHead(status))
	default:
		w.status = status
	}
}

// Write appends to the body. It fails after Error, and once the host refuses the
// response; then every later call returns the same error.
func (w *ResponseWriter) Write(p []byte) (int, error) { return write(w, p) }

// WriteString is Write for a string.
func (w *ResponseWriter) WriteString(s string) (int, error) { return write(w, s) }

func write[T string | []byte](w *ResponseWriter, p T) (int, error) {
	if err := w.writable(); err != nil {
		return 0, err
	}
	if len(w.body)+len(p) <= responseBuffer {
		if w.body == nil {
			w.body = make([]byte, 0, responseBuffer)
		}
		w.body = append(w.body, p...)
		return len(p), nil
	}
	if err := w.send(); err != nil {
		return 0, err
	}
	n, err := writeAll(abi.HandleResponseBody, []byte(p), "write response")
	return n, w.keep(err)
}

func (w *ResponseWriter) writable() error {
	if w.failed && w.err == nil {
		w.err = &CallError{Op: "write response", Code: Invalid, Detail: "the host has answered"}
	}
	if w.status == 0 {
		w.status = 200
	}
	return w.err
}

// Flush sends what is buffered to the client, the head first.
func (w *ResponseWriter) Flush() error {
	if err := w.writable(); err != nil {
		return err
	}
	if err := w.send(); err != nil {
		return err
	}
	return w.keep(check(host.Current().Flush(abi.HandleResponseBody), "flush response"))
}

// send gives the head and the buffered body to the host.
func (w *ResponseWriter) send() error {
	if !w.sent {
		w.sent = true
		if err := w.keep(w.sendHead(w.status)); err != nil {
			return err
		}
	}
	_, err := writeAll(abi.HandleResponseBody, w.body, "write response")
	w.body = w.body[:0]
	return w.keep(err)
}

func (w *ResponseWriter) sendHead(status int) error {
	w.record = w.header.append(w.record[:0])
	return check(host.Current().ResponseHead(int32(status), w.record, 0), "send response head")
}

// keep remembers the first failure.
func (w *ResponseWriter) keep(err error) error {
	if w.err == nil {
		w.err = err
	}
	return err
}

// Abort breaks the response off without a word in the guest's log: the client gets
// the host's answer for a failed function, or sees the connection end if a part of
// the response has gone out already. Later writes fail, and the instance is
// discarded.
func (w *ResponseWriter) Abort() {
	w.failed = true
	w.err = &CallError{Op: "write response", Code: Canceled, Detail: "aborted by the guest"}
	host.Current().Close(abi.HandleResponseBody)
}

// end completes the response after the handler has returned.
func (w *ResponseWriter) end() error {
	if w.failed {
		return nil
	}
	if err := w.writable(); err != nil {
		return err
	}
	if err := w.send(); err != nil || w.trailer.Len() == 0 {
		return err
	}
	w.record = w.trailer.append(w.record[:0])
	return w.keep(check(host.Current().Finish(abi.HandleResponseBody, w.record), "finish response"))
}

// fail leaves the answer to the host. One that cannot be taken back any more
// ends as a failure of the guest, and the host breaks it off.
func (w *ResponseWriter) fail(cause error) {
	if w.failed {
		return
	}
	if cause == nil {
		cause = Internal
	}
	code, retryAfter := int32(abi.CodeOf(cause)), millis(RetryAfter(cause))
	if err := check(host.Current().ResponseFail(code, retryAfter, cause.Error()), "respond"); err != nil {
		Log.Error("edge: response broken off", "error", cause)
		w.err = err
		return
	}
	w.failed = true
}
