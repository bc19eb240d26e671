package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

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
