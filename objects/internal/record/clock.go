package record

import (
	"math"
	"time"
)

// MaxFence bounds fences: beyond it a float64, and so a JavaScript number or a
// JSON reader, cannot tell neighbors apart.
const MaxFence = 1<<53 - 1

// A Span is a duration that is stored as Go writes it, such as "1m30s".
type Span time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Span) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*s = Span(d)
	return err
}

// A Clock measures how long something has lasted, without comparing the clocks of
// two hosts: each owner adds the time that it has seen pass to a lower bound that
// its predecessors have stored. It never shows more than the true time.
type Clock struct {
	// Elapsed is the lower bound at the time of the write.
	Elapsed Span `json:"elapsed"`

	since   time.Duration // the reading of Mono at which Elapsed held
	pending bool          // starts at the next commit
}

// started returns a clock that starts when the record it is in is committed.
func started() Clock { return Clock{pending: true} }

// Since returns how long the thing has lasted at least.
func (c Clock) Since(now Now) time.Duration {
	if c.pending {
		return 0
	}
	return time.Duration(c.Elapsed) + max(0, now.Mono-c.since)
}

// settle brings Elapsed up to now, as the store is to have it.
func (c *Clock) settle(now Now) {
	if !c.pending {
		c.Elapsed, c.since = Span(c.Since(now)), now.Mono
	}
}

// commit starts the clock if it waits for that.
func (c *Clock) commit(now Now) {
	if c.pending {
		*c = Clock{since: now.Mono}
	}
}

// see starts the clock of a record that was just read.
func (c *Clock) see(now Now) { c.since = now.Mono }

// inherit keeps the larger of two measurements of the same thing.
func (c *Clock) inherit(seen Clock, now Now) {
	if seen.Since(now) > c.Since(now) {
		*c = seen
	}
}

// next returns the reading at which the clock reaches total or, if that is
// earlier, at which the store is to learn how far it is: at half of period and
// after every further quarter. Without the second, owners that change more often
// than the thing lasts would start over each time and keep it alive for ever. A
// lease that its holder renews, after a third as a rule, never gets to half. If the
// owner before was none for as long as the thing lasts, this one may not be either:
// then it stores often enough to lose no more than a sixteenth of its reign.
func (c Clock) next(total, period time.Duration, h *Header) time.Duration {
	if c.pending {
		return math.MaxInt64
	}
	elapsed := time.Duration(c.Elapsed)
	again := max(period/4, period/2-elapsed)
	if h.claimed && h.before < total {
		again = min(again, max(shortestPause, (c.since-h.since)/16))
	}
	return c.since + min(total-elapsed, again)
}

// shortestPause keeps an owner from storing all the time that time passes.
const shortestPause = time.Second / 16

// lapseAfter returns when an owner ends a lease by its own clock. Holders stop at
// 0.8 of the ttl, counted from before they asked: the distance covers clocks that
// run at rates up to a third apart.
func lapseAfter(ttl Span) time.Duration { return time.Duration(ttl) * 11 / 10 }

// nextFence returns a fence above previous. The clock keeps fences growing even if
// the store forgets writes that it has acknowledged.
func nextFence(previous uint64, now Now) uint64 {
	if now.Micros > previous && now.Micros <= MaxFence {
		return now.Micros
	}
	return previous + 1
}
