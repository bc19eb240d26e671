package objects_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestLosingTheStoreDoesNotStopTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		b.setDown(true)
		for i := range 101 {
			if err := call(t, d, objects.Outcome(i%2)); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			pass(time.Second)
		}
		// Now the dependency fails as well: the host guards it by itself.
		var refused error
		for i := range 5 {
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatalf("failure %d: %v", i, err)
			}
			refused = a.Report(t.Context(), objects.Failure)
		}
		if !errors.Is(refused, abi.Unavailable) {
			t.Errorf("the failure that should open the breaker reported %v, want unavailable", refused)
		}
		r := refusal(t, call(t, d, objects.Success), abi.Deferred)
		if r <= 0 || !d.View().Guarded {
			t.Errorf("retry after %v, view %+v", r, d.View())
		}
		// One at a time tries again, and its success is enough.
		pass(38 * time.Second)
		trial, err := d.Admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		refusal(t, call(t, d, objects.Success), abi.Deferred)
		if err := trial.Report(t.Context(), objects.Success); err != nil {
			t.Error(err)
		}
		for range 10 {
			if err := call(t, d, objects.Success); err != nil {
				t.Error(err)
			}
		}
		b.setDown(false)
		pass(5 * time.Second)
		open(t, d)
		if got := snapshot(t, b, "payments").Breaker.State; got != objects.StateOpen {
			t.Errorf("with the store back, the breaker is %s in the record, want open", got)
		}
	})
}

func TestStreakGuardBacksOffWhileItsTrialsFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		b.setDown(true)
		admitted := 0
		for range 600 {
			if a, err := d.Admit(t.Context()); err == nil {
				admitted++
				_ = a.Report(t.Context(), objects.Failure) // unavailable
			}
			pass(time.Second)
		}
		// Five that fill the streak, and trials after 30 s, 60 s, 120 s and 240 s.
		if admitted < 5+3 || admitted > 5+4 {
			t.Errorf("%d calls went out within ten minutes, want 8 or 9", admitted)
		}
	})
}

func TestOpenBreakerKeepsDeferringWithoutTheStoreAndGoesOnWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{OnStoreLoss: objects.StoreLossHold})
		open(t, d)
		b.setDown(true)
		for range 300 {
			pass(time.Second)
			if a, err := d.Admit(t.Context()); err == nil {
				t.Fatalf("admitted %+v without the store", a)
			} else if r, ok := errors.AsType[*objects.Refusal](err); !ok || r.RetryAfter <= 0 {
				t.Fatalf("got %v, want a refusal with a retry time", err)
			}
		}
		b.setDown(false)
		pass(time.Second)
		if a, err := d.Admit(t.Context()); err != nil || !a.Probe() {
			t.Errorf("with the store back: got %v, want the probe", err)
		}
	})
}

func TestUnknownDependencyIsAdmittedWithoutTheStoreAndLearntLater(t *testing.T) {
	for name, cut := range map[string]func(f *flaky, cut bool){
		"the store refuses": (*flaky).setDown,
		"the store hangs":   (*flaky).setStuck,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				open(t, dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{}))
				b := newFlaky(store)
				cut(b, true)
				d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
				start := time.Now()
				if err := call(t, d, objects.Success); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("the first call took %v", took)
				}
				cut(b, false)
				pass(5 * time.Second)
				refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
			})
		})
	}
}

// The watch has shown the record before anybody asked for the dependency, and the
// first read fails: nothing but asking again tells the state.
func TestStateThatTheWatchHasNotShownIsLearntByAskingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		open(t, dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{}))
		b := newFlaky(store)
		h := openHost(t, b, objects.Config{})
		pass(time.Second)
		b.setDown(true)
		d := dependency(t, h, "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		b.setDown(false)
		pass(5 * time.Second)
		refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
	})
}

func TestCloseEndsWhileFailuresCannotBeReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		h, err := objects.Open(t.Context(), objects.Config{Bucket: b})
		if err != nil {
			t.Fatal(err)
		}
		d := dependency(t, h, "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		b.setDown(true)
		if err := call(t, d, objects.Failure); err != nil {
			t.Fatal(err)
		}
		pass(100 * time.Millisecond)
		b.setDown(false) // the records are given up, while the report pauses
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Grants need the store. Whoever asks for one is told that it does not answer while
// he has time left, whether or not the lease is free and however the store is lost.
func TestGrantsWithoutTheStoreAreUnavailableInTime(t *testing.T) {
	lost := map[string]func(*flaky){
		"the store refuses": func(b *flaky) { b.setDown(true) },
		"the store hangs":   func(b *flaky) { b.onUpdate(hanging) },
	}
	for name, lose := range lost {
		for _, wait := range []time.Duration{0, 500 * time.Millisecond, 5 * time.Second} {
			t.Run(name+", wait "+wait.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newFlaky(kvbucket.NewMemory())
					o := object(t, openHost(t, b, objects.Config{}), "guild/42")
					l := acquire(t, o, objects.LeaseOptions{})
					lose(b)
					for _, lease := range []string{"first", "second"} {
						start := time.Now()
						_, err := o.Acquire(t.Context(), objects.LeaseOptions{Name: lease, Wait: wait})
						refusal(t, err, abi.Unavailable)
						if took := time.Since(start); took > time.Second {
							t.Errorf("%s: told after %v, want within a second", lease, took)
						}
					}
					start := time.Now()
					if _, err := o.Put(t.Context(), "total", []byte("1"), 0, l); !errors.Is(err, abi.Unavailable) {
						t.Errorf("put: got %v, want unavailable", err)
					}
					if err := l.Release(t.Context()); !errors.Is(err, abi.Unavailable) {
						t.Errorf("release: got %v, want unavailable", err)
					}
					if took := time.Since(start); took > 3*time.Second {
						t.Errorf("put and release took %v", took)
					}
					b.onUpdate(nil)
					b.setDown(false)
					pass(20 * time.Second)
					acquire(t, o, objects.LeaseOptions{})
				})
			})
		}
	}
}

func hanging(ctx context.Context, _ string, _ []byte, _ func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
	return hang(ctx)
}
