package runtime

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
)

// A table is what an engine serves at one moment. It is replaced as a whole.
type table struct {
	apps   []*app
	mux    *http.ServeMux
	closed bool // the engine takes no more requests
}

// A route is one pattern of a function.
type route struct {
	function  *function
	pattern   string
	wildcards []string
}

// newTable builds the table of some apps. The error names the patterns that
// cannot be parsed, or that fit the same requests.
func newTable(apps []*app) (*table, error) {
	t := &table{apps: apps, mux: http.NewServeMux()}
	var errs []error
	for _, a := range apps {
		for _, f := range a.functions {
			for _, pattern := range f.cfg.Routes {
				if err := t.add(&route{f, pattern, wildcards(pattern)}); err != nil {
					errs = append(errs, fmt.Errorf("function %q: route %q: %w", f.cfg.Name, pattern, err))
				}
			}
		}
	}
	return t, errors.Join(errs...)
}

func (t *table) add(r *route) error {
	return register(t.mux, r.pattern, func(w http.ResponseWriter, req *http.Request) {
		if a, ok := w.(*arrival); ok {
			r.function.serve(a, req, r)
		}
	})
}

// register registers a pattern. The mux panics if it cannot.
func register(mux *http.ServeMux, pattern string, fn http.HandlerFunc) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			text, _, _ := strings.Cut(fmt.Sprint(problem), "\n")
			err = errors.New(text)
		}
	}()
	mux.HandleFunc(pattern, fn)
	return nil
}

// wildcards returns the names of a pattern's wildcards.
func wildcards(pattern string) (names []string) {
	for {
		_, rest, ok := strings.Cut(pattern, "{")
		if !ok {
			return names
		}
		name, rest, _ := strings.Cut(rest, "}")
		if name = strings.TrimSuffix(name, "..."); name != "" && name != "$" {
			names = append(names, name)
		}
		pattern = rest
	}
}

// An arrival is a request between the engine and its function. The mux takes it
// for a ResponseWriter and writes to it only what it answers by itself: that
// there is no such route, and redirects to the clean form of a path.
type arrival struct {
	engine   *Engine
	w        http.ResponseWriter
	r        *http.Request
	id       string
	start    time.Time
	deadline time.Time
	outcome  outcome
	function *function // nil if no route matched
	moved    bool      // the function has been replaced: look again
	problem  bool      // the mux's text is replaced by a problem document
}

var _ http.ResponseWriter = (*arrival)(nil)

// Header implements http.ResponseWriter.
func (a *arrival) Header() http.Header { return a.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (a *arrival) WriteHeader(status int) {
	switch status {
	case http.StatusNotFound:
		a.refuse(outcome{problem: problemNoRoute, slot: slotRoute})
	case http.StatusMethodNotAllowed:
		a.refuse(outcome{problem: problemMethod, slot: slotMethod})
	case http.StatusBadRequest:
		a.refuse(outcome{problem: problemOf(abi.Invalid), slot: -int(abi.Invalid)})
	default:
		a.outcome = outcome{problem: problems[0], status: status}
		a.w.WriteHeader(status)
	}
}

// Write implements io.Writer.
func (a *arrival) Write(b []byte) (int, error) {
	if a.problem {
		return len(b), nil
	}
	return a.w.Write(b)
}

func (a *arrival) refuse(o outcome) {
	a.problem = true
	a.outcome = o
	quiesce(a.w, a.r)
	o.write(a.w, a.id)
}
