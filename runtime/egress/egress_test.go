package egress_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a server that keeps what reached it.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

// serve starts a server of the handler.
func serve(t *testing.T, handler http.HandlerFunc) *recorder {
	t.Helper()
	r := new(recorder)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req)
		r.mu.Unlock()
		handler(w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func ok(http.ResponseWriter, *http.Request) {}

// write sends text to a peer that may have gone.
func write(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// seen returns the requests so far, each as its method and URI.
func (r *recorder) seen() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, req := range r.requests {
		lines = append(lines, req.Method+" "+req.RequestURI)
	}
	return lines
}

func (r *recorder) last() *http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests[len(r.requests)-1]
}

// dependency returns a client of the URL that is closed at the end of the test.
func dependency(t *testing.T, url string, cfg egress.Config) *egress.Client {
	t.Helper()
	c, err := egress.NewDependency(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// plain returns a client of an allow list that is closed at the end of the test.
func plain(t *testing.T, cfg egress.Config, allowed ...string) *egress.Client {
	t.Helper()
	c, err := egress.NewPlain(allowed, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// request makes a request that c allows.
func request(t *testing.T, c *egress.Client, method, target string, body io.Reader) *http.Request {
	t.Helper()
	req, err := c.NewRequest(t.Context(), method, target, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// answer is all that a server sent.
type answer struct {
	status          int
	proto, body     string
	header, trailer http.Header
}

// read takes what Do returned.
func read(resp *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	content, err := io.ReadAll(resp.Body)
	err = errors.Join(err, resp.Body.Close())
	return answer{resp.StatusCode, resp.Proto, string(content), resp.Header, resp.Trailer}, err
}

// do sends a request that must be answered.
func do(t *testing.T, c *egress.Client, req *http.Request) answer {
	t.Helper()
	a, err := read(c.Do(req))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// fetch sends a GET that must be answered.
func fetch(t *testing.T, c *egress.Client, target string) answer {
	t.Helper()
	return do(t, c, request(t, c, "GET", target, nil))
}

// failure sends a request and returns the error.
func failure(c *egress.Client, req *http.Request) error {
	_, err := read(c.Do(req))
	return err
}

// wantFailure checks kind, code and what may have been sent.
func wantFailure(t *testing.T, err error, kind egress.Kind, code abi.Code, sent bool) {
	t.Helper()
	e, ok := errors.AsType[*egress.Error](err)
	if !ok {
		t.Fatalf("got %v, want an *egress.Error", err)
	}
	if e.Kind != kind || e.Sent != sent || abi.CodeOf(err) != code {
		t.Errorf("got %v, sent %v, code %v; want %v, sent %v, code %v", err, e.Sent, abi.CodeOf(err), kind, sent, code)
	}
}

func TestADependencySeesItsOwnHostAndPath(t *testing.T) {
	server := serve(t, ok)
	c := dependency(t, server.URL+"/v1/", egress.Config{})
	req := request(t, c, "GET", "/charges/a%2Fb?x=1&y=%20", nil)
	req.Host = "evil.example"
	req.Header.Set("Host", "evil.example")
	do(t, c, req)
	if diff := cmp.Diff([]string{"GET /v1/charges/a%2Fb?x=1&y=%20"}, server.seen()); diff != "" {
		t.Error(diff)
	}
	if got, want := server.last().Host, strings.TrimPrefix(server.URL, "http://"); got != want {
		t.Errorf("Host %q, want %q", got, want)
	}
}

func TestFieldsOfAConnectionStopHere(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Connection"] = []string{"X-Hop"}
		w.Header().Set("X-Hop", "1")
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
	})
	c := dependency(t, server.URL, egress.Config{})
	req := request(t, c, "GET", "/", nil)
	req.Header = http.Header{
		"Connection":          {"close, X-Mine", "x-other"},
		"connection":          {"x-third"},
		"X-Mine":              {"1"},
		"x-other":             {"1"},
		"X-Third":             {"1"},
		"keep-alive":          {"timeout=5"},
		"Upgrade":             {"websocket"},
		"Proxy-Authorization": {"Basic x"},
		"Te":                  {"trailers"},
		"Transfer-Encoding":   {"chunked"},
		"X-Kept":              {"1", "2"},
	}
	sent := req.Header.Clone()
	got := do(t, c, req)
	want := http.Header{"X-Kept": {"1", "2"}, "User-Agent": {"edgehost"}}
	if diff := cmp.Diff(want, server.last().Header); diff != "" {
		t.Error("request: " + diff)
	}
	got.header.Del("Date")
	if diff := cmp.Diff(http.Header{"Set-Cookie": {"a=1", "b=2"}, "Content-Length": {"0"}}, got.header); diff != "" {
		t.Error("answer: " + diff)
	}
	if diff := cmp.Diff(sent, req.Header); diff != "" {
		t.Error("the caller's header changed: " + diff)
	}
}

func TestAnAnswerArrivesAsItWasSent(t *testing.T) {
	packed := "\x1f\x8b\x08\x00 not even whole"
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		write(w, packed)
	})
	c := dependency(t, server.URL, egress.Config{})
	got := fetch(t, c, "/")
	if got.body != packed || got.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %q with %v", got.body, got.header)
	}
	fetch(t, c, "/")
	if h := server.last().Header; h.Get("Accept-Encoding") != "" || h.Get("Cookie") != "" {
		t.Errorf("sent %v on its own", h)
	}
}

func TestBodiesAndTrailersPassBothWays(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		w.Header().Set(http.TrailerPrefix+"X-Sum", r.Trailer.Get("X-Sum"))
		write(w, strings.ToUpper(string(content)))
	})
	c := dependency(t, server.URL, egress.Config{})
	req := request(t, c, "POST", "/", io.MultiReader(strings.NewReader("ab"), strings.NewReader("cd")))
	req.Trailer = http.Header{"X-Sum": {"4"}}
	if got := do(t, c, req); got.body != "ABCD" || got.trailer.Get("X-Sum") != "4" {
		t.Errorf("got %q, trailer %v", got.body, got.trailer)
	}
}

func TestTLSSpeaksHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		_, _ = fmt.Fprint(w, r.ContentLength)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c := dependency(t, server.URL, egress.Config{RootCAs: roots})
	if got := fetch(t, c, "/"); got.proto != "HTTP/2.0" {
		t.Errorf("spoke %s", got.proto)
	}
	if got := fetch(t, c, "/"); got.body != "0" {
		t.Errorf("a GET arrived with a body of length %s, want one that ends with its head", got.body)
	}
	got, err := read(c.DoOnce(request(t, c, "GET", "/", nil)))
	if err != nil || got.proto != "HTTP/2.0" {
		t.Errorf("spoke %s, %v", got.proto, err)
	}
	// Streams share a connection, so that every failure may have been seen.
	err = failure(c, request(t, c, "POST", "/abort", strings.NewReader("x")))
	wantFailure(t, err, egress.AfterWrite, abi.DependencyFailed, true)
}

func TestTheProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	server := serve(t, ok)
	c := plain(t, egress.Config{}, "http://shop.example")
	var dialed []string
	c.DialWith(func(ctx context.Context, address string) (net.Conn, error) {
		dialed = append(dialed, address)
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	fetch(t, c, "http://shop.example/")
	if diff := cmp.Diff([]string{"shop.example:80"}, dialed); diff != "" {
		t.Error(diff)
	}
}

func TestAConnectionTooManyWaits(t *testing.T) {
	arrived, leave := make(chan struct{}), make(chan struct{})
	server := serve(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-leave })
	c := dependency(t, server.URL, egress.Config{MaxConns: 1})
	first := make(chan error, 1)
	waiting := request(t, c, "GET", "/", nil)
	go func() { first <- failure(c, waiting) }()
	<-arrived
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := failure(c, request(t, c, "GET", "/", nil).WithContext(ctx))
	wantFailure(t, err, egress.Timeout, abi.DeadlineExceeded, false)
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestAClosedClientSendsNothing(t *testing.T) {
	server := serve(t, ok)
	c := dependency(t, server.URL, egress.Config{})
	req := request(t, c, "GET", "/", nil)
	c.Close()
	c.Close()
	wantFailure(t, failure(c, req), egress.Canceled, abi.Canceled, false)
	if len(server.seen()) != 0 {
		t.Errorf("the server saw %v", server.seen())
	}
}

func TestADenialIsLoggedWithoutTheQuery(t *testing.T) {
	var log bytes.Buffer
	c := plain(t, egress.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "shop.example")
	_, err := c.NewRequest(t.Context(), "GET", "https://evil.example/?token=secret", nil)
	wantFailure(t, err, egress.Denied, abi.Denied, false)
	if got := log.String(); !strings.Contains(got, "evil.example") || strings.Contains(got, "secret") {
		t.Errorf("logged %q", got)
	}
}
