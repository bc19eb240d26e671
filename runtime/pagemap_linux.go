package runtime

import (
	"encoding/binary"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A pagemap tells which pages of files that are mapped the process has to itself,
// because it has written to them (proc_pid_pagemap(5)).
type pagemap struct {
	file  *os.File
	lists sync.Pool // of *pageList
}

// A pageList is what a pagemap has found out.
type pageList struct {
	entries [8 << 10]byte
	pages   []int // ascending
	cold    []piece
}

// The bits of an entry: in memory, swapped out, of a file or shared.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// openPagemap returns nil if the system has none, or one that does not tell what
// it should.
func openPagemap() *pagemap {
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil
	}
	p := &pagemap{file: file}
	p.lists.New = func() any { return new(pageList) }
	if !p.works() {
		p.close()
		return nil
	}
	return p
}

func (p *pagemap) close() {
	if p != nil {
		_ = p.file.Close() // it was only read
	}
}

// works tries it with an image of three pages, of which one is read, one is
// written and one is left alone.
func (p *pagemap) works() bool {
	page := os.Getpagesize()
	i := newImage(make([]byte, 3*page), nil)
	defer i.close()
	reserved, err := reserve(3 * page)
	if err != nil {
		return false
	}
	defer release(reserved)
	if i.mapTo(reserved) != nil {
		return false
	}
	reserved[page] = reserved[0] + 1
	list := p.private(reserved)
	return list != nil && len(list.pages) == 1 && list.pages[0] == 1
}

// private returns the pages of mapped memory that the process has to itself, or
// nil if that cannot be told. The caller puts the list back.
func (p *pagemap) private(memory []byte) *pageList {
	size := os.Getpagesize()
	first, pages := int(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))/size, len(memory)/size
	list, _ := p.lists.Get().(*pageList)
	list.pages = list.pages[:0]
	for at := 0; at < pages; {
		part := list.entries[:min(len(list.entries), (pages-at)*8)]
		if n, err := unix.Pread(int(p.file.Fd()), part, int64(first+at)*8); err != nil || n < len(part) {
			return nil
		}
		for ; len(part) > 0; part = part[8:] {
			entry := binary.NativeEndian.Uint64(part)
			if entry&(pagePresent|pageSwapped) != 0 && entry&pageOfFile == 0 {
				list.pages = append(list.pages, at)
			}
			at++
		}
	}
	return list
}
