package record

import (
	"fmt"
	"testing"
	"time"
)

var byRate = Policy{
	ResetAfter: Span(30 * time.Second), MaxResetAfter: Span(100 * time.Second),
	Rate: Rate{Window: Span(10 * time.Second), MinCalls: 10, Failures: 0.5, Slow: 0.8},
}

func totals(host string, number uint64, calls, failures, slow int) Totals {
	return Totals{Host: host, Number: number, Counts: Counts{calls, failures, slow}, Policy: byRate}
}

func TestTheRateOfTheFleetOpensTheBreaker(t *testing.T) {
	type step struct {
		after time.Duration
		cmd   Totals
	}
	for name, tc := range map[string]struct {
		steps []step
		state string
		hosts int // whose windows are kept
	}{
		"too few calls decide nothing":       {[]step{{0, totals("a", 1, 9, 9, 0)}}, Closed, 1},
		"half of enough calls":               {[]step{{0, totals("a", 1, 10, 5, 0)}}, Open, 0},
		"less than half":                     {[]step{{0, totals("a", 1, 11, 5, 0)}}, Closed, 1},
		"slow calls":                         {[]step{{0, totals("a", 1, 10, 0, 8)}}, Open, 0},
		"fewer slow calls":                   {[]step{{0, totals("a", 1, 10, 0, 7)}}, Closed, 1},
		"slow and failing calls are not one": {[]step{{0, totals("a", 1, 10, 4, 7)}}, Closed, 1},
		"two hosts together":                 {[]step{{0, totals("a", 1, 6, 6, 0)}, {0, totals("b", 1, 6, 1, 0)}}, Open, 0},
		"a healthy host outweighs":           {[]step{{0, totals("b", 1, 100, 1, 0)}, {0, totals("a", 1, 10, 10, 0)}}, Closed, 2},
		"the newest of a host holds":         {[]step{{0, totals("a", 1, 9, 4, 0)}, {0, totals("a", 2, 9, 4, 0)}}, Closed, 1},
		"an older one does not":              {[]step{{0, totals("a", 2, 9, 1, 0)}, {0, totals("a", 1, 100, 100, 0)}}, Closed, 1},
		"a repeat changes nothing":           {[]step{{0, totals("a", 1, 9, 9, 0)}, {0, totals("a", 1, 9, 9, 0)}}, Closed, 1},
		"windows end":                        {[]step{{0, totals("a", 1, 9, 9, 0)}, {10 * time.Second, totals("b", 1, 9, 1, 0)}}, Closed, 1},
		"windows count until then":           {[]step{{0, totals("a", 1, 9, 9, 0)}, {9 * time.Second, totals("b", 1, 9, 1, 0)}}, Open, 0},
		"nobody is suspicious any more":      {[]step{{0, totals("a", 1, 9, 1, 0)}, {0, totals("b", 1, 9, 0, 0)}, {0, totals("a", 2, 9, 0, 0)}}, Closed, 0},
		"good calls alone are not kept":      {[]step{{0, totals("a", 1, 9, 0, 0)}}, Closed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o, now := NewObject().(*Object), time.Duration(0)
			for _, s := range tc.steps {
				now += s.after
				do(t, o, at(now), s.cmd)
			}
			if o.Breaker.State != tc.state || len(o.Breaker.Windows) != tc.hosts {
				t.Errorf("got %s with the windows %v, want %s with %d", o.Breaker.State, o.Breaker.Windows, tc.state, tc.hosts)
			}
		})
	}
}

func TestTotalsOfAnotherTimeSayNothing(t *testing.T) {
	o := NewObject().(*Object)
	do(t, o, at(0), totals("a", 1, 10, 10, 0))
	fence := do(t, o, at(time.Minute), claim("op")).Fence
	do(t, o, at(time.Minute), Settle{Generation: o.Breaker.Generation, Fence: fence, Policy: byRate})
	if o.Breaker.State != Closed {
		t.Fatalf("got %s", o.Breaker.State)
	}
	do(t, o, at(time.Minute), totals("b", 1, 100, 100, 0)) // of the first generation
	if o.Breaker.State != Closed || o.Breaker.Windows != nil {
		t.Errorf("got %s with %v", o.Breaker.State, o.Breaker.Windows)
	}
	without := totals("a", 9, 100, 100, 0)
	without.Generation, without.Policy = o.Breaker.Generation, policy
	do(t, o, at(time.Minute), without)
	if o.Breaker.State != Closed || o.Breaker.Windows != nil {
		t.Errorf("without a rate: got %s with %v", o.Breaker.State, o.Breaker.Windows)
	}
}

func TestAnOrderKeepsTheRateFromOpening(t *testing.T) {
	o := NewObject().(*Object)
	do(t, o, at(0), Override{Op: "op", State: Closed, For: time.Minute})
	do(t, o, at(time.Second), totals("a", 1, 10, 10, 0))
	if o.Breaker.State != Closed {
		t.Errorf("got %s", o.Breaker.State)
	}
	do(t, o, at(time.Minute), totals("a", 2, 10, 10, 0))
	if o.Breaker.State != Open {
		t.Errorf("after the order: got %s", o.Breaker.State)
	}
}

func TestTheAgeOfAWindowOutlivesItsOwner(t *testing.T) {
	o := NewObject().(*Object)
	do(t, o, at(0), totals("a", 1, 9, 9, 0))
	data, err := o.Encode(at(6 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	r, err := DecodeObject(data, at(0)) // an owner whose clock starts
	if err != nil {
		t.Fatal(err)
	}
	do(t, r, at(4*time.Second), totals("b", 1, 9, 1, 0))
	if got := r.(*Object).Breaker; got.State != Closed || len(got.Windows) != 1 {
		t.Errorf("got %+v, want the window of ten seconds gone", got)
	}
}

func TestAPageOfWindowsIsBounded(t *testing.T) {
	o := NewObject().(*Object)
	for i := range 2 * maxWindows {
		do(t, o, at(time.Duration(i)*time.Millisecond), totals(fmt.Sprintf("host-%03d", i), 1, 100, 1, 0))
	}
	if n := len(o.Breaker.Windows); n != maxWindows {
		t.Errorf("%d windows are kept, want %d", n, maxWindows)
	}
	if _, ok := o.Breaker.Windows["host-255"]; !ok {
		t.Error("the newest window made room for an older one")
	}
	data, err := o.Encode(at(time.Second))
	if err != nil || len(data) > 32<<10 {
		t.Errorf("%d bytes, %v: a value has 64 KiB at most", len(data), err)
	}
}

func TestAWindowIsAsOldAsItWasFirstSeen(t *testing.T) {
	o := NewObject().(*Object)
	do(t, o, at(0), totals("a", 1, 9, 9, 0))
	data, err := o.Encode(at(0))
	if err != nil {
		t.Fatal(err)
	}
	first, err := DecodeObject(data, at(0))
	if err != nil {
		t.Fatal(err)
	}
	again, err := DecodeObject(data, at(6*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	again.Inherit(first, at(6*time.Second))
	do(t, again, at(10*time.Second), totals("b", 1, 9, 1, 0))
	if got := again.(*Object).Breaker; got.State != Closed || len(got.Windows) != 1 {
		t.Errorf("got %+v, want the window of ten seconds gone", got)
	}
}

func TestACopyHasWindowsOfItsOwn(t *testing.T) {
	o := NewObject().(*Object)
	do(t, o, at(0), totals("a", 1, 9, 1, 0))
	do(t, o.Clone(), at(0), totals("b", 1, 9, 1, 0))
	if len(o.Breaker.Windows) != 1 {
		t.Errorf("a copy's windows are in the original: %v", o.Breaker.Windows)
	}
}
