package objects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A world is the store and the network of a simulation, where everything goes wrong
// that may: reads are old and go backwards, acknowledgements get lost, messages are
// lost, delayed and repeated, hosts stand still, and die. Every accepted write is
// held against the invariants when it is made.
type world struct {
	t         *testing.T
	seed      uint64
	store     *kvbucket.Memory
	messenger *kvbucket.MemoryMessenger

	mu       sync.Mutex // guards the fields below
	random   *rand.Rand
	calm     bool // nothing goes wrong any more
	history  map[string][]kvbucket.Entry
	pages    map[string]page
	breakers map[string]breaker
	renewed  map[renewal]time.Time // when a grant or a renewal was first accepted
	verdicts map[uint64]bool       // the successes that probes have reported, by fence
}

// A page is what the invariants need of a record of leases.
type page struct {
	Epoch  uint64 `json:"epoch"`
	Fence  uint64 `json:"fence"`
	Leases map[string]struct {
		Fence   uint64 `json:"fence"`
		Renewal int    `json:"renewal"`
	} `json:"leases"`
}

// A breaker is what the invariants need of a dependency's record.
type breaker struct {
	Epoch   uint64 `json:"epoch"`
	Breaker struct {
		State      string `json:"state"`
		Generation uint64 `json:"generation"`
		Fence      uint64 `json:"fence"`
		Settled    uint64 `json:"settled"`
	} `json:"breaker"`
	Probe *struct {
		Fence uint64 `json:"fence"`
	} `json:"probe"`
}

type renewal struct {
	fence   uint64
	renewal int
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	return &world{
		t: t, seed: seed, store: kvbucket.NewMemory(), messenger: kvbucket.NewMemoryMessenger(),
		random:  rand.New(rand.NewPCG(seed, 0)),
		history: map[string][]kvbucket.Entry{}, pages: map[string]page{}, breakers: map[string]breaker{},
		renewed: map[renewal]time.Time{}, verdicts: map[uint64]bool{},
	}
}

func (w *world) violated(format string, args ...any) {
	w.t.Errorf("seed %d, after %v: %s", w.seed, time.Since(epoch), fmt.Sprintf(format, args...))
}

// epoch is when a bubble's clock starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// chance draws an event of the given probability, which never happens in a calm
// world.
func (w *world) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.random.Float64() < p
}

func (w *world) upTo(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.random.Int64N(int64(d)))
}

func (w *world) setCalm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calm = true
}

// write changes the store and checks what the change means.
func (w *world) write(ctx context.Context, key string, value []byte, last kvbucket.Revision) (kvbucket.Revision, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	revision, err := w.store.Update(ctx, key, value, last)
	if err != nil {
		return 0, err
	}
	w.history[key] = append(w.history[key], kvbucket.Entry{Key: key, Value: value, Revision: revision, Created: time.Now()})
	switch key[0] {
	case 'l':
		w.checkPage(key, value)
	case 'o':
		w.checkBreaker(key, value)
	}
	return revision, nil
}

// checkPage: epochs and fences never go back, and every grant has a larger fence
// than all before.
func (w *world) checkPage(key string, value []byte) {
	var next page
	if err := json.Unmarshal(value, &next); err != nil {
		w.violated("%s: %v", key, err)
	}
	old := w.pages[key]
	if next.Epoch < old.Epoch || next.Fence < old.Fence {
		w.violated("%s went back: from epoch %d, fence %d to %d, %d", key, old.Epoch, old.Fence, next.Epoch, next.Fence)
	}
	for name, l := range next.Leases {
		if was, ok := old.Leases[name]; (!ok || was.Fence != l.Fence) && l.Fence <= old.Fence {
			w.violated("%s: %s was granted with fence %d after %d", key, name, l.Fence, old.Fence)
		}
		if _, ok := w.renewed[renewal{l.Fence, l.Renewal}]; !ok {
			w.renewed[renewal{l.Fence, l.Renewal}] = time.Now()
		}
	}
	w.pages[key] = next
}

// checkBreaker: epochs, generations and fences never go back, and a probe's success
// closes the breaker only if it is the accepted one's.
func (w *world) checkBreaker(key string, value []byte) {
	var next breaker
	if err := json.Unmarshal(value, &next); err != nil {
		w.violated("%s: %v", key, err)
	}
	old := w.breakers[key]
	if next.Epoch < old.Epoch || next.Breaker.Generation < old.Breaker.Generation || next.Breaker.Fence < old.Breaker.Fence {
		w.violated("%s went back: from %+v to %+v", key, old, next)
	}
	if next.Probe != nil && (old.Probe == nil || old.Probe.Fence != next.Probe.Fence) && next.Probe.Fence <= old.Breaker.Fence {
		w.violated("%s: a probe got fence %d after %d", key, next.Probe.Fence, old.Breaker.Fence)
	}
	if closed := old.Breaker.State == "half_open" && next.Breaker.State == "closed"; closed {
		if old.Probe == nil || next.Breaker.Settled != old.Probe.Fence || !w.verdicts[old.Probe.Fence] {
			w.violated("%s was closed without the success of the accepted probe: from %+v to %+v", key, old, next)
		}
	}
	w.breakers[key] = next
}

// A place is where one host is: its way to the store and to the others.
type place struct {
	*world
	rate float64 // of its monotonic clock

	gate  sync.Mutex // guards the fields below
	until time.Time  // it stands still, or is cut off
	dead  bool
	jump  time.Duration // of its wall clock
}

// clock is what the host reads its clocks by.
func (p *place) clock() (mono time.Duration, wall time.Time) {
	p.gate.Lock()
	defer p.gate.Unlock()
	mono = time.Duration(float64(time.Since(epoch)) * p.rate)
	return mono, epoch.Add(mono + p.jump)
}

func (p *place) standStill(d time.Duration) {
	p.gate.Lock()
	defer p.gate.Unlock()
	p.until = time.Now().Add(d)
}

func (p *place) setJump(d time.Duration) {
	p.gate.Lock()
	defer p.gate.Unlock()
	p.jump = d
}

func (p *place) die() {
	p.gate.Lock()
	defer p.gate.Unlock()
	p.dead = true
}

func (p *place) isDead() bool {
	p.gate.Lock()
	defer p.gate.Unlock()
	return p.dead
}

// pass waits until the place moves, and for a delay.
func (p *place) pass(ctx context.Context) error {
	p.gate.Lock()
	d, dead := time.Until(p.until), p.dead
	p.gate.Unlock()
	if dead {
		return kvbucket.ErrUnavailable
	}
	if p.chance(0.1) {
		d = max(d, 0) + p.upTo(300*time.Millisecond)
	}
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get returns any value that the key ever had.
func (p *place) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	if err := p.pass(ctx); err != nil || p.chance(0.02) {
		return kvbucket.Entry{}, fmt.Errorf("%w: %w", kvbucket.ErrUnavailable, context.Canceled)
	}
	old := p.chance(0.3)
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.history[key]
	switch {
	case len(seen) == 0:
		return kvbucket.Entry{}, kvbucket.ErrNotFound
	case old:
		return seen[p.random.IntN(len(seen))], nil
	}
	return seen[len(seen)-1], nil
}

// Update may lose the write or its acknowledgement. A write that is under way when
// its caller gives up, may still arrive.
func (p *place) Update(ctx context.Context, key string, value []byte, last kvbucket.Revision) (kvbucket.Revision, error) {
	if p.isDead() || p.chance(0.02) {
		return 0, kvbucket.ErrUnavailable
	}
	if err := p.pass(ctx); err != nil {
		if p.chance(0.5) {
			_, _ = p.write(context.WithoutCancel(ctx), key, value, last)
		}
		return 0, kvbucket.ErrUnknown
	}
	if p.chance(0.03) {
		return 0, kvbucket.ErrUnknown
	}
	revision, err := p.write(context.WithoutCancel(ctx), key, value, last)
	if p.chance(0.05) {
		return 0, kvbucket.ErrUnknown
	}
	if err := p.pass(ctx); err != nil {
		return 0, kvbucket.ErrUnknown
	}
	return revision, err
}

// Watch shows some changes, late, and old ones again.
func (p *place) Watch(ctx context.Context, pattern string) iter.Seq[kvbucket.Entry] {
	return func(yield func(kvbucket.Entry) bool) {
		for e := range p.store.Watch(ctx, pattern) {
			if p.chance(0.2) || p.pass(ctx) != nil {
				continue
			}
			if p.chance(0.1) {
				if old, err := p.Get(ctx, e.Key); err == nil && !yield(old) {
					return
				}
			}
			if !yield(e) {
				return
			}
		}
	}
}

func (p *place) Keys(ctx context.Context, pattern string) ([]string, error) {
	return p.store.Keys(ctx, pattern)
}

// Serve is silent while the place stands still.
func (p *place) Serve(address string, handle func(context.Context, []byte) []byte) (func(context.Context) error, error) {
	return p.messenger.Serve(address, func(ctx context.Context, request []byte) []byte {
		if p.pass(ctx) != nil {
			return []byte(wasCut)
		}
		answer := handle(ctx, request)
		if p.pass(ctx) != nil {
			return []byte(wasCut)
		}
		return answer
	})
}

// Call loses, delays and repeats.
func (p *place) Call(ctx context.Context, address string, request []byte) ([]byte, error) {
	if p.pass(ctx) != nil {
		return nil, kvbucket.ErrUnavailable
	}
	switch {
	case p.chance(0.03):
		return nil, kvbucket.ErrNoListener
	case p.chance(0.03):
		return nil, kvbucket.ErrNoReceipt
	case p.chance(0.1):
		_, _ = p.messenger.Call(ctx, address, request) // its answer comes first, and is lost
	}
	answer, err := p.messenger.Call(ctx, address, request)
	if p.chance(0.1) {
		<-ctx.Done() // the answer is lost
		return nil, ctx.Err()
	}
	if err == nil && strings.HasPrefix(string(answer), wasCut) {
		return nil, kvbucket.ErrNoListener
	}
	return answer, err
}
