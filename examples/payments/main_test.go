//go:build !wasip1

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// pay serves POST /orders/7 with a payment service that answers with the
// handler.
func pay(t *testing.T, payments http.HandlerFunc) *edgetest.Response {
	t.Helper()
	host := edgetest.New(t)
	host.Route("POST /orders/{id}")
	host.Dependency("payments", payments)
	return host.Serve(httptest.NewRequest("POST", "/orders/7", http.NoBody))
}

func TestAnOrderIsCharged(t *testing.T) {
	got := pay(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method+" "+r.URL.Path != "POST /charges" || string(body) != `{"order":"7"}` {
			t.Errorf("payments got %s %s with %s, %v", r.Method, r.URL, body, err)
		}
		w.WriteHeader(http.StatusCreated)
		if _, err := io.WriteString(w, `{"charge":1}`); err != nil {
			t.Error(err)
		}
	})
	if got.Status != http.StatusCreated || string(got.Body) != `{"charge":1}` || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %d %v %s", got.Status, got.Header, got.Body)
	}
}

func TestAnAnswerOfThePaymentService(t *testing.T) {
	tests := []struct {
		name   string
		answer int
		status int
		code   edge.Code
	}{
		{"a declined card is the client's to know", http.StatusPaymentRequired, http.StatusPaymentRequired, 0},
		{"a failure is not", http.StatusServiceUnavailable, http.StatusBadGateway, edge.DependencyFailed},
		{"nor is what nobody expects", http.StatusTeapot, http.StatusBadGateway, edge.DependencyFailed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := pay(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.answer) })
			if got.Status != test.status || got.Code != test.code {
				t.Errorf("status %d, code %v; want %d, %v", got.Status, got.Code, test.status, test.code)
			}
		})
	}
}

func TestARefusedCallSaysWhenToComeBack(t *testing.T) {
	for _, code := range []edge.Code{edge.BreakerOpen, edge.Deferred} {
		t.Run(code.String(), func(t *testing.T) {
			host := edgetest.New(t)
			host.Route("POST /orders/{id}")
			host.Refuse("payments", code, 3*time.Second)
			got := host.Serve(httptest.NewRequest("POST", "/orders/7", http.NoBody))
			if got.Status != http.StatusServiceUnavailable || got.Code != code || got.Header.Get("Retry-After") != "3" {
				t.Errorf("status %d, code %v, Retry-After %q", got.Status, got.Code, got.Header.Get("Retry-After"))
			}
		})
	}
}
