//go:build !wasip1

package edge_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// serve runs the handler for GET /, or for another request.
func serve(t *testing.T, host *edgetest.Host, h edge.Handler, requests ...*http.Request) *edgetest.Response {
	t.Helper()
	host.Handle("/", h)
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	if len(requests) > 0 {
		r = requests[0]
	}
	return host.Serve(r)
}

func TestResponse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789abcdef", 10<<10)
	tests := []struct {
		name    string
		handler edge.Handler
		want    edgetest.Response
		calls   []string // nil: not looked at
	}{
		{
			name:    "a handler that writes nothing answers 200",
			handler: func(*edge.ResponseWriter, *edge.Request) {},
			want:    edgetest.Response{Status: 200},
			calls:   []string{"request_head", "response_head"},
		},
		{
			name: "a small answer takes three host calls however often it is written to",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.Header().Set("Content-Type", "text/plain")
				for _, part := range []string{"a", "b", "c"} {
					_, _ = io.WriteString(w, part)
				}
			},
			want:  edgetest.Response{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte("abc")},
			calls: []string{"request_head", "response_head", "write"},
		},
		{
			name: "values of one name are kept apart",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.Header().Add("Set-Cookie", "a=1; Path=/")
				w.Header().Add("set-cookie", "b=2")
				w.WriteHeader(204)
			},
			want: edgetest.Response{Status: 204, Header: http.Header{"Set-Cookie": {"a=1; Path=/", "b=2"}}},
		},
		{
			name: "a second status is ignored",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.WriteHeader(201)
				w.WriteHeader(500)
			},
			want:  edgetest.Response{Status: 201},
			calls: []string{"request_head", "log", "response_head"},
		},
		{
			name: "informational statuses go out before the final one",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.WriteHeader(103)
				w.WriteHeader(103)
				w.WriteHeader(404)
			},
			want: edgetest.Response{Status: 404, Informational: []int{103, 103}},
		},
		{
			name: "a long body goes through in parts",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				_, _ = io.WriteString(w, "head ")
				_, _ = w.Write([]byte(long))
				_, _ = io.WriteString(w, " tail")
			},
			want: edgetest.Response{Status: 200, Body: []byte("head " + long + " tail")},
		},
		{
			name: "a flush sends what there is",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				_, _ = io.WriteString(w, "tick")
				_ = w.Flush()
				_, _ = io.WriteString(w, "tock")
			},
			want:  edgetest.Response{Status: 200, Body: []byte("ticktock")},
			calls: []string{"request_head", "response_head", "write", "flush", "write"},
		},
		{
			name: "trailers follow the body",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				_, _ = io.WriteString(w, "x")
				w.Trailer().Set("Checksum", "9")
			},
			want: edgetest.Response{Status: 200, Body: []byte("x"), Trailer: http.Header{"Checksum": {"9"}}},
		},
		{
			name: "a header that is not HTTP makes the guest fail",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.Header().Set("X", "a\r\nInjected: 1")
			},
			want: edgetest.Response{Status: 502, Failed: true, Retired: true},
		},
		{
			name:    "a status out of range makes the guest fail",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) { w.WriteHeader(600) },
			want:    edgetest.Response{Status: 502, Failed: true, Retired: true},
		},
		{
			name: "a body shorter than its Content-Length makes the guest fail",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "short")
			},
			want: edgetest.Response{Status: 502, Failed: true, Retired: true},
		},
		{
			name:    "a panic makes the guest fail",
			handler: func(*edge.ResponseWriter, *edge.Request) { panic("boom") },
			want:    edgetest.Response{Status: 502, Failed: true, Retired: true},
		},
		{
			name: "a panic after a flush breaks the response off",
			handler: func(w *edge.ResponseWriter, _ *edge.Request) {
				_, _ = io.WriteString(w, "half")
				_ = w.Flush()
				panic("boom")
			},
			want: edgetest.Response{Status: 200, Body: []byte("half"), Failed: true, Aborted: true, Retired: true},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := edgetest.New(t)
			got := serve(t, host, test.handler)
			diffResponse(t, test.want, got)
			if diff := cmp.Diff(test.calls, host.Calls()); test.calls != nil && diff != "" {
				t.Errorf("host calls (-want +got):\n%s", diff)
			}
		})
	}
}

// diffResponse compares responses, nil and empty headers being the same.
func diffResponse(t *testing.T, want edgetest.Response, got *edgetest.Response) {
	t.Helper()
	for _, h := range []*http.Header{&want.Header, &want.Trailer, &got.Header, &got.Trailer} {
		if len(*h) == 0 {
			*h = nil
		}
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("response (-want +got):\n%s", diff)
	}
}

func TestErrorLeavesTheAnswerToTheHost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		status int
		code   edge.Code
		retry  string
	}{
		{"a code", edge.Denied, 403, edge.Denied, ""},
		{"a wrapped code", errors.Join(errors.New("load"), edge.Conflict), 409, edge.Conflict, ""},
		{"an error without a code is internal", errors.New("secret detail"), 500, edge.Internal, ""},
		{"no error is internal", nil, 500, edge.Internal, ""},
		{"a retry time is rounded up", &edge.CallError{Op: "x", Code: edge.Deferred, RetryAfter: time.Second + 1}, 503, edge.Deferred, "2"},
		{"a retry time of ages fits", &edge.CallError{Op: "x", Code: edge.Deferred, RetryAfter: 1 << 62}, 503, edge.Deferred, "2147484"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var late error
			got := serve(t, edgetest.New(t), func(w *edge.ResponseWriter, _ *edge.Request) {
				w.Header().Set("X-Partial", "1")
				_, _ = io.WriteString(w, "partial")
				edge.Error(w, test.err)
				edge.Error(w, edge.Invalid)
				_, late = w.WriteString("more")
				late = errors.Join(late, w.Flush())
			})
			if got.Status != test.status || got.Code != test.code || got.Header.Get("Retry-After") != test.retry {
				t.Errorf("got %d %v, retry after %q", got.Status, got.Code, got.Header.Get("Retry-After"))
			}
			if len(got.Body) > 0 || got.Header.Get("X-Partial") != "" || got.Failed {
				t.Errorf("something of the partial response is left: %+v", got)
			}
			if test.err != nil && got.Detail != test.err.Error() {
				t.Errorf("detail %q", got.Detail)
			}
			if !errors.Is(late, edge.Invalid) {
				t.Errorf("a write after Error: %v", late)
			}
		})
	}
}

func TestErrorAfterTheHeadWentOut(t *testing.T) {
	t.Parallel()
	fail := func(w *edge.ResponseWriter, flush bool) {
		_, _ = w.Write(make([]byte, 4000))
		_, _ = w.Write(make([]byte, 96))
		if flush {
			_ = w.Flush()
		}
		edge.Error(w, edge.DeadlineExceeded)
	}
	t.Run("the response is broken off once the client has seen some of it", func(t *testing.T) {
		t.Parallel()
		got := serve(t, edgetest.New(t), func(w *edge.ResponseWriter, _ *edge.Request) { fail(w, true) })
		if !got.Aborted || !got.Failed {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("the response is replaced while the client has seen nothing", func(t *testing.T) {
		t.Parallel()
		got := serve(t, edgetest.New(t), func(w *edge.ResponseWriter, _ *edge.Request) { fail(w, false) })
		if got.Failed || got.Status != 504 || len(got.Body) > 0 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAbort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		begun bool
	}{{"before the head went out", false}, {"afterwards", true}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := edgetest.New(t)
			got := serve(t, host, func(w *edge.ResponseWriter, _ *edge.Request) {
				if test.begun {
					_ = w.Flush()
				}
				w.Abort()
				if _, err := w.WriteString("more"); err == nil {
					t.Error("a write after Abort succeeds")
				}
			})
			if !got.Failed || got.Aborted != test.begun || len(host.Logs()) > 0 {
				t.Errorf("%+v, logs %v", got, host.Logs())
			}
		})
	}
}

func TestClientThatWentAway(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	var first, second error
	got := serve(t, host, func(w *edge.ResponseWriter, _ *edge.Request) {
		_, _ = io.WriteString(w, "x")
		first = w.Flush()
		host.SetStatus(edge.Status{Canceled: true})
		_, first = w.Write(make([]byte, 10<<10))
		_, second = w.WriteString("y")
	})
	if !errors.Is(first, edge.Canceled) || !errors.Is(second, edge.Canceled) {
		t.Errorf("writes: %v, %v", first, second)
	}
	if got.Failed {
		t.Error("the guest counts as failed")
	}
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	serve(t, host, func(*edge.ResponseWriter, *edge.Request) { panic(errors.New("boom")) })
	logs := host.Logs()
	if len(logs) != 1 || !strings.Contains(logs[0].Line, "boom") ||
		!strings.Contains(logs[0].Line, "TestPanicIsLoggedWithItsStack") {
		t.Errorf("logs: %v", logs)
	}
}

// TestInstanceStartsAfresh serves by one instance requests that leave something
// behind in every buffer.
func TestInstanceStartsAfresh(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	handlers := []edge.Handler{
		func(w *edge.ResponseWriter, r *edge.Request) {
			r.Header().Add("X-Mine", "1")
			w.Header().Set("X-First", "1")
			w.Trailer().Set("X-Trailer", "1")
			w.WriteHeader(201)
			_, _ = w.Write(make([]byte, 3000))
		},
		func(w *edge.ResponseWriter, _ *edge.Request) { edge.Error(w, edge.Denied) },
		func(*edge.ResponseWriter, *edge.Request) { panic("third") },
		func(w *edge.ResponseWriter, r *edge.Request) {
			if n := r.Header().Len(); n != 0 {
				t.Errorf("%d header fields of an earlier request", n)
			}
			_, _ = w.WriteString("clean " + r.Target())
		},
	}
	next := 0
	host.Handle("/", func(w *edge.ResponseWriter, r *edge.Request) { next++; handlers[next-1](w, r) })
	var last *edgetest.Response
	for range handlers {
		last = host.Serve(httptest.NewRequest(http.MethodGet, "/x", http.NoBody))
	}
	diffResponse(t, edgetest.Response{Status: 200, Body: []byte("clean /x")}, last)
}

func TestGoroutines(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	tests := []struct {
		name    string
		handler edge.Handler
		retired bool
	}{
		{"a handler that waits for its goroutines keeps the instance", func(*edge.ResponseWriter, *edge.Request) {
			done := make(chan int)
			go func() { done <- 1 }()
			<-done
		}, false},
		{"a goroutine left running retires the instance", func(*edge.ResponseWriter, *edge.Request) {
			go func() { <-stop }()
		}, true},
		{"goroutines of a dependency are not the guest's", func(*edge.ResponseWriter, *edge.Request) {
			request, err := edge.NewRequest("GET", "/", nil)
			if err == nil {
				_, err = edge.Dependency("lingering").Fetch(request)
			}
			if err != nil {
				t.Error(err)
			}
		}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			host := edgetest.New(t)
			host.Dependency("lingering", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				go func() { <-stop }()
			}))
			if got := serve(t, host, test.handler); got.Retired != test.retired || got.Failed {
				t.Errorf("got %+v", got)
			}
		})
	}
	close(stop)
}

func TestServeWithoutMatchingRoute(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Handle("GET /only", func(*edge.ResponseWriter, *edge.Request) {})
	for target, want := range map[string]int{"/only": 200, "/other": 404} {
		if got := host.Serve(httptest.NewRequest(http.MethodGet, target, http.NoBody)); got.Status != want {
			t.Errorf("%s: %d", target, got.Status)
		}
	}
	if got := host.Serve(httptest.NewRequest(http.MethodPost, "/only", http.NoBody)); got.Status != 405 || !slices.Contains(got.Header["Allow"], "GET, HEAD") {
		t.Errorf("another method: %+v", got)
	}
}
