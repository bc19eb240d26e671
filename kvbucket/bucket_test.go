package kvbucket_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/edgehost/edgehost/kvbucket"
)

// patience bounds what a test waits for; nothing that works takes so long.
const patience = 20 * time.Second

// A fixture is one implementation under test.
type fixture struct {
	*testing.T
	ctx         context.Context
	bucket      kvbucket.Bucket
	closeBucket func()
}

// forEachBucket runs a test over both implementations.
func forEachBucket(t *testing.T, test func(t fixture)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		b := kvbucket.NewMemory()
		test(fixture{t, deadline(t), b, func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}})
	})
	t.Run("jetstream", func(t *testing.T) {
		c := dialServer(t, startServer(t, kvbucket.ServerConfig{LazySync: true}))
		test(fixture{t, deadline(t), openBucket(t, c), func() {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}})
	})
}

func deadline(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// startServer starts a server that ends with the test; a missing Dir is a new one.
func startServer(tb testing.TB, cfg kvbucket.ServerConfig) *kvbucket.Server {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	s, err := kvbucket.StartServer(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func dialServer(tb testing.TB, s *kvbucket.Server) *kvbucket.Conn {
	tb.Helper()
	c, err := s.Dial(tb.Context(), kvbucket.ConnConfig{Name: tb.Name()})
	if err != nil {
		tb.Fatal(err)
	}
	closeLater(tb, c)
	return c
}

func closeLater(tb testing.TB, c *kvbucket.Conn) {
	tb.Helper()
	tb.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
}

func openBucket(tb testing.TB, c *kvbucket.Conn) *kvbucket.JetStream {
	tb.Helper()
	b, err := c.Bucket(tb.Context(), kvbucket.BucketConfig{Name: "test", Replicas: 1})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func mustUpdate(tb testing.TB, b kvbucket.Bucket, key, value string, last kvbucket.Revision) kvbucket.Revision {
	tb.Helper()
	r, err := b.Update(deadline(tb), key, []byte(value), last)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func wantError(tb testing.TB, err, want error) {
	tb.Helper()
	if !errors.Is(err, want) {
		tb.Errorf("got error %v, want %v", err, want)
	}
}

func TestUpdateAcceptsOnlyTheNewestRevision(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		first := mustUpdate(t, b, "o.shop.payments", "one", 0)
		mustUpdate(t, b, "o.shop.other", "unrelated", 0)
		_, err := b.Update(ctx, "o.shop.payments", []byte("again"), 0)
		wantError(t, err, kvbucket.ErrConflict)
		second := mustUpdate(t, b, "o.shop.payments", "two", first)
		if second <= first {
			t.Errorf("revision %d after %d", second, first)
		}
		for _, last := range []kvbucket.Revision{0, first, second - 1, second + 1, 1 << 60} {
			_, err := b.Update(ctx, "o.shop.payments", []byte("late"), last)
			wantError(t, err, kvbucket.ErrConflict)
		}
		got, err := b.Get(ctx, "o.shop.payments")
		if err != nil {
			t.Fatal(err)
		}
		want := kvbucket.Entry{Key: "o.shop.payments", Value: []byte("two"), Revision: second}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(kvbucket.Entry{}, "Created")); diff != "" {
			t.Error(diff)
		}
		if age := time.Since(got.Created); age < -time.Minute || age > time.Minute {
			t.Errorf("created %v ago", age)
		}
	})
}

func TestGetOfAnUnknownKeyIsNotFound(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		e, err := b.Get(ctx, "nobody")
		wantError(t, err, kvbucket.ErrNotFound)
		if e.Revision != 0 {
			t.Errorf("revision %d of a key never written", e.Revision)
		}
	})
}

func TestValuesAreCopies(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		value := []byte("kept")
		if _, err := b.Update(ctx, "k", value, 0); err != nil {
			t.Fatal(err)
		}
		value[0] = 'X'
		for range 2 {
			e, err := b.Get(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			if string(e.Value) != "kept" {
				t.Fatalf("got %q", e.Value)
			}
			e.Value[0] = 'Y'
		}
	})
}

func TestValuesOfEverySizeUpToTheBound(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		last := mustUpdate(t, b, "k", "", 0)
		last = mustUpdate(t, b, "k", strings.Repeat("v", kvbucket.MaxValue), last)
		e, err := b.Get(ctx, "k")
		if err != nil || len(e.Value) != kvbucket.MaxValue {
			t.Errorf("got %d bytes and error %v", len(e.Value), err)
		}
		_, err = b.Update(ctx, "k", make([]byte, kvbucket.MaxValue+1), last)
		wantError(t, err, kvbucket.ErrTooLarge)
	})
}

func TestKeysOutsideTheAlphabetAreRefused(t *testing.T) {
	bad := []string{
		"", ".", ".a", "a.", "a..b", "a b", "ü", "a.*", "a.>", "a\x00", "=selftest",
		strings.Repeat("k", kvbucket.MaxKey+1),
	}
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		for _, key := range bad {
			_, err := b.Get(ctx, key)
			wantError(t, err, kvbucket.ErrInvalidKey)
			_, err = b.Update(ctx, key, nil, 0)
			wantError(t, err, kvbucket.ErrInvalidKey)
		}
		for _, pattern := range []string{"", "a.", ">.a", "a*", "a.b>", "ü"} {
			_, err := b.Keys(ctx, pattern)
			wantError(t, err, kvbucket.ErrInvalidKey)
			for e := range b.Watch(ctx, pattern) {
				t.Errorf("watching %q yields %v", pattern, e)
			}
		}
		mustUpdate(t, b, strings.Repeat("k", kvbucket.MaxKey), "longest", 0)
	})
}

func TestKeysReturnsWhatThePatternMatches(t *testing.T) {
	tests := []struct {
		pattern string
		want    []string
	}{
		{">", []string{"l.a.x", "o.a.b", "o.a.b.c", "o.b.b", "o.b/b=2E"}},
		{"o.>", []string{"o.a.b", "o.a.b.c", "o.b.b", "o.b/b=2E"}},
		{"o.*.b", []string{"o.a.b", "o.b.b"}},
		{"*.a.*", []string{"l.a.x", "o.a.b"}},
		{"o.a.b", []string{"o.a.b"}},
		{"o.a", []string{}},
		{"*", []string{}},
		{"o.a.b.>", []string{"o.a.b.c"}},
		{"o.b/b=2E", []string{"o.b/b=2E"}},
	}
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		for _, key := range []string{"o.a.b", "o.b.b", "l.a.x", "o.a.b.c", "o.b/b=2E"} {
			mustUpdate(t, b, key, "", mustUpdate(t, b, key, "", 0))
		}
		for _, tt := range tests {
			got, err := b.Keys(ctx, tt.pattern)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("keys %q: %s", tt.pattern, diff)
			}
		}
	})
}

func TestWatchYieldsWhatExistsThenChanges(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		first := mustUpdate(t, b, "o.a", "1", 0)
		mustUpdate(t, b, "l.a", "not watched", 0)
		mustUpdate(t, b, "o.b", "1", 0)
		var got []string
		for e := range b.Watch(ctx, "o.*") {
			got = append(got, e.Key+"="+string(e.Value))
			switch len(got) {
			case 2: // all that existed
				mustUpdate(t, b, "l.b", "not watched", 0)
				mustUpdate(t, b, "o.a", "2", first)
			case 3:
				mustUpdate(t, b, "o.c", "1", 0)
			}
			if len(got) == 4 {
				break
			}
		}
		if diff := cmp.Diff([]string{"o.a=1", "o.b=1", "o.a=2", "o.c=1"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatchEndsWithItsContextAndWithTheBucket(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		mustUpdate(t, b, "k", "v", 0)
		ended, cancel := context.WithCancel(ctx)
		defer cancel()
		for range b.Watch(ended, "k") {
			cancel()
		}
		for range b.Watch(ctx, "k") {
			t.closeBucket()
		}
		if ctx.Err() != nil {
			t.Error("the watch ended only with the test's patience")
		}
	})
}

func TestAClosedBucketSaysSo(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		mustUpdate(t, b, "k", "v", 0)
		t.closeBucket()
		t.closeBucket()
		_, err := b.Get(ctx, "k")
		wantError(t, err, kvbucket.ErrClosed)
		_, err = b.Keys(ctx, "k")
		wantError(t, err, kvbucket.ErrClosed)
		_, err = b.Update(ctx, "k", nil, 1)
		wantError(t, err, kvbucket.ErrClosed)
		if errors.Is(err, kvbucket.ErrUnknown) {
			t.Errorf("nothing was sent, but the error is %v", err)
		}
		for range b.Watch(ctx, "k") {
			t.Error("a closed bucket is watched")
		}
	})
}

func TestAContextThatHasEndedLeavesTheBucketAlone(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := b.Update(ended, "k", nil, 0)
		wantError(t, err, kvbucket.ErrUnavailable)
		wantError(t, err, context.Canceled)
		_, err = b.Get(ended, "k")
		wantError(t, err, kvbucket.ErrUnavailable)
		_, err = b.Get(ctx, "k")
		wantError(t, err, kvbucket.ErrNotFound)
	})
}

func TestOfManyWritersFromOneRevisionOneWins(t *testing.T) {
	const rounds, writers = 50, 16
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		var last kvbucket.Revision
		for range rounds {
			var wins atomic.Uint64
			var revision atomic.Uint64
			var group sync.WaitGroup
			for w := range writers {
				group.Go(func() {
					r, err := b.Update(ctx, "k", fmt.Append(nil, w), last)
					if err == nil {
						wins.Add(1)
						revision.Store(uint64(r))
					} else {
						wantError(t, err, kvbucket.ErrConflict)
					}
				})
			}
			group.Wait()
			if wins.Load() != 1 {
				t.Fatalf("%d writers won", wins.Load())
			}
			last = kvbucket.Revision(revision.Load())
		}
	})
}

func TestModifyLosesNoUpdate(t *testing.T) {
	const writers, each = 8, 20
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					_, err := kvbucket.Modify(ctx, b, "counter", func(old kvbucket.Entry) ([]byte, error) {
						return append(old.Value, 'x'), nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		e, err := b.Get(ctx, "counter")
		if err != nil || len(e.Value) != writers*each {
			t.Errorf("got %d increments and error %v, want %d", len(e.Value), err, writers*each)
		}
	})
}

func TestModifyReturnsTheEntryItWroteOrTheFunctionsError(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		wrote, err := kvbucket.Modify(ctx, b, "k", func(old kvbucket.Entry) ([]byte, error) {
			if old.Key != "k" || old.Revision != 0 || old.Value != nil {
				t.Errorf("first sight is %v", old)
			}
			return []byte("v"), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		read, err := b.Get(ctx, "k")
		if diff := cmp.Diff(read, wrote, cmpopts.IgnoreFields(kvbucket.Entry{}, "Created")); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		stop := errors.New("stop")
		_, err = kvbucket.Modify(ctx, b, "k", func(kvbucket.Entry) ([]byte, error) { return nil, stop })
		wantError(t, err, stop)
		if after, err := b.Get(ctx, "k"); err != nil || after.Revision != read.Revision {
			t.Errorf("at %d, error %v, after a function that failed at %d", after.Revision, err, read.Revision)
		}
	})
}

func TestModifyGivesUpWithItsContext(t *testing.T) {
	forEachBucket(t, func(t fixture) {
		ctx, b := t.ctx, t.bucket
		last := mustUpdate(t, b, "k", "", 0)
		ended, cancel := context.WithCancel(ctx)
		defer cancel()
		rounds := 0
		_, err := kvbucket.Modify(ended, b, "k", func(kvbucket.Entry) ([]byte, error) {
			if rounds++; rounds == 5 {
				cancel()
			}
			last = mustUpdate(t, b, "k", "somebody is always faster", last)
			return nil, nil
		})
		if !errors.Is(err, kvbucket.ErrConflict) && !errors.Is(err, kvbucket.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		wantError(t, err, context.Canceled)
		if rounds != 5 {
			t.Errorf("%d rounds", rounds)
		}
	})
}
