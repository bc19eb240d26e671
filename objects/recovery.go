package objects

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// pollEvery is the pause between reads of the breakers in use. With the time of a
// read it keeps a host whose watch has died silently less than 5 s behind.
const pollEvery = 4 * time.Second

// storeLostAfter is how long the store must not answer before a host goes by itself:
// longer than an election in the store takes, which is 4 to 9 s.
const storeLostAfter = 10 * time.Second

// answered notes whether the store answers, from the error of a call.
func (h *Host) answered(err error) {
	switch {
	case err == nil, errors.Is(err, kvbucket.ErrNotFound), errors.Is(err, kvbucket.ErrConflict):
		h.lost.Store(0)
	case errors.Is(err, kvbucket.ErrUnavailable), errors.Is(err, kvbucket.ErrUnknown):
		h.lost.CompareAndSwap(0, int64(h.now().Mono)+1)
	}
}

// storeLost reports whether the store has been gone for long.
func (h *Host) storeLost() bool {
	since := h.lost.Load()
	return since != 0 && h.now().Mono-time.Duration(since) >= storeLostAfter
}

// poll reads the breakers that were used since it last did: a watch may die without
// a word. What nobody uses costs nothing.
func (h *Host) poll() {
	for pause(h.ctx, pollEvery) {
		h.mu.Lock()
		dependencies := slices.Collect(maps.Values(h.dependencies))
		h.mu.Unlock()
		for _, d := range dependencies {
			if d.used.Swap(false) && !d.refresh() {
				break // the others would wait as long, in vain
			}
		}
	}
}

// refresh reads the breaker's record and reports whether the store has answered.
func (d *Dependency) refresh() bool {
	e, err := d.host.read(d.host.ctx, d.node.key)
	if err != nil {
		d.used.Store(true) // still to be read
		return false
	}
	d.reunite()
	if e.Value != nil {
		d.node.observe(e)
	}
	return true
}

// probeAlone admits a call without the store's consent, if the policy permits and
// the store has been gone for long. Pauses double, as between the fleet's probes.
func (d *Dependency) probeAlone() (Admission, bool) {
	p, now := d.policy.Load(), d.host.now().Mono
	if p.OnStoreLoss != StoreLossLocal || !d.host.storeLost() {
		return Admission{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	if v == nil || v.closed || now < d.alone {
		return Admission{}, false
	}
	delay := min(p.ResetAfter<<min(d.lonely, 16), p.MaxResetAfter)
	d.lonely++
	d.alone = now + delay + rand.N(delay/4+1)
	return Admission{dependency: d, generation: v.object.Breaker.Generation, alone: true}, true
}

// closeAlone closes this host's copy of the breaker.
func (d *Dependency) closeAlone(a Admission) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	if v == nil || v.closed || v.object.Breaker.Generation != a.generation || !d.host.storeLost() {
		return
	}
	d.tally.reset()
	d.meter.Load().reset(a.generation)
	d.guard.Store(0)
	closed := *v
	closed.closed, closed.admits, closed.instead = true, true, v
	d.view.Store(&closed)
	d.host.log.Warn("the breaker is closed on this host alone, for the store does not answer", "dependency", d.id.String())
}

// reunite ends what this host does alone: the store answers.
func (d *Dependency) reunite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lonely, d.alone = 0, 0
	if v := d.view.Load(); v != nil && v.instead != nil {
		d.tally.reset()
		d.meter.Load().reset(v.object.Breaker.Generation)
		d.view.Store(v.instead)
		d.cool()
	}
}

// after returns the view of a newer record. The caller holds mu.
func (d *Dependency) after(old *view, o *record.Object, revision kvbucket.Revision) *view {
	v := &view{object: o, revision: revision, known: true, closed: o.Breaker.State == record.Closed}
	v.admits = v.closed
	if !v.closed || old == nil || !old.known || d.policy.Load().Ramp == 0 {
		return v
	}
	if !old.closed || old.instead != nil {
		v.ramping = d.host.now().Mono
	} else {
		v.ramping = old.ramping
	}
	v.admits = v.ramping == 0
	return v
}

// ramped reports whether one more call may go out while the breaker has closed only
// just now.
func (d *Dependency) ramped(v *view) bool {
	ramp := d.policy.Load().Ramp
	since := d.host.now().Mono - v.ramping
	if since < ramp {
		return rand.N(ramp) < since
	}
	all := *v
	all.ramping, all.admits = 0, true
	d.view.CompareAndSwap(v, &all)
	return true
}

// arm sets the timer of the active probe for the end of the cooldown, or of
// somebody's probe. The caller holds mu.
func (d *Dependency) arm() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	v := d.view.Load()
	if v == nil || v.closed || d.policy.Load().Probe == nil {
		return
	}
	d.timer = time.AfterFunc(v.object.Remaining(d.host.now())+jittered(100*time.Millisecond), func() {
		d.host.start(d.probe)
	})
}

// probe tries to be the host that probes. If it is not, it looks again later: the
// one that is may die.
func (d *Dependency) probe() {
	if p := d.policy.Load(); p.Probe != nil { // else it has been taken away
		d.probeBy(p)
	}
	if !pause(d.host.ctx, jittered(time.Second)) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arm()
}

// probeBy makes the policy's call if it may be the one that decides.
func (d *Dependency) probeBy(p *Policy) {
	a, err := d.Admit(d.host.ctx)
	switch {
	case err != nil:
	case a.Probe() || a.alone:
		ctx, cancel := context.WithTimeout(d.host.ctx, p.Timeout)
		outcome := p.Probe(ctx)
		cancel()
		_ = a.Report(d.host.ctx, outcome) // a late verdict is dropped, and counted
	default:
		_ = a.Report(d.host.ctx, Canceled) // the breaker is closed
	}
}
