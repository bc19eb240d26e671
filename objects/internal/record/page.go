package record

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// Pages is the number of pages of a class, and MaxLeases the number of leases that
// a page holds at a time.
const (
	Pages     = 64
	MaxLeases = 128
)

// maxPageBytes keeps a page below what a bucket takes, whatever the names, and
// leaseBytes bounds what a lease takes beside its strings.
const (
	maxPageBytes = 60 << 10
	leaseBytes   = 256
)

// maxBusyRetry bounds the retry time of a busy answer: most holders release long
// before their lease would lapse.
const maxBusyRetry = time.Second

// A Page is the record of the leases that are held in one part of a class. A
// lease that is released or lapses leaves the page; the page stays, and its fence
// with it, so names may be without number and fences still never go back.
type Page struct {
	Header
	Fence  uint64           `json:"fence"` // the newest given to any lease of the page
	Leases map[string]Lease `json:"leases,omitempty"`
}

// A Lease is a held lease.
type Lease struct {
	Fence   uint64 `json:"fence"`
	Holder  string `json:"holder"`
	Op      string `json:"op"`
	Attempt int    `json:"attempt"` // of Op that was granted
	Renewal int    `json:"renewal"` // the newest committed, counted by the holder
	TTL     Span   `json:"ttl"`
	Running Clock  `json:"running"` // since the grant or the newest renewal
}

// Acquire asks for a lease.
type Acquire struct {
	Lease   string
	Op      string
	Attempt int
	Holder  string
	TTL     time.Duration
}

// Renew extends a lease by its ttl.
type Renew struct {
	Lease   string
	Fence   uint64
	Renewal int // counts up with every attempt
}

// Release ends a lease.
type Release struct {
	Lease string
	Fence uint64
}

// Abandon ends the lease that the operation was granted, because nobody awaits the
// grant any more.
type Abandon struct{ Lease, Op string }

// Urgent implements [Command].
func (Acquire) Urgent() bool { return false }

// Urgent implements [Command].
func (Renew) Urgent() bool { return true }

// Urgent implements [Command].
func (Release) Urgent() bool { return true }

// Urgent implements [Command].
func (Abandon) Urgent() bool { return true }

// PageOf returns the number of the page that holds the leases of an object, by the
// object's name within its class. It must never change: two hosts that disagree
// would both grant.
func PageOf(rest string) int {
	h := fnv.New32a()
	h.Write([]byte(rest))
	return int(h.Sum32() % Pages)
}

// NewPage returns the record of a page that has none yet.
func NewPage() Record { return &Page{} }

// DecodePage parses a stored record that is seen at now.
func DecodePage(data []byte, now Now) (Record, error) {
	p := &Page{}
	if err := decode(data, p); err != nil {
		return nil, err
	}
	p.each(func(c *Clock) { c.see(now) })
	return p, nil
}

// Clone implements [Record].
func (p *Page) Clone() Record {
	c := *p
	c.Leases = maps.Clone(p.Leases)
	return &c
}

// Encode implements [Record].
func (p *Page) Encode(now Now) ([]byte, error) {
	p.each(func(c *Clock) { c.settle(now) })
	p.measure(now)
	return json.Marshal(p)
}

// Commit implements [Record].
func (p *Page) Commit(now Now) []Event {
	p.each(func(c *Clock) { c.commit(now) })
	return nil
}

// Inherit implements [Record].
func (p *Page) Inherit(seen Record, now Now) {
	old, ok := seen.(*Page)
	if !ok {
		return
	}
	p.Fence = max(p.Fence, old.Fence) // a record may have been deleted and begun anew
	for key, l := range p.Leases {
		if was, ok := old.Leases[key]; ok && was.Fence == l.Fence && was.Renewal == l.Renewal {
			l.Running.inherit(was.Running, now)
			p.Leases[key] = l
		}
	}
}

// Next implements [Record].
func (p *Page) Next() (time.Duration, bool) {
	var (
		next time.Duration
		ok   bool
	)
	for _, l := range p.Leases {
		due := l.Running.next(lapseAfter(l.TTL), time.Duration(l.TTL), &p.Header)
		if !ok || due < next {
			next, ok = due, true
		}
	}
	return next, ok
}

// Tick implements [Record].
func (p *Page) Tick(now Now) bool {
	due, ok := p.Next()
	if !ok || now.Mono < due {
		return false
	}
	maps.DeleteFunc(p.Leases, func(_ string, l Lease) bool { return l.Remaining(now) == 0 })
	return true
}

// Remaining returns how long the owner waits for a renewal.
func (l Lease) Remaining(now Now) time.Duration {
	return max(0, lapseAfter(l.TTL)-l.Running.Since(now))
}

// Apply implements [Record].
func (p *Page) Apply(cmd Command, now Now) (Answer, bool) {
	switch c := cmd.(type) {
	case Acquire:
		return p.acquire(c, now)
	case Renew:
		return p.renew(c)
	case Release:
		if p.Leases[c.Lease].Fence != c.Fence {
			return Answer{Code: abi.LeaseLost}, false
		}
		delete(p.Leases, c.Lease)
		return Answer{}, true
	case Abandon:
		if l, ok := p.Leases[c.Lease]; !ok || l.Op != c.Op {
			return Answer{}, false
		}
		delete(p.Leases, c.Lease)
		return Answer{}, true
	case Resign:
		return Answer{}, p.resign()
	}
	return Answer{Code: abi.Internal}, false
}

func (p *Page) acquire(c Acquire, now Now) (Answer, bool) {
	if held, ok := p.Leases[c.Lease]; ok {
		if held.Op == c.Op {
			return Answer{Fence: held.Fence, Attempt: held.Attempt}, false
		}
		return Answer{Code: abi.LeaseBusy, RetryAfter: min(held.Remaining(now), maxBusyRetry)}, false
	}
	if len(p.Leases) >= MaxLeases || p.size()+weight(c.Lease, c.Holder, c.Op) > maxPageBytes {
		return Answer{Code: abi.Overloaded}, false
	}
	if p.Leases == nil {
		p.Leases = map[string]Lease{}
	}
	p.Fence = nextFence(p.Fence, now)
	p.Leases[c.Lease] = Lease{
		Fence: p.Fence, Holder: c.Holder, Op: c.Op, Attempt: c.Attempt, TTL: Span(c.TTL), Running: started(),
	}
	return Answer{Fence: p.Fence, Attempt: c.Attempt}, true
}

// renew restarts the lease's clock. A renewal that arrives after a newer one
// changes nothing.
func (p *Page) renew(c Renew) (Answer, bool) {
	l, ok := p.Leases[c.Lease]
	if !ok || l.Fence != c.Fence {
		return Answer{Code: abi.LeaseLost}, false
	}
	if c.Renewal <= l.Renewal {
		return Answer{Fence: l.Fence, Attempt: l.Renewal}, false
	}
	l.Renewal, l.Running = c.Renewal, started()
	p.Leases[c.Lease] = l
	return Answer{Fence: l.Fence, Attempt: c.Renewal}, true
}

// size bounds the length of the encoded page from above, if its names need no
// escapes in JSON.
func (p *Page) size() int {
	n := leaseBytes + len(p.Owner)
	for key, l := range p.Leases {
		n += weight(key, l.Holder, l.Op)
	}
	return n
}

func weight(key, holder, op string) int { return leaseBytes + len(key) + len(holder) + len(op) }

func (p *Page) each(f func(*Clock)) {
	for key, l := range p.Leases {
		f(&l.Running)
		p.Leases[key] = l
	}
}
