package objects_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/edgehost/edgehost/objects"
)

var (
	simRuns = flag.Int("sim.runs", 300, "simulated worlds, each with a seed of its own")
	simSeed = flag.Uint64("sim.seed", 1, "the first seed")
)

const (
	simTTL     = 2 * time.Second
	simTime    = 10 * time.Second
	simHosts   = 3
	simClients = 2 // of each host
)

// The clocks of hosts run at rates up to a fifth apart; 0.8 and 1.1 of a ttl
// tolerate a third.
var simRates = []float64{0.9, 1, 1.08}

// The seed fixes what goes wrong; how goroutines that run at the same moment take
// turns is up to the scheduler, so a seed that fails may have to be run some times.
func TestSimulation(t *testing.T) {
	for i := range *simRuns {
		seed := *simSeed + uint64(i)
		synctest.Test(t, func(t *testing.T) { newSimulation(t, seed).run() })
		if t.Failed() {
			t.Fatalf("run again with -sim.seed=%d -sim.runs=1", seed)
		}
	}
}

// A simulation is a world with hosts and their clients.
type simulation struct {
	*world
	places []*place
	hosts  []*objects.Host

	book   sync.Mutex // guards the fields below
	held   map[*objects.Lease]*place
	fence  uint64
	probed map[uint64]bool
	events []porcupine.Operation
	seen   map[string]bool // values that somebody has read
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{
		world: newWorld(t, seed), held: map[*objects.Lease]*place{}, probed: map[uint64]bool{}, seen: map[string]bool{},
	}
	for i := range simHosts {
		p := &place{world: s.world, rate: simRates[(i+int(seed))%len(simRates)]}
		cfg := objects.Config{Bucket: p, Messenger: p, Host: fmt.Sprint("host", i), Logger: slog.New(slog.DiscardHandler)}
		objects.SetClock(&cfg, p.clock)
		h, err := objects.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.places, s.hosts = append(s.places, p), append(s.hosts, h)
	}
	return s
}

func (s *simulation) run() {
	ctx, end := context.WithTimeout(s.t.Context(), simTime)
	var group sync.WaitGroup
	group.Go(func() { s.trouble(ctx) })
	for i := range simHosts {
		for range simClients {
			group.Go(func() { s.leases(ctx, i) })
		}
		group.Go(func() { s.calls(ctx, i) })
	}
	group.Wait()
	end()
	s.setCalm()
	s.progress()
	for _, h := range s.hosts {
		short, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
		_ = h.Close(short)
		cancel()
	}
	s.linearizable()
}

// trouble is what befalls hosts.
func (s *simulation) trouble(ctx context.Context) {
	crashes := s.chance(0.5)
	for sleep(ctx, s.upTo(3*time.Second)) {
		p := s.places[s.upTo(simHosts)]
		switch int(s.upTo(4)) {
		case 0, 1:
			p.standStill(s.upTo(2 * simTTL))
		case 2:
			p.setJump(s.upTo(20*time.Second) - 10*time.Second)
		case 3:
			if crashes {
				s.places[0].die()
			}
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// leases is a client that takes a lease again and again.
func (s *simulation) leases(ctx context.Context, host int) {
	o, err := s.hosts[host].Object(objects.ID{Namespace: "shop", Name: "guild/42"})
	if err != nil {
		s.t.Error(err)
		return
	}
	for ctx.Err() == nil {
		l, err := o.Acquire(ctx, objects.LeaseOptions{TTL: simTTL, Wait: s.upTo(5 * time.Second)})
		if err == nil {
			s.hold(ctx, s.places[host], o, l)
		}
		sleep(ctx, s.upTo(200*time.Millisecond))
	}
}

// hold checks that nobody else believes to hold the lease, works under it, and gives
// it back or forgets it.
func (s *simulation) hold(ctx context.Context, p *place, o *objects.Object, l *objects.Lease) {
	s.enter(p, l)
	s.work(ctx, o, l)
	for until := time.Now().Add(s.upTo(2 * simTTL)); time.Now().Before(until) && l.Err() == nil; {
		sleep(ctx, 50*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
		s.checkHolders()
	}
	s.book.Lock()
	delete(s.held, l)
	s.book.Unlock()
	_ = l.Release(context.WithoutCancel(ctx)) // else it lapses
}

func (s *simulation) enter(p *place, l *objects.Lease) {
	s.book.Lock()
	defer s.book.Unlock()
	if l.Err() != nil {
		return
	}
	if l.Fence() <= s.fence && s.fence != 0 {
		for other := range s.held {
			if other.Err() == nil {
				s.violated("fence %d is held after %d", l.Fence(), s.fence)
			}
		}
	}
	s.fence = max(s.fence, l.Fence())
	s.held[l] = p
	s.onTime(p, l)
	s.onlyOne()
}

func (s *simulation) checkHolders() {
	s.book.Lock()
	defer s.book.Unlock()
	s.onlyOne()
}

// onlyOne: no two callers believe at the same moment that they may act.
func (s *simulation) onlyOne() {
	var fences []uint64
	for l := range s.held {
		if l.Err() == nil {
			fences = append(fences, l.Fence())
		}
	}
	if len(fences) > 1 {
		s.violated("the holders of fences %v all believe that they may act", fences)
	}
}

// onTime: a holder's time runs from before its grant was committed.
func (s *simulation) onTime(p *place, l *objects.Lease) {
	s.mu.Lock()
	var newest time.Time
	for r, at := range s.renewed {
		if r.fence == l.Fence() && at.After(newest) {
			newest = at
		}
	}
	s.mu.Unlock()
	left := time.Duration(float64(l.Remaining()) / p.rate)
	latest := newest.Add(time.Duration(float64(simTTL) * 0.8 / p.rate))
	if ends := time.Now().Add(left); ends.After(latest.Add(time.Millisecond)) {
		s.violated("fence %d was granted at %v and is held until %v", l.Fence(), newest.Sub(epoch), ends.Sub(epoch))
	}
}

// work reads a value and writes the next one.
func (s *simulation) work(ctx context.Context, o *objects.Object, l *objects.Lease) {
	began := time.Since(epoch)
	value, rev, err := o.Get(ctx, "balance", l)
	if err != nil {
		return
	}
	s.note(began, step{read: string(value)})
	began = time.Since(epoch)
	next := fmt.Sprint(l.Fence())
	_, err = o.Put(ctx, "balance", []byte(next), rev, l)
	s.note(began, step{from: string(value), to: next, maybe: err != nil})
}

// A step is a read, or a write that replaces a value.
type step struct {
	read, from, to string
	maybe          bool // nobody knows whether it was made
}

func (s *simulation) note(began time.Duration, st step) {
	s.book.Lock()
	defer s.book.Unlock()
	if st.to == "" {
		s.seen[st.read] = true
	}
	ended := time.Since(epoch)
	if st.maybe {
		ended = time.Hour
	}
	s.events = append(s.events, porcupine.Operation{ClientId: len(s.events), Input: st, Call: int64(began), Return: int64(ended)})
}

// linearizable holds the history of the value against a register.
func (s *simulation) linearizable() {
	var events []porcupine.Operation
	for _, e := range s.events {
		if st := e.Input.(step); !st.maybe || s.seen[st.to] { // what nobody saw was not made
			events = append(events, e)
		}
	}
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, _ any) (bool, any) {
			if st := input.(step); st.to != "" {
				return state == st.from, st.to
			}
			return state == input.(step).read, state
		},
	}
	if !porcupine.CheckOperations(model, events) {
		s.violated("the history of the value is not linearizable: %+v", events)
	}
}

// calls is a client of a dependency that fails now and then for a while.
func (s *simulation) calls(ctx context.Context, host int) {
	policy := objects.Policy{FailureThreshold: 3, ResetAfter: time.Second, MaxResetAfter: time.Second, Timeout: time.Second, OnStoreLoss: objects.StoreLossHold}
	if s.seed%3 == 0 {
		policy.Mode, policy.FailureThreshold, policy.Window, policy.MinCalls = objects.ModeRate, 0, 2*time.Second, 5
	}
	d, err := s.hosts[host].Dependency(objects.ID{Namespace: "shop", Name: "payments"}, policy)
	if err != nil {
		s.t.Error(err)
		return
	}
	for sleep(ctx, s.upTo(300*time.Millisecond)) {
		a, err := d.Admit(ctx)
		if err != nil {
			continue
		}
		outcome := objects.Success
		if s.chance(0.5) {
			outcome = objects.Failure
		}
		if a.Probe() {
			outcome = s.probe(ctx, a)
		}
		_ = a.Report(ctx, outcome)
	}
}

// probe: no fence is given to two callers.
func (s *simulation) probe(ctx context.Context, a objects.Admission) objects.Outcome {
	s.book.Lock()
	if s.probed[a.Fence()] {
		s.violated("two callers got the probe with fence %d", a.Fence())
	}
	s.probed[a.Fence()] = true
	s.book.Unlock()
	sleep(ctx, s.upTo(4*time.Second)) // which may be longer than its lease
	outcome := objects.Outcome(s.upTo(4))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts[a.Fence()] = outcome == objects.Success
	return outcome
}

// progress: when nothing goes wrong any more, the lease is free soon, also if its
// holder has died.
func (s *simulation) progress() {
	for i := range simHosts {
		if s.places[i].isDead() {
			continue
		}
		o, err := s.hosts[i].Object(objects.ID{Namespace: "shop", Name: "guild/42"})
		if err != nil {
			s.t.Error(err)
			return
		}
		<-time.After(2 * simTTL) // hosts stand still for as long
		l, err := o.Acquire(s.t.Context(), objects.LeaseOptions{TTL: simTTL, Wait: 4 * simTTL})
		if err != nil {
			s.violated("host %d cannot get the lease: %v", i, err)
			return
		}
		_ = l.Release(s.t.Context())
	}
}
