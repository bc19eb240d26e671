package objects_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// call admits and reports one call, and returns the error of the admission.
func call(t *testing.T, d *objects.Dependency, o objects.Outcome) error {
	t.Helper()
	a, err := d.Admit(t.Context())
	if err != nil {
		return err
	}
	if err := a.Report(t.Context(), o); err != nil {
		t.Fatalf("report: %v", err)
	}
	return nil
}

// open makes the breaker open by failures in a row.
func open(t *testing.T, d *objects.Dependency) {
	t.Helper()
	for d.View().State == objects.StateClosed {
		if err := call(t, d, objects.Failure); err != nil {
			t.Fatal(err)
		}
	}
}

// probe waits for the end of the cooldown and claims the probe.
func probe(t *testing.T, d *objects.Dependency) objects.Admission {
	t.Helper()
	pass(d.View().RetryAfter)
	a, err := d.Admit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !a.Probe() {
		t.Fatalf("got an admission that is no probe, from %+v", d.View())
	}
	return a
}

// refusal fails the test if err is no refusal with the code, and returns the retry
// time.
func refusal(t *testing.T, err error, code abi.Code) time.Duration {
	t.Helper()
	r, ok := errors.AsType[*objects.Refusal](err)
	if !ok || r.Code != code {
		t.Fatalf("got %v, want a refusal of %v", err, code)
	}
	return r.RetryAfter
}

func TestSequentialCallerSeesTheBreakerOpenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{})
		start := time.Now()
		for i := range 5 {
			if err := call(t, d, objects.Failure); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			synctest.Wait() // the first one is reported, and the others are not due
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("the opening waited %v for a report that was due later", took)
		}
		r := refusal(t, call(t, d, objects.Failure), abi.BreakerOpen)
		if r < 30*time.Second || r > 37500*time.Millisecond {
			t.Errorf("retry after %v, want 30s and up to a quarter more", r)
		}
	})
}

func TestFailureThatOpensTheBreakerWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{FailureThreshold: 2})
		if err := call(t, d, objects.Failure); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		b.onUpdate(slowly(time.Second))
		a, err := d.Admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		if err := a.Report(hurried, objects.Failure); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller in a hurry got %v, want the end of its time", err)
		}
		if d.View().State != objects.StateClosed {
			t.Error("the opening is shown before it is durable")
		}
		if err := a.Report(t.Context(), objects.Failure); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("the report came back after %v, before the write was done", took)
		}
		refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
	})
}

func TestOtherReportsNeverWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		b.onUpdate(slowly(time.Hour))
		start := time.Now()
		for _, o := range []objects.Outcome{objects.Failure, objects.Success, objects.Canceled, objects.Excluded, objects.Failure} {
			if err := call(t, d, o); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("reports took %v", took)
		}
		b.onUpdate(nil)
		pass(time.Hour)
	})
}

// Scenario: every circuit breaker that lets a herd through half-open.
func TestOneProbeForFiveHundredCallersAtTheEndOfACooldown(t *testing.T) {
	for _, callers := range []int{5, 500} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFlaky(kvbucket.NewMemory())
				d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
				open(t, d)
				pass(d.View().RetryAfter)
				b.onUpdate(slowly(10 * time.Millisecond))
				var (
					probes  atomic.Int64
					admit   sync.WaitGroup
					verdict = make(chan struct{})
				)
				for range callers {
					admit.Go(func() {
						start := time.Now()
						a, err := d.Admit(t.Context())
						if err != nil {
							if took := time.Since(start); took > 0 {
								t.Errorf("deferred after %v", took)
							}
							if r := refusal(t, err, abi.Deferred); r <= 0 {
								t.Errorf("retry after %v", r)
							}
							return
						}
						if !a.Probe() {
							t.Error("a call that is no probe went out")
						}
						probes.Add(1)
						<-verdict
						if err := a.Report(t.Context(), objects.Success); err != nil {
							t.Error(err)
						}
					})
				}
				pass(5 * time.Second)
				if n := probes.Load(); n != 1 {
					t.Errorf("%d probes went out", n)
				}
				refusal(t, call(t, d, objects.Success), abi.Deferred)
				close(verdict)
				admit.Wait()
				if err := call(t, d, objects.Success); err != nil {
					t.Errorf("after the probe's success: %v", err)
				}
			})
		})
	}
}

// Scenario: half-open for six days, because the probe never reported.
func TestProbeThatNeverReportsIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := prometheus.NewPedanticRegistry()
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{Metrics: metrics}), "payments", objects.Policy{Timeout: 2 * time.Second})
		open(t, d)
		lost := probe(t, d)
		pass(4200 * time.Millisecond) // 1.1 of 2s/0.8 + 1.25s
		if v := d.View(); v.State != objects.StateOpen || v.RetryAfter < 50*time.Second {
			t.Fatalf("got %+v, want open for twice as long", v)
		}
		next := probe(t, d)
		if next.Fence() <= lost.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), lost.Fence())
		}
		for _, late := range []objects.Outcome{objects.Success, objects.Failure, objects.Canceled} {
			if err := lost.Report(t.Context(), late); !errors.Is(err, abi.Fenced) {
				t.Errorf("late report: got %v, want fenced", err)
			}
			if v := d.View(); v.State != objects.StateHalfOpen || v.Generation != next.Generation() {
				t.Errorf("the late report changed the breaker: %+v", v)
			}
		}
		wantMetric(t, metrics, "edgehost_stale_fences_rejected_total{kind=probe}", 3)
		wantMetric(t, metrics, "edgehost_breaker_probes_total{dependency=shop/payments,result=lapsed}", 1)
		if err := next.Report(t.Context(), objects.Success); err != nil {
			t.Fatal(err)
		}
		wantMetric(t, metrics, "edgehost_breaker_state{dependency=shop/payments}", 0)
		wantMetric(t, metrics, "edgehost_breaker_transitions_total{dependency=shop/payments,from=half_open,to=closed}", 1)
		wantMetric(t, metrics, "edgehost_objects_owned", 1)
	})
}

// Scenario: a slow call of the closed breaker ends while a probe is out.
func TestLateCallOfTheClosedBreakerIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{})
		var slow []objects.Admission
		for range 20 {
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, a)
		}
		open(t, d)
		p := probe(t, d)
		for i, a := range slow {
			if err := a.Report(t.Context(), objects.Outcome(i%2)); err != nil {
				t.Error(err)
			}
		}
		pass(time.Second)
		if v := d.View(); v.State != objects.StateHalfOpen || v.Generation != p.Generation() {
			t.Fatalf("got %+v, want half_open in generation %d", v, p.Generation())
		}
		if err := p.Report(t.Context(), objects.Success); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := slow[1].Report(t.Context(), objects.Failure); err != nil {
				t.Error(err)
			}
		}
		if v := d.View(); v.State != objects.StateClosed {
			t.Errorf("failures of an earlier generation opened the breaker: %+v", v)
		}
	})
}

// Scenario: a filtered error in half-open, after which nobody may probe any more.
func TestProbeWithoutVerdictLetsTheNextOneTry(t *testing.T) {
	for _, o := range []objects.Outcome{objects.Canceled, objects.Excluded} {
		synctest.Test(t, func(t *testing.T) {
			d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{})
			open(t, d)
			for range 2 {
				if err := probe(t, d).Report(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				if v := d.View(); v.State != objects.StateHalfOpen {
					t.Fatalf("got %+v, want half_open", v)
				}
			}
			if err := probe(t, d).Report(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if v := d.View(); v.State != objects.StateOpen {
				t.Errorf("after the third: got %+v, want open", v)
			}
		})
	}
}

func TestProbeOfACallerWhoLeftIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		open(t, d)
		pass(d.View().RetryAfter)
		b.onUpdate(slowly(800 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := d.Admit(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the end of the caller's time", err)
		}
		pass(3 * time.Second)
		if a, err := d.Admit(t.Context()); err != nil || !a.Probe() {
			t.Errorf("got %v, want the probe", err)
		}
	})
}

func TestOneFailureAMinuteNeverOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{})
		for minute := range 60 {
			for i := range 60 {
				o := objects.Success
				if i == 0 {
					o = objects.Failure
				}
				if err := call(t, d, o); err != nil {
					t.Fatalf("minute %d: %v", minute, err)
				}
				pass(time.Second)
			}
		}
	})
}

func TestHealthyCallsCauseNoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		for _, o := range []objects.Outcome{objects.Failure, objects.Success} { // even after a failure
			if err := call(t, d, o); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		reads, writes := b.reads.Load(), b.writes.Load()
		for range 10_000 {
			if err := call(t, d, objects.Success); err != nil {
				t.Fatal(err)
			}
		}
		if r := b.reads.Load() - reads; r != 0 {
			t.Errorf("10,000 calls caused %d reads", r)
		}
		pass(time.Hour) // in which a breaker that was used is polled once
		if r, w := b.reads.Load()-reads, b.writes.Load()-writes; r > 1 || w != 0 {
			t.Errorf("10,000 calls and an hour caused %d reads and %d writes", r, w)
		}
		if n := testing.AllocsPerRun(100, func() { _ = call(t, d, objects.Success) }); n != 0 {
			t.Errorf("a call makes %v allocations", n)
		}
	})
}

func TestFailuresAreReportedAtOnceAndThenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{FailureThreshold: 1 << 30})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		before := b.writes.Load()
		if err := call(t, d, objects.Failure); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := b.writes.Load() - before; n != 1 {
			t.Errorf("the first failure caused %d writes, want 1 at once", n)
		}
		for range 1000 {
			if err := call(t, d, objects.Failure); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Millisecond)
		}
		pass(time.Second)
		if n := b.writes.Load() - before; n > 22 {
			t.Errorf("1,001 failures within a second caused %d writes, want one every 50 ms", n)
		}
		if got := snapshot(t, b, "payments").Breaker.Failures; got != 1001 {
			t.Errorf("the record counts %d failures, want all 1,001", got)
		}
	})
}

func TestBreakerSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kvbucket.NewMemory()
		first := newFlaky(b)
		d := dependency(t, openHost(t, first, objects.Config{}), "payments", objects.Policy{})
		open(t, d)
		opened := time.Now()
		pass(25 * time.Second)
		first.setDown(true) // killed
		d = dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		r := refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
		if again := time.Since(opened) + r; again < 30*time.Second || again > 50*time.Second {
			t.Errorf("the cooldown ends %v after it began; want at least its 30s, and not all of it once more", again)
		}
		if a := probe(t, d); a.Report(t.Context(), objects.Success) != nil {
			t.Error("the probe after the restart was not taken")
		}
	})
}

func TestIdleObjectsCostNoGoroutineAndLittleMemory(t *testing.T) {
	const n = 10_000
	h := openHost(t, kvbucket.NewMemory(), objects.Config{})
	ctx := t.Context()
	goroutines, heap := goruntime.NumGoroutine(), heapInUse()
	for i := range n {
		d := dependency(t, h, fmt.Sprint("d", i), objects.Policy{})
		a, err := d.Admit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Report(ctx, objects.Success); err != nil {
			t.Fatal(err)
		}
	}
	if got := goruntime.NumGoroutine(); got > goroutines+2 {
		t.Errorf("%d goroutines for idle objects", got-goroutines)
	}
	// The bucket in memory is part of this; a record is about 400 bytes.
	if each := (heapInUse() - heap) / n; each > 4<<10 {
		t.Errorf("an idle object takes %d bytes", each)
	} else {
		t.Logf("an idle object takes %d bytes, its record in the bucket included", each)
	}
}

func heapInUse() uint64 {
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}
