package kvbucket

import (
	"context"
	"fmt"
	"sync"
)

// maxHandlers bounds the requests that one address handles at a time. Handlers may
// wait for long, so the bound is on memory, not on work: at most maxHandlers ×
// MaxMessage.
const maxHandlers = 4096

// handlers are the requests of one address that are being handled.
type handlers struct {
	life context.Context // of every handler
	end  context.CancelFunc

	mu      sync.Mutex // guards the fields below
	running int
	stopped bool
	idle    chan struct{} // closed once stopped is set and none runs
}

func newHandlers() *handlers {
	h := &handlers{idle: make(chan struct{})}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// begin admits one more handler; each that was admitted calls done. Errors:
// ErrNoListener, ErrOverloaded.
func (h *handlers) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.stopped:
		return ErrNoListener
	case h.running == maxHandlers:
		return ErrOverloaded
	}
	h.running++
	return nil
}

func (h *handlers) done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	if h.stopped && h.running == 0 {
		close(h.idle)
	}
}

// count returns how many handlers run.
func (h *handlers) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running
}

// stop admits no more handlers, asks those that run to end and waits for them.
func (h *handlers) stop(ctx context.Context) error {
	h.end()
	h.mu.Lock()
	if !h.stopped {
		h.stopped = true
		if h.running == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	select {
	case <-h.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kvbucket: waiting for handlers: %w", context.Cause(ctx))
	}
}
