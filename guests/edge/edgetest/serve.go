//go:build !wasip1

package edgetest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Response is what the client got, and what the host learned.
type Response struct {
	Status        int
	Header        http.Header
	Body          []byte
	Trailer       http.Header
	Informational []int // 1xx statuses, in order

	Code    edge.Code // set if the guest left the answer to the host, as edge.Error does
	Detail  string    // the text that came with Code, for the host's log
	Failed  bool      // the guest failed: it panicked, or its response was refused
	Aborted bool      // it failed after the head had gone out, so the client saw the body break off
	Retired bool      // the host discards the instance
}

// Serve gives a request to the handler and returns the response once it has
// returned. Without a route that matches, the client gets the answer of
// http.ServeMux. Requests of all hosts of the process are served one after
// another.
func (h *Host) Serve(r *http.Request) *Response {
	h.tb.Helper()
	m := h.match(r)
	if m.request == nil {
		return &Response{Status: m.Code, Header: m.Header(), Body: m.Body.Bytes()}
	}
	x := newExchange(h, m.request)
	defer x.end()
	host.Use(x, func(registered func() int32) {
		serve := m.serve
		if serve == nil {
			serve = registered
		}
		if serve == nil {
			h.tb.Fatal("edgetest: no handler: the package under test has not called edge.Handle")
		}
		if code := x.acquireFunctionLease(); code < 0 {
			retry := time.Duration(x.failure.RetryAfter)
			x.ResponseFail(code, int32(retry.Milliseconds()), "function lease")
			return
		}
		x.settle(serve())
	})
	return &x.response
}

// Run calls f as a part of a request of no interest, for code that has no
// handler's arguments: a function that calls a dependency or keeps state, for
// instance. Leases that f leaves behind are released.
func (h *Host) Run(f func()) {
	h.tb.Helper()
	x := newExchange(h, httptest.NewRequestWithContext(h.tb.Context(), http.MethodGet, "/", http.NoBody))
	defer x.end()
	host.Use(x, func(func() int32) { f() })
}

// A match receives what a route knows of a request. Without a match it holds
// the answer of http.ServeMux.
type match struct {
	*httptest.ResponseRecorder
	request *http.Request
	serve   func() int32 // nil for the registered handler
}

func (h *Host) match(r *http.Request) *match {
	h.mu.Lock()
	routes := h.routes
	h.mu.Unlock()
	m := &match{ResponseRecorder: httptest.NewRecorder()}
	if routes == nil {
		m.request = r
	} else {
		routes.ServeHTTP(m, r)
	}
	return m
}

func (h *Host) route(pattern string, serve func() int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.routes == nil {
		h.routes = http.NewServeMux()
	}
	h.routes.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if m, ok := w.(*match); ok {
			m.request, m.serve = r, serve
		}
	})
}

// requestHead returns the head of a request as the host gives it to the guest.
func requestHead(r *http.Request) []byte {
	target := r.RequestURI
	if target == "" {
		target = r.URL.RequestURI()
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	var b []byte
	b = abi.AppendText(b, abi.FieldMethod, r.Method)
	b = abi.AppendText(b, abi.FieldTarget, target)
	b = abi.AppendText(b, abi.FieldProtocol, r.Proto)
	b = abi.AppendText(b, abi.FieldRemote, r.RemoteAddr)
	b = abi.AppendText(b, abi.FieldHost, r.Host)
	b = abi.AppendText(b, abi.FieldScheme, scheme)
	b = appendHeader(b, r.Header)
	for _, name := range wildcards(r.Pattern) {
		b = abi.AppendPair(b, abi.FieldPathValue, name, r.PathValue(name))
	}
	b = abi.AppendText(b, abi.FieldRequestID, "edgetest")
	b = abi.AppendText(b, abi.FieldRoute, r.Pattern)
	if r.ContentLength >= 0 {
		b = abi.AppendNumber(b, abi.FieldContentLength, uint64(r.ContentLength))
	}
	return b
}

// wildcards returns the names of a pattern's wildcards.
func wildcards(pattern string) (names []string) {
	for {
		_, rest, found := strings.Cut(pattern, "{")
		name, rest, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return names
		}
		if name = strings.TrimSuffix(name, "..."); name != "$" {
			names = append(names, name)
		}
		pattern = rest
	}
}
