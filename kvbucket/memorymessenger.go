package kvbucket

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// MemoryMessenger is a Messenger between hosts in one process. It loses, repeats
// and delays nothing. It starts no goroutine but those of the handlers, and works
// in a bubble of testing/synctest.
type MemoryMessenger struct {
	closed chan struct{}
	close  func()

	mu        sync.Mutex // guards listeners
	listeners map[string]*memoryListener
}

var _ Messenger = (*MemoryMessenger)(nil)

type memoryListener struct {
	*handlers
	handle func(context.Context, []byte) []byte
}

// NewMemoryMessenger returns a messenger on which nobody listens yet.
func NewMemoryMessenger() *MemoryMessenger {
	m := &MemoryMessenger{closed: make(chan struct{}), listeners: map[string]*memoryListener{}}
	m.close = sync.OnceFunc(func() { close(m.closed) })
	return m
}

// Close ends every Call, with ErrClosed, and refuses new ones. Handlers that run go
// on until their listener is stopped. Closing again does nothing; there is no error.
func (m *MemoryMessenger) Close() error {
	m.close()
	return nil
}

func (m *MemoryMessenger) isClosed() bool {
	select {
	case <-m.closed:
		return true
	default:
		return false
	}
}

// Serve implements [Messenger].
func (m *MemoryMessenger) Serve(address string, handle func(ctx context.Context, request []byte) []byte) (stop func(context.Context) error, err error) {
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed() {
		return nil, ErrClosed
	}
	if m.listeners[address] != nil {
		return nil, fmt.Errorf("%w: %q is served already", ErrInvalidAddress, address)
	}
	l := &memoryListener{newHandlers(), handle}
	m.listeners[address] = l
	return func(ctx context.Context) error {
		m.mu.Lock()
		if m.listeners[address] == l {
			delete(m.listeners, address)
		}
		m.mu.Unlock()
		return l.stop(ctx)
	}, nil
}

// Call implements [Messenger].
func (m *MemoryMessenger) Call(ctx context.Context, address string, request []byte) ([]byte, error) {
	if err := checkRequest(ctx, address, request); err != nil {
		return nil, err
	}
	if m.isClosed() {
		return nil, ErrClosed
	}
	m.mu.Lock()
	l := m.listeners[address]
	m.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%w: %q", ErrNoListener, address)
	}
	if err := l.begin(); err != nil {
		return nil, fmt.Errorf("%w: %q", err, address)
	}
	answers := make(chan []byte, 1)
	go func() {
		defer l.done()
		answers <- l.handle(l.life, bytes.Clone(request))
	}()
	select {
	case answer := <-answers:
		return checkAnswer(address, bytes.Clone(answer))
	case <-m.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("kvbucket: no answer from %q: %w", address, context.Cause(ctx))
	}
}
