package objects

import (
	"context"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A Snapshot is one object as its records show it, for operators.
type Snapshot struct {
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Owner     string           `json:"owner,omitempty"` // host and incarnation
	Epoch     uint64           `json:"epoch"`
	Breaker   *BreakerSnapshot `json:"breaker,omitempty"` // nil unless the object guards a dependency
	Leases    []LeaseSnapshot  `json:"leases,omitempty"`  // those held, by name
}

// A BreakerSnapshot is the state of a dependency's breaker.
type BreakerSnapshot struct {
	State       State         `json:"state"`
	Generation  uint64        `json:"generation"`
	Failures    int           `json:"failures"` // in a row, while closed
	RetryAfter  time.Duration `json:"retry_after_ns"`
	ProbeHolder string        `json:"probe_holder,omitempty"`
	ProbeFence  uint64        `json:"probe_fence,omitempty"`
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
// decisions. A record that cannot be read is reported in the error, joined, beside
// the objects that can.
func List(ctx context.Context, b kvbucket.Bucket, namespace string) ([]Snapshot, error) {
	return nil, errUnbuilt
}

// Inspect returns one object. The error unwraps to abi.NotFound if no record
// mentions it.
func Inspect(ctx context.Context, b kvbucket.Bucket, id ID) (Snapshot, error) {
	return Snapshot{}, errUnbuilt
}
