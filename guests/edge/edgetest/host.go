//go:build !wasip1

// Package edgetest runs a function's handler in a plain go test. Its Host
// stands in for edgehost at the level of the host functions, so the SDK code
// that runs is the code that runs in Wasm, with the codes, buffer rules and
// limits of the ABI.
//
//	func TestCheckout(t *testing.T) {
//		host := edgetest.New(t)
//		host.Handle("POST /orders/{id}", checkout)
//		host.Refuse("payments", edge.Deferred, 3*time.Second)
//
//		got := host.Serve(httptest.NewRequest("POST", "/orders/7", nil))
//		if got.Status != 503 || got.Header.Get("Retry-After") != "3" {
//			t.Errorf("got %d, Retry-After %q", got.Status, got.Header.Get("Retry-After"))
//		}
//	}
//
// What depends on time or on other hosts happens when the test says so: leases
// are lost by LoseLease, nobody waits for one, and no deadline passes but the
// one that SetStatus reports. Dependencies run inside the host call that starts
// them, so calls under way at once are answered in the order in which they were
// started.
package edgetest

import (
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/internal/host"
)

// A Host serves requests to the handler of the package under test. Its methods
// may be called while it serves, by a dependency for instance, except Serve and
// Run.
type Host struct {
	tb testing.TB

	mu           sync.Mutex     // guards everything below
	routes       *http.ServeMux // nil without routes
	env          map[string]string
	secrets      map[string]string
	dependencies map[string]upstream
	hosts        map[string]upstream
	objects      []string
	function     *leaseKey // of the lease around the function
	leases       map[leaseKey]*lease
	fence        uint64
	state        map[stateKey]*stateValue
	revision     uint64
	status       edge.Status
	logs         []Log
	calls        []string
	outcomes     map[string][]edge.Outcome
}

// A Log is one line that the guest gave to the host's log.
type Log struct {
	Level slog.Level
	Line  string
}

// New returns a host that grants nothing yet, with a deadline of five seconds
// that does not come nearer. What the guest logs goes to the log of tb.
func New(tb testing.TB) *Host {
	tb.Helper()
	return &Host{
		tb:           tb,
		env:          map[string]string{},
		secrets:      map[string]string{},
		dependencies: map[string]upstream{},
		hosts:        map[string]upstream{},
		leases:       map[leaseKey]*lease{},
		state:        map[stateKey]*stateValue{},
		outcomes:     map[string][]edge.Outcome{},
		status:       edge.Status{Remaining: 5 * time.Second, Fuel: -1},
	}
}

// Handle serves requests that match the route, a pattern as in the manifest, by
// the handler. A host without routes serves every request by the handler that
// the package registered with edge.Handle.
func (h *Host) Handle(route string, handler edge.Handler) {
	h.route(route, host.Capture(func() { edge.Handle(handler) }))
}

// Route serves requests that match the route by the handler that the package
// registered with edge.Handle.
func (h *Host) Route(route string) { h.route(route, nil) }

// SetEnv gives the function a value of the manifest's env.
func (h *Host) SetEnv(name, value string) { h.with(func() { h.env[name] = value }) }

// SetSecret gives the function a secret.
func (h *Host) SetSecret(name, value string) { h.with(func() { h.secrets[name] = value }) }

// SetStatus sets what the guest is told about its request from now on. While
// Canceled is set, reads and writes of the exchange with the client fail.
func (h *Host) SetStatus(s edge.Status) { h.with(func() { h.status = s }) }

// Logs returns what the guest has logged.
func (h *Host) Logs() (logs []Log) {
	h.with(func() { logs = slices.Clone(h.logs) })
	return logs
}

// Calls returns the names of the host functions that were called, in order.
func (h *Host) Calls() (names []string) {
	h.with(func() { names = slices.Clone(h.calls) })
	return names
}

// with runs f while it holds the lock.
func (h *Host) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// config implements the host function.
func (h *Host) config(kind int32, name string) (string, error) {
	if err := named(name); err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	values, ok := map[int32]map[string]string{abi.ConfigEnv: h.env, abi.ConfigSecret: h.secrets}[kind]
	if !ok {
		return "", abi.Unsupported
	}
	if value, ok := values[name]; ok {
		return value, nil
	}
	return "", abi.NotFound
}
