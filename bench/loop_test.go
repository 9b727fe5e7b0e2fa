// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/reconkernel/reconcile"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // or it complains after a while
	m.Run()
}

// BenchmarkLoop measures a run of an empty function: a million items are in the queue
// of a controller with one worker.
func BenchmarkLoop(b *testing.B) {
	items := names(million)
	compare(b, plain, func(b *testing.B, im impl) {
		m := &meter{b: b}
		for b.Loop() {
			b.StopTimer()
			l := newLedger(million)
			end := background(b, im.loop, loop{
				log: noLog,
				feed: func(add func(item string)) {
					for _, item := range items {
						add(item)
					}
					m.start()
				},
				reconcile: func(item string) {
					l.take(index(item))
					l.finish()
				},
			})
			<-l.all
			m.stop(million)
			end()
			b.StartTimer()
		}
		b.StopTimer()
		m.report()
	})
}

// BenchmarkWake reports how long an idle worker of a controller takes from Enqueue to
// the start of its run.
func BenchmarkWake(b *testing.B) {
	items := names(manyNames)
	compare(b, plain, func(b *testing.B, im impl) {
		m, began, fed := &meter{b: b}, make(chan time.Time, 1), make(chan func(item string), 1)
		end := background(b, im.loop, loop{
			log:       noLog,
			feed:      func(add func(item string)) { fed <- add },
			reconcile: func(string) { began <- time.Now() },
		})
		add := <-fed
		var late []time.Duration
		m.start()
		for b.Loop() {
			time.Sleep(200 * time.Microsecond) // the worker goes to sleep meanwhile
			added := time.Now()
			add(items[len(late)%len(items)])
			run := <-began
			late = append(late, run.Sub(added))
		}
		m.stop(b.N)
		m.lateness(late)
		m.report()
		end()
	})
}

var noLog = slog.New(slog.DiscardHandler)

// A loop is the work of a controller with one worker. The controller
// calls feed with the queue before its worker starts, and returns when ctx is done and
// the worker has ended.
type loop struct {
	log       *slog.Logger
	feed      func(add func(item string))
	reconcile func(item string)
}

// background runs a controller. The function that it returns ends it and waits
// for it.
func background(b testing.TB, run func(context.Context, loop) error, l loop) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx, l); err != nil || ctx.Err() == nil {
			b.Errorf("the loop ended by itself: %v", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

func ourLoop(ctx context.Context, l loop) error {
	q := reconcile.NewQueue[string]()
	l.feed(q.Enqueue)
	r := &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(_ context.Context, item string) error {
			l.reconcile(item)
			return nil
		},
		Name:    "bench",
		Workers: 1,
		Logger:  l.log,
	}
	return r.Run(ctx)
}

// clientLoop is the loop of client-go's own examples: take, work, forget, and
// log at Debug, as the kernel does.
func clientLoop(ctx context.Context, l loop) error {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	l.feed(q.Add)
	var worker sync.WaitGroup
	worker.Go(func() {
		for {
			item, shutdown := q.Get()
			if shutdown {
				return
			}
			l.reconcile(item)
			l.log.Debug("reconciled", "item", item)
			q.Forget(item)
			q.Done(item)
		}
	})
	<-ctx.Done()
	q.ShutDown()
	worker.Wait()
	return nil
}

// ctrlLoop is controller-runtime's controller with its default queue, fed by a
// source, without a manager.
func ctrlLoop(ctx context.Context, l loop) error {
	c, err := controller.NewTypedUnmanaged("bench", controller.TypedOptions[string]{
		SkipNameValidation:      new(true),
		UsePriorityQueue:        new(true),
		MaxConcurrentReconciles: 1,
		Logger:                  logr.FromSlogHandler(l.log.Handler()),
		Reconciler: ctrlreconcile.TypedFunc[string](func(_ context.Context, item string) (ctrlreconcile.Result, error) {
			l.reconcile(item)
			return ctrlreconcile.Result{}, nil
		}),
	})
	if err != nil {
		return err
	}
	feed := source.TypedFunc[string](func(_ context.Context, q workqueue.TypedRateLimitingInterface[string]) error {
		l.feed(q.Add)
		return nil
	})
	if err := c.Watch(feed); err != nil {
		return err
	}
	return c.Start(ctx)
}

// TestAllocations counts the allocations of a run. TestQueueAllocatesNothing and
// TestWakeUpAllocatesNothing of the kernel count those of the queue.
func TestAllocations(t *testing.T) {
	for _, row := range []struct {
		name string
		want int
		log  *slog.Logger
	}{
		{"a run without log", 1, noLog},
		{"a run with slog at Info", 1, slog.New(slog.NewTextHandler(io.Discard, nil))},
	} {
		fed, ran := make(chan func(item string), 1), make(chan struct{})
		end := background(t, ourLoop, loop{
			log:       row.log,
			feed:      func(add func(item string)) { fed <- add },
			reconcile: func(string) { ran <- struct{}{} },
		})
		i, items, add := 0, names(manyNames), <-fed
		run := func() {
			i++
			add(items[i%len(items)])
			<-ran
		}
		if got := int(testing.AllocsPerRun(4*len(items), run)); got != row.want {
			t.Errorf("%s: %d allocations, want %d", row.name, got, row.want)
		}
		end()
	}
}
