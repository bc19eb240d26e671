package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// An upstream is the dependency that the guests call.
type upstream struct {
	*httptest.Server

	mu      sync.Mutex
	results map[string][]byte // what guests sent to /results/{tag}
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{results: make(map[string][]byte)}
	mux := http.NewServeMux()
	mux.HandleFunc("/base/echo", echo)
	mux.HandleFunc("/base/status/{status}", status)
	mux.HandleFunc("/base/hang", hang)
	mux.HandleFunc("/base/drip", drip)
	mux.HandleFunc("/base/cut", cut)
	mux.HandleFunc("/base/redirect", redirect)
	mux.HandleFunc("/base/results/{tag}", u.keep)
	u.Server = httptest.NewServer(mux)
	t.Cleanup(u.Close)
	return u
}

// echo sends back the body, the trailers, and what it saw of the head.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var names []string
	for name := range r.Header {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	h := w.Header()
	h.Set("X-Seen", r.Method+" "+r.URL.RequestURI()+" "+strconv.FormatInt(r.ContentLength, 10))
	h.Set("X-Seen-Names", strings.Join(names, ","))
	h.Set("X-Seen-Values", strings.Join(r.Header["X-Sent"], "|"))
	h.Set("X-Seen-Fence", r.Header.Get("Edgehost-Fence"))
	h.Add("Set-Cookie", "a=1")
	h.Add("Set-Cookie", "b=2")
	for name, values := range r.Trailer {
		h[http.TrailerPrefix+"Back-"+name] = values
	}
	if len(r.Trailer) > 0 {
		_ = http.NewResponseController(w).Flush() // trailers need a body of unknown length
	}
	_, _ = w.Write(body)
}

func status(w http.ResponseWriter, r *http.Request) {
	if code, err := strconv.Atoi(r.PathValue("status")); err == nil {
		w.WriteHeader(code)
	}
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// drip sends a head and a few bytes, and then nothing.
func drip(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "drop")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// cut breaks an answer off.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "half")
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func redirect(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
}

func (u *upstream) keep(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.results[r.PathValue("tag")] = body
}

func (u *upstream) kept(tag string) []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.results[tag]
}
