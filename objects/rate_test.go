package objects_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// byRate opens at half of ten calls in ten seconds.
var byRate = objects.Policy{Mode: objects.ModeRate, FailureRate: 0.5, MinCalls: 10, Window: 10 * time.Second}

// calls makes n calls of one outcome that are admitted.
func calls(t *testing.T, d *objects.Dependency, n int, o objects.Outcome) {
	t.Helper()
	for i := range n {
		if err := call(t, d, o); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

func TestHalfOfTheCallsOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", byRate)
		calls(t, d, 5, objects.Success)
		calls(t, d, 4, objects.Failure)
		if v := d.View(); v.State != objects.StateClosed {
			t.Fatalf("got %+v after nine calls, of which four failed", v)
		}
		calls(t, d, 1, objects.Failure) // returns after the breaker has opened
		refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
	})
}

func TestFailuresInARowDoNotOpenByTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", byRate)
		for range 30 {
			calls(t, d, 10, objects.Success)
			pass(time.Second)
		}
		calls(t, d, 40, objects.Failure) // of about 140 in the window
		pass(time.Second)
		if v := d.View(); v.State != objects.StateClosed {
			t.Errorf("got %+v", v)
		}
	})
}

func TestWhatTheWindowHasLeftDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		d := dependency(t, openHost(t, store, objects.Config{}), "payments", byRate)
		for range 10 {
			calls(t, d, 4, objects.Failure)
			pass(11 * time.Second)
			calls(t, d, 5, objects.Success)
		}
		if v := d.View(); v.State != objects.StateClosed {
			t.Errorf("got %+v", v)
		}
		pass(11 * time.Second)
		before := revision(t, store)
		calls(t, d, 100, objects.Success)
		pass(time.Minute)
		if after := revision(t, store); after != before {
			t.Errorf("good calls wrote %d times after the bad ones had left the window", after-before)
		}
	})
}

// revision returns how often the breaker's record has been written.
func revision(t *testing.T, store *kvbucket.Memory) kvbucket.Revision {
	t.Helper()
	e, err := store.Get(t.Context(), "o.shop.payments")
	if err != nil {
		t.Fatal(err)
	}
	return e.Revision
}

func TestGoodCallsByTheRateSendNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		d := dependency(t, openHost(t, store, objects.Config{}), "payments", byRate)
		calls(t, d, 1, objects.Success)
		before := revision(t, store)
		calls(t, d, 10_000, objects.Success)
		pass(time.Minute)
		if after := revision(t, store); after != before {
			t.Errorf("%d writes for good calls", after-before)
		}
	})
}

func TestSlowCallsOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byRate
		p.SlowCall, p.SlowCallRate = time.Second, 0.8
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", p)
		for i := range 10 {
			if v := d.View(); v.State != objects.StateClosed {
				t.Fatalf("got %+v after %d calls", v, i)
			}
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if i > 1 {
				pass(time.Second)
			}
			if err := a.Report(t.Context(), objects.Success); err != nil {
				t.Fatal(err)
			}
		}
		if v := d.View(); v.State != objects.StateOpen {
			t.Errorf("got %+v after eight slow calls of ten", v)
		}
	})
}

func TestWindowsAddUpOverHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		var hosts []*objects.Dependency
		for range 3 {
			hosts = append(hosts, dependency(t, openHost(t, store, objects.Config{}), "payments", byRate))
		}
		for range 2 {
			for _, d := range hosts {
				calls(t, d, 1, objects.Success)
				calls(t, d, 1, objects.Failure)
			}
			pass(time.Second)
		}
		for i, d := range hosts {
			if v := d.View(); v.State != objects.StateOpen || v.Generation != 1 {
				t.Errorf("host %d sees %+v, want open after six failures in twelve calls on three hosts", i, v)
			}
		}
	})
}

func TestHealthyHostsAreHeardOnceOneIsSuspicious(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		var hosts []*objects.Dependency
		for range 3 {
			hosts = append(hosts, dependency(t, openHost(t, store, objects.Config{}), "payments", byRate))
		}
		calls(t, hosts[2], 100, objects.Success)
		calls(t, hosts[0], 1, objects.Failure)
		pass(2 * time.Second) // the healthy one tells of its hundred calls
		if b := snapshot(t, store, "payments").Breaker; b.Failures != 1 || b.Calls != 101 {
			t.Errorf("the record shows %+v, want one failure in 101 calls", b)
		}
		calls(t, hosts[0], 7, objects.Failure)
		calls(t, hosts[1], 2, objects.Failure)
		pass(time.Second)
		if v := hosts[0].View(); v.State != objects.StateClosed {
			t.Errorf("got %+v after ten failures in 110 calls of the fleet", v)
		}
	})
}

func TestTheCallThatOpensByTheOthersWindowsSeesItOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		first := dependency(t, openHost(t, store, objects.Config{}), "payments", byRate)
		other := dependency(t, openHost(t, store, objects.Config{}), "payments", byRate)
		calls(t, other, 1, objects.Success)
		calls(t, first, 8, objects.Failure)
		pass(2 * time.Second)
		calls(t, other, 1, objects.Failure)
		if v := other.View(); v.State != objects.StateOpen {
			t.Errorf("got %+v after nine failures in ten calls of the fleet", v)
		}
	})
}

func TestCallsOfAnEarlierGenerationAreNotInTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dependency(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "payments", byRate)
		var late []objects.Admission
		for range 9 {
			a, err := d.Admit(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			late = append(late, a)
		}
		open(t, d)
		if err := probe(t, d).Report(t.Context(), objects.Success); err != nil {
			t.Fatal(err)
		}
		for _, a := range late {
			if err := a.Report(t.Context(), objects.Failure); err != nil {
				t.Error(err)
			}
		}
		calls(t, d, 1, objects.Failure)
		pass(time.Second)
		if v := d.View(); v.State != objects.StateClosed {
			t.Errorf("got %+v after one failure in this generation", v)
		}
	})
}

func TestAHostWhoseOwnRateIsBadDefersByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(kvbucket.NewMemory())
		p := byRate
		p.ResetAfter = time.Second
		d := dependency(t, openHost(t, store, objects.Config{}), "payments", p)
		calls(t, d, 1, objects.Success)
		store.setDown(true)
		for range 20 {
			a, err := d.Admit(t.Context())
			if err != nil {
				break
			}
			_ = a.Report(t.Context(), objects.Failure) // the store does not take it
		}
		retry := refusal(t, call(t, d, objects.Success), abi.Deferred)
		if !d.View().Guarded || retry <= 0 {
			t.Fatalf("got %+v", d.View())
		}
		pass(2 * time.Second)
		if err := call(t, d, objects.Success); err != nil {
			t.Fatalf("the trial: %v", err)
		}
		calls(t, d, 5, objects.Success)
		calls(t, d, 1, objects.Failure)
		if d.View().Guarded {
			t.Error("one failure after a trial that succeeded guards again")
		}
	})
}

func TestAWindowThatTheStoreDidNotTakeIsReportedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFlaky(kvbucket.NewMemory())
		p := byRate
		p.Window = time.Minute
		d := dependency(t, openHost(t, store, objects.Config{}), "payments", p)
		calls(t, d, 1, objects.Success)
		store.setDown(true)
		calls(t, d, 4, objects.Failure)
		pass(10 * time.Second)
		store.setDown(false)
		pass(5 * time.Second)
		if b := snapshot(t, store, "payments").Breaker; b.Failures != 4 || b.Calls != 5 {
			t.Errorf("the record shows %+v, want four failures in five calls", b)
		}
	})
}

func TestFieldsOfTheOtherModeAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, kvbucket.NewMemory(), objects.Config{})
		for _, p := range []objects.Policy{
			{FailureRate: 0.5},
			{Window: time.Second},
			{MinCalls: 1},
			{SlowCall: time.Second},
			{Mode: 7},
			{Mode: objects.ModeRate, FailureThreshold: 5},
			{Mode: objects.ModeRate, FailureRate: 1.5},
			{Mode: objects.ModeRate, Window: time.Millisecond},
			{Mode: objects.ModeRate, MinCalls: -1},
			{Mode: objects.ModeRate, SlowCallRate: 0.5},
			{Mode: objects.ModeRate, SlowCall: time.Second, SlowCallRate: 2},
		} {
			if _, err := h.Dependency(objects.ID{Namespace: "shop", Name: "payments"}, p); !errors.Is(err, abi.Invalid) {
				t.Errorf("%+v: got %v", p, err)
			}
		}
	})
}

func TestAPolicyMayChangeItsMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openHost(t, kvbucket.NewMemory(), objects.Config{})
		d := dependency(t, h, "payments", objects.Policy{})
		calls(t, d, 4, objects.Failure)
		pass(time.Second)
		dependency(t, h, "payments", byRate)
		calls(t, d, 9, objects.Failure)
		if v := d.View(); v.State != objects.StateClosed {
			t.Fatalf("got %+v after nine calls by the rate", v)
		}
		calls(t, d, 1, objects.Failure)
		refusal(t, call(t, d, objects.Success), abi.BreakerOpen)
	})
}
