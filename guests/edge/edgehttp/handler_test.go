//go:build !wasip1

package edgehttp_test

import (
	"bytes"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// An answer is what a client sees.
type answer struct {
	Status        int
	Header        http.Header
	Body          string
	Trailer       http.Header
	Informational []int
	Broken        bool
}

// serveByServer answers by a server of net/http.
func serveByServer(t *testing.T, h http.HandlerFunc, method string) (a answer) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			a.Informational = append(a.Informational, code)
			return nil
		},
	})
	req, err := http.NewRequestWithContext(ctx, method, server.URL+"/", requestBody(method))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Transport.RoundTrip(req) // a client would follow redirects
	if err != nil {
		return answer{Broken: true}
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	for _, name := range []string{"Date", "Content-Length", "Connection", "Trailer"} { // the host's
		resp.Header.Del(name)
	}
	maps.DeleteFunc(resp.Trailer, func(_ string, values []string) bool { return values == nil }) // announced only
	a.Status, a.Header, a.Body, a.Trailer, a.Broken = resp.StatusCode, resp.Header, string(content), resp.Trailer, err != nil
	return a.seen()
}

// serveByGuest answers as a guest does.
func serveByGuest(t *testing.T, h http.HandlerFunc, method string) answer {
	t.Helper()
	host := edgetest.New(t)
	host.Handle("/", edgehttp.Handler(h))
	got := host.Serve(httptest.NewRequest(method, "/", requestBody(method)))
	if got.Failed && !got.Aborted {
		return answer{Broken: true}
	}
	got.Header.Del("Content-Length")
	if method == http.MethodHead {
		got.Trailer = nil // which the host leaves out
	}
	return answer{got.Status, got.Header, string(got.Body), got.Trailer, got.Informational, got.Failed}.seen()
}

// seen leaves out how much of a broken answer arrived, which depends on buffers.
func (a answer) seen() answer {
	if a.Broken {
		a.Body = ""
	}
	return a
}

// TestResponseIsThatOfNetHTTP serves the same handlers both ways.
func TestResponseIsThatOfNetHTTP(t *testing.T) {
	t.Parallel()
	const page = "<!DOCTYPE html><title>page</title>"
	long := strings.Repeat("0123456789abcdef", 1000)
	type w = http.ResponseWriter
	type r = *http.Request
	type test struct {
		name    string
		handler http.HandlerFunc
	}
	tests := []test{
		{"nothing is written", func(w, r) {}},
		{"a status alone", func(w w, _ r) { w.WriteHeader(http.StatusTeapot) }},
		{"the type of HTML is detected", func(w w, _ r) { write(w, page) }},
		{"the type is detected in several writes", func(w w, _ r) {
			for _, part := range strings.SplitAfter(page, ">") {
				write(w, part)
			}
		}},
		{"the type is detected over the end of what is looked at", func(w w, _ r) {
			write(w, strings.Repeat(" ", 505))
			write(w, page)
		}},
		{"a long body in one write", func(w w, _ r) { write(w, long) }},
		{"a long body after a short beginning", func(w w, _ r) { write(w, page); write(w, long); write(w, page) }},
		{"bytes and strings mixed", func(w w, _ r) {
			write(w, page)
			_, _ = w.Write(bytes.Repeat([]byte("b"), 600))
			write(w, "end")
		}},
		{"a type of the handler's", func(w w, _ r) { w.Header().Set("Content-Type", "text/x"); write(w, page) }},
		{"no type at all", func(w w, _ r) { w.Header()["Content-Type"] = nil; write(w, page) }},
		{"a content coding hides the type", func(w w, _ r) { w.Header().Set("Content-Encoding", "x"); write(w, page) }},
		{"fields of one name are kept apart", func(w w, _ r) { w.Header()["Set-Cookie"] = []string{"a=1", "b=2"} }},
		{"fields set after the head are not sent", func(w w, _ r) {
			w.Header().Set("X-Early", "1")
			w.WriteHeader(http.StatusAccepted)
			w.Header().Set("X-Late", "1")
			w.Header().Set("X-Early", "2")
		}},
		{"a value that would break the line", func(w w, _ r) { w.Header().Set("X-Lines", " one\r\nTwo: 2 ") }},
		{"a name that is none", func(w w, _ r) { w.Header().Set("no name", "1"); w.Header()[""] = []string{"1"} }},
		{"a second status is ignored", func(w w, _ r) { w.WriteHeader(http.StatusAccepted); w.WriteHeader(http.StatusTeapot) }},
		{"informational answers", func(w w, _ r) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			w.Header().Del("Link")
			write(w, page)
		}},
		{"204 has no body", func(w w, _ r) { w.WriteHeader(http.StatusNoContent); write(w, "x") }},
		{"304 has no body", func(w w, _ r) { w.WriteHeader(http.StatusNotModified); write(w, "x") }},
		{"a body as long as said", func(w w, _ r) { w.Header().Set("Content-Length", "4"); write(w, "body") }},
		{"what exceeds the length is refused", func(w w, _ r) {
			w.Header().Set("Content-Length", "4")
			write(w, "body")
			write(w, "more")
		}},
		{"a body shorter than said breaks off", func(w w, _ r) { w.Header().Set("Content-Length", "9"); write(w, "body"); flush(w) }},
		{"announced trailers", func(w w, _ r) {
			w.Header().Add("Trailer", "X-Sum, x-count")
			w.Header().Add("Trailer", "X-Absent")
			write(w, page)
			flush(w)
			w.Header().Set("X-Sum", "9")
			w.Header()["X-Count"] = []string{"1", "2"}
			w.Header().Set("X-Other", "not announced")
		}},
		{"trailers by prefix", func(w w, _ r) {
			w.Header().Set(http.TrailerPrefix+"X-Before", "1")
			write(w, page)
			flush(w)
			w.Header().Set(http.TrailerPrefix+"X-After", "2")
		}},
		{"flushing sends the head", func(w w, _ r) { flush(w); w.Header().Set("X-Late", "1"); write(w, page) }},
		{"flushing ends what is looked at", func(w w, _ r) { write(w, "<!DOCTYPE "); flush(w); write(w, "html>") }},
		{"the request is read after the answer has begun", func(w w, r r) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			write(w, page)
			flush(w)
			_, _ = io.Copy(w, r.Body)
		}},
		{"files", func(w w, r r) { http.ServeContent(w, r, "x.css", time.Unix(1e9, 0), strings.NewReader(long)) }},
		{"a part of a file", func(w w, r r) {
			r.Header.Set("Range", "bytes=2-5")
			http.ServeContent(w, r, "x.css", time.Unix(1e9, 0), strings.NewReader(long))
		}},
		{"a redirect", func(w w, r r) { http.Redirect(w, r, "other", http.StatusPermanentRedirect) }},
	}
	withBody := []test{ // where a server treats HEAD in another way
		{"a length that is none", func(w w, _ r) { w.Header().Set("Content-Length", "four"); write(w, "body") }},
		{"an aborted answer", func(w w, _ r) { write(w, long); panic(http.ErrAbortHandler) }},
		{"an answer aborted before it began", func(w, r) { panic(http.ErrAbortHandler) }},
	}
	for method, tests := range map[string][]test{http.MethodPost: append(tests, withBody...), http.MethodHead: tests} {
		for _, test := range tests {
			t.Run(method+" "+test.name, func(t *testing.T) {
				t.Parallel()
				want, got := serveByServer(t, test.handler, method), serveByGuest(t, test.handler, method)
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("answer (-server +guest):\n%s", diff)
				}
			})
		}
	}
}

// requestBody is what both send, except with HEAD.
func requestBody(method string) io.Reader {
	if method == http.MethodHead {
		return http.NoBody
	}
	return strings.NewReader("the request")
}

// write leaves errors to those who look for them.
func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// TestRequestIsThatOfNetHTTP compares what a handler sees with what a server of
// net/http passes.
func TestRequestIsThatOfNetHTTP(t *testing.T) {
	t.Parallel()
	type view struct {
		Method, URI, Path, Query, Proto, Host, Remote, Pattern, Dir, Rest, None string
		Major, Minor                                                            int
		Header                                                                  http.Header
		Length                                                                  int64
		Body                                                                    string
		Trailer, TrailerOfCopy                                                  http.Header
		TLS                                                                     bool
	}
	look := func(r *http.Request) view {
		middlewares := r.WithContext(t.Context())
		content, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		return view{
			r.Method, r.RequestURI, r.URL.Path, r.URL.RawQuery, r.Proto, r.Host, r.RemoteAddr, r.Pattern,
			r.PathValue("dir"), r.PathValue("rest"), r.PathValue("none"), r.ProtoMajor, r.ProtoMinor,
			r.Header, r.ContentLength, string(content), r.Trailer, middlewares.Trailer, r.TLS != nil,
		}
	}
	const route = "/files/{dir}/{rest...}"
	var want, got view
	var seen *http.Request
	mux := http.NewServeMux()
	mux.HandleFunc(route, func(_ http.ResponseWriter, r *http.Request) {
		seen, want = r, look(r)
	})
	server := httptest.NewTLSServer(mux)
	defer server.Close()
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+"/files/a%20b/c/d?x=1&x=2", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Multi"] = []string{"one", "two"}
	req.Header.Set("User-Agent", "test")
	req.Trailer = http.Header{"X-Sum": nil}
	go func() {
		write(writer, "body")
		req.Trailer.Set("X-Sum", "9")
		_ = writer.Close()
	}()
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()

	again := httptest.NewRequest(seen.Method, seen.RequestURI, strings.NewReader(want.Body))
	again.Header, again.Trailer, again.ContentLength = seen.Header, seen.Trailer, seen.ContentLength
	again.Host, again.RemoteAddr, again.TLS = seen.Host, seen.RemoteAddr, seen.TLS
	host := edgetest.New(t)
	host.Handle(route, edgehttp.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = look(r) })))
	host.Serve(again)
	if diff := cmp.Diff(want, got); diff != "" || want.TrailerOfCopy.Get("X-Sum") != "9" {
		t.Errorf("request (-server +guest):\n%s", diff)
	}
}
