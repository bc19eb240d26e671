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

// The errors of this package. Each says what state the bucket may be in, and is
// found with errors.Is; a context that ended is wrapped beside it.
var (
	// ErrNotFound: there is no such key, as far as the read could see.
	ErrNotFound = errors.New("kvbucket: no such key")
	// ErrNoBucket: there is no bucket of that name.
	ErrNoBucket = errors.New("kvbucket: no such bucket")
	// ErrConflict: the key has another revision than the one given. The write
	// was not applied by this call and never will be.
	ErrConflict = errors.New("kvbucket: the revision is not the newest")
	// ErrUnknown: the outcome of a write could not be learnt, because its time
	// was over, or because its acknowledgement got lost and others have written
	// since. It may have been applied, or may yet be. A value that names its
	// write, and the one before, lets its owner find out.
	ErrUnknown = errors.New("kvbucket: the outcome is unknown")
	// ErrUnavailable: the store does not answer, or refuses. The write was not
	// applied by this call and never will be.
	ErrUnavailable = errors.New("kvbucket: the store is unavailable")
	// ErrTooLarge: the value exceeds MaxValue. Nothing was sent.
	ErrTooLarge = errors.New("kvbucket: the value is too large")
	// ErrInvalidKey: the key or pattern is empty, longer than MaxKey, reserved,
	// or has characters outside the alphabet; see Escape.
	ErrInvalidKey = errors.New("kvbucket: invalid key")
	// ErrClosed: the bucket or its connection was closed. The write was not
	// applied, unless the error is ErrUnknown too.
	ErrClosed = errors.New("kvbucket: closed")
)

// MaxValue bounds a value, in bytes. NATS allows 1 MiB by default; a value that
// is rewritten on every change has to stay far below that.
const MaxValue = 64 << 10

// MaxKey bounds a key, in bytes. It keeps a publish's control line well below
// the 4096 bytes that a NATS server accepts.
const MaxKey = 1 << 10

// A Revision numbers one change of one key. It grows with every change and is
// never reused; zero stands for a key that has never been written.
type Revision uint64

// An Entry is what a key held at one revision.
type Entry struct {
	Key string
	// Value belongs to whoever got the entry.
	Value    []byte
	Revision Revision
	// Created is when the store applied the change, by the store's clock.
	Created time.Time
}

// A Bucket holds values under keys. Its methods may be called from any number of
// goroutines. Keys are dot-separated parts in the alphabet of [Escape].
//
// In a pattern the part "*" matches one part of a key, and a last part ">" one or
// more.
type Bucket interface {
	// Get returns a value that the key held at some time: a hint, possibly
	// stale, and possibly older than one returned before. Errors: ErrNotFound,
	// ErrUnavailable (wrapping the context's error if that ended), ErrInvalidKey,
	// ErrClosed. With ErrNotFound the entry's Revision is still the one to give
	// to Update: zero, or that of an operator's deletion.
	Get(ctx context.Context, key string) (Entry, error)

	// Update makes value the newest of key if last is the key's revision now,
	// and returns the new revision. A last of zero creates the key. A write
	// whose acknowledgement got lost is sent again, unchanged, until its
	// outcome is definite or ctx ends, so it is applied at most once. Errors:
	// ErrConflict, ErrUnknown, ErrUnavailable, ErrTooLarge, ErrInvalidKey,
	// ErrClosed.
	Update(ctx context.Context, key string, value []byte, last Revision) (Revision, error)

	// Watch yields the entries of the keys that match pattern: first what
	// exists, then changes, until ctx ends or the bucket closes. Entries may be
	// skipped when newer ones exist, repeated, and delivered late; a watch that
	// breaks is set up again, and re-reads, and then an older entry may follow a
	// newer one. It runs in the caller's goroutine and yields nothing for an
	// invalid pattern.
	Watch(ctx context.Context, pattern string) iter.Seq[Entry]

	// Keys returns the keys that match pattern, sorted: a hint, like Get.
	Keys(ctx context.Context, pattern string) ([]string, error)
}
