package objects_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestProbeIsNotAdmittedIfItsCallCouldOutlastItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			asleep atomic.Int64
			opened = time.Now()
			b      = newFlaky(kvbucket.NewMemory())
			cfg    objects.Config
		)
		objects.SetClock(&cfg, func() (mono time.Duration, wall time.Time) {
			return time.Since(opened), time.Now().Add(time.Duration(asleep.Load()))
		})
		d := dependency(t, openHost(t, b, cfg), "payments", objects.Policy{})
		open(t, d)
		pass(d.View().RetryAfter)
		b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			asleep.Add(int64(2 * time.Second)) // the machine is suspended
			return do()
		})
		if a, err := d.Admit(t.Context()); !errors.Is(err, abi.Deferred) {
			t.Fatalf("got %+v, %v, want deferred", a, err)
		}
		b.onUpdate(nil)
		pass(time.Second)
		if a, err := d.Admit(t.Context()); err != nil || !a.Probe() {
			t.Errorf("the probe that nobody made was not given back: %+v, %v", a, err)
		}
	})
}

// A handler calls f at every warning.
type handler struct {
	slog.Handler
	f func()
}

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.f()
	}
	return nil
}

func TestAdmitWhileTheHostClosesIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h *objects.Host
		b := newFlaky(kvbucket.NewMemory())
		b.setStuck(true)
		// Between the assumption of a state and its use.
		log := slog.New(handler{slog.DiscardHandler, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			go func() { defer cancel(); _ = h.Close(ctx) }()
			synctest.Wait()
		}})
		h = openHost(t, b, objects.Config{Logger: log})
		d := dependency(t, h, "payments", objects.Policy{})
		if _, err := d.Admit(t.Context()); !errors.Is(err, abi.Unavailable) {
			t.Errorf("got %v, want unavailable", err)
		}
		b.setStuck(false)
	})
}

func TestManyFirstCallsAtOnceDoNotPassAnOpenBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		open(t, dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{}))
		d := dependency(t, openHost(t, slow{store, 20 * time.Millisecond}, objects.Config{}), "payments", objects.Policy{})
		var admitted atomic.Int64
		for range 10_000 {
			go func() {
				if _, err := d.Admit(t.Context()); err == nil {
					admitted.Add(1)
				}
			}()
		}
		pass(10 * time.Second)
		if n := admitted.Load(); n > 0 {
			t.Errorf("%d calls were admitted by an open breaker, though the store answers in 20 ms", n)
		}
	})
}

func TestReleaseEndsWithItsContextWhileAnotherReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{TTL: 6 * time.Second})
		b.setDown(true)
		first := make(chan error, 1)
		go func() { first <- l.Release(t.Context()) }()
		pass(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("Release with 200 ms to go returned %v after %v", err, time.Since(began))
		}
		b.setDown(false)
		if want, got := <-first, l.Release(t.Context()); !errors.Is(got, want) {
			t.Errorf("the first Release returned %v, a later one %v", want, got)
		}
	})
}

func TestReportThatOpensTheBreakerGivesUpOnAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		_ = call(t, d, objects.Success)
		b.onUpdate(func(ctx context.Context, _ string, _ []byte, _ func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			return hang(ctx)
		})
		began := time.Now()
		var last error
		for range 5 {
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last = a.Report(t.Context(), objects.Failure)
		}
		if took := time.Since(began); took > 2*time.Second || !errors.Is(last, abi.Unavailable) {
			t.Errorf("the reports took %v, the last returned %v", took, last)
		}
		b.onUpdate(nil)
	})
}
