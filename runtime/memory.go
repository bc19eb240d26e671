package runtime

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tetratelabs/wazero/api"

	"github.com/edgehost/edgehost/guests/abi"
)

// memory is a guest's linear memory. All access to it goes through these
// methods: a range that is not inside it is Invalid, and nothing is written.
type memory struct{ linear api.Memory }

var (
	errRange = fmt.Errorf("memory range is outside of the guest's memory: %w", abi.Invalid)
	errName  = fmt.Errorf("name is empty or longer than %d bytes: %w", abi.MaxName, abi.Invalid)
	errAlign = fmt.Errorf("pointer is not aligned to 8 bytes: %w", abi.Invalid)
	errWide  = fmt.Errorf("length does not fit a result: %w", abi.Invalid)
)

// view returns a range of the memory itself. It must not be used after the host
// call returns: the guest may change it, and growth may move it.
func (m memory) view(p, n uint32) ([]byte, error) {
	switch {
	case n == 0:
		return nil, nil // wherever it points
	case n > math.MaxInt32:
		return nil, errWide
	}
	b, ok := m.linear.Read(p, n)
	if !ok {
		return nil, errRange
	}
	return b[:n:n], nil
}

// text copies a range of at most limit bytes.
func (m memory) text(p, n, limit uint32) (string, error) {
	if n > limit {
		return "", abi.TooLarge
	}
	b, err := m.view(p, n)
	return string(b), err
}

// name copies the name of an object, key, dependency or setting.
func (m memory) name(p, n uint32) (string, error) {
	if n == 0 || n > abi.MaxName {
		return "", errName
	}
	return m.text(p, n, abi.MaxName)
}

// answer copies b to a buffer of the guest if it fits, and returns its length
// in any case: the guest calls again with more room.
func (m memory) answer(p, capacity uint32, b []byte) (int32, error) {
	if len(b) > math.MaxInt32 {
		return 0, abi.TooLarge
	}
	if capacity < uint32(len(b)) {
		return int32(len(b)), nil
	}
	dst, err := m.view(p, uint32(len(b)))
	if err != nil {
		return 0, err
	}
	return int32(copy(dst, b)), nil
}

// record returns the view of an output record, which is 8-aligned.
func (m memory) record(p, size uint32) ([]byte, error) {
	if p%8 != 0 {
		return nil, errAlign
	}
	return m.view(p, size)
}

// putWords writes 64-bit words to an output record.
func putWords(record []byte, words ...uint64) {
	for i, word := range words {
		binary.LittleEndian.PutUint64(record[8*i:], word)
	}
}
