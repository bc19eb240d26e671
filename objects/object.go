package objects

import (
	"context"

	"github.com/edgehost/edgehost/kvbucket"
)

// An Object has leases and state. Its methods may be called from any number of
// goroutines.
type Object struct{}

// Acquire takes a lease of the object, or waits for it in the order of arrival
// for up to o.Wait. Errors: a *Refusal of lease_busy, overloaded (the page of the
// class is full, or too many commands wait) or unavailable; abi.Invalid; those of
// ctx.
func (o *Object) Acquire(ctx context.Context, opts LeaseOptions) (*Lease, error) {
	return nil, errUnbuilt
}

// Get returns the value of a state key and its revision, which Put takes. A key
// that was never written has no value and is no error. With a lease, Get first
// writes the lease's fence into the key: from then on no holder with a lower
// fence can write it, and what Get returns stays true until the holder's own Put.
// Without a lease the value is a hint that Put checks. Errors: abi.LeaseLost if
// the lease is over (nothing was sent), abi.Fenced if the key has seen a newer
// fence, abi.Conflict (a *ConflictError) if others kept changing the key,
// abi.Invalid, a *Refusal of unavailable, those of ctx.
func (o *Object) Get(ctx context.Context, key string, lease *Lease) (value []byte, rev kvbucket.Revision, err error) {
	return nil, 0, errUnbuilt
}

// Put writes a state key if last is its revision, and returns the new one. A last
// of zero creates the key. With a lease the key must hold the lease's fence, as
// Get leaves it. Errors: those of Get, and abi.TooLarge for a value above
// abi.MaxState. After a *Refusal of unavailable the write may have been applied:
// read again.
func (o *Object) Put(ctx context.Context, key string, value []byte, last kvbucket.Revision, lease *Lease) (kvbucket.Revision, error) {
	return 0, errUnbuilt
}
