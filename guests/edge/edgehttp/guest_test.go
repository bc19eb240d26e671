//go:build !wasip1

package edgehttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// serve gives a request to a handler.
func serve(t *testing.T, host *edgetest.Host, h http.HandlerFunc, r *http.Request) *edgetest.Response {
	t.Helper()
	host.Handle("/", edgehttp.Handler(h))
	return host.Serve(r)
}

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/", http.NoBody) }

func TestContext(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	var kept context.Context
	serve(t, host, func(_ http.ResponseWriter, r *http.Request) {
		kept = r.Context()
		deadline, ok := kept.Deadline()
		if left := time.Until(deadline); !ok || left <= 4*time.Second || left > 5*time.Second {
			t.Errorf("deadline in %v", left)
		}
		if kept.Err() != nil {
			t.Error("the context has ended")
		}
		host.SetStatus(edge.Status{Canceled: true})
		if err := kept.Err(); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(kept), edge.Canceled) {
			t.Errorf("the client has gone away: %v, %v", err, context.Cause(kept))
		}
	}, get())
	select {
	case <-kept.Done():
	default:
		t.Error("the context outlives the request")
	}
}

func TestServeMuxInTheGuest(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /shops/{shop}/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		write(w, strings.Join([]string{r.Pattern, r.PathValue("shop"), r.PathValue("id"), r.PathValue("rest")}, ","))
	})
	host := edgetest.New(t)
	host.Handle("/shops/{rest...}", edgehttp.Handler(mux))
	tests := []struct {
		name, method, target string
		status               int
		body                 string
	}{
		{"its own wildcards and those of the route", "GET", "/shops/a%20b/orders/7", 200, "GET /shops/{shop}/orders/{id},a b,7,a b/orders/7"},
		{"another method", "PUT", "/shops/a/orders/7", 405, "Method Not Allowed\n"},
		{"no pattern", "GET", "/shops/a", 404, "404 page not found\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := host.Serve(httptest.NewRequest(test.method, test.target, http.NoBody))
			if got.Status != test.status || string(got.Body) != test.body {
				t.Errorf("%d %q", got.Status, got.Body)
			}
		})
	}
}

func TestHandleWithoutHandlerServesTheDefaultMux(t *testing.T) {
	t.Parallel()
	http.HandleFunc("/default", func(w http.ResponseWriter, _ *http.Request) { write(w, "the default mux") })
	host := edgetest.New(t)
	host.Handle("/", edgehttp.Handler(nil))
	got := host.Serve(httptest.NewRequest(http.MethodGet, "/default", http.NoBody))
	if string(got.Body) != "the default mux" {
		t.Errorf("%d %q", got.Status, got.Body)
	}
}

func TestPanics(t *testing.T) {
	t.Parallel()
	t.Run("a panic is logged with the stack of its origin", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		got := serve(t, host, func(http.ResponseWriter, *http.Request) { originOfThePanic() }, get())
		logs := host.Logs()
		if !got.Failed || len(logs) != 1 || !strings.Contains(logs[0].Line, "originOfThePanic") {
			t.Errorf("%+v, logs %v", got, logs)
		}
	})
	t.Run("aborting is not logged", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		got := serve(t, host, func(w http.ResponseWriter, _ *http.Request) {
			write(w, "begun")
			flush(w)
			panic(http.ErrAbortHandler)
		}, get())
		if !got.Aborted || !got.Retired || len(host.Logs()) > 0 {
			t.Errorf("%+v, logs %v", got, host.Logs())
		}
	})
	t.Run("a status that is none", func(t *testing.T) {
		t.Parallel()
		got := serve(t, edgetest.New(t), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(42) }, get())
		if !got.Failed {
			t.Errorf("%+v", got)
		}
	})
}

func originOfThePanic() { panic("a bug") }

func TestRequestBody(t *testing.T) {
	t.Parallel()
	post := func(body io.Reader) *http.Request { return httptest.NewRequest(http.MethodPost, "/", body) }
	t.Run("reading after Close fails", func(t *testing.T) {
		t.Parallel()
		serve(t, edgetest.New(t), func(_ http.ResponseWriter, r *http.Request) {
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
			if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
				t.Errorf("%d %v", n, err)
			}
		}, post(strings.NewReader("body")))
	})
	t.Run("a body beyond the limit", func(t *testing.T) {
		t.Parallel()
		body := http.MaxBytesReader(nil, io.NopCloser(strings.NewReader("too much")), 3)
		got := serve(t, edgetest.New(t), func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			edgehttp.Error(w, err)
		}, post(body))
		if got.Status != http.StatusRequestEntityTooLarge {
			t.Errorf("%d, %s", got.Status, got.Detail)
		}
	})
	t.Run("a request without one costs no host call", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		serve(t, host, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, get())
		if want := []string{"request_head", "response_head"}; !slices.Equal(host.Calls(), want) {
			t.Errorf("host calls %v", host.Calls())
		}
	})
	t.Run("a middleware of the SDK may replace it", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		inner := edgehttp.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
			_ = r.Body.Close()
		}))
		host.Handle("/", func(w *edge.ResponseWriter, r *edge.Request) {
			r.Body = io.LimitReader(r.Body, 4)
			inner(w, r)
		})
		if got := host.Serve(post(strings.NewReader("body and more"))); string(got.Body) != "body" {
			t.Errorf("%q", got.Body)
		}
	})
}

// A wrapper is what middleware makes of a ResponseWriter.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestError(t *testing.T) {
	t.Parallel()
	refused := &edge.CallError{Code: edge.Deferred, RetryAfter: 1500 * time.Millisecond}
	t.Run("the host answers in place of what was written", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		got := serve(t, host, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Guest", "1")
			write(w, "forget this")
			edgehttp.Error(wrapper{w}, refused)
			if n, err := io.WriteString(w, "and this"); n != 0 || err == nil {
				t.Errorf("a write after the end: %d, %v", n, err)
			}
		}, get())
		if got.Code != edge.Deferred || got.Header.Get("Retry-After") != "2" || got.Header.Get("X-Guest") != "" || got.Failed {
			t.Errorf("%+v", got)
		}
	})
	t.Run("another writer gets a 500", func(t *testing.T) {
		t.Parallel()
		w := httptest.NewRecorder()
		edgehttp.Error(wrapper{w}, refused)
		if w.Code != http.StatusInternalServerError {
			t.Error(w.Code)
		}
	})
}

func TestFieldsSetBySDKMiddleware(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	inner := edgehttp.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("X-Drop") }))
	host.Handle("/", func(w *edge.ResponseWriter, r *edge.Request) {
		w.Header().Set("X-Keep", "1")
		w.Header().Set("X-Drop", "1")
		inner(w, r)
	})
	got := host.Serve(get())
	if got.Header.Get("X-Keep") != "1" || got.Header.Get("X-Drop") != "" {
		t.Errorf("%v", got.Header)
	}
}

func TestWriteCountsWhatItTakes(t *testing.T) {
	t.Parallel()
	for _, first := range []int{1, 511, 512, 513, 5000} {
		got := serve(t, edgetest.New(t), func(w http.ResponseWriter, _ *http.Request) {
			for _, size := range []int{first, 1, 511, 512, 5000} {
				if n, err := w.Write(make([]byte, size)); n != size || err != nil {
					t.Errorf("%d bytes after %d: %d, %v", size, first, n, err)
				}
			}
		}, get())
		if len(got.Body) != first+6024 {
			t.Errorf("%d bytes arrive", len(got.Body))
		}
	}
}

func TestResponseController(t *testing.T) {
	t.Parallel()
	serve(t, edgetest.New(t), func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := errors.Join(c.Flush(), c.EnableFullDuplex()); err != nil {
			t.Error(err)
		}
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := c.SetWriteDeadline(time.Time{}); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("SetWriteDeadline: %v", err)
		}
	}, get())
	t.Run("flushing says when the client has gone away", func(t *testing.T) {
		t.Parallel()
		host := edgetest.New(t)
		serve(t, host, func(w http.ResponseWriter, _ *http.Request) {
			host.SetStatus(edge.Status{Canceled: true})
			if err := http.NewResponseController(w).Flush(); !errors.Is(err, edge.Canceled) {
				t.Error(err)
			}
		}, get())
	})
}
