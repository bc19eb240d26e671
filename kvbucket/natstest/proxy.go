package natstest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A Proxy stands between clients and a server and breaks what passes. Its fields
// may be set at any time.
type Proxy struct {
	// DropRequests lets what clients send vanish, and DropReplies what the server
	// sends: without a word, as a broken switch does. The connections stay open.
	DropRequests, DropReplies atomic.Bool
	// Refuse closes new connections at once.
	Refuse atomic.Bool
	// Refused gets a token when a connection is refused, and Dropped when bytes
	// vanish, unless one is there.
	Refused, Dropped chan struct{}

	listener net.Listener
	target   string

	mu    sync.Mutex // guards conns
	conns map[net.Conn]struct{}
	group sync.WaitGroup
}

// StartProxy passes connections on to the server at serverURL until the test ends.
func StartProxy(tb testing.TB, serverURL string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{
		listener: l, target: strings.TrimPrefix(serverURL, "nats://"),
		Refused: make(chan struct{}, 1), Dropped: make(chan struct{}, 1), conns: map[net.Conn]struct{}{},
	}
	p.group.Go(p.accept)
	tb.Cleanup(func() {
		p.Refuse.Store(true)
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
		p.Cut()
		p.group.Wait()
	})
	return p
}

// URL returns where clients connect.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || p.Refuse.Load() {
			hangUp(client, server)
			signal(p.Refused)
			continue
		}
		p.add(client, server)
		p.group.Go(func() { p.pass(server, client, &p.DropRequests) })
		p.group.Go(func() { p.pass(client, server, &p.DropReplies) })
	}
}

func (p *Proxy) add(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
}

// pass copies until either end closes.
func (p *Proxy) pass(to, from net.Conn, drop *atomic.Bool) {
	defer hangUp(to, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if drop.Load() {
			signal(p.Dropped)
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

// Drop lets everything vanish that either side sends.
func (p *Proxy) Drop() {
	p.DropRequests.Store(true)
	p.DropReplies.Store(true)
}

// Cut closes every connection.
func (p *Proxy) Cut() {
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

// Heal lets everything pass again, on new connections.
func (p *Proxy) Heal() {
	p.DropRequests.Store(false)
	p.DropReplies.Store(false)
	p.Refuse.Store(false)
	p.Cut()
	select {
	case <-p.Dropped:
	default:
	}
}
