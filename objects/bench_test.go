package objects_test

import (
	"context"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/objects"
)

// openHost returns a host on b that is closed with the test.
func openHost(tb testing.TB, b kvbucket.Bucket, cfg objects.Config) *objects.Host {
	tb.Helper()
	cfg.Bucket = b
	h, err := objects.Open(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return h
}

func BenchmarkAdmitAndReport(b *testing.B) { benchmarkAdmitAndReport(b, objects.Policy{}) }

func BenchmarkAdmitAndReportByRate(b *testing.B) {
	benchmarkAdmitAndReport(b, objects.Policy{Mode: objects.ModeRate, SlowCall: time.Second})
}

func benchmarkAdmitAndReport(b *testing.B, p objects.Policy) {
	b.Helper()
	h := openHost(b, kvbucket.NewMemory(), objects.Config{})
	d := dependency(b, h, "payments", p)
	ctx := b.Context()
	call := func() {
		a, err := d.Admit(ctx)
		if err != nil {
			b.Fatal(err)
		}
		if err := a.Report(ctx, objects.Success); err != nil {
			b.Fatal(err)
		}
	}
	call()
	b.Run("one caller", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			call()
		}
	})
	b.Run("a caller on every core", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call()
			}
		})
	})
}

func BenchmarkAcquireAndRelease(b *testing.B) {
	h := openHost(b, kvbucket.NewMemory(), objects.Config{})
	o := object(b, h, "guild/42")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		l, err := o.Acquire(ctx, objects.LeaseOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
