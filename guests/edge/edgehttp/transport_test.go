//go:build !wasip1

package edgehttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// echo answers with what it was sent.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	w.Header()["X-Ask"] = r.Header["X-Ask"]
	w.Header().Set("X-Fence", r.Header.Get("Edgehost-Fence"))
	w.Header().Set("Trailer", "X-Sum")
	w.WriteHeader(http.StatusCreated)
	write(w, r.Method+" "+r.RequestURI+" "+string(content))
	w.Header().Set("X-Sum", "9")
})

// echoing returns a host with a dependency and an allowed host that echo.
func echoing(t *testing.T) *edgetest.Host {
	t.Helper()
	host := edgetest.New(t)
	host.Dependency("payments", echo)
	host.Allow("plain.example.com:8080", echo)
	return host
}

// A source is a request's body that knows whether it was closed.
type source struct {
	io.Reader
	closed int
}

func (s *source) Close() error { s.closed++; return nil }

func newRequest(t *testing.T, ctx context.Context, method, target string, body io.Reader) *http.Request { //nolint:revive // t comes first
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTransport(t *testing.T) {
	t.Parallel()
	host := echoing(t)
	host.Run(func() {
		body := &source{Reader: strings.NewReader("body")}
		r := newRequest(t, t.Context(), http.MethodPost, "http://payments/charge%20it?x=1#part", body)
		r.Header["X-Ask"] = []string{"one", "two"}
		resp, err := (&http.Client{Transport: edgehttp.Transport("payments")}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		content, err := io.ReadAll(resp.Body)
		if want := "POST /charge%20it?x=1 body"; err != nil || string(content) != want {
			t.Errorf("%q, %v", content, err)
		}
		if resp.Status != "201 Created" || resp.StatusCode != 201 || !resp.ProtoAtLeast(1, 1) || resp.Request != r {
			t.Errorf("%+v", resp)
		}
		if !slices.Equal(resp.Header["X-Ask"], r.Header["X-Ask"]) || resp.ContentLength != int64(len(content)) {
			t.Errorf("%v, length %d", resp.Header, resp.ContentLength)
		}
		if diff := cmp.Diff(http.Header{"X-Sum": {"9"}}, resp.Trailer); diff != "" || body.closed == 0 {
			t.Errorf("trailer (-want +got):\n%s, request's body closed %d times", diff, body.closed)
		}
	})
}

func TestTransportTargets(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, dependency, target string
		want                     string // what is sent, or
		refused                  string // a part of the error
	}{
		{"a path", "payments", "/charge?x=1", "/charge?x=1", ""},
		{"the dependency's name as the host", "payments", "http://payments/charge", "/charge", ""},
		{"in any case, with https", "payments", "https://Payments/charge", "/charge", ""},
		{"no path", "payments", "http://payments", "/", ""},
		{"a query alone", "payments", "http://payments?x", "/?x", ""},
		{"another host", "payments", "https://api.example.com/charge", "", "api.example.com is not the dependency"},
		{"the name with a port", "payments", "http://payments:80/charge", "", "payments:80 is not the dependency"},
		{"another scheme", "payments", "ftp://payments/charge", "", "scheme ftp"},
		{"a plain URL", "", "http://plain.example.com:8080/x?y", "http://plain.example.com:8080/x?y", ""},
		{"user information stays here", "", "http://user:secret@plain.example.com:8080/", "http://plain.example.com:8080/", ""},
		{"a plain path", "", "/charge", "", "absolute"},
		{"a plain URL with another scheme", "", "ftp://plain.example.com/", "", "absolute"},
		{"a host that the manifest does not allow", "", "http://other.example.com/", "", "denied"},
		{"a dependency that the manifest does not have", "refunds", "/", "", "denied"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := echoing(t)
			host.Run(func() {
				body := &source{Reader: strings.NewReader("b")}
				r := newRequest(t, t.Context(), http.MethodPut, test.target, body)
				resp, err := edgehttp.Transport(edge.Dependency(test.dependency)).RoundTrip(r)
				if body.closed == 0 {
					t.Error("the request's body is open")
				}
				if test.refused != "" {
					if err == nil || !strings.Contains(err.Error(), test.refused) {
						t.Errorf("error %v, want one about %q", err, test.refused)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if content, err := io.ReadAll(resp.Body); err != nil || string(content) != "PUT "+test.want+" b" {
					t.Errorf("%q, %v", content, err)
				}
			})
		})
	}
}

func TestTransportBodies(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken source")
	long := strings.Repeat("0123456789abcdef", 20<<10)
	inline := []string{"fetch", "fetch_head"}
	tests := []struct {
		name   string
		body   io.Reader
		length int64
		want   string
		calls  []string // until the head of the answer is there; nil: not looked at
		err    string
	}{
		{"none", nil, 0, "", inline, ""},
		{"http.NoBody", http.NoBody, 0, "", inline, ""},
		{"a known length travels with the call", strings.NewReader("body"), 4, "body", inline, ""},
		{"an unknown length is streamed", strings.NewReader("body"), -1, "body", nil, ""},
		{"and so is zero", strings.NewReader("body"), 0, "body", []string{"fetch", "write", "finish", "fetch_head"}, ""},
		{"a long body is streamed", strings.NewReader(long), int64(len(long)), long, nil, ""},
		{"one byte at a time", iotest.OneByteReader(strings.NewReader("body")), 4, "body", inline, ""},
		{"shorter than said", strings.NewReader("body"), 5, "", []string{}, "not as long as"},
		{"longer than said", strings.NewReader("body"), 3, "", []string{}, "not as long as"},
		{"a long one, shorter than said", strings.NewReader(long), int64(len(long)) + 1, "", nil, "not as long as"},
		{"a long one, longer than said", strings.NewReader(long), int64(len(long)) - 1, "", nil, "not as long as"},
		{"a source that fails before the call", iotest.ErrReader(broken), 4, "", []string{}, broken.Error()},
		{"a source that fails meanwhile", io.MultiReader(strings.NewReader("bo"), iotest.ErrReader(broken)), -1, "", nil, broken.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := echoing(t)
			host.Run(func() {
				r := newRequest(t, t.Context(), http.MethodPost, "/", http.NoBody)
				body := &source{Reader: test.body}
				if r.Body = body; test.body == nil || test.body == http.NoBody {
					r.Body, body.closed = http.NoBody, 1
				}
				r.ContentLength = test.length
				resp, err := edgehttp.Transport("payments").RoundTrip(r)
				if calls := host.Calls(); test.calls != nil && !slices.Equal(calls, test.calls) {
					t.Errorf("host calls %v, want %v", calls, test.calls)
				}
				if body.closed == 0 {
					t.Error("the request's body is open")
				}
				switch {
				case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
					t.Errorf("error %v, want one about %q", err, test.err)
				case test.err == "" && err != nil:
					t.Error(err)
				case err == nil:
					defer func() { _ = resp.Body.Close() }()
					content, err := io.ReadAll(resp.Body)
					if err != nil || string(content) != "POST / "+test.want {
						t.Errorf("%d bytes, %v", len(content), err)
					}
				}
			})
		})
	}
}

func TestTransportErrors(t *testing.T) {
	t.Parallel()
	t.Run("a refusal is found in the error of a client", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		host.Refuse("payments", edge.Deferred, 3*time.Second)
		got := serve(t, host, func(w http.ResponseWriter, _ *http.Request) {
			resp, err := (&http.Client{Transport: edgehttp.Transport("payments")}).Get("/charge")
			if err == nil {
				_ = resp.Body.Close()
			}
			if _, ok := errors.AsType[*url.Error](err); !ok || !errors.Is(err, edge.Deferred) || edge.RetryAfter(err) != 3*time.Second {
				t.Errorf("%v", err)
			}
			edgehttp.Error(w, err)
		}, get())
		if got.Status != http.StatusServiceUnavailable || got.Header.Get("Retry-After") != "3" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("more failures than there may be handles", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		host.Refuse("payments", edge.BreakerOpen, 0)
		host.Run(func() {
			for range 300 {
				if _, err := edgehttp.Transport("payments").RoundTrip(get()); !errors.Is(err, edge.BreakerOpen) { //nolint:bodyclose // there is none
					t.Fatal(err)
				}
			}
		})
	})
	t.Run("the deadline bounds the call", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		host.Dependency("payments", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			deadline, ok := r.Context().Deadline()
			if left := time.Until(deadline); !ok || left > 20*time.Millisecond {
				t.Errorf("the host has %v", left)
			}
			<-r.Context().Done()
		}))
		host.Run(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			client := &http.Client{Transport: edgehttp.Transport("payments")}
			_, err := client.Do(newRequest(t, ctx, http.MethodGet, "/", nil)) //nolint:bodyclose // there is none
			late, ok := errors.AsType[*url.Error](err)
			if !ok || !late.Timeout() || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, edge.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
		})
	})
	t.Run("a context that has ended sends nothing", func(t *testing.T) {
		t.Parallel()
		host := echoing(t)
		host.Run(func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			body := &source{Reader: strings.NewReader("body")}
			_, err := edgehttp.Transport("payments").RoundTrip(newRequest(t, ctx, http.MethodPost, "/", body)) //nolint:bodyclose // there is none
			if !errors.Is(err, context.Canceled) || body.closed == 0 || len(host.Calls()) > 0 {
				t.Errorf("%v, body closed %d times, host calls %v", err, body.closed, host.Calls())
			}
		})
	})
	t.Run("a context that ends stops the response's body", func(t *testing.T) {
		t.Parallel()
		host := echoing(t)
		host.Run(func() {
			ctx, cancel := context.WithCancel(t.Context())
			resp, err := edgehttp.Transport("payments").RoundTrip(newRequest(t, ctx, http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			cancel()
			if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	})
	t.Run("trailers of a request", func(t *testing.T) {
		t.Parallel()
		host := echoing(t)
		host.Run(func() {
			r := newRequest(t, t.Context(), http.MethodPost, "/", strings.NewReader("body"))
			r.Trailer = http.Header{"X-Sum": {"9"}}
			if _, err := edgehttp.Transport("payments").RoundTrip(r); !errors.Is(err, edge.Unsupported) { //nolint:bodyclose // there is none
				t.Error(err)
			}
		})
	})
}

func TestTransportWithLease(t *testing.T) {
	t.Parallel()
	host := echoing(t)
	host.AllowObjects("doc/1")
	host.Run(func() {
		lease, err := edge.Object("doc/1").Acquire(edge.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ctx := edgehttp.WithLease(t.Context(), lease)
		resp, err := edgehttp.Transport("payments").RoundTrip(newRequest(t, ctx, http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.Header.Get("X-Fence") == "" {
			t.Error("no fence")
		}
		host.LoseLease("doc/1", "main")
		if _, err := edgehttp.Transport("payments").RoundTrip(newRequest(t, ctx, http.MethodGet, "/", nil)); !errors.Is(err, edge.LeaseLost) { //nolint:bodyclose // there is none
			t.Error(err)
		}
	})
}

func TestTransportOfEmptyAnswers(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodHead, http.MethodGet} {
		host := edgetest.New(t)
		host.Dependency("payments", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		host.Run(func() {
			resp, err := edgehttp.Transport("payments").RoundTrip(newRequest(t, t.Context(), method, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body != http.NoBody {
				t.Errorf("%s: the body is %v", method, resp.Body)
			}
			_ = resp.Body.Close()
		})
		if calls := host.Calls(); !slices.Contains(calls, "close") {
			t.Errorf("%s: the call stays open: %v", method, calls)
		}
	}
}

// TestReverseProxy serves by a handler and a transport of this package at once.
func TestReverseProxy(t *testing.T) {
	t.Parallel()
	host := echoing(t)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "payments", Path: "/v1"}) },
		Transport: edgehttp.Transport("payments"),
	}
	r := httptest.NewRequest(http.MethodPost, "/charge?x=1", bytes.NewReader([]byte("body")))
	r.Header["X-Ask"] = []string{"one", "two"}
	got := serve(t, host, proxy.ServeHTTP, r)
	if got.Status != http.StatusCreated || string(got.Body) != "POST /v1/charge?x=1 body" || len(got.Header["X-Ask"]) != 2 {
		t.Errorf("%d %v %q", got.Status, got.Header, got.Body)
	}
	if got.Trailer.Get("X-Sum") != "9" || got.Retired {
		t.Errorf("%+v", got)
	}
}
