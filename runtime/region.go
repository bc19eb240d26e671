package runtime

import "github.com/tetratelabs/wazero/experimental"

// A region is the linear memory of one instance: address space for all that it
// may grow to, of which the system provides what is touched. Growing neither
// moves nor copies it, and the end of the instance gives it back at once, not
// when the collector comes round.
//
// A region with an image begins with it, and goes back to it with restore.
//
// Nothing may look at a guest's memory after close, not even by a slice that it
// still has: that would end the process.
type region struct {
	reserved []byte // nil where nothing can be reserved
	usable   int    // of reserved
	heap     []byte // in place of reserved
	limit    int    // the most that it may grow to
	top      int    // what it has grown to since it was made or restored

	image    *image // nil if it began with zeros
	private  bool   // the image is mapped, and what was not written since shared
	restored bool   // the engine has not learnt of it
}

var (
	_ experimental.MemoryAllocator = (*region)(nil)
	_ experimental.LinearMemory    = (*region)(nil)
)

// Allocate implements experimental.MemoryAllocator, for the only memory that a
// module has.
func (r *region) Allocate(_, limit uint64) experimental.LinearMemory {
	r.limit = int(limit)
	if reserved, err := reserve(r.limit); err == nil {
		r.reserved = reserved
	}
	if r.image != nil {
		r.begin()
	}
	return r
}

// begin puts the image in place.
func (r *region) begin() {
	if r.reserved != nil && r.image.mapTo(r.reserved) == nil {
		r.private = true
		r.usable, r.top = len(r.image.content), len(r.image.content)
		return
	}
	copy(r.extend(len(r.image.content)), r.image.content)
}

// Reallocate implements experimental.LinearMemory. The first time that it is
// asked for more after restore it answers with the size of the image: the engine
// has no other way to make a memory smaller.
func (r *region) Reallocate(size uint64) []byte {
	if r.restored {
		r.restored = false
		size = uint64(len(r.image.content))
	}
	return r.extend(int(size))
}

// extend returns the first n bytes, or nil if there are none left.
func (r *region) extend(n int) []byte {
	r.top = max(r.top, n)
	if r.reserved == nil {
		if n > len(r.heap) {
			r.heap = append(r.heap, make([]byte, n-len(r.heap))...)
		}
		return r.heap[:n:n]
	}
	if n > r.usable {
		if err := provide(r.reserved[r.usable:n]); err != nil {
			return nil
		}
		r.usable = n
	}
	return r.reserved[:n:n]
}

// adopt makes an image, which is what is in the region, the one to go back to.
func (r *region) adopt(i *image) {
	r.image = i
	r.private = r.reserved != nil && i.mapTo(r.reserved) == nil
}

// restore brings the region back to its image. What comes after it is zero when
// it is asked for again.
func (r *region) restore() {
	size := len(r.image.content)
	r.restored = r.top > size
	switch {
	case r.private:
		r.image.restore(r.reserved[:size])
		discard(r.reserved[size:r.top], nil)
	case r.reserved != nil:
		copy(r.reserved, r.image.content)
		clear(r.reserved[size:r.top])
	default:
		copy(r.heap, r.image.content)
		clear(r.heap[size:])
	}
	r.top = size
}

// trim gives back what a restored region need not have.
func (r *region) trim() {
	if r.private {
		size := len(r.image.content)
		discard(r.reserved[:size], r.image.content)
	}
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
