//go:build !linux

package runtime

import (
	"bytes"
	"errors"
)

// An image is a memory that many regions begin with. They copy it.
type image struct{ content []byte }

func newImage(memory []byte, _ *pagemap) *image { return &image{bytes.Clone(memory)} }

func (*image) mapTo([]byte) error { return errors.ErrUnsupported }

func (i *image) restore(memory []byte) { copy(memory, i.content) }

func (*image) close() {}

func discard(part, behind []byte) { clear(part[copy(part, behind):]) }

// A pagemap would tell which pages of an image were written.
type pagemap struct{}

func openPagemap() *pagemap { return nil }

func (*pagemap) close() {}
