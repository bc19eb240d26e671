package runtime

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
)

var errObject = fmt.Errorf("the function may not use this object: %w", abi.Denied)

// object returns an object that the function may use.
func (x *exchange) object(p, n uint64) (*objects.Object, string, error) {
	name, err := x.inst.memory.name(uint32(p), uint32(n))
	if err != nil {
		return nil, "", err
	}
	f := x.inst.function
	if f.engine.objects == nil || !f.cfg.allowsObject(name) {
		return nil, "", errObject
	}
	o, err := f.engine.objects.Object(objects.ID{Namespace: f.app.name, Name: name})
	return o, name, err
}

// A leaseHandle is a lease that is being acquired, or was.
type leaseHandle struct {
	x      *exchange
	object string
	cancel context.CancelFunc

	mu      sync.Mutex // guards the following
	lease   *objects.Lease
	err     error // why there is none
	dropped bool
}

var _ handle = (*leaseHandle)(nil)

var errPending = fmt.Errorf("the lease has not been granted: %w", abi.Invalid)

// grantedLease returns the handle of a lease to act under.
func grantedLease(x *exchange, number uint64) (*leaseHandle, error) {
	if number > 1<<31-1 {
		return nil, errHandle
	}
	h, err := find[*leaseHandle](x, uint32(number))
	if err != nil {
		return nil, err
	}
	lease, err := h.peek()
	switch {
	case lease == nil && err == nil:
		return nil, errPending
	case err != nil:
		return nil, err
	}
	return h, lease.Err()
}

// peek returns the lease or why there is none, neither while it is pending.
func (h *leaseHandle) peek() (*objects.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease, h.err
}

// acquire is the goroutine of a pending lease.
func (h *leaseHandle) acquire(ctx context.Context, o *objects.Object, opts objects.LeaseOptions) {
	lease, err := o.Acquire(ctx, opts)
	h.mu.Lock()
	h.lease, h.err = lease, err
	dropped := h.dropped
	h.mu.Unlock()
	if dropped && err == nil {
		h.release(lease) //nolint:contextcheck // the release must not end with the request
	}
	h.x.signal()
}

func (h *leaseHandle) ready(interest uint32) (uint32, error) {
	if interest&abi.WaitWrite != 0 {
		return 0, errKind
	}
	lease, err := h.peek()
	failed := err != nil || lease != nil && lease.Err() != nil
	switch {
	case failed:
		return abi.WaitRead | abi.WaitFailed, nil
	case lease != nil:
		return abi.WaitRead, nil
	}
	return 0, nil
}

func (h *leaseHandle) drop() {
	h.mu.Lock()
	h.dropped = true
	lease := h.lease
	h.mu.Unlock()
	h.cancel()
	if lease != nil {
		h.release(lease)
	}
}

const (
	// releaseTimeout bounds the attempts to release a lease that nobody waits
	// for. After it the lease lapses.
	releaseTimeout = 10 * time.Second
	// releasePatience is how long the end of a request waits for that, so that
	// the client's next request finds the lease free.
	releasePatience = 250 * time.Millisecond
)

// release releases the lease in the background.
func (h *leaseHandle) release(lease *objects.Lease) {
	f := h.x.inst.function
	released := make(chan struct{})
	f.tasks.Go(func() {
		defer close(released)
		ctx, cancel := context.WithTimeout(f.base, releaseTimeout)
		defer cancel()
		_ = lease.Release(ctx) // the object counts and logs it; the lease lapses
	})
	h.x.mu.Lock()
	h.x.releases = append(h.x.releases, released)
	h.x.mu.Unlock()
}

// bind makes a call one under the lease: it carries the fence, and is cut off
// when the lease is over. The result undoes the latter.
func (h *leaseHandle) bind(req *http.Request, cancel context.CancelCauseFunc) (unbind func()) {
	if h == nil {
		return func() {}
	}
	lease, _ := h.peek()
	req.Header[fenceHeader] = []string{strconv.FormatUint(lease.Fence(), 10)}
	stop := context.AfterFunc(lease.Context(), func() { cancel(abi.LeaseLost) })
	return func() { stop() }
}

// lost returns why a call may not be made under the lease any more.
func (h *leaseHandle) lost() error {
	if h == nil {
		return nil
	}
	lease, _ := h.peek()
	return lease.Err()
}

// leaseOptions reads the options of lease_acquire.
func leaseOptions(record []byte) (o objects.LeaseOptions, err error) {
	var seen [3]bool
	for len(record) > 0 {
		var f abi.Field
		if f, record, err = abi.Next(record); err != nil {
			return o, err
		}
		dst, slot := &o.TTL, 0
		switch f.Tag {
		case abi.FieldTTL:
		case abi.FieldWait:
			dst, slot = &o.Wait, 1
		case abi.FieldRenewEvery:
			dst, slot = &o.RenewEvery, 2
		default:
			if err := f.Unknown(); err != nil {
				return o, err
			}
			continue
		}
		if seen[slot] {
			return o, errField
		}
		seen[slot] = true
		if *dst, err = duration(f); err != nil {
			return o, err
		}
	}
	return o, nil
}

func hostLeaseAcquire(x *exchange, a []uint64) (int32, error) {
	record, err := guestRecord(x, a[4], a[5])
	if err != nil {
		return 0, err
	}
	opts, err := leaseOptions(record)
	if err != nil {
		return 0, err
	}
	if uint32(a[3]) > 0 {
		if opts.Name, err = x.inst.memory.name(uint32(a[2]), uint32(a[3])); err != nil {
			return 0, err
		}
	}
	o, name, err := x.object(a[0], a[1])
	if err != nil {
		return 0, err
	}
	if err := x.room(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(x.effort())
	h := &leaseHandle{x: x, object: name, cancel: cancel}
	x.tasks.Go(func() { h.acquire(ctx, o, opts) })
	return x.add(h)
}

func hostLeaseResult(x *exchange, a []uint64) (int32, error) {
	h, err := find[*leaseHandle](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	record, err := x.inst.memory.record(uint32(a[1]), abi.LeaseSize)
	if err != nil {
		return 0, err
	}
	now, err := noBlock(a[2])
	if err != nil {
		return 0, err
	}
	lease, err := h.peek()
	if lease == nil && err == nil && now {
		return 0, abi.Again
	}
	err = x.await(func() (bool, error) {
		var failed error
		lease, failed = h.peek()
		return lease != nil, failed
	})
	if err != nil {
		return 0, err
	}
	remaining := lease.Remaining()
	if err := lease.Err(); err != nil || remaining <= 0 {
		return 0, abi.LeaseLost
	}
	putWords(record, lease.Fence(), uint64(remaining))
	return 0, nil
}

func hostLeaseRelease(x *exchange, a []uint64) (int32, error) {
	h, err := find[*leaseHandle](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	now, err := noBlock(a[1])
	if err != nil {
		return 0, err
	}
	x.forget(uint32(a[0]))
	if lease, _ := h.peek(); lease != nil && !now {
		defer h.cancel()
		return 0, lease.Release(x.effort())
	}
	h.drop()
	return 0, nil
}
