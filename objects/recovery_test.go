package objects_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestHostWithoutTheStoreProbesByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		mode   objects.StoreLoss
		probes int
	}{
		"local": {objects.StoreLossLocal, 4}, // at once, and after 30 s, 60 s and 120 s
		"hold":  {objects.StoreLossHold, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFlaky(kvbucket.NewMemory())
				d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{OnStoreLoss: tt.mode})
				open(t, d)
				pass(40 * time.Second)
				b.setDown(true)
				probes := 0
				for range 300 {
					if a, err := d.Admit(t.Context()); err == nil {
						probes++
						if err := a.Report(t.Context(), objects.Failure); err != nil {
							t.Error(err)
						}
					} else {
						refusal(t, err, abi.Deferred)
					}
					pass(time.Second)
				}
				if probes != tt.probes {
					t.Errorf("%d probes within five minutes, want %d", probes, tt.probes)
				}
			})
		})
	}
}

func TestBreakerClosedByOneHostAloneGoesBackToTheRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		d := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{})
		open(t, d)
		pass(40 * time.Second)
		b.setDown(true)
		for {
			a, err := d.Admit(t.Context())
			if err == nil {
				if err := a.Report(t.Context(), objects.Success); err != nil {
					t.Error(err)
				}
				break
			}
			refusal(t, err, abi.Deferred)
			pass(time.Second)
		}
		for range 100 {
			if err := call(t, d, objects.Success); err != nil {
				t.Fatal(err)
			}
			pass(100 * time.Millisecond)
		}
		b.setDown(false)
		pass(5 * time.Second)
		if v := d.View(); v.State != objects.StateOpen {
			t.Errorf("with the store back, the host sees %+v", v)
		}
		if a, err := d.Admit(t.Context()); err != nil || !a.Probe() {
			t.Errorf("got %v, want the fleet's probe", err)
		}
	})
}

// A deaf bucket's watch has died without a word.
type deaf struct{ *flaky }

func (deaf) Watch(ctx context.Context, _ string) iter.Seq[kvbucket.Entry] {
	return func(func(kvbucket.Entry) bool) { <-ctx.Done() }
}

func TestHostWhoseWatchIsDeadLearnsOfAnOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		d := dependency(t, openHost(t, deaf{newFlaky(store)}, objects.Config{}), "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		open(t, dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{}))
		for range 5 {
			_ = call(t, d, objects.Success)
			pass(time.Second)
		}
		refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
	})
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{MaxInFlight: 3})
		for range 10 {
			var under []objects.Admission
			for range 3 {
				a, err := d.Admit(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				under = append(under, a)
			}
			if _, err := d.Admit(t.Context()); !errors.Is(err, abi.Overloaded) {
				t.Fatalf("the fourth call: got %v, want overloaded", err)
			}
			for _, a := range under {
				if err := a.Report(t.Context(), objects.Success); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestActiveProbeRecoversWithoutTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		var probes atomic.Int64
		p := objects.Policy{Probe: func(context.Context) objects.Outcome {
			if probes.Add(1) == 1 {
				return objects.Failure
			}
			return objects.Success
		}}
		var all []*objects.Dependency
		for _, h := range f.hosts {
			d := dependency(t, h, "payments", p)
			all = append(all, d)
			if err := call(t, d, objects.Success); err != nil {
				t.Fatal(err)
			}
		}
		open(t, all[0])
		pass(3 * time.Minute)
		if n := probes.Load(); n != 2 {
			t.Errorf("%d probes, want one that fails and one that succeeds", n)
		}
		for i, d := range all {
			if err := call(t, d, objects.Success); err != nil {
				t.Errorf("host %d: %v", i, err)
			}
		}
	})
}

func TestHostThatStartsWhileTheBreakerIsOpenProbesWithoutTraffic(t *testing.T) {
	for name, late := range map[string]bool{
		"when it learns of the dependency":         false,
		"when it learns of the probe, by a reload": true,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				first := openHost(t, store, objects.Config{})
				open(t, dependency(t, first, "payments", objects.Policy{}))
				if err := first.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				var probes atomic.Int64
				h := openHost(t, store, objects.Config{})
				if late {
					refusal(t, call(t, dependency(t, h, "payments", objects.Policy{}), objects.Success), abi.BreakerOpen)
				}
				d := dependency(t, h, "payments", objects.Policy{Probe: func(context.Context) objects.Outcome {
					probes.Add(1)
					return objects.Success
				}})
				pass(time.Minute)
				if n := probes.Load(); n != 1 || d.View().State != objects.StateClosed {
					t.Errorf("%d probes, and the breaker is %s", n, d.View().State)
				}
			})
		})
	}
}

func TestTrafficGrowsAfterClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", objects.Policy{Ramp: 10 * time.Second})
		for range 100 {
			if err := call(t, d, objects.Success); err != nil {
				t.Fatalf("a breaker that was never open ramps: %v", err)
			}
		}
		open(t, d)
		if err := probe(t, d).Report(t.Context(), objects.Success); err != nil {
			t.Fatal(err)
		}
		admitted := func() (n int) {
			for range 1000 {
				if call(t, d, objects.Success) == nil {
					n++
				}
			}
			return n
		}
		var shares []int
		for range 5 {
			shares = append(shares, admitted())
			pass(2500 * time.Millisecond)
		}
		if shares[0] != 0 || shares[2] < 400 || shares[2] > 600 || shares[4] != 1000 {
			t.Errorf("of 1000 calls %v went out, every 2.5 s", shares)
		}
	})
}

func TestOperatorTripsAndResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 2)
		id := objects.ID{Namespace: "shop", Name: "payments"}
		d := dependency(t, f.hosts[0], "payments", objects.Policy{})
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
		if err := f.hosts[1].Trip(t.Context(), id, "maintenance", time.Minute); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := refusal(t, call(t, d, objects.Success), abi.BreakerOpen); r != time.Minute {
			t.Errorf("retry after %v, want 1m", r)
		}
		if o := snapshot(t, f.store, "payments").Breaker.Override; o == nil || o.Reason != "maintenance" || o.Remaining != time.Minute {
			t.Errorf("the operator sees the order %+v", o)
		}
		if err := f.hosts[1].Reset(t.Context(), id, "a false alarm", 30*time.Second); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 20 { // more than opens it otherwise
			for _, o := range []objects.Outcome{objects.Failure, objects.Failure, objects.Failure, objects.Failure} {
				if err := call(t, d, o); err != nil {
					t.Fatalf("after a reset: %v", err)
				}
			}
			pass(100 * time.Millisecond)
			_ = call(t, d, objects.Success)
		}
		pass(30 * time.Second)
		open(t, d)
		if err := f.hosts[0].Trip(t.Context(), id, "", time.Minute); !errors.Is(err, abi.Invalid) {
			t.Errorf("without a reason: got %v, want invalid", err)
		}
		if err := f.hosts[0].Trip(t.Context(), id, "for ever", 0); !errors.Is(err, abi.Invalid) {
			t.Errorf("for no time: got %v, want invalid", err)
		}
	})
}

func TestProbeThatWasTakenAwayLeavesTheVerdictToTheNextCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, kvbucket.NewMemory(), objects.Config{})
		d := dependency(t, h, "payments", objects.Policy{Probe: func(context.Context) objects.Outcome {
			t.Error("the probe was made")
			return objects.Failure
		}})
		open(t, d)
		pass(d.View().RetryAfter + time.Millisecond) // the probe is about to be made
		dependency(t, h, "payments", objects.Policy{})
		pass(time.Second)
		a, err := d.Admit(t.Context())
		if err != nil || !a.Probe() {
			t.Fatalf("got the probe %v, %v", a.Probe(), err)
		}
		if err := a.Report(t.Context(), objects.Success); err != nil {
			t.Error(err)
		}
	})
}
