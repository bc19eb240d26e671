package objects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// storeTimeout bounds one call to the bucket. An election in the store takes
// longer; those who wait are told by then that it does not answer.
const storeTimeout = 5 * time.Second

// storePatience is how long callers wait for the store. Whoever needs a grant is
// told then that there is none, while he has time left to do something else; an
// update takes a thousandth of this when the store is well.
const storePatience = time.Second

// codeOf translates an error of the bucket or of a record into a code.
func codeOf(err error) abi.Code {
	switch {
	case errors.Is(err, record.ErrSchema):
		return abi.Unsupported
	case errors.Is(err, kvbucket.ErrUnavailable), errors.Is(err, kvbucket.ErrUnknown), errors.Is(err, kvbucket.ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.Unavailable
	case errors.Is(err, kvbucket.ErrTooLarge):
		return abi.TooLarge
	}
	return abi.Internal
}

// read returns what the bucket shows under key: an entry without a value if that is
// nothing, and without a revision unless an operator has deleted the key.
func (h *Host) read(ctx context.Context, key string) (kvbucket.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	e, err := h.bucket.Get(ctx, key)
	h.answered(err)
	if errors.Is(err, kvbucket.ErrNotFound) {
		return kvbucket.Entry{Key: key, Revision: e.Revision}, nil
	}
	return e, err
}

// write makes value the newest of key and does not return before it knows whether
// it did, unless ctx ends. After a try whose outcome is unknown it calls doubt and
// repeats the identical write, which can succeed at most once, until the store
// says something definite; ErrConflict may then mean that an earlier try was the
// one that succeeded, which the commit id in the value tells.
func (h *Host) write(ctx context.Context, key string, value []byte, last kvbucket.Revision, doubt func()) (kvbucket.Revision, error) {
	for unknown := false; ; {
		try, cancel := context.WithTimeout(ctx, storeTimeout)
		revision, err := h.bucket.Update(try, key, value, last)
		cancel()
		h.answered(err)
		switch {
		case errors.Is(err, kvbucket.ErrUnknown):
			unknown = true
		case !unknown || !errors.Is(err, kvbucket.ErrUnavailable):
			return revision, err
		}
		doubt()
		if !pause(ctx, jittered(250*time.Millisecond)) {
			return 0, fmt.Errorf("%w: %w", kvbucket.ErrUnknown, context.Cause(ctx))
		}
	}
}

// newerThan reads key until the bucket shows a revision above last: a read may be
// stale, and after a conflict there is one.
func (h *Host) newerThan(ctx context.Context, key string, last kvbucket.Revision) (kvbucket.Entry, error) {
	for attempt := 0; ; attempt++ {
		e, err := h.read(ctx, key)
		if err != nil || e.Revision > last {
			return e, err
		}
		if !pause(ctx, jittered(min(time.Millisecond<<min(attempt, 8), 250*time.Millisecond))) {
			return e, fmt.Errorf("%w: %w", kvbucket.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// base returns the record to plan on: what this host knows as the owner, else the
// newest that it can see. Nothing rests on that being true: the write will tell.
func (n *node) base(batch []*request) (known, error) {
	n.mu.Lock()
	sight := n.sight
	n.mu.Unlock()
	if sight.revision > n.known.revision {
		n.adopt(n.inherit(sight), false)
	}
	if n.owned.Load() || n.elsewhere(n.known.record) != "" && !looks(batch) {
		return n.known, nil
	}
	e, err := n.host.read(n.host.ctx, n.key)
	if err != nil {
		return known{}, err
	}
	k, err := n.see(e)
	if err == nil && k.revision > n.known.revision {
		n.adopt(k, false) // so that the next command goes to its owner without a read
	}
	return k, err
}

// see returns the newer of an entry and the known record.
func (n *node) see(e kvbucket.Entry) (known, error) {
	if e.Revision > n.known.revision {
		if e.Value == nil {
			return n.restore(e.Revision), nil
		}
		r, err := n.kind.decode(e.Value, n.host.now())
		if err != nil {
			return known{}, fmt.Errorf("objects: %s: %w", n.key, err)
		}
		return n.inherit(known{r, e.Revision}), nil
	}
	if n.known.record == nil {
		return known{record: n.kind.fresh()}, nil
	}
	return n.known, nil
}

// restore returns what takes the place of a record that an operator has deleted:
// the one that this host knows, so that no fence goes back and no lease is given
// away twice, or else a new one.
func (n *node) restore(deleted kvbucket.Revision) known {
	if n.known.record == nil {
		return known{n.kind.fresh(), deleted}
	}
	return known{n.known.record.Clone(), deleted}
}

// inherit carries over what this host has seen pass of what k still holds.
func (n *node) inherit(k known) known {
	if n.known.record == nil {
		return k
	}
	k.record = k.record.Clone() // others may be reading it
	k.record.Inherit(n.known.record, n.host.now())
	return k
}

// adopt makes k, which the store has just shown or taken, the known record.
func (n *node) adopt(k known, owned bool) {
	if n.owned.Swap(owned) != owned {
		n.host.metrics.own(owned)
	}
	n.known = k
	n.confirmed = n.host.now().Mono
	n.tell(k)
}

// commit writes next in place of base, claiming the record if this host does not
// own it. It returns errRetry if another host has changed the record first.
func (n *node) commit(next record.Record, base known) error {
	head := next.Head()
	claims, from := !n.owned.Load(), head.Owner
	if claims {
		head.Claim(n.host.owner, n.host.now())
	}
	head.Stamp(n.host.id())
	value, err := next.Encode(n.host.now())
	if err != nil {
		return err
	}
	sent := n.host.clock().wall
	revision, err := n.host.write(n.host.ctx, n.key, value, base.revision, n.doubt)
	if errors.Is(err, kvbucket.ErrConflict) {
		return n.explain(next, base)
	}
	if err != nil {
		return err
	}
	if claims && from != "" && from != n.host.owner {
		n.host.metrics.ownerChanges.Inc()
	}
	n.sent, n.acked = sent, n.host.clock().wall
	n.committed(known{next, revision})
	return nil
}

func (n *node) committed(k known) {
	events := k.record.Commit(n.host.now())
	n.adopt(k, k.record.Head().Owner == n.host.owner)
	n.host.count(n.key, events)
}

// explain finds out what a conflict means. The write whose answer was lost may be
// the newest, or the one before it; else another host has changed the record, and
// this one steps down.
func (n *node) explain(next record.Record, base known) error {
	e, err := n.newerThan(base.revision)
	if err != nil {
		return err
	}
	newest, err := n.see(e)
	if err != nil {
		return err
	}
	n.acked = time.Time{} // the acknowledgement got lost, or came too late to compare clocks by
	ours, head := next.Head().Commit, newest.record.Head()
	switch ours {
	case head.Commit:
		n.committed(known{next, e.Revision})
		return nil
	case head.Previous:
		n.committed(known{next, base.revision})
		n.adopt(n.inherit(newest), false)
		return nil
	}
	if n.owned.Load() {
		n.host.metrics.staleFences.WithLabelValues(staleOwner).Inc()
	}
	n.adopt(newest, false)
	return errRetry
}

// newerThan reads the record until it shows a revision above last. What this host
// knows is behind until then, so nothing may be answered from it.
func (n *node) newerThan(last kvbucket.Revision) (kvbucket.Entry, error) {
	for {
		patient, cancel := context.WithTimeout(n.host.ctx, storeTimeout)
		e, err := n.host.newerThan(patient, n.key, last)
		cancel()
		if err == nil {
			return e, nil
		}
		n.doubt()
		if !pause(n.host.ctx, jittered(250*time.Millisecond)) {
			return e, err
		}
	}
}

// claimAlone makes this host the owner and does nothing else, so that it can
// compare its clock with the store's before it gives out a fence.
func (n *node) claimAlone(base known) error {
	if err := n.commit(base.record.Clone(), base); err != nil {
		return err
	}
	n.compareClocks()
	return errRetry
}

// compareClocks looks at the store's time of the newest write, once in a while.
func (n *node) compareClocks() {
	now := n.host.now().Mono
	if n.acked.IsZero() || !n.host.floor.due(now) {
		return
	}
	e, err := n.host.read(n.host.ctx, n.key)
	if err != nil || e.Revision != n.known.revision {
		n.host.floor.skip(now)
		return
	}
	n.host.floor.compare(now, n.sent, e.Created, n.acked)
}

// confirm reads the record anew. It returns errRetry if another host has changed
// it. A store that does not answer confirms nothing and refutes nothing.
func (n *node) confirm() error {
	e, err := n.host.read(n.host.ctx, n.key)
	if err != nil {
		return nil //nolint:nilerr // what is known stays the best answer
	}
	newest, err := n.see(e)
	if err != nil {
		return err
	}
	if newest.revision > n.known.revision {
		n.adopt(newest, false)
		return errRetry
	}
	n.confirmed = n.host.now().Mono
	return nil
}
