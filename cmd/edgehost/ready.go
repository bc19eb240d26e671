package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"
)

const (
	// readyTimeout is how long the commands of [dev] run may take until they
	// accept connections: `go run` compiles first.
	readyTimeout = time.Minute
	// readyPoll is the pause between two attempts to connect. A refused one costs
	// next to nothing on the machine itself.
	readyPoll = 50 * time.Millisecond
)

// awaitHelpers waits until the app's dependencies on this machine accept
// connections, so that the first request finds what the commands of [dev] run
// start. After readyTimeout, and when no command is left that could bring one up,
// it says so and returns; at the end of ctx it returns at once.
func (d *devSession) awaitHelpers(ctx context.Context) {
	if len(d.helpers) == 0 {
		return
	}
	patience, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, dependency := range d.app.manifest.Dependencies {
		address := localAddress(dependency.URL.Value)
		if address == "" || accepts(patience, address) {
			continue
		}
		fmt.Fprintf(d.t.stdout, "Waiting until %s accepts connections at %s.\n", dependency.Name, address)
		if !d.awaitConnection(patience, address) && ctx.Err() == nil {
			fmt.Fprintf(d.t.stderr, "edgehost: %s does not accept connections at %s: calls to it fail until it does\n", dependency.Name, address)
		}
	}
}

// awaitConnection tries to connect until it succeeds, ctx ends or the commands
// have. It reports whether it succeeded.
func (d *devSession) awaitConnection(ctx context.Context, address string) bool {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		last := d.helpersEnded() // and may have left something in the background, in a container say
		if accepts(ctx, address) {
			return true
		}
		if last {
			return false
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return false
		}
	}
}

// helpersEnded reports whether a command of [dev] run has failed, or none runs
// any more.
func (d *devSession) helpersEnded() bool {
	running := false
	for _, helper := range d.helpers {
		select {
		case <-helper.ended:
			if helper.err != nil {
				return true
			}
		default:
			running = true
		}
	}
	return !running
}

// accepts reports whether somebody accepts connections at an address.
func accepts(ctx context.Context, address string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// localAddress returns the host and port of a URL that names this machine by
// "localhost" or a loopback address, and "" for any other.
func localAddress(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	addr, _ := netip.ParseAddr(u.Hostname())
	if !addr.Unmap().IsLoopback() && u.Hostname() != "localhost" {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
