package kvbucket

import "context"

// MaxBlob bounds a blob, in bytes. Readers and writers hold all of it in memory.
const MaxBlob = 16 << 20

// Blobs holds larger values under names. A name is written once; what a second
// write of it does is not defined. Names are any 1 to MaxKey bytes. Its methods may be
// called from any number of goroutines.
type Blobs interface {
	// Put stores data under name, and returns when the store has all of it. Errors:
	// ErrTooLarge, ErrUnavailable (the store does not answer, or refuses), ErrClosed,
	// ErrInvalidKey. After an error nobody may rely on the blob, and it may be there
	// all the same.
	Put(ctx context.Context, name string, data []byte) error

	// Get returns what was stored under name, all of it and unchanged. Errors:
	// ErrNotFound (there is none, or the store has dropped it), ErrUnavailable,
	// ErrClosed, ErrInvalidKey.
	Get(ctx context.Context, name string) ([]byte, error)
}
