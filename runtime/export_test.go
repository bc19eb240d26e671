package runtime

import (
	"bytes"
	"fmt"
	goruntime "runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Live counts the instances that serve, start, or are on their way out.
func (e *Engine) Live() (n int) {
	e.census(func(_, _ string, c census) { n += c.busy + c.starting })
	return n
}

// RewritingVersion names what is kept of rewritten modules.
const RewritingVersion = rewritingVersion

// Rewrite rewrites a module as it is done before it is compiled.
var Rewrite = rewrite

// Traces waits until no instance is at work and compares what the idle ones hold
// with their snapshot.
func (e *Engine) Traces() (differences []string) {
	for _, a := range e.table.Load().apps {
		for _, f := range a.functions {
			for f.pool.census().busy > 0 {
				goruntime.Gosched()
			}
			f.pool.mu.Lock()
			for _, i := range f.pool.idle {
				differences = append(differences, i.traces()...)
			}
			f.pool.mu.Unlock()
		}
	}
	return differences
}

// traces says where an instance that nobody holds differs from its snapshot.
func (i *instance) traces() (differences []string) {
	s := i.function.module.snapshot
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	size := int(i.memory.linear.Size())
	if size != s.size() {
		differ("memory has %d bytes, not %d", size, s.size())
	}
	all, _ := i.memory.linear.Read(0, uint32(size))
	if now := all[:min(size, s.size())]; !bytes.Equal(now, s.image.content[:len(now)]) {
		differ("memory differs")
	}
	if grown := i.region.extend(i.region.limit); len(bytes.Trim(grown[s.size():], "\x00")) > 0 {
		differ("memory that was grown is not zero")
	}
	for n, global := range i.globals {
		if now := global.Get(); now != s.globals[n] {
			differ("global %d is %d, not %d", n, now, s.globals[n])
		}
	}
	return differences
}

// ColdStarts counts the instances that were started.
func (e *Engine) ColdStarts() (n int) {
	for _, a := range e.table.Load().apps {
		for _, f := range a.functions {
			n += int(testutil.ToFloat64(f.metrics.coldStarts))
		}
	}
	return n
}

// Retired counts the instances that went for a reason.
func (e *Engine) Retired(reason string) int {
	return int(testutil.ToFloat64(e.metrics.retired.WithLabelValues(reason)))
}

// Sweep does what the engine does for its only function when nothing has happened
// for a while.
func (e *Engine) Sweep() {
	e.table.Load().apps[0].functions[0].pool.sweep(time.Now().Add(2 * trimAfter))
}

// ServeByAll makes requests by n instances of the only function, one after the
// other.
func (e *Engine) ServeByAll(n int, request func()) error {
	p := e.table.Load().apps[0].functions[0].pool
	var all []*instance
	for len(all) < n {
		i, w, _ := p.take()
		if i == nil {
			if <-w.ready; w.err != nil {
				return w.err
			}
			i = w.inst
		}
		all = append(all, i)
	}
	for _, i := range all {
		p.release(i)
		request()
		if again, _, _ := p.take(); again != i {
			return fmt.Errorf("another instance has served")
		}
	}
	for _, i := range all {
		p.release(i)
	}
	return nil
}

// Start starts an instance of the only function and closes it.
func (e *Engine) Start() error {
	i := newInstance(e.table.Load().apps[0].functions[0])
	defer i.close()
	return i.open()
}
