package conformance

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// RunSDK checks an SDK by a guest that was written with it. The guest must
// answer the requests of the table in SDK.md, and the host that deploy uses
// should pass Run.
func RunSDK(t *testing.T, module []byte, deploy func(t *testing.T, d Deployment) string) {
	t.Helper()
	k := &kit{upstream: startUpstream(t), client: &http.Client{Transport: &http.Transport{DisableCompression: true}}}
	t.Cleanup(k.client.CloseIdleConnections)
	d := k.deployment("/", guestTimeout)
	d.Module = module
	d.Routes = []string{"/", "/head/{id}"}
	k.guest = deploy(t, d)
	for _, c := range slices.Concat(sdkRequestCases(), sdkAnswerCases(), sdkObjectCases()) {
		t.Run(c.name, func(t *testing.T) {
			got, err := k.exchange(t.Context(), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.check(got); err != nil {
				t.Errorf("%v\nresponse %d %q", err, got.StatusCode, shortened(got.body))
			}
		})
	}
}

func answers(body string, more ...func(response) error) func(response) error {
	return both(append([]func(response) error{status200, hasBody(body)}, more...)...)
}

func sdkRequestCases() []testCase {
	return []testCase{
		{name: "hello", target: "/hello", check: answers("hello, world\n", hasHeader("Content-Type", "text/plain"))},
		{name: "the head of a request", target: "/head/a%2Fb?q=1", request: func(r *http.Request) {
			r.Method, r.Host = http.MethodPut, "shop.example.com"
			r.Header = http.Header{"X-In": {"1", "2"}}
		}, check: answers("PUT\n/head/a%2Fb?q=1\na/b\nshop.example.com\n1\n2\n")},
		{
			name: "a body of known length", target: "/echo", body: strings.Repeat("text", 20_000),
			check: answers(strings.Repeat("text", 20_000), hasHeader("X-Length", "80000")),
		},
		{
			name: "a body of unknown length", target: "/echo", body: "text", request: chunked,
			check: answers("text", hasHeader("X-Length", "-1")),
		},
		{name: "no body", target: "/echo", check: answers("")},
		{name: "trailers", target: "/trailers", body: "body", request: func(r *http.Request) {
			chunked(r)
			r.Trailer = http.Header{"X-In": {"7"}}
		}, check: answers("7", func(r response) error {
			if got := r.Trailer.Get("X-Out"); got != "done" {
				return fmt.Errorf("trailers %v", r.Trailer)
			}
			return nil
		})},
		{name: "configuration", target: "/config", check: answers("hi s3cret")},
	}
}

func sdkAnswerCases() []testCase {
	return []testCase{
		{
			name: "a status and repeated fields", target: "/cookies",
			check: both(hasStatus(201), hasHeader("Set-Cookie", "a=1", "b=2"), hasBody("")),
		},
		{name: "a flushed part before the end of the request", target: "/stream", hold: true, check: answers("first end")},
		{
			name: "a failure that the host answers", target: "/refuse",
			check: both(problem(http.StatusForbidden, "denied"), hasNo("X-Guest")),
		},
		{name: "a failure of the guest", target: "/fail", check: failed},
		{name: "the guest goes on after a failure", target: "/hello", check: answers("hello, world\n")},
	}
}

func sdkObjectCases() []testCase {
	return []testCase{
		{name: "a guarded call", target: "/fetch", body: "sent", check: answers("sent",
			hasHeader("X-Seen", "POST /base/echo?q=1 4"), hasHeader("X-Seen-Values", "1|2"), hasHeader("Set-Cookie", "a=1", "b=2"))},
		{name: "two calls at the same time", target: "/parallel", check: answers("GET /base/echo?a 0\nGET /base/echo?b 0\n")},
		{name: "a breaker that opens", target: "/breaker", check: both(problem(http.StatusServiceUnavailable, "breaker_open"), retryAfter(true))},
		{name: "a lease, and one that is busy", target: "/lease", check: answers("lease_busy\n")},
		{name: "state is created", target: "/state", check: answers("0 then 1\n")},
		{name: "state is replaced", target: "/state", check: answers("1 then 2\n")},
		{name: "a conflict of state", target: "/conflict", check: both(problem(http.StatusConflict, "conflict"))},
	}
}
