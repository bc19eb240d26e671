package objects

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// A State is a breaker's state.
type State string

// The states of a breaker.
const (
	StateClosed   State = record.Closed   // calls go through
	StateOpen     State = record.Open     // no call goes through until the cooldown ends
	StateHalfOpen State = record.HalfOpen // one probe may go through
)

// The reasons of refusals by a breaker.
const (
	reasonCooldown = "cooldown"  // the breaker is open
	reasonProbe    = "probe"     // somebody else probes, or asks for the probe
	reasonStreak   = "streak"    // this host's own calls fail in a row
	reasonStore    = "store"     // a probe cannot be claimed without the store
	reasonInFlight = "in_flight" // this host has too many calls under way
	reasonRamp     = "ramp"      // the breaker has closed only just now
)

// firstLook bounds how long the first call of a dependency waits for the store to
// tell the breaker's state. After that it goes out as if it were closed.
const firstLook = time.Second

// A Dependency is the object that guards one dependency: the fleet's breaker for
// it. Its methods may be called from any number of goroutines.
type Dependency struct {
	host   *Host
	id     ID
	node   *node
	policy atomic.Pointer[Policy]

	view     atomic.Pointer[view]  // nil: nothing is known yet
	hot      atomic.Bool           // successes count: something failed lately, or there is a meter
	guard    atomic.Int64          // the reading of the host's clock until which its streak defers calls; zero: no guard
	claiming atomic.Bool           // a call of this host asks for the probe
	used     atomic.Bool           // since the newest poll
	meter    atomic.Pointer[meter] // of the rate; nil without one
	timing   atomic.Bool           // the meter tells slow calls
	limit    atomic.Int64          // of calls under way; zero: none
	inFlight atomic.Int64          // counted while there is a limit

	mu      sync.Mutex    // guards the fields below
	looked  chan struct{} // closed when the first look has ended; nil before it begins
	tally   tally
	holdoff time.Duration // no claim before, after the store failed
	alone   time.Duration // no probe without the store before
	lonely  int           // probes without the store, since the breaker was closed or the store answered
	timer   *time.Timer   // of the active probe
}

// A view is what a host knows of a breaker; it never changes.
type view struct {
	object   *record.Object
	revision kvbucket.Revision
	known    bool // else the object is an assumption
	closed   bool
	admits   bool          // every call
	ramping  time.Duration // the host's clock when it closed, while not every call is admitted
	instead  *view         // closed by this host alone, in place of what the record said
	ended    bool          // the host is closing: nobody is admitted, and no other view follows
}

// Dependency returns the object that guards the dependency id. The same id gives
// the same object; the policy of the last call holds. The error unwraps to
// abi.Invalid.
func (h *Host) Dependency(id ID, p Policy) (*Dependency, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	key := record.ObjectKey(id.Namespace, id.Name)
	if err := checkKey(key); err != nil {
		return nil, err
	}
	policy, err := p.resolve()
	if err != nil {
		return nil, err
	}
	d := h.dependency(id, key, &policy)
	d.follow(&policy)
	d.prepare()
	return d, nil
}

// follow makes a policy the one that holds. What was counted by another mode or
// window does not count any more.
func (d *Dependency) follow(p *Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy.Store(p)
	d.limit.Store(int64(p.MaxInFlight))
	var generation uint64
	if v := d.view.Load(); v != nil {
		generation = v.object.Breaker.Generation
	}
	m, old := newMeter(p, generation), d.meter.Load()
	if (m == nil) == (old == nil) && (m == nil || m.slot == old.slot && m.slow == old.slow) {
		return
	}
	d.tally.reset()
	d.meter.Store(m)
	d.timing.Store(p.SlowCall > 0)
	d.cool()
}

// dependency returns the one of an id. One that is made has its policy before the
// watch can tell it anything.
func (h *Host) dependency(id ID, key string, p *Policy) *Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.dependencies[id]
	if !ok {
		d = &Dependency{host: h, id: id, node: h.nodeLocked(key, objectKind())}
		d.follow(p)
		d.node.viewer.Store(d)
		h.dependencies[id] = d
	}
	return d
}

// prepare lets an active probe begin without traffic: the breaker may have been
// open for long when this host learns of the dependency, or of the probe.
func (d *Dependency) prepare() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.policy.Load().Probe != nil && d.view.Load() == nil {
		d.startLook() // the first view sets the timer
		return
	}
	d.arm()
}

// Admit asks whether a call may go out. Every admission must be reported exactly
// once. The error is a *Refusal: breaker_open while the breaker cools down;
// deferred while somebody else probes, or while this host's own calls fail in a
// row; unavailable after Close; or it is the context's. While the breaker is
// closed and nothing failed lately, Admit reads two values in memory: it takes no
// lock, allocates nothing and sends nothing. The store's absence never refuses a
// call to a dependency that was not known to fail.
func (d *Dependency) Admit(ctx context.Context) (Admission, error) {
	if !d.used.Load() {
		d.used.Store(true)
	}
	if d.limit.Load() > 0 {
		return d.admitCounted(ctx)
	}
	return d.admit(ctx)
}

func (d *Dependency) admit(ctx context.Context) (Admission, error) {
	if v := d.view.Load(); v != nil && v.admits && d.guard.Load() == 0 && !d.timing.Load() {
		return Admission{dependency: d, generation: v.object.Breaker.Generation}, nil
	}
	return d.admitSlowly(ctx)
}

// admitCounted admits a call within the limit of calls under way.
func (d *Dependency) admitCounted(ctx context.Context) (Admission, error) {
	if d.inFlight.Add(1) > d.limit.Load() {
		d.inFlight.Add(-1)
		return Admission{}, d.refuse(abi.Overloaded, 0, reasonInFlight)
	}
	a, err := d.admit(ctx)
	if err != nil {
		d.inFlight.Add(-1)
		return a, err
	}
	a.counted = true
	return a, nil
}

func (d *Dependency) admitSlowly(ctx context.Context) (Admission, error) {
	if err := d.host.open(); err != nil {
		return Admission{}, err
	}
	if err := d.look(ctx); err != nil {
		return Admission{}, err
	}
	v := d.view.Load()
	switch left := v.object.Remaining(d.host.now()); {
	case v.ended:
		return Admission{}, closed()
	case v.closed && v.ramping != 0 && !d.ramped(v):
		return Admission{}, d.refuse(abi.Deferred, jittered(d.policy.Load().Ramp), reasonRamp)
	case v.closed:
		return d.admitGuarded(v)
	case left == 0:
		return d.claim(ctx)
	case v.object.Probe != nil:
		return Admission{}, d.refuse(abi.Deferred, d.retryIn(left), reasonProbe)
	default:
		return Admission{}, d.refuse(abi.BreakerOpen, left, reasonCooldown)
	}
}

// look makes sure that there is a view. If the store does not tell in time, the
// breaker is assumed to be closed, and the host goes on asking.
func (d *Dependency) look(ctx context.Context) error {
	if d.view.Load() != nil {
		return nil
	}
	d.mu.Lock()
	looks := d.startLook()
	d.mu.Unlock()
	if !looks {
		return closed()
	}
	select {
	case <-d.looked:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// startLook begins the first look unless it has begun, and reports false if the
// host closes. The caller holds mu.
func (d *Dependency) startLook() bool {
	if d.looked != nil {
		return true
	}
	d.looked = make(chan struct{})
	if !d.host.start(d.lookFirst) {
		d.looked = nil
		return false
	}
	return true
}

// lookFirst asks for the state, once for all first calls.
func (d *Dependency) lookFirst() {
	defer close(d.looked)
	patient, cancel := context.WithTimeout(d.host.ctx, firstLook)
	defer cancel()
	a := d.node.post(record.Look{}).await(patient)
	for a.Code == abi.Overloaded && pause(patient, jittered(5*time.Millisecond)) {
		a = d.node.post(record.Look{}).await(patient)
	}
	assumed := &view{object: record.NewObject().(*record.Object), closed: true, admits: true}
	if d.view.CompareAndSwap(nil, assumed) {
		d.host.log.Warn("the breaker's state cannot be read and is assumed to be closed", "dependency", d.id.String(), "error", a.err)
		d.lookAgain()
	}
}

// lookAgain asks for the state until it is known.
func (d *Dependency) lookAgain() {
	d.host.start(func() {
		for pause(d.host.ctx, jittered(2*time.Second)) {
			if v := d.view.Load(); v.known || v.ended {
				return
			}
			d.node.ask(d.host.ctx, record.Look{})
		}
	})
}

// learn takes a newer record. What calls of another generation came to no longer
// matters then.
func (d *Dependency) learn(r record.Record, revision kvbucket.Revision) {
	o, ok := r.(*record.Object)
	if !ok {
		return
	}
	if d.take(o, revision) {
		d.node.post(record.Attend{}) // whoever opened it may have died
	}
}

// take makes a newer record the view, and reports whether it is the first and shows
// that the breaker is not closed.
func (d *Dependency) take(o *record.Object, revision kvbucket.Revision) (attends bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.view.Load()
	if old != nil && (old.ended || old.known && revision <= old.revision) {
		return false
	}
	if old == nil || old.object.Breaker.Generation != o.Breaker.Generation {
		d.tally.reset()
		d.guard.Store(0)
		d.meter.Load().reset(o.Breaker.Generation)
	}
	v := d.after(old, o, revision)
	d.view.Store(v)
	d.cool()
	if d.suspected() {
		d.report() // what this host has counted is part of the sum
	}
	d.arm()
	return (old == nil || !old.known) && !v.closed
}

// forget ends the view for good: the host is closing.
func (d *Dependency) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.view.Store(&view{object: record.NewObject().(*record.Object), closed: true, ended: true})
	d.arm()
}

// admitGuarded admits a call by a closed breaker. A host whose own calls fail in a
// row defers the others for a while and then lets one at a time try, whatever the
// fleet thinks: its own way to the dependency may be what is broken, and without
// the store nobody else would stop it.
func (d *Dependency) admitGuarded(v *view) (Admission, error) {
	now := d.host.now().Mono
	a := Admission{dependency: d, generation: v.object.Breaker.Generation, begun: now}
	d.mu.Lock()
	until := time.Duration(d.guard.Load())
	if until != 0 && now >= until {
		d.guard.Store(int64(now + d.policy.Load().ProbeTTL))
		a.trial, until = true, 0
	}
	d.mu.Unlock()
	if until != 0 {
		return Admission{}, d.refuse(abi.Deferred, d.retryIn(until-now), reasonStreak)
	}
	return a, nil
}

// claim asks the owner for the probe, on behalf of one call at a time: the others
// would only be told that they were not the first.
func (d *Dependency) claim(ctx context.Context) (Admission, error) {
	if !d.claiming.CompareAndSwap(false, true) {
		return Admission{}, d.refuse(abi.Deferred, d.retryIn(time.Second), reasonProbe)
	}
	defer d.claiming.Store(false)
	if d.holding() {
		if a, ok := d.probeAlone(); ok {
			return a, nil
		}
		return Admission{}, d.refuse(abi.Deferred, d.retryIn(time.Second), reasonStore)
	}
	p := d.policy.Load()
	cmd := record.ClaimProbe{Op: d.host.id(), Holder: d.host.owner, TTL: p.ProbeTTL, Policy: p.record()}
	request, sent := newRequest(ctx, cmd), d.host.clock()
	entered := d.node.send(request)
	a := request.await(ctx)
	switch a.Code {
	case 0:
		if a.Fence != 0 && sent.until(d.host.clock())+p.Timeout > holderTime(p.ProbeTTL) { // the call could outlast its lease
			d.node.post(record.Withdraw{Op: cmd.Op})
			return Admission{}, d.refuse(abi.Deferred, d.retryIn(time.Second), reasonStore)
		}
		return Admission{dependency: d, generation: a.Generation, fence: a.Fence}, nil
	case abi.BreakerOpen:
		return Admission{}, d.refuse(a.Code, max(a.RetryAfter, time.Millisecond), reasonCooldown)
	case abi.Deferred:
		return Admission{}, d.refuse(a.Code, d.retryIn(a.RetryAfter), reasonProbe)
	default:
		// The claim may come true yet. Nobody will make the call then.
		if entered {
			d.node.post(record.Withdraw{Op: cmd.Op})
		}
	}
	if ctx.Err() != nil {
		return Admission{}, contextError(ctx)
	}
	d.hold()
	if a, ok := d.probeAlone(); ok {
		return a, nil
	}
	return Admission{}, d.refuse(abi.Deferred, d.retryIn(time.Second), reasonStore)
}

// hold keeps the host from asking a store that does not answer for every call.
func (d *Dependency) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holdoff = d.host.now().Mono + jittered(500*time.Millisecond)
}

func (d *Dependency) holding() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host.now().Mono < d.holdoff
}

// retryIn returns a jittered retry time for a caller who waits for a call of
// somebody else, which takes left at most.
func (d *Dependency) retryIn(left time.Duration) time.Duration {
	return jittered(min(left, d.policy.Load().Timeout))
}

func (d *Dependency) refuse(code abi.Code, retry time.Duration, reason string) error {
	d.host.metrics.rejected.WithLabelValues(d.id.String(), reason).Inc()
	return &Refusal{Code: code, RetryAfter: retry, Reason: reason}
}

// View returns the breaker as this host knows it, which may be behind.
func (d *Dependency) View() View {
	v := d.view.Load()
	if v == nil {
		return View{State: StateClosed}
	}
	return View{
		State:      State(v.object.Breaker.State),
		Generation: v.object.Breaker.Generation,
		RetryAfter: v.object.Remaining(d.host.now()),
		Guarded:    d.guard.Load() != 0,
		Known:      v.known,
	}
}

// A View is what a host knows of a breaker.
type View struct {
	State      State
	Generation uint64        // grows with every change of State
	RetryAfter time.Duration // until the cooldown or the probe's lease ends; zero when closed
	Guarded    bool          // this host defers calls because its own failed in a row
	Known      bool          // the record has been read; else State is assumed
}
