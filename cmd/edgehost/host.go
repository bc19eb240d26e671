package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
	"github.com/edgehost/edgehost/runtime"
)

// bucketName is the bucket of coordination records: breakers and leases.
const bucketName = "edgehost"

// connectTimeout bounds how long a store may take to answer at the start.
const connectTimeout = 5 * time.Second

// A storeConfig says where the store is.
type storeConfig struct {
	remote kvbucket.ConnConfig // of a NATS server; without a URL it is inside this process
	dir    string              // of the embedded server's files
	listen string              // where the embedded server listens for clients
	moves  bool                // it listens on a free port if listen is busy
	lazy   bool                // the embedded server acknowledges before it syncs
	copies int                 // of a bucket that has to be created; 0 creates none
}

// A host is what serves functions: the store, the objects on it and the engine
// that uses them.
type host struct {
	logger  *slog.Logger
	metrics *prometheus.Registry
	natsURL string // where clients find the store
	bucket  kvbucket.Bucket
	engine  *runtime.Engine
	closers []func(context.Context) error // of what was opened, in the order of opening
}

// openHost opens everything below the HTTP servers. After an error nothing is
// left open.
func openHost(ctx context.Context, store storeConfig, cacheDir string, logger *slog.Logger) (*host, error) {
	h := &host{logger: logger, metrics: prometheus.NewRegistry()}
	h.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	err := h.open(ctx, store, cacheDir)
	if err != nil {
		return nil, errors.Join(err, h.Close(ctx))
	}
	return h, nil
}

func (h *host) open(ctx context.Context, store storeConfig, cacheDir string) error {
	if store.remote.URL == "" {
		store.copies = 1
	}
	conn, err := h.connect(ctx, store)
	if err != nil {
		return err
	}
	h.closers = append(h.closers, conn.Close)
	bucket, err := conn.Bucket(ctx, kvbucket.BucketConfig{Name: bucketName, Replicas: store.copies})
	switch {
	case errors.Is(err, kvbucket.ErrNoBucket):
		return fmt.Errorf("opening the store (an empty one is set up with --replicas): %w", err)
	case err != nil:
		return fmt.Errorf("opening the store: %w", err)
	}
	h.bucket = bucket
	messenger, err := conn.Messenger(kvbucket.MessengerConfig{Host: hostName(), Version: currentBuild().Version})
	if err != nil {
		return fmt.Errorf("opening the line to other hosts: %w", err)
	}
	owner, err := objects.Open(ctx, objects.Config{Bucket: bucket, Messenger: messenger, Host: hostName(), Logger: h.logger, Metrics: h.metrics})
	if err != nil {
		return fmt.Errorf("opening the objects: %w", err)
	}
	h.closers = append(h.closers, owner.Close)
	h.engine, err = runtime.Open(ctx, runtime.Config{Objects: owner, CacheDir: cacheDir, Logger: h.logger, Metrics: h.metrics})
	if err != nil {
		return fmt.Errorf("opening the engine: %w", err)
	}
	h.closers = append(h.closers, h.engine.Close)
	return nil
}

// connect dials the store, and starts it first if it is embedded.
func (h *host) connect(ctx context.Context, store storeConfig) (*kvbucket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config := store.remote
	config.Name, config.Logger, config.Metrics = "edgehost "+hostName(), h.logger, h.metrics
	if config.URL != "" {
		h.natsURL = config.URL
		conn, err := kvbucket.Dial(ctx, config)
		if err != nil {
			return nil, fmt.Errorf("connecting to the store at %s: %w", config.URL, err)
		}
		return conn, nil
	}
	server, err := startServer(ctx, store, h.logger)
	if err != nil {
		return nil, fmt.Errorf("starting the store in %s: %w", store.dir, err)
	}
	h.closers = append(h.closers, server.Close)
	h.natsURL = server.URL()
	conn, err := server.Dial(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connecting to the store in %s: %w", store.dir, err)
	}
	return conn, nil
}

// startServer starts the embedded server. Whoever may have taken its port since it was
// found to be free gets to keep it.
func startServer(ctx context.Context, store storeConfig, logger *slog.Logger) (*kvbucket.Server, error) {
	cfg := kvbucket.ServerConfig{Dir: store.dir, Listen: store.listen, LazySync: store.lazy, Logger: logger}
	server, err := kvbucket.StartServer(ctx, cfg)
	if err != nil && store.moves && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(store.listen)
		cfg.Listen = net.JoinHostPort(host, "0")
		return kvbucket.StartServer(ctx, cfg)
	}
	return server, err
}

// closeTimeout bounds how long a host takes to close, however many parts it has and
// however many of them hang.
const closeTimeout = time.Second

// Close closes everything in the reverse order of its opening, whatever fails
// on the way. It does not hurry when ctx has ended. Each part may take an equal
// share of the time that is left, so that one that hangs does not eat the time in
// which the next one gives its leases back.
func (h *host) Close(ctx context.Context) error {
	end := time.Now().Add(closeTimeout)
	var errs []error
	for i, closePart := range slices.Backward(h.closers) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Until(end)/time.Duration(i+1))
		errs = append(errs, closePart(ctx))
		cancel()
	}
	h.closers = nil
	return errors.Join(errs...)
}

// hostName names this host in records and logs.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "edgehost"
	}
	return name
}

// cacheDirectory returns where compiled code is kept: the directory asked for,
// or one of the user's own. Without either it is kept in memory.
func cacheDirectory(asked string) string {
	if asked != "" {
		return asked
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "edgehost")
}
