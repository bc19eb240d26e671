package edge

import (
	"iter"

	"github.com/edgehost/edgehost/guests/abi"
)

// fields yields the fields of a record from the host, up to its end or to what
// is not a record. Values alias it.
func fields(record []byte) iter.Seq2[abi.Tag, []byte] {
	return func(yield func(abi.Tag, []byte) bool) {
		for len(record) > 0 {
			f, rest, err := abi.Next(record)
			if err != nil || !yield(f.Tag, f.Value) {
				return
			}
			record = rest
		}
	}
}

// field returns the value of the first field with the tag, nil if there is none.
func field(record []byte, tag abi.Tag) []byte {
	for t, value := range fields(record) {
		if t == tag {
			return value
		}
	}
	return nil
}

// number returns the number of the first field with the tag.
func number(record []byte, tag abi.Tag) (n int64, ok bool) {
	u, err := abi.Field{Tag: tag, Value: field(record, tag)}.Number()
	return int64(u), err == nil && int64(u) >= 0
}

// contentLength returns the number in a head, -1 if it has none.
func contentLength(head []byte) int64 {
	if n, ok := number(head, abi.FieldContentLength); ok {
		return n
	}
	return -1
}

// pathValues yields the wildcards of the route and what they matched. Both alias
// the head.
func pathValues(head []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for tag, value := range fields(head) {
			if tag != abi.FieldPathValue {
				continue
			}
			name, value, err := abi.Field{Tag: tag, Value: value}.Pair()
			if err == nil && !yield(name, value) {
				return
			}
		}
	}
}
