package objects

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// maxClockOffset is how far this machine's clock may be from the store's before
// it is no longer used as a floor for fences. A clock far ahead would raise fences
// for the whole fleet, for ever.
const maxClockOffset = 10 * time.Second

// checkClockEvery is the pause between comparisons of the two.
const checkClockEvery = time.Minute

// A stamp is a moment on both clocks of this machine.
type stamp struct {
	mono time.Duration // since the host was opened
	wall time.Time
}

// clockSince returns what a host reads its clocks by: opened has a monotonic
// reading.
func clockSince(opened time.Time) func() stamp {
	return func() stamp {
		now := time.Now()
		return stamp{mono: now.Sub(opened), wall: now.Round(0)} // Round drops the monotonic reading
	}
}

// until returns the time from s to later: the larger of what the clocks say. The
// monotonic clock stops while a machine is suspended, the wall clock may be set
// back: whoever trusts the larger one stops acting early, never late.
func (s stamp) until(later stamp) time.Duration {
	return max(later.mono-s.mono, later.wall.Sub(s.wall))
}

// A floor decides whether this machine's clock may be a floor for fences.
type floor struct {
	checked atomic.Int64 // the host's clock at the newest comparison, plus one; zero: never
	usable  atomic.Bool
}

// due reports whether the clocks are to be compared again at now.
func (f *floor) due(now time.Duration) bool {
	checked := f.checked.Load()
	return checked == 0 || now-time.Duration(checked) >= checkClockEvery
}

// compare takes the store's time of a write that was sent and acknowledged at the
// given times by this machine's clock.
func (f *floor) compare(now time.Duration, sent, created, acked time.Time) {
	f.usable.Store(created.After(sent.Add(-maxClockOffset)) && created.Before(acked.Add(maxClockOffset)))
	f.checked.Store(int64(now) + 1)
}

// skip puts the comparison off, since it could not be made.
func (f *floor) skip(now time.Duration) { f.checked.Store(int64(now) + 1) }

// micros returns the wall clock in microseconds, or zero if it is not to be used.
func (f *floor) micros(wall time.Time) uint64 {
	now := wall.UnixMicro()
	if now < 0 || !f.usable.Load() {
		return 0
	}
	return uint64(now)
}

// jittered returns a time between d/2 and d, at least a millisecond: callers that
// were refused together do not come back together.
func jittered(d time.Duration) time.Duration {
	return max(time.Millisecond, d/2+rand.N(d/2+1))
}

// pause waits for d or the end of ctx, and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
