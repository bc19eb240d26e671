package kvbucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A ServerConfig describes an embedded NATS server.
type ServerConfig struct {
	// Dir keeps the data; it is created if need be, and locked while the server
	// runs.
	Dir string
	// Listen is the host:port for clients, where port 0 means any free one; empty
	// for a server that only this process can reach. There is no authentication:
	// listen on loopback, or on a network that only trusted hosts reach.
	Listen string
	// LazySync acknowledges a write before it is synced to the disk, which happens
	// every two minutes. Writes that were acknowledged since are then lost when the
	// machine (not only the process) stops, so two owners may be accepted.
	LazySync bool
	// Logger gets what the server reports; nil for none.
	Logger *slog.Logger
}

// A Server is a NATS server with JetStream in this process. Unless LazySync is set,
// every acknowledged write has been synced to the disk.
type Server struct {
	ns   *server.Server
	url  string
	lock *dirLock
	stop func() // begins to stop, once
	done chan struct{}
	err  error // of the stop, readable once done is closed
}

// StartServer starts a server and returns once it answers. An address in use is an
// error for which errors.Is(err, syscall.EADDRINUSE) holds; a directory that another
// process uses is one that names the directory and the process. The caller closes
// the Server.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("kvbucket: start server: %w", context.Cause(ctx))
	}
	if cfg.Dir == "" {
		return nil, errors.New("kvbucket: start server: no directory given")
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("kvbucket: start server: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s, err := startLocked(cfg, lock)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

func startLocked(cfg ServerConfig, lock *dirLock) (*Server, error) {
	opts, err := serverOptions(cfg)
	if err != nil {
		return nil, err
	}
	log := &serverLog{log: orDiscard(cfg.Logger)}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("kvbucket: start server: %w", err)
	}
	ns.SetLoggerV2(log, false, false, false)
	ns.Start() // returns when the server listens, or has logged why it cannot
	if err := startError(ns, log, cfg); err != nil {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, err
	}
	s := &Server{ns: ns, lock: lock, done: make(chan struct{})}
	s.stop = sync.OnceFunc(func() { go s.shutDown() })
	if cfg.Listen != "" {
		s.url = ns.ClientURL()
	}
	warn(log.log, cfg)
	return s, nil
}

func serverOptions(cfg ServerConfig) (*server.Options, error) {
	opts := &server.Options{
		ServerName: "edgehost",
		JetStream:  true,
		StoreDir:   cfg.Dir,
		SyncAlways: !cfg.LazySync,
		NoSigs:     true,
		DontListen: cfg.Listen == "",
	}
	if cfg.Listen == "" {
		return opts, nil
	}
	if err := probeListen(cfg.Listen); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("kvbucket: listen: %w", err)
	}
	opts.Host = host
	if opts.Port, err = net.LookupPort("tcp", port); err != nil {
		return nil, fmt.Errorf("kvbucket: listen: %w", err)
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	return opts, nil
}

// probeListen returns the error of listening on addr. The server itself only logs
// one, as text.
func probeListen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("kvbucket: %w", err)
	}
	return l.Close()
}

// startError returns why a server that has been started does not serve.
func startError(ns *server.Server, log *serverLog, cfg ServerConfig) error {
	fatal := log.fatal.Load()
	switch {
	case fatal == nil && ns.JetStreamEnabled():
		return nil
	case fatal == nil:
		return errors.New("kvbucket: start server: JetStream did not start")
	}
	if cfg.Listen != "" {
		// Somebody may have taken the port since it was tried.
		if err := probeListen(cfg.Listen); err != nil {
			return err
		}
	}
	return fmt.Errorf("kvbucket: start server in %s: %s", cfg.Dir, *fatal)
}

// warn logs the choices that weaken what the project promises.
func warn(log *slog.Logger, cfg ServerConfig) {
	if cfg.LazySync {
		log.Warn("writes are acknowledged before they are on disk: those of the last two minutes are lost if the machine stops", "dir", cfg.Dir)
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil && !isLoopback(host) {
		log.Warn("the embedded store listens without authentication on an address that is not loopback", "listen", cfg.Listen)
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// URL returns the address for Dial, with the port that was chosen; it is empty if the
// server does not listen.
func (s *Server) URL() string { return s.url }

// Dial connects within the process; it works whether or not the server listens.
// Close the connection before the server, lest it tries to reconnect.
func (s *Server) Dial(ctx context.Context, cfg ConnConfig) (*Conn, error) {
	cfg.URL = "in-process://" + s.ns.Name()
	return dial(ctx, cfg, nats.InProcessServer(s.ns))
}

// InMsgs returns how many messages clients have sent to the server since it started:
// requests and publishes, not pings. A message may be answered a moment before it
// is counted.
func (s *Server) InMsgs() (int64, error) {
	v, err := s.ns.Varz(nil)
	if err != nil {
		return 0, fmt.Errorf("kvbucket: statistics: %w", err)
	}
	return v.InMsgs, nil
}

// Close stops the server and unlocks its directory. Closing again waits for the same
// stop. If ctx ends first the error is ctx's, and the stop goes on.
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("kvbucket: close server: %w", context.Cause(ctx))
	}
}

func (s *Server) shutDown() {
	defer close(s.done)
	s.ns.Shutdown()
	s.ns.WaitForShutdown()
	s.err = s.lock.release()
}

// A dirLock keeps a second server out of a directory.
type dirLock struct{ file *os.File }

// lockDir locks dir until release, or until the process ends.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "edgehost.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("kvbucket: lock %s: %w", dir, err)
	}
	if err := lockFile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("kvbucket: %s is in use%s: %w", dir, holder(path), err), f.Close())
	}
	if err := writePID(f); err != nil {
		return nil, errors.Join(fmt.Errorf("kvbucket: lock %s: %w", dir, err), f.Close())
	}
	return &dirLock{f}, nil
}

// release leaves the file: removing it would let two processes lock two files.
func (l *dirLock) release() error { return l.file.Close() }

func writePID(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// holder says which process holds the lock file, if it can be read.
func holder(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	if pid, err := strconv.Atoi(string(content)); err == nil {
		return fmt.Sprintf(" by process %d", pid)
	}
	return ""
}
