package objects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects/internal/record"
)

// A Snapshot is one object as its records show it, for operators.
type Snapshot struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Owner     string           `json:"owner,omitempty"` // host and incarnation; of the breaker's record if there is one
	Epoch     uint64           `json:"epoch"`
	Breaker   *BreakerSnapshot `json:"breaker,omitempty"` // nil unless the object guards a dependency
	Leases    []LeaseSnapshot  `json:"leases,omitempty"`  // those held, by name
}

// A BreakerSnapshot is the state of a dependency's breaker.
type BreakerSnapshot struct {
	State       State         `json:"state"`
	Generation  uint64        `json:"generation"`
	Failures    int           `json:"failures"`        // in a row or, by a rate, in the window; while closed
	Calls       int           `json:"calls,omitempty"` // by a rate, in the window, while a host has seen one that was not good
	RetryAfter  time.Duration `json:"retry_after_ns"`
	ProbeHolder string        `json:"probe_holder,omitempty"`
	ProbeFence  uint64        `json:"probe_fence,omitempty"`
	// Override is the operator's order that is in force, if any.
	Override *OverrideSnapshot `json:"override,omitempty"`
}

// An OverrideSnapshot is an operator's order: see [Host.Trip] and [Host.Reset].
type OverrideSnapshot struct {
	State     State         `json:"state"`
	Reason    string        `json:"reason"`
	Remaining time.Duration `json:"remaining_ns"`
}

// A LeaseSnapshot is one held lease.
type LeaseSnapshot struct {
	Name   string        `json:"name"`
	Holder string        `json:"holder"` // host and incarnation
	Fence  uint64        `json:"fence"`
	TTL    time.Duration `json:"ttl_ns"`
	Age    time.Duration `json:"age_ns"` // since the grant or its newest renewal
}

// List returns the objects of a namespace, or of all if it is empty, sorted by
// namespace and name. It reads what the store shows, which may be behind, and
// judges ages by this machine's clock against the store's: good for eyes, not for
// decisions. Records that cannot be read are named in the error, joined, and the
// other objects returned beside it.
func List(ctx context.Context, b kvbucket.Bucket, namespace string) ([]Snapshot, error) {
	part := "*"
	if namespace != "" {
		part = kvbucket.Escape(namespace)
	}
	return list(ctx, b, record.KindObject+"."+part+".*", record.KindPage+"."+part+".>")
}

// Inspect returns one object. The error unwraps to abi.NotFound if no record
// mentions it.
func Inspect(ctx context.Context, b kvbucket.Bucket, id ID) (Snapshot, error) {
	if err := id.check(); err != nil {
		return Snapshot{}, err
	}
	class, rest := id.split()
	found, err := list(ctx, b,
		record.ObjectKey(id.Namespace, id.Name), record.PageKey(id.Namespace, class, record.PageOf(rest)))
	for _, s := range found {
		if s.Namespace == id.Namespace && s.Name == id.Name {
			return s, nil
		}
	}
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{}, fmt.Errorf("objects: %s: %w", id, abi.NotFound)
}

func list(ctx context.Context, b kvbucket.Bucket, patterns ...string) ([]Snapshot, error) {
	var (
		found = lister{}
		errs  []error
	)
	for _, pattern := range patterns {
		keys, err := b.Keys(ctx, pattern)
		if err != nil {
			return nil, fmt.Errorf("objects: list: %w: %w", codeOf(err), err)
		}
		for _, key := range keys {
			if err := found.read(ctx, b, key); err != nil {
				errs = append(errs, fmt.Errorf("objects: list %s: %w: %w", key, codeOf(err), err))
			}
		}
	}
	return found.sorted(), errors.Join(errs...)
}

// A lister collects what records say, by object.
type lister map[ID]*Snapshot

func (l lister) read(ctx context.Context, b kvbucket.Bucket, key string) error {
	e, err := b.Get(ctx, key)
	if err != nil {
		return err
	}
	parts, err := record.ParseKey(key)
	if err != nil || len(parts) < 3 {
		return fmt.Errorf("no key of a record: %w", cmp.Or(err, error(abi.Invalid)))
	}
	age := record.Now{Mono: max(0, time.Since(e.Created))}
	if parts[0] == record.KindObject {
		return l.readObject(e.Value, ID{parts[1], parts[2]}, age)
	}
	return l.readPage(e.Value, parts[1], parts[2], age)
}

func (l lister) readObject(value []byte, id ID, now record.Now) error {
	r, err := record.DecodeObject(value, record.Now{})
	if err != nil {
		return err
	}
	o := r.(*record.Object)
	s := l.at(id)
	s.Owner, s.Epoch = o.Owner, o.Epoch
	s.Breaker = &BreakerSnapshot{
		State:      State(o.Breaker.State),
		Generation: o.Breaker.Generation,
		Failures:   o.Breaker.Run,
		RetryAfter: o.Remaining(now),
	}
	for _, w := range o.Breaker.Windows {
		s.Breaker.Failures += w.Failures
		s.Breaker.Calls += w.Calls
	}
	if o.Probe != nil {
		s.Breaker.ProbeHolder, s.Breaker.ProbeFence = o.Probe.Holder, o.Probe.Fence
	}
	if f := o.Forced; f != nil && f.Remaining(now) > 0 {
		s.Breaker.Override = &OverrideSnapshot{State: State(f.State), Reason: f.Reason, Remaining: f.Remaining(now)}
	}
	return nil
}

func (l lister) readPage(value []byte, namespace, class string, now record.Now) error {
	r, err := record.DecodePage(value, record.Now{})
	if err != nil {
		return err
	}
	p := r.(*record.Page)
	for key, lease := range p.Leases {
		parts, err := record.ParseKey(key)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("no key of a lease: %q", key)
		}
		id := ID{namespace, class}
		if parts[0] != "" {
			id.Name += "/" + parts[0]
		}
		s := l.at(id)
		if s.Breaker == nil {
			s.Owner, s.Epoch = p.Owner, p.Epoch
		}
		s.Leases = append(s.Leases, LeaseSnapshot{
			Name: parts[1], Holder: lease.Holder, Fence: lease.Fence,
			TTL: time.Duration(lease.TTL), Age: lease.Running.Since(now),
		})
	}
	return nil
}

func (l lister) at(id ID) *Snapshot {
	if l[id] == nil {
		l[id] = &Snapshot{Namespace: id.Namespace, Name: id.Name}
	}
	return l[id]
}

func (l lister) sorted() []Snapshot {
	out := make([]Snapshot, 0, len(l))
	for _, s := range slices.Collect(maps.Values(l)) {
		slices.SortFunc(s.Leases, func(a, b LeaseSnapshot) int { return cmp.Compare(a.Name, b.Name) })
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b Snapshot) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}
