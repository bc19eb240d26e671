package objects

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/objects/internal/record"
)

// meterSlots is into how many parts a window is divided: what leaves it leaves by
// such a part at a time.
const meterSlots = 10

// A meter counts what this host's calls came to in the window of a rate.
type meter struct {
	slot time.Duration // the length of a slot
	slow time.Duration // calls that take as long are slow; zero: none is

	suspicious atomic.Bool // some host has seen a bad call

	mu         sync.Mutex // guards the following
	generation uint64     // of the breaker that admitted the calls
	newest     int64      // number of the newest slot
	slots      [meterSlots]record.Counts
	sent       record.Counts // what was reported last
	number     uint64        // of that report
}

// newMeter returns nil for a policy without a rate.
func newMeter(p *Policy, generation uint64) *meter {
	if p.Mode != ModeRate {
		return nil
	}
	return &meter{slot: p.Window / meterSlots, slow: p.SlowCall, generation: generation}
}

// add counts a call, unless another generation of the breaker admitted it.
func (m *meter) add(now time.Duration, generation uint64, c record.Counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if generation != m.generation {
		return
	}
	m.turn(now)
	slot := &m.slots[m.newest%meterSlots]
	*slot = slot.Plus(c)
}

// sum returns what is in the window.
func (m *meter) sum(now time.Duration) (sum record.Counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total(now)
}

// total is sum for a caller who holds mu.
func (m *meter) total(now time.Duration) (sum record.Counts) {
	m.turn(now)
	for _, c := range m.slots {
		sum = sum.Plus(c)
	}
	return sum
}

// turn empties the slots that the window has left. The caller holds mu.
func (m *meter) turn(now time.Duration) {
	number := int64(now / m.slot)
	m.newest = max(m.newest, number-meterSlots)
	for m.newest < number {
		m.newest++
		m.slots[m.newest%meterSlots] = record.Counts{}
	}
}

// reset forgets all calls; those that count from now on are of the generation.
func (m *meter) reset(generation uint64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation = generation
	m.slots = [meterSlots]record.Counts{}
	m.sent = record.Counts{}
}

// bad reports whether the window holds a call that was not good.
func (m *meter) bad(now time.Duration) bool { return m != nil && m.sum(now).Bad() }

// next returns what is to be reported. It is fresh if it differs from what was
// reported last, and empty if neither holds a call.
func (m *meter) next(now time.Duration) (c record.Counts, number uint64, fresh, empty bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c = m.total(now)
	fresh, empty = c != m.sent, c.Calls == 0 && m.sent.Calls == 0
	if fresh {
		m.sent = c
		m.number++
	}
	return c, m.number, fresh, empty
}

// unsent makes the newest report fresh again: it may not have arrived.
func (m *meter) unsent() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = record.Counts{Calls: -1}
}

// count counts a call by the rate. While no host has seen a bad call, good ones go
// no further. The bad one that opens the breaker waits for the record.
func (d *Dependency) count(ctx context.Context, m *meter, a Admission, o Outcome) error {
	now := d.host.now().Mono
	c := record.Counts{Calls: 1}
	if o == Failure {
		c.Failures = 1
	}
	if m.slow > 0 && now-a.begun >= m.slow {
		c.Slow = 1
	}
	m.add(now, a.generation, c)
	if !c.Bad() && !a.trial && !m.suspicious.Load() {
		return nil
	}
	return d.suspect(ctx, m, a, c.Bad())
}

// suspect takes note of a bad call, or of a good one while others are suspicious.
func (d *Dependency) suspect(ctx context.Context, m *meter, a Admission, bad bool) error {
	d.mu.Lock()
	if _, ok := d.current(a); !ok {
		d.mu.Unlock()
		return nil
	}
	if a.trial && !bad { // the host's own way to the dependency works again
		m.reset(a.generation)
		d.tally.trips = 0
		d.guard.Store(0)
		d.cool()
		d.mu.Unlock()
		return nil
	}
	m.suspicious.Store(true)
	p, own := d.policy.Load(), m.sum(d.host.now().Mono)
	rate := p.record().Rate
	if bad && (a.trial || rate.Trips(own) && d.guard.Load() == 0) {
		d.setGuard(p)
	}
	opens, stalled := bad && rate.Trips(own.Plus(d.others())), d.tally.stalled
	r := d.report()
	if opens && !stalled {
		d.tally.hurry()
	}
	d.mu.Unlock()
	switch {
	case !opens:
		return nil
	case stalled:
		return unavailable()
	}
	return d.await(ctx, r)
}

// others sums the windows that the other hosts have reported.
func (d *Dependency) others() (sum record.Counts) {
	own := incarnationOf(d.host.owner)
	for host, w := range d.view.Load().object.Breaker.Windows {
		if host != own {
			sum = sum.Plus(w.Counts)
		}
	}
	return sum
}

// suspected reports whether some host has seen a bad call lately. The caller holds
// mu.
func (d *Dependency) suspected() bool {
	m, v := d.meter.Load(), d.view.Load()
	return m != nil && (m.bad(d.host.now().Mono) || v != nil && len(v.object.Breaker.Windows) > 0)
}

// nextTotals is nextReport by the rate. There is nothing to tell in between if
// cmd is nil; more is false when there is nothing to tell any more.
func (d *Dependency) nextTotals(m *meter) (cmd record.Command, more bool) {
	c, number, fresh, empty := m.next(d.host.now().Mono)
	if empty || !d.suspected() && !fresh {
		return nil, false
	}
	if !fresh {
		return nil, true
	}
	return record.Totals{
		Generation: d.view.Load().object.Breaker.Generation,
		Host:       incarnationOf(d.host.owner), Number: number, Counts: c,
		Policy: d.policy.Load().record(),
	}, true
}

// reportPause returns the time between two reports. A window changes by its
// slots.
func (d *Dependency) reportPause() time.Duration {
	if m := d.meter.Load(); m != nil {
		return max(reportEvery, min(m.slot/2, time.Second))
	}
	return reportEvery
}
