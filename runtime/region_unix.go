//go:build unix && (amd64 || arm64)

package runtime

import "golang.org/x/sys/unix"

// reserve returns address space that nothing stands behind and nobody may touch.
func reserve(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// provide makes a part of reserved space usable. It begins at a page of the
// system, and is zero.
func provide(part []byte) error { return unix.Mprotect(part, unix.PROT_READ|unix.PROT_WRITE) }

func release(reserved []byte) {
	_ = unix.Munmap(reserved) // it cannot fail for what Mmap returned
}
