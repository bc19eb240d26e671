package main

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket/natstest"
)

// startNATSCluster starts three servers and sets them up for hosts.
func startNATSCluster(t *testing.T) *natstest.Servers {
	t.Helper()
	servers := natstest.StartServers(t, 3)
	eventually(t, "the cluster is set up", func() bool {
		return runArgs(t, nil, "init", "--nats="+servers.URL(), "--replicas=3").code == exitOK
	})
	return servers
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

// requireUnique checks that no fence was given to two callers.
func (l *fenceLog) requireUnique(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for fence, times := range l.granted {
		if times != 1 {
			t.Errorf("fence %s was granted %d times", fence, times)
		}
	}
}

func TestLeasesGoOnWithoutTheLeaderOfTheStore(t *testing.T) {
	upstream := startFickleUpstream(t)
	buildGuarded(t, upstream.URL)
	servers := startNATSCluster(t)
	fleet := startFleet(t, 2, servers.URL())
	log := &fenceLog{granted: map[string]int{}}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() { log.collect(t, fleet[i%2], stop) })
	}
	eventually(t, "leases are granted", func() bool { return log.count() > 50 })
	leader := servers.Leader(t, bucketName)
	servers.Kill(leader)
	killed, before := time.Now(), log.count()
	eventually(t, "leases are granted without the leader", func() bool { return log.count() > before+50 })
	t.Logf("%d leases before, 50 more %v after server %d was killed", before, time.Since(killed).Round(time.Millisecond), leader)
	close(stop)
	group.Wait()
	log.requireUnique(t)
}
