package objects_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A flaky bucket is one host's way to a store that others reach as well.
type flaky struct {
	*kvbucket.Memory
	reads, writes atomic.Int64

	mu     sync.Mutex // guards the fields below
	up     chan struct{}
	stuck  bool
	update func(ctx context.Context, key string, value []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error)
	old    map[string][]kvbucket.Entry // nil: reads are fresh
}

func newFlaky(store *kvbucket.Memory) *flaky {
	f := &flaky{Memory: store}
	f.setDown(false)
	return f
}

// setDown cuts the way, or mends it.
func (f *flaky) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case down:
		f.up = make(chan struct{})
	case f.up == nil:
		f.up = make(chan struct{})
		close(f.up)
	default:
		select {
		case <-f.up:
		default:
			close(f.up)
		}
	}
}

// setStuck makes reads hang, and the watch show nothing.
func (f *flaky) setStuck(stuck bool) {
	f.mu.Lock()
	f.stuck = stuck
	f.mu.Unlock()
	f.setDown(stuck)
}

func (f *flaky) isUp() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up
}

func (f *flaky) unavailable() error {
	select {
	case <-f.isUp():
		return nil
	default:
		return fmt.Errorf("cut off: %w", kvbucket.ErrUnavailable)
	}
}

// onUpdate lets fn stand between the host and the store; nil ends that.
func (f *flaky) onUpdate(fn func(ctx context.Context, key string, value []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.update = fn
}

// readOld makes every read return one of the last values that reads have seen.
func (f *flaky) readOld() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old = map[string][]kvbucket.Entry{}
}

func (f *flaky) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	f.reads.Add(1)
	f.mu.Lock()
	stuck := f.stuck
	f.mu.Unlock()
	if stuck {
		_, err := hang(ctx)
		return kvbucket.Entry{}, errors.Join(kvbucket.ErrUnavailable, err)
	}
	if err := f.unavailable(); err != nil {
		return kvbucket.Entry{}, err
	}
	e, err := f.Memory.Get(ctx, key)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.old == nil {
		return e, err
	}
	seen := append(f.old[key], e)
	f.old[key] = seen[max(0, len(seen)-10):]
	return seen[rand.N(len(seen))], nil
}

func (f *flaky) Update(ctx context.Context, key string, value []byte, last kvbucket.Revision) (kvbucket.Revision, error) {
	f.writes.Add(1)
	if err := f.unavailable(); err != nil {
		return 0, err
	}
	do := func() (kvbucket.Revision, error) {
		return f.Memory.Update(context.WithoutCancel(ctx), key, value, last)
	}
	f.mu.Lock()
	fn := f.update
	f.mu.Unlock()
	if fn == nil {
		return do()
	}
	return fn(ctx, key, value, do)
}

func (f *flaky) Watch(ctx context.Context, pattern string) iter.Seq[kvbucket.Entry] {
	return func(yield func(kvbucket.Entry) bool) {
		for e := range f.Memory.Watch(ctx, pattern) {
			select {
			case <-f.isUp():
			case <-ctx.Done():
				return
			}
			if !yield(e) {
				return
			}
		}
	}
}

// hang waits for the end of a call's time, as a store does that never answers.
func hang(ctx context.Context) (kvbucket.Revision, error) {
	<-ctx.Done()
	return 0, fmt.Errorf("%w: %w", kvbucket.ErrUnknown, ctx.Err())
}

// loseEvery loses the acknowledgement of every nth write.
func loseEvery(n int64) func(context.Context, string, []byte, func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
	var count atomic.Int64
	return func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
		rev, err := do()
		if count.Add(1)%n == 0 {
			return 0, kvbucket.ErrUnknown
		}
		return rev, err
	}
}

// slowly delays every write, so that commands meet in the mailbox.
func slowly(d time.Duration) func(context.Context, string, []byte, func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
	return func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
		<-time.After(d)
		return do()
	}
}

func isPage(key string) bool  { return strings.HasPrefix(key, "l.") }
func isState(key string) bool { return strings.HasPrefix(key, "s.") }
