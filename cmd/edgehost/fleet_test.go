package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
)

// A fleetHost is one of several edgehost processes that share a store.
type fleetHost struct {
	*process
	url, admin string
}

// startFleet starts hosts on the store at url, which init has set up.
func startFleet(t *testing.T, hosts int, url string) []*fleetHost {
	t.Helper()
	var fleet []*fleetHost
	for range hosts {
		h := &fleetHost{}
		h.process, h.url, h.admin = startServe(t, "--nats="+url)
		fleet = append(fleet, h)
	}
	return fleet
}

// startSharedStore starts a NATS server and sets it up for hosts.
func startSharedStore(t *testing.T) (url string) {
	t.Helper()
	config := kvbucket.ServerConfig{Dir: t.TempDir(), Listen: freeAddress(t)}
	startStore(t, config)
	url = "nats://" + config.Listen
	if got := runArgs(t, nil, "init", "--nats="+url, "--replicas=1"); got.code != exitOK {
		t.Fatalf("init exited with %d and complained %q", got.code, got.stderr)
	}
	return url
}

// A fickleUpstream fails, or lets its callers wait, or answers.
type fickleUpstream struct {
	*httptest.Server
	calls atomic.Int64
	fails atomic.Bool
	gate  chan struct{} // closed: answers at once
	open  func()
}

func startFickleUpstream(t *testing.T) *fickleUpstream {
	t.Helper()
	up := &fickleUpstream{gate: make(chan struct{})}
	up.open = sync.OnceFunc(func() { close(up.gate) })
	up.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		up.calls.Add(1)
		if up.fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		<-up.gate
		_, _ = io.WriteString(w, "up")
	}))
	t.Cleanup(func() {
		up.open()
		up.Close()
	})
	return up
}

func TestAFleetSendsOneProbe(t *testing.T) {
	for _, hosts := range []int{2, 5} {
		t.Run(itoa(hosts)+" hosts", func(t *testing.T) { sendOneProbe(t, hosts) })
	}
}

func sendOneProbe(t *testing.T, hosts int) {
	t.Helper()
	const callers = 500
	upstream := startFickleUpstream(t)
	buildGuarded(t, upstream.URL, `breaker = { reset_after = "3s" }`)
	fleet := startFleet(t, hosts, startSharedStore(t))
	upstream.fails.Store(true)
	for _, h := range fleet {
		eventually(t, "every host knows that the breaker is open", func() bool {
			_, code := answerOf(t, h.url+"/call")
			return code == "breaker_open"
		})
	}
	upstream.fails.Store(false)
	before := upstream.calls.Load()

	// Each caller asks until it is let through or told that somebody else is. All
	// that are told end while the probe is still under way.
	var let, told atomic.Int64
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for ask(t, fleet[i%hosts].url+"/call", &let, &told) {
				pause(100 * time.Millisecond)
			}
		})
	}
	eventually(t, "all callers but the probe are deferred", func() bool { return told.Load() == callers-1 })
	if n := upstream.calls.Load() - before; n != 1 {
		t.Errorf("the dependency got %d requests before the verdict", n)
	}
	upstream.open()
	group.Wait()
	if n := let.Load(); n != 1 {
		t.Errorf("%d callers were let through before the verdict", n)
	}
	for _, h := range fleet {
		eventually(t, "every host lets callers through", func() bool {
			status, _ := answerOf(t, h.url+"/call")
			return status == http.StatusOK
		})
	}
	// Connections that were opened and never used would hold up the end for 5 s.
	http.DefaultClient.CloseIdleConnections()
	for _, h := range fleet {
		if took := h.interrupt(t); took > stopLimit {
			t.Errorf("stopping took %s", took)
		}
	}
}

// ask makes one call and reports whether another is needed to know more.
func ask(t *testing.T, url string, let, told *atomic.Int64) (again bool) {
	t.Helper()
	switch status, code := answerOf(t, url); {
	case status == http.StatusOK:
		let.Add(1)
	case code == "deferred":
		told.Add(1)
	case code == "breaker_open" || code == "overloaded":
		return true
	default:
		t.Errorf("a caller is answered %d %s", status, code)
	}
	return false
}

// pause keeps a caller from asking all the time.
func pause(d time.Duration) { <-time.After(d) }

// fenceOf asks a host for a lease until it gets one, and returns its fence.
func fenceOf(t *testing.T, h *fleetHost) uint64 {
	t.Helper()
	return fenceAt(t, h, "")
}

// fenceAt is fenceOf with a query that says which lease.
func fenceAt(t *testing.T, h *fleetHost, query string) uint64 {
	t.Helper()
	var fence uint64
	eventually(t, "a lease is granted", func() bool {
		status, body := answerOf(t, h.url+"/fence?"+query)
		if status != http.StatusOK {
			return false
		}
		var err error
		if fence, err = strconv.ParseUint(body, 10, 64); err != nil {
			t.Fatal(err)
		}
		return true
	})
	return fence
}

// requireHosts waits until the nats service lists so many hosts.
func requireHosts(t *testing.T, url string, want int) {
	t.Helper()
	eventually(t, "edgehost hosts lists "+itoa(want)+" hosts", func() bool {
		var hosts []kvbucket.HostInfo
		decode(t, runArgs(t, nil, "-o", "json", "hosts", "--nats="+url).stdout, &hosts)
		return len(hosts) == want
	})
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}

func TestAnOperatorOverrulesABreaker(t *testing.T) {
	upstream := startFickleUpstream(t)
	upstream.open()
	buildGuarded(t, upstream.URL)
	url := startSharedStore(t)
	fleet := startFleet(t, 2, url)
	for _, h := range fleet {
		if status, _ := answerOf(t, h.url+"/call"); status != http.StatusOK {
			t.Fatalf("a call is answered %d", status)
		}
	}
	watch := startProcess(t, nil, "object", "watch", "--nats="+url)
	for _, order := range []struct{ verb, state, code string }{
		{"trip", "open", "breaker_open"}, {"reset", "closed", "up"},
	} {
		got := runArgs(t, nil, "object", order.verb, "shop/upstream", "--reason=maintenance", "--nats="+url)
		if want := "The breaker of shop/upstream is " + order.state + ".\n"; got.code != exitOK || got.stdout != want {
			t.Fatalf("%s exited with %d, printed %q and complained %q", order.verb, got.code, got.stdout, got.stderr)
		}
		for _, h := range fleet {
			eventually(t, "every host knows that the breaker is "+order.state, func() bool {
				_, code := answerOf(t, h.url+"/call")
				return code == order.code
			})
		}
		watch.await(t, "(shop/upstream "+order.state+") ")
	}
	if took := watch.interrupt(t); took > stopLimit {
		t.Errorf("stopping the watch took %s", took)
	}
	got := runArgs(t, nil, "object", "trip", "upstream", "--reason=maintenance", "--nats="+url)
	if got.code != exitFailure || !strings.Contains(got.stderr, "NAMESPACE/NAME") {
		t.Errorf("trip without a namespace exited with %d and complained %q", got.code, got.stderr)
	}
}
