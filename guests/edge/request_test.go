//go:build !wasip1

package edge_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

func TestRequestHead(t *testing.T) {
	t.Parallel()
	request := httptest.NewRequest("PROPFIND", "http://shop.example.com/files/a%20b/c?x=1&x=2", strings.NewReader("body"))
	request.TLS = &tls.ConnectionState{}
	request.RemoteAddr = "192.0.2.7:4711"
	request.Header["X-Multi"] = []string{"one", "two"}
	request.Header.Set("Accept", "text/plain")

	type head struct {
		Method, Target, Path, Query, Host, Scheme, Remote, Route string
		Dir, Rest, None, Protocol                                string
		Wildcards                                                map[string]string
		Multi                                                    []string
		Accept, Absent                                           string
		Length                                                   int64
	}
	want := head{
		Method: "PROPFIND", Target: "http://shop.example.com/files/a%20b/c?x=1&x=2",
		Path: "/files/a b/c", Query: "x=1&x=2", Host: "shop.example.com", Scheme: "https",
		Remote: "192.0.2.7:4711", Route: "/files/{dir}/{rest...}",
		Dir: "a b", Rest: "c", Protocol: "HTTP/1.1", Wildcards: map[string]string{"dir": "a b", "rest": "c"}, Multi: []string{"one", "two"}, Accept: "text/plain", Length: 4,
	}
	host := edgetest.New(t)
	var got head
	host.Handle("/files/{dir}/{rest...}", func(_ *edge.ResponseWriter, r *edge.Request) {
		got = head{
			Method: r.Method, Target: r.Target(), Path: r.URL().Path, Query: r.URL().RawQuery,
			Host: r.Host(), Scheme: r.Scheme(), Remote: r.RemoteAddr(), Route: r.Route(),
			Dir: r.PathValue("dir"), Rest: r.PathValue("rest"), None: r.PathValue("none"),
			Protocol: r.Protocol(), Wildcards: maps.Collect(r.PathValues()),
			Multi: r.Header().Values("x-multi"), Accept: r.Header().Get("ACCEPT"),
			Absent: r.Header().Get("Absent"), Length: r.ContentLength(),
		}
		if r.RequestID() == "" {
			t.Error("no request id")
		}
	})
	host.Serve(request)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
}

func TestRequestHeadLargerThanTheBuffer(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	request := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	long := strings.Repeat("x", 100<<10)
	request.Header.Set("Long", long)
	serve(t, host, func(_ *edge.ResponseWriter, r *edge.Request) {
		if got := r.Header().Get("Long"); got != long && got != "" || r.Route() != "/" {
			t.Error("the head is incomplete")
		}
	}, request)
	if want := []string{"request_head", "request_head", "response_head"}; !slices.Equal(host.Calls(), want) {
		t.Errorf("host calls: %v", host.Calls())
	}
	host.Serve(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if n := len(host.Calls()); n != 5 {
		t.Errorf("the buffer was not kept: %v", host.Calls())
	}
}

func TestRequestOutlivesItsHead(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	var kept []string
	host.Handle("/{name}", func(_ *edge.ResponseWriter, r *edge.Request) {
		kept = append(kept, r.Method, r.Target(), r.PathValue("name"), r.Header().Get("Name"), r.Host())
	})
	for _, name := range []string{"first", "other"} {
		request := httptest.NewRequest("X"+strings.ToUpper(name), "/"+name, http.NoBody)
		request.Header.Set("Name", name)
		request.Host = name
		host.Serve(request)
	}
	want := []string{
		"XFIRST", "/first", "first", "first", "first",
		"XOTHER", "/other", "other", "other", "other",
	}
	if !slices.Equal(kept, want) {
		t.Errorf("the next request changed strings of the last one: %q", kept)
	}
}

func TestRequestBody(t *testing.T) {
	t.Parallel()
	t.Run("it is streamed", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("body", 50<<10)
		request := httptest.NewRequest(http.MethodPost, "/", iotest.OneByteReader(strings.NewReader(long[:1000])))
		got := serve(t, edgetest.New(t), func(w *edge.ResponseWriter, r *edge.Request) {
			if r.ContentLength() != -1 {
				t.Errorf("length %d", r.ContentLength())
			}
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Error(err)
			}
			if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
		}, request)
		if string(got.Body) != long[:1000] {
			t.Errorf("%d bytes came back", len(got.Body))
		}
	})
	t.Run("an empty buffer takes nothing and is no end", func(t *testing.T) {
		t.Parallel()
		serve(t, edgetest.New(t), func(_ *edge.ResponseWriter, r *edge.Request) {
			if n, err := r.Body.Read(nil); n != 0 || err != nil {
				t.Errorf("got %d, %v", n, err)
			}
		}, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x")))
	})
	t.Run("trailers come after the end", func(t *testing.T) {
		t.Parallel()
		request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
		request.Trailer = http.Header{"Checksum": {"7"}}
		serve(t, edgetest.New(t), func(_ *edge.ResponseWriter, r *edge.Request) {
			if _, err := r.Trailer(); !errors.Is(err, edge.Conflict) {
				t.Errorf("before the end: %v", err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			trailer, err := r.Trailer()
			if err != nil || trailer.Get("checksum") != "7" {
				t.Errorf("got %v, %v", trailer, err)
			}
		}, request)
	})
	t.Run("one that is too large says so, every time", func(t *testing.T) {
		t.Parallel()
		request := httptest.NewRequest(http.MethodPost, "/", http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("12345")), 3))
		got := serve(t, edgetest.New(t), func(w *edge.ResponseWriter, r *edge.Request) {
			content, err := io.ReadAll(r.Body)
			_, again := r.Body.Read(make([]byte, 1))
			if string(content) != "123" || !errors.Is(err, edge.TooLarge) || !errors.Is(again, edge.TooLarge) {
				t.Errorf("got %q, %v, %v", content, err, again)
			}
			edge.Error(w, err)
		}, request)
		if got.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", got.Status)
		}
	})
}

func TestStatusAndContext(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status edge.Status
		cause  error
	}{
		{"a request under way", edge.Status{Remaining: time.Hour, Fuel: 7}, nil},
		{"a client that went away", edge.Status{Remaining: time.Hour, Canceled: true}, edge.Canceled},
		{"a lost lease", edge.Status{Remaining: time.Hour, LeaseLost: true}, edge.LeaseLost},
		{"a client that has been answered", edge.Status{Remaining: time.Hour, Late: 2 * time.Hour, Answered: true}, edge.DeadlineExceeded},
		{"a deadline that has passed", edge.Status{}, edge.DeadlineExceeded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			host := edgetest.New(t)
			serve(t, host, func(_ *edge.ResponseWriter, r *edge.Request) {
				ctx := r.Context()
				derived, cancel := context.WithCancel(ctx)
				defer cancel()
				host.SetStatus(test.status)
				if got := edge.CurrentStatus(); got != test.status {
					t.Errorf("status %+v", got)
				}
				if r.Remaining() != test.status.Remaining {
					t.Errorf("remaining %v", r.Remaining())
				}
				if test.status == (edge.Status{}) {
					return // the context was made before
				}
				if err := ctx.Err(); (err != nil) != (test.cause != nil) || !errors.Is(context.Cause(ctx), test.cause) {
					t.Errorf("err %v, cause %v", err, context.Cause(ctx))
				}
				if derived.Err() != nil != (test.cause != nil) {
					t.Errorf("derived context: %v", derived.Err())
				}
			})
		})
	}
}

func TestContextEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.SetStatus(edge.Status{Remaining: time.Millisecond})
	var kept context.Context
	got := serve(t, host, func(_ *edge.ResponseWriter, r *edge.Request) {
		ctx := r.Context()
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), edge.DeadlineExceeded) {
			t.Errorf("err %v, cause %v", ctx.Err(), context.Cause(ctx))
		}
		host.SetStatus(edge.Status{Remaining: time.Hour})
	})
	if got.Retired {
		t.Error("the context left a goroutine")
	}
	host.Handle("/next", func(_ *edge.ResponseWriter, r *edge.Request) {
		kept = r.Context()
		if kept.Err() != nil {
			t.Errorf("the next request has the context of the last: %v", kept.Err())
		}
	})
	host.Serve(httptest.NewRequest(http.MethodGet, "/next", http.NoBody))
	calls := len(host.Calls())
	select {
	case <-kept.Done():
	default:
		t.Error("the context goes on after the request")
	}
	if err := kept.Err(); !errors.Is(err, context.Canceled) || len(host.Calls()) > calls {
		t.Errorf("after the request: %v, host calls %v", err, host.Calls()[calls:])
	}
}

func TestContextCostsWhatIsAskedOfIt(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	serve(t, host, func(_ *edge.ResponseWriter, r *edge.Request) {
		ctx := r.Context()
		if calls := host.Calls(); !slices.Equal(calls, []string{"request_head"}) {
			t.Errorf("making it: host calls %v", calls)
		}
		due, _ := ctx.Deadline()
		host.SetStatus(edge.Status{Remaining: time.Hour})
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		if later, _ := derived.Deadline(); !later.Equal(due) {
			t.Errorf("the deadline has moved from %v to %v", due, later)
		}
		if calls := host.Calls(); !slices.Equal(calls, []string{"request_head", "status"}) {
			t.Errorf("deriving from it: host calls %v", calls)
		}
	})
}

func TestHeader(t *testing.T) {
	t.Parallel()
	var h edge.Header
	h.Add("A", "1")
	h.Add("B", "2")
	h.Add("a", "3")
	h.Set("b", "4")
	h.Set("C", "5")
	h.Add("K", "6")
	if got := h.Values("\u212a"); got != nil {
		t.Errorf("the Kelvin sign is a k: %q", got)
	}
	h.Set("A", "7")
	h.Del("c")
	var got []string
	for name, value := range h.All() {
		got = append(got, name+"="+value)
	}
	if want := []string{"A=7", "B=4", "K=6"}; !slices.Equal(got, want) || h.Len() != len(want) {
		t.Errorf("got %q", got)
	}
	for range h.All() {
		break
	}
}
