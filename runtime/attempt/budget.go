package attempt

import (
	"sync"
	"time"
)

const (
	slots = 10          // of the window
	slot  = time.Second // the time that one of them covers

	// allowance is how many retries a window has whatever its calls: a
	// dependency that is called once in a while has a budget too.
	allowance = 10
)

// A Budget bounds the retries of a dependency to a share of its calls. In a
// window of ten seconds there are at most 10 retries, or that share of the
// window's calls if it is more. Its methods may be called by several goroutines.
type Budget struct {
	share float64

	mu     sync.Mutex // guards the following
	newest int64      // number of the newest slot
	counts [slots]struct{ calls, retries int64 }
}

// Call counts a call.
func (b *Budget) Call(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	b.counts[b.newest%slots].calls++
}

// Take takes a retry out of the budget, if there is one.
func (b *Budget) Take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(now)
	var calls, retries int64
	for _, c := range b.counts {
		calls += c.calls
		retries += c.retries
	}
	if retries >= max(allowance, int64(b.share*float64(calls))) {
		return false
	}
	b.counts[b.newest%slots].retries++
	return true
}

// turn empties the slots that the window has left. A clock that goes back moves
// nothing.
func (b *Budget) turn(now time.Time) {
	number := now.UnixNano() / int64(slot)
	if number-b.newest > slots {
		b.newest = number - slots
	}
	for b.newest < number {
		b.newest++
		b.counts[b.newest%slots] = struct{ calls, retries int64 }{}
	}
}
