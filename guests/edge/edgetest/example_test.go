//go:build !wasip1

package edgetest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

func Example() {
	checkout := func(w *edge.ResponseWriter, r *edge.Request) {
		charge, err := edge.NewRequest("POST", "/charge/"+r.PathValue("id"), nil)
		if err == nil {
			_, err = edge.Dependency("payments").Fetch(charge)
		}
		if err != nil {
			edge.Error(w, err)
			return
		}
		_, _ = w.WriteString("paid")
	}

	var t testing.TB = discard{} // in a test, its *testing.T
	host := edgetest.New(t)
	host.Handle("POST /orders/{id}", checkout)
	order := func() {
		got := host.Serve(httptest.NewRequest(http.MethodPost, "/orders/7", http.NoBody))
		fmt.Println(got.Status, got.Code, got.Header.Get("Retry-After"), string(got.Body))
	}

	host.Dependency("payments", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("payments sees", r.Method, r.URL.Path)
	}))
	order()
	host.Refuse("payments", edge.Deferred, 3*time.Second)
	order()
	// Output:
	// payments sees POST /charge/7
	// 200 ok  paid
	// 503 deferred 3
}

// discard is a testing.TB for code outside of a test.
type discard struct{ testing.TB }

func (discard) Helper()             {}
func (discard) Logf(string, ...any) {}
