// Package runtime loads, checks and serves HTTP functions compiled to
// WebAssembly. It is the only package that knows the WebAssembly engine.
//
// A client is answered at the function's timeout, whatever the guest does. One
// instance serves one request at a time, and an instance that trapped, exited,
// timed out or failed never serves again. A guest reaches nothing that its
// FunctionConfig does not name.
//
// The standard library's package of this name is imported as goruntime, and no
// name of it is exported here.
package runtime

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/objects"
)

// Config says what an Engine stands on.
type Config struct {
	Objects  *objects.Host         // guards dependencies, grants leases, keeps state; nil refuses apps that have dependencies or objects
	CacheDir string                // compiled code is kept here; it must be the user's own and private. Empty: in memory
	Logger   *slog.Logger          // one line per request, and what guests log; nil discards
	Metrics  prometheus.Registerer // nil keeps the metrics to itself
}

// An Engine serves the functions of the apps deployed on it. Its methods may be
// called by several goroutines.
type Engine struct {
	cfg Config
}

// Open returns an Engine without apps. The error says what is wrong with the
// cache directory.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	return &Engine{cfg: cfg}, nil
}

// Deploy compiles and checks every function of app and then lets it take the
// place of the app of the same name in one step. Requests that the old one has
// begun are finished by it. After an error nothing has changed.
func (e *Engine) Deploy(ctx context.Context, app App) error { return nil }

// ServeHTTP routes a request to its function and answers it, with a problem
// document (RFC 9457) if the function cannot. The ResponseWriter must be one of
// a net/http server: the deadline of a stalled body is enforced through its
// read and write deadlines.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {}

// Close refuses new requests, waits until the running ones have ended or ctx
// is done, stops those that are left, and releases everything. A second call
// returns nil.
func (e *Engine) Close(ctx context.Context) error { return nil }

// Check compiles every function of app and reports everything that Deploy would
// refuse, one error each, joined.
func Check(ctx context.Context, app App) error { return nil }
