package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
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

func acquire(tb testing.TB, o *objects.Object, opts objects.LeaseOptions) *objects.Lease {
	tb.Helper()
	l, err := o.Acquire(tb.Context(), opts)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// held returns the number of leases of guild/42 in the store.
func held(tb testing.TB, b kvbucket.Bucket) int {
	tb.Helper()
	s, err := objects.Inspect(tb.Context(), b, objects.ID{Namespace: "shop", Name: "guild/42"})
	if err != nil && !errors.Is(err, abi.NotFound) {
		tb.Fatal(err)
	}
	return len(s.Leases)
}

func TestLeaseIsHeldByOneAndRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kvbucket.NewMemory()
		o := object(t, openHost(t, b, objects.Config{Host: "a"}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		for range 100 {
			pass(time.Second)
			if r := refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{})), abi.LeaseBusy); r <= 0 {
				t.Fatalf("retry after %v", r)
			}
			if l.Err() != nil || l.Context().Err() != nil || l.Remaining() <= 5*time.Second {
				t.Fatalf("the lease has %v left, %v", l.Remaining(), l.Err())
			}
		}
		s := snapshot(t, b, "guild/42").Leases[0]
		if s.Fence != l.Fence() || !strings.HasPrefix(s.Holder, "a.") || s.Age > 6*time.Second || s.Name != "main" {
			t.Errorf("operators see %+v", s)
		}
		other := acquire(t, o, objects.LeaseOptions{Name: "other"})
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(l.Err(), abi.LeaseLost) || !errors.Is(context.Cause(l.Context()), context.Canceled) {
			t.Errorf("after its release: %v, %v", l.Err(), context.Cause(l.Context()))
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("released again: %v", err)
		}
		next := acquire(t, o, objects.LeaseOptions{})
		if next.Fence() <= other.Fence() || other.Fence() <= l.Fence() {
			t.Errorf("fences %d, %d, %d do not grow", l.Fence(), other.Fence(), next.Fence())
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, kvbucket.NewMemory(), objects.Config{})
		o := object(t, h, "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		var (
			mu    sync.Mutex
			order []int
			group sync.WaitGroup
		)
		for i := range 10 {
			group.Go(func() {
				l, err := o.Acquire(t.Context(), objects.LeaseOptions{Wait: time.Hour})
				if err != nil {
					t.Error(err)
					return
				}
				if left := l.Remaining(); left < 11*time.Second {
					t.Errorf("waiter %d has only %v of its lease left", i, left)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				pass(time.Second)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			pass(700 * time.Millisecond)
		}
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{})), abi.LeaseBusy)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{})), abi.LeaseBusy)
		group.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
	})
}

func TestWaitIsBoundedAndLeavesNothingBehind(t *testing.T) {
	tests := map[string]struct {
		opts  objects.LeaseOptions
		limit time.Duration // of the caller
		code  abi.Code
		after time.Duration
	}{
		"its own wait":      {objects.LeaseOptions{Wait: 3 * time.Second}, time.Hour, abi.LeaseBusy, 3 * time.Second},
		"its caller's time": {objects.LeaseOptions{Wait: time.Hour}, 2 * time.Second, abi.DeadlineExceeded, 2 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := kvbucket.NewMemory()
				o := object(t, openHost(t, b, objects.Config{}), "guild/42")
				l := acquire(t, o, objects.LeaseOptions{})
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start := time.Now()
				_, err := o.Acquire(ctx, tt.opts)
				if abi.CodeOf(err) != tt.code || time.Since(start) != tt.after {
					t.Errorf("got %v after %v, want %v after %v", err, time.Since(start), tt.code, tt.after)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if n := held(t, b); n != 0 {
					t.Error("somebody who no longer waits was granted the lease")
				}
			})
		})
	}
}

// Scenario: the watchdog outlives the unlock; an interrupted acquire leaves a lock.
func TestAcquireInterruptedAtAnyMomentLeavesNothing(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Minute} {
		for step := range 30 {
			synctest.Test(t, func(t *testing.T) {
				b := newFlaky(kvbucket.NewMemory())
				b.onUpdate(slowly(100 * time.Millisecond))
				o := object(t, openHost(t, b, objects.Config{}), "guild/42")
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(step)*10*time.Millisecond+1)
				defer cancel()
				l, err := o.Acquire(ctx, objects.LeaseOptions{Wait: wait})
				if err == nil {
					_ = l.Release(ctx)
				}
				pass(2 * time.Second)
				writes := b.writes.Load()
				if n := held(t, b); n != 0 {
					t.Errorf("interrupted after %d0 ms: the lease is still held", step)
				}
				pass(45 * time.Second)
				if n := b.writes.Load() - writes; n != 0 {
					t.Errorf("interrupted after %d0 ms: %d writes follow", step, n)
				}
			})
		}
	}
}

func TestDeadlineRunsFromWhenTheAttemptWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		acquire(t, o, objects.LeaseOptions{Name: "other", TTL: time.Hour})
		const slow = 900 * time.Millisecond
		b.onUpdate(slowly(slow))
		l := acquire(t, o, objects.LeaseOptions{RenewEvery: 5 * time.Second})
		const most = 12*time.Second - slow // 0.8 ttl, less what the store took
		longest := l.Remaining()
		for range 300 {
			pass(100 * time.Millisecond)
			longest = max(longest, l.Remaining())
		}
		if longest > most || longest < most-time.Second {
			t.Errorf("the holder had up to %v, want %v", longest, most)
		}
		b.onUpdate(nil)
	})
}

// Scenario: a failed renewal ends all renewals.
func TestRenewalGoesOnAfterAnyFailure(t *testing.T) {
	for k := 1; k <= 10; k++ {
		synctest.Test(t, func(t *testing.T) {
			b := newFlaky(kvbucket.NewMemory())
			o := object(t, openHost(t, b, objects.Config{}), "guild/42")
			l := acquire(t, o, objects.LeaseOptions{})
			var n int
			b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
				if n++; n == k {
					return 0, kvbucket.ErrUnavailable
				}
				return do()
			})
			pass(2 * time.Minute)
			if l.Err() != nil || n <= k+3 {
				t.Errorf("renewal %d failed: the lease is %v after %d writes", k, l.Err(), n)
			}
			b.onUpdate(nil)
		})
	}
}

// Scenarios: the holder that lost its lease goes on believing; renews again.
func TestHolderCutOffStopsBeforeTheNextOneStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		metrics := prometheus.NewPedanticRegistry()
		b := newFlaky(store)
		first := object(t, openHost(t, b, objects.Config{Host: "a", Metrics: metrics}), "guild/42")
		next := object(t, openHost(t, store, objects.Config{Host: "b"}), "guild/42")
		l := acquire(t, first, objects.LeaseOptions{})
		pass(20 * time.Second) // some renewals
		b.setDown(true)
		start := time.Now()
		left := l.Remaining()
		var lostAfter atomic.Int64
		stop := context.AfterFunc(l.Context(), func() { lostAfter.Store(int64(time.Since(start))) })
		defer stop()
		taken, err := next.Acquire(t.Context(), objects.LeaseOptions{Wait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		lost, took := time.Duration(lostAfter.Load()), time.Since(start)
		if lost != left || lost > 12*time.Second {
			t.Errorf("the context ended after %v, want %v, 0.8 ttl from the newest renewal", lost, left)
		}
		if took <= lost || took > 17*time.Second {
			t.Errorf("the next holder started after %v, the first one stopped after %v", took, lost)
		}
		if !errors.Is(l.Err(), abi.LeaseLost) || !errors.Is(context.Cause(l.Context()), abi.LeaseLost) {
			t.Errorf("got %v, cause %v", l.Err(), context.Cause(l.Context()))
		}
		b.onUpdate(func(_ context.Context, _ string, value []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			if bytes.Contains(value, fmt.Appendf(nil, `"fence":%d,"holder"`, l.Fence())) {
				t.Errorf("the first host still renews: %s", value)
			}
			return do()
		})
		b.setDown(false)
		pass(time.Minute)
		if err := l.Release(t.Context()); !errors.Is(err, abi.LeaseLost) {
			t.Errorf("release: got %v, want lease_lost", err)
		}
		if taken.Err() != nil || taken.Fence() <= l.Fence() {
			t.Errorf("the next holder: %v, fence %d after %d", taken.Err(), taken.Fence(), l.Fence())
		}
		wantMetric(t, metrics, "edgehost_lease_failures_total{op=renew,reason=lost}", 1)
	})
}

// Scenario: a renewal that arrives after the release resurrects the lock.
func TestRenewalDelayedPastTheReleaseChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		var late func() (kvbucket.Revision, error)
		b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			if late == nil { // the first renewal is on its way for a long time
				late = do
				return 0, kvbucket.ErrUnknown
			}
			return do()
		})
		pass(6 * time.Second)
		if late == nil {
			t.Fatal("no renewal was sent")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := late(); !errors.Is(err, kvbucket.ErrConflict) {
			t.Errorf("the late renewal: got %v, want a conflict", err)
		}
		pass(time.Second)
		if n := held(t, b); n != 0 {
			t.Error("the lease is held again")
		}
	})
}

// Scenario: a write that timed out was applied.
func TestLostAcknowledgementsAreResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		b.onUpdate(loseEvery(3))
		h := openHost(t, b, objects.Config{})
		o := object(t, h, "guild/42")
		var last uint64
		for i := range 50 {
			l, err := o.Acquire(t.Context(), objects.LeaseOptions{Wait: 10 * time.Second})
			if errors.Is(err, abi.Unavailable) {
				pass(time.Second) // told so while the outcome was unknown; given back since
				if n := held(t, b); n != 0 {
					t.Fatalf("round %d: a grant that nobody was told of is held", i)
				}
				continue
			}
			if err != nil {
				t.Fatalf("round %d: %v", i, err)
			}
			if l.Fence() <= last {
				t.Fatalf("round %d: fence %d after %d", i, l.Fence(), last)
			}
			last = l.Fence()
			if err := l.Release(t.Context()); err != nil {
				t.Fatalf("round %d: release: %v", i, err)
			}
		}
		d := dependency(t, h, "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := call(t, d, objects.Failure); err != nil {
				t.Fatal(err)
			}
			pass(time.Second)
		}
		if got := snapshot(t, b, "payments").Breaker; got.State != objects.StateClosed || got.Failures != 4 {
			t.Errorf("got %+v, want 4 failures counted once each", got)
		}
	})
}

// An answer must not be given while the outcome of its write is open.
func TestUnknownOutcomeGrantsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		acquire(t, o, objects.LeaseOptions{Name: "other"})
		b.onUpdate(func(ctx context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			_, _ = do() // applied, and nobody ever hears of it
			return hang(ctx)
		})
		start := time.Now()
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{})), abi.Unavailable)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("told after %v", took)
		}
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{})), abi.Unavailable)
		b.onUpdate(nil)
		pass(6 * time.Second)
		acquire(t, o, objects.LeaseOptions{})
	})
}

func TestEverythingGoesOnWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		lost := acquire(t, o, objects.LeaseOptions{})
		b.setDown(true)
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{Name: "other"})), abi.Unavailable)
		pass(time.Minute)
		if !errors.Is(lost.Err(), abi.LeaseLost) {
			t.Errorf("without the store for a minute, the lease is %v", lost.Err())
		}
		b.setDown(false)
		pass(2 * time.Second)
		next := acquire(t, o, objects.LeaseOptions{})
		if next.Fence() <= lost.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), lost.Fence())
		}
	})
}

func TestLapsedLeaseGoesToTheNextWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		killed := newFlaky(store)
		acquire(t, object(t, openHost(t, killed, objects.Config{}), "guild/42"), objects.LeaseOptions{})
		killed.setDown(true)
		o := object(t, openHost(t, store, objects.Config{}), "guild/42")
		start := time.Now()
		acquire(t, o, objects.LeaseOptions{Wait: time.Minute})
		if took := time.Since(start); took < 15*time.Second || took > 17*time.Second {
			t.Errorf("granted after %v, want after 1.1 ttl", took)
		}
	})
}

func TestCloseReleasesWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kvbucket.NewMemory()
		h, err := objects.Open(t.Context(), objects.Config{Bucket: b})
		if err != nil {
			t.Fatal(err)
		}
		l := acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{})
		d := dependency(t, h, "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := h.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if !errors.Is(context.Cause(l.Context()), abi.LeaseLost) {
			t.Errorf("the holder was told %v, want lease_lost", context.Cause(l.Context()))
		}
		if n := held(t, b); n != 0 {
			t.Error("the lease is still held")
		}
		if owner := snapshot(t, b, "payments").Owner; owner != "" {
			t.Errorf("%q still owns the dependency's record", owner)
		}
		refusal(t, second(d.Admit(t.Context())), abi.Unavailable)
		refusal(t, second(object(t, h, "guild/42").Acquire(t.Context(), objects.LeaseOptions{})), abi.Unavailable)
	})
}

func TestCloseWithoutTheStoreEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		h, err := objects.Open(t.Context(), objects.Config{Bucket: b})
		if err != nil {
			t.Fatal(err)
		}
		l := acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{})
		b.onUpdate(func(ctx context.Context, _ string, _ []byte, _ func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			return hang(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("closed after %v", took)
		}
		if l.Err() == nil {
			t.Error("the lease outlives its host")
		}
	})
}

func TestFullMailboxRefusesNewcomersAndKeepsHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		b.onUpdate(slowly(900 * time.Millisecond))
		var (
			group      sync.WaitGroup
			overloaded atomic.Int64
		)
		for range 5000 {
			group.Go(func() {
				_, err := o.Acquire(t.Context(), objects.LeaseOptions{Wait: 30 * time.Second})
				if errors.Is(err, abi.Overloaded) {
					overloaded.Add(1)
				}
			})
		}
		pass(25 * time.Second)
		if l.Err() != nil {
			t.Error("the holder's renewals did not get through")
		}
		if n := overloaded.Load(); n < 500 {
			t.Errorf("%d of 5,000 were refused, want those beyond the bound", n)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		group.Wait()
	})
}

func TestFullPageIsOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := object(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "guild/42")
		for i := range 128 {
			acquire(t, o, objects.LeaseOptions{Name: fmt.Sprint(i)})
		}
		refusal(t, second(o.Acquire(t.Context(), objects.LeaseOptions{Name: "more"})), abi.Overloaded)
	})
}
