// Command guarded calls a dependency and takes a lease, for the test of a store
// that goes away.
package main

import (
	"io"

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
