package runtime_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/runtime"
)

func TestGoGuestFailsWithoutItsText(t *testing.T) {
	h := serve(t, tools(t))
	for _, what := range []string{"panic", "exit", "unknown"} {
		t.Run(what, func(t *testing.T) {
			resp, body := h.get(t, "/tools/"+what)
			wantProblem(t, resp, body, http.StatusBadGateway, "function_failed")
			if strings.Contains(body, "secret") {
				t.Errorf("the document holds the guest's text: %s", body)
			}
			if resp, body := h.get(t, "/tools/echo"); resp.StatusCode != http.StatusOK {
				t.Errorf("the next request got %d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestHeadersArriveAndHopsDoNot(t *testing.T) {
	h := serve(t, tools(t))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/tools/head?q=%2F1", nil)
	req.Header["X-Many"] = []string{"one", "two"}
	req.Header.Set("Connection", "x-hop")
	req.Header.Set("X-Hop", "dropped")
	req.Header.Set("Te", "trailers")
	req.Header.Set("Proxy-Authorization", "dropped")
	req.Header.Set("X-Request-Id", "mine-1")
	req.Header.Set("User-Agent", "test")
	req.Header.Set("Accept-Encoding", "identity")
	resp, body := send(t, req)
	var got any
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	want := map[string]any{
		"method": "GET", "target": "/tools/head?q=%2F1", "scheme": "http", "route": "/tools/{what}",
		"host": strings.TrimPrefix(h.url, "http://"), "id": "mine-1", "what": "head", "length": 0.0,
		"header": map[string]any{
			"X-Many": []any{"one", "two"}, "X-Request-Id": []any{"mine-1"},
			"User-Agent": []any{"test"}, "Accept-Encoding": []any{"identity"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := resp.Header.Get("X-Request-Id"); got != "mine-1" {
		t.Errorf("X-Request-Id %q, want the one sent", got)
	}
}

func TestRepeatedHeadersStayApart(t *testing.T) {
	h := serve(t, tools(t))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/tools/cookies", nil)
	req.Header["X-Many"] = []string{"one", "two"}
	req.Header.Set("X-Request-Id", "not sane: it has spaces")
	resp, _ := send(t, req)
	if want := []string{"a=1; Path=/", "b=2; Path=/"}; !slices.Equal(resp.Header["Set-Cookie"], want) {
		t.Errorf("Set-Cookie %q, want %q", resp.Header["Set-Cookie"], want)
	}
	if want := []string{"one", "two"}; !slices.Equal(resp.Header["X-Seen"], want) {
		t.Errorf("X-Seen %q, want %q", resp.Header["X-Seen"], want)
	}
	for _, name := range []string{"X-Hop", "Transfer-Encoding", "Connection"} {
		if value, ok := resp.Header[name]; ok {
			t.Errorf("%s %q came through", name, value)
		}
	}
	if id := resp.Header["X-Request-Id"]; len(id) != 1 || strings.Contains(id[0], " ") || id[0] == "mine" {
		t.Errorf("X-Request-Id %q, want one of the host's", id)
	}
}

func TestTrailersGoBothWays(t *testing.T) {
	h := serve(t, tools(t))
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/tools/trailers", io.NopCloser(strings.NewReader("body")))
	req.Trailer = http.Header{"X-Sum": {"42"}}
	resp, body := send(t, req)
	if body != "body" || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("got %q with trailers %v, want X-Sum 42", body, resp.Trailer)
	}
}

func TestInformationalHeadsAreSentAtOnce(t *testing.T) {
	h := serve(t, tools(t))
	var links []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			links = append(links, fmt.Sprint(code, " ", header.Get("Link")))
			return nil
		},
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/tools/hints", nil)
	resp, body := send(t, req)
	if want := []string{"103 </style.css>; rel=preload"}; !slices.Equal(links, want) {
		t.Errorf("got %q, want %q", links, want)
	}
	if body != "done" || resp.Header.Get("Link") != "" {
		t.Errorf("got %q with Link %q in the final head", body, resp.Header.Get("Link"))
	}
}

func TestContentLengthIsKept(t *testing.T) {
	h := serve(t, tools(t))
	t.Run("a right one is sent", func(t *testing.T) {
		resp, body := h.get(t, "/tools/length?says=3&body=abc")
		if resp.StatusCode != 200 || body != "abc" || resp.ContentLength != 3 {
			t.Errorf("got %d %q, length %d", resp.StatusCode, body, resp.ContentLength)
		}
	})
	for name, q := range map[string]string{
		"too few bytes fail":  "says=5&body=abc",
		"too many bytes fail": "says=2&body=abc",
		"no number fails":     "says=three&body=abc",
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := h.get(t, "/tools/length?"+q)
			wantProblem(t, resp, body, http.StatusBadGateway, "function_failed")
		})
	}
	t.Run("too few bytes after a flush break the answer off", func(t *testing.T) {
		resp, err := http.Get(h.url + "/tools/length?says=5&body=abc&flush=1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if b, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("the answer looks complete: %q", b)
		}
	})
}

func TestAnswersWithoutBody(t *testing.T) {
	h := serve(t, tools(t), runtime.FunctionConfig{Name: "hello", Module: conformance.Hello()})
	resp, body := h.do(t, http.MethodHead, "/hello", nil)
	if resp.StatusCode != 200 || body != "" || resp.ContentLength != int64(len(conformance.HelloBody)) {
		t.Errorf("HEAD got %d, %q, length %d", resp.StatusCode, body, resp.ContentLength)
	}
	for _, code := range []int{204, 304} {
		resp, body := h.get(t, fmt.Sprint("/tools/status?code=", code))
		if resp.StatusCode != code || body != "" || resp.Header.Get("Content-Length") != "" {
			t.Errorf("got %d, %q, %v, want %d", resp.StatusCode, body, resp.Header, code)
		}
	}
}

func TestRoutes(t *testing.T) {
	hello := conformance.Hello()
	h := serve(t,
		runtime.FunctionConfig{Name: "post", Module: hello, Routes: []string{"POST /orders/{id}", "PUT /orders/{id}"}},
		runtime.FunctionConfig{Name: "host", Module: hello, Routes: []string{"shop.example.com/cart/"}})
	t.Run("an unknown path is no route", func(t *testing.T) {
		resp, body := h.get(t, "/nothing")
		wantProblem(t, resp, body, http.StatusNotFound, "no_route")
	})
	t.Run("another method is told which ones there are", func(t *testing.T) {
		resp, body := h.get(t, "/orders/1")
		wantProblem(t, resp, body, http.StatusMethodNotAllowed, "method_not_allowed")
		if allow := resp.Header.Get("Allow"); allow != "POST, PUT" {
			t.Errorf("Allow %q, want POST, PUT", allow)
		}
	})
	t.Run("a host of its own", func(t *testing.T) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/cart/1", nil)
		req.Host = "shop.example.com"
		if resp, _ := send(t, req); resp.StatusCode != http.StatusOK {
			t.Errorf("got %d", resp.StatusCode)
		}
		resp, body := h.get(t, "/cart/1")
		wantProblem(t, resp, body, http.StatusNotFound, "no_route")
	})
}

func TestRequestBodyHasALimit(t *testing.T) {
	f := tools(t)
	f.MaxRequestBody = 1 << 20
	h := serve(t, f)
	t.Run("a length above it is refused at once", func(t *testing.T) {
		resp, body := h.do(t, http.MethodPost, "/tools/upload", bytes.NewReader(make([]byte, 1<<20+1)))
		wantProblem(t, resp, body, http.StatusRequestEntityTooLarge, "too_large")
	})
	t.Run("a stream above it is refused on the way", func(t *testing.T) {
		stream := io.LimitReader(zeros{}, 1<<20+1)
		resp, body := h.do(t, http.MethodPost, "/tools/upload", stream)
		wantProblem(t, resp, body, http.StatusRequestEntityTooLarge, "too_large")
	})
	t.Run("a stream of its size is served", func(t *testing.T) {
		resp, body := h.do(t, http.MethodPost, "/tools/upload", io.LimitReader(zeros{}, 1<<20))
		if resp.StatusCode != 200 || body != "1048576" {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	})
}

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestReportedFailureIsTheHostsAnswer(t *testing.T) {
	h := serve(t, tools(t))
	for code, want := range map[int]struct {
		status     int
		code       string
		retryAfter string
	}{
		-1:  {400, "bad_request", ""},
		-5:  {409, "lease_busy", "1"},
		-11: {503, "coordination_unavailable", "1"},
		-14: {413, "too_large", ""},
		-22: {500, "internal", ""},
	} {
		resp, body := h.get(t, fmt.Sprint("/tools/fail?code=", code))
		wantProblem(t, resp, body, want.status, want.code)
		if got := resp.Header.Get("Retry-After"); got != want.retryAfter {
			t.Errorf("%s: Retry-After %q, want %q", want.code, got, want.retryAfter)
		}
		if strings.Contains(body, "secret") {
			t.Errorf("the document holds the guest's text: %s", body)
		}
		if !strings.Contains(h.log.String(), "the secret of the guest") {
			t.Error("the guest's text is not in the log")
		}
	}
}

func TestEchoStreamsWhileTheRequestGoesOn(t *testing.T) {
	h := serve(t, tools(t))
	up, feed := io.Pipe()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/tools/echo?flush=1", up)
	var feeder sync.WaitGroup
	defer feeder.Wait()
	feeder.Go(func() { _, _ = io.WriteString(feed, "first\n") })
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for _, line := range []string{"first\n", "second\n", "third\n"} {
		if line != "first\n" {
			if _, err := io.WriteString(feed, line); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := lines.ReadString('\n'); got != line || err != nil {
			t.Fatalf("got %q, %v, want %q before the request ends", got, err, line)
		}
	}
	_ = feed.Close()
	if rest, err := io.ReadAll(lines); len(rest) != 0 || err != nil {
		t.Errorf("got %q, %v at the end", rest, err)
	}
}

func TestGuestSeesTheClientGo(t *testing.T) {
	h := serve(t, tools(t))
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/tools/gone", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_ = resp.Body.Close()
	h.waitForLog(t, "client has gone")
	if text := h.log.String(); !strings.Contains(text, "canceled=true") {
		t.Errorf("the guest could still write: %s", text)
	}
	h.waitForLog(t, "code=canceled")
}

// A client may stop sending and still read: no answer must not look like an empty
// one.
func TestClientThatStopsSendingGetsNoEmptySuccess(t *testing.T) {
	f := tools(t)
	f.Timeout = time.Second
	h := serve(t, f)
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprint(conn, "GET /tools/sleep HTTP/1.1\r\nHost: x\r\n\r\n")
	h.waitForLog(t, "sleeping")
	_ = conn.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || len(got) != 0 {
		t.Errorf("got %q, %v, want nothing", got, err)
	}
}

func TestStalledUploadIsAnsweredAtTheDeadline(t *testing.T) {
	f := tools(t)
	f.Timeout = 300 * time.Millisecond
	h := serve(t, f)
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	begun := time.Now()
	_, _ = fmt.Fprint(conn, "POST /tools/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	wantProblem(t, answer{StatusCode: resp.StatusCode, Header: resp.Header}, string(body), http.StatusGatewayTimeout, "deadline_exceeded")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("answered after %v, want 300ms", took)
	}
}

func TestStalledDownloadEndsAtTheDeadline(t *testing.T) {
	f := tools(t)
	f.Timeout = 300 * time.Millisecond
	h := serve(t, f)
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprint(conn, "GET /tools/download?n=100000000 HTTP/1.1\r\nHost: x\r\n\r\n")
	h.waitForLog(t, "code=deadline_exceeded") // nobody has read a byte
	if !strings.Contains(h.log.String(), "broken_off=true") {
		t.Errorf("the answer was not broken off: %s", h.log)
	}
}

func TestLateGuestCannotTouchTheAnswer(t *testing.T) {
	f := tools(t)
	f.Timeout, f.MaxLateSettlement = 100*time.Millisecond, 5*time.Second
	h := serve(t, f)
	resp, body := h.get(t, "/tools/late")
	wantProblem(t, resp, body, http.StatusGatewayTimeout, "deadline_exceeded")
	h.waitForLog(t, "guest was late")
	if text := h.log.String(); !strings.Contains(text, "deadline_exceeded: ") && !strings.Contains(text, "deadline_exceeded\"") {
		t.Errorf("the guest did not learn that it was late: %s", text)
	}
}

func TestSleepEndsAtTheDeadline(t *testing.T) {
	f := tools(t)
	f.Timeout, f.Instances = 200*time.Millisecond, 1
	h := serve(t, f)
	for range 2 {
		resp, body := h.get(t, "/tools/sleep")
		wantProblem(t, resp, body, http.StatusGatewayTimeout, "deadline_exceeded")
	}
}

func TestPrintedLinesAreLoggedAndBounded(t *testing.T) {
	f := tools(t)
	f.MaxLog = 100
	h := serve(t, f)
	resp, _ := h.get(t, "/tools/print?n=3")
	id := "request_id=" + resp.Header.Get("X-Request-Id")
	if got := strings.Count(h.log.String(), id+` text="printed line"`); got != 3 {
		t.Errorf("%d lines in the log, want 3: %s", got, h.log)
	}
	if !strings.Contains(h.log.String(), "without an end") {
		t.Error("a line without an end was lost")
	}
	resp, _ = h.get(t, "/tools/print?n=1000")
	id = "request_id=" + resp.Header.Get("X-Request-Id")
	if got := strings.Count(h.log.String(), id); got > 12 {
		t.Errorf("%d lines in the log, want at most 100 bytes", got)
	}
}

func TestInstancesDrawDifferentRandomness(t *testing.T) {
	f := tools(t)
	f.MaxRequests = 1 // so that each answer comes from an instance of its own
	h := serve(t, f)
	seen := make(map[string]bool)
	for range 3 {
		_, body := h.get(t, "/tools/random")
		seen[body] = true
	}
	if len(seen) != 3 {
		t.Errorf("got %v, want three different answers", seen)
	}
}

func TestConfigComesFromTheFunctionOnly(t *testing.T) {
	t.Setenv("GREETING", "from the host's environment")
	f := tools(t)
	f.Env, f.Secrets = map[string]string{"GREETING": "hi"}, map[string]string{"KEY": "k"}
	h := serve(t, f)
	if _, body := h.get(t, "/tools/config"); body != "hik" {
		t.Errorf("got %q, want hik", body)
	}
}

// waitForLog waits until a text has been logged.
func (h *host) waitForLog(tb testing.TB, text string) {
	tb.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(10 * time.Second)
	for !strings.Contains(h.log.String(), text) {
		select {
		case <-ticker.C:
		case <-deadline:
			tb.Fatalf("%q is not in the log: %s", text, h.log)
		}
	}
}

func TestHTTP2HasTheSameRules(t *testing.T) {
	f := tools(t)
	f.Timeout = time.Second
	h := serve(t, f)
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	h.url = server.URL
	client := server.Client()
	do := func(method, path string, body io.Reader, trailer http.Header) (answer, string) {
		t.Helper()
		req, _ := http.NewRequestWithContext(t.Context(), method, h.url+path, body)
		req.Trailer = trailer
		return sendBy(t, client, req)
	}
	resp, body := do(http.MethodPost, "/tools/trailers", io.NopCloser(strings.NewReader("body")), http.Header{"X-Sum": {"42"}})
	if resp.Proto != "HTTP/2.0" || body != "body" || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("%s: got %q with trailers %v", resp.Proto, body, resp.Trailer)
	}
	if _, body := do(http.MethodGet, "/tools/head", nil, nil); !strings.Contains(body, `"scheme":"https"`) {
		t.Errorf("got %s, want the scheme https", body)
	}
	up, feed := io.Pipe()
	defer func() { _ = feed.Close() }()
	resp, body = do(http.MethodPost, "/tools/upload", up, nil) // nothing is ever sent
	wantProblem(t, resp, body, http.StatusGatewayTimeout, "deadline_exceeded")
	if _, body := do(http.MethodPost, "/tools/echo", strings.NewReader("again"), nil); body != "again" {
		t.Errorf("got %q on the same connection", body)
	}
}
