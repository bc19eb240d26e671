package main

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// A succession is hosts of which each is killed a second after it has taken
// everything over from the one before.
type succession struct {
	t       *testing.T
	url     string // of the store
	current *fleetHost
	next    chan *fleetHost
	changes int
}

// succeed kills the current host. The next one is told of it by its first commands.
func (s *succession) succeed() {
	s.t.Helper()
	heir := <-s.next
	s.prepare()
	if s.current != nil {
		if s.changes > 0 && sample(s.t, s.current, "edgehost_owner_changes_total") == 0 {
			s.t.Errorf("owner %d has taken nothing over", s.changes)
		}
		s.current.kill(s.t)
		s.changes++
	}
	s.current = heir
}

// prepare starts the next host while the current one reigns.
func (s *succession) prepare() {
	go func() { s.next <- startFleet(s.t, 1, s.url)[0] }()
}

func TestOwnersThatAreKilledEverySecondKeepNothingAlive(t *testing.T) {
	ttl, cooldown, reign := 3*time.Second, "2s", 6*time.Second
	if *fleetLong {
		ttl, cooldown, reign = 15*time.Second, "10s", time.Minute
	}
	upstream := startFickleUpstream(t)
	upstream.open()
	buildGuarded(t, upstream.URL, `breaker = { reset_after = "`+cooldown+`", max_reset_after = "`+cooldown+`" }`)
	s := &succession{t: t, url: startSharedStore(t), next: make(chan *fleetHost, 1)}
	s.prepare()
	s.succeed()
	dead := keep(t, s.current, "object=things/9&ttl="+ttl.String())
	upstream.fails.Store(true)
	eventually(t, "the breaker opens", func() bool { return codeOf(t, s.current) == "breaker_open" })
	upstream.fails.Store(false)

	var lapsed, probed, opened, failing time.Duration
	began := time.Now()
	for lapsed == 0 || opened == 0 || time.Since(began) < reign {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d owners later the lease has lapsed after %v, the cooldown has ended after %v, and the breaker has opened again after %v",
				s.changes, lapsed, probed, opened)
		}
		s.succeed()
		for end := time.Now().Add(time.Second); time.Now().Before(end); pause(50 * time.Millisecond) {
			if status, fence := answerOf(t, s.current.url+"/fence?object=things/9&wait=0s"); lapsed == 0 && status == http.StatusOK {
				if lapsed = time.Since(began); fence <= dead {
					t.Errorf("fence %s after %s", fence, dead)
				}
			}
			switch code := codeOf(t, s.current); {
			case probed == 0 && code == "up":
				probed = time.Since(began)
				failing = probed
				upstream.fails.Store(true)
			case opened == 0 && probed != 0 && code == "breaker_open":
				opened = time.Since(began) - failing
			}
		}
	}
	t.Logf("%d owners; the lease of %v lapsed after %v, the cooldown of %s ended after %v, failures opened the breaker after %v",
		s.changes, ttl, lapsed, cooldown, probed, opened)
	if bound := 3*ttl/2 + patience(time.Second); lapsed > bound {
		t.Errorf("a dead holder's lease lapsed after %v, want at most %v", lapsed, bound)
	}
	<-s.next
}

// keep lets a host hold a lease, and returns its fence.
func keep(t *testing.T, h *fleetHost, query string) (fence string) {
	t.Helper()
	response, err := http.Get(h.url + "/keep?" + query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() }) // it was cut off with the host
	line := make([]byte, 17)
	if _, err := io.ReadFull(response.Body, line); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("a holder is answered %d %s: %v", response.StatusCode, line, err)
	}
	return string(line[:16])
}

// codeOf makes one call of the dependency.
func codeOf(t *testing.T, h *fleetHost) string {
	t.Helper()
	_, code := answerOf(t, h.url+"/call")
	return code
}
