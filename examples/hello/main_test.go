//go:build !wasip1

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

func TestHello(t *testing.T) {
	t.Parallel()
	host := edgetest.New(t)
	host.Route("GET /hello")
	host.Route("GET /hello/{name}")
	tests := []struct {
		name, method, target string
		status               int
		body                 string
	}{
		{"nobody in particular", "GET", "/hello", 200, "hello, world\n"},
		{"somebody", "GET", "/hello/ada", 200, "hello, ada\n"},
		{"a name that is escaped in the path", "GET", "/hello/Ada%20L.", 200, "hello, Ada L.\n"},
		{"no route", "GET", "/bye", 404, ""},
		{"another method", "POST", "/hello", 405, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := host.Serve(httptest.NewRequest(test.method, test.target, http.NoBody))
			if got.Status != test.status {
				t.Errorf("status %d, want %d", got.Status, test.status)
			}
			if test.body != "" && string(got.Body) != test.body {
				t.Errorf("body %q, want %q", got.Body, test.body)
			}
		})
	}
}
