package objects

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A hanging bucket answers writes late, or never.
type hanging struct {
	*kvbucket.Memory
	never atomic.Bool
	late  time.Duration // before the first write
}

func (h *hanging) Update(ctx context.Context, key string, value []byte, last kvbucket.Revision) (kvbucket.Revision, error) {
	if h.never.Load() {
		<-ctx.Done()
		return 0, kvbucket.ErrUnknown
	}
	rev, err := h.Memory.Update(ctx, key, value, last)
	<-time.After(h.late)
	return rev, err
}

func hangingHost(t *testing.T) (*hanging, *Host, *Object) {
	t.Helper()
	b := &hanging{Memory: kvbucket.NewMemory()}
	h, err := Open(t.Context(), Config{Bucket: b})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	o, err := h.Object(ID{"shop", "guild/42"})
	if err != nil {
		t.Fatal(err)
	}
	return b, h, o
}

func TestRefusedCallsLeaveNothingInTheMailbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, o := hangingHost(t)
		d, err := h.Dependency(ID{"shop", "payments"}, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Acquire(t.Context(), LeaseOptions{Name: "first", TTL: 24 * time.Hour, RenewEvery: time.Second}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			a, _ := d.Admit(t.Context())
			_ = a.Report(t.Context(), Failure)
		}
		<-time.After(time.Minute)
		b.never.Store(true)
		for range 10_000 { // one caller at each, who is refused and tries again
			_, _ = o.Acquire(t.Context(), LeaseOptions{})
			_, _ = d.Admit(t.Context())
			<-time.After(100 * time.Millisecond)
		}
		for what, n := range map[string]*node{"page": h.node(o.page, pageKind()), "breaker": d.node} {
			n.mu.Lock()
			if got := len(n.queue); got > 100 {
				t.Errorf("%d commands wait at the %s", got, what)
			}
			n.mu.Unlock()
		}
		b.never.Store(false)
		<-time.After(time.Minute)
	})
}

func TestClassesWithoutNumberDoNotStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, _ := hangingHost(t)
		var held *Lease
		for i := range 3 * minSweep {
			o, err := h.Object(ID{"shop", fmt.Sprint("class", i)})
			if err != nil {
				t.Fatal(err)
			}
			l, err := o.Acquire(t.Context(), LeaseOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				held = l
				continue
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := len(h.nodes); n > 2*minSweep {
			t.Errorf("one lease is held, and the host keeps %d nodes", n)
		}
		if _, ok := h.nodes[held.object.page]; !ok || held.Err() != nil {
			t.Error("the node of the held lease is gone")
		}
	})
}

func TestGrantThatComesTooLateLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, h, o := hangingHost(t)
		b.late = 200 * time.Millisecond
		children := func() int {
			synctest.Wait()
			return reflect.ValueOf(h.ctx).Elem().FieldByName("children").Len()
		}
		before := children()
		for range 100 {
			if _, err := o.Acquire(t.Context(), LeaseOptions{TTL: MinTTL}); err == nil {
				t.Fatal("granted after its time")
			}
		}
		<-time.After(time.Minute)
		if n := children(); n > before+5 {
			t.Errorf("%d contexts hang on the host's, %d did before", n, before)
		}
	})
}
