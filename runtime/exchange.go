package runtime

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
)

// An exchange is one request on its way through an instance. Two goroutines
// hold it: the one of ServeHTTP, which keeps the deadline and answers, and the
// instance's, on which the guest's host calls run. It lives as long as its
// instance and is filled anew for each request.
//
// The guest may touch the connection only between claim and done of a side, so
// that ServeHTTP can take it away at the deadline and return: nothing of the
// guest ever reaches a ResponseWriter after that.
type exchange struct {
	inst     *instance
	id       string
	route    *route
	deadline time.Time
	active   bool // a request is being served, in contrast to _initialize

	wake  chan struct{}  // holds a token after anything that a blocked host call may wait for
	flags atomic.Uint32  // abi.Status bits
	tasks sync.WaitGroup // goroutines that work for this request

	mu        sync.Mutex // guards the following
	settled   sync.Cond  // busy has changed
	w         http.ResponseWriter
	r         *http.Request
	over      abi.Code        // why the guest may not use the connection any more; zero while it may
	shut      [2]bool         // by side: it may not use this one any more
	busy      [2]bool         // by side: an operation is running
	settling  bool            // the guest has returned, and what it left open is being closed
	finished  bool            // that is done
	abandoned bool            // ServeHTTP has returned
	releases  []chan struct{} // of leases in the background; each closed once it is through

	// What follows belongs to the guest's goroutine, and to ServeHTTP's once the
	// guest has finished.
	scratch   []byte // the encoded request head, and other records
	encoded   bool   // scratch holds the head
	request   requestBody
	response  response
	handles   handles
	failure   abi.Failure // of the last host call that failed
	broken    error       // the guest broke the contract or ended badly; the first one counts
	logged    int64       // bytes
	sleeping  *time.Timer
	context   context.Context // of what is done for the guest; made when needed
	endEffort context.CancelCauseFunc
}

// The two sides of a connection, which move independently.
type side int

const (
	reading side = iota
	writing
)

func (x *exchange) init(i *instance) {
	x.inst = i
	x.wake = make(chan struct{}, 1)
	x.settled.L = &x.mu
	x.request.x, x.response.x = x, x
}

// begin fills the exchange for a request.
func (x *exchange) begin(a *arrival, r *http.Request, route *route) {
	x.id, x.route, x.deadline = a.id, route, a.deadline
	x.flags.Store(0)
	x.mu.Lock()
	x.w, x.r = a.w, r
	x.over, x.shut = 0, [2]bool{}
	x.settling, x.finished, x.abandoned = false, false, false
	x.mu.Unlock()
	x.encoded, x.failure, x.broken, x.logged = false, abi.Failure{}, nil, 0
	x.request.reset(r)
	x.response.reset(r)
	x.active = true
}

// claim lets the guest use one side of the connection until done, even if it
// blocks there.
func (x *exchange) claim(s side) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over != 0 {
		return x.over
	}
	if x.shut[s] {
		return abi.Canceled
	}
	x.busy[s] = true
	return nil
}

func (x *exchange) done(s side) {
	x.mu.Lock()
	x.busy[s] = false
	x.settled.Broadcast()
	x.mu.Unlock()
}

// connection locks the exchange and returns the request for something that does
// not block. The caller unlocks if there is no error.
func (x *exchange) connection() (http.ResponseWriter, *http.Request, error) {
	x.mu.Lock()
	if x.over != 0 {
		defer x.mu.Unlock()
		return nil, nil, x.over
	}
	return x.w, x.r, nil
}

// cut ends what is done for the guest, for the reason code: blocked host calls
// return it, and so do later ones.
func (x *exchange) cut(code abi.Code, flag uint32) {
	x.mu.Lock()
	if x.settling && code == abi.Canceled {
		x.mu.Unlock()
		return // the guest has seen its client to the end; unblocking a read looks like this to the server
	}
	if x.over == 0 {
		x.over = code
	}
	x.flags.Or(flag)
	cancel := x.endEffort
	x.mu.Unlock()
	if cancel != nil && x.inst.function.cfg.MaxLateSettlement == 0 {
		cancel(code)
	}
	x.signal()
}

// detach takes the connection away from the guest, waits until no operation on
// it is left, and reports whether the head of an answer was sent. A blocked
// operation is ended through the connection's deadlines, which leaves its side
// of the connection useless.
func (x *exchange) detach(code abi.Code) (sent bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over == 0 {
		x.over = code
	}
	x.unblock(reading)
	x.unblock(writing)
	x.w, x.r = nil, nil
	return x.response.sent
}

// unblock ends the use of a side by the guest. The lock must be held.
func (x *exchange) unblock(s side) {
	x.shut[s] = true
	if !x.busy[s] {
		return
	}
	control, past := http.NewResponseController(x.w), time.Unix(1, 0)
	if s == reading {
		_ = control.SetReadDeadline(past) // where there is none, the operation must end by itself
	} else {
		_ = control.SetWriteDeadline(past)
	}
	for x.busy[s] {
		x.settled.Wait()
	}
}

// abandon is detach for a guest that goes on without its request. It reports
// false if the guest has finished after all.
func (x *exchange) abandon() (sent, abandoned bool) {
	x.mu.Lock()
	finished := x.finished
	x.abandoned = !finished
	x.mu.Unlock()
	if finished {
		return false, false
	}
	x.cut(abi.DeadlineExceeded, abi.StatusLate)
	return x.detach(abi.DeadlineExceeded), true
}

// finish takes note that the guest has returned, and reports whether anybody
// waits for that.
func (x *exchange) finish() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.active = false
	x.finished = true
	return !x.abandoned
}

// settle ends everything that was done for the guest: what it left open is
// canceled or released before the client has the whole answer, so that the next
// request finds it free.
func (x *exchange) settle() {
	x.handles.drop()
	x.response.settle()
	x.mu.Lock()
	x.settling = true
	cancel := x.endEffort
	x.context, x.endEffort = nil, nil
	if x.request.ahead != nil {
		x.request.settle()
		x.unblock(reading)
	}
	x.mu.Unlock()
	if cancel != nil {
		cancel(abi.Canceled)
	}
	x.tasks.Wait()
	if len(x.releases) > 0 {
		x.awaitReleases()
	}
}

func (x *exchange) awaitReleases() {
	patience := time.NewTimer(min(releasePatience, time.Until(x.deadline)))
	defer patience.Stop()
	for _, released := range x.releases {
		select {
		case <-released:
		case <-patience.C:
			patience.Reset(0)
		}
	}
	x.releases = nil
}

// effort returns the context of what is done for the guest. It ends with the
// guest's time and with the request.
func (x *exchange) effort() context.Context {
	if x.context != nil {
		return x.context
	}
	f := x.inst.function
	ctx, cancel := context.WithCancelCause(f.engine.base)
	ctx, release := context.WithDeadlineCause(ctx, x.deadline.Add(f.cfg.MaxLateSettlement), abi.DeadlineExceeded)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.context = ctx
	x.endEffort = func(cause error) { cancel(cause); release() }
	if x.over != 0 && f.cfg.MaxLateSettlement == 0 {
		cancel(x.over)
	}
	return ctx
}

// signal wakes a blocked host call, which looks again at what it waits for.
func (x *exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// gone returns why there is no client to exchange anything with any more.
func (x *exchange) gone() error {
	switch flags := x.flags.Load(); {
	case flags&abi.StatusLate != 0:
		return abi.DeadlineExceeded
	case flags&abi.StatusCanceled != 0:
		return abi.Canceled
	}
	return nil
}

// interrupted returns why a blocked host call must return: the guest is being
// stopped, or its request is over and it has no time after that.
func (x *exchange) interrupted() error {
	if x.inst.guest.stopped() {
		return errInterrupted
	}
	if x.inst.function.cfg.MaxLateSettlement == 0 {
		return x.gone()
	}
	return nil
}

// await blocks the guest until ready reports true or an error, or the request
// is over.
func (x *exchange) await(ready func() (bool, error)) error {
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		if err := x.interrupted(); err != nil {
			return err
		}
		select {
		case <-x.wake:
		case <-x.inst.guest.done:
		}
	}
}

// sleep blocks the guest for a time, or until anything happens.
func (x *exchange) sleep(d time.Duration) {
	if x.sleeping == nil {
		x.sleeping = time.NewTimer(d)
	} else {
		x.sleeping.Reset(d)
	}
	defer x.sleeping.Stop()
	select {
	case <-x.sleeping.C:
	case <-x.wake:
	case <-x.inst.guest.done:
	}
}

// fault records that the guest failed. A client that has no answer yet gets
// function_failed.
func (x *exchange) fault(err error) {
	if x.broken == nil {
		x.broken = err
	}
}

// fail records why a host call failed, for the error function, and returns the
// code that the guest gets.
func (x *exchange) fail(call string, err error) int32 {
	code := abi.CodeOf(err)
	if call == "error" {
		return int32(code) // it tells of the others
	}
	x.failure = abi.Failure{Code: code, Text: call + ": " + err.Error()}
	if refusal, ok := errors.AsType[*objects.Refusal](err); ok {
		x.failure.RetryAfter = int64(refusal.RetryAfter)
	}
	if conflict, ok := errors.AsType[*objects.ConflictError](err); ok {
		x.failure.Revision = uint64(conflict.Revision)
	}
	return int32(code)
}

// log writes for the guest, as much as it may.
func (x *exchange) log(level slog.Level, text string) {
	f := x.inst.function
	limit := f.cfg.MaxLog
	if x.logged > limit {
		return
	}
	if x.logged += int64(len(text)); x.logged > limit {
		f.logger.LogAttrs(f.engine.base, slog.LevelWarn, "guest logs too much; the rest is dropped", slog.String("request_id", x.id))
		return
	}
	f.logger.LogAttrs(f.engine.base, level, "guest", slog.String("request_id", x.id), slog.String("text", text))
}
