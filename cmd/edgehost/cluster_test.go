package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asNATS in the environment makes the test binary a NATS server of a cluster.
const asNATS = "EDGEHOST_TEST_AS_NATS"

// A clusterMember is one server of a cluster.
type clusterMember struct {
	Name, Dir, Address, Route string
	Routes                    []string // of all members
}

// runNATS is the main function of a member's process.
func runNATS(text string) error {
	var m clusterMember
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return err
	}
	options := &server.Options{ServerName: m.Name, JetStream: true, StoreDir: m.Dir}
	options.Host, options.Port = splitAddress(m.Address)
	options.Cluster.Name = "test"
	options.Cluster.Host, options.Cluster.Port = splitAddress(m.Route)
	for _, route := range m.Routes {
		options.Routes = append(options.Routes, &url.URL{Scheme: "nats", Host: route})
	}
	s, err := server.NewServer(options)
	if err != nil {
		return err
	}
	s.Start()
	s.WaitForShutdown()
	return nil
}

func splitAddress(address string) (host string, port int) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0
	}
	port, _ = strconv.Atoi(digits)
	return host, port
}

// startNATSCluster starts three servers in processes of their own, by name, and sets
// them up for hosts.
func startNATSCluster(t *testing.T) (urls string, members map[string]*process) {
	t.Helper()
	var routes, list []string
	for range 3 {
		routes = append(routes, freeAddress(t))
	}
	members = map[string]*process{}
	for i, route := range routes {
		m := clusterMember{Name: "nats" + itoa(i), Dir: t.TempDir(), Address: freeAddress(t), Route: route, Routes: routes}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		members[m.Name] = startProcess(t, []string{asNATS + "=" + string(text)})
		list = append(list, "nats://"+m.Address)
	}
	urls = strings.Join(list, ",")
	eventually(t, "the cluster is set up", func() bool {
		return runArgs(t, nil, "init", "--nats="+urls, "--replicas=3").code == exitOK
	})
	return urls, members
}

// streamLeader returns the name of the server that leads the bucket.
func streamLeader(t *testing.T, urls string) string {
	t.Helper()
	nc, err := nats.Connect(urls)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "KV_"+bucketName)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Cluster.Leader
}

// A fenceLog is every fence that was granted.
type fenceLog struct {
	mu      sync.Mutex
	granted map[string]int // how often
}

// collect asks a host for leases until stop is closed. Each fence must be higher than
// the one that this caller got before.
func (l *fenceLog) collect(t *testing.T, h *fleetHost, stop <-chan struct{}) {
	t.Helper()
	last := 0
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		status, body := answerOf(t, h.url+"/fence")
		if status != http.StatusOK {
			continue
		}
		fence, err := strconv.Atoi(body)
		if err != nil || fence <= last {
			t.Errorf("fence %s after %d", body, last)
		}
		last = fence
		l.mu.Lock()
		l.granted[body]++
		l.mu.Unlock()
	}
}

func (l *fenceLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.granted)
}

func TestLeasesGoOnWithoutTheLeaderOfTheStore(t *testing.T) {
	upstream := startFickleUpstream(t)
	buildGuarded(t, upstream.URL)
	urls, members := startNATSCluster(t)
	fleet := startFleet(t, 2, urls)
	log := &fenceLog{granted: map[string]int{}}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() { log.collect(t, fleet[i%2], stop) })
	}
	eventually(t, "leases are granted", func() bool { return log.count() > 50 })
	leader := streamLeader(t, urls)
	members[leader].kill(t)
	killed, before := time.Now(), log.count()
	eventually(t, "leases are granted without the leader", func() bool { return log.count() > before+50 })
	t.Logf("%d leases before, 50 more %v after %s was killed", before, time.Since(killed).Round(time.Millisecond), leader)
	close(stop)
	group.Wait()
	for fence, times := range log.granted {
		if times != 1 {
			t.Errorf("fence %s was granted %d times", fence, times)
		}
	}
}

// asServer reports whether the process is to be a server of a cluster, and runs it.
func asServer() bool {
	text := os.Getenv(asNATS)
	if text == "" {
		return false
	}
	if err := runNATS(text); err != nil {
		panic(err)
	}
	return true
}
