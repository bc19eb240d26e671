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

// Get returns the value of a state key and its revision, which Put takes. A key
// belongs to one lease of the object, the one given or, without one, "main". A key
// that was never written has no value (nil) and is no error. With a lease, Get
// first writes the lease's fence into the key: from then on no holder with a lower
// fence can write it. That makes a record of the key if there is none, and no call
// removes one: the names of keys must be bounded. An operator who deletes the record
// of a key loses its value and no guard, as long as the store keeps a marker in its
// place, which the nats tool's "kv del" and "kv purge" leave. Without a lease the
// value is a hint that Put checks. Errors: abi.LeaseLost if the lease is over
// (nothing was written), abi.Fenced if the key has
// seen a newer fence, abi.Invalid, a *Refusal of unavailable, those of ctx.
func (o *Object) Get(ctx context.Context, key string, lease *Lease) (value []byte, rev kvbucket.Revision, err error) {
	c, err := o.cell(key, lease)
	if err != nil {
		return nil, 0, err
	}
	s, rev, err := c.get(ctx)
	if err != nil {
		return nil, 0, c.fail(ctx, err)
	}
	if !s.Exists {
		return nil, rev, nil
	}
	return s.Data, rev, nil
}

// Put writes a state key if last is its revision, and returns the new one. A last
// of zero creates the key. With a lease the key must hold the lease's fence, as
// Get and Put leave it, or be new. Errors: abi.Conflict (a *ConflictError) if last
// is not the revision or the key is not guarded by this lease: read it again;
// abi.LeaseLost if the lease is over (nothing was sent); abi.Fenced if the key has
// seen a newer fence; abi.TooLarge for a value above abi.MaxState; abi.Invalid; a
// *Refusal of unavailable, also if the lease ended meanwhile, and the errors of ctx,
// after both of which the write may have been applied: read again.
func (o *Object) Put(
	ctx context.Context, key string, value []byte, last kvbucket.Revision, lease *Lease,
) (kvbucket.Revision, error) {
	if len(value) > abi.MaxState {
		return 0, fmt.Errorf("objects: state of %d bytes, at most %d: %w", len(value), abi.MaxState, abi.TooLarge)
	}
	c, err := o.cell(key, lease)
	if err != nil {
		return 0, err
	}
	rev, err := c.put(ctx, value, last)
	if err != nil {
		return 0, c.fail(ctx, err)
	}
	return rev, nil
}

// A cell is one state key as one caller uses it.
type cell struct {
	host  *Host
	key   string
	lease *Lease // nil without one
}

func (o *Object) cell(name string, lease *Lease) (*cell, error) {
	if err := checkName("state key", name); err != nil {
		return nil, err
	}
	if err := o.host.open(); err != nil {
		return nil, err
	}
	leaseName := "main"
	if lease != nil {
		if lease.object.id != o.id {
			return nil, invalid("the lease is one of %s, not of %s", lease.object.id, o.id)
		}
		leaseName = lease.opts.Name
	}
	key := record.StateKey(o.id.Namespace, o.id.Name, leaseName, name)
	return &cell{host: o.host, key: key, lease: lease}, checkKey(key)
}

// fail translates an error of the cell.
func (c *cell) fail(ctx context.Context, err error) error {
	if errors.Is(err, abi.Fenced) {
		c.host.metrics.staleFences.WithLabelValues(staleLease).Inc()
	}
	if _, ok := errors.AsType[*ConflictError](err); ok {
		return err
	}
	if _, ok := errors.AsType[abi.Code](err); ok {
		return fmt.Errorf("objects: %w", err)
	}
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	code := codeOf(err)
	if code == abi.Unavailable {
		return unavailable()
	}
	return fmt.Errorf("objects: %s: %w: %w", c.key, code, err)
}

// alive returns abi.LeaseLost if the caller may not act any more. A holder past its
// deadline sends nothing: the fence would refuse it only once somebody else has
// come.
func (c *cell) alive() error {
	if c.lease == nil {
		return nil
	}
	return c.lease.Err()
}

func (c *cell) fence() uint64 {
	if c.lease == nil {
		return 0
	}
	return c.lease.fence
}

// get reads the key and, under a lease, guards it.
func (c *cell) get(ctx context.Context) (record.State, kvbucket.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if err := c.alive(); err != nil {
			return record.State{}, 0, err
		}
		s, rev, err := c.read(ctx)
		if err != nil || c.lease == nil || s.Fence == c.fence() {
			return s, rev, err
		}
		if s.Fence > c.fence() {
			return s, rev, abi.Fenced
		}
		if err := c.confirm(ctx, s, rev); err != nil {
			return s, rev, err
		}
		s.Fence = c.fence()
		rev, err = c.write(ctx, s, rev)
		if !errors.Is(err, kvbucket.ErrConflict) {
			return s, rev, err
		}
		if !pause(ctx, jittered(time.Millisecond<<min(attempt, 7))) {
			return s, 0, context.Cause(ctx)
		}
	}
}

// confirm makes sure, before the fence is written into a record that holds none,
// that no newer one was given out: the record may have held one before an operator
// deleted it. The owner has to commit that the lease is held, after the revision
// was seen that the write is going to replace.
func (c *cell) confirm(ctx context.Context, s record.State, rev kvbucket.Revision) error {
	if s.Fence != 0 || rev == 0 {
		return nil
	}
	code := c.lease.extend(ctx)
	if code == 0 {
		return nil
	}
	if code == abi.LeaseLost {
		return code
	}
	return kvbucket.ErrUnavailable
}

// read returns what the bucket shows, or the newest that this holder knows to
// exist.
func (c *cell) read(ctx context.Context) (record.State, kvbucket.Revision, error) {
	var (
		e   kvbucket.Entry
		err error
	)
	if own := c.own(); own > 0 {
		e, err = c.host.newerThan(ctx, c.key, own-1)
	} else {
		e, err = c.host.read(ctx, c.key)
	}
	if err != nil {
		return record.State{}, 0, err
	}
	return stateOf(e)
}

// stateOf decodes an entry. A key that an operator has deleted has a revision and
// no value.
func stateOf(e kvbucket.Entry) (record.State, kvbucket.Revision, error) {
	if e.Value == nil {
		return record.State{}, e.Revision, nil
	}
	s, err := record.DecodeState(e.Value)
	return s, e.Revision, err
}

// put writes value in place of revision last.
func (c *cell) put(ctx context.Context, value []byte, last kvbucket.Revision) (kvbucket.Revision, error) {
	if err := c.alive(); err != nil {
		return 0, err
	}
	next := record.State{Fence: c.fence(), Exists: true, Data: value}
	if last != 0 && last != c.own() {
		s, rev, err := c.at(ctx, last)
		if err != nil {
			return 0, err
		}
		if err := c.permit(s, rev, last); err != nil {
			return 0, err
		}
		next.Fence = s.Fence
	}
	if err := c.alive(); err != nil {
		return 0, err
	}
	rev, err := c.write(ctx, next, last)
	if !errors.Is(err, kvbucket.ErrConflict) {
		return rev, err
	}
	s, rev, err := c.at(ctx, last+1)
	if err != nil || rev <= last { // reads do not show yet what was in the way
		return 0, &ConflictError{}
	}
	return 0, c.permit(s, rev, last)
}

// maxStaleness bounds how long a read is expected to lag behind the store. A
// revision that does not show up by then is taken for one that never was.
const maxStaleness = 500 * time.Millisecond

// at reads the key, waiting a while for reads to show revision last or a newer one.
func (c *cell) at(ctx context.Context, last kvbucket.Revision) (record.State, kvbucket.Revision, error) {
	patient, cancel := context.WithTimeout(ctx, maxStaleness)
	defer cancel()
	e, err := c.host.newerThan(patient, c.key, last-1)
	if err != nil && (ctx.Err() != nil || patient.Err() == nil) {
		return record.State{}, 0, err
	}
	return stateOf(e)
}

// permit returns an error unless revision last may be replaced by this caller.
func (c *cell) permit(s record.State, rev, last kvbucket.Revision) error {
	switch {
	case c.lease != nil && s.Fence > c.lease.fence:
		return abi.Fenced
	case rev != last, c.lease != nil && s.Fence != c.lease.fence:
		return &ConflictError{rev}
	}
	return nil
}

// own returns the newest revision that this holder has written, zero if none.
func (c *cell) own() kvbucket.Revision {
	if c.lease == nil {
		return 0
	}
	c.lease.mu.Lock()
	defer c.lease.mu.Unlock()
	return c.lease.guarded[c.key]
}

// write stores s in place of revision last. Of a conflict after a lost answer it
// finds out whether this write was the one that succeeded, or cannot have been: else
// the outcome is unknown.
func (c *cell) write(ctx context.Context, s record.State, last kvbucket.Revision) (kvbucket.Revision, error) {
	s.Commit, s.After = c.host.id(), uint64(last)
	value, err := s.Encode()
	if err != nil {
		return 0, err
	}
	patient, cancel := c.whileAlive(ctx)
	defer cancel()
	doubted := false
	rev, err := c.host.write(patient, c.key, value, last, func() {
		doubted = true
		if c.alive() != nil { // timers do not notice that the machine was suspended
			cancel()
		}
	})
	if doubted && errors.Is(err, kvbucket.ErrConflict) {
		newest, at, readErr := c.at(ctx, last+1)
		switch {
		case readErr == nil && newest.Commit == s.Commit:
			rev, err = at, nil
		case readErr != nil || at <= last || newest.Commit == "" || newest.After != s.After:
			err = kvbucket.ErrUnknown // it may have been applied and written over since
		}
	}
	if err == nil && c.lease != nil {
		c.lease.mu.Lock()
		c.lease.guarded[c.key] = max(rev, c.lease.guarded[c.key])
		c.lease.mu.Unlock()
	}
	return rev, err
}

// whileAlive bounds a write: no try of it is sent after the caller's deadline.
func (c *cell) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.lease == nil {
		return context.WithTimeout(ctx, storePatience)
	}
	ctx, cancel := context.WithTimeout(ctx, min(storePatience, c.lease.Remaining()))
	stop := context.AfterFunc(c.lease.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}
