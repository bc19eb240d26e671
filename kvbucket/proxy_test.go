package kvbucket_test

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/edgehost/edgehost/kvbucket"
)

// A proxy stands between clients and a server and breaks what passes.
type proxy struct {
	listener net.Listener
	target   string

	dropRequests atomic.Bool   // what clients send vanishes
	dropReplies  atomic.Bool   // what the server sends vanishes
	refuse       atomic.Bool   // new connections are closed at once
	refused      chan struct{} // gets a token for a refused connection
	dropped      chan struct{} // gets a token for dropped bytes

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	group sync.WaitGroup
}

func startProxy(tb testing.TB, serverURL string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{
		listener: l, target: strings.TrimPrefix(serverURL, "nats://"),
		refused: make(chan struct{}, 1), dropped: make(chan struct{}, 1), conns: map[net.Conn]struct{}{},
	}
	p.group.Go(p.accept)
	tb.Cleanup(func() {
		p.refuse.Store(true)
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
		p.cut()
		p.group.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || p.refuse.Load() {
			hangUp(client, server)
			signal(p.refused)
			continue
		}
		p.add(client, server)
		p.group.Go(func() { p.pass(server, client, &p.dropRequests) })
		p.group.Go(func() { p.pass(client, server, &p.dropReplies) })
	}
}

func (p *proxy) add(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
}

// pass copies until either end closes.
func (p *proxy) pass(to, from net.Conn, drop *atomic.Bool) {
	defer hangUp(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if drop.Load() {
			signal(p.dropped)
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hangUp closes connections, some of which may be nil or closed.
func hangUp(conns ...net.Conn) {
	for _, c := range conns {
		if c != nil {
			_ = c.Close() // breaking it is the purpose
		}
	}
}

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		hangUp(c)
		delete(p.conns, c)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// heal lets everything pass again, on new connections.
func (p *proxy) heal() {
	p.dropRequests.Store(false)
	p.dropReplies.Store(false)
	p.refuse.Store(false)
	p.cut()
	select {
	case <-p.dropped:
	default:
	}
}

// dialProxy connects through a new proxy to s.
func dialProxy(tb testing.TB, s *kvbucket.Server, cfg kvbucket.ConnConfig) (*proxy, *kvbucket.Conn) {
	tb.Helper()
	p := startProxy(tb, s.URL())
	cfg.URL = p.url()
	c, err := kvbucket.Dial(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	closeLater(tb, c)
	return p, c
}
