package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/edgehost/edgehost/guests/conformance"
	"github.com/edgehost/edgehost/kvbucket"
)

// buildGuarded builds the guest of testdata/guarded into an app that calls the
// given upstream, with more lines about this dependency in its manifest.
func buildGuarded(t *testing.T, upstream string, more ...string) {
	t.Helper()
	module := t.TempDir() + "/guarded.wasm"
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", module, "./testdata/guarded")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the guest: %v\n%s", err, out)
	}
	writeApp(t, map[string]string{"edgehost.toml": `app = "shop"
[function.guarded]
module = "guarded.wasm"
routes = ["GET /{what}"]
dependencies = ["upstream"]
objects = ["things/*"]
timeout = "1m"
[dependency.upstream]
url = "` + upstream + `"
timeout = "1m"
retry = { attempts = 1 }
` + strings.Join(more, "\n")})
	if err := copyFile(module, "shop/guarded.wasm"); err != nil {
		t.Fatal(err)
	}
}

// startServe serves the app in "shop" on free ports.
func startServe(t *testing.T, args ...string) (p *process, url, admin string) {
	t.Helper()
	return serveApp(t, "shop", nil, args...)
}

// serveApp serves the app in a directory on free ports. The addresses are in its
// log.
func serveApp(t *testing.T, dir string, environ []string, args ...string) (p *process, url, admin string) {
	t.Helper()
	args = append([]string{"serve", dir, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--log-format=json"}, args...)
	p = startProcess(t, environ, args...)
	var line struct{ Msg, URL, Admin string }
	eventually(t, "the app is served", func() bool {
		for text := range strings.Lines(p.log()) {
			if json.Unmarshal([]byte(text), &line) == nil && line.Msg == "serving" {
				return true
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("serve ended: %v\n%s", p.state, p.log())
		default:
		}
		return false
	})
	return p, line.URL, line.Admin
}

// answerOf returns the status of an answer, and its body or the code of its
// problem document.
func answerOf(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Errorf("GET %s: %v", url, err)
		return 0, ""
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil {
		t.Errorf("GET %s: %v %v", url, err, closeErr)
	}
	var problem struct{ Code string }
	if json.Unmarshal(body, &problem) == nil && problem.Code != "" {
		return response.StatusCode, problem.Code
	}
	return response.StatusCode, string(body)
}

func TestServeGoesOnWhileTheStoreIsAway(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up") }))
	t.Cleanup(upstream.Close)
	buildGuarded(t, upstream.URL)
	config := kvbucket.ServerConfig{Dir: t.TempDir(), Listen: freeAddress(t)}
	server := startStore(t, config)
	p, url, admin := startServe(t, "--nats=nats://"+config.Listen, "--replicas=1")
	for path, want := range map[string]string{"/call": "up", "/lease": "leased"} {
		if status, got := answerOf(t, url+path); status != http.StatusOK || got != want {
			t.Fatalf("%s answers %d %s, want %s", path, status, got, want)
		}
	}

	var load sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		load.Go(func() {
			for {
				if status, got := answerOf(t, url+"/call"); status != http.StatusOK || got != "up" {
					t.Errorf("a closed breaker answers %d %s", status, got)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the host is ready, and reports that the store is away", func() bool {
		status, got := answerOf(t, admin+"/readyz")
		if status != http.StatusOK {
			t.Errorf("while breakers are closed /readyz answers %d", status)
		}
		return strings.Contains(got, "the store does not answer")
	})
	if status, got := answerOf(t, url+"/lease"); status != http.StatusServiceUnavailable || got != "coordination_unavailable" {
		t.Errorf("without the store a lease answers %d %s, want 503 coordination_unavailable", status, got)
	}
	startStore(t, config)
	eventually(t, "leases are granted again", func() bool {
		status, got := answerOf(t, url+"/lease")
		return status == http.StatusOK && got == "leased"
	})
	eventually(t, "the host reports that the store is back", func() bool {
		status, got := answerOf(t, admin+"/readyz")
		return status == http.StatusOK && got == "ready\n"
	})
	close(stop)
	load.Wait()
	if took := p.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	p.requireNothingLeft(t)
}

func TestABreakerByRateOpensOverHosts(t *testing.T) {
	upstream := startFickleUpstream(t)
	upstream.open()
	buildGuarded(t, upstream.URL, `breaker = { mode = "rate", failure_rate = 0.5, min_calls = 20, window = "1h" }`)
	fleet := startFleet(t, 2, startSharedStore(t))
	calls := func(h *fleetHost, n int) {
		for range n {
			if status, code := answerOf(t, h.url+"/call"); code == "breaker_open" {
				t.Fatalf("the breaker is open too early: %d", status)
			}
		}
	}
	calls(fleet[0], 10)
	upstream.fails.Store(true)
	calls(fleet[0], 5) // of 15, and the other host's count as well
	calls(fleet[1], 4)
	eventually(t, "half of all calls having failed is known to both hosts", func() bool {
		for _, h := range fleet {
			if _, code := answerOf(t, h.url+"/call"); code != "breaker_open" {
				return false
			}
		}
		return true
	})
	if n := upstream.calls.Load(); n < 20 {
		t.Errorf("the breaker opened after %d calls, want twenty at least", n)
	}
}

func TestAnOpenBreakerSurvivesKill(t *testing.T) {
	var calls atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(upstream.Close)
	buildGuarded(t, upstream.URL)
	p, url, _ := startServe(t, "--nats-listen=127.0.0.1:0")
	eventually(t, "the breaker opens", func() bool {
		status, code := answerOf(t, url+"/call")
		return status == http.StatusServiceUnavailable && code == "breaker_open"
	})
	before := calls.Load()
	p.kill(t)
	p, url, admin := startServe(t, "--nats-listen=127.0.0.1:0")
	if status, code := answerOf(t, url+"/call"); status != http.StatusServiceUnavailable || code != "breaker_open" {
		t.Errorf("after kill -9 the breaker answers %d %s", status, code)
	}
	if got := calls.Load(); got != before {
		t.Errorf("after kill -9 the dependency got %d calls", got-before)
	}
	if got := fetch(t, http.DefaultClient, admin+"/objects"); !strings.Contains(got, `"state": "open"`) {
		t.Errorf("after kill -9 the objects are %s", got)
	}
	p.interrupt(t)
}

// A stuck upstream does not answer before it is released.
type stuckUpstream struct {
	*httptest.Server
	entered chan struct{} // one value per call
	release func()
}

func startStuckUpstream(t *testing.T) *stuckUpstream {
	t.Helper()
	leave := make(chan struct{})
	up := &stuckUpstream{entered: make(chan struct{}, 1), release: sync.OnceFunc(func() { close(leave) })}
	up.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		up.entered <- struct{}{}
		<-leave
		_, _ = io.WriteString(w, "up")
	}))
	t.Cleanup(func() {
		up.release()
		up.Close()
	})
	return up
}

func TestServeLetsARunningRequestEnd(t *testing.T) {
	upstream := startStuckUpstream(t)
	buildGuarded(t, upstream.URL)
	p, url, _ := startServe(t, "--nats-listen=127.0.0.1:0")
	answers := make(chan string, 1)
	go func() { answers <- fetch(t, http.DefaultClient, url+"/call") }()
	<-upstream.entered
	p.signalGroup(syscall.SIGTERM)
	eventually(t, "new connections are refused", func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	upstream.release()
	if got := <-answers; got != "up" {
		t.Errorf("the running request got %q", got)
	}
	<-p.ended
	if p.state != nil {
		t.Errorf("serve ended with %v", p.state)
	}
}

func TestASecondCtrlCEndsServeAtOnce(t *testing.T) {
	upstream := startStuckUpstream(t)
	buildGuarded(t, upstream.URL)
	p, url, _ := startServe(t, "--nats-listen=127.0.0.1:0", "--drain-timeout=10m")
	go func() { _, _ = http.Get(url + "/call") }() //nolint:bodyclose // the connection breaks before there is an answer
	<-upstream.entered
	p.signalGroup(syscall.SIGINT)
	eventually(t, "serve is stopping", func() bool { return strings.Contains(p.log(), `"msg":"stopping"`) })
	p.interruptAgain(t)
}

func TestADenialIsLoggedWithTheNameOfItsDependency(t *testing.T) {
	upstream := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusFound))
	t.Cleanup(upstream.Close)
	buildGuarded(t, upstream.URL)
	p, url, _ := startServe(t, "--nats-listen=127.0.0.1:0")
	if status, code := answerOf(t, url+"/call"); status != http.StatusForbidden || code != "denied" {
		t.Errorf("a redirect to another host gives %d %s, want 403 denied", status, code)
	}
	eventually(t, "a line of the log names the dependency that was denied", func() bool {
		return strings.Contains(p.log(), `"msg":"egress denied","dependency":"upstream"`)
	})
}

func TestServeNeedsToBeToldToSetUpAnEmptyStore(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": strings.Replace(shopManifest, "STRIPE_KEY", "PATH", 1)})
	config := kvbucket.ServerConfig{Dir: t.TempDir(), Listen: freeAddress(t)}
	startStore(t, config)
	got := runArgs(t, os.Environ(), "serve", "shop", "--nats=nats://"+config.Listen, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0")
	if want := "edgehost: opening the store (an empty one is set up with --replicas)"; got.code != exitFailure || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("serve exited with %d and printed %q, want %q", got.code, got.stderr, want)
	}
}

func TestTheHintOfAnEmptyStoreIsForNoOtherProblem(t *testing.T) {
	writeApp(t, map[string]string{"edgehost.toml": strings.Replace(shopManifest, "STRIPE_KEY", "PATH", 1)})
	config := kvbucket.ServerConfig{Dir: t.TempDir(), Listen: freeAddress(t)}
	startStore(t, config)
	got := runArgs(t, os.Environ(), "serve", "shop", "--nats=nats://"+config.Listen, "--replicas=3", "--listen=127.0.0.1:0", "--admin=127.0.0.1:0")
	if got.code != exitFailure || !strings.HasPrefix(got.stderr, "edgehost: opening the store: ") {
		t.Errorf("serve with more copies than servers exited with %d and printed %q", got.code, got.stderr)
	}
}

// startStore starts a NATS server of the test's own.
func startStore(t *testing.T, config kvbucket.ServerConfig) *kvbucket.Server {
	t.Helper()
	server, err := kvbucket.StartServer(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close(context.WithoutCancel(t.Context())) })
	return server
}

func TestEveryRequestThatReachesTheHostGetsADocument(t *testing.T) {
	writeApp(t, map[string]string{"hello.wasm": string(conformance.Hello()), "edgehost.toml": strings.Replace(shopManifest, "secrets", "# ", 1)})
	_, url, _ := startServe(t, "--nats-listen=127.0.0.1:0")
	for _, line := range []string{"OPTIONS *", "OPTIONS /hello", "BREW /hello", "BREW /nope", "PRI /hello"} {
		status, header := sendLine(t, strings.TrimPrefix(url, "http://"), line)
		if status < 400 || header.Get("Content-Type") != "application/problem+json" || header.Get("X-Request-Id") == "" {
			t.Errorf("%s answers %d %v", line, status, header)
		}
	}
}

// sendLine sends a request that an [http.Client] would not.
func sendLine(t *testing.T, address, line string) (int, http.Header) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // everything has been read
	if _, err := io.WriteString(conn, line+" HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if err := response.Body.Close(); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return response.StatusCode, response.Header
}
