package objects

import (
	"context"
	"time"
)

// LeaseOptions describe a lease to acquire. Zero values mean the defaults.
type LeaseOptions struct {
	// Name tells the leases of one object apart. Default "main".
	Name string
	// TTL is how long the lease outlives its last renewal, at least MinTTL and at
	// most MaxTTL. Default 15 s: a store election takes 4 to 9 s.
	TTL time.Duration
	// RenewEvery is the pause between renewals, at most half of TTL. Default a
	// third of TTL.
	RenewEvery time.Duration
	// Wait is how long to queue for a lease that is held. Default 0: not at all.
	Wait time.Duration
}

// The bounds of a lease's TTL.
const (
	MinTTL = 100 * time.Millisecond
	MaxTTL = 24 * time.Hour
)

// A Lease is the right to act for an object until it is released or lost. The
// host renews it. Its methods may be called from any number of goroutines.
type Lease struct{}

// Fence returns the number that orders the holders of this lease: every grant has
// a larger one than all before. Whoever performs an effect under the lease passes
// it on, and whoever takes the effect refuses a fence below the newest seen.
func (l *Lease) Fence() uint64 { return 0 }

// Context ends with the lease: its cause is abi.LeaseLost if the lease was lost,
// context.Canceled after Release. It carries the values of the context given to
// Acquire, not its end.
func (l *Lease) Context() context.Context { return nil }

// Err returns nil while the holder may act, and abi.LeaseLost for ever after the
// lease was lost or released. It looks at the clocks, so it is right even if a
// timer is late.
func (l *Lease) Err() error { return errUnbuilt }

// Remaining returns how long the holder may act if no renewal succeeds; zero once
// the lease is over.
func (l *Lease) Remaining() time.Duration { return 0 }

// Release gives the lease back. It first waits for the renewal under way to end,
// then retries until the store has committed, ctx ends, or the lease would have
// lapsed by itself. Errors: abi.LeaseLost if the lease was lost before, a *Refusal
// of unavailable if the store did not answer; then the lease lapses. Releasing
// again returns what the first call did.
func (l *Lease) Release(ctx context.Context) error { return errUnbuilt }
