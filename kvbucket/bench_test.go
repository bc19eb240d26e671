package kvbucket_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/edgehost/edgehost/kvbucket"
)

// buckets returns memory and both kinds of embedded server, by name.
func buckets(b *testing.B) map[string]kvbucket.Bucket {
	b.Helper()
	return map[string]kvbucket.Bucket{
		"memory": kvbucket.NewMemory(),
		"sync":   openBucket(b, dialServer(b, startServer(b, kvbucket.ServerConfig{}))),
		"lazy":   openBucket(b, dialServer(b, startServer(b, kvbucket.ServerConfig{LazySync: true}))),
	}
}

var benchValue = bytes.Repeat([]byte("v"), 300)

func BenchmarkUpdate(b *testing.B) {
	for name, bucket := range buckets(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var last kvbucket.Revision
			for b.Loop() {
				var err error
				if last, err = bucket.Update(b.Context(), "k", benchValue, last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUpdateManyKeys has 32 writers, each with its own key.
func BenchmarkUpdateManyKeys(b *testing.B) {
	var writers atomic.Int64
	for name, bucket := range buckets(b) {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Sprintf("k.%d", writers.Add(1))
				var last kvbucket.Revision
				for pb.Next() {
					var err error
					if last, err = bucket.Update(b.Context(), key, benchValue, last); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkGet(b *testing.B) {
	for name, bucket := range buckets(b) {
		b.Run(name, func(b *testing.B) {
			mustUpdate(b, bucket, "k", string(benchValue), 0)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bucket.Get(b.Context(), "k"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
