package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
)

// An upstream is a dependency that can be told how to behave.
type upstream struct {
	*httptest.Server
	calls  atomic.Int64
	answer atomic.Pointer[http.HandlerFunc]
}

func newUpstream(tb testing.TB) *upstream {
	tb.Helper()
	u := new(upstream)
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.calls.Add(1)
		if answer := u.answer.Load(); answer != nil {
			(*answer)(w, r)
		}
	}))
	tb.Cleanup(u.Close)
	return u
}

func (u *upstream) behave(answer http.HandlerFunc) { u.answer.Store(&answer) }

func (u *upstream) fails() {
	u.behave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
}

// guarded serves the tools with the dependency "up" and the objects "doc/*".
func guarded(tb testing.TB, u *upstream, timeout time.Duration, policy objects.Policy) *host {
	tb.Helper()
	h, _ := guardedBy(tb, guardedApp(tb, u, runtime.DependencyConfig{Timeout: timeout, Policy: policy}))
	return h
}

// guardedApp is the tools with the dependency "up", which cfg describes, and the
// objects "doc/*".
func guardedApp(tb testing.TB, u *upstream, cfg runtime.DependencyConfig) runtime.App {
	tb.Helper()
	f := tools(tb)
	f.Dependencies, f.Objects, f.Timeout = []string{"up"}, []string{"doc/*", "main"}, 30*time.Second
	cfg.Name, cfg.URL = "up", u.URL+"/base"
	return runtime.App{
		Name:         "app",
		Functions:    []runtime.FunctionConfig{f},
		Dependencies: []runtime.DependencyConfig{cfg, {Name: "other", URL: u.URL}},
	}
}

// guardedBy serves an app by objects of its own, whose records are in the bucket.
func guardedBy(tb testing.TB, app runtime.App) (*host, kvbucket.Bucket) {
	tb.Helper()
	bucket := kvbucket.NewMemory()
	coordination, err := objects.Open(tb.Context(), objects.Config{Bucket: bucket})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := coordination.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	h := open(tb, runtime.Config{Objects: coordination})
	h.deploy(tb, app)
	return h, bucket
}

const callUp = "/tools/fetch?dependency=up&target=/x"

func TestGuardedCallCarriesWhatTheGuestSends(t *testing.T) {
	u := newUpstream(t)
	u.behave(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprint(w, r.Method, " ", r.URL, " ", r.Header["X-Many"], " ", string(b), " ", r.Header["Edgehost-Fence"])
	})
	h := guarded(t, u, time.Second, objects.Policy{})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/tools/fetch?dependency=up&target=/x%3Fq=1", strings.NewReader("sent"))
	req.Header["X-Many"] = []string{"1", "2"}
	resp, body := send(t, req)
	if want := "POST /base/x?q=1 [1 2] sent []"; resp.StatusCode != http.StatusTeapot || body != want {
		t.Errorf("got %d %q, want %q", resp.StatusCode, body, want)
	}
	if got := resp.Header["Set-Cookie"]; len(got) != 2 {
		t.Errorf("Set-Cookie %q, want two", got)
	}
}

func TestWhatTheManifestDoesNotNameIsDenied(t *testing.T) {
	u := newUpstream(t)
	h := guarded(t, u, time.Second, objects.Policy{})
	for _, path := range []string{
		"/tools/fetch?dependency=other&target=/x",
		"/tools/fetch?dependency=unknown&target=/x",
		"/tools/fetch?target=" + u.URL,
		"/tools/fetch?target=http://169.254.169.254/",
		"/tools/admit?dependency=other&n=1",
		"/tools/lease?object=other/1",
		"/tools/lease?object=doc/",
		"/tools/state?object=documents/1",
	} {
		resp, body := h.get(t, path)
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d %s, want 403", path, resp.StatusCode, body)
			continue
		}
		wantProblem(t, resp, body, http.StatusForbidden, "denied")
	}
	if n := u.calls.Load(); n != 0 {
		t.Errorf("%d calls reached the dependency", n)
	}
}

func TestBreakerOpensOneProbeGoesOutAndItCloses(t *testing.T) {
	u := newUpstream(t)
	u.fails()
	h := guarded(t, u, time.Second, objects.Policy{FailureThreshold: 3, ResetAfter: 300 * time.Millisecond})
	for range 3 {
		if resp, _ := h.get(t, callUp); resp.StatusCode != http.StatusInternalServerError {
			t.Fatalf("got %d, want the dependency's 500", resp.StatusCode)
		}
	}
	resp, body := h.get(t, callUp)
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "breaker_open")
	if after := resp.Header.Get("Retry-After"); after == "" || after == "0" {
		t.Errorf("Retry-After %q", after)
	}
	if n := u.calls.Load(); n != 3 {
		t.Fatalf("%d calls reached the dependency, want 3", n)
	}

	release := make(chan struct{})
	u.behave(func(http.ResponseWriter, *http.Request) { <-release })
	codes := make(chan int, 1)
	var clients sync.WaitGroup
	clients.Go(func() {
		for { // until the cooldown is over and this is the probe
			if resp, _ := h.get(t, callUp); resp.StatusCode != http.StatusServiceUnavailable {
				codes <- resp.StatusCode
				return
			}
		}
	})
	for u.calls.Load() == 3 {
		h.get(t, "/tools/random")
	}
	for range 20 {
		clients.Go(func() {
			resp, body := h.get(t, callUp)
			wantProblem(t, resp, body, http.StatusServiceUnavailable, "deferred")
		})
	}
	for strings.Count(h.log.String(), "code=deferred") < 20 {
		h.get(t, "/tools/random")
	}
	close(release)
	clients.Wait()
	if status := <-codes; status != http.StatusOK {
		t.Errorf("the probe got %d", status)
	}
	if n := u.calls.Load(); n != 4 {
		t.Errorf("%d calls reached the dependency, want 4", n)
	}
	if resp, _ := h.get(t, callUp); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d after the probe succeeded", resp.StatusCode)
	}
}

func TestProbeOutlivesItsClient(t *testing.T) {
	u := newUpstream(t)
	u.fails()
	h := guarded(t, u, time.Second, objects.Policy{FailureThreshold: 1, ResetAfter: 100 * time.Millisecond})
	h.get(t, callUp)
	arrived := make(chan struct{})
	release := make(chan struct{})
	u.behave(func(http.ResponseWriter, *http.Request) { close(arrived); <-release })
	ctx, cancel := context.WithCancel(t.Context())
	var client sync.WaitGroup
	client.Go(func() {
		for ctx.Err() == nil {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, h.url+callUp, nil)
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}
	})
	<-arrived
	cancel()
	client.Wait()
	h.waitForLog(t, "code=canceled")
	u.behave(func(http.ResponseWriter, *http.Request) {})
	close(release) // the probe succeeds, after its client has gone
	for {
		resp, _ := h.get(t, callUp)
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
	if n := u.calls.Load(); n != 3 {
		t.Errorf("%d calls reached the dependency, want the failure, the probe and one more", n)
	}
}

func TestCallIsCutAtItsTimeout(t *testing.T) {
	u := newUpstream(t)
	u.behave(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h := guarded(t, u, 100*time.Millisecond, objects.Policy{FailureThreshold: 2})
	for range 2 {
		begun := time.Now()
		resp, body := h.get(t, callUp)
		wantProblem(t, resp, body, http.StatusGatewayTimeout, "deadline_exceeded")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("cut after %v, want 100ms", took)
		}
	}
	resp, body := h.get(t, callUp)
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "breaker_open") // they counted as failures
}

func TestLargeBodiesStreamThroughACall(t *testing.T) {
	u := newUpstream(t)
	u.behave(func(w http.ResponseWriter, r *http.Request) {
		// The SDK sends all of it before it reads the answer.
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = io.Copy(w, io.LimitReader(zeros{}, n))
	})
	h := guarded(t, u, 20*time.Second, objects.Policy{})
	const size = 8 << 20
	n := discard(t, http.MethodPost, h.url+callUp, io.LimitReader(zeros{}, size))
	if n != size {
		t.Errorf("%d bytes came back, want %d", n, size)
	}
}

func TestLeaseIsHeldWhileTheRequestLives(t *testing.T) {
	h := guarded(t, newUpstream(t), time.Second, objects.Policy{})
	var client sync.WaitGroup
	client.Go(func() {
		if resp, body := h.get(t, "/tools/lease?object=doc/1&ms=300"); resp.StatusCode != http.StatusOK || !strings.HasSuffix(body, " true <nil>") {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	})
	h.waitForLog(t, "holding the lease")
	resp, body := h.get(t, "/tools/lease?object=doc/1")
	wantProblem(t, resp, body, http.StatusConflict, "lease_busy")
	if after := resp.Header.Get("Retry-After"); after == "" {
		t.Error("no Retry-After")
	}
	client.Wait()
	// The host released it before the client had its answer.
	first := h.fence(t, "doc/1")
	if second := h.fence(t, "doc/1"); second <= first {
		t.Errorf("fence %d after %d", second, first)
	}
}

func (h *host) fence(tb testing.TB, object string) (fence uint64) {
	tb.Helper()
	resp, body := h.get(tb, "/tools/lease?object="+object)
	if _, err := fmt.Sscan(body, &fence); err != nil || resp.StatusCode != http.StatusOK {
		tb.Fatalf("got %d %q", resp.StatusCode, body)
	}
	return fence
}

func TestCallUnderALeaseCarriesItsFence(t *testing.T) {
	u := newUpstream(t)
	u.behave(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Header.Get("Edgehost-Fence")) })
	h := guarded(t, u, time.Second, objects.Policy{})
	before := h.fence(t, "doc/1")
	_, body := h.get(t, callUp+"&lease=doc/1")
	var fence uint64
	if _, err := fmt.Sscan(body, &fence); err != nil || fence <= before {
		t.Errorf("the call carried the fence %q, want one above %d", body, before)
	}
}

func TestStateCountsWithAndWithoutALease(t *testing.T) {
	h := guarded(t, newUpstream(t), time.Second, objects.Policy{})
	for _, q := range []string{"object=main", "object=doc/7&lease=1"} {
		for want := range 3 {
			if resp, body := h.get(t, "/tools/state?"+q); body != fmt.Sprint(want+1) {
				t.Errorf("%s: got %d %q, want %d", q, resp.StatusCode, body, want+1)
			}
		}
	}
}

func TestAdmissionsAreReported(t *testing.T) {
	h := guarded(t, newUpstream(t), time.Second, objects.Policy{})
	if resp, body := h.get(t, "/tools/admit?dependency=up&n=1000"); resp.StatusCode != http.StatusOK {
		t.Errorf("got %d %s: handles must not run out", resp.StatusCode, body)
	}
}

func TestAppThatNeedsCoordinationIsRefusedWithout(t *testing.T) {
	h := open(t, runtime.Config{})
	f := tools(t)
	f.Dependencies = []string{"up"}
	err := h.Deploy(t.Context(), runtime.App{
		Name: "app", Functions: []runtime.FunctionConfig{f},
		Dependencies: []runtime.DependencyConfig{{Name: "up", URL: "http://127.0.0.1:1"}},
	})
	if err == nil || errors.Is(err, abi.Internal) {
		t.Errorf("got %v, want a refusal", err)
	}
}
