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
	handlers := []struct {
		name    string
		handler http.Handler
	}{
		{"plain", plain},
		{"assembled", benchEngine(b, conformance.Hello())},
		{"go", benchEngine(b, module(b, guests.hello))},
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

func benchEngine(b *testing.B, module []byte) *runtime.Engine {
	b.Helper()
	h := open(b, runtime.Config{Logger: slog.New(slog.DiscardHandler)})
	h.deploy(b, runtime.App{Name: "app", Functions: []runtime.FunctionConfig{{Name: "hello", Module: module}}})
	return h.Engine
}

// A discardWriter is a ResponseWriter that costs nothing.
type discardWriter struct{ header http.Header }

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) WriteHeader(int)             {}
func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
