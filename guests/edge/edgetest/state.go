//go:build !wasip1

package edgetest

import (
	"bytes"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
)

type stateKey struct{ object, lease, key string }

type stateValue struct {
	data     []byte // nil if there is no value, but perhaps a fence
	revision uint64
	fence    uint64
}

// SetState changes a state value of the lease "main", as another guest would,
// and returns its revision.
func (h *Host) SetState(object, key string, value []byte) (revision edge.Revision) {
	h.with(func() {
		v := h.value(object, mainLease, key)
		v.data = append([]byte{}, value...)
		revision = edge.Revision(h.touch(v))
	})
	return revision
}

// State returns a state value of the lease "main", and false if there is none.
func (h *Host) State(object, key string) (value []byte, ok bool) {
	h.with(func() {
		v := h.value(object, mainLease, key)
		value, ok = bytes.Clone(v.data), v.data != nil
	})
	return value, ok
}

// value returns the entry of a key, an empty one if there is none. The lock is
// held, here and below.
func (h *Host) value(object, lease, key string) *stateValue {
	k := stateKey{object, lease, key}
	if h.state[k] == nil {
		h.state[k] = &stateValue{}
	}
	return h.state[k]
}

func (h *Host) touch(v *stateValue) uint64 {
	h.revision++
	v.revision = h.revision
	return v.revision
}

// stateFor returns the entry of a key for the holder of a lease, or for anybody
// with handle zero.
func (x *exchange) stateFor(object, key string, lease int32) (v *stateValue, fence uint64, err error) {
	if err = x.host.allowed(object); err != nil {
		return nil, 0, err
	}
	if err = named(key); err != nil {
		return nil, 0, err
	}
	if lease == 0 {
		return x.host.value(object, mainLease, key), 0, nil
	}
	g, err := handle[*grant](x, lease)
	if err != nil {
		return nil, 0, err
	}
	if g.key.object != object {
		return nil, 0, refusal(abi.Invalid, "the lease is of another object")
	}
	// A lease in force has the highest fence: only the host that grants is here.
	return x.host.value(object, g.key.name, key), g.fence, x.host.inForce(g)
}

// StateGet implements host.Functions.
func (x *exchange) StateGet(object, key string, lease int32, p []byte, out *uint64) int32 {
	x.called("state_get")
	x.host.mu.Lock()
	defer x.host.mu.Unlock()
	v, fence, err := x.stateFor(object, key, lease)
	if err != nil {
		return x.result(0, err)
	}
	if fence > v.fence {
		v.fence = fence
		x.host.touch(v)
	}
	*out = v.revision
	if v.data == nil {
		return x.result(0, refusal(abi.NotFound, "no value"))
	}
	return int32(copyOut(p, v.data))
}

// StatePut implements host.Functions.
func (x *exchange) StatePut(object, key string, revision int64, lease int32, value []byte, out *uint64) int32 {
	x.called("state_put")
	x.host.mu.Lock()
	defer x.host.mu.Unlock()
	v, fence, err := x.stateFor(object, key, lease)
	switch {
	case err != nil:
	case len(value) > abi.MaxState:
		err = refusal(abi.TooLarge, "the value is too large")
	case lease != 0 && v.fence != fence:
		err = refusal(abi.Fenced, "the key has not been read under this lease")
	case v.revision != uint64(revision):
		err = &edge.CallError{Code: abi.Conflict, Revision: edge.Revision(v.revision), Detail: "changed meanwhile"}
	}
	if err != nil {
		return x.result(0, err)
	}
	v.data = append([]byte{}, value...)
	*out = x.host.touch(v)
	return 0
}
