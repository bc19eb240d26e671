package record

import (
	"testing"
	"time"
)

func TestNextFence(t *testing.T) {
	tests := map[string]struct{ previous, micros, want uint64 }{
		"the clock is the floor":                     {5, 1000, 1000},
		"a clock behind is passed by one":            {1000, 5, 1001},
		"an equal clock is passed by one":            {1000, 1000, 1001},
		"a clock that is not trusted is not used":    {5, 0, 6},
		"a clock beyond exact floats is not used":    {5, MaxFence + 1, 6},
		"the last exact float can still be a fence.": {5, MaxFence, MaxFence},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nextFence(tt.previous, Now{Micros: tt.micros}); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestClockNeverShowsMoreThanTheTruth(t *testing.T) {
	c := started()
	if got := c.Since(at(time.Hour)); got != 0 {
		t.Errorf("before its commit: got %v, want 0", got)
	}
	c.commit(at(10 * time.Second))
	if got := c.Since(at(15 * time.Second)); got != 5*time.Second {
		t.Errorf("after 5s: got %v", got)
	}
	c.settle(at(15 * time.Second))
	next := Clock{Elapsed: c.Elapsed}
	next.see(at(100 * time.Second)) // another owner, with another clock
	if got := next.Since(at(101 * time.Second)); got != 6*time.Second {
		t.Errorf("one second into the next owner's time: got %v, want 6s", got)
	}
}

func TestClockIsStoredAtHalfAndAfterEveryQuarter(t *testing.T) {
	c := started()
	c.commit(at(0))
	var got []time.Duration
	for {
		due := c.next(11*time.Second, 10*time.Second, &Header{})
		got = append(got, due)
		if c.Since(at(due)) >= 11*time.Second {
			break
		}
		c.settle(at(due))
	}
	want := []time.Duration{5 * time.Second, 7500 * time.Millisecond, 10 * time.Second, 11 * time.Second}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// Owners that live shorter than the lease must not keep it alive: each hands on
// what it has seen pass.
func TestLeaseLapsesUnderOwnersThatKeepChanging(t *testing.T) {
	const ttl, tenure = 10 * time.Second, 3 * time.Second
	p := NewPage().(*Page)
	do(t, p, at(0), Acquire{Lease: "a", Op: "1", TTL: ttl})
	var total time.Duration
	first, second := Record(p), Record(nil)
	for total < 15*time.Second {
		// The owner of this tenure has its own clock, and inherits its own sight
		// of the last one but one.
		total += tenure
		if first.Tick(at(total)) && len(first.(*Page).Leases) == 0 {
			return
		}
		data, err := first.Encode(at(total))
		if err != nil {
			t.Fatal(err)
		}
		next, err := DecodePage(data, at(total))
		if err != nil {
			t.Fatal(err)
		}
		if second != nil {
			next.Inherit(second, at(total))
		}
		first, second = next, first
	}
	t.Errorf("a dead lease of %v is still held after %v", ttl, total)
}

func TestSightingsAreInherited(t *testing.T) {
	p := NewPage().(*Page)
	do(t, p, at(0), Acquire{Lease: "a", Op: "1", TTL: 10 * time.Second}, Acquire{Lease: "b", Op: "2", TTL: 10 * time.Second})
	data, err := p.Encode(at(0))
	if err != nil {
		t.Fatal(err)
	}
	seen, _ := DecodePage(data, at(time.Second))
	do(t, p, at(0), Renew{Lease: "b", Fence: p.Leases["b"].Fence, Renewal: 1})
	if data, err = p.Encode(at(0)); err != nil {
		t.Fatal(err)
	}
	now := at(9 * time.Second)
	claimed, _ := DecodePage(data, now)
	claimed.Inherit(seen, now)
	leases := claimed.(*Page).Leases
	if got := leases["a"].Running.Since(now); got != 8*time.Second {
		t.Errorf("a lease seen for 8s has lasted %v", got)
	}
	if got := leases["b"].Running.Since(now); got != 0 {
		t.Errorf("a lease renewed since has lasted %v, want 0", got)
	}
}

func TestClockIsStoredOftenWhenOwnersDoNotLast(t *testing.T) {
	const total, reign = 16500 * time.Millisecond, time.Second
	for name, tt := range map[string]struct {
		before Span
		owner  string
		least  time.Duration // of a second that is stored
		most   int           // writes within it
	}{
		"the owner before lasted a second": {Span(reign), "host.1", 900 * time.Millisecond, 16},
		"the owner before lasted long":     {Span(total), "host.1", 0, 0},
		"the owner before has resigned":    {Span(reign), "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := Header{Owner: tt.owner, Reign: tt.before}
			h.Claim("host.2", at(time.Minute))
			c, writes := Clock{}, 0
			c.see(at(time.Minute))
			for due := c.next(total, total, &h); due < time.Minute+reign; due = c.next(total, total, &h) {
				c.settle(at(due))
				writes++
			}
			if stored := time.Duration(c.Elapsed); stored < tt.least || writes > tt.most {
				t.Errorf("%v is stored by %d writes", stored, writes)
			}
		})
	}
}
