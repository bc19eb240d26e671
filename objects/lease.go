package objects

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// LeaseOptions describe a lease to acquire. Zero values mean the defaults.
type LeaseOptions struct {
	// Name tells the leases of one object apart. Default "main".
	Name string
	// TTL is how long the lease outlives its last renewal, at least MinTTL and at
	// most MaxTTL. Default 15 s: a store election takes 4 to 9 s.
	TTL time.Duration
	// RenewEvery is the pause between renewals, at most half of TTL and at least a
	// twentieth of it or a second: each is a write. Default a third of TTL.
	RenewEvery time.Duration
	// Wait is how long to queue for a lease that is held. Default 0: not at all.
	Wait time.Duration
}

// The bounds of a lease's TTL.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// resolve returns the options with their defaults, or an error that unwraps to
// abi.Invalid.
func (o LeaseOptions) resolve() (LeaseOptions, error) {
	o.Name = cmp.Or(o.Name, "main")
	o.TTL = cmp.Or(o.TTL, 15*time.Second)
	o.RenewEvery = cmp.Or(o.RenewEvery, o.TTL/3)
	shortest := min(o.TTL/20, time.Second)
	switch {
	case o.TTL < MinTTL || o.TTL > MaxTTL:
		return o, invalid("ttl %v is not between %v and %v", o.TTL, MinTTL, MaxTTL)
	case o.RenewEvery < shortest || o.RenewEvery > o.TTL/2:
		return o, invalid("renewal every %v is not between %v and half of the ttl %v", o.RenewEvery, shortest, o.TTL)
	case o.Wait < 0:
		return o, invalid("wait %v is below zero", o.Wait)
	}
	return o, checkName("lease", o.Name)
}

// A Lease is the right to act for an object until it is released or lost. The
// host renews it. Its methods may be called from any number of goroutines.
type Lease struct {
	object *Object
	opts   LeaseOptions
	node   *node
	key    string // within the page
	fence  uint64

	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.Context // ends when the renewer is to end
	halt   context.CancelFunc
	joined chan struct{} // closed when the renewer has ended

	renewals atomic.Int64 // that were sent, which numbers them
	ending   atomic.Bool
	ended    chan struct{} // closed when endError is set
	endError error

	mu      sync.Mutex // guards the fields below
	sent    stamp      // when the attempt was sent that the grant or newest renewal was committed for
	over    bool
	guarded map[string]kvbucket.Revision // state keys: the newest revision that this holder has written
}

func newLease(ctx context.Context, o *Object, opts LeaseOptions, b *bid, a record.Answer) *Lease {
	l := &Lease{
		object: o, opts: opts, node: b.node, key: b.cmd.Lease, fence: a.Fence,
		joined:  make(chan struct{}),
		ended:   make(chan struct{}),
		sent:    b.sent[a.Attempt-1],
		guarded: map[string]kvbucket.Revision{},
	}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	l.stop, l.halt = context.WithCancel(o.host.ctx)
	return l
}

// Fence returns the number that orders the holders of this lease: every grant has
// a larger one than all before. Whoever performs an effect under the lease passes
// it on, and whoever takes the effect refuses a fence below the newest seen.
func (l *Lease) Fence() uint64 { return l.fence }

// Context ends with the lease: its cause is abi.LeaseLost if the lease was lost,
// context.Canceled after Release. It carries the values of the context given to
// Acquire, not its end.
func (l *Lease) Context() context.Context { return l.ctx }

// Err returns nil while the holder may act, and abi.LeaseLost for ever after the
// lease was lost or released. It looks at the clocks, so it is right even if a
// timer is late.
func (l *Lease) Err() error {
	if l.Remaining() == 0 {
		return abi.LeaseLost
	}
	return nil
}

// Remaining returns how long the holder may act if no renewal succeeds; zero once
// the lease is over.
func (l *Lease) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return 0
	}
	left := holderTime(l.opts.TTL) - l.sent.until(l.object.host.clock())
	if left <= 0 {
		l.over = true // for ever: a clock may go back
		return 0
	}
	return left
}

// holderTime returns how long a holder may act after it sent the attempt that was
// committed.
func holderTime(ttl time.Duration) time.Duration { return ttl * 8 / 10 }

// keep starts the renewer. It reports false if the host closes.
func (l *Lease) keep() bool {
	h := l.object.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.leases[l] = struct{}{}
	h.tasks.Go(l.renew)
	return true
}

// renew keeps the lease until it is told to stop, or the lease is lost. A renewal
// that fails is tried again until the holder's deadline: the store may be electing
// a leader. It looks at the clocks more often than it renews, because a timer does
// not notice that the machine was suspended.
func (l *Lease) renew() {
	defer close(l.joined)
	due := time.Now().Add(l.pace())
	for {
		left := l.Remaining()
		if left == 0 {
			l.lose("deadline")
			return
		}
		if !pause(l.stop, min(left, time.Until(due), l.opts.TTL/10)) {
			return
		}
		if time.Now().Before(due) || l.Err() != nil {
			continue
		}
		switch l.tryRenew() {
		case 0:
			due = time.Now().Add(l.pace())
		case abi.LeaseLost:
			l.lose("taken")
			return
		default:
			l.object.host.metrics.leaseFailures.WithLabelValues("renew", "unavailable").Inc()
			due = time.Now().Add(jittered(min(l.opts.TTL/20, time.Second)))
		}
	}
}

// pace returns the time to the next renewal, within a tenth of what is asked for,
// so that leases granted together are not renewed together.
func (l *Lease) pace() time.Duration {
	d := l.opts.RenewEvery
	return d*9/10 + rand.N(d/5+1)
}

// tryRenew makes one attempt of the renewer.
func (l *Lease) tryRenew() abi.Code {
	ctx, cancel := context.WithTimeout(l.stop, min(l.opts.TTL/6, l.Remaining()))
	defer cancel()
	return l.extend(ctx)
}

// extend makes the owner commit that the lease is held after this call began. Its
// moment is taken before it is sent: that is when the owner's clock for the lease
// starts at the earliest.
func (l *Lease) extend(ctx context.Context) abi.Code {
	sent, attempt := l.object.host.clock(), int(l.renewals.Add(1))
	a := l.node.ask(ctx, record.Renew{Lease: l.key, Fence: l.fence, Renewal: attempt})
	if a.Code != 0 {
		return a.Code
	}
	if a.Attempt == attempt {
		l.mu.Lock()
		l.sent = sent
		l.mu.Unlock()
	}
	return 0
}

// lose ends the lease without the holder's will. It is final: what the owner does
// with a renewal that is still on its way changes nothing here.
func (l *Lease) lose(why string) {
	h := l.object.host
	l.finish(abi.LeaseLost)
	h.metrics.leaseFailures.WithLabelValues("renew", "lost").Inc()
	h.log.Warn("a lease was lost", "object", l.object.id.String(), "lease", l.opts.Name, "fence", l.fence, "why", why)
}

// finish ends the lease for its holder and reports whether it was alive.
func (l *Lease) finish(cause error) (alive bool) {
	alive = l.Err() == nil
	if !alive {
		cause = abi.LeaseLost
	}
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.halt()
	l.cancel(cause)
	h := l.object.host
	h.mu.Lock()
	delete(h.leases, l)
	h.mu.Unlock()
	return alive
}

// Release gives the lease back. It first waits for the renewal under way to end,
// then until the store has committed, for a second or two at most. Errors:
// abi.LeaseLost if the lease was lost before, a *Refusal of unavailable if the store
// did not answer; then the lease ends when the store does, or lapses. Releasing
// again waits for what the first call does and returns the same, or the error of
// ctx.
func (l *Lease) Release(ctx context.Context) error { return l.end(ctx, context.Canceled) }

func (l *Lease) end(ctx context.Context, cause error) error {
	if l.ending.CompareAndSwap(false, true) {
		defer close(l.ended)
		l.endError = l.endOnce(ctx, cause)
		return l.endError
	}
	select {
	case <-l.ended:
		return l.endError
	case <-ctx.Done():
		return contextError(ctx)
	}
}

func (l *Lease) endOnce(ctx context.Context, cause error) error {
	l.halt()
	<-l.joined // else a renewal could follow the release
	if !l.finish(cause) {
		return fmt.Errorf("objects: release: %w", abi.LeaseLost)
	}
	return l.giveBack(ctx)
}

// giveBack tells the owner.
func (l *Lease) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, min(l.opts.TTL, 2*storePatience))
	defer cancel()
	defer context.AfterFunc(l.object.host.ctx, cancel)() //nolint:contextcheck // then the lease lapses
	for again := false; ; again = true {
		a := l.node.post(record.Release{Lease: l.key, Fence: l.fence}).await(ctx)
		if a.Code == 0 || again && a.Code == abi.LeaseLost { // the first try was applied
			return nil
		}
		if a.Code == abi.Unavailable && pause(ctx, jittered(min(l.opts.TTL/10, time.Second))) {
			continue
		}
		l.object.host.metrics.leaseFailures.WithLabelValues("release", a.Code.String()).Inc()
		return a.refusal()
	}
}
