//go:build !wasip1

package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
	"github.com/edgehost/edgehost/guests/edge/edgetest"
)

// A handler is registered by an init function; main does not run.
func ExampleHandle() {
	edge.Handle(func(w *edge.ResponseWriter, r *edge.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "hello, "+r.PathValue("name"))
	})

	host := edgetest.New(outside{}) // in a test, its *testing.T
	host.Route("GET /hello/{name}")
	fmt.Println(get(host, "/hello/ada"))
	// Output:
	// 200 hello, ada
}

// A guarded call goes through the breaker that the whole fleet shares. When the
// dependency is known to fail, nothing is sent, and the client is told when to
// come back.
func ExampleDependency_Fetch() {
	checkout := func(w *edge.ResponseWriter, r *edge.Request) {
		charge, err := edge.NewRequest("POST", "/charge", r.Body)
		if err != nil {
			edge.Error(w, err)
			return
		}
		charge.Header().Set("Authorization", "Bearer "+edge.Secret("PAYMENTS_KEY"))
		charge.Timeout = 800 * time.Millisecond
		answer, err := edge.Dependency("payments").Fetch(charge)
		if errors.Is(err, edge.Deferred) || errors.Is(err, edge.BreakerOpen) {
			edge.Log.Warn("payments is down", "retry_after", edge.RetryAfter(err))
		}
		if err != nil {
			edge.Error(w, err) // 503 with Retry-After, for these two
			return
		}
		defer func() { _ = answer.Body.Close() }() // or it ends with the request
		w.WriteHeader(answer.Status)
		_, _ = io.Copy(w, answer.Body)
	}

	host := edgetest.New(outside{})
	host.Handle("/", checkout)
	host.SetSecret("PAYMENTS_KEY", "key")
	host.Dependency("payments", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" with "+r.Header.Get("Authorization"))
	}))
	fmt.Println(get(host, "/"))
	host.Refuse("payments", edge.BreakerOpen, 30*time.Second)
	fmt.Println(get(host, "/"))
	// Output:
	// 200 POST /charge with Bearer key
	// 503 breaker_open, try again after 30 s
}

// Calls that do not depend on each other run at the same time.
func ExampleStart() {
	product := func(w *edge.ResponseWriter, _ *edge.Request) {
		stock, err := edge.NewRequest("GET", "/stock/7", nil)
		if err != nil {
			edge.Error(w, err)
			return
		}
		price, err := edge.NewRequest("GET", "/price/7", nil)
		if err != nil {
			edge.Error(w, err)
			return
		}
		stock.Dependency, price.Dependency = "warehouse", "catalog"
		answers, err := edge.Start(stock, price).Wait()
		if err != nil {
			edge.Error(w, err)
			return
		}
		for _, answer := range answers {
			_, _ = io.Copy(w, answer.Body)
		}
	}

	host := edgetest.New(outside{})
	host.Handle("/", product)
	host.Dependency("warehouse", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "12 in stock, ")
	}))
	host.Dependency("catalog", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "9.90 each")
	}))
	fmt.Println(get(host, "/"))
	// Output:
	// 200 12 in stock, 9.90 each
}

// A lease makes one holder at a time the writer. Its fence, checked by the state
// of the object, keeps out a holder that was paused and does not know that it
// has lost the lease.
func ExampleObject_Acquire() {
	visit := func(w *edge.ResponseWriter, r *edge.Request) {
		settings := edge.Object("guild-settings/" + r.PathValue("id"))
		lease, err := settings.Acquire(edge.LeaseOptions{TTL: 15 * time.Second, Wait: 250 * time.Millisecond})
		if err != nil {
			edge.Error(w, err) // 409 lease_busy, if somebody else has it
			return
		}
		defer func() { _ = lease.Release() }() // it lapses by itself

		value, revision, err := settings.Get("visits", lease)
		if err != nil && !errors.Is(err, edge.NotFound) {
			edge.Error(w, err)
			return
		}
		visits, _ := strconv.Atoi(string(value)) // nothing yet counts as zero
		next := strconv.Itoa(visits + 1)
		if _, err := settings.Put("visits", []byte(next), revision, lease); err != nil {
			edge.Error(w, err)
			return
		}
		_, _ = w.WriteString(next)
	}

	host := edgetest.New(outside{})
	host.Handle("/guilds/{id}/visits", visit)
	host.AllowObjects("guild-settings/*")
	fmt.Println(get(host, "/guilds/42/visits"))
	fmt.Println(get(host, "/guilds/42/visits"))
	host.HoldLease("guild-settings/42", "main", 4*time.Second)
	fmt.Println(get(host, "/guilds/42/visits"))
	// Output:
	// 200 1
	// 200 2
	// 409 lease_busy, try again after 4 s
}

// Without a lease a value is changed by its revision: read, decide, put, and
// again if somebody else was faster.
func ExampleObject_Put() {
	increment := func(counter edge.Object) error {
		for {
			value, revision, err := counter.Get("n", nil)
			if err != nil && !errors.Is(err, edge.NotFound) {
				return err
			}
			n, _ := strconv.Atoi(string(value)) // nothing yet counts as zero
			_, err = counter.Put("n", []byte(strconv.Itoa(n+1)), revision, nil)
			if !errors.Is(err, edge.Conflict) {
				return err
			}
		}
	}

	host := edgetest.New(outside{})
	host.AllowObjects("counters/*")
	host.SetState("counters/7", "n", []byte("41"))
	host.Run(func() { fmt.Println(increment("counters/7")) })
	value, _ := host.State("counters/7", "n")
	fmt.Println(string(value))
	// Output:
	// <nil>
	// 42
}

// get returns the answer to a request, for printing.
func get(host *edgetest.Host, target string) string {
	answer := host.Serve(httptest.NewRequest(http.MethodGet, target, http.NoBody))
	if answer.Code != 0 {
		return fmt.Sprintf("%d %v, try again after %s s", answer.Status, answer.Code, answer.Header.Get("Retry-After"))
	}
	return fmt.Sprintf("%d %s", answer.Status, answer.Body)
}

// outside stands in for the testing.T that an example does not have.
type outside struct{ testing.TB }

func (outside) Helper()                  {}
func (outside) Logf(string, ...any)      {}
func (outside) Context() context.Context { return context.Background() }
