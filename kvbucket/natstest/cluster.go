// Package natstest breaks NATS for tests of what stands on it: servers in
// processes of their own, which can be killed, and a proxy before a server that
// cuts connections or lets what passes vanish.
package natstest

import (
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asServer in the environment makes a test binary a server.
const asServer = "EDGEHOST_TEST_AS_NATS"

// A member is one server of a cluster.
type member struct {
	Name, Dir, Address, Route string
	Routes                    []string // of all members; none for a server by itself
}

// Serve reports whether this process was started to be a server, and runs it. Only
// a TestMain calls it, before anything else.
func Serve() bool {
	text := os.Getenv(asServer)
	if text == "" {
		return false
	}
	if err := serve(text); err != nil {
		panic(err)
	}
	return true
}

// serve runs a server until stdin ends, however the test ends.
func serve(text string) error {
	var m member
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	options := &server.Options{ServerName: m.Name, JetStream: true, StoreDir: m.Dir, NoSigs: true}
	options.Host, options.Port = splitAddress(m.Address)
	if len(m.Routes) > 0 {
		options.Cluster.Name = "test"
		options.Cluster.Host, options.Cluster.Port = splitAddress(m.Route)
	}
	for _, route := range m.Routes {
		options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: route})
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func splitAddress(address string) (host string, port int) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0
	}
	port, _ = strconv.Atoi(digits)
	return host, port
}

// Servers are NATS servers in processes of their own, by number from zero. They
// write to disk without waiting for it.
type Servers struct {
	members []member
	running []*exec.Cmd // nil: killed
}

// StartServers starts a cluster of n servers, or one server by itself, until the
// test ends. The TestMain of the package has to call [Serve].
func StartServers(tb testing.TB, n int) *Servers {
	tb.Helper()
	s := &Servers{running: make([]*exec.Cmd, n)}
	var routes []string
	for range n {
		routes = append(routes, freeAddress(tb))
	}
	if n == 1 {
		routes = nil
	}
	for i := range n {
		m := member{Name: "nats" + strconv.Itoa(i), Dir: tb.TempDir(), Address: freeAddress(tb), Routes: routes}
		if routes != nil {
			m.Route = routes[i]
		}
		s.members = append(s.members, m)
		s.Start(tb, i)
	}
	tb.Cleanup(func() {
		for i := range s.members {
			s.Kill(i)
		}
	})
	return s
}

func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Close(); err != nil {
		tb.Fatal(err)
	}
	return l.Addr().String()
}

// Start starts a server that was killed, on what it has stored.
func (s *Servers) Start(tb testing.TB, i int) {
	tb.Helper()
	text, err := json.Marshal(s.members[i])
	if err != nil {
		tb.Fatal(err)
	}
	file, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	command := exec.Command(file)
	command.Env = append(os.Environ(), asServer+"="+string(text))
	if _, err := command.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := command.Start(); err != nil {
		tb.Fatal(err)
	}
	s.running[i] = command
}

// Kill ends a server the hard way, if it runs.
func (s *Servers) Kill(i int) {
	if s.running[i] == nil {
		return
	}
	_ = s.running[i].Process.Kill() // it may have ended
	_ = s.running[i].Wait()         // it was killed
	s.running[i] = nil
}

// URL returns the addresses of all servers, separated by commas.
func (s *Servers) URL() string {
	var list []string
	for _, m := range s.members {
		list = append(list, "nats://"+m.Address)
	}
	return strings.Join(list, ",")
}

// Stream returns what the servers say of a bucket, as soon as they can.
func (s *Servers) Stream(tb testing.TB, bucket string) *jetstream.StreamInfo {
	tb.Helper()
	nc, err := nats.Connect(s.URL(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		tb.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	deadline, tick := time.After(time.Minute), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for {
		stream, err := js.Stream(tb.Context(), "KV_"+bucket)
		if err == nil {
			return stream.CachedInfo()
		}
		select {
		case <-deadline:
			tb.Fatalf("the servers do not tell of %s: %v", bucket, err)
		case <-tick.C:
		}
	}
}

// Leader returns the number of the server that leads a replicated bucket.
func (s *Servers) Leader(tb testing.TB, bucket string) int {
	tb.Helper()
	for {
		cluster := s.Stream(tb, bucket).Cluster
		for i, m := range s.members {
			if cluster != nil && cluster.Leader == m.Name {
				return i
			}
		}
		if tb.Failed() || tb.Context().Err() != nil {
			tb.Fatal("no server leads")
		}
		<-time.After(20 * time.Millisecond)
	}
}
