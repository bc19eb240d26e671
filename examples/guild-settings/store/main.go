// Command store is a service that keeps the settings of guilds in a database, and
// refuses writes that come too late.
//
//	GET  /guilds/{guild}       its settings
//	PUT  /guilds/{guild}       replaces them; the field Edgehost-Fence must be newer than that of every write before
//	GET  /rejected             how many writes came too late
//	POST /control/hold         the next write waits before it reaches the database,
//	POST /control/release      until this
//	GET  /held                 how many wait
//
// It listens on the host and port of SETTINGS_URL, by default 127.0.0.1:9091,
// and stops on an interrupt. SETTINGS_DATABASE is a postgres:// URL or the path
// of a SQLite file; without it there is a SQLite file for as long as it runs.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("SETTINGS_URL"), os.Getenv("SETTINGS_DATABASE"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "store:", err)
		os.Exit(1)
	}
}

// run serves the database's settings at the host and port of the URL until ctx is
// done.
func run(ctx context.Context, rawURL, place string, out io.Writer) (err error) {
	address, err := address(rawURL)
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, place)
	if err != nil {
		return fmt.Errorf("SETTINGS_DATABASE: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program listens on %s: set SETTINGS_URL to another place, such as http://127.0.0.1:9092", address)
	}
	if err != nil {
		return fmt.Errorf("SETTINGS_URL must lead to this machine: %w", err)
	}
	say(out, "settings listens on http://"+listener.Addr().String())
	server := &http.Server{
		Handler:           newService(db, ctx.Done(), out).routes(),
		ReadHeaderTimeout: 5 * time.Second,
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

func address(rawURL string) (string, error) {
	u, err := url.Parse(cmp.Or(rawURL, "http://127.0.0.1:9091"))
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return "", fmt.Errorf("SETTINGS_URL is %q, which is not http://HOST:PORT", rawURL)
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), nil
}

// say writes a line to a reader that may have gone.
func say(w io.Writer, line string) { _, _ = io.WriteString(w, line+"\n") }
