package objects_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

func TestStateIsReadDecidedAndWritten(t *testing.T) {
	for name, leased := range map[string]bool{"under a lease": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			o := object(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "guild/42")
			var l *objects.Lease
			if leased {
				l = acquire(t, o, objects.LeaseOptions{})
			}
			value, rev, err := o.Get(t.Context(), "k", l)
			if value != nil || err != nil {
				t.Fatalf("a key that was never written: %q, %v", value, err)
			}
			first := rev
			for _, want := range [][]byte{[]byte("one"), {}, bytes.Repeat([]byte{'\n'}, abi.MaxState)} {
				if rev, err = o.Put(t.Context(), "k", want, rev, l); err != nil {
					t.Fatal(err)
				}
				got, at, err := o.Get(t.Context(), "k", l)
				if err != nil || !bytes.Equal(got, want) || got == nil || at != rev {
					t.Fatalf("got %d bytes at %d, %v; want %d at %d", len(got), at, err, len(want), rev)
				}
			}
			_, err = o.Put(t.Context(), "k", nil, first, l)
			if conflict, ok := errors.AsType[*objects.ConflictError](err); !ok || conflict.Revision != rev || !errors.Is(err, abi.Conflict) {
				t.Errorf("an old revision: got %v, want a conflict at %d", err, rev)
			}
			if _, err := o.Put(t.Context(), "k", make([]byte, abi.MaxState+1), rev, l); !errors.Is(err, abi.TooLarge) {
				t.Errorf("a value that is too large: got %v", err)
			}
		})
	}
}

func TestHolderMayCreateAKeyUnseen(t *testing.T) {
	o := object(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "guild/42")
	l := acquire(t, o, objects.LeaseOptions{})
	rev, err := o.Put(t.Context(), "k", []byte("new"), 0, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Put(t.Context(), "k", []byte("newer"), rev, l); err != nil {
		t.Errorf("its own key: %v", err)
	}
	if _, err := o.Put(t.Context(), "k", nil, 0, l); !errors.Is(err, abi.Conflict) {
		t.Errorf("creating it again: got %v, want a conflict", err)
	}
}

func TestKeyThatIsNotGuardedByTheLeaseIsAConflict(t *testing.T) {
	o := object(t, openHost(t, kvbucket.NewMemory(), objects.Config{}), "guild/42")
	rev, err := o.Put(t.Context(), "k", []byte("x"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := acquire(t, o, objects.LeaseOptions{})
	if _, err := o.Put(t.Context(), "k", []byte("y"), rev, l); !errors.Is(err, abi.Conflict) {
		t.Fatalf("got %v, want a conflict: the holder has not read the key", err)
	}
	if _, rev, err = o.Get(t.Context(), "k", l); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Put(t.Context(), "k", []byte("y"), rev, l); err != nil {
		t.Error(err)
	}
}

// Scenario: a guest ignores that its lease was lost.
func TestHolderPastItsDeadlineSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		_, rev, err := o.Get(t.Context(), "k", l)
		if err != nil {
			t.Fatal(err)
		}
		b.onUpdate(func(_ context.Context, key string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			if isPage(key) {
				return 0, kvbucket.ErrUnavailable
			}
			return do()
		})
		pass(13 * time.Second)
		b.onUpdate(nil)
		reads, writes := b.reads.Load(), b.writes.Load()
		if _, err := o.Put(t.Context(), "k", []byte("late"), rev, l); !errors.Is(err, abi.LeaseLost) {
			t.Errorf("put: got %v, want lease_lost", err)
		}
		if err := third(o.Get(t.Context(), "k", l)); !errors.Is(err, abi.LeaseLost) {
			t.Errorf("get: got %v, want lease_lost", err)
		}
		if r, w := b.reads.Load()-reads, b.writes.Load()-writes; r+w != 0 {
			t.Errorf("%d reads and %d writes were sent", r, w)
		}
	})
}

// Scenario: a holder is paused with a write under way, and the next one has come.
func TestWriteOfAPausedHolderIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		metrics := prometheus.NewPedanticRegistry()
		b := newFlaky(store)
		paused := object(t, openHost(t, b, objects.Config{Metrics: metrics}), "guild/42")
		next := object(t, openHost(t, store, objects.Config{}), "guild/42")
		l := acquire(t, paused, objects.LeaseOptions{})
		_, rev, err := paused.Get(t.Context(), "k", l)
		if err != nil {
			t.Fatal(err)
		}
		b.onUpdate(func(_ context.Context, key string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			<-time.After(30 * time.Second)
			if isState(key) {
				return do()
			}
			return 0, kvbucket.ErrUnavailable
		})
		put := make(chan error)
		go func() { put <- second(paused.Put(t.Context(), "k", []byte("stale"), rev, l)) }()
		taken := acquire(t, next, objects.LeaseOptions{Wait: time.Minute})
		if _, rev, err = next.Get(t.Context(), "k", taken); err != nil {
			t.Fatal(err)
		}
		if rev, err = next.Put(t.Context(), "k", []byte("fresh"), rev, taken); err != nil {
			t.Fatal(err)
		}
		if err := <-put; !errors.Is(err, abi.Fenced) {
			t.Errorf("the paused holder's write: got %v, want fenced", err)
		}
		if got, at, err := next.Get(t.Context(), "k", taken); string(got) != "fresh" || at != rev || err != nil {
			t.Errorf("got %q at %d, %v", got, at, err)
		}
		wantMetric(t, metrics, "edgehost_stale_fences_rejected_total{kind=lease}", 1)
		b.onUpdate(nil)
	})
}

// Without a write in between, the guard alone must stop the older holder.
func TestReadOfTheNextHolderFencesTheFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := kvbucket.NewMemory()
		b := newFlaky(store)
		former := object(t, openHost(t, b, objects.Config{}), "guild/42")
		next := object(t, openHost(t, store, objects.Config{}), "guild/42")
		l := acquire(t, former, objects.LeaseOptions{})
		_, rev, err := former.Get(t.Context(), "k", l)
		if err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		b.onUpdate(func(_ context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			<-gate
			return do()
		})
		put := make(chan error)
		go func() { put <- second(former.Put(t.Context(), "k", []byte("stale"), rev, l)) }()
		taken := acquire(t, next, objects.LeaseOptions{Wait: time.Minute})
		if err := third(next.Get(t.Context(), "k", taken)); err != nil {
			t.Fatal(err)
		}
		close(gate)
		if err := <-put; !errors.Is(err, abi.Fenced) {
			t.Errorf("got %v, want fenced", err)
		}
		if got, _, err := next.Get(t.Context(), "k", taken); got != nil || err != nil {
			t.Errorf("the former holder's value arrived: %q, %v", got, err)
		}
	})
}

func TestStateWritesWhoseAcknowledgementIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		l := acquire(t, o, objects.LeaseOptions{})
		b.onUpdate(loseEvery(2))
		for i := range 20 {
			_, rev, err := o.Get(t.Context(), "k", l)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.Put(t.Context(), "k", []byte{byte(i)}, rev, l); err != nil {
				t.Fatalf("put %d: %v", i, err)
			}
		}
		b.onUpdate(nil)
	})
}

func TestStateWithoutTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFlaky(kvbucket.NewMemory())
		o := object(t, openHost(t, b, objects.Config{}), "guild/42")
		b.setDown(true)
		refusal(t, third(o.Get(t.Context(), "k", nil)), abi.Unavailable)
		refusal(t, second(o.Put(t.Context(), "k", nil, 0, nil)), abi.Unavailable)
		b.setDown(false)
		b.onUpdate(func(ctx context.Context, _ string, _ []byte, _ func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
			return hang(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := second(o.Put(ctx, "k", nil, 0, nil)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the caller's time", err)
		}
	})
}

// An erasable bucket shows the value "deleted" as an operator's deletion.
type erasable struct{ *flaky }

func (e erasable) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	entry, err := e.flaky.Get(ctx, key)
	if string(entry.Value) == "deleted" {
		return kvbucket.Entry{Key: key, Revision: entry.Revision}, kvbucket.ErrNotFound
	}
	return entry, err
}

func (e erasable) erase(tb testing.TB, key string) {
	tb.Helper()
	entry, err := e.Memory.Get(tb.Context(), key)
	if err == nil {
		_, err = e.Memory.Update(tb.Context(), key, []byte("deleted"), entry.Revision)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// The former holder's clock stands still, so it believes that it may act, while an
// operator deletes what would tell it that it may not.
func TestFormerHolderCannotWriteAKeyWhoseRecordWasDeleted(t *testing.T) {
	for name, written := range map[string]bool{
		"it is gone": false,
		"somebody without a lease wrote it since": true,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				stopped, running := erasable{newFlaky(store)}, erasable{newFlaky(store)}
				var cfg objects.Config
				cfg.Bucket = stopped
				objects.SetClock(&cfg, func() (time.Duration, time.Time) { return 0, epoch })
				former := object(t, openHost(t, stopped, cfg), "guild/42")
				next := object(t, openHost(t, running, objects.Config{}), "guild/42")
				old := acquire(t, former, objects.LeaseOptions{})
				if _, _, err := former.Get(t.Context(), "k", old); err != nil {
					t.Fatal(err)
				}
				stopped.setDown(true)
				l := acquire(t, next, objects.LeaseOptions{Wait: time.Minute})
				if _, _, err := next.Get(t.Context(), "k", l); err != nil {
					t.Fatal(err)
				}
				running.erase(t, "s.shop.guild/42.main.k")
				if written {
					_, rev, err := next.Get(t.Context(), "k", nil)
					if err == nil {
						_, err = next.Put(t.Context(), "k", []byte("theirs"), rev, nil)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				stopped.setDown(false)
				if err := old.Err(); err != nil {
					t.Fatalf("the former holder knows: %v", err)
				}
				if _, _, err := former.Get(t.Context(), "k", old); !errors.Is(err, abi.LeaseLost) {
					t.Errorf("the former holder guards the key: got %v, want lease_lost", err)
				}
				if _, rev, err := next.Get(t.Context(), "k", l); err != nil {
					t.Errorf("the holder: %v", err)
				} else if _, err := next.Put(t.Context(), "k", nil, rev, l); err != nil {
					t.Errorf("the holder: %v", err)
				}
			})
		})
	}
}
