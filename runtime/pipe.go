package runtime

import (
	"io"
	"sync"
)

// pipeSize bounds what a pipe holds, and so what a body costs in memory.
const pipeSize = 64 << 10

// A pipe carries a body between a guest, which polls it, and a goroutine of the
// host, which blocks in it. The guest's end is tryRead or tryWrite, the host's
// is Write or Read. After every step the other end is woken.
type pipe struct {
	wake func() // for the guest

	mu     sync.Mutex // guards the following
	moved  sync.Cond  // for the host
	ring   []byte
	start  int
	size   int
	end    error // what the reading end gets after the last byte
	closed error // what the writing end gets
}

func newPipe(wake func()) *pipe {
	p := &pipe{wake: wake}
	p.moved.L = &p.mu
	return p
}

// Read implements io.Reader for the host.
func (p *pipe) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.size == 0 && p.end == nil && p.closed == nil {
		p.moved.Wait()
	}
	return p.take(b)
}

// Write implements io.Writer for the host.
func (p *pipe) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		for p.size == pipeSize && p.closed == nil {
			p.moved.Wait()
		}
		m, err := p.put(b[n:])
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// tryRead is Read for the guest: without an error, 0 means that nothing is there
// yet.
func (p *pipe) tryRead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size == 0 && p.end == nil {
		return 0, nil
	}
	return p.take(b)
}

// tryWrite is Write for the guest: it takes as much as there is room for, and 0
// means that there is none.
func (p *pipe) tryWrite(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.put(b)
}

// ready reports whether tryRead and tryWrite would return something else than
// 0, nil.
func (p *pipe) ready() (read, write bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.size > 0 || p.end != nil, p.size < pipeSize || p.closed != nil
}

// finish ends the stream: the reading end gets err, io.EOF for a good end, after
// the bytes that were written. Only the first end counts.
func (p *pipe) finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = err
	}
	p.notify()
}

// close says that the reading end takes no more; the writing end gets err.
func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed == nil {
		p.closed = err
	}
	p.notify()
}

func (p *pipe) take(b []byte) (int, error) {
	if p.closed != nil {
		return 0, p.closed
	}
	if p.size == 0 {
		return 0, p.end
	}
	first := p.ring[p.start:min(p.start+p.size, pipeSize)]
	n := copy(b, first)
	if n == len(first) {
		n += copy(b[n:], p.ring[:p.size-n])
	}
	p.start = (p.start + n) % pipeSize
	p.size -= n
	p.notify()
	return n, nil
}

func (p *pipe) put(b []byte) (int, error) {
	if p.closed != nil {
		return 0, p.closed
	}
	if p.end != nil {
		return 0, io.ErrClosedPipe
	}
	if p.ring == nil {
		p.ring = make([]byte, pipeSize)
	}
	at := (p.start + p.size) % pipeSize
	room := pipeSize - p.size
	n := copy(p.ring[at:min(at+room, pipeSize)], b)
	if n < len(b) && n < room {
		n += copy(p.ring[:room-n], b[n:])
	}
	p.size += n
	p.notify()
	return n, nil
}

func (p *pipe) notify() {
	p.moved.Broadcast()
	p.wake()
}
