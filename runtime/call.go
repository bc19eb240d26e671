package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A call is an outbound request of a guest, and its handle. A goroutine makes
// it; the guest polls.
type call struct {
	x      *exchange
	cancel context.CancelCauseFunc
	up     *pipe // the body that the guest streams; nil without one
	down   *pipe // the answer's body

	mu      sync.Mutex // guards the following
	head    []byte     // the encoded head of the answer
	verdict error      // why there is none
	trailer http.Header

	ended    bool  // the guest has finished its body
	headSeen bool  // it has read the head
	end      error // what the guest's reads return from now on
}

var (
	_ source = (*call)(nil)
	_ sink   = (*call)(nil)
)

// A callRequest is what a guest asks for.
type callRequest struct {
	method, target string
	header         fields
	body           []byte // a copy
	timeout        time.Duration
	lease          *leaseHandle
}

var (
	errField  = fmt.Errorf("a field is missing, or there twice: %w", abi.Invalid)
	errMethod = fmt.Errorf("method is not a token: %w", abi.Invalid)
	errTime   = fmt.Errorf("a duration is out of range: %w", abi.Invalid)
)

// parseCall reads the record of fetch.
func parseCall(x *exchange, record []byte) (c callRequest, err error) {
	c.header = fields{record: record, length: -1}
	seen := make(map[abi.Tag]bool, 4)
	for rest := record; len(rest) > 0; {
		var f abi.Field
		if f, rest, err = abi.Next(rest); err != nil {
			return c, err
		}
		if f.Tag != abi.FieldHeader && seen[f.Tag] {
			return c, errField
		}
		seen[f.Tag] = true
		if err := c.set(x, f); err != nil {
			return c, err
		}
	}
	if !seen[abi.FieldMethod] || !seen[abi.FieldTarget] {
		return c, errField
	}
	return c, nil
}

func (c *callRequest) set(x *exchange, f abi.Field) (err error) {
	switch f.Tag {
	case abi.FieldMethod:
		if !validToken(f.Value) {
			return errMethod
		}
		c.method = string(f.Value)
	case abi.FieldTarget:
		c.target = string(f.Value)
	case abi.FieldHeader:
		name, value, err := f.Pair()
		if err != nil {
			return err
		}
		return c.header.check(name, value)
	case abi.FieldBody:
		c.body = append([]byte{}, f.Value...)
	case abi.FieldTimeout:
		c.timeout, err = duration(f)
	case abi.FieldLease:
		var number uint64
		if number, err = f.Number(); err == nil {
			c.lease, err = grantedLease(x, number)
		}
	default:
		return f.Unknown()
	}
	return err
}

// duration reads a number of nanoseconds.
func duration(f abi.Field) (time.Duration, error) {
	n, err := f.Number()
	if err != nil {
		return 0, err
	}
	if n > 1<<63-1 {
		return 0, errTime
	}
	return time.Duration(n), nil
}

// start starts the call. A nil dependency makes it a plain one.
func (c callRequest) start(x *exchange, d *dependency, streamed bool) (*call, error) {
	client, timeout := x.inst.function.plain, plainTimeout
	if d != nil {
		client, timeout = d.client, d.cfg.Timeout
	}
	if c.timeout > 0 {
		timeout = min(timeout, c.timeout)
	}
	made := &call{x: x, down: newPipe(x.signal)}
	whole := x.deadline
	if c.timeout > 0 {
		whole = earlier(whole, time.Now().Add(c.timeout))
	}
	var content io.Reader
	switch {
	case streamed:
		made.up = newPipe(x.signal)
		content = &upload{made.up}
	case c.body != nil:
		content = bytes.NewReader(c.body)
	}
	ctx, cancel := context.WithCancelCause(x.effort())
	ctx, release := context.WithDeadlineCause(ctx, x.deadline, abi.DeadlineExceeded)
	req, err := client.NewRequest(ctx, c.method, c.target, content)
	if err != nil {
		release()
		cancel(nil)
		return nil, err
	}
	c.header.addTo(req.Header, notInCall)
	made.cancel = cancel
	unbind := c.lease.bind(req, cancel)
	do := func() (*http.Response, error) { return limited(ctx, req, timeout, client.Do) }
	if d != nil {
		guarded := &guardedCall{dependency: d, req: req, timeout: timeout, whole: whole, owned: c.lease.lost, steps: stepsOf(x, d)}
		do = func() (*http.Response, error) { return guarded.do(ctx) }
	}
	x.tasks.Go(func() {
		defer release()
		defer unbind()
		made.run(ctx, do)
	})
	return made, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// plainTimeout bounds the time until the head of an answer to a call that has no
// dependency.
const plainTimeout = 10 * time.Second

// run makes the call and carries the answer to the guest.
func (c *call) run(ctx context.Context, do func() (*http.Response, error)) {
	response, err := do()
	if c.up != nil {
		defer c.up.close(abi.Conflict) // the guest may still be writing
	}
	if err != nil {
		c.settle(nil, err)
		c.down.finish(err)
		return
	}
	defer response.Body.Close() //nolint:errcheck // what matters was read before
	c.settle(appendAnswer(nil, response), nil)
	_, err = io.Copy(c.down, response.Body)
	switch {
	case err == nil:
		c.mu.Lock()
		c.trailer = response.Trailer
		c.mu.Unlock()
		err = io.EOF
	case ctx.Err() != nil:
		err = fmt.Errorf("runtime: %w", context.Cause(ctx))
	}
	c.down.finish(err)
}

// appendAnswer encodes the head of an answer.
func appendAnswer(b []byte, r *http.Response) []byte {
	b = abi.AppendNumber(b, abi.FieldStatus, uint64(r.StatusCode))
	b = abi.AppendText(b, abi.FieldProtocol, r.Proto)
	if r.ContentLength >= 0 {
		b = abi.AppendNumber(b, abi.FieldContentLength, uint64(r.ContentLength))
	}
	return appendHeader(b, r.Header)
}

func (c *call) settle(head []byte, verdict error) {
	c.mu.Lock()
	c.head, c.verdict = head, verdict
	c.mu.Unlock()
	c.x.signal()
}

// peek returns the head or the verdict, neither while the call goes on.
func (c *call) peek() ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head, c.verdict
}

// stage says which of the two there is.
func (c *call) stage() (headed, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head != nil, c.verdict != nil
}

// answer waits for the head.
func (c *call) answer(noBlock bool) (head []byte, err error) {
	if head, err = c.peek(); head == nil && err == nil && noBlock {
		return nil, abi.Again
	}
	err = c.x.await(func() (bool, error) {
		var verdict error
		head, verdict = c.peek()
		return head != nil, verdict
	})
	c.headSeen = true
	return head, err
}

func (c *call) read(dst []byte, noBlock bool) (int, error) {
	if c.end != nil {
		return 0, c.end
	}
	if _, err := c.answer(noBlock); err != nil {
		return 0, err
	}
	n, err := readPipe(c.x, c.down, dst, noBlock)
	if err != nil && !errors.Is(err, abi.Again) {
		c.end = err
	}
	return n, err
}

func (c *call) trailers() (http.Header, error) {
	if !errors.Is(c.end, io.EOF) {
		return nil, errEarly
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trailer, nil
}

func (c *call) write(src []byte, noBlock bool) (int, error) {
	if c.up == nil {
		return 0, errKind
	}
	if _, verdict := c.peek(); verdict != nil {
		return 0, verdict
	}
	n, err := writePipe(c.x, c.up, src, noBlock)
	if errors.Is(err, io.ErrClosedPipe) {
		err = errEnded
	}
	return n, err
}

func (c *call) flush() error {
	if c.up == nil {
		return errKind
	}
	return nil // what is in the pipe is on its way
}

// finish ends the streamed body. It has no trailers: a client of HTTP/1.1 would
// have had to announce them before it.
func (c *call) finish(record []byte) error {
	switch {
	case c.up == nil:
		return errKind
	case len(record) > 0:
		return errUpTrailers
	case c.ended:
		return errEnded
	}
	c.ended = true
	c.up.finish(io.EOF)
	return nil
}

var errUpTrailers = fmt.Errorf("a call has no trailers: %w", abi.Unsupported)

func (c *call) ready(interest uint32) (ready uint32, err error) {
	if interest&abi.WaitWrite != 0 && c.up == nil {
		return 0, errKind
	}
	headed, failed := c.stage()
	switch {
	case failed:
		return interest | abi.WaitFailed, nil
	case interest&abi.WaitRead != 0 && headed:
		if read, _ := c.down.ready(); read || !c.headSeen {
			ready |= abi.WaitRead
		}
	}
	if interest&abi.WaitWrite != 0 {
		if _, write := c.up.ready(); write {
			ready |= abi.WaitWrite
		}
	}
	return ready, nil
}

func (c *call) drop() {
	c.cancel(abi.Canceled)
	c.down.close(abi.Canceled)
	if c.up != nil {
		c.up.finish(abi.Canceled)
	}
}

// An upload is the body of a request that a guest streams.
type upload struct{ pipe *pipe }

// Read implements io.Reader.
func (u *upload) Read(b []byte) (int, error) { return u.pipe.Read(b) }

// Close implements io.Closer: the dependency does not want the rest.
func (u *upload) Close() error {
	u.pipe.close(abi.Conflict)
	return nil
}

var errDependency = fmt.Errorf("the function may not call this dependency: %w", abi.Denied)

// dependencyNamed returns a dependency that the function may use.
func (x *exchange) dependencyNamed(name []byte) (*dependency, error) {
	if len(name) > abi.MaxName {
		return nil, errName
	}
	d, ok := x.inst.function.dependencies[string(name)]
	if !ok {
		return nil, errDependency
	}
	return d, nil
}

func hostFetch(x *exchange, a []uint64) (int32, error) {
	name, err := x.inst.memory.view(uint32(a[0]), uint32(a[1]))
	if err != nil {
		return 0, err
	}
	record, err := guestRecord(x, a[2], a[3])
	if err != nil {
		return 0, err
	}
	if _, err := noBlock(a[5]); err != nil {
		return 0, err
	}
	mode := uint32(a[4])
	if mode > abi.BodyStream {
		return 0, abi.Unsupported
	}
	request, err := parseCall(x, record)
	if err != nil {
		return 0, err
	}
	if (mode == abi.BodyInline) != (request.body != nil) {
		return 0, errField
	}
	var d *dependency
	if len(name) > 0 {
		if d, err = x.dependencyNamed(name); err != nil {
			return 0, err
		}
	}
	if err := errors.Join(x.gone(), x.room()); err != nil {
		return 0, err
	}
	c, err := request.start(x, d, mode == abi.BodyStream)
	if err != nil {
		return 0, err
	}
	return x.add(c)
}

func hostFetchHead(x *exchange, a []uint64) (int32, error) {
	c, err := find[*call](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	now, err := noBlock(a[3])
	if err != nil {
		return 0, err
	}
	head, err := c.answer(now)
	if err != nil {
		return 0, err
	}
	return x.inst.memory.answer(uint32(a[1]), uint32(a[2]), head)
}
