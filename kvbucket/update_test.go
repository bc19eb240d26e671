package kvbucket_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/kvbucket/natstest"
)

const listenAny = "127.0.0.1:0"

// A faultyLink is a bucket reached through a proxy, and the same bucket reached
// directly.
type faultyLink struct {
	proxy   *natstest.Proxy
	bucket  *kvbucket.JetStream
	direct  *kvbucket.JetStream
	server  *kvbucket.Server
	metrics *prometheus.Registry
}

func newFaultyLink(t *testing.T) *faultyLink {
	t.Helper()
	f := &faultyLink{metrics: prometheus.NewRegistry()}
	f.server = startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	f.direct = openBucket(t, dialServer(t, f.server))
	var c *kvbucket.Conn
	f.proxy, c = dialProxy(t, f.server, kvbucket.ConnConfig{Name: t.Name(), Metrics: f.metrics})
	f.bucket = openBucket(t, c)
	return f
}

// A result is what an Update returned.
type result struct {
	revision kvbucket.Revision
	err      error
}

func (f *faultyLink) update(ctx context.Context, value string, last kvbucket.Revision) <-chan result {
	done := make(chan result, 1)
	go func() {
		r, err := f.bucket.Update(ctx, "k", []byte(value), last)
		done <- result{r, err}
	}()
	return done
}

// awaitValue returns the revision at which the key has the value, seen directly.
func (f *faultyLink) awaitValue(t *testing.T, value string) kvbucket.Revision {
	t.Helper()
	for e := range f.direct.Watch(deadline(t), "k") {
		if string(e.Value) == value {
			return e.Revision
		}
	}
	t.Fatalf("%q was not written", value)
	return 0
}

// awaitLoss waits until the value is there and its acknowledgement was dropped.
func (f *faultyLink) awaitLoss(t *testing.T, value string) kvbucket.Revision {
	t.Helper()
	r := f.awaitValue(t, value)
	select {
	case <-f.proxy.Dropped:
	case <-time.After(patience):
		t.Fatal("no acknowledgement to drop")
	}
	return r
}

func (f *faultyLink) wantAmbiguous(t *testing.T, resolved string) {
	t.Helper()
	want := ""
	if resolved != "" {
		want = "# HELP edgehost_kv_ambiguous_total Writes whose acknowledgement got lost, by what the outcome turned out to be.\n" +
			"# TYPE edgehost_kv_ambiguous_total counter\n" +
			fmt.Sprintf("edgehost_kv_ambiguous_total{resolved=%q} 1\n", resolved)
	}
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want), "edgehost_kv_ambiguous_total"); err != nil {
		t.Error(err)
	}
}

func TestALostAcknowledgementIsResolvedAndTheWriteAppliedOnce(t *testing.T) {
	f := newFaultyLink(t)
	first := mustUpdate(t, f.bucket, "k", "one", 0)
	f.proxy.DropReplies.Store(true)
	done := f.update(deadline(t), "two", first)
	second := f.awaitLoss(t, "two")
	f.proxy.Heal()
	if got := <-done; got.err != nil || got.revision != second {
		t.Errorf("got revision %d and error %v, want %d", got.revision, got.err, second)
	}
	// Revisions are numbered across the bucket: had the write been applied twice,
	// the next would not follow directly.
	if third := mustUpdate(t, f.bucket, "k", "three", second); third != second+1 {
		t.Errorf("the write was applied %d times", third-second)
	}
	f.wantAmbiguous(t, "applied")
}

func TestALostAcknowledgementIsResolvedOnTheSameConnection(t *testing.T) {
	t.Parallel()
	f := newFaultyLink(t)
	f.proxy.DropReplies.Store(true)
	done := f.update(deadline(t), "one", 0)
	first := f.awaitLoss(t, "one")
	f.proxy.DropReplies.Store(false)
	if got := <-done; got.err != nil || got.revision != first {
		t.Errorf("got revision %d and error %v, want %d", got.revision, got.err, first)
	}
	f.wantAmbiguous(t, "applied")
}

func TestAWriteThatWasOverwrittenBeforeItsAcknowledgementIsNotCalledAConflict(t *testing.T) {
	f := newFaultyLink(t)
	f.proxy.DropReplies.Store(true)
	done := f.update(deadline(t), "mine", 0)
	mustUpdate(t, f.direct, "k", "theirs", f.awaitLoss(t, "mine"))
	f.proxy.Heal()
	err := (<-done).err
	wantError(t, err, kvbucket.ErrUnknown)
	if errors.Is(err, kvbucket.ErrConflict) {
		t.Errorf("the write was applied, but the error is %v", err)
	}
}

func TestAWriteThatNeverArrivedAndThenLostIsAConflict(t *testing.T) {
	t.Parallel()
	f := newFaultyLink(t)
	f.proxy.DropRequests.Store(true)
	done := f.update(deadline(t), "mine", 0)
	<-f.proxy.Dropped
	mustUpdate(t, f.direct, "k", "theirs", 0)
	f.proxy.Heal()
	wantError(t, (<-done).err, kvbucket.ErrConflict)
	f.wantAmbiguous(t, "not_applied")
}

func TestAWriteWhoseFateCannotBeKnownIsUnknown(t *testing.T) {
	t.Parallel()
	f := newFaultyLink(t)
	f.proxy.DropRequests.Store(true)
	done := f.update(deadline(t), "mine", 0)
	<-f.proxy.Dropped
	// Two writes of others hide whether ours was between them.
	mustUpdate(t, f.direct, "k", "second", mustUpdate(t, f.direct, "k", "first", 0))
	f.proxy.Heal()
	wantError(t, (<-done).err, kvbucket.ErrUnknown)
	f.wantAmbiguous(t, "unknown")
}

func TestAWriteWhoseContextEndsBeforeTheAcknowledgementIsUnknown(t *testing.T) {
	f := newFaultyLink(t)
	f.proxy.DropReplies.Store(true)
	ctx, cancel := context.WithCancel(deadline(t))
	done := f.update(ctx, "one", 0)
	f.awaitLoss(t, "one")
	cancel()
	err := (<-done).err
	wantError(t, err, kvbucket.ErrUnknown)
	wantError(t, err, context.Canceled)
	f.wantAmbiguous(t, "unknown")
}

func TestAWriteUnderWayWhenTheConnectionClosesIsUnknown(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	p, c := dialProxy(t, s, kvbucket.ConnConfig{})
	f := &faultyLink{proxy: p, bucket: openBucket(t, c), direct: openBucket(t, dialServer(t, s))}
	p.DropReplies.Store(true)
	done := f.update(deadline(t), "one", 0)
	f.awaitLoss(t, "one")
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := (<-done).err
	wantError(t, err, kvbucket.ErrUnknown)
	wantError(t, err, kvbucket.ErrClosed)
}

func TestAShortOutageIsRiddenOutWithoutDoubt(t *testing.T) {
	f := newFaultyLink(t)
	f.proxy.Refuse.Store(true)
	f.proxy.Cut()
	<-f.proxy.Refused // the client has noticed
	done := f.update(deadline(t), "one", 0)
	read := make(chan error, 1)
	go func() {
		_, err := f.bucket.Get(deadline(t), "nobody")
		read <- err
	}()
	<-f.proxy.Refused
	f.proxy.Refuse.Store(false)
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
	wantError(t, <-read, kvbucket.ErrNotFound)
	f.wantAmbiguous(t, "")
}

func TestALongOutageFailsAtOnceAndSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFaultyLink(t)
	f.proxy.Refuse.Store(true)
	f.proxy.Cut()
	<-f.proxy.Refused
	began := time.Now()
	err := (<-f.update(context.WithoutCancel(t.Context()), "one", 0)).err
	wantError(t, err, kvbucket.ErrUnavailable)
	if waited := time.Since(began); waited > 7*time.Second {
		t.Errorf("waited %v", waited)
	}
	began = time.Now()
	wantError(t, (<-f.update(t.Context(), "one", 0)).err, kvbucket.ErrUnavailable)
	_, err = f.bucket.Get(t.Context(), "k")
	wantError(t, err, kvbucket.ErrUnavailable)
	_, err = f.bucket.Keys(t.Context(), ">")
	wantError(t, err, kvbucket.ErrUnavailable)
	if waited := time.Since(began); waited > time.Second {
		t.Errorf("waited %v although the outage is old", waited)
	}
	f.proxy.Heal()
	awaitConnection(t, f.bucket)
	_, err = f.direct.Get(deadline(t), "k")
	wantError(t, err, kvbucket.ErrNotFound)
	f.wantAmbiguous(t, "")
}

// awaitConnection returns when b answers.
func awaitConnection(t *testing.T, b kvbucket.Bucket) {
	t.Helper()
	ctx := deadline(t)
	for {
		_, err := b.Get(ctx, "nobody")
		if errors.Is(err, kvbucket.ErrNotFound) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestEveryCutLinkLeavesEachWriteAppliedOnce(t *testing.T) {
	t.Parallel()
	const writes = 40
	f := newFaultyLink(t)
	start := mustUpdate(t, f.bucket, "k", "", 0)
	last := start
	for i := range writes {
		if _, err := f.bucket.Get(deadline(t), "k"); err != nil { // connected again
			t.Fatal(err)
		}
		f.proxy.DropReplies.Store(i%2 == 0)
		value := fmt.Sprint(i)
		done := f.update(deadline(t), value, last)
		f.awaitValue(t, value)
		f.proxy.Heal()
		got := <-done
		if got.err != nil {
			t.Fatal(got.err)
		}
		last = got.revision
	}
	if last-start != writes {
		t.Errorf("%d writes raised the revision by %d", writes, last-start)
	}
}

func TestARestartOfTheServerForgetsNoWrite(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, kvbucket.ServerConfig{Dir: dir, Listen: listenAny})
	p, c := dialProxy(t, s, kvbucket.ConnConfig{})
	b := openBucket(t, c)
	first := mustUpdate(t, b, "k", "one", 0)
	f := &faultyLink{proxy: p, bucket: b, direct: openBucket(t, dialServer(t, s))}
	p.DropReplies.Store(true)
	done := f.update(deadline(t), "two", first)
	second := f.awaitLoss(t, "two")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	startServer(t, kvbucket.ServerConfig{Dir: dir, Listen: strings.TrimPrefix(s.URL(), "nats://")})
	p.Heal()
	if got := <-done; got.err != nil || got.revision != second {
		t.Errorf("got revision %d and error %v, want %d", got.revision, got.err, second)
	}
}

func TestAWriteWaitsForALeaderAndSaysIfNoneCame(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	js := admin(t, s)
	if err := js.DeleteStream(t.Context(), "KV_test"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := b.Update(ctx, "k", nil, 0)
	wantError(t, err, kvbucket.ErrUnavailable)
	wantError(t, err, context.DeadlineExceeded)
	wantError(t, err, nats.ErrNoResponders)
	_, err = b.Get(deadline(t), "k")
	wantError(t, err, kvbucket.ErrUnavailable)

	f := &faultyLink{bucket: b}
	done := f.update(deadline(t), "late", 0)
	mustUpdate(t, openBucket(t, dialServer(t, s)), "other", "", 0)
	if got := <-done; got.err != nil {
		t.Error(got.err)
	}
}

func TestAFullBucketRefusesAndSaysWhy(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	js := admin(t, s)
	stream, err := js.Stream(t.Context(), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = 4 << 10
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = b.Update(deadline(t), "k", make([]byte, 8<<10), 0)
	wantError(t, err, kvbucket.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "maximum bytes exceeded") || time.Since(began) > time.Second {
		t.Errorf("got %v after %v", err, time.Since(began))
	}
}

// dialProxy connects through a new proxy to s.
func dialProxy(tb testing.TB, s *kvbucket.Server, cfg kvbucket.ConnConfig) (*natstest.Proxy, *kvbucket.Conn) {
	tb.Helper()
	p := natstest.StartProxy(tb, s.URL())
	cfg.URL = p.URL()
	c, err := kvbucket.Dial(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	closeLater(tb, c)
	return p, c
}
