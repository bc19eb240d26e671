package edge

import (
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// An Object is an object of the fleet that the manifest lets the function use,
// by its name, such as "guild-settings/42". It has leases and state.
type Object string

// LeaseOptions say which lease is wanted and how. The zero value asks for the
// lease "main" with the host's times, and does not wait.
type LeaseOptions struct {
	Name       string        // "main" if empty
	TTL        time.Duration // how long the lease lives when its holder falls silent
	RenewEvery time.Duration // how often the host renews it
	Wait       time.Duration // how long to queue for it
}

// A Lease is held by at most one holder at a time, until it is released, lost,
// or the request ends. The host renews it.
type Lease struct {
	handle   int32
	op       string
	fence    uint64
	released bool
}

// Acquire takes a lease. It fails with LeaseBusy and a retry time if another
// holder has it for longer than Wait, with Unavailable if the store does not
// answer, with Denied if the manifest does not list the object, and with Invalid
// if a duration is below zero.
func (o Object) Acquire(options LeaseOptions) (*Lease, error) {
	op := "lease " + string(o)
	if min(options.TTL, options.RenewEvery, options.Wait) < 0 {
		return nil, &CallError{Op: op, Code: Invalid, Detail: "a duration is below zero"}
	}
	h := host.Current().LeaseAcquire(string(o), options.Name, options.record())
	if h < 0 {
		return nil, failure(h, op)
	}
	return granted(h, op)
}

func (o LeaseOptions) record() []byte {
	var b []byte
	for _, field := range []struct {
		tag   abi.Tag
		value time.Duration
	}{{abi.FieldTTL, o.TTL}, {abi.FieldRenewEvery, o.RenewEvery}, {abi.FieldWait, o.Wait}} {
		if field.value > 0 {
			b = abi.AppendNumber(b, field.tag, uint64(field.value))
		}
	}
	return b
}

// FunctionLease returns the lease that the manifest puts around the function.
// It fails with NotFound if there is none. The host releases it.
func FunctionLease() (*Lease, error) { return granted(abi.HandleFunctionLease, "function lease") }

// granted waits for the lease's first result.
func granted(handle int32, op string) (*Lease, error) {
	var g host.Grant
	if code := host.Current().LeaseResult(handle, &g, 0); code < 0 {
		return nil, failure(code, op)
	}
	return &Lease{handle: handle, op: op, fence: g.Fence}, nil
}

// Fence returns the lease's fencing token. It is larger than that of every
// earlier grant, so what the lease guards can refuse a holder of the past.
func (l *Lease) Fence() uint64 { return l.fence }

// Err asks the host: nil while the lease is held, LeaseLost afterwards.
func (l *Lease) Err() error {
	_, err := l.current()
	return err
}

// Remaining returns how long the holder may act if no further renewal succeeds,
// zero once the lease is lost.
func (l *Lease) Remaining() time.Duration {
	g, err := l.current()
	if err != nil {
		return 0
	}
	return remaining(g.RemainingNanos)
}

func (l *Lease) current() (host.Grant, error) {
	var g host.Grant
	if l.released {
		return g, &CallError{Op: l.op, Code: LeaseLost, Detail: "released"}
	}
	return g, check(host.Current().LeaseResult(l.handle, &g, abi.FlagNoBlock), l.op)
}

// Release gives the lease back and returns when that is stored. It fails with
// LeaseLost if the lease was lost before, and with Unavailable if the store does
// not answer; the lease then lapses by itself. The function's own lease cannot be
// released. Only the first call does anything.
func (l *Lease) Release() error {
	if l.released {
		return nil
	}
	code := host.Current().LeaseRelease(l.handle, 0)
	l.released = code != int32(Invalid)
	return check(code, l.op)
}

// A Revision counts the changes of a state value. Zero is the revision of a
// value that does not exist.
type Revision uint64

// Get returns the value of a key in the object's state, of at most 48 KiB, with
// its revision for Put. A key without a value is NotFound, with the revision
// that creates it. Under a lease of the object (nil for none) it also keeps
// holders with lower fences from writing the key, and fails with Fenced if one
// with a higher fence was there. Each name of a lease has keys of its own; no
// lease sees those of "main".
func (o Object) Get(key string, lease *Lease) ([]byte, Revision, error) {
	var revision uint64
	value, n := fill(make([]byte, 0, 512), func(p []byte) int32 {
		return host.Current().StateGet(string(o), key, lease.id(), p, &revision)
	})
	if n < 0 {
		return nil, Revision(revision), failure(n, "get "+string(o)+" "+key)
	}
	return value, Revision(revision), nil
}

// Put replaces the value of a key if its revision is still last, and returns the
// new one. It fails with Conflict, CurrentRevision(err) saying which revision
// was found. Under a lease the key must have been read under it, and a later
// holder that has touched the key makes it fail with Fenced. After Unavailable
// the put may have been applied: Get tells.
func (o Object) Put(key string, value []byte, last Revision, lease *Lease) (Revision, error) {
	var revision uint64
	code := host.Current().StatePut(string(o), key, int64(last), lease.id(), value, &revision)
	if code < 0 {
		return 0, failure(code, "put "+string(o)+" "+key)
	}
	return Revision(revision), nil
}

// id returns the lease's handle, zero for no lease.
func (l *Lease) id() int32 {
	if l == nil {
		return 0
	}
	return l.handle
}
