// Command guarded calls a dependency and takes leases, for the tests of stores and
// hosts that go away.
package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() { edge.Handle(serve) }

func main() {}

func serve(w *edge.ResponseWriter, r *edge.Request) {
	verbs := map[string]func(*edge.ResponseWriter, *edge.Request) error{
		"call": call, "lease": lease, "fence": fence, "hold": hold, "keep": keep, "update": update, "value": value, "outlive": outlive,
	}
	verb, ok := verbs[r.PathValue("what")]
	if !ok {
		w.WriteHeader(404)
		return
	}
	if err := verb(w, r); err != nil {
		edge.Error(w, err)
	}
}

// call passes the dependency's answer on.
func call(w *edge.ResponseWriter, _ *edge.Request) error {
	request, err := edge.NewRequest("GET", "/", nil)
	if err != nil {
		return err
	}
	response, err := edge.Dependency("upstream").Fetch(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// lease takes a lease and gives it back.
func lease(w *edge.ResponseWriter, _ *edge.Request) error {
	held, err := edge.Object("things/1").Acquire(edge.LeaseOptions{})
	if err != nil {
		return err
	}
	if err := held.Release(); err != nil {
		return err
	}
	_, err = w.WriteString("leased")
	return err
}

// acquire takes the short lease that all other verbs are about, or what the query
// asks for.
func acquire(r *edge.Request) (*edge.Lease, error) {
	object, options := edge.Object("things/2"), edge.LeaseOptions{TTL: time.Second, Wait: 200 * time.Millisecond}
	query := r.URL().Query()
	if name := query.Get("object"); name != "" {
		object = edge.Object(name)
	}
	for name, value := range map[string]*time.Duration{"ttl": &options.TTL, "wait": &options.Wait} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, err
		}
		*value = d
	}
	return object.Acquire(options)
}

// fence takes the lease, says its fence and gives it back.
func fence(w *edge.ResponseWriter, r *edge.Request) error {
	held, err := acquire(r)
	if err != nil {
		return err
	}
	if err := held.Release(); err != nil {
		return err
	}
	_, err = w.WriteString(strconv.FormatUint(held.Fence(), 10))
	return err
}

// hold keeps the lease for as long as the dependency takes to answer, and fails if
// it has been lost by then.
func hold(w *edge.ResponseWriter, r *edge.Request) error {
	held, err := acquire(r)
	if err != nil {
		return err
	}
	if err := call(w, r); err != nil {
		return err
	}
	return held.Err()
}

// keep says the fence of the lease at once and keeps it until it is lost.
func keep(w *edge.ResponseWriter, r *edge.Request) error {
	held, err := acquire(r)
	if err != nil {
		return err
	}
	if _, err := w.WriteString(strconv.FormatUint(held.Fence(), 10) + "\n"); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for held.Err() == nil {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // a guest has nothing else to wait for
	}
	return nil
}

// update adds one to a number under the lease, and lets the dependency answer
// between the read and the write. It says the number.
func update(w *edge.ResponseWriter, r *edge.Request) error {
	held, err := acquire(r)
	if err != nil {
		return err
	}
	old, revision, err := edge.Object("things/2").Get("number", held)
	if err != nil && !errors.Is(err, edge.NotFound) {
		return err
	}
	if r.URL().Query().Has("call") {
		request, err := edge.NewRequest("GET", "/", nil)
		if err != nil {
			return err
		}
		if _, err := edge.Dependency("upstream").Fetch(request); err != nil {
			return err
		}
	}
	number, _ := strconv.Atoi(string(old)) // zero before the first time
	next := strconv.Itoa(number + 1)
	if _, err := edge.Object("things/2").Put("number", []byte(next), revision, held); err != nil {
		return err
	}
	if err := held.Release(); err != nil {
		return err
	}
	_, err = w.WriteString(next)
	return err
}

// value says the number.
func value(w *edge.ResponseWriter, _ *edge.Request) error {
	number, _, err := edge.Object("things/2").Get("number", nil)
	if err != nil {
		return err
	}
	_, err = w.Write(number)
	return err
}

// outlive takes the lease, calls the dependency, which cuts the host off, and keeps
// the lease until it is lost. It says the fence, how long the call took, how long
// after it the lease was last seen to be held, and when it was seen to be lost.
func outlive(w *edge.ResponseWriter, r *edge.Request) error {
	held, err := acquire(r)
	if err != nil {
		return err
	}
	request, err := edge.NewRequest("GET", "/cut", nil)
	if err != nil {
		return err
	}
	called := time.Now()
	if _, err := edge.Dependency("upstream").Fetch(request); err != nil {
		return err
	}
	cut := time.Now()
	var valid, seen time.Duration
	for held.Err() == nil {
		valid = seen
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // a guest has nothing else to wait for
		seen = time.Since(cut)
	}
	_, err = fmt.Fprintln(w, held.Fence(), cut.Sub(called).Microseconds(), valid.Microseconds(), time.Since(cut).Microseconds())
	return err
}
