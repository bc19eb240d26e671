package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket/natstest"
)

// startCutUpstream starts a dependency that cuts a host off when it is asked to.
func startCutUpstream(t *testing.T, cut func()) *httptest.Server {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cut" {
			cut()
		}
		_, _ = w.Write([]byte("up"))
	}))
	t.Cleanup(upstream.Close)
	return upstream
}

// What a guest saw of the lease that it held while its host was cut off. The times
// are of its own monotonic clock, after the cut at the latest.
type outlived struct {
	fence             uint64
	call, valid, lost time.Duration // the call that cut; last held; first seen to be lost
}

func outlive(t *testing.T, h *fleetHost, query string) (o outlived) {
	t.Helper()
	status, body := answerOf(t, h.url+"/outlive?"+query)
	var call, valid, lost int64
	if _, err := fmt.Sscan(body, &o.fence, &call, &valid, &lost); err != nil || status != http.StatusOK {
		t.Errorf("a holder is answered %d %s: %v", status, body, err)
	}
	o.call, o.valid, o.lost = time.Duration(call)*time.Microsecond, time.Duration(valid)*time.Microsecond, time.Duration(lost)*time.Microsecond
	return o
}

func TestAHostThatIsCutOffActsUnderNoLease(t *testing.T) {
	ttl := 2 * time.Second
	if *fleetLong {
		ttl = 15 * time.Second
	}
	url := startSharedStore(t)
	proxy := natstest.StartProxy(t, url)
	cuts := make(chan time.Time, 1)
	buildGuarded(t, startCutUpstream(t, func() { cuts <- time.Now(); proxy.Drop() }).URL)
	cut, other := startFleet(t, 1, proxy.URL())[0], startFleet(t, 1, url)[0]
	if status, body := answerOf(t, cut.url+"/call"); status != http.StatusOK {
		t.Fatalf("a call is answered %d %s", status, body)
	}
	held := make(chan outlived, 1)
	go func() { held <- outlive(t, cut, "object=things/7&ttl="+ttl.String()) }()
	cutAt := <-cuts
	// All the while calls go out, and the other host asks for the lease.
	var saw outlived
	var next uint64
	var granted time.Time
	calls := 0
	eventually(t, "the lease is lost, and granted to the other host", func() bool {
		if status, body := answerOf(t, cut.url+"/call"); status != http.StatusOK {
			t.Fatalf("without the store a call is answered %d %s", status, body)
		}
		calls++
		if status, body := answerOf(t, other.url+"/fence?object=things/7&wait=10ms"); next == 0 && status == http.StatusOK {
			next, _ = strconv.ParseUint(body, 10, 64) // zero is no fence
			granted = time.Now()
		}
		select {
		case saw = <-held:
		default:
		}
		return next != 0 && saw.fence != 0
	})
	t.Logf("a lease of %v was last held %v after the cut, seen to be lost at %v, and granted again after %v; %d calls went out",
		ttl, saw.valid, saw.lost, granted.Sub(cutAt), calls)
	if bound := ttl * 8 / 10; saw.valid > bound+saw.call {
		t.Errorf("the lease is held %v after the cut, want at most %v", saw.valid, bound)
	}
	if bound := ttl*8/10 + patience(250*time.Millisecond); saw.lost > bound {
		t.Errorf("the holder sees the loss %v after the cut, want at most %v", saw.lost, bound)
	}
	if granted.Before(cutAt.Add(saw.valid)) {
		t.Error("the lease was granted again while it was held")
	}
	if status, body := answerOf(t, cut.url+"/fence?object=things/7"); status == http.StatusOK {
		t.Errorf("the host that is cut off grants %s", body)
	}
	proxy.Heal()
	healed := time.Now()
	last := fenceAt(t, cut, "object=things/7&wait=200ms")
	t.Logf("it grants %v after the cut has ended", time.Since(healed).Round(time.Millisecond))
	if next <= saw.fence || last <= next {
		t.Errorf("the fences are %d, %d and %d", saw.fence, next, last)
	}
	if after := fenceAt(t, other, "object=things/7&wait=200ms"); after <= last {
		t.Errorf("fence %d after %d", after, last)
	}
}

func TestReconnectsLeaveNothingBehind(t *testing.T) {
	reconnects := 25
	if *fleetLong {
		reconnects = 200
	}
	servers := natstest.StartServers(t, 1)
	eventually(t, "the store is set up", func() bool {
		return runArgs(t, nil, "init", "--nats="+servers.URL(), "--replicas=1").code == exitOK
	})
	proxy := natstest.StartProxy(t, servers.URL())
	upstream := startFickleUpstream(t)
	upstream.open()
	buildGuarded(t, upstream.URL)
	h := startFleet(t, 1, proxy.URL())[0]
	fenceOf(t, h)
	consumers := func() int { return servers.Stream(t, bucketName).State.Consumers }
	eventually(t, "the host watches", func() bool { return consumers() == 1 })
	begin := usageOf(t, h)

	stop := make(chan struct{})
	var group sync.WaitGroup
	log := &fenceLog{granted: map[string]int{}}
	for range 3 {
		group.Go(func() { log.collect(t, h, stop) })
	}
	most := 0
	every := time.NewTicker(300 * time.Millisecond) // 200 in a minute
	defer every.Stop()
	for i := range reconnects {
		<-every.C
		proxy.Cut()
		if i%10 == 9 {
			most = max(most, consumers())
		}
	}
	eventually(t, "leases are granted after the last reconnect", func() bool { return fenceOf(t, h) > 0 })
	close(stop)
	group.Wait()
	log.requireUnique(t)
	eventually(t, "one consumer is left", func() bool { return consumers() == 1 })
	var end usage
	eventually(t, "neither goroutines nor memory are left", func() bool { // asking makes it collect garbage
		http.DefaultClient.CloseIdleConnections()
		end = usageOf(t, h)
		return end.goroutines <= begin.goroutines+5 && end.heap <= begin.heap+8<<20
	})
	t.Logf("%d leases; at most %d consumers; before %+v, after %+v", log.count(), most, begin, end)
}

// usage is what a host takes of its machine.
type usage struct{ goroutines, heap, resident float64 }

func usageOf(t *testing.T, h *fleetHost) usage {
	t.Helper()
	return usage{sample(t, h, "go_goroutines"), sample(t, h, "go_memstats_heap_alloc_bytes"), sample(t, h, "process_resident_memory_bytes")}
}
