package kvbucket_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/edgehost/edgehost/kvbucket"
)

// A cluster is three servers, each of which can be stopped and started again.
type cluster struct {
	options []*server.Options
	servers []*server.Server
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	var routes []*url.URL
	for range 3 {
		routes = append(routes, &url.URL{Scheme: "nats", Host: freeAddress(t)})
	}
	for i, route := range routes {
		c.options = append(c.options, &server.Options{
			ServerName: fmt.Sprintf("s%d", i), Host: "127.0.0.1", Port: port(t, freeAddress(t)),
			JetStream: true, StoreDir: t.TempDir(), NoSigs: true, Routes: routes,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port(t, route.Host)},
		})
		c.servers = append(c.servers, nil)
	}
	for i := range c.options {
		c.start(t, i)
	}
	t.Cleanup(func() {
		for i := range c.servers {
			c.stop(i)
		}
	})
	eventually(t, "a leader of the cluster", func() bool {
		for _, s := range c.servers {
			if s.JetStreamIsLeader() {
				return true
			}
		}
		return false
	})
	return c
}

func (c *cluster) start(t *testing.T, i int) {
	t.Helper()
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	c.servers[i] = s
}

func (c *cluster) stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

func (c *cluster) urls() string {
	var list []string
	for _, o := range c.options {
		list = append(list, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return strings.Join(list, ",")
}

// leader returns the server that leads the bucket's stream, or -1.
func (c *cluster) leader() int {
	for i, s := range c.servers {
		if s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, "KV_test") {
			return i
		}
	}
	return -1
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", listenAny)
	if err != nil {
		t.Fatal(err)
	}
	defer closeListener(t, l)
	return l.Addr().String()
}

func port(t *testing.T, address string) int {
	t.Helper()
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return tcp.Port
}

// A history is what the writers of one key were told.
type history struct {
	mu      sync.Mutex
	applied map[string]bool // by name of the write: accepted, or refused for good
	unknown int
}

func (h *history) note(t *testing.T, write string, err error) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.applied[write] = true
	case errors.Is(err, kvbucket.ErrUnknown):
		h.unknown++
	case errors.Is(err, kvbucket.ErrConflict), errors.Is(err, kvbucket.ErrUnavailable):
		h.applied[write] = false
	default:
		t.Error(err)
	}
}

// check compares the history with the value, which lists the writes that it holds.
func (h *history) check(t *testing.T, value []byte) {
	t.Helper()
	times := map[string]int{}
	for _, write := range strings.Fields(string(value)) {
		times[write]++
	}
	accepted := 0
	for write, applied := range h.applied {
		if applied {
			accepted++
		}
		if applied && times[write] != 1 {
			t.Errorf("%s was accepted and is there %d times", write, times[write])
		}
		if !applied && times[write] != 0 {
			t.Errorf("%s was refused and is there", write)
		}
	}
	t.Logf("%d accepted, %d refused, %d unknown", accepted, len(h.applied)-accepted, h.unknown)
}

// appendTo tries once to add a write to the list under key.
func appendTo(ctx context.Context, b kvbucket.Bucket, key, write string) error {
	e, err := b.Get(ctx, key)
	if err != nil && !errors.Is(err, kvbucket.ErrNotFound) {
		return err
	}
	_, err = b.Update(ctx, key, append(e.Value, " "+write...), e.Revision)
	return err
}

func TestAReplicatedBucketKeepsItsPromisesWhileLeadersChange(t *testing.T) {
	const writers, most = 4, 1500 // the list has to fit into a value
	c := startCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var h history
	h.applied = map[string]bool{}
	var changed atomic.Bool
	var group sync.WaitGroup
	var conns []*kvbucket.Conn
	for w := range writers {
		conn, err := kvbucket.Dial(ctx, kvbucket.ConnConfig{URL: c.urls()})
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, conn)
		conns = append(conns, conn)
		b, err := conn.Bucket(ctx, kvbucket.BucketConfig{Name: "test", Replicas: 3})
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			for i := 0; i < most && !changed.Load(); i++ {
				write := fmt.Sprintf("%d/%d", w, i)
				h.note(t, write, appendTo(ctx, b, "k", write))
			}
		})
	}
	for range 2 {
		eventually(t, "a leader of the stream", func() bool { return c.leader() >= 0 })
		leader := c.leader()
		c.stop(leader)
		c.start(t, leader)
	}
	changed.Store(true)
	group.Wait()
	b, err := conns[0].Bucket(ctx, kvbucket.BucketConfig{Name: "test", Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	e, err := b.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	h.check(t, e.Value)
}
