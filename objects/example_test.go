package objects_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// host opens a host on a bucket in memory. A service opens it on a JetStream
// bucket that all its processes share.
func host(ctx context.Context) (h *objects.Host, done func()) {
	h, err := objects.Open(ctx, objects.Config{Bucket: kvbucket.NewMemory(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	return h, func() {
		if err := h.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
}

// A service guards its payment provider by the fleet's breaker.
func ExampleDependency() {
	ctx := context.Background()
	h, done := host(ctx)
	defer done()

	payments, err := h.Dependency(
		objects.ID{Namespace: "shop", Name: "payments"},
		objects.Policy{FailureThreshold: 3, ResetAfter: 30 * time.Second, Timeout: 2 * time.Second},
	)
	if err != nil {
		log.Fatal(err)
	}
	charge := func(send func() error) error {
		admission, err := payments.Admit(ctx)
		if err != nil {
			return err // nothing is sent
		}
		outcome := objects.Success
		if err = send(); err != nil {
			outcome = objects.Failure
		}
		return errors.Join(err, admission.Report(ctx, outcome))
	}

	for range 4 {
		err = charge(func() error { return errors.New("connection refused") })
		fmt.Println(errors.Is(err, abi.BreakerOpen))
	}
	if refusal, ok := errors.AsType[*objects.Refusal](err); ok {
		fmt.Println(refusal.Code, refusal.RetryAfter > 29*time.Second)
	}
	// Output:
	// false
	// false
	// false
	// true
	// breaker_open true
}

// A holder passes its fence on to whoever performs the effect, and stops when its
// lease is lost.
func ExampleObject_Acquire() {
	ctx := context.Background()
	h, done := host(ctx)
	defer done()

	guild, err := h.Object(objects.ID{Namespace: "shop", Name: "guild-settings/42"})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := guild.Acquire(ctx, objects.LeaseOptions{TTL: 15 * time.Second, Wait: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = guild.Acquire(ctx, objects.LeaseOptions{})
	fmt.Println(errors.Is(err, abi.LeaseBusy))

	work := lease.Context() // ends when the lease does: pass it to the work
	fmt.Println(work.Err(), lease.Fence() > 0)

	fmt.Println(lease.Release(ctx))
	// Output:
	// true
	// <nil> true
	// <nil>
}

// Two holders of a lease change one value. The read under the lease locks out
// every earlier holder, so what was read is still true when it is written.
func ExampleObject_Put() {
	ctx := context.Background()
	h, done := host(ctx)
	defer done()

	counter, err := h.Object(objects.ID{Namespace: "shop", Name: "counter"})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		lease, err := counter.Acquire(ctx, objects.LeaseOptions{})
		if err != nil {
			log.Fatal(err)
		}
		value, revision, err := counter.Get(ctx, "value", lease)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := counter.Put(ctx, "value", append(value, 'x'), revision, lease); err != nil {
			log.Fatal(err)
		}
		if err := lease.Release(ctx); err != nil {
			log.Fatal(err)
		}
	}
	value, _, err := counter.Get(ctx, "value", nil)
	fmt.Printf("%s %v\n", value, err)
	// Output: xxx <nil>
}
