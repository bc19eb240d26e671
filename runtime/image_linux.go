package runtime

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An image is a memory that many regions begin with. They share its pages until
// they write to them.
type image struct {
	content []byte   // read-only
	fd      int      // of the file that content and the regions map; -1 without
	written *pagemap // nil: unknown
	heat    heat
}

// newImage keeps a copy of a memory, in a file without a name that nobody can
// change any more. Where there are no such files it is on the heap, and regions
// copy it.
func newImage(memory []byte, written *pagemap) *image {
	fd, err := unix.MemfdCreate("edgehost-snapshot", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return &image{content: bytes.Clone(memory), fd: -1}
	}
	content, err := fill(fd, memory)
	if err != nil {
		_ = unix.Close(fd)
		return &image{content: bytes.Clone(memory), fd: -1}
	}
	return &image{content: content, fd: fd, written: written}
}

// fill writes a memory to a file, seals it and maps it. Pages of zeros are left
// out.
func fill(fd int, memory []byte) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(len(memory))); err != nil {
		return nil, err
	}
	const piece = 4 << 10
	zeros := make([]byte, piece)
	for at := 0; at < len(memory); at += piece {
		if part := memory[at : at+piece]; !bytes.Equal(part, zeros) {
			if n, err := unix.Pwrite(fd, part, int64(at)); err != nil || n < piece {
				return nil, unix.ENOSPC
			}
		}
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	if err != nil {
		return nil, err
	}
	return unix.Mmap(fd, 0, len(memory), unix.PROT_READ, unix.MAP_PRIVATE)
}

// mapTo puts the image at the beginning of reserved address space.
func (i *image) mapTo(reserved []byte) error {
	if i.fd < 0 {
		return unix.ENOTSUP
	}
	_, err := unix.MmapPtr(i.fd, 0, unsafe.Pointer(unsafe.SliceData(reserved)), uintptr(len(i.content)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED)
	return err
}

// mostPieces bounds what is given back piece by piece. With more of them, and a
// guest can write to every second page, everything is given back at once.
const mostPieces = 64

// restore undoes what was written to memory that the image is mapped to. Pages
// that most requests write are copied, which costs less than to lose them and to
// have the system make them again; the others are given back.
func (i *image) restore(memory []byte) {
	if i.written == nil {
		discard(memory, i.content)
		return
	}
	list := i.written.private(memory)
	if list == nil {
		discard(memory, i.content)
		return
	}
	defer i.written.lists.Put(list)
	hot := i.heat.hot(list.pages)
	list.cold = pieces(list.cold[:0], list.pages, hot)
	if len(list.cold) > mostPieces {
		discard(memory, i.content)
		return
	}
	page := os.Getpagesize()
	for _, n := range list.pages {
		if hot[n] {
			copy(memory[n*page:(n+1)*page], i.content[n*page:])
		}
	}
	for _, cold := range list.cold {
		from, to := cold.from*page, cold.to*page
		discard(memory[from:to], i.content[from:to])
	}
}

// A piece is a range of pages.
type piece struct{ from, to int }

// pieces appends the pages of an ascending list that are not hot, those that adjoin
// as one piece.
func pieces(list []piece, pages []int, hot map[int]bool) []piece {
	for _, n := range pages {
		last := len(list) - 1
		switch {
		case hot[n]:
		case last >= 0 && list[last].to == n:
			list[last].to++
		default:
			list = append(list, piece{n, n + 1})
		}
	}
	return list
}

// close releases the image. Regions that have mapped it keep its pages.
func (i *image) close() {
	if i.fd < 0 {
		return
	}
	_ = unix.Munmap(i.content) // neither can fail: both are ours
	_ = unix.Close(i.fd)
	i.content, i.fd = nil, -1
}

// discard gives pages back, so that they are again what is behind them: a part of
// an image, or zeros if there is none.
func discard(part, behind []byte) {
	if len(part) == 0 || unix.Madvise(part, unix.MADV_DONTNEED) == nil {
		return
	}
	clear(part[copy(part, behind):]) // as for pages that are locked
}
