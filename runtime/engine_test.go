package runtime_test

import (
	"context"
	"encoding/json"
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
			os.RemoveAll(dir)
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
func serve(t testing.TB, functions ...runtime.FunctionConfig) *host {
	t.Helper()
	h := open(t, runtime.Config{})
	h.deploy(t, runtime.App{Name: "app", Functions: functions})
	return h
}

func open(t testing.TB, cfg runtime.Config) *host {
	t.Helper()
	h := &host{log: new(log)}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(h.log, nil))
	}
	if cfg.CacheDir == "" {
		dir, err := codeCache()
		if err != nil {
			t.Fatal(err)
		}
		cfg.CacheDir = dir
	}
	engine, err := runtime.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine)
	t.Cleanup(func() {
		server.CloseClientConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := engine.Close(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Log(h.log)
		}
	})
	h.Engine, h.url = engine, server.URL
	return h
}

func (h *host) deploy(t testing.TB, app runtime.App) {
	t.Helper()
	for i, f := range app.Functions {
		if f.Routes == nil {
			app.Functions[i].Routes = []string{"/" + f.Name}
		}
	}
	if err := h.Deploy(t.Context(), app); err != nil {
		t.Fatal(err)
	}
}

// do sends a request and returns the answer with its whole body.
func (h *host) do(t testing.TB, method, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	return send(t, req)
}

func (h *host) get(t testing.TB, path string) (*http.Response, string) {
	t.Helper()
	return h.do(t, http.MethodGet, path, nil)
}

func send(t testing.TB, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// A document is a problem document.
type document struct {
	Type, Title, Code string
	Status            int
	RequestID         string `json:"request_id"`
}

// wantProblem checks that an answer is the problem document of a code.
func wantProblem(t testing.TB, resp *http.Response, body string, status int, code string) {
	t.Helper()
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != status || got != "application/problem+json" {
		t.Fatalf("got %d %q %q, want %d and a problem document", resp.StatusCode, got, body, status)
	}
	var d document
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	if d.Code != code || d.Status != status || d.Title == "" || d.Type == "" {
		t.Errorf("got %+v, want code %s and status %d", d, code, status)
	}
	if id := resp.Header.Get("X-Request-Id"); d.RequestID == "" || d.RequestID != id {
		t.Errorf("request_id is %q in the document and %q in the header", d.RequestID, id)
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
