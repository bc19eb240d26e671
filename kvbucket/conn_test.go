package kvbucket_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/edgehost/edgehost/kvbucket"
)

// admin is a connection such as an operator's tool has. It works on a server that
// listens or not.
func admin(tb testing.TB, s *kvbucket.Server) jetstream.JetStream {
	tb.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(kvbucket.InProcess(s)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

// wantText fails unless err's text has every part.
func wantText(tb testing.TB, err error, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			tb.Errorf("error %v does not say %q", err, part)
		}
	}
}

func TestDialToNobodyFailsAtOnceWithoutShowingThePassword(t *testing.T) {
	began := time.Now()
	_, err := kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: "nats://user:secret@127.0.0.1:1"})
	wantText(t, err, "nats://user:xxxxx@127.0.0.1:1", "is the server running")
	if strings.Contains(fmt.Sprint(err), "secret") {
		t.Error(err)
	}
	if waited := time.Since(began); waited > 2*time.Second {
		t.Errorf("waited %v", waited)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, but says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer closeListener(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := kvbucket.Dial(ctx, kvbucket.ConnConfig{URL: "nats://" + l.Addr().String()}); err == nil {
		t.Error("connected to a server that says nothing")
	}
	if waited := time.Since(began); waited > time.Second {
		t.Errorf("waited %v", waited)
	}
}

func closeListener(t *testing.T, l net.Listener) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialNamesAMissingCredentialsFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.creds")
	_, err := kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: "nats://127.0.0.1:1", Creds: missing})
	wantText(t, err, missing)
}

func TestDialRefusesAServerWithoutJetStream(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	defer ns.Shutdown()
	_, err = kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: ns.ClientURL()})
	wantText(t, err, "without JetStream", "start it with -js")
}

func TestDialRefusesAnOldServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	spoken := make(chan error, 1)
	go func() { spoken <- speakAsOldServer(l) }()
	_, err = kvbucket.Dial(t.Context(), kvbucket.ConnConfig{URL: "nats://" + l.Addr().String()})
	wantText(t, err, "version 2.10.29", "install 2.11 or later")
	closeListener(t, l)
	if err := <-spoken; err != nil {
		t.Error(err)
	}
}

// speakAsOldServer is the part of the NATS protocol that a client needs to be
// connected.
func speakAsOldServer(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // all has been said
	const info = `INFO {"server_id":"old","version":"2.10.29","proto":1,"headers":true,"max_payload":1048576}`
	_, err = fmt.Fprint(conn, info+"\r\n")
	for lines := bufio.NewScanner(conn); err == nil && lines.Scan(); {
		if lines.Text() == "PING" {
			_, err = fmt.Fprint(conn, "PONG\r\n")
		}
	}
	return err
}

func TestBucketIsCreatedOnlyWhenToldHow(t *testing.T) {
	c := dialServer(t, startServer(t, kvbucket.ServerConfig{LazySync: true}))
	_, err := c.Bucket(t.Context(), kvbucket.BucketConfig{Name: "test"})
	wantText(t, err, `"test"`)
	if !errors.Is(err, kvbucket.ErrNoBucket) {
		t.Errorf("opening a bucket that is not there gave %v, want ErrNoBucket", err)
	}
	openBucket(t, c)
	if _, err := c.Bucket(t.Context(), kvbucket.BucketConfig{Name: "test"}); err != nil {
		t.Error(err)
	}
	_, err = c.Bucket(t.Context(), kvbucket.BucketConfig{Name: "replicated", Replicas: 3})
	wantText(t, err, "replicated", "3 replicas")
	if errors.Is(err, kvbucket.ErrNoBucket) {
		t.Errorf("a bucket that cannot be created gave %v, which is ErrNoBucket", err)
	}
	for _, name := range []string{"", "a.b", "a b", "a/b", "*"} {
		_, err := c.Bucket(t.Context(), kvbucket.BucketConfig{Name: name, Replicas: 1})
		wantText(t, err, "no bucket name")
	}
}

func TestBucketNamesEverySettingThatDiffers(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	_, err := admin(t, s).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "test", History: 5, TTL: time.Hour, Storage: jetstream.MemoryStorage, MaxValueSize: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dialServer(t, s).Bucket(t.Context(), kvbucket.BucketConfig{Name: "test", Replicas: 3})
	wantText(t, err, "1 replicas, not 3", "history is 5", "expire after 1h0m0s", "Memory, not file", "1000 bytes", "nats stream edit KV_test")
}

func TestABucketThatAnOperatorsToolCreatedIsFine(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	kv, err := admin(t, s).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "test"})
	if err != nil {
		t.Fatal(err)
	}
	b := openBucket(t, dialServer(t, s))
	mustUpdate(t, b, "o.shop.payments", `{"state":"closed"}`, 0)
	e, err := kv.Get(t.Context(), "o.shop.payments")
	if err != nil || string(e.Value()) != `{"state":"closed"}` {
		t.Errorf("the tool reads %v, error %v", e, err)
	}
}

func TestOpeningABucketAgainLeavesItAsItIs(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	for range 10 {
		openBucket(t, dialServer(t, s))
	}
	stream, err := admin(t, s).Stream(t.Context(), "KV_test")
	if err != nil {
		t.Fatal(err)
	}
	info := stream.CachedInfo()
	if info.State.Msgs != 1 {
		t.Errorf("%d messages after ten openings", info.State.Msgs)
	}
	if info.Config.AllowDirect {
		t.Error("direct get is on")
	}
}

func TestAKeyThatAnOperatorDeletedCanBeWrittenAgain(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	b := openBucket(t, dialServer(t, s))
	kv, err := admin(t, s).KeyValue(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	last := mustUpdate(t, b, "k", "v", 0)
	for _, remove := range []func() error{
		func() error { return kv.Delete(t.Context(), "k") },
		func() error { return kv.Purge(t.Context(), "k") },
	} {
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		e, err := b.Get(deadline(t), "k")
		wantError(t, err, kvbucket.ErrNotFound)
		if e.Revision <= last || e.Value != nil {
			t.Errorf("deleted after %d, but the entry is %v", last, e)
		}
		again, err := kvbucket.Modify(deadline(t), b, "k", func(kvbucket.Entry) ([]byte, error) { return []byte("v"), nil })
		if err != nil || again.Revision <= e.Revision {
			t.Errorf("written again at %d, error %v", again.Revision, err)
		}
		last = again.Revision
	}
}

func TestConnectionsShareOneRegisterer(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	registry := prometheus.NewRegistry()
	for range 2 {
		c, err := s.Dial(t.Context(), kvbucket.ConnConfig{Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, c)
		_, err = openBucket(t, c).Update(deadline(t), "k", nil, 77)
		wantError(t, err, kvbucket.ErrConflict)
	}
	const want = "# HELP edgehost_kv_conflicts_total Writes refused because the key had another revision.\n" +
		"# TYPE edgehost_kv_conflicts_total counter\nedgehost_kv_conflicts_total 2\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestLossAndReturnOfTheConnectionAreLogged(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	lines := make(chan string, 100)
	p, c := dialProxy(t, s, kvbucket.ConnConfig{Logger: slog.New(slog.NewTextHandler(lineWriter(lines), nil))})
	p.Cut()
	for _, want := range []string{"connection to the store lost", "connected to the store again"} {
		select {
		case line := <-lines:
			if !strings.Contains(line, want) {
				t.Errorf("logged %q, want %q", line, want)
			}
		case <-time.After(patience):
			t.Fatalf("%q was not logged", want)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(lines) > 0 {
		t.Errorf("logged %q at the end", <-lines)
	}
}

// lineWriter sends what is written to it, one line at a time.
type lineWriter chan<- string

func (w lineWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		w <- string(line)
	}
	return len(p), nil
}

func TestCloseEndsWithItsContextOrTwice(t *testing.T) {
	c := dialServer(t, startServer(t, kvbucket.ServerConfig{LazySync: true}))
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, err := c.Bucket(t.Context(), kvbucket.BucketConfig{Name: "test", Replicas: 1})
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a closed connection answers %v", err)
	}
}
