package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Contenders for one key back off this long at first and at most. The first is
// in the order of one commit, the last bounds how late a loser looks again.
const (
	firstBackoff = 2 * time.Millisecond
	maxBackoff   = 250 * time.Millisecond
)

// Modify changes key by fn: it reads, calls fn with what it read, and writes what
// fn returns if the key has not changed since. On ErrConflict it starts over after
// a jittered, growing pause, until ctx ends; then the error is ErrConflict and the
// context's. fn gets an entry without a value if there is no such key, may be
// called any number of times, and ends the loop by returning an error, which
// Modify returns as it is. The entry returned is the one written, without the
// time, which only the store knows. Other errors are those of Get and Update; after
// ErrUnknown the caller has to look whether its change is there.
func Modify(ctx context.Context, b Bucket, key string, fn func(old Entry) ([]byte, error)) (Entry, error) {
	for attempt := 0; ; attempt++ {
		e, err := modifyOnce(ctx, b, key, fn)
		if !errors.Is(err, ErrConflict) {
			return e, err
		}
		if waitErr := wait(ctx, backoff(attempt)); waitErr != nil {
			return Entry{}, fmt.Errorf("%w: %w", err, waitErr)
		}
	}
}

func modifyOnce(ctx context.Context, b Bucket, key string, fn func(old Entry) ([]byte, error)) (Entry, error) {
	old, err := b.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		old.Key, old.Value = key, nil
	} else if err != nil {
		return Entry{}, err
	}
	value, err := fn(old)
	if err != nil {
		return Entry{}, err
	}
	revision, err := b.Update(ctx, key, value, old.Revision)
	if err != nil {
		return Entry{}, err
	}
	return Entry{Key: key, Value: value, Revision: revision}, nil
}

// backoff returns how long to wait before the attempt after the given one, which
// counts from zero: full jitter under a doubling bound, so that contenders spread.
func backoff(attempt int) time.Duration {
	bound := maxBackoff
	if doubled := firstBackoff << min(attempt, 16); doubled < bound {
		bound = doubled
	}
	return 1 + rand.N(bound)
}

// wait returns after d, or with the cause of ctx's end.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
