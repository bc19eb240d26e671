package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// holdBack is how much of an answer waits for the guest's end: if the guest
// fails until then, the client gets a proper failure in its place, and a short
// answer gets its Content-Length.
const holdBack = 8 << 10

// A response is the answer that a guest gives, and handle 2. Its fields belong
// to the guest's goroutine, except for sent, which the exchange's lock guards.
type response struct {
	x        *exchange
	toHead   bool // the request's method is HEAD
	bodiless bool // a HEAD request, or a status that has no body
	status   int  // of the final head; zero until the guest has given it
	length   int64
	held     []byte // the beginning of the body
	sent     bool   // the head has gone out
	size     int64  // bytes of the body
	ended    bool
	trailers http.Header
	failed   *failedAnswer // in place of an answer
	duplex   bool          // the answer begins before the request has ended
	ahead    *pipe         // the body, once the guest asked not to be blocked
}

// A failedAnswer is what a guest reported with response_fail.
type failedAnswer struct {
	code       abi.Code
	retryAfter time.Duration
	text       string
}

var (
	errTwice         = fmt.Errorf("the answer has been given already: %w", abi.Conflict)
	errNoHead        = fmt.Errorf("the answer has no head yet: %w", abi.Conflict)
	errEnded         = fmt.Errorf("the body has ended: %w", abi.Conflict)
	errStatus        = fmt.Errorf("status is not one that a function may answer: %w", abi.Invalid)
	errLength        = fmt.Errorf("body is not as long as its Content-Length says: %w", abi.Invalid)
	errResponseLimit = fmt.Errorf("answer is larger than its limit: %w", abi.TooLarge)
	errNoAnswer      = errors.New("runtime: the guest returned without an answer")
	errDropped       = errors.New("runtime: the guest broke its answer off")
)

func (p *response) reset(r *http.Request) {
	toHead := r.Method == http.MethodHead
	*p = response{x: p.x, held: p.held[:0], length: -1, toHead: toHead, bodiless: toHead}
}

// head takes the head of the answer, or an informational one.
func (p *response) head(status int, record []byte) error {
	switch {
	case p.failed != nil:
		return errTwice
	case status < 100 || status > 599 || status == http.StatusSwitchingProtocols:
		return errStatus
	case p.status != 0 && status >= 200:
		return p.violated(errTwice)
	case p.status != 0:
		return errTwice
	}
	f, err := parseFields(record, p.x.inst.function.cfg.MaxHeader)
	if err != nil {
		return err
	}
	if status < 200 {
		return p.inform(status, f)
	}
	w, _, err := p.x.connection()
	if err != nil {
		return err
	}
	f.addTo(w.Header(), notInAnswer)
	p.x.mu.Unlock()
	p.status, p.length = status, f.length
	p.bodiless = p.bodiless || status == http.StatusNoContent || status == http.StatusNotModified
	return nil
}

// violated records that the guest has failed, and returns err.
func (p *response) violated(err error) error {
	p.x.fault(fmt.Errorf("runtime: %w", err))
	return err
}

// inform sends an informational head (RFC 9110, section 15.2) at once.
func (p *response) inform(status int, f fields) error {
	if err := p.x.claim(writing); err != nil {
		return err
	}
	defer p.x.done(writing)
	if !p.x.r.ProtoAtLeast(1, 1) {
		return nil
	}
	h := p.x.w.Header()
	id := h["X-Request-Id"]
	delete(h, "X-Request-Id")
	f.addTo(h, notInTrailers)
	p.x.w.WriteHeader(status)
	clear(h)
	h["X-Request-Id"] = id
	return nil
}

// fail takes a failure in place of an answer that is not committed.
func (p *response) fail(f failedAnswer) error {
	if p.ahead != nil || p.sent || p.failed != nil {
		return errTwice
	}
	w, _, err := p.x.connection()
	if err != nil {
		return err
	}
	h := w.Header()
	id := h["X-Request-Id"]
	clear(h)
	h["X-Request-Id"] = id
	p.x.mu.Unlock()
	p.failed = &f
	return nil
}

// headed says why the body cannot be written to or flushed.
func (p *response) headed() error {
	switch {
	case p.failed != nil:
		return errTwice
	case p.status == 0:
		return errNoHead
	}
	return nil
}

// write takes bytes of the body, and returns how many.
func (p *response) write(src []byte, noBlock bool) (int, error) {
	if err := p.headed(); err != nil {
		return 0, err
	}
	if p.ended {
		return 0, errEnded
	}
	if err := p.x.gone(); err != nil || len(src) == 0 {
		return 0, err
	}
	size := p.size + int64(len(src))
	switch {
	case p.bodiless:
		p.size = size
		return len(src), nil
	case p.length >= 0 && size > p.length:
		return 0, errLength
	case size > p.x.inst.function.cfg.MaxResponseBody:
		return 0, p.violated(errResponseLimit)
	}
	n, err := p.take(src, noBlock)
	p.size += int64(n)
	return n, err
}

func (p *response) take(src []byte, noBlock bool) (int, error) {
	if p.ahead == nil && !p.sent && len(p.held)+len(src) <= holdBack {
		p.held = append(p.held, src...)
		return len(src), nil
	}
	if noBlock || p.ahead != nil {
		p.writeAhead()
		return writePipe(p.x, p.ahead, src, noBlock)
	}
	p.checkDuplex()
	if err := p.send(false); err != nil {
		return 0, err
	}
	return p.put(src)
}

// put writes to the connection.
func (p *response) put(src []byte) (int, error) {
	if err := p.x.claim(writing); err != nil {
		return 0, err
	}
	n, err := p.x.w.Write(p.owned(src))
	p.x.done(writing)
	if err == nil {
		return n, nil
	}
	if gone := p.x.gone(); gone != nil {
		return n, gone
	}
	return n, fmt.Errorf("response body: %w: %w", abi.Canceled, err)
}

// owned returns what may be given to the connection. With HTTP/2 the server may
// go on reading bytes after their Write has returned because the stream was
// reset, when the guest's memory may be gone and held be used for the next
// answer.
func (p *response) owned(src []byte) []byte {
	if p.x.r != nil && p.x.r.ProtoMajor > 1 {
		return bytes.Clone(src)
	}
	return src
}

// send sends the head and what is held back of the body. From here on the answer
// is committed; whole says that nothing follows.
func (p *response) send(whole bool) error {
	if p.sent {
		return nil
	}
	if err := p.x.claim(writing); err != nil {
		return err
	}
	p.x.mu.Lock()
	p.sent = true
	p.x.mu.Unlock()
	p.writeHead(p.x.w, whole)
	p.x.done(writing)
	if len(p.held) == 0 {
		return nil
	}
	_, err := p.put(p.held)
	p.held = p.held[:0]
	return err
}

// checkDuplex sees whether the request has not ended before the answer begins.
func (p *response) checkDuplex() {
	if !p.sent {
		p.duplex = p.x.request.end == nil
	}
}

// writeHead writes the head, with a Content-Length if the whole body is there.
func (p *response) writeHead(w http.ResponseWriter, whole bool) {
	h := w.Header()
	if whole && p.length < 0 && len(p.trailers) == 0 && (p.toHead || !p.bodiless) {
		h["Content-Length"] = []string{strconv.FormatInt(p.size, 10)}
	}
	if p.duplex && p.x.r != nil && p.x.r.ProtoMajor == 1 {
		// Without this, HTTP/1 reads the request to its end before it answers.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // no guessing: the guest says what it sends
	}
	w.WriteHeader(p.status)
}

// flush sends what there is.
func (p *response) flush() error {
	if err := p.headed(); err != nil {
		return err
	}
	if err := p.x.gone(); err != nil {
		return err
	}
	if p.ahead != nil {
		return nil // the goroutine flushes whenever it has caught up
	}
	p.checkDuplex()
	if err := p.send(p.ended); err != nil {
		return err
	}
	return p.flushNow()
}

func (p *response) flushNow() error {
	if err := p.x.claim(writing); err != nil {
		return err
	}
	defer p.x.done(writing)
	err := http.NewResponseController(p.x.w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil // it goes out at the end
	}
	return err
}

// finish ends the body. The record may hold trailers.
func (p *response) finish(record []byte) error {
	if err := p.headed(); err != nil {
		return err
	}
	switch {
	case p.ended:
		return errEnded
	case p.length >= 0 && p.size < p.length && !p.bodiless:
		return errLength
	}
	f, err := parseFields(record, p.x.inst.function.cfg.MaxHeader)
	if err != nil {
		return err
	}
	if err := p.x.gone(); err != nil {
		return err
	}
	if len(record) > 0 {
		p.trailers = make(http.Header)
		f.addTo(p.trailers, notInTrailers)
	}
	p.ended = true
	if p.ahead != nil {
		p.ahead.finish(io.EOF)
	}
	return nil
}

// writeAhead starts the goroutine that sends what the guest writes without
// blocking.
func (p *response) writeAhead() {
	if p.ahead != nil {
		return
	}
	p.checkDuplex()
	ahead := newPipe(p.x.signal)
	p.ahead = ahead
	p.x.tasks.Go(func() {
		err := p.send(false)
		buffer := make([]byte, pipeSize/2)
		for err == nil {
			var n int
			if n, err = ahead.Read(buffer); n > 0 {
				_, err = p.put(buffer[:n])
			}
			if more, _ := ahead.ready(); !more && err == nil {
				err = p.flushNow()
			}
		}
		ahead.close(err)
	})
}

// settle lets the goroutine that writes ahead come to its end. The deadline
// bounds that, as it bounds every write.
func (p *response) settle() {
	if p.ahead != nil {
		p.ahead.finish(io.EOF)
	}
}

// ready says whether a write would be taken at once. To be sure of that once the
// head is out, the answer is written ahead from then on.
func (p *response) ready(interest uint32) (uint32, error) {
	if interest&abi.WaitRead != 0 {
		return 0, errKind
	}
	if p.ahead == nil && !p.sent {
		return abi.WaitWrite, nil
	}
	p.writeAhead()
	if _, write := p.ahead.ready(); !write {
		return 0, nil
	}
	return abi.WaitWrite, nil
}

// drop breaks the answer off.
func (p *response) drop() { p.x.fault(errDropped) }

// deliver completes an answer after the guest has finished. An error means that
// the client did not get all of it.
func (p *response) deliver(w http.ResponseWriter) error {
	h := w.Header()
	for name, values := range p.trailers {
		h[http.TrailerPrefix+name] = values // before the head, so that it leaves room for them
	}
	if !p.sent {
		p.writeHead(w, true)
		p.sent = true
		if len(p.held) > 0 {
			if _, err := w.Write(p.owned(p.held)); err != nil {
				return fmt.Errorf("response body: %w: %w", abi.Canceled, err)
			}
		}
	}
	return nil
}

// check returns what is wrong with a complete answer.
func (p *response) check() error {
	switch {
	case p.failed != nil:
		return nil
	case p.status == 0:
		return errNoAnswer
	case p.length >= 0 && p.size < p.length && !p.bodiless:
		return fmt.Errorf("runtime: %w", errLength)
	}
	return nil
}
