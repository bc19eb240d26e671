package runtime_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

// BenchmarkHello compares a greeting by plain net/http with one by guests, in
// memory (ServeHTTP alone) and over HTTP.
func BenchmarkHello(b *testing.B) {
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, conformance.HelloBody)
	})
	hello := runtime.FunctionConfig{Module: module(b, guests.hello)}
	restored, fresh := hello, hello
	restored.Isolation = runtime.IsolationRequest
	fresh.MaxRequests = 1
	handlers := []struct {
		name    string
		handler http.Handler
	}{
		{"plain", plain},
		{"assembled", benchEngine(b, runtime.FunctionConfig{Module: conformance.Hello()})},
		{"go", benchEngine(b, hello)},
		{"go-restored", benchEngine(b, restored)},
		{"go-fresh", benchEngine(b, fresh)},
	}
	for _, h := range handlers {
		b.Run("memory/"+h.name, func(b *testing.B) {
			w := &discardWriter{header: make(http.Header)}
			req := httptest.NewRequest(http.MethodGet, "/hello", nil)
			req.Header.Set("User-Agent", "bench")
			req.Header.Set("Accept", "*/*")
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.handler.ServeHTTP(w, req)
			}
		})
	}
	for _, h := range handlers {
		b.Run("http/"+h.name, func(b *testing.B) {
			server := httptest.NewServer(h.handler)
			defer server.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			defer client.CloseIdleConnections()
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Get(server.URL + "/hello")
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		})
	}
}

// BenchmarkStart starts and closes instances of a Go guest.
func BenchmarkStart(b *testing.B) {
	for name, isolation := range map[string]runtime.Isolation{"fresh": runtime.IsolationInstance, "restored": runtime.IsolationRequest} {
		b.Run(name, func(b *testing.B) {
			e := benchEngine(b, runtime.FunctionConfig{Module: module(b, guests.hello), Isolation: isolation})
			for b.Loop() {
				if err := e.Start(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchEngine(b *testing.B, f runtime.FunctionConfig) *runtime.Engine {
	b.Helper()
	h := open(b, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
	f.Name = "hello"
	h.deploy(b, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{f}})
	return h.Engine
}

// A discardWriter is a ResponseWriter that costs nothing.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
