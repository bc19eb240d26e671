package runtime_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
	"github.com/edgehost/edgehost/runtime/attempt"
)

// retrying serves the tools with the dependency "up", and counts and logs all
// that its calls do.
func retrying(tb testing.TB, u *upstream, cfg runtime.DependencyConfig) (*host, *prometheus.Registry) {
	tb.Helper()
	return retryingApp(tb, guardedApp(tb, u, cfg))
}

func retryingApp(tb testing.TB, app runtime.App) (*host, *prometheus.Registry) {
	tb.Helper()
	coordination, err := objects.Open(tb.Context(), objects.Config{Bucket: kvbucket.NewMemory()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := coordination.Close(tb.Context()); err != nil && tb.Context().Err() == nil {
			tb.Error(err)
		}
	})
	lines, registry := new(log), prometheus.NewRegistry()
	h := open(tb, runtime.Config{
		Objects: coordination, Metrics: registry,
		Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	h.log = lines
	h.deploy(tb, app)
	return h, registry
}

// retried returns edgehost_retries_total of the dependency "up" for a reason.
func retried(tb testing.TB, registry *prometheus.Registry, reason string) (total float64) {
	tb.Helper()
	families, err := registry.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "edgehost_retries_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if l := m.GetLabel(); l[0].GetValue() == "app/up" && l[1].GetValue() == reason {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}

// answersInTurn answers with the statuses, the last one for ever.
func (u *upstream) answersInTurn(statuses ...int) {
	var n atomic.Int64
	u.behave(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(statuses[min(int(n.Add(1)), len(statuses))-1])
	})
}

func TestACallIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		method, query, key string
		answers            []int
		retry              attempt.Policy
		status             int
		calls              int64
		reason             string
	}{
		"until it succeeds":                   {"GET", "", "", []int{503, 429, 200}, attempt.Policy{}, 200, 3, "503"},
		"three times at most":                 {"GET", "", "", []int{503}, attempt.Policy{}, 503, 3, "503"},
		"a POST that was refused":             {"POST", "&inline=1", "", []int{503, 201}, attempt.Policy{}, 201, 2, "503"},
		"a GET that a gateway lost":           {"GET", "", "", []int{502, 200}, attempt.Policy{}, 200, 2, "502"},
		"a POST with a key":                   {"POST", "&inline=1", "k", []int{504, 200}, attempt.Policy{}, 200, 2, "504"},
		"but not a POST without":              {"POST", "&inline=1", "", []int{504, 200}, attempt.Policy{}, 504, 1, ""},
		"but not a streamed body":             {"POST", "", "k", []int{503, 200}, attempt.Policy{}, 503, 1, ""},
		"but not when validation fails":       {"GET", "", "k", []int{422, 200}, attempt.Policy{}, 422, 1, ""},
		"but not when authorization is there": {"GET", "", "k", []int{403, 200}, attempt.Policy{}, 403, 1, ""},
		"but not after a revision conflict":   {"PUT", "&inline=1", "k", []int{409, 200}, attempt.Policy{}, 409, 1, ""},
		"but not after another failure":       {"GET", "", "", []int{500, 200}, attempt.Policy{}, 500, 1, ""},
		"but not when retries are off":        {"GET", "", "", []int{503, 200}, attempt.Policy{Attempts: 1}, 503, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := newUpstream(t)
			u.answersInTurn(tc.answers...)
			h, registry := retrying(t, u, runtime.DependencyConfig{Timeout: time.Second, Retry: tc.retry, IdempotencyHeader: "Payment-Key"})
			req, _ := http.NewRequestWithContext(t.Context(), tc.method, h.url+callUp+tc.query, strings.NewReader("body"))
			if tc.key != "" {
				req.Header.Set("Payment-Key", tc.key)
			}
			if resp, body := send(t, req); resp.StatusCode != tc.status || u.calls.Load() != tc.calls {
				t.Errorf("got %d %q after %d calls, want %d after %d", resp.StatusCode, body, u.calls.Load(), tc.status, tc.calls)
			}
			if got := retried(t, registry, tc.reason); tc.reason != "" && got < 1 {
				t.Errorf("edgehost_retries_total{reason=%q} is %v", tc.reason, got)
			}
		})
	}
}

func TestAThousandFailuresSpendTheBudgetAndNoMore(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(503)
	app := guardedApp(t, u, runtime.DependencyConfig{Timeout: 20 * time.Second, Policy: objects.Policy{FailureThreshold: 1 << 20}})
	app.Functions[0].Timeout, app.Functions[0].QueueWait = 2*time.Minute, time.Minute
	h, _ := retryingApp(t, app)
	var clients sync.WaitGroup
	for range 1000 {
		clients.Go(func() {
			if resp, body := h.get(t, callUp); resp.StatusCode != http.StatusServiceUnavailable || body != "" {
				t.Errorf("got %d %q, want the dependency's own 503", resp.StatusCode, body)
			}
		})
	}
	clients.Wait()
	if n := u.calls.Load(); n > 1200 || n <= 1000 {
		t.Errorf("%d requests reached the dependency, want 1000 and at most a fifth more", n)
	}
}

func TestTheFailureThatOpensTheBreakerIsTheLast(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(503)
	h, _ := retrying(t, u, runtime.DependencyConfig{Timeout: time.Second, Policy: objects.Policy{FailureThreshold: 2}})
	if resp, _ := h.get(t, callUp); resp.StatusCode != http.StatusServiceUnavailable || u.calls.Load() != 2 {
		t.Errorf("got %d after %d attempts, want the dependency's 503 after two", resp.StatusCode, u.calls.Load())
	}
	resp, body := h.get(t, callUp)
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "breaker_open")
	if n := u.calls.Load(); n != 2 {
		t.Errorf("%d requests reached the dependency, want two", n)
	}
	if !strings.Contains(h.log.String(), `msg="the result stands" app=app function=tools`) || !strings.Contains(h.log.String(), "reason=open") {
		t.Error("the log does not say why there was no other attempt")
	}
}

func TestAProbeIsSentOnce(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(503)
	h, _ := retrying(t, u, runtime.DependencyConfig{
		Timeout: time.Second, Policy: objects.Policy{FailureThreshold: 1, ResetAfter: 100 * time.Millisecond, MaxResetAfter: time.Hour},
	})
	h.get(t, callUp)
	for n := 0; u.calls.Load() < 2; n++ {
		h.get(t, callUp)
	}
	if !strings.Contains(h.log.String(), "reason=probe") || u.calls.Load() != 2 {
		t.Errorf("%d requests reached the dependency, want the failure and its probe", u.calls.Load())
	}
}

func TestNoRetryWhenItDoesNotFitTheDeadline(t *testing.T) {
	u := newUpstream(t)
	u.behave(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	app := guardedApp(t, u, runtime.DependencyConfig{Timeout: time.Second})
	app.Functions[0].Timeout = 15 * time.Second
	h, _ := guardedBy(t, app)
	begun := time.Now()
	resp, _ := h.get(t, callUp)
	if took := time.Since(begun); resp.StatusCode != http.StatusServiceUnavailable || u.calls.Load() != 1 || took > 10*time.Second {
		t.Errorf("got %d after %d attempts and %v", resp.StatusCode, u.calls.Load(), took)
	}
}

func TestARetryIsWhereTheLeaseIs(t *testing.T) {
	u := newUpstream(t)
	var fences sync.Map
	u.behave(func(w http.ResponseWriter, r *http.Request) {
		fences.Store(r.Header.Get("Edgehost-Fence"), true)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	h, _ := retrying(t, u, runtime.DependencyConfig{Timeout: time.Second})
	h.get(t, callUp+"&lease=doc/1")
	count := 0
	fences.Range(func(fence, _ any) bool {
		count++
		return fence != ""
	})
	if n := u.calls.Load(); n != 3 || count != 1 {
		t.Errorf("%d attempts under %d fences, want three under one", n, count)
	}
}

func TestAnExcludedAnswerIsNoVerdict(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(500)
	h, _ := retrying(t, u, runtime.DependencyConfig{Timeout: time.Second, Exclude: []string{"500"}, Policy: objects.Policy{FailureThreshold: 2}})
	for range 5 {
		if resp, _ := h.get(t, callUp); resp.StatusCode != http.StatusInternalServerError {
			t.Fatalf("got %d, want the dependency's 500: the breaker must not open", resp.StatusCode)
		}
	}
	u.answersInTurn(501)
	h.get(t, callUp)
	h.get(t, callUp)
	resp, body := h.get(t, callUp)
	wantProblem(t, resp, body, http.StatusServiceUnavailable, "breaker_open") // 501 counts
}

func TestAnExcludedProbeLeavesTheProbeToTheNext(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(500, 409, 200)
	h, _ := retrying(t, u, runtime.DependencyConfig{
		Timeout: time.Second, Exclude: []string{"409"}, Policy: objects.Policy{FailureThreshold: 1, ResetAfter: time.Second},
	})
	h.get(t, callUp)
	probe := http.StatusServiceUnavailable
	for probe == http.StatusServiceUnavailable { // until the cooldown is over
		resp, _ := h.get(t, callUp)
		probe = resp.StatusCode
	}
	if next, _ := h.get(t, callUp); probe != http.StatusConflict || next.StatusCode != http.StatusOK || u.calls.Load() != 3 {
		t.Errorf("the probe got %d and the next call %d, of %d calls; want 409, and 200 at once", probe, next.StatusCode, u.calls.Load())
	}
}

func TestTheStepsOfACallAreInItsDebugLog(t *testing.T) {
	u := newUpstream(t)
	u.answersInTurn(503, 200)
	h, _ := retrying(t, u, runtime.DependencyConfig{Timeout: time.Second, IdempotencyHeader: "Payment-Key"})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+callUp+"&lease=doc/1", nil)
	req.Header.Set("X-Request-Id", "the-call")
	req.Header.Set("Payment-Key", "k")
	send(t, req)
	text := h.log.String()
	for _, step := range []string{
		`msg="the call is admitted"`, `msg="the attempt begins"`, "attempt=1 keyed=true fence=1",
		`msg="the attempt has ended"`, "status=503", "outcome=failure", `msg="the outcome is reported"`,
		`msg="another attempt follows"`, "after=1 in=", "reason=503",
		`msg="the call is admitted"`, "attempt=2 keyed=true fence=1", "status=200", "outcome=success", `msg="the result stands"`, "reason=stands",
	} {
		_, rest, ok := strings.Cut(text, step)
		if !ok {
			t.Fatalf("%s is missing, or out of order, in %s", step, h.log)
		}
		text = rest
	}
	for line := range strings.Lines(h.log.String()) {
		if strings.Contains(line, "attempt") && !strings.Contains(line, "request_id=the-call dependency=up") {
			t.Errorf("the line does not name its request: %s", line)
		}
	}
}

func TestAWrongRetryOrExclusionIsRefused(t *testing.T) {
	u := newUpstream(t)
	for _, cfg := range []runtime.DependencyConfig{
		{Retry: attempt.Policy{Attempts: 99}}, {Exclude: []string{"everything"}}, {IdempotencyHeader: "Content-Length"},
	} {
		h := open(t, runtime.Config{})
		if err := h.Deploy(t.Context(), guardedApp(t, u, cfg)); err == nil || abi.CodeOf(err) != abi.Invalid {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}
