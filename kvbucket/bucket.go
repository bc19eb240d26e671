// Package kvbucket keeps small values under keys and changes them only by
// compare-and-swap.
//
// There is no unconditional write and no delete: a lost update cannot be
// written, and the revisions of a key never start over. A read is a hint that
// may be stale and may go backwards; [Bucket.Update] is the truth. Two
// implementations pass the same suite: [JetStream], on a NATS JetStream KV
// bucket, and [Memory].
package kvbucket

import (
	"context"
	"errors"
	"iter"
	"time"
)

// The errors of this package. Each says what state the bucket may be in.
var (
	// ErrNotFound: there is no such key, as far as the read could see.
	ErrNotFound = errors.New("kvbucket: no such key")
	// ErrConflict: the key has another revision than the one given. The write
	// was not applied by this call.
	ErrConflict = errors.New("kvbucket: the revision is not the newest")
	// ErrUnknown: the outcome of a write could not be learnt before the
	// context ended. It may have been applied, or may yet be.
	ErrUnknown = errors.New("kvbucket: the outcome is unknown")
	// ErrUnavailable: the store does not answer. The write was not applied.
	ErrUnavailable = errors.New("kvbucket: the store is unavailable")
	// ErrTooLarge: the value exceeds MaxValue.
	ErrTooLarge = errors.New("kvbucket: the value is too large")
	// ErrInvalidKey: the key is empty or has characters outside the alphabet;
	// see Escape.
	ErrInvalidKey = errors.New("kvbucket: invalid key")
	// ErrClosed: the bucket or its connection was closed.
	ErrClosed = errors.New("kvbucket: closed")
)

// MaxValue bounds a value, in bytes.
const MaxValue = 64 << 10

// A Revision numbers one change of one key. It grows with every change and is
// never reused; zero stands for a key that has never been written.
type Revision uint64

// An Entry is what a key held at one revision.
type Entry struct {
	Key      string
	Value    []byte
	Revision Revision
	// Created is when the store applied the change, by the store's clock.
	Created time.Time
}

// A Bucket holds values under keys. Its methods may be called from any number of
// goroutines. Keys are dot-separated parts in the alphabet of [Escape].
type Bucket interface {
	// Get returns a value that the key held at some time: a hint, possibly
	// stale, and possibly older than one returned before. Errors: ErrNotFound,
	// ErrUnavailable, ErrInvalidKey, ErrClosed, the context's.
	Get(ctx context.Context, key string) (Entry, error)

	// Update makes value the newest of key if last is the key's revision now,
	// and returns the new revision. A last of zero creates the key. A write
	// whose acknowledgement got lost is sent again, unchanged, until its
	// outcome is definite or ctx ends, so it is applied at most once. Errors:
	// ErrConflict, ErrUnknown, ErrUnavailable, ErrTooLarge, ErrInvalidKey,
	// ErrClosed.
	Update(ctx context.Context, key string, value []byte, last Revision) (Revision, error)

	// Watch yields the entries of the keys that match pattern: first what
	// exists, then changes, until ctx ends or the bucket closes. In a pattern
	// the part "*" matches one part of a key and a last part ">" one or more.
	// Entries may be skipped when newer ones exist, repeated, and delivered
	// late; a watch that breaks is set up again, and re-reads.
	Watch(ctx context.Context, pattern string) iter.Seq[Entry]

	// Keys returns the keys that match pattern, sorted: a hint, like Get.
	Keys(ctx context.Context, pattern string) ([]string, error)
}
