package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := codeCache(); err == nil {
			_ = os.RemoveAll(dir)
		}
		os.Exit(code)
	}))
}

// A log collects what an engine logs.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A host is an engine behind a server.
type host struct {
	*runtime.Engine
	url string
	log *log
}

// serve deploys functions on an engine of their own. A function without routes
// gets "/" and its name.
func serve(tb testing.TB, functions ...runtime.FunctionConfig) *host {
	tb.Helper()
	h := open(tb, runtime.Config{})
	h.deploy(tb, runtime.App{Name: "app", Functions: functions})
	return h
}

func open(tb testing.TB, cfg runtime.Config) *host {
	tb.Helper()
	h := &host{log: new(log)}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(h.log, nil))
	}
	if cfg.CacheDir == "" {
		dir, err := codeCache()
		if err != nil {
			tb.Fatal(err)
		}
		cfg.CacheDir = dir
	}
	engine, err := runtime.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(engine)
	tb.Cleanup(func() {
		server.CloseClientConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			tb.Error(err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
		if tb.Failed() {
			tb.Log(h.log)
		}
	})
	h.Engine, h.url = engine, server.URL
	return h
}

func (h *host) deploy(tb testing.TB, app runtime.App) {
	tb.Helper()
	for i, f := range app.Functions {
		if f.Routes == nil {
			app.Functions[i].Routes = []string{"/" + f.Name}
		}
	}
	if err := h.Deploy(tb.Context(), app); err != nil {
		tb.Fatal(err)
	}
}

// An answer is a response without its body.
type answer struct {
	StatusCode      int
	Proto           string
	Header, Trailer http.Header
	ContentLength   int64
}

// do sends a request and returns the answer with its whole body.
func (h *host) do(tb testing.TB, method, path string, body io.Reader) (answer, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, h.url+path, body)
	if err != nil {
		tb.Fatal(err)
	}
	return send(tb, req)
}

func (h *host) get(tb testing.TB, path string) (answer, string) {
	tb.Helper()
	return h.do(tb, http.MethodGet, path, nil)
}

func send(tb testing.TB, req *http.Request) (answer, string) {
	tb.Helper()
	return sendBy(tb, http.DefaultClient, req)
}

func sendBy(tb testing.TB, client *http.Client, req *http.Request) (answer, string) {
	tb.Helper()
	resp, err := client.Do(req)
	if err != nil {
		tb.Error(err)
		return answer{}, ""
	}
	b, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		tb.Error(err)
	}
	return answer{resp.StatusCode, resp.Proto, resp.Header, resp.Trailer, resp.ContentLength}, string(b)
}

// A document is a problem document.
type document struct {
	Type, Title, Code string
	Status            int
	RequestID         string `json:"request_id"`
}

// wantProblem checks that an answer is the problem document of a code.
func wantProblem(tb testing.TB, resp answer, body string, status int, code string) {
	tb.Helper()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != status || got != "application/problem+json" {
		tb.Fatalf("got %d %q %q, want %d and a problem document", resp.StatusCode, got, body, status)
	}
	var d document
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		tb.Fatalf("%q: %v", body, err)
	}
	if d.Code != code || d.Status != status || d.Title == "" || d.Type == "" {
		tb.Errorf("got %+v, want code %s and status %d", d, code, status)
	}
	if id := resp.Header.Get("X-Request-Id"); d.RequestID == "" || d.RequestID != id {
		tb.Errorf("request_id is %q in the document and %q in the header", d.RequestID, id)
	}
}

func TestHandWrittenGuestAnswers(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "hello", Module: conformance.Hello()})
	for range 3 {
		resp, body := h.get(t, "/hello")
		if resp.StatusCode != http.StatusOK || body != conformance.HelloBody {
			t.Fatalf("got %d %q, want 200 %q", resp.StatusCode, body, conformance.HelloBody)
		}
		if resp.ContentLength != int64(len(body)) || resp.Header.Get("X-Request-Id") == "" {
			t.Errorf("Content-Length %d, X-Request-Id %q", resp.ContentLength, resp.Header.Get("X-Request-Id"))
		}
	}
}
