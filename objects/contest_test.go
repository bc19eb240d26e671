package objects_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/kvbucket/natstest"
	"github.com/edgehost/edgehost/objects"
)

var fleetLong = flag.Bool("fleet.long", false, "the full form of the tests with real servers, which takes minutes")

// openReal opens hosts with connections of their own on real servers.
func openReal(tb testing.TB, url string, hosts, replicas int) []*objects.Host {
	tb.Helper()
	var all []*objects.Host
	for i := range hosts {
		b, m := dialReal(tb, url, replicas)
		all = append(all, openHost(tb, b, objects.Config{Host: fmt.Sprint("host", i), Messenger: m}))
	}
	return all
}

// dialReal opens the bucket over a connection of its own, as soon as the servers can
// keep it.
func dialReal(tb testing.TB, url string, replicas int) (b kvbucket.Bucket, m kvbucket.Messenger) {
	tb.Helper()
	var conn *kvbucket.Conn
	eventually(tb, "the servers keep a bucket", func() bool {
		var err error
		if conn == nil {
			if conn, err = kvbucket.Dial(tb.Context(), kvbucket.ConnConfig{URL: url}); err != nil {
				conn = nil
				return false
			}
		}
		b, err = conn.Bucket(tb.Context(), kvbucket.BucketConfig{Name: "objects", Replicas: replicas})
		return err == nil
	})
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	m, err := conn.Messenger(kvbucket.MessengerConfig{Host: "host"})
	if err != nil {
		tb.Fatal(err)
	}
	return b, m
}

// A contest is contenders of many hosts for one lease. Each takes it, reads and
// writes a value under it, and gives it back.
type contest struct {
	t     *testing.T
	began time.Time
	left  atomic.Int64 // rounds

	mu     sync.Mutex // guards the fields below
	held   map[*objects.Lease]struct{}
	newest uint64 // fence
	events []porcupine.Operation
	seen   map[string]bool // values that somebody has read
}

func newContest(t *testing.T, rounds int) *contest {
	t.Helper()
	c := &contest{t: t, began: time.Now(), held: map[*objects.Lease]struct{}{}, seen: map[string]bool{}}
	c.left.Store(int64(rounds))
	return c
}

// An action is what a contender did, as the store may have taken it.
type action struct {
	kind     string // acquire, read, write or release
	fence    uint64
	from, to string // of a write; a read has seen from
	maybe    bool   // nobody knows whether it was done
}

// note writes down an action that began at a time and has just ended. One of which
// nobody knows may be done at any time from its beginning on.
func (c *contest) note(began time.Duration, a action) {
	ended := int64(time.Since(c.began))
	if a.maybe {
		ended = math.MaxInt64
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[a.from] = c.seen[a.from] || a.kind == "read"
	c.events = append(c.events, porcupine.Operation{ClientId: len(c.events), Input: a, Call: int64(began), Return: ended})
}

// enter checks that no two callers believe at the same moment that they hold the
// lease, and that fences grow.
func (c *contest) enter(l *objects.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[l] = struct{}{}
	var fences []uint64
	for other := range c.held {
		if other.Err() == nil {
			fences = append(fences, other.Fence())
		}
	}
	if len(fences) > 1 {
		c.t.Errorf("the holders of fences %v all believe that they may act", fences)
	}
	if l.Fence() <= c.newest {
		c.t.Errorf("fence %d after %d", l.Fence(), c.newest)
	}
	c.newest = max(c.newest, l.Fence())
}

func (c *contest) leave(l *objects.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, l)
}

// contend plays rounds until none is left.
func (c *contest) contend(o *objects.Object) {
	for c.left.Load() > 0 {
		began := time.Since(c.began)
		l, err := o.Acquire(c.t.Context(), objects.LeaseOptions{Wait: 20 * time.Second})
		if err != nil {
			<-time.After(10 * time.Millisecond) // the store has no leader
			continue
		}
		c.note(began, action{kind: "acquire", fence: l.Fence()})
		c.enter(l)
		valid := c.work(o, l, time.Since(c.began))
		c.leave(l)
		if l.Err() == nil {
			valid = time.Since(c.began)
		}
		err = l.Release(c.t.Context())
		c.note(valid, action{kind: "release", fence: l.Fence(), maybe: err != nil}) // else it lapses
		c.left.Add(-1)
	}
}

// await returns when so many rounds are left.
func (c *contest) await(left int64) {
	deadline, tick := time.After(5*time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for c.left.Load() > left {
		select {
		case <-deadline:
			c.t.Fatalf("%d rounds are left, want %d", c.left.Load(), left)
		case <-tick.C:
		}
	}
}

// work reads the value and writes the next one. It returns when the lease was last
// seen to be held.
func (c *contest) work(o *objects.Object, l *objects.Lease, valid time.Duration) time.Duration {
	began := time.Since(c.began)
	value, rev, err := o.Get(c.t.Context(), "balance", l)
	if err != nil {
		return valid
	}
	c.note(began, action{kind: "read", fence: l.Fence(), from: string(value)})
	if began = time.Since(c.began); l.Err() == nil {
		valid = began
	}
	next := fmt.Sprint(l.Fence())
	_, err = o.Put(c.t.Context(), "balance", []byte(next), rev, l)
	c.note(began, action{kind: "write", fence: l.Fence(), from: string(value), to: next, maybe: err != nil})
	return valid
}

// A fenced register is what all of it amounts to, if the history is linearizable.
type fencedRegister struct {
	granted int    // acquisitions
	holder  uint64 // fence of the lease; zero: free
	guard   uint64 // the newest fence that was written into the value's record
	value   string
}

// linearizable holds the history against a lock with a fenced register. Fences grow,
// so the order of the grants is known.
func (c *contest) linearizable() {
	var events []porcupine.Operation
	fences := map[uint64]struct{}{}
	for _, e := range c.events {
		a := e.Input.(action)
		if a.kind == "acquire" {
			fences[a.fence] = struct{}{}
		}
		if a.kind != "write" || !a.maybe || c.seen[a.to] { // what nobody saw was not made
			events = append(events, e)
		}
	}
	order := slices.Sorted(maps.Keys(fences))
	model := porcupine.Model{
		Init: func() any { return fencedRegister{} },
		Step: func(state, input, _ any) (bool, any) {
			r, ok := state.(fencedRegister).after(input.(action), order)
			return ok, r
		},
	}
	if !porcupine.CheckOperations(model, events) {
		c.t.Error("the history is not linearizable")
	}
}

func (r fencedRegister) after(a action, order []uint64) (fencedRegister, bool) {
	ok := false
	switch a.kind {
	case "acquire":
		ok = r.holder == 0 && order[r.granted] == a.fence
		r.granted, r.holder = r.granted+1, a.fence
	case "release":
		ok = r.holder == a.fence
		r.holder = 0
	case "read":
		ok = r.guard <= a.fence && r.value == a.from
		r.guard = a.fence
	case "write":
		ok = r.guard == a.fence && r.value == a.from
		r.value = a.to
	}
	return r, ok
}

func TestContendersOfManyHostsWhileTheStoreLosesItsLeader(t *testing.T) {
	const contenders, hosts = 50, 3
	rounds, kills := 500, 1
	if *fleetLong {
		rounds, kills = 10_000, 2
	}
	servers := natstest.StartServers(t, 3)
	all := openReal(t, servers.URL(), hosts, 3)
	c := newContest(t, rounds)
	var group sync.WaitGroup
	for i := range contenders {
		group.Go(func() { c.contend(object(t, all[i%hosts], "guild/42")) })
	}
	for i := range kills {
		next := int64(rounds * (kills - i) / (kills + 1))
		c.await(next)
		leader := servers.Leader(t, "objects")
		servers.Kill(leader)
		killed := time.Now()
		c.await(next - contenders)
		t.Logf("%d more rounds %v after server %d was killed", contenders, time.Since(killed).Round(time.Millisecond), leader)
		servers.Start(t, leader)
	}
	group.Wait()
	took := time.Since(c.began)
	t.Logf("%d rounds in %v", rounds, took.Round(time.Millisecond))
	c.linearizable()
}
