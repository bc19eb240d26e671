package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheEmbeddedStoreMovesFromAPortThatWasTakenMeanwhile(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, busy)
	store := storeConfig{dir: t.TempDir(), listen: busy.Addr().String()}
	if _, err := startServer(t.Context(), store, slog.New(slog.DiscardHandler)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that was asked for: got %v", err)
	}
	store.moves = true
	server, err := startServer(t.Context(), store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if server.URL() == "nats://"+store.listen || server.URL() == "" {
		t.Errorf("the store listens at %q", server.URL())
	}
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHostThatHangsClosesInTime(t *testing.T) {
	for _, parts := range []int{1, 5, 9} {
		t.Run(itoa(parts)+" parts", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &host{}
				var shares []time.Duration
				for range parts {
					h.closers = append(h.closers, func(ctx context.Context) error {
						begin := time.Now()
						<-ctx.Done()
						shares = append(shares, time.Since(begin))
						return context.Cause(ctx)
					})
				}
				begin := time.Now()
				if err := h.Close(t.Context()); err == nil {
					t.Error("no error tells that parts hang")
				}
				if took := time.Since(begin); took > closeTimeout {
					t.Errorf("closing took %s, want at most %s", took, closeTimeout)
				}
				for i, share := range shares {
					if want := closeTimeout / time.Duration(parts); share < want-time.Millisecond {
						t.Errorf("part %d got %s, want %s", i, share, want)
					}
				}
			})
		})
	}
}
