package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/edgehost/edgehost/guests/abi"
)

// A countedConn counts the bytes written to it. The hooks of httptrace tell when
// a request was handed to a buffer, not when its first byte left, and only that
// decides whether the server can have seen it.
type countedConn struct {
	net.Conn
	written atomic.Int64
}

// counted wraps the result of a dial. A denial learns the name that was dialed.
func counted(conn net.Conn, address string, err error) (net.Conn, error) {
	if denied, ok := errors.AsType[*Error](err); ok {
		return nil, &Error{Kind: denied.Kind, Err: fmt.Errorf("%s: %w", address, denied.Err)}
	}
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn}, nil
}

// Write counts before it writes: the answer may come before Write has returned.
func (c *countedConn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// An attempt watches one request, over all its redirects. Its methods may be
// called by several goroutines.
type attempt struct {
	mu        sync.Mutex
	valid     bool         // the transport looked for a connection, so it accepts the request
	connected bool         // it got one
	sent      bool         // bytes were written to an earlier connection, or it cannot be known
	conn      *countedConn // the newest
	before    int64        // conn.written when the request got it
}

func (a *attempt) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { a.with(func() { a.valid = true }) },
		GotConn: func(info httptrace.GotConnInfo) { a.with(func() { a.got(info.Conn) }) },
	})
}

func (a *attempt) with(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// got notes the connection on which the request goes out next. Streams of HTTP/2
// share a connection, so that nothing can be told from its counter.
func (a *attempt) got(conn net.Conn) {
	a.sent = a.wrote()
	a.connected = true
	a.conn = nil
	switch c := conn.(type) {
	case *countedConn:
		a.conn = c
	case *tls.Conn:
		if c.ConnectionState().NegotiatedProtocol != "h2" {
			a.conn, _ = c.NetConn().(*countedConn)
		}
	}
	if a.conn == nil {
		a.sent = true
		return
	}
	a.before = a.conn.written.Load()
}

func (a *attempt) wrote() bool {
	return a.sent || a.conn != nil && a.conn.written.Load() != a.before
}

// failure classifies why there is no answer.
func (a *attempt) failure(ctx context.Context, err error) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, whose query may hold a secret
	}
	e := &Error{Sent: a.wrote(), Err: err}
	if inner, ok := errors.AsType[*Error](err); ok {
		e.Kind, e.Err = inner.Kind, inner.Err
		return e
	}
	if e.Kind, err = interruption(ctx); err != nil {
		e.Err = err
		return e
	}
	switch {
	case !a.valid:
		e.Kind = Invalid
	case e.Sent:
		e.Kind = AfterWrite
	case a.connected:
		e.Kind = BeforeWrite
	default:
		e.Kind = Connect
	}
	return e
}

// interruption returns how and why ctx ended, and no error if it has not.
func interruption(ctx context.Context) (Kind, error) {
	if ctx.Err() == nil {
		return 0, nil
	}
	cause := context.Cause(ctx)
	if abi.CodeOf(cause) == abi.DeadlineExceeded {
		return Timeout, cause
	}
	return Canceled, cause
}

// A body is the body of an answer.
type body struct {
	io.ReadCloser
	ctx context.Context
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if kind, cause := interruption(b.ctx); cause != nil {
		return n, &Error{Kind: kind, Sent: true, Err: cause}
	}
	return n, &Error{Kind: AfterWrite, Sent: true, Err: err}
}
