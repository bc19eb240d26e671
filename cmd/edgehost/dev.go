package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/edgehost/edgehost/cmd/edgehost/internal/manifest"
)

// devDrain is short: whoever develops waits for the prompt, for this time and
// closeTimeout at most.
const devDrain = 500 * time.Millisecond

// settle is how long sources must be left alone before they are built: editors
// write a file in several steps, and version control many files.
const settle = 100 * time.Millisecond

// devCommand is `edgehost dev`.
type devCommand struct {
	Dir        directory `arg:"" optional:"" default:"." help:"Directory of the app (default: ${default})."`
	serveFlags `embed:""`
}

// Help is printed by `edgehost dev --help`.
func (devCommand) Help() string {
	return "Builds the app, starts a store inside this process with its data in .edgehost, starts the commands of [dev] run, and serves. When sources change, the app is built and replaced without dropping a request; if the build fails, the old one goes on, and without an old one the next change is awaited. It begins to serve when the dependencies on this machine accept connections, or after a minute. Ctrl-C ends everything; a second one ends it at once."
}

// A devSession is one run of `edgehost dev`.
type devSession struct {
	*site
	t       *terminal
	app     *app // what is served, or will be
	sources *sources
	built   [32]byte // digest of the sources of the newest build
	served  bool     // an app has been deployed
	helpers []*command
	waiting sync.WaitGroup // of the goroutines that report the ends of helpers
}

// Run executes the command.
func (c *devCommand) Run(ctx context.Context, t *terminal) error {
	t.stderr = &synced{out: t.stderr}
	if c.LogFormat == "auto" {
		c.LogFormat = "text"
	}
	a, err := readApp(string(c.Dir), t)
	if err != nil {
		return err
	}
	if _, missing := a.secrets(t); len(missing) > 0 {
		return missing
	}
	sources, err := watchSources(a)
	if err != nil {
		return err
	}
	d := &devSession{t: t, app: a, sources: sources}
	err = d.run(ctx, c)
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = nil // asked to end while it was starting
	}
	return errors.Join(err, sources.watcher.Close())
}

func (d *devSession) run(ctx context.Context, c *devCommand) (err error) {
	if d.built, err = d.sources.digest(); err != nil {
		return err
	}
	store := storeConfig{dir: d.app.storeDirectory()}
	if d.site, err = openSite(ctx, store, &c.serveFlags, certificate{}, c.logger(d.t.stderr)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	if err := d.startHelpers(ctx); err != nil {
		return err
	}
	begin := time.Now()
	d.conclude(ctx, begin, d.publish(ctx, d.app))
	return d.watch(ctx)
}

// publish builds and deploys an app. After an error the one before goes on.
func (d *devSession) publish(ctx context.Context, a *app) error {
	defer d.sources.conclude()
	if err := a.build(ctx, d.t); err != nil {
		return err
	}
	return d.deploy(ctx, d.t, a)
}

// conclude says what came of an attempt to publish the app.
func (d *devSession) conclude(ctx context.Context, begin time.Time, err error) {
	switch {
	case ctx.Err() != nil: // whatever it was, it broke off
	case err == nil && d.served:
		fmt.Fprintf(d.t.stdout, "Reloaded in %s.\n", time.Since(begin).Round(time.Millisecond))
	case err == nil:
		d.served = true
		if d.awaitHelpers(ctx); ctx.Err() == nil {
			d.startOnce(ctx)
			d.welcome()
		}
	case d.served:
		fmt.Fprintf(d.t.stderr, "%s\nThe old version goes on.\n", describe(err))
	default:
		fmt.Fprintf(d.t.stderr, "%s\nThere is nothing to serve yet. Sources are watched: a change starts the next attempt. Ctrl-C stops everything.\n", describe(err))
		d.startOnce(ctx) // to tell clients, instead of letting them wait
	}
}

// startOnce begins to answer requests, if that has not begun.
func (d *devSession) startOnce(ctx context.Context) {
	if d.public == nil {
		d.start(ctx)
	}
}

// close drains first: requests that run may need the helpers.
func (d *devSession) close(ctx context.Context) error {
	if err := d.drain(ctx, devDrain); err != nil {
		d.logger.WarnContext(ctx, "not everything could end in time", "error", err)
	}
	var stopping sync.WaitGroup
	for _, helper := range d.helpers {
		stopping.Go(func() { helper.Stop(commandGrace) })
	}
	err := d.host.Close(ctx)
	stopping.Wait()
	d.waiting.Wait()
	return err
}

// startHelpers starts the commands of [dev] run.
func (d *devSession) startHelpers(ctx context.Context) error {
	for _, line := range d.app.manifest.Dev.Run {
		output := &prefixer{out: d.t.stderr, prefix: "[" + label(line.Value) + "] "}
		helper, err := startCommand(line.Value, d.app.dir, d.t.environ, output)
		if err != nil {
			return d.app.problem(line.At, "", "dev.run: %v", err)
		}
		d.helpers = append(d.helpers, helper)
		d.waiting.Go(func() { // ends with the helper, which close stops
			<-helper.ended
			if ctx.Err() == nil {
				fmt.Fprintf(output, "ended: %s\n", outcome(helper.err))
			}
		})
	}
	return nil
}

func outcome(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// label names a command line in its output: `go run ./upstream` is "upstream".
func label(line string) string {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "run"
	}
	return path.Base(fields[len(fields)-1])
}

// watch replaces the app when its sources change, until ctx ends.
func (d *devSession) watch(ctx context.Context) error {
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(d.t.stdout, "Stopping.")
			return nil
		case err := <-d.failed:
			return err
		case event := <-d.sources.watcher.Events:
			if d.sources.changed(event) {
				quiet.Reset(settle)
			}
		case err := <-d.sources.watcher.Errors:
			d.logger.WarnContext(ctx, "a change may have been missed", "error", err)
			quiet.Reset(settle)
		case <-quiet.C:
			d.reload(ctx)
		}
	}
}

// reload builds and deploys what has changed.
func (d *devSession) reload(ctx context.Context) {
	digest, err := d.sources.digest()
	if err == nil && digest == d.built && !d.sources.lost() {
		return
	}
	d.built = digest
	begin := time.Now()
	if err == nil {
		err = d.replace(ctx)
	}
	d.conclude(ctx, begin, err)
}

func (d *devSession) replace(ctx context.Context) error {
	a, err := readApp(d.app.dir, d.t)
	if err != nil {
		return err
	}
	d.sources.exclude(a)
	if err := d.publish(ctx, a); err != nil {
		return err
	}
	if !slices.Equal(values(a.manifest.Dev.Run), values(d.app.manifest.Dev.Run)) {
		fmt.Fprintln(d.t.stdout, "[dev] run has changed: restart edgehost dev for it.")
	}
	d.app = a
	return nil
}

// welcome says where things are and what to try.
func (d *devSession) welcome() {
	out := d.t.stdout
	nats := ""
	if d.natsURL != "nats://"+defaultNATS {
		nats = " --nats " + d.natsURL
	}
	fmt.Fprintf(out, "\n%s is served at %s\n", d.app.manifest.App, d.url())
	for _, f := range d.app.manifest.Functions {
		for _, route := range f.Routes {
			fmt.Fprintf(out, "  %s: %s\n", f.Name, route)
		}
	}
	if line := example(d.app.manifest, d.url()); line != "" {
		fmt.Fprintf(out, "Try:      %s\n", line)
	}
	fmt.Fprintf(out, "Objects:  edgehost object list%s\n", nats)
	fmt.Fprintf(out, "Admin:    %s (metrics, objects, health)\n", d.adminURL())
	fmt.Fprintf(out, "Store:    %s (data in %s)\n", d.natsURL, d.app.storeDirectory())
	fmt.Fprint(out, "Sources are watched. Ctrl-C stops everything.\n\n")
}

// example returns a curl line for the first route, with "1" for its wildcards.
func example(m *manifest.Manifest, url string) string {
	method, pattern, found := strings.Cut(m.Functions[0].Routes[0].Value, " ")
	if !found {
		method, pattern = "GET", method
	}
	host, rest, _ := strings.Cut(strings.TrimSpace(pattern), "/")
	target := url
	for part := range strings.SplitSeq(strings.TrimSuffix(rest, "{$}"), "/") {
		if strings.HasPrefix(part, "{") {
			part = "1"
		}
		target += "/" + part
	}
	line := "curl -i " + target
	if method != "GET" {
		line = "curl -i -X " + method + " " + target
	}
	if host != "" {
		line += " -H 'Host: " + host + "'"
	}
	return line
}
