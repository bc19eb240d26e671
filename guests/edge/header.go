package edge

import (
	"iter"

	"github.com/edgehost/edgehost/guests/abi"
)

// A Header holds header fields in their order. Names are compared without
// regard to case. The zero value is empty and ready to use.
type Header struct {
	fields []headerField
}

type headerField struct{ name, value string }

// Get returns the first value of name, "" if there is none.
func (h *Header) Get(name string) string {
	for i := range h.fields {
		if equalFold(h.fields[i].name, name) {
			return h.fields[i].value
		}
	}
	return ""
}

// Values returns all values of name, in their order.
func (h *Header) Values(name string) []string {
	var values []string
	for _, f := range h.fields {
		if equalFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// All yields every name and value, in their order; a name with several values
// comes several times.
func (h *Header) All() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, f := range h.fields {
			if !yield(f.name, f.value) {
				return
			}
		}
	}
}

// Len returns the number of values.
func (h *Header) Len() int { return len(h.fields) }

// Set replaces all values of name by one.
func (h *Header) Set(name, value string) {
	for i := range h.fields {
		if equalFold(h.fields[i].name, name) {
			h.fields[i].value = value
			h.delete(name, i+1)
			return
		}
	}
	h.Add(name, value)
}

// Add appends a value of name.
func (h *Header) Add(name, value string) {
	h.fields = append(h.fields, headerField{name, value})
}

// Del removes all values of name.
func (h *Header) Del(name string) { h.delete(name, 0) }

// delete removes the values of name from index start on.
func (h *Header) delete(name string, start int) {
	kept := h.fields[:start]
	for _, f := range h.fields[start:] {
		if !equalFold(f.name, name) {
			kept = append(kept, f)
		}
	}
	clear(h.fields[len(kept):])
	h.fields = kept
}

// reset empties the header and keeps its memory.
func (h *Header) reset() {
	clear(h.fields)
	h.fields = h.fields[:0]
}

// append appends the fields to a record.
func (h *Header) append(record []byte) []byte {
	for _, f := range h.fields {
		record = abi.AppendPair(record, abi.FieldHeader, f.name, f.value)
	}
	return record
}

// decode adds the header fields of a record. All strings share one copy of it.
func (h *Header) decode(r *record) {
	r.share()
	name, value, ok := r.nextPair(abi.FieldHeader, 0)
	for ; ok; name, value, ok = r.nextPair(abi.FieldHeader, value.end) {
		h.Add(r.string(name), r.string(value))
	}
}

// equalFold compares ASCII letters without regard to case, unlike
// strings.EqualFold, to which the Kelvin sign is a k.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if a[i] != b[i] && lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
