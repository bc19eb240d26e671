//go:build !wasip1

package edgetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// leaseTime is the time that a held lease always has left.
const leaseTime = 12 * time.Second

// mainLease is the lease that an empty name means, and whose keys are seen
// without a lease.
const mainLease = "main"

type leaseKey struct{ object, name string }

// A lease is what the store knows of one. It stays after its holder has gone,
// with no fence.
type lease struct {
	fence      uint64 // of the grant in force
	elsewhere  bool   // held by somebody else
	retryAfter time.Duration
}

// A grant is what one holder knows of its lease.
type grant struct {
	key      leaseKey
	fence    uint64
	released bool
}

// AllowObjects lets the function use objects, as the manifest does: by their
// names, or all below a prefix such as "guild-settings/*".
func (h *Host) AllowObjects(patterns ...string) {
	h.with(func() { h.objects = append(h.objects, patterns...) })
}

// HoldLease gives a lease to somebody else: who asks for it gets LeaseBusy with
// the retry time, and a holder has lost it.
func (h *Host) HoldLease(object, name string, retryAfter time.Duration) {
	h.with(func() {
		h.fence++
		h.leases[leaseKey{object, name}] = &lease{fence: h.fence, elsewhere: true, retryAfter: retryAfter}
	})
}

// LoseLease ends a lease: its holder gets LeaseLost from now on, and the next
// one to ask is granted it.
func (h *Host) LoseLease(object, name string) {
	h.with(func() { delete(h.leases, leaseKey{object, name}) })
}

// FunctionLease puts a lease around the handler, as the manifest does.
func (h *Host) FunctionLease(object, name string) {
	h.with(func() { h.function = &leaseKey{object, name} })
}

// allowed reports whether the function may use an object. The lock is held.
func (h *Host) allowed(object string) error {
	if err := named(object); err != nil {
		return err
	}
	if !slices.ContainsFunc(h.objects, func(pattern string) bool {
		prefix, below := strings.CutSuffix(pattern, "*")
		return pattern == object || below && len(object) > len(prefix) && strings.HasPrefix(object, prefix)
	}) {
		return refusal(abi.Denied, "the manifest does not list the object")
	}
	return nil
}

// grant takes a lease if it is free. The lock is held.
func (h *Host) grant(key leaseKey) (*grant, error) {
	if l, ok := h.leases[key]; ok {
		retry := l.retryAfter
		if !l.elsewhere {
			retry = leaseTime
		}
		return nil, &edge.CallError{Code: abi.LeaseBusy, RetryAfter: retry, Detail: "held"}
	}
	h.fence++
	h.leases[key] = &lease{fence: h.fence}
	return &grant{key: key, fence: h.fence}, nil
}

// held returns nil while a grant is in force.
func (h *Host) held(g *grant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inForce(g)
}

// inForce is held with the lock held.
func (h *Host) inForce(g *grant) error {
	if l, ok := h.leases[g.key]; g.released || !ok || l.fence != g.fence {
		return refusal(abi.LeaseLost, "the lease is over")
	}
	return nil
}

// release gives a lease back.
func (h *Host) release(g *grant) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.inForce(g); err != nil {
		return err
	}
	g.released = true
	delete(h.leases, g.key)
	return nil
}

// acquireFunctionLease takes the lease around the function, if there is one.
func (x *exchange) acquireFunctionLease() int32 {
	x.host.mu.Lock()
	defer x.host.mu.Unlock()
	if x.host.function == nil {
		return 0
	}
	g, err := x.host.grant(*x.host.function)
	if err != nil {
		return x.result(0, err)
	}
	x.handles[abi.HandleFunctionLease] = g
	return 0
}

// LeaseAcquire implements host.Functions.
func (x *exchange) LeaseAcquire(object, name string, options []byte) int32 {
	x.called("lease_acquire")
	err := fields(options, func(f abi.Field) (bool, error) {
		if f.Tag != abi.FieldTTL && f.Tag != abi.FieldWait && f.Tag != abi.FieldRenewEvery {
			return false, nil
		}
		_, err := nanoseconds(f)
		return true, err
	})
	if name == "" {
		name = mainLease
	}
	if err = errors.Join(err, named(name)); err != nil {
		return x.result(0, err)
	}
	x.host.mu.Lock()
	defer x.host.mu.Unlock()
	if err := x.host.allowed(object); err != nil {
		return x.result(0, err)
	}
	g, err := x.host.grant(leaseKey{object, name})
	if err != nil {
		return x.result(x.add(err)) // lease_result says it
	}
	return x.result(x.add(g))
}

// LeaseResult implements host.Functions.
func (x *exchange) LeaseResult(h int32, out *host.Grant, flags uint32) int32 {
	x.called("lease_result")
	if err := flagsKnown(flags); err != nil {
		return x.result(0, err)
	}
	if busy, ok := x.handles[h].(error); ok {
		return x.result(0, busy)
	}
	g, err := handle[*grant](x, h)
	if err == nil {
		err = x.host.held(g)
	}
	if err != nil {
		return x.result(0, err)
	}
	*out = host.Grant{Fence: g.fence, RemainingNanos: int64(leaseTime)}
	return 0
}

// LeaseRelease implements host.Functions.
func (x *exchange) LeaseRelease(h int32, flags uint32) int32 {
	x.called("lease_release")
	if err := flagsKnown(flags); err != nil {
		return x.result(0, err)
	}
	if _, failed := x.handles[h].(error); failed {
		delete(x.handles, h)
		return 0
	}
	g, err := handle[*grant](x, h)
	if err == nil && h == abi.HandleFunctionLease {
		err = refusal(abi.Invalid, "the function's lease is the host's")
	}
	if err != nil {
		return x.result(0, err)
	}
	delete(x.handles, h)
	return x.result(0, x.host.release(g))
}
