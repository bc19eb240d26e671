package edge

import (
	"io"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A body reads what the peer sends, as it arrives.
type body struct {
	handle int32
	op     string
	closed bool
	err    error // io.EOF or the failure, once there
}

// Read blocks until there are bytes, and returns io.EOF at the end.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	n := host.Current().Read(b.handle, p, 0)
	switch {
	case n > 0:
		return int(n), nil
	case n == 0:
		b.err = io.EOF
	default:
		b.err = failure(n, b.op)
	}
	return 0, b.err
}

// Close drops what has not been read. Only the first call does anything.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.err = &CallError{Op: b.op, Code: Invalid, Detail: "read after close"}
	return check(host.Current().Close(b.handle), b.op)
}

// trailer asks for the fields that followed the body.
func (b *body) trailer() (*Header, error) {
	fields, n := fill(nil, func(p []byte) int32 { return host.Current().Trailers(b.handle, p) })
	if n < 0 {
		return nil, failure(n, b.op)
	}
	h := new(Header)
	h.decode(&record{bytes: fields})
	return h, nil
}

// writeAll writes p to a body of the guest.
func writeAll(handle int32, p []byte, op string) (written int, err error) {
	for written < len(p) {
		n := host.Current().Write(handle, p[written:], 0)
		if n < 0 {
			return written, failure(n, op)
		}
		if n == 0 || int(n) > len(p)-written {
			return written, &CallError{Op: op, Code: abi.Internal, Detail: "the host took an impossible number of bytes"}
		}
		written += int(n)
	}
	return written, nil
}
