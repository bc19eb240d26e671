package runtime_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

func TestGuestThatFailsIsAnsweredWithoutItsText(t *testing.T) {
	for name, module := range map[string][]byte{
		"traps":                     conformance.Trap(),
		"traps after a held head":   conformance.TrapAfterHead(false),
		"exits with 0":              conformance.Exit(0),
		"exits with 3":              conformance.Exit(3),
		"returns a negative number": conformance.Negative(),
		"returns nonsense":          conformance.Returns(42),
		"never answers":             conformance.Silent(),
		"answers twice":             conformance.DoubleAnswer(),
		"sends a bad header name":   conformance.BadHeader("bad name", "x"),
		"sends a header injection":  conformance.BadHeader("X-Guest", "a\r\nSet-Cookie: b=c"),
		"recurses without end":      conformance.Recursion(),
		"traps in _initialize":      conformance.InitTrap(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := serve(t, runtime.FunctionConfig{Name: "f", Module: module})
			for range 2 {
				resp, body := h.get(t, "/f")
				wantProblem(t, resp, body, http.StatusBadGateway, "function_failed")
				for _, text := range []string{"wasm", "unreachable", "exit", "goroutine", "runtime"} {
					if strings.Contains(body, text) {
						t.Errorf("the document tells about the inside: %s", body)
					}
				}
				if len(resp.Header["X-Guest"]) != 0 || len(resp.Header["Set-Cookie"]) != 0 {
					t.Errorf("a header of the guest got through: %v", resp.Header)
				}
				if id := resp.Header.Get("X-Request-Id"); !strings.Contains(h.log.String(), "request_id="+id) {
					t.Errorf("request %s is not in the log: %s", id, h.log)
				}
			}
		})
	}
}

func TestAnswerThatIsBegunIsBrokenOff(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "f", Module: conformance.TrapAfterHead(true)})
	resp, err := http.Get(h.url + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("got %d, want the head that the guest sent", resp.StatusCode)
	}
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer looks complete: %q", b)
	}
}

func TestInstanceThatFailedNeverServesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		module []byte
		want   string
	}{
		"a counter goes on in one instance":     {conformance.Counter(), "123"},
		"a guest that retires gets a fresh one": {conformance.Retire(), strings.Repeat(conformance.HelloBody, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			h := serve(t, runtime.FunctionConfig{Name: "f", Module: c.module, Instances: 1})
			var got string
			for range 3 {
				_, body := h.get(t, "/f")
				got += body
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestMaxRequestsRetiresAnInstance(t *testing.T) {
	h := serve(t, runtime.FunctionConfig{Name: "f", Module: conformance.Counter(), Instances: 1, MaxRequests: 2})
	var got string
	for range 5 {
		_, body := h.get(t, "/f")
		got += body
	}
	if got != "12121" {
		t.Errorf("got %q, want 12121", got)
	}
}
