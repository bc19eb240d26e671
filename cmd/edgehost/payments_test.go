package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/edgehost/edgehost/objects"
)

// A shop is the payments example, run by `edgehost dev`.
type shop struct {
	*process
	url, admin, payments string
}

// openShop starts the example in a copy of its own, with its payment service on
// a free port.
func openShop(t *testing.T) *shop {
	t.Helper()
	copyExample(t, "payments")
	return reopenShop(t)
}

func reopenShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{payments: "http://" + freeAddress(t)}
	s.process = startProcess(t, []string{"PAYMENTS_URL=" + s.payments}, "dev", "payments",
		"--listen=127.0.0.1:0", "--admin=127.0.0.1:0", "--nats-listen=127.0.0.1:0")
	s.url = s.await(t, `is served at (http://\S+)$`)
	s.admin = s.await(t, `^Admin: +(http://\S+)`)
	s.count(t) // by now it answers
	return s
}

// tell sets what the payment service does with the next charges.
func (s *shop) tell(t *testing.T, mode string) {
	t.Helper()
	if got := post(t, s.payments+"/control/"+mode); got.status != http.StatusOK {
		t.Fatalf("telling the payment service to %s gave %d", mode, got.status)
	}
}

// count returns how many charges have reached the payment service.
func (s *shop) count(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(fetch(t, http.DefaultClient, s.payments+"/count")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// breaker returns the breaker of the payment service.
func (s *shop) breaker(t *testing.T) objects.BreakerSnapshot {
	t.Helper()
	var all []objects.Snapshot
	if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, s.admin+"/objects")), &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.Namespace == "shop" && o.Name == "payments" && o.Breaker != nil {
			return *o.Breaker
		}
	}
	t.Fatalf("there is no breaker of shop/payments in %+v", all)
	return objects.BreakerSnapshot{}
}

// openBreaker makes the payment service fail until nothing reaches it any more.
func (s *shop) openBreaker(t *testing.T) {
	t.Helper()
	s.tell(t, "fail")
	for range 5 {
		if got := s.order(t); got.status != http.StatusBadGateway || got.code != "dependency_failed" {
			t.Fatalf("an order while payments fail gives %+v, want 502 dependency_failed", got)
		}
	}
}

func (s *shop) order(t *testing.T) posted {
	t.Helper()
	return post(t, s.url+"/orders/42")
}

// passed sends orders at the same time and returns how many were let through.
// All others must be told when to try again.
func (s *shop) passed(t *testing.T, orders int) int {
	t.Helper()
	answers := make(chan posted, orders)
	for range orders {
		go func() { answers <- s.order(t) }()
	}
	passed := 0
	for range orders {
		got := <-answers
		seconds, err := strconv.Atoi(got.retryAfter)
		switch {
		case got.status == http.StatusCreated:
			passed++
		case got.status != http.StatusServiceUnavailable || got.code != "breaker_open" && got.code != "deferred" || err != nil || seconds <= 0:
			t.Errorf("a refused order gives %+v, want 503 breaker_open or deferred, and a time to retry", got)
		}
	}
	return passed
}

// posted is what an answer says.
type posted struct {
	status     int
	code       string // of a problem document
	retryAfter string
	body       string
}

func post(t *testing.T, url string) posted {
	t.Helper()
	response, err := http.Post(url, "", nil)
	if err != nil {
		t.Errorf("POST %s: %v", url, err)
		return posted{}
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil {
		t.Errorf("POST %s: %v %v", url, err, closeErr)
	}
	var problem struct{ Code string }
	_ = json.Unmarshal(body, &problem) // not every answer is a problem
	return posted{response.StatusCode, problem.Code, response.Header.Get("Retry-After"), string(body)}
}

func TestPaymentsShowsABreakerOpenProbeAndClose(t *testing.T) {
	s := openShop(t)
	if got := s.order(t); got.status != http.StatusCreated || got.body != "{\"charge\":1}\n" {
		t.Fatalf("the first order gives %+v, want 201 and charge 1", got)
	}

	s.openBreaker(t)
	reached := s.count(t)
	if n := s.passed(t, 50); n != 0 {
		t.Errorf("%d orders passed an open breaker", n)
	}
	got := s.order(t)
	if seconds, err := strconv.Atoi(got.retryAfter); got.status != http.StatusServiceUnavailable || got.code != "breaker_open" || err != nil || seconds <= 0 {
		t.Errorf("an order while the breaker is open gives %+v, want 503 breaker_open and a time to retry", got)
	}
	if b := s.breaker(t); b.State != objects.StateOpen {
		t.Errorf("the breaker is shown as %s", b.State)
	}
	if again := s.count(t); again != reached {
		t.Errorf("%d charges got through an open breaker", again-reached)
	}

	// The probe takes a second, so that all the others come while it is under
	// way. The cooldown may end a little later than the store's clock shows it.
	s.tell(t, "slow")
	eventually(t, "the cooldown is over", func() bool { return s.breaker(t).RetryAfter <= 0 })
	probes := 0
	eventually(t, "a probe has been let through", func() bool {
		probes = s.passed(t, 50)
		return probes > 0
	})
	if arrived := s.count(t) - reached; probes != 1 || arrived != 1 {
		t.Errorf("%d orders were let through and %d charges arrived, want one probe", probes, arrived)
	}

	s.tell(t, "work")
	if got := s.order(t); got.status != http.StatusCreated {
		t.Errorf("after the probe an order gives %+v, want 201", got)
	}
	if b := s.breaker(t); b.State != objects.StateClosed {
		t.Errorf("after the probe the breaker is shown as %s", b.State)
	}

	if took := s.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	s.requireNothingLeft(t)
	requireClosed(t, s.url)
	requireClosed(t, s.payments+"/count")
}

func TestPaymentsIsHungUpOnByCtrlC(t *testing.T) {
	s := openShop(t)
	s.tell(t, "hang")
	go func() { _, _ = http.Post(s.url+"/orders/1", "", nil) }() //nolint:bodyclose // the connection breaks before there is an answer
	eventually(t, "the charge has arrived", func() bool { return s.count(t) == 1 })
	if took := s.interrupt(t); took > stopLimit {
		t.Errorf("stopping took %s", took)
	}
	s.requireNothingLeft(t)
}

func TestPaymentsRemembersAnOpenBreakerAfterKill(t *testing.T) {
	s := openShop(t)
	s.openBreaker(t)
	s.kill(t)
	s.requireNothingLeft(t)
	s = reopenShop(t)
	if b := s.breaker(t); b.State != objects.StateOpen {
		t.Errorf("after kill -9 the breaker is %s", b.State)
	}
}
