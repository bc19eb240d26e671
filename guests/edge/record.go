package edge

import (
	"encoding/binary"

	"github.com/edgehost/edgehost/guests/abi"
)

// A record is a record from the host.
type record struct {
	bytes []byte
	text  string // the same, once many strings of it are wanted
}

// A span is the place of a value in a record.
type span struct{ start, end int }

// next finds the next field with the tag, from an offset on, up to the end of the
// record or to what is malformed. It is a loop around abi.Next, which takes three
// times as long in Wasm.
func (r *record) next(tag abi.Tag, at int) (value span, ok bool) {
	b := r.bytes
	for at+6 <= len(b) {
		start := at + 6
		end := start + int(binary.LittleEndian.Uint32(b[at+2:]))
		if end > len(b) || end < start {
			break
		}
		if abi.Tag(binary.LittleEndian.Uint16(b[at:])) == tag {
			return span{start, end}, true
		}
		at = end
	}
	return span{}, false
}

// value returns the value of the first field with the tag, nil if there is none. It
// aliases the record.
func (r *record) value(tag abi.Tag) []byte {
	if at, ok := r.next(tag, 0); ok {
		return r.bytes[at.start:at.end]
	}
	return nil
}

// field is value as a string.
func (r *record) field(tag abi.Tag) string {
	at, _ := r.next(tag, 0)
	return r.string(at)
}

// number returns the number of the first field with the tag, or what stands for an
// absent one.
func (r *record) number(tag abi.Tag, absent int64) int64 {
	n, err := abi.Field{Tag: tag, Value: r.value(tag)}.Number()
	if err != nil || int64(n) < 0 {
		return absent
	}
	return int64(n)
}

// nextPair finds the next pair with the tag, from an offset on. It goes on at the
// end of the value.
func (r *record) nextPair(tag abi.Tag, at int) (name, value span, ok bool) {
	for {
		pair, ok := r.next(tag, at)
		if !ok {
			return span{}, span{}, false
		}
		at = pair.end
		if pair.end-pair.start < 2 {
			continue
		}
		start := pair.start + 2
		end := start + int(binary.LittleEndian.Uint16(r.bytes[pair.start:]))
		if end <= pair.end {
			return span{start, end}, span{end, pair.end}, true
		}
	}
}

// string returns a part of the record. After share it is a part of the copy.
func (r *record) string(at span) string {
	if r.text != "" {
		return r.text[at.start:at.end]
	}
	return string(r.bytes[at.start:at.end])
}

// share makes one copy of the record for all strings, since an allocation costs
// more than the bytes.
func (r *record) share() {
	if r.text == "" {
		r.text = string(r.bytes)
	}
}
