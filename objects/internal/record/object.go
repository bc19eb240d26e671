package record

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// The states of a breaker.
const (
	Closed   = "closed"
	Open     = "open"
	HalfOpen = "half_open"
)

// The results of a probe in events.
const (
	ProbeSucceeded = "success"
	ProbeFailed    = "failure"
	ProbeLapsed    = "lapsed"
	ProbeReturned  = "no_verdict"
	ProbeWithdrawn = "withdrawn"
)

// maxReturned is the number of probes in a row without a verdict after which the
// dependency counts as failing: else callers that always give up early would keep
// the breaker half-open for ever.
const maxReturned = 3

// An Object is the record of a dependency: the breaker and its probe. NewObject
// makes one.
type Object struct {
	Header
	Breaker Breaker `json:"breaker"`
	Probe   *Probe  `json:"probe,omitempty"`
	Forced  *Forced `json:"override,omitempty"`

	events []Event
}

// A Breaker is the state of a dependency's circuit breaker.
type Breaker struct {
	State      string `json:"state"`
	Generation uint64 `json:"generation"` // counts the changes of State
	Run        int    `json:"run"`        // failures in a row, while closed
	Openings   int    `json:"openings"`   // since it was last closed; each doubles the cooldown
	Returned   int    `json:"returned"`   // probes without a verdict in a row
	Fence      uint64 `json:"fence"`      // the newest given to a probe
	Settled    uint64 `json:"settled"`    // the newest whose verdict was taken
	Cooldown   Span   `json:"cooldown"`   // how long it stays open
	Cooling    Clock  `json:"cooling"`    // how much of that is over
	Policy     Policy `json:"policy"`     // of the newest command, for a lapse that no command brings
	// Counted is, by incarnation, how many outcomes each host has reported in this
	// generation.
	Counted map[string]uint64 `json:"counted,omitempty"`
	// Windows is, by incarnation, what the hosts' calls came to lately. It is empty
	// unless the policy has a rate and a host has seen a bad call.
	Windows map[string]Window `json:"windows,omitempty"`
}

// A Policy says when a breaker opens and for how long.
type Policy struct {
	FailureThreshold int  `json:"failure_threshold"`
	ResetAfter       Span `json:"reset_after"`
	MaxResetAfter    Span `json:"max_reset_after"`
	// Rate takes the place of FailureThreshold if it is not zero.
	Rate Rate `json:"rate,omitzero"`
}

// A Probe is the lease of the one call that decides a half-open breaker.
type Probe struct {
	Fence   uint64 `json:"fence"`
	Holder  string `json:"holder"`
	Op      string `json:"op"`
	TTL     Span   `json:"ttl"`
	Running Clock  `json:"running"`
}

// Look changes nothing; it makes the owner read the record, or create it.
type Look struct{}

// Report tells what calls that were admitted by a closed breaker came to.
type Report struct {
	Generation uint64
	Failures   int  // since the last success among them, or since the last report
	Success    bool // one of them succeeded
	Policy     Policy
	// Host is the incarnation that reports, and Total how many successes and
	// failures it has counted so far, this report's included: a report that
	// arrives twice, or whose first answer got lost, counts once.
	Host  string
	Total uint64
}

// ClaimProbe asks for the probe of a breaker whose cooldown is over.
type ClaimProbe struct {
	Op     string
	Holder string
	TTL    time.Duration
	Policy Policy
}

// Settle tells what a probe came to.
type Settle struct {
	Generation, Fence uint64
	Verdict           Verdict
	Policy            Policy
}

// A Verdict is what a probe says about its dependency.
type Verdict int

// The verdicts.
const (
	Success Verdict = iota
	Failure
	NoVerdict
)

// Withdraw gives back what the operation was granted, because nobody awaits the
// grant any more.
type Withdraw struct{ Op string }

// Urgent implements [Command].
func (Look) Urgent() bool { return false }

// Urgent implements [Command].
func (Report) Urgent() bool { return true }

// Urgent implements [Command].
func (ClaimProbe) Urgent() bool { return false }

// Urgent implements [Command].
func (Settle) Urgent() bool { return true }

// Urgent implements [Command].
func (Withdraw) Urgent() bool { return true }

// NewObject returns the record of a dependency that has none yet.
func NewObject() Record { return &Object{Breaker: Breaker{State: Closed}} }

// DecodeObject parses a stored record that is seen at now.
func DecodeObject(data []byte, now Now) (Record, error) {
	o := &Object{}
	if err := decode(data, o); err != nil {
		return nil, err
	}
	switch o.Breaker.State {
	case Closed, Open, HalfOpen:
	default:
		return nil, fmt.Errorf("record: no breaker state: %q", o.Breaker.State)
	}
	o.each(func(c *Clock) { c.see(now) })
	return o, nil
}

// Clone implements [Record].
func (o *Object) Clone() Record {
	c := *o
	if o.Probe != nil {
		probe := *o.Probe
		c.Probe = &probe
	}
	if o.Forced != nil {
		forced := *o.Forced
		c.Forced = &forced
	}
	c.Breaker.Counted = maps.Clone(o.Breaker.Counted)
	c.Breaker.Windows = maps.Clone(o.Breaker.Windows)
	return &c
}

// Encode implements [Record].
func (o *Object) Encode(now Now) ([]byte, error) {
	o.each(func(c *Clock) { c.settle(now) })
	o.measure(now)
	return json.Marshal(o)
}

// Commit implements [Record].
func (o *Object) Commit(now Now) []Event {
	o.each(func(c *Clock) { c.commit(now) })
	events := o.events
	o.events = nil
	return events
}

// Inherit implements [Record].
func (o *Object) Inherit(seen Record, now Now) {
	old, ok := seen.(*Object)
	if !ok {
		return
	}
	o.Breaker.Fence = max(o.Breaker.Fence, old.Breaker.Fence) // a record may have been deleted and begun anew
	if old.Breaker.State == o.Breaker.State && old.Breaker.Generation == o.Breaker.Generation {
		o.Breaker.Cooling.inherit(old.Breaker.Cooling, now)
		o.Breaker.inheritWindows(&old.Breaker, now)
	}
	if old.Probe != nil && o.Probe != nil && old.Probe.Fence == o.Probe.Fence {
		o.Probe.Running.inherit(old.Probe.Running, now)
	}
	if old.Forced != nil && o.Forced != nil && old.Forced.Op == o.Forced.Op {
		o.Forced.Running.inherit(old.Forced.Running, now)
	}
}

func (o *Object) each(f func(*Clock)) {
	f(&o.Breaker.Cooling)
	o.Breaker.eachWindow(f)
	if o.Probe != nil {
		f(&o.Probe.Running)
	}
	if o.Forced != nil {
		f(&o.Forced.Running)
	}
}

// Next implements [Record].
func (o *Object) Next() (time.Duration, bool) {
	due, ok := o.nextOfBreaker()
	if o.Forced == nil || o.Forced.Running.Elapsed >= o.Forced.TTL {
		return due, ok
	}
	ttl := time.Duration(o.Forced.TTL)
	if ends := o.Forced.Running.next(ttl, ttl, &o.Header); !ok || ends < due {
		return ends, true
	}
	return due, true
}

func (o *Object) nextOfBreaker() (time.Duration, bool) {
	switch {
	case o.Probe != nil:
		return o.Probe.Running.next(lapseAfter(o.Probe.TTL), time.Duration(o.Probe.TTL), &o.Header), true
	case o.Breaker.State == Open && o.Breaker.Cooling.Elapsed < o.Breaker.Cooldown:
		return o.Breaker.Cooling.next(time.Duration(o.Breaker.Cooldown), time.Duration(o.Breaker.Cooldown), &o.Header), true
	}
	return 0, false
}

// Tick implements [Record]. A probe that lapses counts as failed: the dependency
// has not answered within the time that a working one takes.
func (o *Object) Tick(now Now) bool {
	due, ok := o.Next()
	if !ok || now.Mono < due {
		return false
	}
	if o.Probe != nil && o.Remaining(now) == 0 {
		o.events = append(o.events, Event{Probe: ProbeLapsed})
		o.open(o.Breaker.Policy, now)
	}
	return true
}

// Remaining returns how long the cooldown or the probe still takes at most; zero
// if a probe may be claimed or the breaker is closed.
func (o *Object) Remaining(now Now) time.Duration {
	switch {
	case o.Probe != nil:
		return max(0, lapseAfter(o.Probe.TTL)-o.Probe.Running.Since(now))
	case o.Breaker.State == Open:
		return max(0, time.Duration(o.Breaker.Cooldown)-o.Breaker.Cooling.Since(now))
	}
	return 0
}

// Apply implements [Record].
func (o *Object) Apply(cmd Command, now Now) (Answer, bool) {
	var (
		a       Answer
		changed bool
	)
	switch c := cmd.(type) {
	case Look, Attend:
	case Report:
		changed = o.report(c, now)
	case Totals:
		changed = o.totals(c, now)
	case ClaimProbe:
		a, changed = o.claim(c, now)
	case Settle:
		a, changed = o.settle(c, now)
	case Withdraw:
		changed = o.withdraw(c)
	case Override:
		changed = o.override(c)
	case Resign:
		changed = o.resign()
	default:
		a.Code = abi.Internal
	}
	a.Generation = o.Breaker.Generation
	return a, changed
}

// report counts failures in a row. Calls that an earlier generation admitted say
// nothing about this one.
func (o *Object) report(c Report, now Now) (changed bool) {
	b := &o.Breaker
	if b.State != Closed || c.Generation != b.Generation {
		return false
	}
	outcomes := b.uncounted(c)
	run := min(outcomes, c.Failures)
	if !c.Success || outcomes <= c.Failures {
		run += b.Run
	}
	if run >= c.Policy.FailureThreshold && !o.Forced.active(Closed, now) {
		o.open(c.Policy, now)
		return true
	}
	changed = run != b.Run
	b.Run = run
	b.countFor(c)
	return changed
}

// maxCounted bounds the hosts whose reports are told from repeats.
const maxCounted = 32

// uncounted returns how many of the outcomes of a report are new: its newest ones.
func (b *Breaker) uncounted(c Report) int {
	n := c.Failures
	if c.Success {
		n++
	}
	counted := b.Counted[c.Host]
	if c.Host == "" || counted == 0 {
		return n
	}
	if c.Total <= counted {
		return 0
	}
	if fresh := c.Total - counted; fresh < uint64(n) {
		return int(fresh)
	}
	return n
}

// countFor remembers a report for as long as a repeat of it may come.
func (b *Breaker) countFor(c Report) {
	if c.Host == "" || c.Total <= b.Counted[c.Host] {
		return
	}
	if b.Counted == nil {
		b.Counted = map[string]uint64{}
	}
	if _, ok := b.Counted[c.Host]; !ok && len(b.Counted) >= maxCounted {
		delete(b.Counted, slices.Min(slices.Collect(maps.Keys(b.Counted))))
	}
	b.Counted[c.Host] = c.Total
}

func (o *Object) claim(c ClaimProbe, now Now) (Answer, bool) {
	b := &o.Breaker
	if o.Probe != nil && o.Probe.Op == c.Op {
		return Answer{Fence: o.Probe.Fence}, false
	}
	if b.State == Closed {
		return Answer{}, false
	}
	if left := o.Remaining(now); left > 0 {
		code := abi.BreakerOpen
		if o.Probe != nil {
			code = abi.Deferred
		}
		return Answer{Code: code, RetryAfter: left}, false
	}
	o.enter(HalfOpen)
	b.Policy = c.Policy
	b.Fence = nextFence(b.Fence, now)
	o.Probe = &Probe{Fence: b.Fence, Holder: c.Holder, Op: c.Op, TTL: Span(c.TTL), Running: started()}
	return Answer{Fence: b.Fence}, true
}

// settle takes the verdict of the accepted probe and drops every other.
func (o *Object) settle(c Settle, now Now) (Answer, bool) {
	b := &o.Breaker
	if c.Fence == b.Settled {
		return Answer{}, false // the same report, sent again after its answer got lost
	}
	if o.Probe == nil || c.Generation != b.Generation || c.Fence != o.Probe.Fence {
		return Answer{Code: abi.Fenced}, false
	}
	b.Settled = c.Fence
	if c.Verdict == NoVerdict {
		b.Returned++
		o.events = append(o.events, Event{Probe: ProbeReturned})
		if b.Returned < maxReturned {
			o.Probe = nil
			return Answer{}, true
		}
	}
	if c.Verdict == Success {
		o.events = append(o.events, Event{Probe: ProbeSucceeded})
		o.close()
		return Answer{}, true
	}
	if c.Verdict == Failure {
		o.events = append(o.events, Event{Probe: ProbeFailed})
	}
	o.open(c.Policy, now)
	return Answer{}, true
}

// withdraw takes a probe back that never went out.
func (o *Object) withdraw(c Withdraw) bool {
	if o.Probe == nil || o.Probe.Op != c.Op {
		return false
	}
	o.Probe = nil
	o.events = append(o.events, Event{Probe: ProbeWithdrawn})
	return true
}

// open starts a cooldown, twice as long as the one before if the breaker has not
// been closed since. The jitter keeps breakers that opened together from probing
// together.
func (o *Object) open(p Policy, now Now) {
	b := &o.Breaker
	o.enter(Open)
	cooldown := p.ResetAfter
	for range b.Openings {
		if cooldown >= p.MaxResetAfter {
			break
		}
		cooldown *= 2
	}
	cooldown = min(cooldown, p.MaxResetAfter)
	b.Cooldown = cooldown + Span(now.Jitter*float64(cooldown)/4)
	b.Cooling = started()
	b.Policy = p
	b.Openings++
	b.Run, b.Returned = 0, 0
	o.Probe = nil
}

func (o *Object) close() {
	o.enter(Closed)
	o.Breaker.Cooldown, o.Breaker.Cooling = 0, Clock{}
	o.Breaker.Run, o.Breaker.Openings, o.Breaker.Returned = 0, 0, 0
	o.Probe = nil
}

// enter changes the state and, with it, the generation.
func (o *Object) enter(state string) {
	b := &o.Breaker
	if b.State == state {
		return
	}
	o.events = append(o.events, Event{From: b.State, To: state})
	b.State = state
	b.Generation++
	b.Counted, b.Windows = nil, nil
}
