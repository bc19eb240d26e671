package edgehttp

import (
	"crypto/tls"
	"io"
	"net/http"

	"github.com/edgehost/edgehost/guests/edge"
)

// newRequest returns the request as a server of net/http would pass it.
func newRequest(r *edge.Request) *http.Request {
	req := new(http.Request).WithContext(r.Context())
	req.Header = header(r.Header()) // first: what is decoded after it costs no allocation
	req.Method = r.Method
	req.URL = r.URL()
	req.RequestURI = r.Target()
	req.Proto, req.ProtoMajor, req.ProtoMinor = protocol(r.Protocol())
	req.Host = r.Host()
	req.RemoteAddr = r.RemoteAddr()
	if r.Scheme() == "https" {
		req.TLS = &tls.ConnectionState{HandshakeComplete: true}
	}
	req.Pattern = r.Route()
	for name, value := range r.PathValues() {
		req.SetPathValue(name, value)
	}
	req.ContentLength = r.ContentLength()
	req.Body = http.NoBody
	if req.ContentLength != 0 {
		req.Trailer = http.Header{}
		req.Body = &body{ReadCloser: readCloser(r.Body), trailer: r.Trailer, into: req.Trailer}
	}
	return req
}

// protocol reads a protocol such as "HTTP/1.1".
func protocol(text string) (proto string, major, minor int) {
	major, minor, _ = http.ParseHTTPVersion(text) // zero, as net/http has it, for another protocol
	return text, major, minor
}

// header returns a copy of the fields. Values of one field share their memory with
// those of the others, as net/http has it.
func header(from *edge.Header) http.Header {
	h := make(http.Header, from.Len())
	values := make([]string, 0, from.Len())
	for name, value := range from.All() {
		key := http.CanonicalHeaderKey(name)
		if list, ok := h[key]; ok {
			h[key] = append(list, value)
			continue
		}
		values = append(values, value)
		n := len(values)
		h[key] = values[n-1 : n : n]
	}
	return h
}

// readCloser gives a body the Close that it may lack after a middleware has
// replaced it.
func readCloser(r io.Reader) io.ReadCloser {
	if rc, ok := r.(io.ReadCloser); ok {
		return rc
	}
	return io.NopCloser(r)
}

// A body fills in the trailers when it has been read to its end. The map is there
// before, so that shallow copies of the message see them as well.
type body struct {
	io.ReadCloser
	trailer func() (*edge.Header, error) // nil once asked
	into    http.Header
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != io.EOF || b.trailer == nil {
		return n, err
	}
	trailer, failed := b.trailer()
	b.trailer = nil
	if failed == nil { // a host without trailers says that it has none
		for name, value := range trailer.All() {
			b.into.Add(name, value)
		}
	}
	return n, err
}
