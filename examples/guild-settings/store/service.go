package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// service is the state of the service.
type service struct {
	db      *database
	stopped <-chan struct{}
	out     io.Writer

	mu       sync.Mutex    // guards the following
	hold     bool          // the next write waits
	held     int           // writes that wait
	gate     chan struct{} // they wait until it is closed
	rejected int
}

// newService returns a service that holds nothing back once stopped is closed.
func newService(db *database, stopped <-chan struct{}, out io.Writer) *service {
	return &service{db: db, stopped: stopped, out: out, gate: make(chan struct{})}
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /guilds/{guild}", s.read)
	mux.HandleFunc("PUT /guilds/{guild}", s.write)
	mux.HandleFunc("GET /rejected", s.number(&s.rejected))
	mux.HandleFunc("GET /held", s.number(&s.held))
	mux.HandleFunc("POST /control/{what}", s.control)
	return mux
}

func (s *service) read(w http.ResponseWriter, r *http.Request) {
	settings, _, err := s.db.read(r.Context(), r.PathValue("guild"))
	if err != nil {
		s.fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	say(w, settings)
}

const maxSettings = 64 << 10

// write takes a write that has arrived, even if nobody waits for its answer any
// more: that is what makes a late one dangerous.
func (s *service) write(w http.ResponseWriter, r *http.Request) {
	fence, err := strconv.ParseInt(r.Header.Get("Edgehost-Fence"), 10, 64)
	if err != nil || fence <= 0 {
		http.Error(w, "a write needs the fence of a lease in Edgehost-Fence", http.StatusPreconditionRequired)
		return
	}
	settings, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSettings))
	if err != nil || !json.Valid(settings) {
		http.Error(w, fmt.Sprintf("the settings must be JSON of at most %d bytes", maxSettings), http.StatusBadRequest)
		return
	}
	s.wait()
	guild := r.PathValue("guild")
	switch err := s.db.write(context.WithoutCancel(r.Context()), guild, fence, string(settings)); {
	case errors.Is(err, errStale):
		s.mu.Lock()
		s.rejected++
		s.mu.Unlock()
		say(s.out, fmt.Sprintf("rejected a write to %q: %v", guild, err))
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		s.fail(w, err)
	default:
		say(s.out, fmt.Sprintf("wrote %q under the fence %d", guild, fence))
	}
}

// fail answers for a database that does not work. Whether it wrote is not known.
func (s *service) fail(w http.ResponseWriter, err error) {
	say(s.out, err.Error())
	http.Error(w, "the database does not work", http.StatusInternalServerError)
}

// wait returns when the write may pass.
func (s *service) wait() {
	s.mu.Lock()
	if !s.hold {
		s.mu.Unlock()
		return
	}
	s.hold = false
	s.held++
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
	case <-s.stopped:
	}
	s.mu.Lock()
	s.held--
	s.mu.Unlock()
}

func (s *service) control(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.PathValue("what") {
	case "hold":
		s.hold = true
	case "release":
		s.hold = false
		close(s.gate)
		s.gate = make(chan struct{})
	default:
		http.Error(w, "the controls are hold and release", http.StatusNotFound)
	}
}

// number answers with a count.
func (s *service) number(n *int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		say(w, strconv.Itoa(*n))
	}
}
