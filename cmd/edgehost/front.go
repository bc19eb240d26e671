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
	serving  sync.WaitGroup
}

// startFront serves on a listener until Close. A server that stops by itself
// calls failed. The end of ctx does not end it: requests drain first. With a certificate it serves TLS, and HTTP/2.
func startFront(ctx context.Context, listener net.Listener, handler http.Handler, cert certificate, logger *slog.Logger, failed func(error)) *front {
	base, abandon := context.WithCancel(context.WithoutCancel(ctx))
	f := &front{listener: listener, abandon: abandon, server: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}}
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
	err := f.server.Shutdown(ctx)
	if err == nil {
		return nil
	}
	f.abandon()
	if closeErr := f.server.Close(); closeErr != nil {
		return fmt.Errorf("closing the connections of %s: %w", f.listener.Addr(), closeErr)
	}
	return fmt.Errorf("requests were cut off on %s: %w", f.listener.Addr(), err)
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
