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

// A wire is one host's way to the others. Cutting it is what a crash or a pause
// looks like from outside.
type wire struct {
	kvbucket.Messenger
	calls atomic.Int64

	mu  sync.Mutex // guards the fields below
	cut error      // what others get, and what this host gets
}

func (w *wire) down() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *wire) setDown(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = err
}

func (w *wire) Call(ctx context.Context, address string, request []byte) ([]byte, error) {
	w.calls.Add(1)
	if w.down() != nil {
		return nil, kvbucket.ErrUnavailable
	}
	answer, err := w.Messenger.Call(ctx, address, request)
	if err == nil && string(answer) == wasCut {
		return nil, kvbucket.ErrNoListener
	}
	return answer, err
}

// wasCut is the answer of a host that can send none.
const wasCut = "cut"

func (w *wire) Serve(address string, handle func(context.Context, []byte) []byte) (func(context.Context) error, error) {
	return w.Messenger.Serve(address, func(ctx context.Context, request []byte) []byte {
		if w.down() != nil {
			return []byte(wasCut)
		}
		answer := handle(ctx, request)
		if w.down() != nil {
			return []byte(wasCut)
		}
		return answer
	})
}

// A fleet is a number of hosts on one store.
type fleet struct {
	store   *kvbucket.Memory
	buckets []*flaky
	wires   []*wire
	hosts   []*objects.Host
	metrics []*prometheus.Registry
}

func openFleet(tb testing.TB, n int) *fleet {
	tb.Helper()
	f := &fleet{store: kvbucket.NewMemory()}
	messenger := kvbucket.NewMemoryMessenger()
	for i := range n {
		b, w, r := newFlaky(f.store), &wire{Messenger: messenger}, prometheus.NewPedanticRegistry()
		f.buckets, f.wires, f.metrics = append(f.buckets, b), append(f.wires, w), append(f.metrics, r)
		f.hosts = append(f.hosts, openHost(tb, b, objects.Config{Host: fmt.Sprint("host", i), Messenger: w, Metrics: r}))
	}
	return f
}

// crash cuts a host off from everything, for good.
func (f *fleet) crash(i int) {
	f.buckets[i].setDown(true)
	f.wires[i].setDown(kvbucket.ErrNoListener)
}

func (f *fleet) revive(i int) {
	f.wires[i].setDown(nil)
	f.buckets[i].setDown(false)
}

func TestCommandsGoToTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		acquire(t, object(t, f.hosts[0], "guild/42"), objects.LeaseOptions{})
		epoch := snapshot(t, f.store, "guild/42").Epoch
		for range 20 {
			for _, h := range f.hosts {
				refusal(t, second(object(t, h, "guild/42").Acquire(t.Context(), objects.LeaseOptions{})), abi.LeaseBusy)
				l := acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{Name: "other"})
				pass(10 * time.Second)
				if err := l.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := snapshot(t, f.store, "guild/42"); got.Epoch != epoch {
			t.Errorf("the owner changed: epoch %d after %d", got.Epoch, epoch)
		}
		for i := 1; i < 3; i++ {
			if n := f.buckets[i].writes.Load(); n != 0 {
				t.Errorf("host %d wrote %d times", i, n)
			}
			if n := f.buckets[i].reads.Load(); n != 1 {
				t.Errorf("host %d read %d times to find the owner", i, n)
			}
		}
	})
}

func TestWaitersOfManyHostsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		first := acquire(t, object(t, f.hosts[0], "guild/42"), objects.LeaseOptions{})
		var (
			order []int
			group sync.WaitGroup
		)
		for i := range 9 {
			group.Go(func() {
				l := acquire(t, object(t, f.hosts[i%3], "guild/42"), objects.LeaseOptions{Wait: time.Hour})
				order = append(order, i)
				pass(2 * time.Second)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		pass(10 * time.Second)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in order %v", order)
			}
		}
	})
}

func TestSilentWaiterLosesHisPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		first := acquire(t, object(t, f.hosts[0], "guild/42"), objects.LeaseOptions{})
		silent, leave := context.WithCancel(t.Context())
		defer leave()
		var group sync.WaitGroup
		group.Go(func() {
			_, _ = object(t, f.hosts[1], "guild/42").Acquire(silent, objects.LeaseOptions{Wait: time.Hour})
		})
		synctest.Wait()
		f.crash(1)
		pass(3 * time.Second)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		acquire(t, object(t, f.hosts[2], "guild/42"), objects.LeaseOptions{Wait: time.Minute})
		if took := time.Since(start); took > time.Second {
			t.Errorf("granted after %v", took)
		}
		leave()
		group.Wait()
	})
}

func TestOneProbeForCallersOnManyHostsThatTalk(t *testing.T) {
	for _, n := range []int{2, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := openFleet(t, n)
				var all []*objects.Dependency
				for _, h := range f.hosts {
					all = append(all, dependency(t, h, "payments", objects.Policy{}))
				}
				for _, d := range all {
					if err := call(t, d, objects.Success); err != nil {
						t.Fatal(err)
					}
				}
				open(t, all[n-1])
				pass(40 * time.Second)
				var (
					probes atomic.Int64
					group  sync.WaitGroup
				)
				for i := range 500 {
					group.Go(func() {
						a, err := all[i%n].Admit(t.Context())
						if err == nil && a.Probe() {
							probes.Add(1)
						} else if r := refusal(t, err, abi.Deferred); r <= 0 {
							t.Errorf("retry after %v", r)
						}
					})
				}
				group.Wait()
				if got := probes.Load(); got != 1 {
					t.Errorf("%d probes went out", got)
				}
			})
		})
	}
}

func TestOthersServeTheObjectsOfACrashedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		old := acquire(t, object(t, f.hosts[0], "guild/42"), objects.LeaseOptions{Name: "old"})
		last := acquire(t, object(t, f.hosts[1], "guild/42"), objects.LeaseOptions{Name: "other"})
		f.crash(0)
		start := time.Now()
		l := acquire(t, object(t, f.hosts[2], "guild/42"), objects.LeaseOptions{Wait: 2 * time.Second})
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("granted after %v", took)
		}
		if l.Fence() <= last.Fence() {
			t.Errorf("fence %d after %d", l.Fence(), last.Fence())
		}
		start = time.Now()
		next := acquire(t, object(t, f.hosts[1], "guild/42"), objects.LeaseOptions{Name: "old", Wait: time.Minute})
		if took := time.Since(start); took < 12*time.Second || took > 22500*time.Millisecond {
			t.Errorf("the dead holder's lease lapsed after %v", took)
		}
		if next.Fence() <= l.Fence() || old.Err() == nil {
			t.Errorf("fence %d after %d; the former holder has %v", next.Fence(), l.Fence(), old.Err())
		}
		if last.Err() != nil {
			t.Errorf("a lease of a living holder was lost: %v", last.Err())
		}
	})
}

// A paused owner is one that takes requests, answers none and writes nothing, and
// goes on after a while by what it knew.
func TestPausedOwnerStepsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 2)
		paused, next := object(t, f.hosts[0], "guild/42"), object(t, f.hosts[1], "guild/42")
		old := acquire(t, paused, objects.LeaseOptions{})
		if _, _, err := paused.Get(t.Context(), "balance", old); err != nil {
			t.Fatal(err)
		}
		f.crash(0)
		l := acquire(t, next, objects.LeaseOptions{Wait: time.Minute})
		if _, _, err := next.Get(t.Context(), "balance", l); err != nil {
			t.Fatal(err)
		}
		pass(15 * time.Second)
		f.revive(0)
		refusal(t, second(paused.Acquire(t.Context(), objects.LeaseOptions{})), abi.LeaseBusy)
		if _, err := paused.Put(t.Context(), "balance", nil, 0, old); !errors.Is(err, abi.LeaseLost) {
			t.Errorf("the former holder's write: got %v, want lease_lost", err)
		}
		wantMetric(t, f.metrics[0], "edgehost_objects_owned", 0)
		wantMetric(t, f.metrics[0], "edgehost_stale_fences_rejected_total{kind=owner}", 1)
		if l.Err() != nil {
			t.Errorf("the newer lease was lost: %v", l.Err())
		}
		if s := snapshot(t, f.store, "guild/42"); len(s.Leases) != 1 || s.Leases[0].Fence != l.Fence() {
			t.Errorf("got %+v", s)
		}
	})
}

func TestOwnersThatChangeEverySecondKeepNothingAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		b, dead := newFlaky(store), newFlaky(store)
		held := acquire(t, object(t, openHost(t, dead, objects.Config{}), "guild/42"), objects.LeaseOptions{Name: "dead"})
		open(t, dependency(t, openHost(t, b, objects.Config{}), "payments", objects.Policy{Timeout: time.Second}))
		dead.setDown(true)
		var lapsed, probed, opened time.Duration
		start := time.Now()
		for time.Since(start) < time.Minute {
			h := openHost(t, b, objects.Config{}) // claims by its first command
			o, d := object(t, h, "guild/42"), dependency(t, h, "payments", objects.Policy{Timeout: time.Second})
			flapping := dependency(t, h, "flapping", objects.Policy{})
			if l, err := o.Acquire(t.Context(), objects.LeaseOptions{Name: "dead"}); err == nil && lapsed == 0 {
				lapsed = time.Since(start)
				if l.Fence() <= held.Fence() {
					t.Errorf("fence %d after %d", l.Fence(), held.Fence())
				}
			}
			acquire(t, o, objects.LeaseOptions{Name: fmt.Sprint(time.Since(start))})
			if a, err := d.Admit(t.Context()); err == nil && a.Probe() && probed == 0 {
				probed = time.Since(start)
			}
			if err := call(t, flapping, objects.Failure); err != nil && opened == 0 {
				opened = time.Since(start)
			}
			pass(time.Second)
		}
		if lapsed == 0 || lapsed > 15*time.Second*3/2+time.Second {
			t.Errorf("the dead holder's lease lapsed after %v", lapsed)
		}
		if probed == 0 || probed > 40*time.Second {
			t.Errorf("the cooldown ended after %v", probed)
		}
		if opened == 0 || opened > 6*time.Second {
			t.Errorf("the failing dependency's breaker opened after %v", opened)
		}
	})
}

// Each host dies a second after it has taken everything over, so that what is known
// of the times is what was stored.
func TestOwnersThatDieEverySecondKeepNothingAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, messenger := kvbucket.NewMemory(), kvbucket.NewMemoryMessenger()
		var die func()
		succeed := func() *objects.Host {
			if die != nil {
				die()
			}
			b, w := newFlaky(store), &wire{Messenger: messenger}
			die = func() {
				b.setDown(true)
				w.setDown(kvbucket.ErrNoListener)
			}
			return openHost(t, b, objects.Config{Messenger: w})
		}
		policy := objects.Policy{Timeout: time.Second}
		h := succeed()
		held := acquire(t, object(t, h, "guild/42"), objects.LeaseOptions{Name: "dead"})
		open(t, dependency(t, h, "payments", policy))
		pass(time.Second)
		var lapsed, probed, opened time.Duration
		start := time.Now()
		for time.Since(start) < time.Minute {
			h := succeed()
			o, d, flapping := object(t, h, "guild/42"), dependency(t, h, "payments", policy), dependency(t, h, "flapping", policy)
			if err := call(t, flapping, objects.Failure); err != nil && opened == 0 {
				opened = time.Since(start)
			}
			for end := time.Now().Add(time.Second); time.Now().Before(end); pass(50 * time.Millisecond) {
				if l, err := o.Acquire(t.Context(), objects.LeaseOptions{Name: "dead"}); err == nil && lapsed == 0 {
					lapsed = time.Since(start)
					if l.Fence() <= held.Fence() {
						t.Errorf("fence %d after %d", l.Fence(), held.Fence())
					}
				}
				if a, err := d.Admit(t.Context()); err == nil && a.Probe() && probed == 0 {
					probed = time.Since(start)
				}
			}
		}
		t.Logf("the lease lapsed after %v, the cooldown ended after %v, the breaker opened after %v", lapsed, probed, opened)
		if lapsed == 0 || lapsed > 15*time.Second*3/2 {
			t.Errorf("the dead holder's lease lapsed after %v", lapsed)
		}
		if probed == 0 || probed > 45*time.Second {
			t.Errorf("the cooldown ended after %v", probed)
		}
		if opened == 0 || opened > 10*time.Second {
			t.Errorf("the failing dependency's breaker opened after %v", opened)
		}
	})
}

func TestClosingHostHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 2)
		acquire(t, object(t, f.hosts[0], "guild/42"), objects.LeaseOptions{})
		kept := acquire(t, object(t, f.hosts[1], "guild/42"), objects.LeaseOptions{Name: "kept"})
		var group sync.WaitGroup
		group.Go(func() {
			acquire(t, object(t, f.hosts[1], "guild/42"), objects.LeaseOptions{Wait: time.Minute})
		})
		pass(time.Second)
		start := time.Now()
		if err := f.hosts[0].Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		if took := time.Since(start); took > time.Second {
			t.Errorf("the waiter was served after %v", took)
		}
		pass(time.Minute)
		if kept.Err() != nil {
			t.Errorf("a lease of the other host was lost: %v", kept.Err())
		}
	})
}

func TestSequentialCallerOnAnotherHostThanTheOwnersSeesTheBreakerOpenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 2)
		if err := call(t, dependency(t, f.hosts[0], "payments", objects.Policy{}), objects.Success); err != nil {
			t.Fatal(err)
		}
		d := dependency(t, f.hosts[1], "payments", objects.Policy{})
		start := time.Now()
		for i := range 5 {
			if err := call(t, d, objects.Failure); err != nil {
				t.Fatalf("call %d: %v", i, err)
			}
			synctest.Wait()
		}
		refusal(t, call(t, d, objects.Failure), abi.BreakerOpen)
		if took := time.Since(start); took > 0 {
			t.Errorf("the opening took %v", took)
		}
		if n := f.buckets[1].writes.Load(); n != 0 {
			t.Errorf("the host that is not the owner wrote %d times", n)
		}
	})
}

// Answers get lost, so that commands come twice, and owners change for no reason.
func TestNeverTwoHoldersWhileHostsLoseTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 3)
		var (
			holders, rounds atomic.Int64
			last            atomic.Uint64
			group           sync.WaitGroup
		)
		done := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(rand.N(3 * time.Second)):
					i := rand.N(3)
					f.wires[i].setDown(kvbucket.ErrNoListener)
					<-time.After(rand.N(2 * time.Second))
					f.wires[i].setDown(nil)
				}
			}
		})
		for i := range 30 {
			group.Go(func() {
				o := object(t, f.hosts[i%3], "guild/42")
				for rounds.Load() < 500 {
					l, err := o.Acquire(t.Context(), objects.LeaseOptions{Wait: time.Hour, TTL: 5 * time.Second})
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
					<-time.After(rand.N(100 * time.Millisecond))
					rounds.Add(1)
					holders.Add(-1)
					_ = l.Release(t.Context()) // unavailable, maybe: then it lapses
				}
			})
		}
		group.Wait()
		close(done)
		chaos.Wait()
	})
}
