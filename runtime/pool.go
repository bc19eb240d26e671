package runtime

import (
	"container/list"
	goruntime "runtime"
	"sync"
	"time"
)

// A pool holds the instances of one function. It is bounded, starts instances
// when requests wait for one, and closes every instance that leaves it. It is
// no sync.Pool, which drops what it holds without closing it.
//
// Every instance is in one of these places: starting, idle, with a request, or
// on its way out. They all are live, so that the bound is one of memory.
type pool struct {
	start       func() *instance // makes an instance that has not begun
	limit       int              // of live
	queue       int              // of waiters
	idleTimeout time.Duration

	mu       sync.Mutex  // guards what follows
	idle     []*instance // the last one was used last
	live     map[*instance]struct{}
	starting int
	waiters  list.List // of *waiter, the oldest in front
	closing  bool

	group sync.WaitGroup // the goroutines of the instances
	empty chan struct{}  // closed once closing and nothing is live or waiting
}

// A waiter is a request that waits for an instance.
type waiter struct {
	place *list.Element
	ready chan struct{} // closed once one of the following is set
	inst  *instance
	err   error
}

func newPool(cfg FunctionConfig, start func() *instance) *pool {
	return &pool{
		start: start, limit: cfg.Instances, queue: cfg.Queue, idleTimeout: cfg.IdleTimeout,
		live: make(map[*instance]struct{}), empty: make(chan struct{}),
	}
}

// take returns an idle instance, or a waiter that will get the next one. It
// returns neither if the queue is full; closed says that the pool takes no more
// requests.
func (p *pool) take() (i *instance, w *waiter, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return nil, nil, true
	}
	if n := len(p.idle); n > 0 {
		i, p.idle[n-1] = p.idle[n-1], nil
		p.idle = p.idle[:n-1]
		return i, nil, false
	}
	// A request for which an instance may be started waits beside the queue, or
	// a function without one could never begin.
	if p.waiters.Len() >= p.queue+p.limit-len(p.live)+p.starting {
		return nil, nil, false
	}
	w = &waiter{ready: make(chan struct{})}
	w.place = p.waiters.PushBack(w)
	p.grow()
	return nil, w, false
}

// grow starts instances while requests wait, few at a time: starting one costs
// as much as hundreds of requests, which those that exist may serve meanwhile.
func (p *pool) grow() {
	for len(p.live) < p.limit && p.starting < min(p.waiters.Len(), goruntime.GOMAXPROCS(0)) {
		i := p.start()
		p.live[i] = struct{}{}
		p.starting++
		p.group.Go(i.run)
	}
}

// started takes note of an instance that has begun, or could not: then the
// oldest waiter learns why, since the next attempt is no more likely to succeed.
func (p *pool) started(i *instance, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	if err == nil {
		p.give(i)
	} else if w := p.next(); w != nil {
		w.err = err
		close(w.ready)
	}
	p.grow()
}

// release takes an instance back from a request.
func (p *pool) release(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(i)
}

// give hands an instance to the oldest waiter, or keeps it.
func (p *pool) give(i *instance) {
	if w := p.next(); w != nil {
		w.inst = i
		close(w.ready)
		return
	}
	if p.closing {
		i.retire(retiredDrained)
		return
	}
	p.idle = append(p.idle, i)
}

func (p *pool) next() *waiter {
	e := p.waiters.Front()
	if e == nil {
		return nil
	}
	w, _ := p.waiters.Remove(e).(*waiter)
	return w
}

// leave takes a waiter out of the queue. It returns the instance that it was
// given at the last moment, which the caller must release.
func (p *pool) leave(w *waiter) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.inst == nil && w.err == nil {
		p.waiters.Remove(w.place)
		p.checkEmpty()
	}
	return w.inst
}

// gone takes note that an instance has been closed.
func (p *pool) gone(i *instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, i)
	p.grow()
	p.checkEmpty()
}

// sweep closes the instances that have been idle for too long, or are too old,
// and trims the others.
func (p *pool) sweep(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := p.idle[:0]
	for _, i := range p.idle {
		switch {
		case now.Sub(i.used) >= p.idleTimeout:
			i.retire(retiredIdle)
		case i.tooOld(now):
			i.retire(retiredAge)
		default:
			i.trim(now)
			keep = append(keep, i)
		}
	}
	clear(p.idle[len(keep):])
	p.idle = keep
}

// close refuses new requests. Those that wait or run are served; empty is
// closed after the last.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return
	}
	p.closing = true
	for _, i := range p.idle {
		i.retire(retiredDrained)
	}
	p.idle = nil
	p.checkEmpty()
}

// stop ends every guest in the middle of what it is doing.
func (p *pool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.live {
		i.guest.stop()
	}
}

func (p *pool) checkEmpty() {
	if !p.closing || len(p.live) > 0 || p.waiters.Len() > 0 {
		return
	}
	select {
	case <-p.empty:
	default:
		close(p.empty)
	}
}

func (p *pool) census() census {
	p.mu.Lock()
	defer p.mu.Unlock()
	return census{idle: len(p.idle), starting: p.starting, busy: len(p.live) - p.starting - len(p.idle)}
}
