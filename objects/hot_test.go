package objects_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehost/edgehost/kvbucket"
	"github.com/edgehost/edgehost/kvbucket/natstest"
	"github.com/edgehost/edgehost/objects"
)

// A realStore is what three hosts have on real servers.
type realStore struct {
	hosts   []*objects.Host
	buckets []kvbucket.Bucket // raw, each over a connection of its own
}

// overStores runs a benchmark on a single server and on a replicated store.
func overStores(b *testing.B, run func(b *testing.B, s realStore)) {
	b.Helper()
	for _, servers := range []int{1, 3} {
		b.Run(fmt.Sprintf("%d copies", servers), func(b *testing.B) {
			url := natstest.StartServers(b, servers).URL()
			s := realStore{hosts: openReal(b, url, 3, servers)}
			for range s.hosts {
				bucket, _ := dialReal(b, url, servers)
				s.buckets = append(s.buckets, bucket)
			}
			run(b, s)
		})
	}
}

// BenchmarkHotLease has callers on three hosts that take a lease and give it back,
// through its owner, and, to compare, by compare-and-swap of each on the record.
func BenchmarkHotLease(b *testing.B) {
	overStores(b, func(b *testing.B, s realStore) {
		b.Helper()
		own := func(i int) string { return fmt.Sprint(i) }
		one := func(int) string { return "main" }
		b.Run("owner, one lease", func(b *testing.B) { contendByOwner(b, s.hosts, one) })
		b.Run("raw, one lease, with growing pauses", func(b *testing.B) { contendRaw(b, s.buckets, one, kvbucket.Modify) })
		b.Run("raw, one lease, without a pause", func(b *testing.B) { contendRaw(b, s.buckets, one, modifyAtOnce) })
		b.Run("owner, a lease for each caller", func(b *testing.B) { contendByOwner(b, s.hosts, own) })
		b.Run("raw, a lease for each caller, with growing pauses", func(b *testing.B) { contendRaw(b, s.buckets, own, kvbucket.Modify) })
		b.Run("raw, a lease for each caller, without a pause", func(b *testing.B) { contendRaw(b, s.buckets, own, modifyAtOnce) })
	})
}

const hotCallers = 24

// contend lets callers do b.N rounds together.
func contend(b *testing.B, round func(caller int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	for i := range hotCallers {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := round(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
}

func contendByOwner(b *testing.B, hosts []*objects.Host, name func(caller int) string) {
	b.Helper()
	contend(b, func(i int) error {
		l, err := object(b, hosts[i%len(hosts)], "guild/42").Acquire(b.Context(), objects.LeaseOptions{Name: name(i), Wait: time.Minute})
		if err != nil {
			return err
		}
		return l.Release(b.Context())
	})
}

type modify func(ctx context.Context, b kvbucket.Bucket, key string, fn func(kvbucket.Entry) ([]byte, error)) (kvbucket.Entry, error)

// contendRaw changes a list of the leases that are held.
func contendRaw(b *testing.B, buckets []kvbucket.Bucket, name func(caller int) string, change modify) {
	b.Helper()
	errHeld := errors.New("held")
	contend(b, func(i int) error {
		bucket, lease := buckets[i%len(buckets)], "<"+name(i)+">"
		for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
			_, err := change(b.Context(), bucket, "raw", func(old kvbucket.Entry) ([]byte, error) {
				if strings.Contains(string(old.Value), lease) {
					return nil, errHeld
				}
				return append(old.Value, lease...), nil
			})
			if err == nil {
				break
			}
			if !errors.Is(err, errHeld) {
				return err
			}
			<-time.After(pause)
		}
		_, err := change(b.Context(), bucket, "raw", func(old kvbucket.Entry) ([]byte, error) {
			return []byte(strings.Replace(string(old.Value), lease, "", 1)), nil
		})
		return err
	})
}

// modifyAtOnce is kvbucket.Modify without its pauses.
func modifyAtOnce(ctx context.Context, b kvbucket.Bucket, key string, fn func(kvbucket.Entry) ([]byte, error)) (kvbucket.Entry, error) {
	for {
		old, err := b.Get(ctx, key)
		if err != nil && !errors.Is(err, kvbucket.ErrNotFound) {
			return old, err
		}
		value, err := fn(old)
		if err != nil {
			return old, err
		}
		if _, err = b.Update(ctx, key, value, old.Revision); !errors.Is(err, kvbucket.ErrConflict) {
			return old, err
		}
	}
}

// BenchmarkLeaseLatency compares the time of a grant with that of one update of the
// same store, both without contention.
func BenchmarkLeaseLatency(b *testing.B) {
	overStores(b, func(b *testing.B, s realStore) {
		b.Helper()
		if err := second(object(b, s.hosts[0], "guild/42").Acquire(b.Context(), objects.LeaseOptions{Name: "owner"})); err != nil {
			b.Fatal(err)
		}
		b.Run("compared", func(b *testing.B) {
			var last kvbucket.Revision
			var raw, here, elsewhere []time.Duration
			grant := func(h *objects.Host) time.Duration {
				began := time.Now()
				l, err := object(b, h, "guild/42").Acquire(b.Context(), objects.LeaseOptions{})
				took := time.Since(began)
				if err == nil {
					err = l.Release(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
				return took
			}
			value := make([]byte, 300)
			for b.Loop() {
				began := time.Now()
				var err error
				if last, err = s.buckets[0].Update(b.Context(), "raw.latency", value, last); err != nil {
					b.Fatal(err)
				}
				raw = append(raw, time.Since(began))
				here = append(here, grant(s.hosts[0]))
				elsewhere = append(elsewhere, grant(s.hosts[1]))
			}
			b.ReportMetric(microseconds(raw), "raw-p50-µs")
			b.ReportMetric(microseconds(here), "owner-p50-µs")
			b.ReportMetric(microseconds(elsewhere), "other-host-p50-µs")
			b.ReportMetric(microseconds(here)/microseconds(raw), "owner/raw")
			b.ReportMetric(microseconds(elsewhere)/microseconds(raw), "other-host/raw")
		})
	})
}

// microseconds returns the median.
func microseconds(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Nanoseconds()) / 1000
}
