package conformance

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// An upstream is the dependency that the guests call.
type upstream struct {
	*httptest.Server

	mu      sync.Mutex
	results map[string]chan []byte // what guests send to /results/{tag}
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{results: make(map[string]chan []byte)}
	mux := http.NewServeMux()
	mux.HandleFunc("/base/echo", echo)
	mux.HandleFunc("/base/trailers", trailers)
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

// echo sends back the body, and what it saw of the head.
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
	_, _ = w.Write(body)
}

// trailers sends a body and trailers behind it.
func trailers(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(http.TrailerPrefix+"X-Sum", "7")
	_, _ = io.WriteString(w, "body")
	_ = http.NewResponseController(w).Flush() // only a body of unknown length has any
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
	select {
	case u.mailbox(r.PathValue("tag")) <- body:
	default: // nobody asks for it twice
	}
}

// mailbox is where the results of one script arrive.
func (u *upstream) mailbox(tag string) chan []byte {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.results[tag] == nil {
		u.results[tag] = make(chan []byte, 1)
	}
	return u.results[tag]
}

// kept waits for the results of a script: a guest may send them after its
// answer. It returns none if they do not come in time.
func (u *upstream) kept(ctx context.Context, tag string) []byte {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case results := <-u.mailbox(tag):
		return results
	case <-ctx.Done():
		return nil
	}
}
