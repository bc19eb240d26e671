package objects_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

func TestOtherHostsLearnOfAnOpeningWithoutTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		first := dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{})
		other := dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{})
		if err := call(t, other, objects.Success); err != nil {
			t.Fatal(err)
		}
		open(t, first)
		pass(5 * time.Second)
		refusal(t, call(t, other, objects.Success), abi.BreakerOpen)
		if err := probe(t, other).Report(t.Context(), objects.Success); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if err := call(t, first, objects.Success); err != nil {
			t.Errorf("after the other host's probe: %v", err)
		}
	})
}

func TestFailuresAddUpOverHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		var hosts []*objects.Dependency
		for range 3 {
			hosts = append(hosts, dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{}))
		}
		for i := range 5 {
			if err := call(t, hosts[i%3], objects.Failure); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			pass(time.Second)
		}
		for i, d := range hosts {
			if v := d.View(); v.State != objects.StateOpen || v.Generation != 1 {
				t.Errorf("host %d sees %+v, want open after five failures on three hosts", i, v)
			}
		}
	})
}

func TestSuccessOnAnyHostEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		first := dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{})
		other := dependency(t, openHost(t, store, objects.Config{}), "payments", objects.Policy{})
		for range 20 { // the first host's streak stays below the threshold
			for i := range 4 {
				o := objects.Failure
				if i == 3 {
					o = objects.Success
				}
				if err := call(t, first, o); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
				if err := call(t, other, objects.Success); err != nil {
					t.Fatal(err)
				}
				pass(time.Second)
			}
		}
		if got := snapshot(t, store, "payments").Breaker.Failures; got != 0 {
			t.Errorf("the run is %d, want 0", got)
		}
	})
}

func TestOneProbeForCallersOnManyHosts(t *testing.T) {
	for _, hosts := range []int{2, 5} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				var all []*objects.Dependency
				for range hosts {
					all = append(all, dependency(t, openHost(t, newFlaky(store), objects.Config{}), "payments", objects.Policy{}))
				}
				for _, d := range all {
					if err := call(t, d, objects.Success); err != nil {
						t.Fatal(err)
					}
				}
				open(t, all[0])
				pass(40 * time.Second)
				var (
					probes atomic.Int64
					group  sync.WaitGroup
				)
				for i := range 500 {
					group.Go(func() {
						a, err := all[i%hosts].Admit(t.Context())
						if err == nil && a.Probe() {
							probes.Add(1)
						} else if r := refusal(t, err, abi.Deferred); r <= 0 {
							t.Errorf("retry after %v", r)
						}
					})
				}
				group.Wait()
				if n := probes.Load(); n != 1 {
					t.Errorf("%d probes went out", n)
				}
			})
		})
	}
}

// Scenario: the host of a probe is killed.
func TestAnotherHostProbesWhenTheProbesHostIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		b := newFlaky(store)
		killed := dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{Timeout: time.Second})
		metrics := prometheus.NewPedanticRegistry()
		other := dependency(t, openHost(t, store, objects.Config{Metrics: metrics}), "payments", objects.Policy{Timeout: time.Second})
		if err := call(t, other, objects.Success); err != nil {
			t.Fatal(err)
		}
		open(t, killed)
		old := probe(t, killed)
		b.setDown(true)
		deadline := time.After(2*time.Minute + 30*time.Second)
		for {
			select {
			case <-deadline:
				t.Fatalf("nobody probes: %+v", other.View())
			case <-time.After(100 * time.Millisecond):
			}
			if a, err := other.Admit(t.Context()); err == nil {
				if a.Fence() <= old.Fence() {
					t.Errorf("fence %d after %d", a.Fence(), old.Fence())
				}
				break
			}
		}
		wantMetric(t, metrics, "edgehost_owner_changes_total", 1)
		b.setDown(false)
		if err := old.Report(t.Context(), objects.Success); !errors.Is(err, abi.Fenced) {
			t.Errorf("the killed host's report: got %v, want fenced", err)
		}
		if v := other.View(); v.State != objects.StateHalfOpen {
			t.Errorf("it changed the breaker: %+v", v)
		}
	})
}

// A host that owns a record, and is cut off while another takes it over, must not
// write what it knew.
func TestFormerOwnerStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		b := newFlaky(store)
		metrics := prometheus.NewPedanticRegistry()
		former := object(t, openHost(t, b, objects.Config{Metrics: metrics}), "guild/42")
		next := object(t, openHost(t, store, objects.Config{}), "guild/42")
		kept := acquire(t, former, objects.LeaseOptions{Name: "kept"})
		taken := acquire(t, next, objects.LeaseOptions{Name: "taken"})
		for i := range 20 {
			refusal(t, second(former.Acquire(t.Context(), objects.LeaseOptions{Name: "taken"})), abi.LeaseBusy)
			refusal(t, second(next.Acquire(t.Context(), objects.LeaseOptions{Name: "kept"})), abi.LeaseBusy)
			pass(2 * time.Second)
			if kept.Err() != nil || taken.Err() != nil {
				t.Fatalf("round %d: %v, %v", i, kept.Err(), taken.Err())
			}
		}
		if got := snapshot(t, store, "guild/42"); len(got.Leases) != 2 || got.Epoch < 2 {
			t.Errorf("got %+v", got)
		}
	})
}

func TestReleaseOnOneHostIsSeenByWaitersOnAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		first := object(t, openHost(t, store, objects.Config{}), "guild/42")
		other := object(t, openHost(t, store, objects.Config{}), "guild/42")
		l := acquire(t, first, objects.LeaseOptions{})
		time.AfterFunc(5*time.Second, func() { _ = l.Release(context.Background()) })
		start := time.Now()
		acquire(t, other, objects.LeaseOptions{Wait: time.Minute})
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("granted after %v, and released after 5s", took)
		}
	})
}

// The hammer: whoever holds the lease checks that nobody else does, and that
// fences grow, while everything goes wrong that may.
func TestNeverTwoHoldersAndFencesGrow(t *testing.T) {
	chaos := func(b *flaky) {
		b.readOld()
		lose := loseEvery(7)
		b.onUpdate(func(ctx context.Context, key string, value []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			switch rand.N(20) {
			case 0:
				return 0, kvbucket.ErrUnavailable
			case 1:
				<-time.After(rand.N(100 * time.Millisecond))
			}
			return lose(ctx, key, value, do)
		})
	}
	tests := map[string]struct {
		hosts, rounds int
		prepare       func(*flaky)
	}{
		"one host":                               {1, 10_000, func(*flaky) {}},
		"three hosts":                            {3, 1_000, func(*flaky) {}},
		"three hosts and a bad store":            {3, 300, chaos},
		"one host and a bad store":               {1, 1_000, chaos},
		"three hosts whose reads are always old": {3, 300, (*flaky).readOld},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const contenders = 50
				store := kvbucket.NewMemory()
				var all []*objects.Object
				var flakies []*flaky
				for range tt.hosts {
					b := newFlaky(store)
					tt.prepare(b)
					flakies = append(flakies, b)
					all = append(all, object(t, openHost(t, b, objects.Config{}), "guild/42"))
				}
				var (
					holders, rounds atomic.Int64
					last            atomic.Uint64
					group           sync.WaitGroup
				)
				for i := range contenders {
					group.Go(func() {
						for rounds.Load() < int64(tt.rounds) {
							l, err := all[i%tt.hosts].Acquire(t.Context(), objects.LeaseOptions{Wait: time.Hour, TTL: 5 * time.Second})
							if errors.Is(err, abi.Unavailable) {
								<-time.After(rand.N(time.Second))
								continue
							}
							if err != nil {
								t.Error(err)
								return
							}
							if n := holders.Add(1); n != 1 {
								t.Errorf("%d holders", n)
							}
							if previous := last.Swap(l.Fence()); previous >= l.Fence() {
								t.Errorf("fence %d after %d", l.Fence(), previous)
							}
							rounds.Add(1)
							holders.Add(-1)
							_ = l.Release(t.Context()) // unavailable, maybe: then it lapses
						}
					})
				}
				group.Wait()
				for _, b := range flakies {
					b.onUpdate(nil)
				}
			})
		})
	}
}

func TestClockFarFromTheStoresIsNoFloor(t *testing.T) {
	for name, tt := range map[string]struct {
		offset time.Duration
		floor  bool
	}{
		"nine seconds ahead of the store":   {-9 * time.Second, true},
		"eleven seconds ahead of the store": {-11 * time.Second, false},
		"eleven seconds behind the store":   {11 * time.Second, false},
		"in step with the store":            {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &shifted{newFlaky(kvbucket.NewMemory()), tt.offset}
				l := acquire(t, object(t, openHost(t, b, objects.Config{}), "guild/42"), objects.LeaseOptions{})
				if got := l.Fence() > 1; got != tt.floor {
					t.Errorf("the first fence is %d", l.Fence())
				}
			})
		})
	}
}

// A shifted bucket has a clock of its own.
type shifted struct {
	*flaky
	offset time.Duration
}

func (s *shifted) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	e, err := s.flaky.Get(ctx, key)
	e.Created = e.Created.Add(s.offset)
	return e, err
}
