package record

import (
	"strconv"
	"strings"

	"github.com/edgehost/edgehost/kvbucket"
)

// The first parts of keys: the kinds of records.
const (
	KindObject = "o"
	KindPage   = "l"
	KindState  = "s"
)

// ObjectKey returns the key of a dependency's record.
func ObjectKey(namespace, name string) string { return key(KindObject, namespace, name) }

// PageKey returns the key of a page of leases.
func PageKey(namespace, class string, page int) string {
	return key(KindPage, namespace, class, strconv.Itoa(page))
}

// StateKey returns the key of a value that belongs to a lease of an object.
func StateKey(namespace, object, lease, name string) string {
	return key(KindState, namespace, object, lease, name)
}

// LeaseKey names a lease within its page.
func LeaseKey(rest, lease string) string { return key(rest, lease) }

// ParseKey is the inverse of the functions above.
func ParseKey(s string) (parts []string, err error) {
	for part := range strings.SplitSeq(s, ".") {
		name, err := kvbucket.Unescape(part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, name)
	}
	return parts, nil
}

func key(names ...string) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = kvbucket.Escape(name)
	}
	return strings.Join(parts, ".")
}
