// Package tour is a handler that uses every part of the SDK, to show that it
// works in Wasm as it does under go test.
package tour

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/edge"
)

// The names that the tour needs its host to have.
const (
	Dependency = edge.Dependency("echo")
	Refused    = edge.Dependency("refused")
	Object     = edge.Object("tour/1")
	Plain      = "http://plain.example.com/"
)

var stops = map[string]func(w *edge.ResponseWriter, r *edge.Request) error{
	"head":      head,
	"body":      body,
	"long":      long,
	"config":    config,
	"status":    status,
	"fetch":     fetch,
	"parallel":  parallel,
	"admit":     admit,
	"lease":     lease,
	"state":     state,
	"log":       log,
	"error":     func(*edge.ResponseWriter, *edge.Request) error { return refused() },
	"panic":     func(*edge.ResponseWriter, *edge.Request) error { panic("tour") },
	"goroutine": func(*edge.ResponseWriter, *edge.Request) error { go func() { select {} }(); return nil },
}

// Stops returns the values of the path wildcard "stop" that Handler knows.
func Stops() []string {
	names := make([]string, 0, len(stops))
	for name := range stops {
		names = append(names, name)
	}
	return names
}

// Handler goes to the stop that the path names.
func Handler(w *edge.ResponseWriter, r *edge.Request) {
	if err := stops[r.PathValue("stop")](w, r); err != nil {
		edge.Error(w, err)
	}
}

func head(w *edge.ResponseWriter, r *edge.Request) error {
	for name, value := range r.Header().All() {
		w.Header().Add("X-"+name, value)
	}
	w.WriteHeader(103)
	w.WriteHeader(201)
	_, err := fmt.Fprintln(w, r.Method, r.URL(), r.Host(), r.Scheme(), r.RemoteAddr(), r.RequestID(), r.Route(), r.ContentLength())
	return err
}

func body(w *edge.ResponseWriter, r *edge.Request) error {
	if _, err := io.Copy(w, r.Body); err != nil {
		return err
	}
	trailer, err := r.Trailer()
	if err != nil {
		return err
	}
	w.Trailer().Set("X-Sum", trailer.Get("Sum"))
	return w.Flush()
}

func long(w *edge.ResponseWriter, _ *edge.Request) error {
	_, err := w.WriteString(strings.Repeat("long", 50<<10))
	return err
}

func config(w *edge.ResponseWriter, _ *edge.Request) error {
	_, err := fmt.Fprintf(w, "%q %q %q", edge.Env("LONG"), edge.Env("ABSENT"), edge.Secret("KEY"))
	return err
}

func status(w *edge.ResponseWriter, r *edge.Request) error {
	_, err := fmt.Fprintf(w, "%+v %v %v", edge.CurrentStatus(), r.Remaining(), r.Context().Err())
	return err
}

func fetch(w *edge.ResponseWriter, _ *edge.Request) error {
	inline, err := edge.NewRequest("POST", "/inline", strings.NewReader("inline"))
	if err != nil {
		return err
	}
	inline.Header().Set("X-Ask", "ask")
	inline.Timeout = time.Minute
	streamed, err := edge.NewRequest("PUT", "/streamed", io.LimitReader(strings.NewReader(strings.Repeat("s", 100<<10)), 90<<10))
	if err != nil {
		return err
	}
	plain, err := edge.NewRequest("GET", Plain, nil)
	if err != nil {
		return err
	}
	for _, call := range []func() (*edge.Response, error){
		func() (*edge.Response, error) { return Dependency.Fetch(inline) },
		func() (*edge.Response, error) { return Dependency.Fetch(streamed) },
		func() (*edge.Response, error) { return edge.Fetch(plain) },
	} {
		if err := show(w, call); err != nil {
			return err
		}
	}
	return nil
}

func show(w *edge.ResponseWriter, call func() (*edge.Response, error)) error {
	response, err := call()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	trailer, err := response.Trailer()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, response.Status, response.Header().Values("Set-Cookie"), response.ContentLength(), trailer.Len(), string(content))
	return errors.Join(err, response.Body.Close())
}

func parallel(w *edge.ResponseWriter, _ *edge.Request) error {
	var requests []*edge.Request
	for _, target := range []string{"/1", "/2", "/3"} {
		r, err := edge.NewRequest("GET", target, nil)
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	for _, call := range Dependency.Start(requests...) {
		if err := show(w, call.Wait); err != nil {
			return err
		}
	}
	return nil
}

func admit(w *edge.ResponseWriter, _ *edge.Request) error {
	admission, err := Dependency.Admit()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, admission.Report(edge.Failure), admission.Report(edge.Success))
	return err
}

// refused returns the error of a call that is refused.
func refused() error {
	_, err := Refused.Admit()
	return err
}

func lease(w *edge.ResponseWriter, _ *edge.Request) error {
	held, err := Object.Acquire(edge.LeaseOptions{TTL: 20 * time.Second, Wait: time.Second})
	if err != nil {
		return err
	}
	_, busy := Object.Acquire(edge.LeaseOptions{})
	r, err := edge.NewRequest("GET", "/leased", nil)
	if err != nil {
		return err
	}
	r.Lease = held
	if err := show(w, func() (*edge.Response, error) { return Dependency.Fetch(r) }); err != nil {
		return err
	}
	_, absent := edge.FunctionLease()
	_, err = fmt.Fprintln(w, held.Fence(), held.Remaining(), held.Err(), busy, edge.RetryAfter(busy), absent, held.Release(), held.Err())
	return err
}

func state(w *edge.ResponseWriter, _ *edge.Request) error {
	held, err := Object.Acquire(edge.LeaseOptions{})
	if err != nil {
		return err
	}
	_, absent, missing := Object.Get("key", held)
	first, err := Object.Put("key", []byte(strings.Repeat("v", 2000)), absent, held)
	if err != nil {
		return err
	}
	_, conflict := Object.Put("key", nil, absent, nil)
	value, revision, err := Object.Get("key", nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, absent, missing, first, conflict, edge.CurrentRevision(conflict), len(value), revision)
	return err
}

func log(*edge.ResponseWriter, *edge.Request) error {
	edge.Log.WithGroup("g").Warn("a line", "n", 1)
	return nil
}
