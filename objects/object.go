package objects

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// An Object has leases and state. Its methods may be called from any number of
// goroutines.
type Object struct {
	host *Host
	id   ID
	rest string // the name within its class
	page string // the key of the page that holds the object's leases
}

// Object returns the object id for leases and state. It costs nothing until it is
// used and need not be kept. The error unwraps to abi.Invalid.
func (h *Host) Object(id ID) (*Object, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	class, rest := id.split()
	if class == "" {
		return nil, invalid("name %q: no class before the slash", id.Name)
	}
	page := record.PageKey(id.Namespace, class, record.PageOf(rest))
	if err := checkKey(page); err != nil {
		return nil, err
	}
	return &Object{host: h, id: id, rest: rest, page: page}, nil
}

// askAgainEvery is the pause after which a queued caller repeats his command, at
// most: the lease that he gets runs from his newest attempt, and an owner drops
// those it no longer hears of.
const askAgainEvery = 500 * time.Millisecond

// Acquire takes a lease of the object, or waits for it in the order of arrival
// for up to opts.Wait. Errors: a *Refusal of lease_busy, overloaded (the page of
// the class is full, or too many commands wait) or unavailable; abi.Invalid; those
// of ctx.
func (o *Object) Acquire(ctx context.Context, opts LeaseOptions) (*Lease, error) {
	opts, err := opts.resolve()
	if err != nil {
		return nil, err
	}
	if err := o.host.open(); err != nil {
		return nil, err
	}
	l, err := o.acquire(ctx, opts)
	if err != nil {
		o.host.metrics.leaseFailures.WithLabelValues("acquire", abi.CodeOf(err).String()).Inc()
		return nil, err
	}
	return l, nil
}

func (o *Object) acquire(ctx context.Context, opts LeaseOptions) (*Lease, error) {
	b := &bid{
		node: o.host.node(o.page, pageKind()),
		cmd: record.Acquire{
			Lease: record.LeaseKey(o.rest, opts.Name), Op: o.host.id(), Holder: o.host.owner, TTL: opts.TTL,
		},
		wait:   opts.Wait,
		reply:  make(chan reply, 1),
		parked: new(atomic.Bool),
	}
	a, err := b.run(ctx)
	if err != nil {
		return nil, err
	}
	l := newLease(ctx, o, opts, b, a)
	if l.Remaining() == 0 || !l.keep() {
		l.halt()
		b.abandon() // the store took so long that the grant is over, or the host closes
		return nil, unavailable()
	}
	return l, nil
}

// A bid is one attempt after another to be granted a lease.
type bid struct {
	node    *node
	cmd     record.Acquire
	wait    time.Duration
	reply   chan reply   // of all attempts
	parked  *atomic.Bool // the owner has let an attempt wait
	last    *request     // the newest attempt
	sent    []stamp      // by attempt
	entered bool         // an attempt has come into the mailbox
}

// run repeats the command until there is an answer. A bid that ends without one
// takes it back.
func (b *bid) run(ctx context.Context) (record.Answer, error) {
	live, end := context.WithCancelCause(ctx)
	defer end(nil) // drops what is still in the mailbox
	patience := time.NewTimer(b.wait)
	defer patience.Stop()
	again := time.NewTicker(max(time.Millisecond, min(askAgainEvery, b.cmd.TTL/10)))
	defer again.Stop()
	over := patience.C
	if b.wait == 0 {
		again.Stop()
		over = nil
	}
	b.send(live)
	for {
		select {
		case a := <-b.reply:
			if a.Code == 0 {
				end(errTaken)
				return a.Answer, nil
			}
			if a.Code == abi.Unavailable {
				b.abandon()
			}
			return record.Answer{}, a.refusal()
		case <-again.C:
			b.send(live)
		case <-over:
			b.abandon()
			return record.Answer{}, b.outlasted()
		case <-ctx.Done():
			b.abandon()
			return record.Answer{}, contextError(ctx)
		}
	}
}

// outlasted returns what the end of the wait means: somebody else has the lease, or
// the owner never came to say so because the store does not answer.
func (b *bid) outlasted() error {
	if !b.parked.Load() {
		return unavailable()
	}
	return reply{Answer: record.Answer{Code: abi.LeaseBusy, RetryAfter: jittered(time.Second)}}.refusal()
}

func (b *bid) send(ctx context.Context) {
	b.cmd.Attempt++
	b.sent = append(b.sent, b.node.host.clock())
	if b.last != nil && b.node.update(b.last, b.cmd) {
		return
	}
	b.last = &request{ctx: ctx, cmd: b.cmd, waits: b.wait > 0, parked: b.parked, reply: b.reply}
	b.entered = b.node.send(b.last) || b.entered
}

// abandon releases what may have been granted, or will be.
func (b *bid) abandon() {
	if b.entered {
		b.node.post(record.Abandon{Lease: b.cmd.Lease, Op: b.cmd.Op})
	}
}
