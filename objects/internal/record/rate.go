package record

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A Rate opens a breaker by the share of calls that fail, or are slow, in place of
// failures in a row. Its zero value is none.
type Rate struct {
	Window   Span    `json:"window"`         // what is counted is not older
	MinCalls int     `json:"min_calls"`      // fewer calls decide nothing
	Failures float64 `json:"failures"`       // the share of calls that opens
	Slow     float64 `json:"slow,omitempty"` // the same of slow calls; zero if none are
}

// Counts are what calls of one window came to. A call may be a failure and slow.
type Counts struct {
	Calls    int `json:"calls"`
	Failures int `json:"failures"`
	Slow     int `json:"slow,omitempty"`
}

// Bad reports whether one of the calls was not good.
func (c Counts) Bad() bool { return c.Failures > 0 || c.Slow > 0 }

// Plus returns the sum.
func (c Counts) Plus(o Counts) Counts {
	return Counts{c.Calls + o.Calls, c.Failures + o.Failures, c.Slow + o.Slow}
}

// Trips reports whether calls that came to c open the breaker.
func (r Rate) Trips(c Counts) bool {
	calls := float64(c.Calls)
	return c.Calls >= r.MinCalls &&
		(c.Failures > 0 && float64(c.Failures) >= r.Failures*calls || r.Slow > 0 && c.Slow > 0 && float64(c.Slow) >= r.Slow*calls)
}

// A Window is what one host has counted, as it reported last.
type Window struct {
	Counts
	Number uint64 `json:"number"` // of the report
	Age    Clock  `json:"age"`
}

// Totals tells what the calls of one host's window came to. Hosts send them while
// some host has seen a bad call.
type Totals struct {
	Generation uint64
	Host       string // its incarnation
	Number     uint64 // counts its reports: the newest holds
	Counts     Counts
	Policy     Policy
}

// Urgent implements [Command].
func (Totals) Urgent() bool { return true }

// maxWindows bounds the hosts whose windows are summed; the oldest makes room.
const maxWindows = 128

// totals takes a host's window, and opens the breaker if the windows of all hosts
// together say so. It forgets them all once no host has seen a bad call.
func (o *Object) totals(c Totals, now Now) (changed bool) {
	b, rate := &o.Breaker, c.Policy.Rate
	if b.State != Closed || c.Generation != b.Generation || rate.Window == 0 || c.Number <= b.Windows[c.Host].Number {
		return false
	}
	before := len(b.Windows)
	b.take(c, now)
	var sum Counts
	for _, w := range b.Windows {
		sum = sum.Plus(w.Counts)
	}
	if rate.Trips(sum) && !o.Forced.active(Closed, now) {
		o.open(c.Policy, now)
		return true
	}
	if !sum.Bad() {
		b.Windows = nil
		return before > 0
	}
	return true
}

// take puts a host's window in the place of its last one, and drops those that
// are as old as what they count may be.
func (b *Breaker) take(c Totals, now Now) {
	if b.Windows == nil {
		b.Windows = map[string]Window{}
	}
	b.Windows[c.Host] = Window{Counts: c.Counts, Number: c.Number, Age: started()}
	maps.DeleteFunc(b.Windows, func(_ string, w Window) bool { return w.Age.Since(now) >= time.Duration(c.Policy.Rate.Window) })
	if len(b.Windows) > maxWindows {
		delete(b.Windows, b.oldest(now))
	}
}

// oldest returns the host whose window was reported first.
func (b *Breaker) oldest(now Now) string {
	return slices.MaxFunc(slices.Sorted(maps.Keys(b.Windows)), func(x, y string) int {
		return cmp.Compare(b.Windows[x].Age.Since(now), b.Windows[y].Age.Since(now))
	})
}

// eachWindow changes the clocks of the windows.
func (b *Breaker) eachWindow(f func(*Clock)) {
	for host, w := range b.Windows {
		f(&w.Age)
		b.Windows[host] = w
	}
}

// inheritWindows keeps how old the windows are that have not been reported again.
func (b *Breaker) inheritWindows(old *Breaker, now Now) {
	for host, w := range b.Windows {
		if seen, ok := old.Windows[host]; ok && seen.Number == w.Number {
			w.Age.inherit(seen.Age, now)
			b.Windows[host] = w
		}
	}
}
