package kvbucket_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/edgehost/edgehost/kvbucket"
)

// watched sends what a watch yields until the test ends.
func watched(t *testing.T, b kvbucket.Bucket, pattern string) <-chan kvbucket.Entry {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	entries := make(chan kvbucket.Entry)
	var group sync.WaitGroup
	group.Go(func() {
		for e := range b.Watch(ctx, pattern) {
			select {
			case entries <- e:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return entries
}

// await returns the first entry with the value, and fails after a time within which
// it has to come.
func await(t *testing.T, entries <-chan kvbucket.Entry, value string, within time.Duration) kvbucket.Entry {
	t.Helper()
	late := time.After(within)
	for {
		select {
		case e := <-entries:
			if string(e.Value) == value {
				return e
			}
		case <-late:
			t.Fatalf("%q was not yielded within %v", value, within)
		}
	}
}

// promised is the time within which hosts hear of a change.
const promised = 5 * time.Second

func consumers(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	list := stream.ConsumerNames(t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWatchOutlivesItsConsumer(t *testing.T) {
	t.Parallel()
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	js := admin(t, s)
	entries := watched(t, b, "k")
	last := mustUpdate(t, b, "k", "one", 0)
	await(t, entries, "one", promised)
	before := consumers(t, js)
	for _, name := range before {
		if err := js.DeleteConsumer(t.Context(), "KV_test", name); err != nil {
			t.Fatal(err)
		}
	}
	mustUpdate(t, b, "k", "two", last)
	await(t, entries, "two", promised)
	awaitNewConsumer(t, js, before)
}

func awaitNewConsumer(t *testing.T, js jetstream.JetStream, before []string) {
	t.Helper()
	eventually(t, "a new consumer", func() bool {
		now := consumers(t, js)
		return len(now) > 0 && !slices.ContainsFunc(now, func(name string) bool { return slices.Contains(before, name) })
	})
}

func TestWatchPollsWhatItsConsumerWithholds(t *testing.T) {
	t.Parallel()
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	js := admin(t, s)
	entries := watched(t, b, "k")
	last := mustUpdate(t, b, "k", "one", 0)
	await(t, entries, "one", promised)
	// A paused consumer sends heartbeats and nothing else.
	before := consumers(t, js)
	for _, name := range before {
		if _, err := js.PauseConsumer(t.Context(), "KV_test", name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	last = mustUpdate(t, b, "k", "two", last)
	await(t, entries, "two", promised)
	mustUpdate(t, b, "k", "three", last)
	await(t, entries, "three", promised)
	awaitNewConsumer(t, js, before)
}

func TestWatchOutlivesItsServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, kvbucket.ServerConfig{Dir: dir, Listen: listenAny})
	c, err := kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: s.URL()})
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, c)
	b := openBucket(t, c)
	entries := watched(t, b, "o.>")
	last := mustUpdate(t, b, "o.k", "0", 0)
	await(t, entries, "0", promised)
	for i := 1; i <= 3; i++ {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = startServer(t, kvbucket.ServerConfig{Dir: dir, Listen: strings.TrimPrefix(s.URL(), "nats://")})
		value := fmt.Sprint(i)
		last = mustUpdate(t, openBucket(t, dialServer(t, s)), "o.k", value, last)
		await(t, entries, value, promised)
	}
}

func TestManyReconnectsLeakNeitherConsumersNorGoroutines(t *testing.T) {
	const reconnects, watches = 60, 4
	s := startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	p, c := dialProxy(t, s, kvbucket.ConnConfig{})
	b := openBucket(t, c)
	js := admin(t, s)
	var entries []<-chan kvbucket.Entry
	for range watches {
		entries = append(entries, watched(t, b, "k"))
	}
	last := mustUpdate(t, b, "k", "start", 0)
	for _, e := range entries {
		await(t, e, "start", promised)
	}
	before := goruntime.NumGoroutine()
	for range reconnects {
		p.Cut()
		awaitConnection(t, b)
	}
	mustUpdate(t, b, "k", "end", last)
	for _, e := range entries {
		await(t, e, "end", promised)
	}
	// Consumers whose connection was cut are removed by the server within 5 s.
	eventually(t, "as many consumers as watches", func() bool { return len(consumers(t, js)) <= watches })
	eventually(t, "as many goroutines as before", func() bool { return goruntime.NumGoroutine() <= before+2 })
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	for !holds() {
		select {
		case <-late:
			t.Fatalf("never: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestWatchLeavesNoConsumerBehind(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	mustUpdate(t, b, "k", "v", 0)
	for range b.Watch(deadline(t), ">") {
		break
	}
	if names := consumers(t, admin(t, s)); len(names) > 0 {
		t.Errorf("left %v", names)
	}
}

// awaitTime is for tests of what happens when time passes.
func awaitTime(t *testing.T, at time.Time) {
	t.Helper()
	select {
	case <-time.After(time.Until(at)):
	case <-t.Context().Done():
	}
}

func TestWatchOfASlowReaderIsNotTakenForBroken(t *testing.T) {
	t.Parallel()
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	mustUpdate(t, b, "a", "", 0)
	mustUpdate(t, b, "b", "", 0)
	var keys []string
	for e := range b.Watch(deadline(t), "*") {
		keys = append(keys, e.Key)
		if len(keys) == 2 {
			break
		}
		awaitTime(t, time.Now().Add(3*time.Second)) // longer than a consumer may be silent
	}
	if diff := cmp.Diff([]string{"a", "b"}, keys); diff != "" {
		t.Error(diff)
	}
}

func TestWatchDeliversManyKeysToASlowReader(t *testing.T) {
	const keys = 3000
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	var group sync.WaitGroup
	for part := range 10 {
		group.Go(func() {
			for i := range keys / 10 {
				mustUpdate(t, b, fmt.Sprintf("o.%d.%d", part, i), strings.Repeat("v", 1000), 0)
			}
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for e := range b.Watch(deadline(t), "o.>") {
		seen[e.Key] = true
		if len(seen)%1000 == 0 {
			awaitTime(t, time.Now().Add(100*time.Millisecond))
		}
		if len(seen) == keys {
			break
		}
	}
	if len(seen) != keys {
		t.Errorf("saw %d keys of %d", len(seen), keys)
	}
}

func TestMemoryWorksUnderAFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := kvbucket.NewMemory()
		began := time.Now()
		go func() {
			<-time.After(time.Hour)
			mustUpdate(t, b, "k", "v", 0)
		}()
		for e := range b.Watch(t.Context(), "k") {
			if e.Created.Sub(began) != time.Hour {
				t.Errorf("created after %v", e.Created.Sub(began))
			}
			break
		}
	})
}
