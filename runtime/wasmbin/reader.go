package wasmbin

import (
	"fmt"
	"unicode/utf8"
)

// MalformedError says where and why bytes are not a module of the binary
// format.
type MalformedError struct {
	Offset int    // of the offending byte, from the start of the module
	Where  string // the part being read: "import section", "code of function 3"
	Reason string
}

func (e *MalformedError) Error() string {
	return fmt.Sprintf("wasmbin: malformed module at offset %#x, %s: %s", e.Offset, e.Where, e.Reason)
}

// reader takes the primitive values of the binary format (core specification
// 5.2) from a slice. Its error is sticky: after the first malformed value every
// read returns zero, so that callers check once per construct.
type reader struct {
	buf    []byte
	pos    int
	base   int    // offset of buf[0] in the module
	where  string // for errors
	err    *MalformedError
	padded bool // an integer was longer than its shortest encoding
}

// failAt records the first error.
func (r *reader) failAt(pos int, format string, args ...any) {
	if r.err == nil {
		r.err = &MalformedError{Offset: r.base + pos, Where: r.where, Reason: fmt.Sprintf(format, args...)}
	}
	r.pos = len(r.buf)
}

func (r *reader) failed() bool { return r.err != nil }

func (r *reader) remaining() int { return len(r.buf) - r.pos }

func (r *reader) byte(what string) byte {
	if r.pos >= len(r.buf) {
		r.failAt(r.pos, "%s: unexpected end", what)
		return 0
	}
	b := r.buf[r.pos]
	r.pos++
	return b
}

// take returns the next n bytes, which alias the input.
func (r *reader) take(n int, what string) []byte {
	if n > r.remaining() {
		r.failAt(r.pos, "%s: %d bytes announced, %d left", what, n, r.remaining())
		return nil
	}
	b := r.buf[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return b
}

// sub returns a reader over the next n bytes.
func (r *reader) sub(n int, where string) *reader {
	start := r.pos
	return &reader{buf: r.take(n, where), base: r.base + start, where: where, err: r.err}
}

// adopt takes over the outcome of a reader made by sub, which has to be used up.
func (r *reader) adopt(sub *reader) {
	if sub.err == nil && sub.remaining() > 0 {
		sub.failAt(sub.pos, "%d bytes left over", sub.remaining())
	}
	if r.err == nil && sub.err != nil {
		r.err = sub.err
	}
}

// u32 reads an unsigned LEB128 integer of at most 32 bits.
func (r *reader) u32(what string) uint32 {
	if r.pos < len(r.buf) && r.buf[r.pos] < 0x80 { // the common case, inlined
		r.pos++
		return uint32(r.buf[r.pos-1])
	}
	return uint32(r.unsigned(32, what))
}

func (r *reader) unsigned(bits int, what string) uint64 {
	start := r.pos
	var v uint64
	for shift := 0; ; shift += 7 {
		b := r.byte(what)
		if r.failed() {
			return 0
		}
		if shift+7 > bits && b>>(bits-shift) != 0 {
			r.failAt(start, "%s: not an unsigned integer of %d bits", what, bits)
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			r.padded = r.padded || b == 0 && shift > 0
			return v
		}
	}
}

// signed reads a signed LEB128 integer of at most bits bits.
func (r *reader) signed(bits int, what string) int64 {
	start := r.pos
	var v int64
	var last byte
	for shift := 0; ; shift += 7 {
		b := r.byte(what)
		if r.failed() {
			return 0
		}
		if shift+7 >= bits && !signedTailFits(b, bits-shift) {
			r.failAt(start, "%s: not a signed integer of %d bits", what, bits)
			return 0
		}
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if unused := 64 - 7 - shift; unused > 0 {
				v = v << unused >> unused
			}
			const sign = 0x40
			r.padded = r.padded || shift > 0 && (b == 0 && last&sign == 0 || b == 0x7f && last&sign != 0)
			return v
		}
		last = b
	}
}

// signedTailFits reports whether the last byte of a signed integer, of which
// only the low n bits count, is final and repeats the sign in the rest.
func signedTailFits(b byte, n int) bool {
	rest := int8(b<<1) >> 1 >> (n - 1)
	return b < 0x80 && (rest == 0 || rest == -1)
}

// count reads the length of a vector whose elements take at least one byte
// each, so that no announced length makes the decoder reserve more memory than
// the module has bytes.
func (r *reader) count(what string) int {
	start := r.pos
	n := r.u32("number of " + what)
	if int64(n) > int64(r.remaining()) {
		r.failAt(start, "number of %s: %d announced, %d bytes left", what, n, r.remaining())
		return 0
	}
	return int(n)
}

// name reads a name: a vector of bytes that is valid UTF-8.
func (r *reader) name(what string) string {
	n := r.count("bytes of " + what)
	start := r.pos
	b := r.take(n, what)
	if !utf8.Valid(b) {
		r.failAt(start, "%s: not UTF-8", what)
	}
	return string(b)
}

// vector reads a count and then that many elements.
func vector[T any](r *reader, what string, element func(*reader) T) []T {
	n := r.count(what)
	if n == 0 {
		return nil
	}
	list := make([]T, 0, n)
	for range n {
		list = append(list, element(r))
		if r.failed() {
			return nil
		}
	}
	return list
}

// appendUnsigned appends the shortest LEB128 encoding of v.
func appendUnsigned[T ~uint32 | ~uint64 | ~int](b []byte, v T) []byte {
	u := uint64(v)
	for u >= 0x80 {
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

// appendSigned appends the shortest signed LEB128 encoding of v.
func appendSigned(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendUnsigned(b, len(name)), name...)
}

func appendVector[T any](b []byte, list []T, element func([]byte, T) []byte) []byte {
	b = appendUnsigned(b, len(list))
	for _, v := range list {
		b = element(b, v)
	}
	return b
}
