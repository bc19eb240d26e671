// Package runtime loads, checks and serves HTTP functions compiled to
// WebAssembly. It is the only package that knows the WebAssembly engine.
//
// A client is answered at the function's timeout, whatever the guest does. One
// instance serves one request at a time, and an instance that trapped, exited,
// timed out or failed never serves again, unless all of its state is restored to
// what it was after initialization. A guest reaches nothing that its
// FunctionConfig does not name.
//
// The standard library's package of this name is imported as goruntime, and no
// name of it is exported here.
package runtime

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehost/edgehost/guests/abi"
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
	objects  *objects.Host
	logger   *slog.Logger
	metrics  *metrics
	unrouted *functionMetrics
	loader   *loader
	turns    turns
	ids      idSource

	base context.Context // of everything that is done for requests; ends with Close
	stop context.CancelFunc

	table atomic.Pointer[table]

	mu     sync.Mutex // one deployment at a time; guards closed
	closed bool
	group  sync.WaitGroup // draining apps, and the sweeper
}

// sweepEvery is how often idle and old instances are looked for.
const sweepEvery = 5 * time.Second

// Open returns an Engine without apps. The error says what is wrong with the
// cache directory, or that the metrics are registered already.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	e := &Engine{objects: cfg.Objects, logger: cfg.Logger, turns: newTurns()}
	if e.logger == nil {
		e.logger = slog.New(slog.DiscardHandler)
	}
	loader, err := newLoader(ctx, cfg.CacheDir, e.logger)
	if err != nil {
		return nil, err
	}
	e.loader = loader
	if e.metrics, err = newMetrics(cfg.Metrics, e.census); err != nil {
		return nil, errors.Join(fmt.Errorf("runtime: metrics: %w", err), loader.close(ctx))
	}
	e.unrouted = e.metrics.of("", "")
	e.ids.prefix = rand.Text()[:8] + "-"
	e.base, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	e.table.Store(&table{mux: http.NewServeMux()})
	e.group.Go(e.sweep)
	return e, nil
}

// Deploy compiles and checks every function of app and then lets it take the
// place of the app of the same name in one step. Requests that the old one has
// begun are finished by it. After an error nothing has changed; the error holds
// one line for each thing that is wrong.
func (e *Engine) Deploy(ctx context.Context, app App) error {
	resolved, err := app.resolved()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	fresh, err := e.loadApp(ctx, resolved)
	if err != nil {
		return err
	}
	apps, old := replaced(e.table.Load().apps, fresh)
	next, err := newTable(apps)
	if err != nil {
		e.yield(fresh)
		return errors.Join(err, fresh.drain(ctx))
	}
	e.table.Store(next)
	if old != nil {
		e.yield(old)
		e.group.Go(func() { e.retire(old) })
	}
	return nil
}

var errClosed = errors.New("runtime: the engine is closed")

// replaced returns the apps with fresh in the place of the one of its name, which
// is returned as well.
func replaced(apps []*app, fresh *app) (next []*app, old *app) {
	for _, a := range apps {
		if a.name == fresh.name {
			old = a
		} else {
			next = append(next, a)
		}
	}
	return append(next, fresh), old
}

// retire drains an app that has been replaced. Its requests end by their own
// deadlines.
func (e *Engine) retire(old *app) {
	if err := old.drain(e.base); err != nil {
		e.logger.LogAttrs(e.base, slog.LevelError, "release a replaced app", slog.String("app", old.name), slog.String("error", err.Error()))
	}
}

// ServeHTTP routes a request to its function and answers it, with a problem
// document (RFC 9457) if the function cannot. The ResponseWriter must be one of
// a net/http server: a body that stalls is ended at the deadline through its read
// and write deadlines. It panics with http.ErrAbortHandler if an answer breaks
// off in the middle.
func (e *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &arrival{engine: e, w: w, r: r, start: time.Now()}
	if a.id = r.Header.Get("X-Request-Id"); !saneID(a.id) {
		a.id = e.ids.next()
	}
	w.Header()["X-Request-Id"] = []string{a.id}
	e.route(a, r)
	took := time.Since(a.start)
	m := e.unrouted
	if a.function != nil {
		m = a.function.metrics
		m.seconds.Observe(took.Seconds())
	}
	m.request(a.outcome.slot, a.outcome.problem.code).Inc()
	a.log(r.Context(), took)
	if a.outcome.brokenOff {
		panic(http.ErrAbortHandler)
	}
}

// route hands a request to the function that serves its route at the moment.
func (e *Engine) route(a *arrival, r *http.Request) {
	for {
		t := e.table.Load()
		if t.closed {
			a.refuse(failed(abi.Overloaded, queueRetry, errClosed))
			return
		}
		a.moved = false
		if t.mux.ServeHTTP(a, r); !a.moved {
			return
		}
	}
}

// Close refuses new requests, waits until the running ones have ended or ctx
// is done, stops those that are left, and releases everything. A second call
// returns nil.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	old := e.table.Swap(&table{closed: true})
	var errs []error
	for _, a := range old.apps {
		e.yield(a)
		errs = append(errs, a.drain(ctx))
	}
	e.stop()
	e.group.Wait()
	e.metrics.close()
	return errors.Join(append(errs, e.loader.close(context.WithoutCancel(ctx)))...)
}

// sweep closes instances that are not needed, until the engine closes.
func (e *Engine) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-e.base.Done():
			return
		case now := <-ticker.C:
			for _, a := range e.table.Load().apps {
				for _, f := range a.functions {
					f.pool.sweep(now)
				}
			}
		}
	}
}

func (e *Engine) census(report func(app, function string, c census)) {
	for _, a := range e.table.Load().apps {
		for _, f := range a.functions {
			report(a.name, f.cfg.Name, f.pool.census())
		}
	}
}

// Check compiles every function of app and reports everything that Deploy would
// refuse, one line each.
func Check(ctx context.Context, app App) error {
	resolved, err := app.resolved()
	errs := []error{err}
	l, err := newLoader(ctx, "", slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	modules, err := l.loadAll(ctx, resolved.Functions)
	errs = append(errs, err, checkRoutes(resolved))
	for _, m := range modules {
		errs = append(errs, m.close(ctx))
	}
	return errors.Join(append(errs, l.close(ctx))...)
}

// checkRoutes builds a table that serves nothing.
func checkRoutes(cfg App) error {
	a := new(app)
	for _, f := range cfg.Functions {
		a.functions = append(a.functions, &function{cfg: f})
	}
	_, err := newTable([]*app{a})
	return err
}

// An idSource makes request ids that are unique, and short to read out.
type idSource struct {
	prefix string
	count  atomic.Uint64
}

func (s *idSource) next() string {
	b := make([]byte, 0, 24)
	b = append(b, s.prefix...)
	return string(strconv.AppendUint(b, s.count.Add(1), 36))
}

// saneID reports whether an id that a client or proxy chose may go to logs,
// headers and documents as it is.
func saneID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}
