package egress_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

// listen serves each connection with the function, which need not close it, and
// returns the URL of the server.
func listen(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return "http://" + l.Addr().String()
}

// reset closes a connection with RST in place of FIN.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// receive reads one request from a connection.
func receive(conn net.Conn) {
	if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		drain(req.Body)
	}
}

// drain reads until the peer closes.
func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

func TestARefusedConnectionIsConnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, post(t, dependency(t, url, egress.Config{})), egress.Connect, abi.DependencyFailed, false)
}

func TestAServerThatIsNotTrustedIsConnect(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	wantFailure(t, post(t, dependency(t, server.URL, egress.Config{})), egress.Connect, abi.DependencyFailed, false)
}

// post sends a small POST and returns the error.
func post(t *testing.T, c *egress.Client) error {
	t.Helper()
	return failure(c, request(t, c, "POST", "/", strings.NewReader("x")))
}

func TestAResetBeforeTheFirstByteIsBeforeWrite(t *testing.T) {
	connected, gone := make(chan struct{}), make(chan struct{})
	url := listen(t, func(conn *net.TCPConn) {
		<-connected
		reset(conn)
		close(gone)
	})
	c := dependency(t, url, egress.Config{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		close(connected)
		<-gone
	}})
	err := failure(c, request(t, c, "POST", "/", strings.NewReader("x")).WithContext(ctx))
	wantFailure(t, err, egress.BeforeWrite, abi.DependencyFailed, false)
}

func TestWhatWasSentBeforeARedirectCounts(t *testing.T) {
	var connections atomic.Int32
	connected, gone := make(chan struct{}), make(chan struct{})
	c := dependency(t, listen(t, func(conn *net.TCPConn) {
		if connections.Add(1) == 1 {
			receive(conn)
			write(conn, "HTTP/1.1 302 Found\r\nLocation: /there\r\nConnection: close\r\n\r\n")
			return
		}
		<-connected
		reset(conn)
		close(gone)
	}), egress.Config{})
	hops := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		if hops++; hops == 2 {
			close(connected)
			<-gone
		}
	}})
	err := failure(c, request(t, c, "GET", "/", nil).WithContext(ctx))
	wantFailure(t, err, egress.AfterWrite, abi.DependencyFailed, true)
}

func TestAnErrorDoesNotTellTheQuery(t *testing.T) {
	c := dependency(t, listen(t, reset), egress.Config{})
	err := failure(c, request(t, c, "GET", "/?token=secret", nil))
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestWhatHappensAfterTheFirstByteIsAfterWrite(t *testing.T) {
	for name, serve := range map[string]func(*net.TCPConn){
		"a reset after the request": func(conn *net.TCPConn) {
			receive(conn)
			reset(conn)
		},
		"a reset in the request": func(conn *net.TCPConn) {
			_, _ = conn.Read(make([]byte, 1))
			reset(conn)
		},
		"no answer": func(conn *net.TCPConn) { receive(conn) },
		"half a head": func(conn *net.TCPConn) {
			receive(conn)
			write(conn, "HTTP/1.1 200 OK\r\nContent-")
		},
		"an answer that is not HTTP": func(conn *net.TCPConn) {
			receive(conn)
			write(conn, "220 mail.example ESMTP\r\n")
		},
		"a head of more than 256 KiB": func(conn *net.TCPConn) {
			receive(conn)
			write(conn, "HTTP/1.1 204 No Content\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n")
			drain(conn)
		},
		"another protocol": func(conn *net.TCPConn) {
			receive(conn)
			write(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			drain(conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantFailure(t, post(t, dependency(t, listen(t, serve), egress.Config{})),
				egress.AfterWrite, abi.DependencyFailed, true)
		})
	}
}

func TestABodyThatBreaksOffSaysSo(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){"reset": reset, "closed": func(*net.TCPConn) {}} {
		t.Run(name, func(t *testing.T) {
			c := dependency(t, listen(t, func(conn *net.TCPConn) {
				receive(conn)
				write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
				end(conn)
			}), egress.Config{})
			got, err := read(c.Do(request(t, c, "POST", "/", nil)))
			if got.body != "half" {
				t.Errorf("got %q", got.body)
			}
			wantFailure(t, err, egress.AfterWrite, abi.DependencyFailed, true)
		})
	}
}

func TestADeadlineSaysWhetherTheServerCanHaveSeenTheRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		scheme string
		sent   bool
	}{
		"a server that does not answer is sent the request":  {"http://", true},
		"a server that does not shake hands is sent nothing": {"https://", false},
	} {
		t.Run(name, func(t *testing.T) {
			url := listen(t, func(conn *net.TCPConn) { drain(conn) })
			c := dependency(t, strings.Replace(url, "http://", tc.scheme, 1), egress.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := failure(c, request(t, c, "POST", "/", strings.NewReader("x")).WithContext(ctx))
			wantFailure(t, err, egress.Timeout, abi.DeadlineExceeded, tc.sent)
		})
	}
}

func TestTheCauseOfACancellationIsTheCode(t *testing.T) {
	for name, tc := range map[string]struct {
		cause error
		kind  egress.Kind
		code  abi.Code
	}{
		"no cause":         {nil, egress.Canceled, abi.Canceled},
		"a lost lease":     {abi.LeaseLost, egress.Canceled, abi.LeaseLost},
		"a deadline":       {abi.DeadlineExceeded, egress.Timeout, abi.DeadlineExceeded},
		"some other cause": {errors.New("other"), egress.Canceled, abi.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			url := listen(t, func(conn *net.TCPConn) {
				receive(conn)
				cancel(tc.cause)
				drain(conn)
			})
			c := dependency(t, url, egress.Config{})
			err := failure(c, request(t, c, "POST", "/", nil).WithContext(ctx))
			wantFailure(t, err, tc.kind, tc.code, true)
		})
	}
}

func TestTheDeadlineHoldsForTheBody(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := dependency(t, listen(t, func(conn *net.TCPConn) {
		receive(conn)
		write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
		drain(conn)
	}), egress.Config{})
	resp, err := c.Do(request(t, c, "GET", "/", nil).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	cancel(abi.DeadlineExceeded)
	_, err = resp.Body.Read(make([]byte, 1))
	wantFailure(t, err, egress.Timeout, abi.DeadlineExceeded, true)
}

func TestAMalformedRequestIsInvalid(t *testing.T) {
	server := serve(t, ok)
	c := dependency(t, server.URL, egress.Config{})
	for name, header := range map[string]http.Header{
		"a field name with a space": {"Bad Name": {"1"}},
		"a field value with a line": {"X": {"1\r\nY: 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, c, "GET", "/", nil)
			req.Header = header
			wantFailure(t, failure(c, req), egress.Invalid, abi.Invalid, false)
		})
	}
	for _, method := range []string{"CONNECT", "TRACE", "A B", "GET\r\n"} {
		_, err := c.NewRequest(t.Context(), method, "/", nil)
		wantFailure(t, err, egress.Invalid, abi.Invalid, false)
	}
	if len(server.seen()) != 0 {
		t.Errorf("the server saw %v", server.seen())
	}
}

// keptThenClosed answers the first request of a connection and closes it after
// the second; it counts the requests.
func keptThenClosed(t *testing.T) (url string, count func() int) {
	t.Helper()
	var mu sync.Mutex
	n := 0
	url = listen(t, func(conn *net.TCPConn) {
		r := bufio.NewReader(conn)
		for first := true; ; first = false {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			if !first {
				return
			}
			write(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	return url, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestADependencyIsSentARequestOnce(t *testing.T) {
	for name, req := range map[string]struct{ method, key, body string }{
		"GET":                       {"GET", "", ""},
		"HEAD":                      {"HEAD", "", ""},
		"OPTIONS":                   {"OPTIONS", "", ""},
		"PUT with a body":           {"PUT", "", "x"},
		"POST with a body":          {"POST", "", "x"},
		"POST with a key":           {"POST", "Idempotency-Key", ""},
		"POST with another key":     {"POST", "X-Idempotency-Key", ""},
		"POST with a key and body":  {"POST", "Idempotency-Key", "x"},
		"GET with a key and a body": {"GET", "Idempotency-Key", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			url, count := keptThenClosed(t)
			c := dependency(t, url, egress.Config{})
			fetch(t, c, "/")
			var body io.Reader
			if req.body != "" {
				body = strings.NewReader(req.body)
			}
			second := request(t, c, req.method, "/", body)
			if req.key != "" {
				second.Header.Set(req.key, "1")
			}
			wantFailure(t, failure(c, second), egress.AfterWrite, abi.DependencyFailed, true)
			if count() != 2 {
				t.Errorf("the server saw %d requests, want 2", count())
			}
		})
	}
}

func TestARequestIsWrittenAsNetHTTPWritesIt(t *testing.T) {
	heads := make(chan string, 1)
	c := dependency(t, listen(t, func(conn *net.TCPConn) {
		var head strings.Builder
		for r := bufio.NewReader(conn); ; {
			line, err := r.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			head.WriteString(line)
		}
		heads <- strings.ToLower(head.String())
		write(conn, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	}), egress.Config{})
	for method, want := range map[string][2]string{
		"GET":    {"idempotency-key: 1\r\n", "content-length"},
		"POST":   {"content-length: 0\r\n", "transfer-encoding"},
		"DELETE": {"idempotency-key: 1\r\n", "transfer-encoding"},
	} {
		req := request(t, c, method, "/", nil)
		req.Header.Set("Idempotency-Key", "1")
		if err := failure(c, req); err != nil {
			t.Fatal(err)
		}
		if head := <-heads; !strings.Contains(head, want[0]) || strings.Contains(head, want[1]) {
			t.Errorf("%s: sent %q, want %q and no %q in it", method, head, want[0], want[1])
		}
	}
}

func TestAPlainClientReplacesAKeptConnection(t *testing.T) {
	url, count := keptThenClosed(t)
	c := plain(t, egress.Config{}, "http://shop.example")
	c.DialWith(func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	})
	for range 2 {
		if _, err := read(c.Do(request(t, c, "GET", "http://shop.example/", nil))); err != nil {
			t.Fatal(err)
		}
	}
	if count() != 3 {
		t.Errorf("the server saw %d requests, want 3", count())
	}
}

func TestAProbeHasAConnectionOfItsOwn(t *testing.T) {
	url, count := keptThenClosed(t)
	c := dependency(t, url, egress.Config{})
	fetch(t, c, "/")
	for range 2 {
		if _, err := read(c.DoOnce(request(t, c, "GET", "/", nil))); err != nil {
			t.Fatal(err)
		}
	}
	if count() != 3 {
		t.Errorf("the server saw %d requests, want 3", count())
	}
}

func TestAKeptConnectionThatBreaksUnderAPOSTIsNotHidden(t *testing.T) {
	url, count := keptThenClosed(t)
	c := dependency(t, url, egress.Config{})
	fetch(t, c, "/")
	wantFailure(t, post(t, c), egress.AfterWrite, abi.DependencyFailed, true)
	if count() != 2 {
		t.Errorf("the server saw %d requests, want 2", count())
	}
}
