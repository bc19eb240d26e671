package edgehttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
)

// Transport returns a RoundTripper whose requests are calls to the dependency,
// guarded as with edge.Dependency.Fetch. Errors are those of Fetch; through the
// *url.Error of an [http.Client] they still answer errors.Is(err, edge.Deferred),
// and context.DeadlineExceeded when the time was over.
//
// Path and query of a request's URL are joined to the dependency's url in the
// manifest. The URL has no host, as in "/charge", or the dependency's name in its
// place, as in "http://payments/charge"; the scheme, http or https, says nothing.
// A request to any other host fails with edge.Invalid, and nothing is sent.
//
// With an empty dependency the calls are plain: URLs are absolute and their hosts
// among the manifest's allow_hosts, as with edge.Fetch.
//
// The deadline of the request's context bounds the time until the response's head
// is there. That the context has ended is noticed before the call and between
// reads of the response's body, since nothing interrupts a guest that waits.
// WithLease sends calls under a lease.
//
// A body of known length up to about 256 KiB is read before the call, so that the
// host can repeat it; any other is streamed. The host follows redirects and sets
// Host, whatever the request says. Content codings are neither asked for nor
// undone. A request with trailers fails with edge.Unsupported.
func Transport(dependency edge.Dependency) http.RoundTripper { return transport(dependency) }

type leaseKey struct{}

// WithLease returns a context whose requests Transport sends under the lease: they
// carry its fence to the dependency and fail with edge.LeaseLost once it is lost.
func WithLease(ctx context.Context, lease *edge.Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

type transport edge.Dependency

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	call, err := t.request(r)
	if err != nil {
		return nil, err
	}
	response, err := edge.Dependency(t).Fetch(call)
	if err != nil {
		return nil, err
	}
	return newResponse(r, response), nil
}

// request returns the call that the request stands for.
func (t transport) request(r *http.Request) (*edge.Request, error) {
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	target, err := t.target(r.URL)
	if err != nil {
		return nil, err
	}
	if len(r.Trailer) > 0 {
		return nil, t.refusal(edge.Unsupported, "a call cannot have trailers")
	}
	content, err := outgoing(r)
	if err != nil {
		return nil, err
	}
	call, err := edge.NewRequest(methodOf(r), target, content)
	if err != nil {
		return nil, err
	}
	for name, values := range r.Header {
		for _, value := range values {
			call.Header().Add(name, value)
		}
	}
	if deadline, ok := ctx.Deadline(); ok {
		call.Timeout = max(time.Nanosecond, time.Until(deadline)) // zero would be no bound at all
	}
	call.Lease, _ = ctx.Value(leaseKey{}).(*edge.Lease)
	return call, nil
}

// target returns what the host is told of a URL.
func (t transport) target(u *url.URL) (string, error) {
	switch web := u != nil && (u.Scheme == "http" || u.Scheme == "https"); {
	case u == nil:
		return "", t.refusal(edge.Invalid, "the request has no URL")
	case t == "" && (!web || u.Host == ""):
		return "", t.refusal(edge.Invalid, "a plain call needs an absolute http or https URL, not "+u.Redacted())
	case t == "":
		return u.Scheme + "://" + u.Host + u.RequestURI(), nil
	case !web && u.Scheme != "":
		return "", t.refusal(edge.Invalid, "the scheme "+u.Scheme+" is neither http nor https")
	case u.Host != "" && !strings.EqualFold(u.Host, string(t)):
		return "", t.refusal(edge.Invalid, "the URL's host "+u.Host+" is not the dependency: "+
			"leave it out or write http://"+string(t)+"/, the manifest knows the real one")
	}
	return u.RequestURI(), nil
}

func (t transport) refusal(code edge.Code, detail string) error {
	return &edge.CallError{Op: strings.TrimSpace("round trip " + string(t)), Code: code, Detail: detail}
}

func methodOf(r *http.Request) string {
	if r.Method == "" {
		return http.MethodGet
	}
	return r.Method
}

// outgoing returns the body of a request for edge.NewRequest.
func outgoing(r *http.Request) (io.Reader, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, nil
	case r.ContentLength <= 0: // unknown
		return r.Body, nil
	}
	exact := &exactReader{r.Body, r.ContentLength}
	if r.ContentLength > abi.MaxHead {
		return exact, nil
	}
	content := bytes.NewBuffer(make([]byte, 0, r.ContentLength+bytes.MinRead))
	_, err := content.ReadFrom(exact)
	return content, err
}

var errContentLength = errors.New("edgehttp: the request's body is not as long as its ContentLength")

// An exactReader fails if there is more to read than it should be, or less.
type exactReader struct {
	from io.Reader
	left int64
}

// Read implements io.Reader.
func (r *exactReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.left -= int64(n)
	if r.left < 0 || err == io.EOF && r.left > 0 {
		return 0, errContentLength
	}
	return n, err
}

// newResponse returns the answer to a request.
func newResponse(r *http.Request, from *edge.Response) *http.Response {
	response := &http.Response{
		Status:        strconv.Itoa(from.Status) + " " + http.StatusText(from.Status),
		StatusCode:    from.Status,
		Header:        header(from.Header()),
		ContentLength: from.ContentLength(),
		Body:          http.NoBody,
		Request:       r,
	}
	response.Proto, response.ProtoMajor, response.ProtoMinor = protocol(from.Protocol())
	if r.Method == http.MethodHead || bodiless(from.Status) || response.ContentLength == 0 {
		_ = from.Body.Close() // there is nothing in it
		return response
	}
	response.Trailer = http.Header{}
	response.Body = &body{
		ReadCloser: boundBody{r.Context(), from.Body}, trailer: from.Trailer, into: response.Trailer,
	}
	return response
}

// A boundBody ends with the request's context.
type boundBody struct {
	ctx context.Context
	io.ReadCloser
}

// Read implements io.Reader.
func (b boundBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.ReadCloser.Read(p)
}
