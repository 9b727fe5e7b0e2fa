// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// serve runs f for each item that q hands out, in so many workers, until q is
// closed. The function that it returns waits for them.
func serve(q queue, workers int, f func(item string)) (wait func()) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				item, ok := q.Get()
				if !ok {
					return
				}
				f(item)
				q.Done(item)
			}
		})
	}
	return all.Wait
}

// BenchmarkCrowd lets 2, 8 or 64 producers add 100,000 items, each once, while as many
// workers take them.
func BenchmarkCrowd(b *testing.B) {
	items := names(100_000)
	for _, producers := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(producers), func(b *testing.B) {
			compare(b, plain, func(b *testing.B, im impl) {
				each(b, im, func(m *meter, q queue) {
					l := newLedger(len(items))
					m.start()
					wait := serve(q, producers, func(item string) {
						l.take(index(item))
						l.finish()
					})
					for p := range producers {
						go func() {
							for i := p; i < len(items); i += producers {
								q.Add(items[i])
							}
						}()
					}
					<-l.all
					m.stop(len(items))
					wantLen(b, q, 0)
					q.Close()
					wait()
				})
			})
		})
	}
}

// BenchmarkStorm lets 8 producers add a thousand items 800 times each, while 4 workers
// take them. A worker has an item alone, and after the last Add of each item a run of
// it begins.
func BenchmarkStorm(b *testing.B) {
	const producers, workers, hot, adds = 8, 4, 1000, 800_000
	items := names(hot)
	compare(b, plain, func(b *testing.B, im impl) {
		each(b, im, func(m *meter, q queue) {
			l := newLedger(hot)
			last := make([]atomic.Bool, hot)
			m.start()
			wait := serve(q, workers, func(item string) {
				i := index(item)
				isLast := last[i].Load() // before anything else: only a run that begins now can be the last
				l.take(i)
				if isLast && last[i].CompareAndSwap(true, false) {
					l.finish()
				}
				if i%64 == 0 {
					runtime.Gosched() // or two workers would hardly ever meet
				}
				l.giveBack(i)
			})
			var all sync.WaitGroup
			for p := range producers {
				all.Go(func() {
					i := p * hot / producers
					for range adds / producers {
						q.Add(items[i])
						if i++; i == hot {
							i = 0
						}
					}
				})
			}
			all.Wait()
			for i, item := range items {
				last[i].Store(true)
				q.Add(item)
			}
			<-l.all
			m.stop(adds + hot)
			q.Close()
			wait()
		})
	})
}
