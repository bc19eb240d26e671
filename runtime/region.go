package runtime

import "github.com/tetratelabs/wazero/experimental"

// A region is the linear memory of one instance: address space for all that it
// may grow to, of which the system provides what is touched. Growing neither
// moves nor copies it, and the end of the instance gives it back at once, not
// when the collector comes round.
//
// Nothing may look at a guest's memory after close, not even by a slice that it
// still has: that would end the process.
type region struct {
	reserved []byte // nil where nothing can be reserved
	usable   int    // of reserved
	heap     []byte // in place of reserved
}

var (
	_ experimental.MemoryAllocator = (*region)(nil)
	_ experimental.LinearMemory    = (*region)(nil)
)

// Allocate implements experimental.MemoryAllocator, for the only memory that a
// module has.
func (r *region) Allocate(_, limit uint64) experimental.LinearMemory {
	if reserved, err := reserve(int(limit)); err == nil {
		r.reserved = reserved
	}
	return r
}

// Reallocate implements experimental.LinearMemory.
func (r *region) Reallocate(size uint64) []byte {
	n := int(size)
	if r.reserved == nil {
		r.heap = append(r.heap, make([]byte, n-len(r.heap))...)
		return r.heap
	}
	if n > r.usable {
		if err := provide(r.reserved[r.usable:n]); err != nil {
			return nil
		}
		r.usable = n
	}
	return r.reserved[:n:n]
}

// Free implements experimental.LinearMemory. The engine calls it in the middle
// of a call that exits; close comes after that.
func (*region) Free() {}

// close gives the memory back to the system.
func (r *region) close() {
	if r.reserved != nil {
		release(r.reserved)
	}
	r.reserved, r.heap, r.usable = nil, nil, 0
}
