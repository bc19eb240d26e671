package objects_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// A frozen bucket shows for one key what it held at some time.
type frozen struct {
	*kvbucket.Memory
	entry kvbucket.Entry
}

func (f *frozen) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	if key == f.entry.Key {
		return f.entry, nil
	}
	return f.Memory.Get(ctx, key)
}

// A slow bucket takes its time to read.
type slow struct {
	*kvbucket.Memory
	read time.Duration
}

func (s slow) Get(ctx context.Context, key string) (kvbucket.Entry, error) {
	select {
	case <-time.After(s.read):
		return s.Memory.Get(ctx, key)
	case <-ctx.Done():
		return kvbucket.Entry{}, errors.Join(kvbucket.ErrUnavailable, ctx.Err())
	}
}

func TestPutThatTheStoreRefusedIsAConflictWhateverReadsShow(t *testing.T) {
	tests := map[string]struct {
		bucket func(*kvbucket.Memory, kvbucket.Entry) kvbucket.Bucket
		create bool
	}{
		"a replacement, and reads are stale": {
			bucket: func(m *kvbucket.Memory, e kvbucket.Entry) kvbucket.Bucket { return &frozen{m, e} },
		},
		"a creation, and reads are slow": {
			bucket: func(m *kvbucket.Memory, _ kvbucket.Entry) kvbucket.Bucket { return slow{m, 600 * time.Millisecond} },
			create: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				theirs := object(t, openHost(t, store, objects.Config{}), "guild/42")
				rev, err := theirs.Put(t.Context(), "k", []byte("1"), 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				e, err := store.Get(t.Context(), "s.shop.guild/42.main.k")
				if err != nil {
					t.Fatal(err)
				}
				if _, err := theirs.Put(t.Context(), "k", []byte("2"), rev, nil); err != nil {
					t.Fatal(err)
				}
				mine := object(t, openHost(t, tt.bucket(store, e), objects.Config{}), "guild/42")
				if tt.create {
					rev = 0
				}
				got, err := mine.Put(t.Context(), "k", []byte("mine"), rev, nil)
				if !errors.Is(err, abi.Conflict) {
					t.Errorf("got revision %d and %v, want a conflict", got, err)
				}
			})
		})
	}
}

func TestPutWithALostAnswerIsAConflictOnlyIfItWasNotApplied(t *testing.T) {
	for name, tt := range map[string]struct {
		applied bool
		want    abi.Code
	}{
		"applied and overwritten":           {true, abi.Unavailable},
		"never applied, others were faster": {false, abi.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := kvbucket.NewMemory()
				b := newFlaky(store)
				mine := object(t, openHost(t, b, objects.Config{}), "guild/42")
				theirs := object(t, openHost(t, store, objects.Config{}), "guild/42")
				rev, err := mine.Put(t.Context(), "k", []byte("0"), 0, nil)
				if err != nil {
					t.Fatal(err)
				}
				var once atomic.Bool
				b.onUpdate(func(ctx context.Context, _ string, _ []byte, do func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
					if !once.CompareAndSwap(false, true) {
						return do()
					}
					if tt.applied {
						if _, err := do(); err != nil {
							t.Error(err)
						}
					}
					v, at, _ := theirs.Get(ctx, "k", nil)
					if _, err := theirs.Put(ctx, "k", append(v, "+1"...), at, nil); err != nil {
						t.Error(err)
					}
					return 0, kvbucket.ErrUnknown
				})
				if _, err = mine.Put(t.Context(), "k", []byte("0+1"), rev, nil); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

func TestNoTryOfAWriteIsSentAfterItsHolderIsOver(t *testing.T) {
	for name, end := range map[string]func(*objects.Lease){
		"past its deadline": func(*objects.Lease) {},
		"released":          func(l *objects.Lease) { go func() { _ = l.Release(context.Background()) }() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newFlaky(kvbucket.NewMemory())
				o := object(t, openHost(t, b, objects.Config{}), "guild/42")
				l := acquire(t, o, objects.LeaseOptions{TTL: 500 * time.Millisecond})
				_, rev, err := o.Get(t.Context(), "k", l)
				if err != nil {
					t.Fatal(err)
				}
				b.onUpdate(func(_ context.Context, key string, _ []byte, _ func() (kvbucket.Revision, error)) (kvbucket.Revision, error) {
					switch {
					case !isState(key):
						return 0, kvbucket.ErrUnavailable // renewals fail as well
					case l.Err() != nil:
						t.Error("a write was sent after the lease was over")
					default:
						end(l)
					}
					return 0, kvbucket.ErrUnknown
				})
				if _, err := o.Put(t.Context(), "k", []byte("late"), rev, l); !errors.Is(err, abi.Unavailable) {
					t.Errorf("got %v, want unavailable: the first try may have been applied", err)
				}
				b.onUpdate(nil)
				pass(5 * time.Second)
			})
		})
	}
}
