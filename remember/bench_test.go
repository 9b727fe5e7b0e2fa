// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reconkernel/reconcile/remember"
)

// BenchmarkRun is what a run costs that has something to do: Begin and Done, by one
// worker and by 16.
func BenchmarkRun(b *testing.B) {
	for _, noSync := range []bool{false, true} {
		for _, workers := range []int{1, 16} {
			b.Run(fmt.Sprintf("NoSync=%t/Workers=%d", noSync, workers), func(b *testing.B) {
				f := &remember.File[string, string]{Path: filepath.Join(b.TempDir(), "m"), NoSync: noSync}
				if err := f.Open(); err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				b.ResetTimer()
				var calls sync.WaitGroup
				var next atomic.Int64
				for range workers {
					calls.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							touch(b, f, i%1000)
						}
					})
				}
				calls.Wait()
			})
		}
	}
}

func touch(b *testing.B, f *remember.File[string, string], i int64) {
	item := fmt.Sprint("bucket-", i)
	if err := f.Begin(item); err != nil {
		b.Error(err)
	}
	if err := f.Done(item, "5d41402abc4b2a76b9719d911017c592"); err != nil {
		b.Error(err)
	}
}

// BenchmarkOpen reads a file of a million items.
func BenchmarkOpen(b *testing.B) {
	const n = 1_000_000
	path := filepath.Join(b.TempDir(), "m")
	f := &remember.File[string, string]{Path: path, NoSync: true}
	if err := f.Open(); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if err := f.Done(fmt.Sprint("bucket-", i), fmt.Sprintf("%032x", i)); err != nil {
			b.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err := errors.Join(err, f.Close()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(f.Open(), f.Close()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(info.Size())/n, "file-B/item")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
}
