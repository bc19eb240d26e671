package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// The addresses used unless a flag names another. All are loopback: nothing is
// reachable from elsewhere by accident.
const (
	defaultListen = "127.0.0.1:8080"
	defaultAdmin  = "127.0.0.1:8081"
	defaultNATS   = "127.0.0.1:4222"
)

// listen opens the address that a flag asks for. Without one it opens the
// default, or a free port of the same host if that is busy: two apps can be
// developed side by side, and an address that was asked for is never replaced.
func listen(ctx context.Context, flag string, asked address, byDefault string) (net.Listener, error) {
	var config net.ListenConfig
	address := string(asked)
	if asked == "" {
		address = byDefault
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil && asked == "" && errors.Is(err, syscall.EADDRINUSE) {
		host, _, _ := net.SplitHostPort(byDefault)
		listener, err = config.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--%s %s: another program listens there", flag, address)
	case err != nil:
		return nil, fmt.Errorf("--%s %s: %w", flag, address, err)
	}
	return listener, nil
}

// reserve finds the address for a server that opens its own listener.
func reserve(ctx context.Context, flag string, asked address, byDefault string) (string, error) {
	listener, err := listen(ctx, flag, asked, byDefault)
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return "", fmt.Errorf("--%s %s: %w", flag, address, err)
	}
	return address, nil
}
