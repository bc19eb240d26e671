// Package httptour is a handler that uses net/http, to show that it works in Wasm
// as it does under go test.
package httptour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest/internal/tour"
)

var stops = map[string]http.HandlerFunc{
	"request":  request,
	"response": response,
	"body":     body,
	"client":   client,
	"plain":    plain,
	"proxy":    proxy,
	"refused":  refused,
	"timeout":  timeout,
	"canceled": canceled,
	"abort":    abort,
	"panic":    func(http.ResponseWriter, *http.Request) { panic("tour") },
}

// Stops returns the names of the paths that Handler knows.
func Stops() []string { return slices.Collect(maps.Keys(stops)) }

// Handler goes to the stop that the path names, by a ServeMux of its own.
func Handler() http.Handler {
	mux := http.NewServeMux()
	for name, stop := range stops {
		mux.HandleFunc("POST /"+name, stop)
	}
	return mux
}

func request(w http.ResponseWriter, r *http.Request) {
	_, hasDeadline := r.Context().Deadline()
	_, _ = fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.ProtoMajor, r.Host, r.RemoteAddr, r.Pattern,
		r.PathValue("stop"), r.Header["Multi"], r.ContentLength, r.TLS, hasDeadline, r.Context().Err())
}

func response(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Link", "</style.css>; rel=preload")
	w.WriteHeader(http.StatusEarlyHints)
	w.Header().Set("Trailer", "X-Sum")
	w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
	_, _ = io.WriteString(w, "<!DOCTYPE html>")
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(err)
	}
	_, _ = io.WriteString(w, strings.Repeat("long", 20<<10))
	w.Header().Set("X-Sum", "9")
	w.Header().Set(http.TrailerPrefix+"X-Late", "1")
}

func body(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(w, r.Body)
	_, _ = fmt.Fprintln(w, n, err, r.Trailer, r.Body.Close())
}

var guarded = &http.Client{Transport: edgehttp.Transport(tour.Dependency), Timeout: time.Minute}

func client(w http.ResponseWriter, r *http.Request) {
	for _, content := range []io.Reader{nil, strings.NewReader("inline"), r.Body} {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPut, "/charge?x=1", content)
		if err != nil {
			panic(err)
		}
		req.Header.Set("X-Ask", "ask")
		show(w, guarded, req)
	}
}

func plain(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, tour.Plain, http.NoBody)
	if err != nil {
		panic(err)
	}
	show(w, &http.Client{Transport: edgehttp.Transport("")}, req)
}

// show makes a request and writes the answer.
func show(w io.Writer, c *http.Client, r *http.Request) {
	resp, err := c.Do(r)
	if err != nil {
		_, _ = fmt.Fprintln(w, err)
		return
	}
	content, err := io.ReadAll(resp.Body)
	_, _ = fmt.Fprintln(w, resp.Status, resp.Proto, resp.Header["Set-Cookie"], resp.ContentLength, resp.Trailer, string(content), err, resp.Body.Close())
}

func proxy(w http.ResponseWriter, r *http.Request) {
	p := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Path: "/v1"}) },
		Transport: edgehttp.Transport(tour.Dependency),
	}
	p.ServeHTTP(w, r)
}

func refused(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+string(tour.Refused)+"/", http.NoBody)
	if err != nil {
		panic(err)
	}
	resp, err := (&http.Client{Transport: edgehttp.Transport(tour.Refused)}).Do(req)
	if err == nil {
		_ = resp.Body.Close()
		panic("the call was not refused")
	}
	if !errors.Is(err, edge.Deferred) {
		panic(err)
	}
	edgehttp.Error(w, err)
}

// timeout waits for time to pass, which needs no host.
func timeout(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	_, _ = fmt.Fprintln(w, ctx.Err(), r.Context().Err())
}

func canceled(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		panic(err)
	}
	show(w, guarded, req)
}

func abort(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, strings.Repeat("long", 20<<10))
	panic(http.ErrAbortHandler)
}
