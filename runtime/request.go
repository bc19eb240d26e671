package runtime

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// appendRequest encodes the head of a request for the guest.
func appendRequest(b []byte, r *http.Request, id string, route *route) []byte {
	target, scheme := r.RequestURI, "http"
	if !strings.HasPrefix(target, "/") {
		target = r.URL.RequestURI() // a proxy's form of the target, or none
	}
	if r.TLS != nil {
		scheme = "https"
	}
	b = abi.AppendText(b, abi.FieldMethod, r.Method)
	b = abi.AppendText(b, abi.FieldTarget, target)
	b = abi.AppendText(b, abi.FieldProtocol, r.Proto)
	b = abi.AppendText(b, abi.FieldRemote, r.RemoteAddr)
	b = abi.AppendText(b, abi.FieldHost, r.Host)
	b = abi.AppendText(b, abi.FieldScheme, scheme)
	b = abi.AppendText(b, abi.FieldRequestID, id)
	b = abi.AppendText(b, abi.FieldRoute, route.pattern)
	for _, name := range route.wildcards {
		b = abi.AppendPair(b, abi.FieldPathValue, name, r.PathValue(name))
	}
	if r.ContentLength >= 0 {
		b = abi.AppendNumber(b, abi.FieldContentLength, uint64(r.ContentLength))
	}
	return appendHeader(b, r.Header)
}

// requestHead returns the encoded head, which stays valid for the request.
func (x *exchange) requestHead() ([]byte, error) {
	if x.encoded {
		return x.scratch, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.r == nil {
		return nil, x.over
	}
	x.scratch = appendRequest(x.scratch[:0], x.r, x.id, x.route)
	x.encoded = true
	return x.scratch, nil
}

var (
	errBodyLimit = fmt.Errorf("request body is larger than its limit: %w", abi.TooLarge)
	errEarly     = fmt.Errorf("trailers come after the end of the body: %w", abi.Conflict)
)

// requestBody is handle 1. The guest reads straight from the connection, into
// its own memory, until it asks not to be blocked: from then on a goroutine
// reads ahead into a pipe.
type requestBody struct {
	x        *exchange
	body     io.ReadCloser
	left     int64 // bytes until the limit
	exceeded bool
	drained  atomic.Bool // the connection has no more of it; a deadline for it would hit the next request
	end      error       // what every read returns from now on
	ahead    *pipe
}

func (b *requestBody) reset(r *http.Request) {
	b.body, b.left = r.Body, b.x.inst.function.cfg.MaxRequestBody
	b.exceeded, b.end, b.ahead = false, nil, nil
	b.drained.Store(r.ContentLength == 0)
	if r.ContentLength == 0 || r.Body == nil {
		b.end = io.EOF
	}
}

func (b *requestBody) read(dst []byte, noBlock bool) (int, error) {
	switch {
	case b.end != nil:
		return 0, b.end
	case noBlock || b.ahead != nil:
		b.readAhead()
		n, err := readPipe(b.x, b.ahead, dst, noBlock)
		if err != nil && !errors.Is(err, abi.Again) {
			b.end = err
		}
		return n, err
	}
	n, err := b.fetch(dst)
	if b.end = err; n > 0 {
		return n, nil
	}
	return 0, err
}

// fetch reads from the connection at least one byte, or an error.
func (b *requestBody) fetch(dst []byte) (int, error) {
	if err := b.x.claim(reading); err != nil {
		return 0, err
	}
	n, err := 0, error(nil)
	for n == 0 && err == nil {
		n, err = b.body.Read(dst)
	}
	if errors.Is(err, io.EOF) {
		b.drained.Store(true)
	}
	b.x.done(reading)
	if b.left -= int64(n); b.left < 0 {
		b.exceeded = true
		return 0, errBodyLimit
	}
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if gone := b.x.gone(); gone != nil {
		return n, gone
	}
	return n, fmt.Errorf("request body: %w: %w", abi.Canceled, err)
}

func (b *requestBody) readAhead() {
	if b.ahead != nil {
		return
	}
	b.ahead = newPipe(b.x.signal)
	b.x.tasks.Go(func() {
		buffer := make([]byte, pipeSize/2)
		for {
			n, err := b.fetch(buffer)
			if _, closed := b.ahead.Write(buffer[:n]); closed != nil {
				return
			}
			if err != nil {
				b.ahead.finish(err)
				return
			}
		}
	})
}

// settle ends the goroutine that reads ahead, unless it is blocked in a read. If
// the client is slow to send what nobody wants any more, the connection cannot be
// used again.
func (b *requestBody) settle() { b.ahead.close(abi.Canceled) }

func (b *requestBody) ready(interest uint32) (uint32, error) {
	if interest&abi.WaitWrite != 0 {
		return 0, errKind
	}
	if b.end == nil && b.x.gone() == nil {
		b.readAhead()
		if read, _ := b.ahead.ready(); !read {
			return 0, nil
		}
	}
	return abi.WaitRead, nil
}

// drop discards the rest of the body.
func (b *requestBody) drop() { b.end = abi.NotFound }

// trailers returns the fields after the body, which must have been read.
func (b *requestBody) trailers() (http.Header, error) {
	if !errors.Is(b.end, io.EOF) {
		return nil, errEarly
	}
	_, r, err := b.x.connection()
	if err != nil {
		return nil, err
	}
	defer b.x.mu.Unlock()
	return r.Trailer.Clone(), nil
}

// readPipe reads what there is, or blocks until there is something.
func readPipe(x *exchange, p *pipe, dst []byte, noBlock bool) (n int, err error) {
	if noBlock {
		if n, err = p.tryRead(dst); n == 0 && err == nil {
			err = abi.Again
		}
		return n, err
	}
	err = x.await(func() (bool, error) {
		var failed error
		n, failed = p.tryRead(dst)
		return n > 0, failed
	})
	return n, err
}

// writePipe writes what there is room for, or blocks until there is some.
func writePipe(x *exchange, p *pipe, src []byte, noBlock bool) (n int, err error) {
	if noBlock {
		if n, err = p.tryWrite(src); n == 0 && err == nil && len(src) > 0 {
			err = abi.Again
		}
		return n, err
	}
	err = x.await(func() (bool, error) {
		var failed error
		n, failed = p.tryWrite(src)
		return n > 0 || len(src) == 0, failed
	})
	return n, err
}

// quiesce brings the request to its end before its answer begins.
func (x *exchange) quiesce(a *arrival) {
	if !x.request.drained.Load() {
		quiesce(a.w, a.r)
	}
}

const (
	drainBytes    = 256 << 10 // of a request that are read to keep its connection, like in net/http
	drainPatience = 50 * time.Millisecond
)

// quiesce brings a request to its end before its answer begins. By itself HTTP/1
// reads the rest of the body then, for as long as the client likes to take. Here
// the client gets a moment, or its connection ends with the answer. HTTP/2 needs
// nothing of this.
func quiesce(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 || len(r.Header["Expect"]) > 0 || r.ContentLength > drainBytes {
		return
	}
	control, begun := http.NewResponseController(w), time.Now()
	if control.SetReadDeadline(begun.Add(drainPatience)) != nil {
		return
	}
	_, err := io.CopyN(io.Discard, r.Body, drainBytes+1)
	if !errors.Is(err, io.EOF) {
		stopReading(w, r)
		return
	}
	_ = control.SetReadDeadline(time.Time{})
	if time.Since(begun) > drainPatience/2 {
		// At its end net/http goes on reading, to notice when the client goes away,
		// and for that the deadline may have passed.
		closeAfter(w)
	}
}

// stopReading gives up the rest of a request, and its connection.
func stopReading(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		closeAfter(w)
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}
}

// closeAfter makes net/http close the connection after the answer, even if its
// head has been sent: in that case a header field would come too late, and the
// rest of the request would be taken for the next one. Exceeding a limit is the
// way there is.
func closeAfter(w http.ResponseWriter) {
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}
