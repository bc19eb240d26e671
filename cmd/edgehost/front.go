package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds against clients that are slow on purpose. Bodies are bounded by the
// function's timeout instead: a long upload is not an attack.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// A front is an HTTP server on a listener that was opened before, so that a
// busy port is found when it is asked for.
type front struct {
	server   *http.Server
	listener net.Listener
	abandon  context.CancelFunc // ends the contexts of all requests
	running  atomic.Int64       // requests
	serving  sync.WaitGroup
}

// startFront serves on a listener until Close. A server that stops by itself
// calls failed. The end of ctx does not end it: requests drain first. With a certificate it serves TLS, and HTTP/2.
func startFront(ctx context.Context, listener net.Listener, handler http.Handler, cert certificate, logger *slog.Logger, failed func(error)) *front {
	base, abandon := context.WithCancel(context.WithoutCancel(ctx))
	f := &front{listener: listener, abandon: abandon}
	f.server = &http.Server{
		Handler:           f.count(handler),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		// OPTIONS * is answered by the handler, like every other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	f.serving.Go(func() { // ends with the server; Close waits for it
		serve := func() error { return f.server.Serve(listener) }
		if cert.enabled() {
			serve = func() error { return f.server.ServeTLS(listener, cert.file, cert.key) }
		}
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			failed(fmt.Errorf("serving on %s: %w", listener.Addr(), err))
		}
	})
	return f
}

// Close stops accepting, waits for the requests that run until ctx ends, and
// cuts off those that are left.
func (f *front) Close(ctx context.Context) error {
	defer f.serving.Wait()
	defer f.abandon()
	if f.server.Shutdown(ctx) == nil {
		return nil
	}
	// Shutdown also waits for connections that have not sent a request yet.
	// Only requests are worth an error.
	running := f.running.Load()
	f.abandon()
	if err := f.server.Close(); err != nil {
		return fmt.Errorf("closing the connections of %s: %w", f.listener.Addr(), err)
	}
	if running > 0 {
		return fmt.Errorf("%d requests were cut off on %s", running, f.listener.Addr())
	}
	return nil
}

// count keeps the number of requests that run.
func (f *front) count(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.running.Add(1)
		defer f.running.Add(-1)
		handler.ServeHTTP(w, r)
	})
}

// A certificate names the files of a TLS certificate and its key.
type certificate struct{ file, key string }

func (c certificate) enabled() bool { return c.file != "" }

// check reports files that cannot be used, before anything is started.
func (c certificate) check() error {
	if !c.enabled() {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(c.file, c.key); err != nil {
		return fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return nil
}
