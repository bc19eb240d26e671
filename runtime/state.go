package runtime

import (
	"encoding/binary"
	"fmt"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// leaseFor returns the lease of a state call: nil for handle zero.
func leaseFor(x *exchange, number uint64, object string) (*objects.Lease, error) {
	if uint32(number) == 0 {
		return nil, nil
	}
	h, err := grantedLease(x, uint64(uint32(number)))
	if err != nil {
		return nil, err
	}
	if h.object != object {
		return nil, errOtherObject
	}
	lease, _ := h.peek()
	return lease, nil
}

var (
	errOtherObject = fmt.Errorf("the lease is one of another object: %w", abi.Invalid)
	errNoValue     = fmt.Errorf("the key has no value: %w", abi.NotFound)
)

// A stateCall is what state_get and state_put have in common.
type stateCall struct {
	object *objects.Object
	key    string
	lease  *objects.Lease
}

func stateArguments(x *exchange, a []uint64, lease uint64) (s stateCall, err error) {
	object, name, err := x.object(a[0], a[1])
	if err != nil {
		return s, err
	}
	if s.key, err = x.inst.memory.name(uint32(a[2]), uint32(a[3])); err != nil {
		return s, err
	}
	s.object = object
	s.lease, err = leaseFor(x, lease, name)
	return s, err
}

func hostStateGet(x *exchange, a []uint64) (int32, error) {
	out, err := x.inst.memory.record(uint32(a[7]), 8)
	if err != nil {
		return 0, err
	}
	s, err := stateArguments(x, a, a[4])
	if err != nil {
		return 0, err
	}
	value, revision, err := s.object.Get(x.effort(), s.key, s.lease)
	if err != nil {
		return 0, err
	}
	if value == nil {
		putWords(out, uint64(revision))
		return 0, errNoValue
	}
	n, err := x.inst.memory.answer(uint32(a[5]), uint32(a[6]), value)
	if err == nil && uint32(n) <= uint32(a[6]) {
		binary.LittleEndian.PutUint64(out, uint64(revision))
	}
	return n, err
}

func hostStatePut(x *exchange, a []uint64) (int32, error) {
	out, err := x.inst.memory.record(uint32(a[8]), 8)
	if err != nil {
		return 0, err
	}
	if uint32(a[7]) > abi.MaxState {
		return 0, abi.TooLarge
	}
	value, err := x.inst.memory.view(uint32(a[6]), uint32(a[7]))
	if err != nil {
		return 0, err
	}
	s, err := stateArguments(x, a, a[5])
	if err != nil {
		return 0, err
	}
	revision, err := s.object.Put(x.effort(), s.key, append([]byte{}, value...), kvbucket.Revision(a[4]), s.lease)
	if err != nil {
		return 0, err
	}
	putWords(out, uint64(revision))
	return 0, nil
}
