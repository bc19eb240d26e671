package record

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
)

const ttl = 10 * time.Second

func acquire(lease, op string) Acquire {
	return Acquire{Lease: lease, Op: op, Attempt: 1, Holder: "host", TTL: ttl}
}

func TestLeaseCommands(t *testing.T) {
	held := func(t *testing.T) *Page {
		t.Helper()
		p := NewPage().(*Page)
		do(t, p, at(0), acquire("a", "1"))
		return p
	}
	const fence = 1 // the first without a clock
	tests := map[string]struct {
		cmd     Command
		code    abi.Code
		fence   uint64
		changed bool
		left    int
	}{
		"another operation is busy":                   {acquire("a", "2"), abi.LeaseBusy, 0, false, 1},
		"another lease is granted with a newer fence": {acquire("b", "2"), 0, 2, true, 2},
		"the same operation finds its grant":          {acquire("a", "1"), 0, fence, false, 1},
		"a renewal is taken":                          {Renew{"a", fence, 1}, 0, fence, true, 1},
		"a renewal of another fence is lost":          {Renew{"a", 9, 1}, abi.LeaseLost, 0, false, 1},
		"a renewal of no lease is lost":               {Renew{"b", fence, 1}, abi.LeaseLost, 0, false, 1},
		"a release ends it":                           {Release{"a", fence}, 0, 0, true, 0},
		"a release of another fence does not":         {Release{"a", 9}, abi.LeaseLost, 0, false, 1},
		"a release of no lease is lost":               {Release{"b", fence}, abi.LeaseLost, 0, false, 1},
		"its operation abandons it":                   {Abandon{"a", "1"}, 0, 0, true, 0},
		"another operation does not":                  {Abandon{"a", "2"}, 0, 0, false, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := held(t)
			a, changed := p.Apply(tt.cmd, at(time.Second))
			if a.Code != tt.code || a.Fence != tt.fence || changed != tt.changed || len(p.Leases) != tt.left {
				t.Errorf("got %v, fence %d, changed %t, %d leases; want %v, fence %d, changed %t, %d leases",
					a.Code, a.Fence, changed, len(p.Leases), tt.code, tt.fence, tt.changed, tt.left)
			}
		})
	}
}

func TestBusyAnswerSaysWhenToRetry(t *testing.T) {
	p := NewPage()
	do(t, p, at(0), acquire("a", "1"))
	if a := do(t, p, at(ttl), acquire("a", "2")); a.RetryAfter != ttl/10 {
		t.Errorf("got %v, want the %v until the lease lapses", a.RetryAfter, ttl/10)
	}
}

func TestRenewalsThatArriveOutOfOrder(t *testing.T) {
	p := NewPage().(*Page)
	fence := do(t, p, at(0), acquire("a", "1")).Fence
	do(t, p, at(5*time.Second), Renew{"a", fence, 2})
	if a := do(t, p, at(9*time.Second), Renew{"a", fence, 1}); a.Code != 0 || a.Attempt != 2 {
		t.Errorf("got %v for renewal %d, want the answer of renewal 2", a.Code, a.Attempt)
	}
	if got := p.Leases["a"].Running.Since(at(9 * time.Second)); got != 4*time.Second {
		t.Errorf("the old renewal has moved the clock to %v, want 4s", got)
	}
}

func TestLeaseLapsesByTheOwnersClock(t *testing.T) {
	p := NewPage().(*Page)
	fence := do(t, p, at(0), acquire("a", "1")).Fence
	if p.Tick(at(ttl*11/10 - 1)); len(p.Leases) != 1 {
		t.Fatal("lapsed before 1.1 ttl")
	}
	if changed := p.Tick(at(ttl * 11 / 10)); !changed || len(p.Leases) != 0 {
		t.Fatal("still held at 1.1 ttl")
	}
	if a := do(t, p, at(ttl*11/10), Renew{"a", fence, 1}); a.Code != abi.LeaseLost {
		t.Errorf("renewal of a lapsed lease: got %v", a.Code)
	}
}

func TestFenceGrowsWithGrantsAlone(t *testing.T) {
	p := NewPage().(*Page)
	var last uint64
	for i := range 10 {
		a := do(t, p, at(0), acquire("a", fmt.Sprint(i)))
		if a.Fence <= last {
			t.Fatalf("grant %d has fence %d after %d", i, a.Fence, last)
		}
		last = a.Fence
		if got := do(t, p, at(0), Renew{"a", last, 1}).Fence; got != last {
			t.Fatalf("the renewal changed the fence from %d to %d", last, got)
		}
		do(t, p, at(0), Release{"a", last})
	}
	if len(p.Leases) != 0 || p.Fence != last {
		t.Errorf("got %d leases and fence %d; want an empty page that keeps fence %d", len(p.Leases), p.Fence, last)
	}
}

func TestFullPageIsOverloaded(t *testing.T) {
	p := NewPage().(*Page)
	for i := range MaxLeases {
		if a := do(t, p, at(0), acquire(fmt.Sprint(i), fmt.Sprint(i))); a.Code != 0 {
			t.Fatalf("lease %d: %v", i, a.Code)
		}
	}
	if a := do(t, p, at(0), acquire("more", "more")); a.Code != abi.Overloaded {
		t.Errorf("got %v, want overloaded", a.Code)
	}
	if a := do(t, p, at(0), Release{"0", p.Leases["0"].Fence}, acquire("more", "more")); a.Code != 0 {
		t.Errorf("after a release: %v", a.Code)
	}
}

func TestPageNeverOutgrowsTheStore(t *testing.T) {
	p := NewPage()
	long := strings.Repeat("n", 1500)
	for i := range MaxLeases {
		cmd := acquire(fmt.Sprint(long, i), fmt.Sprint(i))
		cmd.TTL = 23*time.Hour + 59*time.Minute + 59*time.Second + 999_999_999
		do(t, p, at(0), cmd)
	}
	data, err := p.Encode(at(time.Hour + 1))
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > kvbucket.MaxValue {
		t.Errorf("the page takes %d bytes, the store %d", len(data), kvbucket.MaxValue)
	}
}

func TestPageOfNeverChanges(t *testing.T) {
	for rest, want := range map[string]int{"": 5, "42": 3, "main": 8} {
		if got := PageOf(rest); got != want {
			t.Errorf("PageOf(%q) is %d, and was %d", rest, got, want)
		}
	}
}

func TestStateKeepsAnyBytes(t *testing.T) {
	for _, data := range [][]byte{nil, {}, []byte("a\nb"), {0, 255, '\n'}} {
		s := State{Schema: Schema, Fence: 7, Exists: true, Commit: "c", Data: data}
		encoded, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeState(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data, data) {
			t.Errorf("got %q, want %q", got.Data, data)
		}
		got.Data, s.Data = nil, nil
		if diff := cmp.Diff(s, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestKeysAreReadable(t *testing.T) {
	for got, want := range map[string]string{
		ObjectKey("shop", "payments"):                      "o.shop.payments",
		PageKey("shop", "guild-settings", 7):               "l.shop.guild-settings.7",
		StateKey("shop", "guild-settings/42", "main", "k"): "s.shop.guild-settings/42.main.k",
		ObjectKey("a.b", "c d"):                            "o.a=2Eb.c=20d",
		LeaseKey("", "main"):                               "=.main",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
