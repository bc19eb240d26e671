package egress

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
)

// A once is a transport that sends a request at most once. The one of net/http
// sends idempotent requests, and those with an Idempotency-Key, again if a kept
// connection breaks before the answer, as often as there are kept connections,
// and nobody learns of it. It does so only for requests that it can repeat:
// without a body, or with GetBody. Over HTTP/2 it only repeats streams that the
// server says it has not processed, which is no second sending, and a request
// without a body is to end with its head.
type once struct {
	*http.Transport
	streams *atomic.Bool // the server speaks HTTP/2
}

// RoundTrip implements http.RoundTripper.
func (t once) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.WithContext(req.Context())
	out.GetBody = nil
	if bodiless := req.Body == nil || req.Body == http.NoBody; bodiless && !t.streams.Load() {
		switch req.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			out.Body = empty{} // net/http reads it before it writes the head, which says nothing of it
		default:
			out.Header = respelled(req.Header)
		}
	}
	resp, err := t.Transport.RoundTrip(out)
	if err == nil && resp.ProtoMajor == 2 {
		t.streams.Store(true)
	}
	return resp, err
}

// respelled spells the fields by which net/http knows repeatable requests in a
// way that only it minds: field names are case-insensitive (RFC 9110, section
// 5.1).
func respelled(header http.Header) http.Header {
	out := header
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		values, ok := header[name]
		if !ok {
			continue
		}
		out = maps.Clone(out)
		delete(out, name)
		out[strings.ToLower(name)] = values
	}
	return out
}

// empty is a body without content.
type empty struct{}

// Read implements io.Reader.
func (empty) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (empty) Close() error { return nil }
