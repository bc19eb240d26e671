package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"time"
)

// A site serves one app: the host, and the HTTP servers before it.
type site struct {
	*host
	cert     certificate
	listener net.Listener // of the functions; served from start on
	public   *front       // nil before start
	back     *front       // the admin address
	admin    *admin
	failed   chan error // of a server that stopped by itself
}

// openSite opens the ports, so that a busy one is found first, and everything
// behind them. Functions are served from start on.
func openSite(ctx context.Context, store storeConfig, flags *serveFlags, cert certificate, logger *slog.Logger) (*site, error) {
	listener, err := listen(ctx, "listen", flags.Listen, defaultListen)
	if err != nil {
		return nil, err
	}
	adminListener, err := listen(ctx, "admin", flags.Admin, defaultAdmin)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if store.remote.URL == "" {
		store.listen, err = reserve(ctx, "nats-listen", flags.NATSListen, defaultNATS)
		store.moves = flags.NATSListen == ""
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close(), adminListener.Close())
	}
	h, err := openHost(ctx, store, cacheDirectory(flags.Cache), logger)
	if err != nil {
		return nil, errors.Join(err, listener.Close(), adminListener.Close())
	}
	s := &site{host: h, cert: cert, listener: listener, admin: newAdmin(h.bucket, logger), failed: make(chan error, 2)}
	s.back = startFront(ctx, adminListener, s.admin.handler(h.metrics), certificate{}, logger, s.fail)
	h.closers = slices.Insert(h.closers, 0, s.back.Close) // last: until then it answers whoever watches the end
	return s, nil
}

// fail has room for each of the two servers.
func (s *site) fail(err error) { s.failed <- err }

// deploy lets an app take the place of what is served. After an error the old
// one goes on.
func (s *site) deploy(ctx context.Context, t *terminal, a *app) error {
	modules, err := a.modules("run: edgehost build " + a.dir)
	if err != nil {
		return err
	}
	secrets, missing := a.secrets(t)
	if len(missing) > 0 {
		return missing
	}
	if err := s.engine.Deploy(ctx, a.resolve(modules, secrets)); err != nil {
		return err
	}
	s.admin.manifest.Store(a.manifest)
	return nil
}

// start begins to serve functions. Connections have queued since openSite.
func (s *site) start(ctx context.Context) {
	s.public = startFront(ctx, s.listener, s.engine, s.cert, s.logger, s.fail)
}

func (s *site) url() string {
	if s.cert.enabled() {
		return "https://" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String()
}

func (s *site) adminURL() string { return "http://" + s.back.listener.Addr().String() }

// Close stops accepting, gives running requests the drain time to end, and
// closes everything behind them. That ctx has ended is no reason to hurry: its
// end is what closes a site.
func (s *site) Close(ctx context.Context, drain time.Duration) error {
	return errors.Join(s.drain(ctx, drain), s.host.Close(ctx))
}

// drain stops accepting and waits for running requests.
func (s *site) drain(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if s.public == nil {
		return s.listener.Close()
	}
	return s.public.Close(ctx)
}
