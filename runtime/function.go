package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/runtime/egress"
)

// A function is a loaded function with its instances.
type function struct {
	engine  *Engine
	app     *app
	cfg     FunctionConfig
	module  *module
	pool    *pool
	metrics *functionMetrics
	logger  *slog.Logger // with the app's and the function's name

	dependencies map[string]*dependency // those that it may call
	plain        *egress.Client         // for calls without a dependency

	tasks sync.WaitGroup // what outlives the requests that caused it
	base  context.Context
	stop  context.CancelFunc
}

func newFunction(a *app, cfg FunctionConfig, m *module, plain *egress.Client) *function {
	f := &function{
		engine: a.engine, app: a, cfg: cfg, module: m, plain: plain,
		metrics:      a.engine.metrics.of(a.name, cfg.Name),
		logger:       a.engine.logger.With(slog.String("app", a.name), slog.String("function", cfg.Name)),
		dependencies: make(map[string]*dependency),
	}
	for _, name := range cfg.Dependencies {
		f.dependencies[name] = a.dependencies[name]
	}
	f.base, f.stop = context.WithCancel(a.engine.base)
	f.pool = newPool(cfg, func() *instance { return newInstance(f) })
	if f.startsAnew() {
		f.logger.LogAttrs(f.base, slog.LevelWarn, "function starts an instance for every request, since its state cannot be restored")
	}
	return f
}

// startsAnew reports whether every request has an instance of its own, which is
// initialized for it.
func (f *function) startsAnew() bool {
	return f.cfg.Isolation == IsolationRequest && f.module.snapshot == nil
}

// errQueue is why a request is refused that found no instance in time.
var (
	errQueueFull = fmt.Errorf("runtime: the function's queue is full: %w", abi.Overloaded)
	errQueueWait = fmt.Errorf("runtime: no instance was free in time: %w", abi.Overloaded)
	errMoved     = errors.New("runtime: the function has been replaced")
)

// queueRetry is when a client that was refused for want of an instance may come
// back.
const queueRetry = time.Second

// serve answers one request.
func (f *function) serve(a *arrival, r *http.Request, route *route) {
	a.function = f
	a.deadline = a.start.Add(f.cfg.Timeout)
	if r.ContentLength > f.cfg.MaxRequestBody {
		a.refuse(failed(abi.TooLarge, 0, errBodyLimit))
		return
	}
	i, err := f.acquire(a, r)
	switch {
	case errors.Is(err, errMoved):
		a.moved = true
		return
	case err != nil:
		a.refuse(refused(err))
		return
	}
	i.x.begin(a, r, route)
	i.work <- struct{}{}
	a.outcome = f.await(i, a, r)
}

// refused returns the outcome of a request that got no instance.
func refused(err error) outcome {
	if errors.Is(err, errStart) {
		return faulted(err)
	}
	return failed(abi.CodeOf(err), queueRetry, err)
}

// acquire waits for an instance.
func (f *function) acquire(a *arrival, r *http.Request) (*instance, error) {
	i, w, closed := f.pool.take()
	switch {
	case closed:
		return nil, errMoved
	case i != nil:
		return i, nil
	case w == nil:
		return nil, errQueueFull
	}
	patience := time.NewTimer(min(f.cfg.QueueWait, time.Until(a.deadline)))
	defer patience.Stop()
	select {
	case <-w.ready:
		return w.inst, w.err
	case <-patience.C:
		err := errQueueWait
		if f.cfg.QueueWait >= f.cfg.Timeout {
			err = fmt.Errorf("runtime: %w", abi.DeadlineExceeded)
		}
		return f.leave(w, err)
	case <-r.Context().Done():
		return f.leave(w, fmt.Errorf("runtime: %w", abi.Canceled))
	}
}

// leave gives up waiting, and gives back what came at the last moment.
func (f *function) leave(w *waiter, err error) (*instance, error) {
	if i := f.pool.leave(w); i != nil {
		f.pool.release(i)
	}
	return nil, err
}

// await waits for the guest, for the client and for the deadline, whichever
// comes first, and answers.
func (f *function) await(i *instance, a *arrival, r *http.Request) outcome {
	left := time.Until(a.deadline)
	if i.timer == nil {
		i.timer = time.NewTimer(left)
	} else {
		i.timer.Reset(left)
	}
	gone := r.Context().Done()
	for {
		select {
		case <-i.done:
			i.timer.Stop()
			return f.complete(i, a)
		case <-gone:
			// The guest learns of it and may end in good order: what it does may
			// matter to others. Nobody waits for the time that takes.
			i.x.cut(abi.Canceled, abi.StatusCanceled)
			gone = nil
		case <-i.timer.C:
			if o, late := f.expire(i, a); late {
				return o
			}
			// It has finished in this very moment.
		}
	}
}

// complete answers for a guest that has finished, and gives its instance back.
func (f *function) complete(i *instance, a *arrival) outcome {
	o := i.x.conclude(a)
	o.fuel = i.meter.used.Load()
	if o.slot == slotFunction {
		i.end(retiredFailed) // whatever is wrong with it may be in its memory
	}
	i.release(time.Now())
	return o
}

// expire answers for a guest that has not, at the deadline. The guest goes on
// without its client until it has used up its late time, then it is stopped.
// It reports false if the guest has finished at the last moment.
func (f *function) expire(i *instance, a *arrival) (outcome, bool) {
	gone := i.x.flags.Load()&abi.StatusCanceled != 0
	sent, abandoned := i.x.abandon()
	if !abandoned {
		return outcome{}, false
	}
	i.expire(f.cfg.MaxLateSettlement)
	o := canceled(nil)
	if !gone {
		f.metrics.timeouts.Inc()
		o = failed(abi.DeadlineExceeded, 0, errLate)
	}
	o.fuel = i.meter.used.Load()
	if gone {
		return o, true
	}
	if o.brokenOff = sent; !sent {
		resetHeader(a.w.Header())
		if !i.x.request.drained.Load() {
			stopReading(a.w, a.r)
		}
		o.write(a.w, a.id)
	}
	return o, true
}

var errLate = errors.New("runtime: the guest had not finished at the deadline")

// conclude answers the client from what the guest has left.
func (x *exchange) conclude(a *arrival) outcome {
	p := &x.response
	if x.broken == nil {
		if err := p.check(); err != nil {
			x.fault(err)
		}
	}
	o := outcome{problem: problems[0], status: p.status}
	whole := p.sent && p.ended
	switch {
	case x.flags.Load()&abi.StatusCanceled != 0 && !whole:
		return canceled(x.broken)
	case x.broken != nil && x.request.exceeded:
		o = failed(abi.TooLarge, 0, x.broken)
	case x.broken != nil:
		o = faulted(x.broken)
	case p.failed != nil:
		o = failed(p.failed.code, p.failed.retryAfter, guestError(p.failed.text))
	default:
		x.quiesce(a)
		if err := p.deliver(a.w); err != nil {
			return canceled(err)
		}
		return o
	}
	if o.brokenOff = p.sent; !p.sent {
		resetHeader(a.w.Header())
		x.quiesce(a)
		o.write(a.w, a.id)
	}
	return o
}

// A guestError is what a guest said about its failure.
type guestError string

// Error returns the guest's text.
func (e guestError) Error() string { return "guest: " + string(e) }

// resetHeader takes back what a guest has set.
func resetHeader(h http.Header) {
	id := h["X-Request-Id"]
	clear(h)
	h["X-Request-Id"] = id
}

// drain refuses new requests, waits for those that run until ctx is done, stops
// the rest, and releases the code.
func (f *function) drain(ctx context.Context) error {
	f.pool.close()
	select {
	case <-f.pool.empty:
	case <-ctx.Done():
		f.pool.stop()
		<-f.pool.empty
	}
	f.pool.group.Wait()
	release := context.AfterFunc(ctx, f.stop)
	defer release()
	f.tasks.Wait()
	f.stop()
	f.plain.Close()
	return f.module.close(context.WithoutCancel(ctx))
}
