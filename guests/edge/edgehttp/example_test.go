//go:build !wasip1

package edgehttp_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgehttp"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// A function charges an order through the dependency payments. Its init function
// would give the mux to edgehttp.Handle; here a host in the process serves it.
func Example() {
	client := &http.Client{Transport: edgehttp.Transport("payments")}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/charge", func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "/charge/"+r.PathValue("id"), r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			edgehttp.Error(w, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})

	host := edgetest.New(discard{})
	host.Handle("/", edgehttp.Handler(mux))
	charge := func() *edgetest.Response {
		return host.Serve(httptest.NewRequest(http.MethodPost, "/orders/7/charge", http.NoBody))
	}
	host.Dependency("payments", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, "charged by ", r.URL.Path)
	}))
	got := charge()
	fmt.Println(got.Status, string(got.Body))

	host.Refuse("payments", edge.BreakerOpen, 2*time.Second)
	got = charge()
	fmt.Println(got.Status, "Retry-After", got.Header.Get("Retry-After"))
	// Output:
	// 201 charged by /charge/7
	// 503 Retry-After 2
}

// discard is a testing.TB for code outside of a test.
type discard struct{ testing.TB }

func (discard) Helper()             {}
func (discard) Logf(string, ...any) {}
