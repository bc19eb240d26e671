package kvbucket

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a Bucket in this process's memory. Its reads are never stale and no
// outcome is ever unknown, so what holds on Memory alone is not shown to hold on
// a store. It reads the time package's clock and blocks only on channels, so it
// works inside a testing/synctest bubble.
type Memory struct {
	mu       sync.Mutex // guards the fields below
	entries  map[string]Entry
	newest   Revision
	watchers map[*memoryWatcher]struct{}
	closed   bool
}

var _ Bucket = (*Memory)(nil)

// A memoryWatcher collects the keys that changed since its loop last looked.
type memoryWatcher struct {
	pattern string
	changed map[string]struct{} // guarded by Memory.mu
	wake    chan struct{}       // buffered: one token stands for any number of changes
}

// NewMemory returns an empty bucket.
func NewMemory() *Memory {
	return &Memory{entries: map[string]Entry{}, watchers: map[*memoryWatcher]struct{}{}}
}

// Close ends every Watch; calls that follow return ErrClosed. Closing again does
// nothing.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for w := range m.watchers {
		w.notify()
	}
	return nil
}

// Get implements [Bucket].
func (m *Memory) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return Entry{}, err
	}
	e, ok := m.entries[key]
	if !ok {
		return Entry{}, fmt.Errorf("%w: %q", ErrNotFound, key)
	}
	return clone(e), nil
}

// Update implements [Bucket].
func (m *Memory) Update(ctx context.Context, key string, value []byte, last Revision) (Revision, error) {
	if err := checkWrite(key, value); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return 0, err
	}
	if newest := m.entries[key].Revision; newest != last {
		return 0, fmt.Errorf("%w: %q is at %d, not at %d", ErrConflict, key, newest, last)
	}
	m.newest++
	m.entries[key] = clone(Entry{Key: key, Value: value, Revision: m.newest, Created: time.Now()})
	for w := range m.watchers {
		if matches(w.pattern, key) {
			w.changed[key] = struct{}{}
			w.notify()
		}
	}
	return m.newest, nil
}

// Watch implements [Bucket].
func (m *Memory) Watch(ctx context.Context, pattern string) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if checkPattern(pattern) != nil {
			return
		}
		w := m.subscribe(pattern)
		defer m.unsubscribe(w)
		for {
			entries, closed := m.take(w)
			if closed {
				return
			}
			for _, e := range entries {
				if ctx.Err() != nil || !yield(e) {
					return
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
		}
	}
}

// Keys implements [Bucket].
func (m *Memory) Keys(ctx context.Context, pattern string) ([]string, error) {
	if err := checkPattern(pattern); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(m.matching(pattern))), nil
}

// usable returns the error of a call that finds the bucket closed or its own
// context ended. The caller holds mu.
func (m *Memory) usable(ctx context.Context) error {
	if m.closed {
		return ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// matching returns the keys that match pattern. The caller holds mu.
func (m *Memory) matching(pattern string) map[string]struct{} {
	keys := map[string]struct{}{}
	for key := range m.entries {
		if matches(pattern, key) {
			keys[key] = struct{}{}
		}
	}
	return keys
}

func (m *Memory) subscribe(pattern string) *memoryWatcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &memoryWatcher{pattern: pattern, changed: m.matching(pattern), wake: make(chan struct{}, 1)}
	m.watchers[w] = struct{}{}
	return w
}

func (m *Memory) unsubscribe(w *memoryWatcher) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.watchers, w)
}

// take returns the newest entry of each key that changed since the last take, in
// the order of their changes, and whether the bucket was closed.
func (m *Memory) take(w *memoryWatcher) (entries []Entry, closed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, true
	}
	for key := range w.changed {
		entries = append(entries, clone(m.entries[key]))
	}
	clear(w.changed)
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return entries, false
}

func (w *memoryWatcher) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func clone(e Entry) Entry {
	e.Value = bytes.Clone(e.Value)
	return e
}

// checkWrite returns the error of a write that no store has to see.
func checkWrite(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("%w: %d bytes for %q, at most %d", ErrTooLarge, len(value), key, MaxValue)
	}
	return nil
}
