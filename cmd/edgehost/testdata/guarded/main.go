// Command guarded calls a dependency and takes leases, for the tests of stores and
// hosts that go away.
package main

import (
	"io"
	"strconv"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

func init() { edge.Handle(serve) }

func main() {}

func serve(w *edge.ResponseWriter, r *edge.Request) {
	var err error
	switch r.PathValue("what") {
	case "call":
		err = call(w)
	case "lease":
		err = lease(w)
	case "fence":
		err = fence(w)
	case "hold":
		err = hold(w)
	}
	if err != nil {
		edge.Error(w, err)
	}
}

// call passes the dependency's answer on.
func call(w *edge.ResponseWriter) error {
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
func lease(w *edge.ResponseWriter) error {
	held, err := edge.Object("things/1").Acquire(edge.LeaseOptions{})
	if err != nil {
		return err
	}
	if err := held.Release(); err != nil {
		return err
	}
	_, err = io.WriteString(w, "leased")
	return err
}

// fence takes a short lease, says its fence and gives it back.
func fence(w *edge.ResponseWriter) error {
	held, err := edge.Object("things/2").Acquire(edge.LeaseOptions{TTL: time.Second, Wait: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	if err := held.Release(); err != nil {
		return err
	}
	_, err = io.WriteString(w, strconv.FormatUint(held.Fence(), 10))
	return err
}

// hold keeps the same short lease for as long as the dependency takes to answer, and
// fails if it has been lost by then.
func hold(w *edge.ResponseWriter) error {
	held, err := edge.Object("things/2").Acquire(edge.LeaseOptions{TTL: time.Second})
	if err != nil {
		return err
	}
	if err := call(w); err != nil {
		return err
	}
	return held.Err()
}
