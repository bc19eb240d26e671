package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// storeDirectory is where the embedded store of an app keeps its files unless
// told otherwise.
func (a *app) storeDirectory() string { return filepath.Join(a.dir, ".edgehost", "nats") }

// serveFlags are common to the commands that run a host.
type serveFlags struct {
	Listen     address `placeholder:"HOST:PORT" help:"Where to serve (default: 127.0.0.1:8080, or a free port if that is busy)."`
	Admin      address `placeholder:"HOST:PORT" help:"Where to serve metrics, health and the admin page (default: 127.0.0.1:8081, or a free port)."`
	NATSListen address `name:"nats-listen" placeholder:"HOST:PORT" help:"Where the embedded store listens for NATS clients (default: 127.0.0.1:4222, or a free port)."`
	Cache      string  `type:"path" placeholder:"DIR" help:"Where compiled modules are kept; it must be private (default: edgehost in your cache directory)."`
	logFlags   `embed:""`
}

// serveCommand is `edgehost serve`.
type serveCommand struct {
	Dir          directory     `arg:"" help:"Directory of the app."`
	Embedded     string        `type:"path" xor:"store" placeholder:"DIR" help:"Run a store in this process, with its data in this directory (default: .edgehost/nats in the directory of the app)."`
	NATS         string        `name:"nats" xor:"store" placeholder:"URL" help:"Use the store of this NATS server instead; also NATS_URL."`
	Creds        string        `type:"path" placeholder:"FILE" help:"Credentials for NATS."`
	Context      string        `xor:"store" placeholder:"NAME" help:"Use the store that this context of the nats tool describes."`
	Replicas     int           `enum:"0,1,3,5" default:"0" help:"Create what is missing in the store of --nats, kept on this many servers: 1 for a single one, 3 for a cluster; 0 creates nothing."`
	Sync         string        `enum:"always,lazy" default:"always" help:"When the embedded store writes to disk: always, before it answers, or lazy, which can lose the last two minutes if the machine stops."`
	TLSCert      string        `name:"tls-cert" type:"path" and:"tls" placeholder:"FILE" help:"Serve HTTPS and HTTP/2 with this certificate."`
	TLSKey       string        `name:"tls-key" type:"path" and:"tls" placeholder:"FILE" help:"The key of the certificate."`
	DrainTimeout time.Duration `default:"15s" help:"How long running requests may take to end at the end."`
	serveFlags   `embed:""`
}

// Help is printed by `edgehost serve --help`.
func (serveCommand) Help() string {
	return "Serves an app as it is: builds nothing and watches nothing. SIGTERM or Ctrl-C ends it: it stops accepting, lets running requests end within --drain-timeout, and takes at most a second more to give its leases back. A second Ctrl-C ends it at once."
}

// Run executes the command.
func (c *serveCommand) Run(ctx context.Context, t *terminal) error {
	if c.DrainTimeout < 0 {
		return usageError{fmt.Errorf("--drain-timeout %s is below zero", c.DrainTimeout)}
	}
	store, err := c.store(t)
	if err != nil {
		return err
	}
	logger := c.logger(t.stderr)
	a, err := readApp(string(c.Dir), t)
	if err != nil {
		return err
	}
	if _, missing := a.secrets(t); len(missing) > 0 {
		return missing
	}
	cert := certificate{c.TLSCert, c.TLSKey}
	if err := cert.check(); err != nil {
		return err
	}
	if store.dir == "" {
		store.dir = a.storeDirectory()
	}
	s, err := openSite(ctx, store, &c.serveFlags, cert, logger)
	if err != nil {
		return err
	}
	err = c.serve(ctx, t, a, s)
	return errors.Join(err, s.Close(ctx, c.DrainTimeout))
}

// serve runs until ctx ends or a server fails.
func (c *serveCommand) serve(ctx context.Context, t *terminal, a *app, s *site) error {
	if err := s.deploy(ctx, t, a); err != nil {
		return err
	}
	s.start(ctx)
	s.logger.InfoContext(ctx, "serving", "app", a.manifest.App.Value, "url", s.url(), "admin", s.adminURL(), "store", s.natsURL)
	select {
	case <-ctx.Done():
		s.logger.InfoContext(ctx, "stopping", "drain_timeout", c.DrainTimeout)
		return nil
	case err := <-s.failed:
		return err
	}
}

// store says which store the flags name. A flag that this store has no use for
// is a mistake: whoever gave it expects something else.
func (c *serveCommand) store(t *terminal) (storeConfig, error) {
	store := storeConfig{lazy: c.Sync == "lazy", dir: c.Embedded, copies: c.Replicas}
	if c.Embedded == "" {
		flags := natsFlags{NATS: c.NATS, Creds: c.Creds, Context: c.Context}
		var err error
		if store.remote, err = flags.connection(t); err != nil {
			return store, err
		}
	}
	remote := store.remote.URL != ""
	switch {
	case !remote && c.Replicas != 0:
		return store, unused("replicas", "the embedded store has one copy; it is for the store of --nats or --context")
	case !remote && c.Creds != "":
		return store, unused("creds", "the embedded store asks for none; they are for the store of --nats or --context")
	case remote && store.lazy:
		return store, unused("sync=lazy", "it is for the embedded store, not for that of a NATS server")
	case remote && c.NATSListen != "":
		return store, unused("nats-listen", "it is for the embedded store, not for that of a NATS server")
	}
	return store, nil
}

// unused reports a flag that would have no effect.
func unused(flag, reason string) error {
	return usageError{fmt.Errorf("--%s has no effect here: %s", flag, reason)}
}
