package objects

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// An Outcome is what a call to a dependency came to.
type Outcome int

// The outcomes, with the numbers of the guest ABI.
const (
	Success  Outcome = abi.OutcomeSuccess  // the dependency works
	Failure  Outcome = abi.OutcomeFailure  // it does not
	Canceled Outcome = abi.OutcomeCanceled // the call was given up before its end: no verdict
	Excluded Outcome = abi.OutcomeExcluded // it ended in an error that says nothing about the dependency: no verdict
)

// reportEvery is the pause between two reports about one dependency, so that a
// storm of failures is a few commands and not one for each.
const reportEvery = 50 * time.Millisecond

// An Admission lets one call go out. It is a value: keep it with the call.
type Admission struct {
	dependency        *Dependency
	generation, fence uint64
	alone             bool          // a probe without the store
	counted           bool          // against the limit of calls under way
	trial             bool          // the one call that the host's streak guard lets through
	begun             time.Duration // by the host's clock, if it matters
}

// Probe reports whether this call decides the breaker's state.
func (a Admission) Probe() bool { return a.fence != 0 }

// Generation returns the breaker's generation at the time of the admission.
func (a Admission) Generation() uint64 { return a.generation }

// Fence returns the probe's fence, zero for other calls.
func (a Admission) Fence() uint64 { return a.fence }

// Report says what the call came to. A probe's report, and the failure that
// opens the breaker, return after the store has committed the change, or when ctx
// ends; the change may be committed later then. Every other report returns at
// once, and while nothing failed lately it sends nothing. Errors: abi.Fenced if
// the probe is no longer the accepted one, so that its outcome was dropped; a
// *Refusal of unavailable if the store does not answer; those of ctx.
func (a Admission) Report(ctx context.Context, o Outcome) error {
	d := a.dependency
	if a.counted {
		d.inFlight.Add(-1)
	}
	switch {
	case a.alone:
		if o == Success {
			d.closeAlone(a)
		}
	case a.fence != 0:
		return d.settle(ctx, a, o)
	case o == Success:
		if d.hot.Load() {
			return d.ended(ctx, a, o)
		}
	case o == Failure:
		return d.ended(ctx, a, o)
	case a.trial:
		d.tryAgain()
	}
	return nil
}

// ended takes the verdict of a call.
func (d *Dependency) ended(ctx context.Context, a Admission, o Outcome) error {
	switch m := d.meter.Load(); {
	case m != nil:
		return d.count(ctx, m, a, o)
	case o == Failure:
		return d.failed(ctx, a)
	}
	d.succeeded(a)
	return nil
}

// A tally is what a host has not told the owner yet. Dependency.mu guards it.
type tally struct {
	failures   int           // since the last success
	total      uint64        // outcomes counted so far, in any generation
	success    bool          // one came before them
	sent       run           // on its way to the owner
	generation uint64        // that what was sent belongs to
	streak     int           // failures in a row on this host
	trips      int           // how often the streak guard acted in a row
	sending    bool          // the reporting goroutine runs
	stalled    bool          // the newest report could not be made
	urgent     chan struct{} // wakes the reporting goroutine before its pause is over
	next       *round        // of the report that will be sent next
}

// A run is what one report says.
type run struct {
	failures int
	success  bool
}

// A round is one report; done is closed when its outcome is known.
type round struct {
	done chan struct{}
	err  error
}

// reset forgets what calls of another generation came to.
func (t *tally) reset() {
	t.failures, t.success, t.streak, t.trips = 0, false, 0, 0
}

// expected returns the run of failures that the record will show when all that
// this host knows has been reported.
func (t *tally) expected(recorded int) int {
	n := recorded
	if t.sent.success {
		n = 0
	}
	n += t.sent.failures
	if t.success {
		n = 0
	}
	return n + t.failures
}

// restore puts back what was sent in vain, before what has come since.
func (t *tally) restore(sent run) {
	if !t.success {
		t.failures += sent.failures
		t.success = sent.success
	}
}

// current reports whether a belongs to the generation that the host knows, and
// returns the recorded run of failures. The caller holds mu.
func (d *Dependency) current(a Admission) (recorded int, ok bool) {
	v := d.view.Load()
	if v == nil || v.ended || !v.closed || v.object.Breaker.Generation != a.generation {
		return 0, false
	}
	return v.object.Breaker.Run, true
}

// succeeded ends the run of failures, here and in the record.
func (d *Dependency) succeeded(a Admission) {
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded, ok := d.current(a)
	if !ok {
		return
	}
	t := &d.tally
	t.streak, t.trips, t.failures = 0, 0, 0
	if !t.success && (recorded > 0 || t.sent.failures > 0) {
		t.total++
	}
	t.success = recorded > 0 || t.sent.failures > 0
	d.guard.Store(0)
	if t.success {
		d.report()
	}
	d.cool()
}

// failed counts a failure. The one that opens the breaker waits for the record, so
// that whoever saw it fail also sees the breaker open.
func (d *Dependency) failed(ctx context.Context, a Admission) error {
	d.mu.Lock()
	recorded, ok := d.current(a)
	if !ok {
		d.mu.Unlock()
		return nil
	}
	t, p := &d.tally, d.policy.Load()
	t.failures++
	t.total++
	t.streak++
	d.hot.Store(true)
	if t.streak >= p.FailureThreshold && (a.trial || d.guard.Load() == 0) {
		d.setGuard(p)
	}
	opens, stalled := t.expected(recorded) >= p.FailureThreshold, t.stalled
	r := d.report()
	if opens && !stalled {
		t.hurry()
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

// await waits for the outcome of a report. Who comes after a store that does not
// answer in time need not wait as well.
func (d *Dependency) await(ctx context.Context, r *round) error {
	patience := time.NewTimer(storePatience)
	defer patience.Stop()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return contextError(ctx)
	case <-patience.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	default:
		d.tally.stalled = true
		return unavailable()
	}
}

// setGuard defers this host's calls, for as long as the breaker would be open
// after as many openings. The caller holds mu.
func (d *Dependency) setGuard(p *Policy) {
	delay := min(p.ResetAfter<<min(d.tally.trips, 16), p.MaxResetAfter)
	d.tally.trips++
	d.guard.Store(int64(d.host.now().Mono + delay + rand.N(delay/4+1)))
}

// tryAgain lets the next call be the trial of a guarded host.
func (d *Dependency) tryAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.guard.Load() != 0 {
		d.guard.Store(int64(d.host.now().Mono))
	}
}

// cool sets whether successes matter. The caller holds mu.
func (d *Dependency) cool() {
	t, v := &d.tally, d.view.Load()
	recorded := v != nil && v.object.Breaker.Run > 0
	m := d.meter.Load()
	if m != nil {
		m.suspicious.Store(d.suspected())
	}
	d.hot.Store(m != nil || recorded || t.streak > 0 || t.failures > 0 || t.success || t.sent != run{})
}

// report makes sure that what the tally holds is sent, and returns the round that
// it will be part of. The caller holds mu.
func (d *Dependency) report() *round {
	t := &d.tally
	if t.next == nil {
		t.next = &round{done: make(chan struct{})}
	}
	next := t.next
	if !t.sending {
		t.urgent = make(chan struct{}, 1)
		t.sending = d.host.start(d.sendReports)
		if !t.sending {
			next.err = unavailable()
			close(next.done)
			t.next = nil
		}
	}
	return next
}

func (t *tally) hurry() {
	select {
	case t.urgent <- struct{}{}:
	default:
	}
}

// sendReports runs while there is something to tell: the first failure at once,
// what follows after a pause.
func (d *Dependency) sendReports() {
	for {
		cmd, r := d.nextReport()
		if r == nil {
			return
		}
		if cmd != nil {
			a := d.node.post(cmd).await(d.host.ctx)
			d.reported(r, a)
		}
		d.rest()
	}
}

// nextReport takes what there is to tell, which is nil if that has been told
// before. It ends the goroutine if there is nothing any more, or if the host has
// stopped.
func (d *Dependency) nextReport() (record.Command, *round) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, v, r := &d.tally, d.view.Load(), d.tally.next
	t.next = nil
	stopped := v == nil || v.ended || d.host.ctx.Err() != nil
	var (
		cmd  record.Command
		more bool
	)
	switch m := d.meter.Load(); {
	case stopped:
	case m != nil:
		cmd, more = d.nextTotals(m)
	default:
		cmd, more = d.nextRun()
	}
	if r == nil {
		r = &round{done: make(chan struct{})}
	}
	switch {
	case !more:
		if stopped {
			r.err = unavailable()
		}
		close(r.done)
		t.sending, t.stalled = false, false
		d.cool()
		return nil, nil
	case cmd == nil:
		close(r.done)
	default:
		t.generation = v.object.Breaker.Generation
	}
	return cmd, r
}

// nextRun takes what the tally holds. The caller holds mu.
func (d *Dependency) nextRun() (cmd record.Command, more bool) {
	t := &d.tally
	if t.failures == 0 && !t.success {
		return nil, false
	}
	t.sent = run{t.failures, t.success}
	t.failures, t.success = 0, false
	return record.Report{
		Generation: d.view.Load().object.Breaker.Generation,
		Failures:   t.sent.failures, Success: t.sent.success,
		Policy: d.policy.Load().record(),
		Host:   incarnationOf(d.host.owner), Total: t.total,
	}, true
}

// reported takes the answer to a report.
func (d *Dependency) reported(r *round, a reply) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, v := &d.tally, d.view.Load()
	sent := t.sent
	t.sent = run{}
	t.stalled = a.Code != 0
	if t.stalled {
		r.err = a.refusal()
		if v != nil && v.object.Breaker.Generation == t.generation {
			t.restore(sent)
		}
		if m := d.meter.Load(); m != nil {
			m.unsent()
		}
	}
	close(r.done)
	d.cool()
}

// rest is the pause between reports.
func (d *Dependency) rest() {
	d.mu.Lock()
	stalled, urgent := d.tally.stalled, d.tally.urgent
	d.mu.Unlock()
	if stalled {
		pause(d.host.ctx, jittered(2*time.Second))
		return
	}
	t := time.NewTimer(d.reportPause())
	defer t.Stop()
	select {
	case <-t.C:
	case <-urgent:
	case <-d.host.ctx.Done():
	}
}

// settle brings a probe's outcome to the owner, for as long as the fleet may be
// waiting for it, whether or not the caller still does.
func (d *Dependency) settle(ctx context.Context, a Admission, o Outcome) error {
	cmd := record.Settle{Generation: a.generation, Fence: a.fence, Verdict: verdict(o), Policy: d.policy.Load().record()}
	done := make(chan error, 1)
	//nolint:contextcheck // the verdict outlives its caller
	if !d.host.start(func() { done <- d.deliver(cmd) }) {
		return unavailable()
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func verdict(o Outcome) record.Verdict {
	switch o {
	case Success:
		return record.Success
	case Failure:
		return record.Failure
	case Canceled, Excluded:
	}
	return record.NoVerdict
}

// deliver repeats the verdict until it is taken or the probe's time is over.
func (d *Dependency) deliver(cmd record.Settle) error {
	ctx, cancel := context.WithTimeout(d.host.ctx, d.policy.Load().ProbeTTL)
	defer cancel()
	for {
		a := d.node.ask(ctx, cmd)
		switch {
		case a.Code == 0:
			return nil
		case a.Code == abi.Fenced:
			d.host.metrics.staleFences.WithLabelValues(staleProbe).Inc()
			return fmt.Errorf("objects: the probe is over: %w", abi.Fenced)
		case a.Code != abi.Unavailable, !pause(ctx, jittered(500*time.Millisecond)):
			return a.refusal()
		}
	}
}
