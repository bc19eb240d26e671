package main

import (
	"flag"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var fleetLong = flag.Bool("fleet.long", false, "the full form of the tests with host processes, which takes minutes")

// patience is what a bound in the full form, on a machine that does nothing else,
// is worth in the short one.
func patience(bound time.Duration) time.Duration {
	if *fleetLong {
		return bound
	}
	return 10 * bound
}

func TestHostsGoOnWithoutAnOwnerThatWasKilled(t *testing.T) {
	upstream := startFickleUpstream(t)
	upstream.open()
	buildGuarded(t, upstream.URL)
	url := startSharedStore(t)
	fleet := startFleet(t, 3, url)
	owner, others := fleet[0], fleet[1:]
	first := fenceOf(t, owner) // makes it the owner
	if second := fenceOf(t, others[0]); second <= first {
		t.Errorf("fence %d after %d", second, first)
	}
	requireHosts(t, url, 3)

	// The object is hot: callers of all hosts wait for its lease.
	log := &fenceLog{granted: map[string]int{}}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() { log.collect(t, others[i%2], stop) })
	}
	for range 4 {
		group.Go(func() { askUntilKilled(owner) })
	}
	var slowest atomic.Int64
	group.Go(func() { waitForLeases(t, others[0], stop, &slowest) })
	eventually(t, "leases are granted", func() bool { return log.count() > 100 })
	owner.kill(t)
	killed, before := time.Now(), log.count()
	eventually(t, "the others serve the object of a dead owner", func() bool { return log.count() > before+1 })
	took := time.Since(killed)
	if took > 2*time.Second {
		t.Errorf("the others serve the object of a dead owner after %v", took)
	}
	eventually(t, "leases are granted again", func() bool { return log.count() > before+100 })
	close(stop)
	group.Wait()
	t.Logf("%d leases before, the next one %v after the kill; the slowest answer took %v",
		before, took.Round(time.Millisecond), time.Duration(slowest.Load()).Round(time.Millisecond))
	log.requireUnique(t)
	requireHosts(t, url, 2)
}

// askUntilKilled keeps the owner's own callers in the queue.
func askUntilKilled(h *fleetHost) {
	for {
		response, err := http.Get(h.url + "/fence")
		if err != nil {
			return
		}
		_ = response.Body.Close() // what it says does not matter
	}
}

// waitForLeases asks for leases with a wait of a second: each caller is granted one
// or told by then.
func waitForLeases(t *testing.T, h *fleetHost, stop <-chan struct{}, slowest *atomic.Int64) {
	t.Helper()
	const wait = time.Second
	for {
		select {
		case <-stop:
			return
		default:
		}
		began := time.Now()
		status, body := answerOf(t, h.url+"/fence?wait="+wait.String())
		took := time.Since(began)
		if status != http.StatusOK && body != "lease_busy" && body != "coordination_unavailable" {
			t.Errorf("a caller who waits is answered %d %s", status, body)
		}
		slowest.Store(max(slowest.Load(), int64(took)))
		// The release after the grant may have to find the next owner too.
		if bound := wait + patience(2500*time.Millisecond); took > bound {
			t.Errorf("a caller who waits for %v is answered after %v", wait, took)
		}
	}
}

func TestAnOwnerThatWasSuspendedIsNotAcceptedAnyMore(t *testing.T) {
	const ttl = time.Second
	upstream := startFickleUpstream(t)
	buildGuarded(t, upstream.URL)
	fleet := startFleet(t, 2, startSharedStore(t))
	owner, other := fleet[0], fleet[1]
	before := fenceOf(t, owner)
	held := make(chan string, 1)
	go func() {
		_, answer := answerOf(t, owner.url+"/update?call")
		held <- answer
	}()
	eventually(t, "the lease is held", func() bool { return upstream.calls.Load() == 1 })
	suspend(t, owner, syscall.SIGSTOP)
	suspended := time.Now()
	after := fenceOf(t, other) // the lease of the suspended host has lapsed
	if took := time.Since(suspended); took > 3*ttl/2+patience(time.Second) {
		t.Errorf("the lease of a suspended host lapsed after %v", took)
	}
	updates := 0
	for ; updates < 10 || time.Since(suspended) < 2*ttl; updates++ {
		if status, number := answerOf(t, other.url+"/update"); status != http.StatusOK || number != itoa(updates+1) {
			t.Fatalf("update %d is answered %d %s", updates+1, status, number)
		}
	}
	suspend(t, owner, syscall.SIGCONT)
	upstream.open()
	if answer := <-held; answer != "lease_lost" {
		t.Errorf("the suspended holder's update is answered %q", answer)
	}
	if status, number := answerOf(t, other.url+"/value"); status != http.StatusOK || number != itoa(updates) {
		t.Errorf("after %d updates the number is %d %s", updates, status, number)
	}
	eventually(t, "the late writes of the suspended owner are refused and counted", func() bool {
		return sample(t, owner, `edgehost_stale_fences_rejected_total{kind="owner"}`) > 0
	})
	if last := fenceOf(t, owner); last <= after || last <= before {
		t.Errorf("the owner that was suspended grants fence %d after %d", last, after)
	}
	if n := sample(t, owner, "edgehost_owner_changes_total"); n != 0 {
		t.Errorf("the owner that was suspended has taken %v records back", n)
	}
	if n := sample(t, other, "edgehost_owner_changes_total"); n == 0 {
		t.Error("the other host has taken no record over")
	}
}

// suspend stops a process, or lets it go on.
func suspend(t *testing.T, h *fleetHost, s syscall.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// sample returns the value of one line of a host's metrics, zero if there is none.
func sample(t *testing.T, h *fleetHost, name string) float64 {
	t.Helper()
	for line := range strings.Lines(fetch(t, http.DefaultClient, h.admin+"/metrics")) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" ")
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return value
	}
	return 0
}
