//go:build !wasip1

package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

const payments = edge.Dependency("payments")

// echo answers with what it was sent.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	content, _ := io.ReadAll(r.Body)
	w.Header().Add("Set-Cookie", "a=1")
	w.Header().Add("Set-Cookie", "b=2")
	w.Header().Set("X-Echo", r.Header.Get("X-Ask"))
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+string(content))
})

func newRequest(t *testing.T, method, target string, body io.Reader) *edge.Request {
	t.Helper()
	r, err := edge.NewRequest(method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	content, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(content)
}

func TestFetch(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 100<<10)
	tests := []struct {
		name  string
		body  func() io.Reader
		want  string
		calls []string // until the head of the answer
	}{
		{"without a body", func() io.Reader { return nil }, "", []string{"fetch", "fetch_head"}},
		{"a short string is inline", func() io.Reader { return strings.NewReader("short") }, "short", []string{"fetch", "fetch_head"}},
		{"so is what is left of a buffer", func() io.Reader {
			b := bytes.NewBufferString("some more")
			b.Next(5)
			return b
		}, "more", []string{"fetch", "fetch_head"}},
		{"an empty buffer is a body", func() io.Reader { return new(bytes.Buffer) }, "", []string{"fetch", "fetch_head"}},
		{"a body of unknown length is streamed", func() io.Reader { return iotest.OneByteReader(strings.NewReader("ab")) }, "ab", []string{"fetch", "write", "write", "finish", "fetch_head"}},
		{"a long body is streamed", func() io.Reader { return strings.NewReader(long) }, long, nil},
		{"an error that comes with the last bytes is the end", func() io.Reader { return iotest.DataErrReader(strings.NewReader("end")) }, "end", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := edgetest.New(t)
			host.Dependency("payments", echo)
			host.Run(func() {
				request := newRequest(t, "POST", "/charge?id=1", test.body())
				request.Header().Set("X-Ask", "ask")
				response, err := payments.Fetch(request)
				if err != nil {
					t.Fatal(err)
				}
				calls := host.Calls()
				if test.calls != nil && !slices.Equal(calls, test.calls) {
					t.Errorf("host calls: %v", calls)
				}
				if response.Status != http.StatusCreated || response.Header().Get("x-echo") != "ask" ||
					!slices.Equal(response.Header().Values("Set-Cookie"), []string{"a=1", "b=2"}) {
					t.Errorf("got %d, %v", response.Status, response.Header())
				}
				want := "POST /charge?id=1 " + test.want
				if response.ContentLength() != int64(len(want)) {
					t.Errorf("length %d", response.ContentLength())
				}
				if got := readAll(t, response.Body); got != want {
					t.Errorf("body of %d bytes", len(got))
				}
			})
		})
	}
}

func TestFetchFails(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Refuse("open", edge.BreakerOpen, 3*time.Second)
	host.Dependency("broken", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("broken pipe") }))
	host.Dependency("slow", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	host.Dependency("payments", echo)
	host.Allow("api.example.com", echo)
	boom := errors.New("boom")
	tests := []struct {
		name  string
		fetch func(r *edge.Request) (*edge.Response, error)
		body  io.Reader
		edit  func(r *edge.Request)
		want  error
		retry time.Duration
	}{
		{name: "an open breaker gives a retry time", fetch: edge.Dependency("open").Fetch, want: edge.BreakerOpen, retry: 3 * time.Second},
		{name: "an open breaker ends a streamed body", fetch: edge.Dependency("open").Fetch, body: io.LimitReader(neverending{}, 1<<30), want: edge.BreakerOpen, retry: 3 * time.Second},
		{name: "a dependency that breaks off", fetch: edge.Dependency("broken").Fetch, want: edge.DependencyFailed},
		{name: "a timeout", fetch: edge.Dependency("slow").Fetch, edit: func(r *edge.Request) { r.Timeout = time.Millisecond }, want: edge.DeadlineExceeded},
		{name: "a dependency that is not the function's", fetch: edge.Dependency("other").Fetch, want: edge.Denied},
		{name: "a host that is not allowed", fetch: edge.Fetch, edit: func(r *edge.Request) { *r = *newRequest(t, "GET", "https://example.org/", nil) }, want: edge.Denied},
		{name: "a path without a dependency", fetch: edge.Fetch, want: edge.Invalid},
		{name: "a header that is not HTTP", fetch: payments.Fetch, edit: func(r *edge.Request) { r.Header().Set("a b", "") }, want: edge.Invalid},
		{name: "a head that is too large", fetch: payments.Fetch, edit: func(r *edge.Request) { r.Header().Set("A", strings.Repeat("x", 256<<10)) }, want: edge.TooLarge},
		{name: "a body that cannot be read", fetch: payments.Fetch, body: iotest.ErrReader(boom), want: boom},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host.Run(func() {
				request := newRequest(t, "GET", "/", test.body)
				if test.edit != nil {
					test.edit(request)
				}
				response, err := test.fetch(request)
				if response != nil || !errors.Is(err, test.want) || edge.RetryAfter(err) != test.retry {
					t.Errorf("got %v, %v, retry after %v", response, err, edge.RetryAfter(err))
				}
			})
		})
	}
}

type neverending struct{}

func (neverending) Read(p []byte) (int, error) { return len(p), nil }

// earlyAnswer is a host whose dependency answers without taking the body.
type earlyAnswer struct{ host.Functions }

func (earlyAnswer) Fetch(string, []byte, uint32, uint32) int32 { return 4 }
func (earlyAnswer) Write(int32, []byte, uint32) int32          { return int32(abi.Conflict) }
func (earlyAnswer) Error([]byte) int32                         { return int32(abi.Internal) }
func (earlyAnswer) FetchHead(_ int32, p []byte, _ uint32) int32 {
	return int32(copy(p, abi.AppendNumber(nil, abi.FieldStatus, http.StatusRequestEntityTooLarge)))
}

func TestFetchAnsweredBeforeTheBodyIsTaken(t *testing.T) {
	t.Parallel()
	host.Use(earlyAnswer{}, func(func() int32) {
		response, err := payments.Fetch(newRequest(t, "POST", "/", neverending{}))
		if err != nil || response.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("got %v, %v", response, err)
		}
	})
}

func TestFailedCallsKeepNoHandles(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Refuse("payments", edge.Deferred, 0)
	host.Run(func() {
		for range 300 {
			if _, err := payments.Fetch(newRequest(t, "GET", "/", nil)); !errors.Is(err, edge.Deferred) {
				t.Fatal(err)
			}
		}
	})
}

func TestCallErrorIsThatOfContext(t *testing.T) {
	t.Parallel()
	tests := []struct {
		code               edge.Code
		deadline, canceled bool
	}{{edge.DeadlineExceeded, true, false}, {edge.Canceled, false, true}, {edge.Deferred, false, false}}
	for _, test := range tests {
		err := error(&edge.CallError{Code: test.code})
		late, ok := errors.AsType[interface {
			error
			Timeout() bool
		}](err)
		if errors.Is(err, context.DeadlineExceeded) != test.deadline || errors.Is(err, context.Canceled) != test.canceled || !ok || late.Timeout() != test.deadline {
			t.Errorf("%v is the wrong error of context", test.code)
		}
	}
}

func TestFetchPlain(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Allow("api.example.com:8443", echo)
	host.Run(func() {
		response, err := edge.Fetch(newRequest(t, "GET", "https://api.example.com:8443/v1?q", nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, response.Body); got != "GET https://api.example.com:8443/v1?q " {
			t.Errorf("got %q", got)
		}
	})
}

func TestResponseTrailerAndClose(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Dependency("payments", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "body")
		w.Header().Set("Sum", "4")
	}))
	host.Run(func() {
		response, err := payments.Fetch(newRequest(t, "GET", "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, response.Body); got != "body" {
			t.Errorf("got %q", got)
		}
		if trailer, err := response.Trailer(); err != nil || trailer.Get("Sum") != "4" {
			t.Errorf("trailer %v, %v", trailer, err)
		}
		if err := errors.Join(response.Body.Close(), response.Body.Close()); err != nil {
			t.Error(err)
		}
		if _, err := response.Body.Read(make([]byte, 1)); !errors.Is(err, edge.Invalid) {
			t.Errorf("read after close: %v", err)
		}
	})
}

func TestStart(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Dependency("payments", echo)
	host.Refuse("stock", edge.Deferred, time.Second)
	host.Run(func() {
		first, second, third := newRequest(t, "GET", "/1", nil), newRequest(t, "PUT", "/2", iotest.HalfReader(strings.NewReader("body"))), newRequest(t, "GET", "/3", nil)
		first.Dependency, second.Dependency, third.Dependency = "payments", "payments", "stock"
		calls := edge.Start(first, second, third)
		if got := host.Calls(); !slices.Equal(got, []string{"fetch", "fetch", "fetch"}) {
			t.Errorf("starting waits: %v", got)
		}
		responses, err := calls.Wait()
		if !errors.Is(err, edge.Deferred) || errors.Is(err, edge.Internal) || len(responses) != 3 || responses[2] != nil {
			t.Fatalf("got %v, %v", responses, err)
		}
		for i, want := range []string{"GET /1 ", "PUT /2 body"} {
			if got := readAll(t, responses[i].Body); got != want {
				t.Errorf("response %d: %q", i, got)
			}
		}
		again, err := calls[0].Wait()
		if again != responses[0] || err != nil {
			t.Errorf("waiting again: %v, %v", again, err)
		}
		if err := errors.Join(calls[0].Close(), calls[0].Close(), calls[2].Close()); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
}

func TestCallClosedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Dependency("payments", echo)
	host.Run(func() {
		call := payments.Start(newRequest(t, "GET", "/", nil))[0]
		if err := errors.Join(call.Close(), call.Close()); err != nil {
			t.Error(err)
		}
		if response, err := call.Wait(); response != nil || !errors.Is(err, edge.Canceled) {
			t.Errorf("got %v, %v", response, err)
		}
	})
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Dependency("payments", echo)
	host.Refuse("stock", edge.Deferred, 2*time.Second)
	host.Run(func() {
		for _, outcome := range []edge.Outcome{edge.Success, edge.Failure, edge.Abandoned, edge.Excluded} {
			admission, err := payments.Admit()
			if err != nil {
				t.Fatal(err)
			}
			if err := admission.Report(outcome); err != nil {
				t.Error(err)
			}
			if err := admission.Report(outcome); !errors.Is(err, edge.NotFound) {
				t.Errorf("reported twice: %v", err)
			}
		}
		if _, err := edge.Dependency("stock").Admit(); !errors.Is(err, edge.Deferred) || edge.RetryAfter(err) != 2*time.Second {
			t.Errorf("got %v", err)
		}
		if _, err := edge.Dependency("other").Admit(); !errors.Is(err, edge.Denied) {
			t.Errorf("got %v", err)
		}
	})
	want := []edge.Outcome{edge.Success, edge.Failure, edge.Abandoned, edge.Excluded}
	if got := host.Outcomes("payments"); !slices.Equal(got, want) {
		t.Errorf("outcomes %v", got)
	}
}

func TestFetchUnderLease(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.AllowObjects("orders/*")
	var fences []string
	host.Dependency("payments", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fences = append(fences, r.Header.Get("Edgehost-Fence"))
		if r.URL.Path == "/lose" {
			host.LoseLease("orders/7", "main")
		}
	}))
	host.Run(func() {
		lease, err := edge.Object("orders/7").Acquire(edge.LeaseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			target string
			want   error
		}{{"/keep", nil}, {"/lose", edge.LeaseLost}, {"/late", edge.LeaseLost}} {
			request := newRequest(t, "GET", step.target, nil)
			request.Header().Set("Edgehost-Fence", "999999")
			request.Lease = lease
			if _, err := payments.Fetch(request); !errors.Is(err, step.want) {
				t.Errorf("%s: %v", step.target, err)
			}
		}
		fence := strconv.FormatUint(lease.Fence(), 10)
		if !slices.Equal(fences, []string{fence, fence}) {
			t.Errorf("fences at the dependency: %q, the lease has %s", fences, fence)
		}
	})
}

func TestNewRequestNeedsMethodAndTarget(t *testing.T) {
	t.Parallel()
	for _, args := range [][2]string{{"", "/"}, {"GET", ""}} {
		if _, err := edge.NewRequest(args[0], args[1], nil); !errors.Is(err, edge.Invalid) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Dependency("payments", echo)
	long := strings.Repeat("stream", 30<<10)
	got := serve(t, host, func(w *edge.ResponseWriter, r *edge.Request) {
		response, err := payments.Fetch(newRequest(t, r.Method, r.Target(), r.Body))
		if err != nil {
			edge.Error(w, err)
			return
		}
		for name, value := range response.Header().All() {
			w.Header().Add(name, value)
		}
		w.WriteHeader(response.Status)
		_, _ = io.Copy(w, response.Body)
	}, httptest.NewRequest(http.MethodPost, "/up", strings.NewReader(long)))
	if got.Status != 201 || len(got.Header["Set-Cookie"]) != 2 || string(got.Body) != "POST /up "+long {
		t.Errorf("got %d, %v, %d bytes", got.Status, got.Header, len(got.Body))
	}
}
