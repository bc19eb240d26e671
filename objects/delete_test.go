package objects_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/edgehost/edgehost/objects"
)

// operator returns a store as the nats tools see it.
func operator(t *testing.T, url string) jetstream.KeyValue {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := js.KeyValue(t.Context(), "objects")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func TestRecordThatAnOperatorDeletesIsMadeAnew(t *testing.T) {
	server := startStore(t, t.TempDir(), freeAddress(t))
	b := dialStore(t, server.URL())
	h := openHost(t, b, objects.Config{})
	kv := operator(t, server.URL())
	remove := func(t *testing.T, pattern string) {
		t.Helper()
		keys, err := b.Keys(t.Context(), pattern)
		if err != nil || len(keys) != 1 {
			t.Fatalf("%s: keys %v, %v", pattern, keys, err)
		}
		if err := kv.Delete(t.Context(), keys[0]); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a page, and its owner keeps the lease and the fence", func(t *testing.T) {
		o := object(t, h, "kept/1")
		l := acquire(t, o, objects.LeaseOptions{TTL: 5 * time.Second, RenewEvery: 300 * time.Millisecond})
		remove(t, "l.shop.kept.*")
		eventually(t, "renewed", func() bool {
			keys, err := b.Keys(t.Context(), "l.shop.kept.*")
			return err == nil && len(keys) == 1
		})
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if next := acquire(t, o, objects.LeaseOptions{}); next.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), l.Fence())
		}
	})
	t.Run("a page that nobody knows", func(t *testing.T) {
		l := acquire(t, object(t, h, "fresh/1"), objects.LeaseOptions{})
		remove(t, "l.shop.fresh.*")
		next := acquire(t, object(t, openHost(t, b, objects.Config{}), "fresh/1"), objects.LeaseOptions{})
		if next.Fence() <= l.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), l.Fence())
		}
	})
	t.Run("an open breaker", func(t *testing.T) {
		d := dependency(t, h, "payments", objects.Policy{ResetAfter: 200 * time.Millisecond, Timeout: 100 * time.Millisecond})
		open(t, d)
		remove(t, "o.shop.payments")
		eventually(t, "a probe", func() bool {
			a, err := d.Admit(t.Context())
			return err == nil && a.Probe()
		})
	})
	t.Run("a state key", func(t *testing.T) {
		putAgain(t, object(t, h, "guild/42"), nil, func() { remove(t, "s.shop.guild/42.main.k") })
	})
	t.Run("a state key under a lease", func(t *testing.T) {
		o := object(t, h, "team/42")
		putAgain(t, o, acquire(t, o, objects.LeaseOptions{}), func() { remove(t, "s.shop.team/42.main.k") })
	})
}

// putAgain writes a key, lets the operator delete it and writes it again.
func putAgain(t *testing.T, o *objects.Object, l *objects.Lease, remove func()) {
	t.Helper()
	if _, err := o.Put(t.Context(), "k", []byte("old"), 0, l); err != nil {
		t.Fatal(err)
	}
	remove()
	v, rev, err := o.Get(t.Context(), "k", l)
	if v != nil || err != nil {
		t.Fatalf("the deleted key holds %q, %v", v, err)
	}
	if _, err := o.Put(t.Context(), "k", []byte("new"), rev, l); err != nil {
		t.Fatal(err)
	}
	if v, _, err := o.Get(t.Context(), "k", l); string(v) != "new" || err != nil {
		t.Errorf("the key holds %q, %v", v, err)
	}
}
