package kvbucket_test

import (
	"context"
	"encoding/json"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/kvbucket/natstest"
)

// A brokenLine has a proxy between its server and one of its ends.
type brokenLine struct {
	line
	server *kvbucket.Server
	proxy  *natstest.Proxy
}

func newBrokenLine(t *testing.T) *brokenLine {
	t.Helper()
	s := startServer(t, kvbucket.ServerConfig{Listen: listenAny, LazySync: true})
	p, c := dialProxy(t, s, kvbucket.ConnConfig{})
	return &brokenLine{
		line:   line{T: t, ctx: deadline(t), caller: messengerOn(t, c), listener: messengerOn(t, dialServer(t, s))},
		server: s, proxy: p,
	}
}

func TestARequestThatVanishesIsSentOnceMore(t *testing.T) {
	b := newBrokenLine(t)
	serve(t, b.listener, "alpha", echo)
	// The caller's subscription for answers must not get lost with its request.
	if _, err := b.caller.Call(b.ctx, "alpha", []byte("first")); err != nil {
		t.Fatal(err)
	}
	b.proxy.DropRequests.Store(true)
	go func() {
		<-b.proxy.Dropped
		b.proxy.DropRequests.Store(false)
	}()
	began := time.Now()
	answer, err := b.caller.Call(b.ctx, "alpha", []byte("hello"))
	if err != nil || string(answer) != "hello" {
		t.Errorf("got %q, error %v", answer, err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("took %v, want the time of one receipt at least", took)
	}
}

func TestTwoMissingReceiptsEndACall(t *testing.T) {
	for _, test := range []struct {
		name  string
		begin func(b *brokenLine)
		most  int // requests that arrive
	}{
		{"requests vanish", func(b *brokenLine) { b.proxy.DropRequests.Store(true) }, 0},
		{"receipts and answers vanish", func(b *brokenLine) { b.proxy.DropReplies.Store(true) }, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBrokenLine(t)
			arrived := make(chan struct{}, 10)
			serve(t, b.listener, "alpha", func(context.Context, []byte) []byte {
				arrived <- struct{}{}
				return nil
			})
			test.begin(b)
			began := time.Now()
			_, err := b.caller.Call(b.ctx, "alpha", nil)
			wantError(t, err, kvbucket.ErrNoReceipt)
			if took := time.Since(began); took < time.Second || took > 1500*time.Millisecond {
				t.Errorf("took %v, want a little more than the time of two receipts", took)
			}
			if n := len(arrived); n != test.most {
				t.Errorf("the request arrived %d times, want %d", n, test.most)
			}
		})
	}
}

func TestARequestThatRunsIsNotStartedAgain(t *testing.T) {
	b := newBrokenLine(t)
	s := newStuckHandler()
	serve(t, b.listener, "alpha", s.handle)
	b.proxy.DropReplies.Store(true)
	_, err := b.caller.Call(b.ctx, "alpha", nil)
	wantError(t, err, kvbucket.ErrNoReceipt)
	if n := len(s.entered); n != 1 {
		t.Errorf("the request runs %d times", n)
	}
	s.release(b.line, "to nobody")
}

func TestWithoutAConnectionNothingIsSent(t *testing.T) {
	b := newBrokenLine(t)
	serve(t, b.listener, "alpha", func(context.Context, []byte) []byte {
		t.Error("a request arrived")
		return nil
	})
	b.proxy.Refuse.Store(true)
	b.proxy.Cut()
	<-b.proxy.Refused
	began := time.Now()
	_, err := b.caller.Call(b.ctx, "alpha", nil)
	wantError(t, err, kvbucket.ErrUnavailable)
	_, err = b.caller.Serve("beta", echo)
	wantError(t, err, kvbucket.ErrUnavailable)
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestACallOutlivesItsConnection(t *testing.T) {
	b := newBrokenLine(t)
	s := newStuckHandler()
	serve(t, b.listener, "alpha", s.handle)
	answers := make(chan string, 1)
	go func() {
		answer, err := b.caller.Call(b.ctx, "alpha", nil)
		if err != nil {
			t.Error(err)
		}
		answers <- string(answer)
	}()
	s.enter(b.line)
	b.proxy.Refuse.Store(true)
	b.proxy.Cut()
	<-b.proxy.Refused
	s.release(b.line, "lost with the connection")
	b.proxy.Refuse.Store(false)
	s.enter(b.line)
	s.release(b.line, "again")
	if got := <-answers; got != "again" {
		t.Errorf("got %q", got)
	}
}

func TestAListenerOutlivesItsConnection(t *testing.T) {
	b := newBrokenLine(t)
	serve(t, b.caller, "beta", echo) // the end behind the proxy
	b.proxy.Cut()
	eventually(t, "the address is served again", func() bool {
		_, err := b.listener.Call(b.ctx, "beta", nil)
		return err == nil
	})
}

func TestManyReconnectsLeakNothingOfAMessenger(t *testing.T) {
	const reconnects = 200
	b := newBrokenLine(t)
	serve(t, b.caller, "behind", echo)
	serve(t, b.listener, "before", echo)
	round := func() {
		b.proxy.Cut()
		eventuallyFast(t, "requests pass in both directions", func() bool {
			_, there := b.caller.Call(t.Context(), "before", nil)
			_, back := b.listener.Call(t.Context(), "behind", nil)
			return there == nil && back == nil
		})
	}
	for range 5 {
		round()
	}
	before := measure(t, b.server)
	for range reconnects {
		round()
	}
	eventually(t, "as many subscriptions and goroutines as before", func() bool {
		now := measure(t, b.server)
		return now.subscriptions == before.subscriptions && now.goroutines <= before.goroutines+2
	})
	if grown := int64(measure(t, b.server).heap) - int64(before.heap); grown > 2<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// eventuallyFast waits until the condition holds, and asks again often.
func eventuallyFast(t *testing.T, what string, holds func() bool) {
	t.Helper()
	late := time.After(patience)
	for !holds() {
		select {
		case <-late:
			t.Fatalf("never: %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// A measurement is what a leak would let grow.
type measurement struct {
	subscriptions uint32 // on the server
	goroutines    int
	heap          uint64 // bytes
}

func measure(t *testing.T, s *kvbucket.Server) measurement {
	t.Helper()
	goruntime.GC()
	var m goruntime.MemStats
	goruntime.ReadMemStats(&m)
	return measurement{kvbucket.Subscriptions(s), goruntime.NumGoroutine(), m.HeapAlloc}
}

func TestHostsAreListedAsNATSServices(t *testing.T) {
	s := startServer(t, kvbucket.ServerConfig{LazySync: true})
	c := dialServer(t, s)
	if hosts, err := c.Hosts(deadline(t)); err != nil || len(hosts) != 0 {
		t.Errorf("without hosts, got %v and error %v", hosts, err)
	}
	serve(t, messengerOn(t, dialServer(t, s)), "alpha=2E1", echo)
	serve(t, messengerOn(t, dialServer(t, s)), "alpha=2E2", echo)
	caller := messengerOn(t, c)
	for range 3 {
		if _, err := caller.Call(deadline(t), "alpha=2E1", nil); err != nil {
			t.Fatal(err)
		}
	}
	want := []kvbucket.HostInfo{
		{Host: "alpha", Version: "v1.2.3", Address: "alpha=2E1", Requests: 3},
		{Host: "alpha", Version: "v1.2.3", Address: "alpha=2E2"},
	}
	hosts, err := c.Hosts(deadline(t))
	if diff := cmp.Diff(want, hosts, cmpopts.IgnoreFields(kvbucket.HostInfo{}, "Started")); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	for _, h := range hosts {
		if age := time.Since(h.Started); age < 0 || age > patience {
			t.Errorf("%s started %v ago", h.Address, age)
		}
	}
	requireServiceInfo(t, s)
}

// requireServiceInfo asks for a service as `nats micro info` does.
func requireServiceInfo(t *testing.T, s *kvbucket.Server) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(kvbucket.InProcess(s)))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reply, err := nc.RequestWithContext(deadline(t), "$SRV.INFO.edgehost", nil)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(reply.Data, &info); err != nil {
		t.Fatal(err)
	}
	if info.Name != "edgehost" || info.Version != "1.2.3" || info.Metadata["host"] != "alpha" || len(info.Endpoints) != 1 {
		t.Errorf("got %+v", info)
	}
}

func BenchmarkMessengerCall(b *testing.B) {
	s := startServer(b, kvbucket.ServerConfig{LazySync: true})
	serve(b, messengerOn(b, dialServer(b, s)), "alpha", echo)
	caller := messengerOn(b, dialServer(b, s))
	request := make([]byte, 200)
	for b.Loop() {
		if _, err := caller.Call(b.Context(), "alpha", request); err != nil {
			b.Fatal(err)
		}
	}
}
