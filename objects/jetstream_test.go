package objects_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// startStore starts a server on a directory and an address, until the test ends.
func startStore(tb testing.TB, dir, listen string) *kvbucket.Server {
	tb.Helper()
	s, err := kvbucket.StartServer(tb.Context(), kvbucket.ServerConfig{Dir: dir, Listen: listen})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// dialStore returns the bucket of a server that is closed with the test.
func dialStore(tb testing.TB, url string) kvbucket.Bucket {
	tb.Helper()
	conn, err := kvbucket.Dial(tb.Context(), kvbucket.ConnConfig{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	b, err := conn.Bucket(tb.Context(), kvbucket.BucketConfig{Name: "objects", Replicas: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// eventually asks until ok, for a store whose time cannot be made to pass.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			tb.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// A healthy dependency is nobody's business but its own: the server's own count of
// messages says so. What remains is what idle watches and polls send, a message in
// seconds, and the calls take a hundredth of that.
func TestHealthyCallsSendTheServerNothing(t *testing.T) {
	server := startStore(t, t.TempDir(), freeAddress(t))
	h, err := objects.Open(t.Context(), objects.Config{Bucket: dialStore(t, server.URL())})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Close(context.Background()) }()
	d := dependency(t, h, "payments", objects.Policy{})
	if err := call(t, d, objects.Success); err != nil {
		t.Fatal(err)
	}
	messages := func() int64 {
		n, err := server.InMsgs()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := int64(-1)
	eventually(t, "the server has counted what came before", func() bool {
		n := messages()
		settled := n == before
		before = n
		return settled
	})
	for range 10_000 {
		if err := call(t, d, objects.Success); err != nil {
			t.Fatal(err)
		}
	}
	if sent := messages() - before; sent > 3 {
		t.Errorf("10,000 calls sent %d messages", sent)
	}
}

func TestStoreIsRestartedUnderAHost(t *testing.T) {
	dir, listen := t.TempDir(), freeAddress(t)
	server := startStore(t, dir, listen)
	h, err := objects.Open(t.Context(), objects.Config{Bucket: dialStore(t, server.URL())})
	if err != nil {
		t.Fatal(err)
	}
	healthy := dependency(t, h, "stock", objects.Policy{})
	failing := dependency(t, h, "payments", objects.Policy{})
	o := object(t, h, "guild/42")
	if err := call(t, healthy, objects.Success); err != nil {
		t.Fatal(err)
	}
	open(t, failing)
	kept := acquire(t, o, objects.LeaseOptions{})
	short := acquire(t, o, objects.LeaseOptions{Name: "short", TTL: 500 * time.Millisecond})

	if err := server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-short.Context().Done() // at its own deadline
	for range 100 {
		if err := call(t, healthy, objects.Success); err != nil {
			t.Fatal(err)
		}
	}
	refusal(t, call(t, failing, objects.Success), abi.BreakerOpen)

	server = startStore(t, dir, listen)
	var next *objects.Lease
	eventually(t, "a grant after the restart", func() (granted bool) {
		var err error
		next, err = o.Acquire(t.Context(), objects.LeaseOptions{Name: "short"})
		return err == nil
	})
	if next.Fence() <= short.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), short.Fence())
	}
	if err := kept.Err(); err != nil {
		t.Errorf("the lease that outlasts the restart: %v", err)
	}
	if err := kept.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// Another process sees the breaker as it was.
	other := dependency(t, openHost(t, dialStore(t, server.URL()), objects.Config{}), "payments", objects.Policy{})
	refusal(t, call(t, other, objects.Success), abi.BreakerOpen)
}

func BenchmarkDurableAcquireAndRelease(b *testing.B) {
	server := startStore(b, b.TempDir(), freeAddress(b))
	h := openHost(b, dialStore(b, server.URL()), objects.Config{})
	round := func(o *objects.Object, name string) {
		l, err := o.Acquire(b.Context(), objects.LeaseOptions{Name: name})
		if err != nil {
			b.Error(err)
			return
		}
		if err := l.Release(b.Context()); err != nil {
			b.Error(err)
		}
	}
	b.Run("one lease", func(b *testing.B) {
		o := object(b, h, "guild/42")
		for b.Loop() {
			round(o, "main")
		}
	})
	const parallel = 32
	many := func(b *testing.B, round func(i int)) {
		b.Helper()
		var group sync.WaitGroup
		for i := range parallel {
			group.Go(func() {
				for range (b.N + parallel - 1) / parallel {
					round(i)
				}
			})
		}
		group.Wait()
	}
	b.Run("32 leases of one object", func(b *testing.B) {
		o := object(b, h, "guild/42")
		many(b, func(i int) { round(o, fmt.Sprint(i)) })
	})
	b.Run("32 objects of one class", func(b *testing.B) {
		many(b, func(i int) { round(object(b, h, fmt.Sprint("guild/", i)), "main") })
	})
}
