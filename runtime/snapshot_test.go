package runtime_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

// secrets is the function that hides and seeks, with one instance.
func secrets(tb testing.TB) runtime.FunctionConfig {
	tb.Helper()
	return runtime.FunctionConfig{
		Name:      "secrets",
		Module:    module(tb, guests.secrets),
		Routes:    []string{"/secrets/{what}"},
		Isolation: runtime.IsolationRequest,
		Instances: 1,
		Timeout:   10 * time.Second,
	}
}

func TestRestoredGuestAnswers(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{
		Name: "hello", Module: module(t, guests.hello), Isolation: runtime.IsolationRequest,
	})
	for range 30 {
		resp, body := h.get(t, "/hello")
		if resp.StatusCode != http.StatusOK || body != conformance.HelloBody {
			t.Fatalf("got %d %q, want 200 %q", resp.StatusCode, body, conformance.HelloBody)
		}
	}
}

// seek looks for traces of earlier requests, as a guest can and as a host can.
func (h *host) seek(t *testing.T) {
	t.Helper()
	resp, body := h.get(t, "/secrets/seek")
	if resp.StatusCode != http.StatusOK || body != "" {
		t.Errorf("got %d, and found: %s", resp.StatusCode, body)
	}
	for _, difference := range h.Traces() {
		t.Error(difference)
	}
}

func TestNothingOfARequestIsVisibleToTheNext(t *testing.T) {
	h := serve(t, secrets(t))
	for n := range 12 { // until it is known which pages are written
		resp, body := h.get(t, fmt.Sprintf("/secrets/hide?secret=hush-%d", n))
		if resp.StatusCode != http.StatusOK || body != "hidden" {
			t.Fatalf("got %d %q", resp.StatusCode, body)
		}
		h.seek(t)
	}
	if log := h.log.String(); !strings.Contains(log, "text=unfinished") || !strings.Contains(log, "text=whole") {
		t.Error("the lines that the guest printed are not whole")
	}
	if n := h.ColdStarts(); n != 1 {
		t.Errorf("%d instances were started for requests that can be undone", n)
	}
}
