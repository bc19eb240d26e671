package objects_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// loseAndCut applies the next write, loses its acknowledgement, lets the repeat run
// into its conflict and cuts the way to the store for a second, before anybody can
// read what the conflict means.
func loseAndCut(b *flaky) {
	var n atomic.Int64
	b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
		rev, err := do()
		switch n.Add(1) {
		case 1:
			return 0, kvbucket.ErrUnknown
		case 2:
			b.setDown(true)
			time.AfterFunc(time.Second, func() { b.setDown(false) })
		}
		return rev, err
	})
}

func TestWhatNobodyAwaitsIsGivenBackAfterAnOutage(t *testing.T) {
	// The caller leaves while the grant is committed; what gives it back meets an
	// outage of a second.
	cut := func(b *flaky) {
		b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			rev, err := do()
			<-time.After(700 * time.Millisecond)
			b.setDown(true)
			time.AfterFunc(time.Second, func() { b.setDown(false) })
			b.onUpdate(nil)
			return rev, err
		})
	}
	t.Run("a lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := kvbucket.NewMemory()
			b := newFlaky(store)
			o := object(t, openHost(t, b, objects.Config{}), "guild/42")
			_ = acquire(t, o, objects.LeaseOptions{Name: "other"}).Release(t.Context())
			cut(b)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := o.Acquire(ctx, objects.LeaseOptions{TTL: time.Hour}); err == nil {
				t.Fatal("granted after the caller had left")
			}
			pass(10 * time.Second)
			if n := held(t, store); n != 0 {
				t.Errorf("%d leases are held by nobody", n)
			}
		})
	})
	t.Run("a probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newFlaky(kvbucket.NewMemory())
			d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{ResetAfter: time.Minute})
			open(t, d)
			pass(d.View().RetryAfter)
			cut(b)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			if _, err := d.Admit(ctx); err == nil {
				t.Fatal("admitted after the caller had left")
			}
			pass(20 * time.Second)
			if v := d.View(); v.State == objects.StateOpen && v.RetryAfter > 0 {
				t.Errorf("nobody called the dependency, and its cooldown is %v now", v.RetryAfter)
			}
		})
	})
}

func TestConflictThatCannotBeExplainedAtOnceIsExplainedLater(t *testing.T) {
	t.Run("a failure counts once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := kvbucket.NewMemory()
			b := newFlaky(store)
			d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
			_ = call(t, d, objects.Success)
			pass(time.Second)
			loseAndCut(b)
			_ = call(t, d, objects.Failure)
			pass(time.Minute)
			if got := snapshot(t, store, "payments").Breaker.Failures; got != 1 {
				t.Errorf("one call failed, the record counts %d", got)
			}
		})
	})
	t.Run("a grant that nobody awaits is given back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := kvbucket.NewMemory()
			b := newFlaky(store)
			o := object(t, openHost(t, b, objects.Config{}), "guild/42")
			_ = acquire(t, o, objects.LeaseOptions{Name: "other"}).Release(t.Context())
			loseAndCut(b)
			if _, err := o.Acquire(t.Context(), objects.LeaseOptions{TTL: time.Hour}); err == nil {
				t.Fatal("granted, though the store did not answer")
			}
			pass(time.Minute)
			if n := held(t, store); n != 0 {
				t.Errorf("%d leases are held by nobody", n)
			}
		})
	})
}
