// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A job is what a child process is told through its environment.
type job struct {
	Role     string // work, feed or read
	Process  int
	Monitor  string
	URL      string
	Queue    string
	Naive    string // new or old: a stream with a limit alone, instead of a queue
	Replicas int
	Lease    time.Duration
	Slots    int           // runs at once, or bursts at once
	RunMax   time.Duration // a run takes 0 to this
	Seed     uint64        // of its choices
	Rate     int           // bursts a second
	Verbose  bool

	Members  int   // queues of a worker
	Bucket   bool  // feed a bucket, and not the queue
	Poison   bool  // some items kill the process
	Pad      int   // bytes
	MaxBytes int64 // of the queue
}

func (j job) config() queue.Config {
	return queue.Config{
		Name: j.Queue, Replicas: j.Replicas, Lease: j.Lease, MaxBytes: j.MaxBytes,
		Owner: "process " + strconv.Itoa(j.Process),
		Gone:  reconcile.Backoff(50*time.Millisecond, time.Second),
	}
}

// child is what a child process does. It ends when it is told to, or when the
// parent is gone.
func child(j job) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // orphaned
	}()
	level := slog.LevelError
	if j.Verbose {
		level = slog.LevelDebug
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("process", j.Process))
	nc, err := nats.Connect(j.URL, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(2*time.Second), nats.PingInterval(j.Lease), nats.MaxPingsOutstanding(1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := dial(j, 0)
	if err != nil {
		return err
	}
	go c.watch()
	if j.Naive != "" {
		return naive(ctx, js, j)
	}
	if j.Role == "feed" && j.Bucket {
		var kv jetstream.KeyValue
		if !again(ctx, func(ctx context.Context) (err error) {
			kv, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, Replicas: j.Replicas})
			return err
		}) {
			return nil
		}
		value := make([]byte, j.Pad)
		return feed(ctx, j, func(ctx context.Context, key string) error {
			_, err := kv.Put(ctx, key, value)
			return err
		})
	}
	errs := make([]error, j.Members)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = member(ctx, js, j) })
	}
	all.Wait()
	return errors.Join(errs...)
}

const bucket = "wanted"

// member does what the process does with one queue.
func member(ctx context.Context, js jetstream.JetStream, j job) (err error) {
	var q *queue.Queue[string]
	if !again(ctx, func(ctx context.Context) (err error) {
		q, err = queue.New[string](ctx, js, j.config())
		return err
	}) {
		return nil
	}
	switch {
	case j.Role == "work":
		err = work(ctx, j, q)
	case j.Role == "read":
		err = reconcile.Feed(q, natsadapter.KeyValue(js, bucket, natsadapter.EntryKey)).Run(ctx)
	case j.Poison:
		err = feed(ctx, j, func(ctx context.Context, name string) error {
			if poisonous(name) { // what was before is forgotten, and not what follows
				ctx = context.WithoutCancel(ctx)
				q.Remove(ctx, name)
			}
			return q.EnqueueContext(ctx, name)
		})
	default:
		err = feed(ctx, j, q.EnqueueContext)
	}
	stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(err, q.Close(stop))
}

// again tries until it succeeds, as the server may be down for now, or ctx is
// done.
func again(ctx context.Context, fn func(context.Context) error) bool {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := fn(attempt)
		cancel()
		if err == nil {
			return true
		}
		slog.Info("again", "err", err)
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func poisonous(name string) bool { return strings.HasPrefix(name, "poison") }

// die ends this process as SIGKILL would, and begins another with its id.
func die() {
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, os.Args, os.Environ())
	}
	panic(err)
}

func work(ctx context.Context, j job, q *queue.Queue[string]) error {
	clients := make(chan *client, j.Slots)
	for slot := range j.Slots {
		c, err := dial(j, slot+1)
		if err != nil {
			return err
		}
		clients <- c
	}
	r := &reconcile.Reconciler[string]{
		Queue:   q,
		Workers: j.Slots,
		Retry:   reconcile.Backoff(50*time.Millisecond, time.Second),
		Reconcile: func(ctx context.Context, item string) (err error) {
			c := <-clients
			defer func() { clients <- c }()
			c.tell(call{Op: "enter", Key: item, Fence: queue.Fence(ctx)})
			defer c.tell(call{Op: "leave", Key: item})
			select {
			case <-time.After(below(c.rand, j.RunMax+1)):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if fence := queue.Fence(ctx); poisonous(item) && fence%2 == 0 {
				die()
			}
			// What a run asks for is an event like any other.
			ask := func() {
				v := c.tell(call{Op: "issue", Key: item, Fence: queue.Fence(ctx)})
				c.tell(call{Op: "accept", Key: item, Fence: queue.Fence(ctx), Version: v})
			}
			switch n := c.rand.IntN(100); {
			case n < 6:
				ask()
				return errors.New("now and then it fails")
			case n < 9:
				ask()
				return reconcile.RequeueAfter(below(c.rand, 400*time.Millisecond))
			case n < 12:
				ask()
				return reconcile.RequeueWithin(below(c.rand, 400*time.Millisecond))
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	return r.Run(ctx)
}

// feed enqueues bursts of events: most of a key of their own, so that the loss
// of the last event of any burst shows, and some of keys that are always busy.
func feed(ctx context.Context, j job, enqueue func(context.Context, string) error) error {
	const hot = 10
	ticks := time.NewTicker(time.Second / time.Duration(j.Rate))
	defer ticks.Stop()
	var all sync.WaitGroup
	defer all.Wait()
	tokens := make(chan int)
	defer close(tokens)
	for slot := range j.Slots {
		c, err := dial(j, slot+1)
		if err != nil {
			return err
		}
		all.Go(func() {
			for n := range tokens {
				name := fmt.Sprintf("burst %d of %d", n, j.Process)
				if n%5 == 0 {
					name = fmt.Sprintf("hot %d", c.rand.IntN(hot))
				}
				if j.Poison && n%100 == 1 {
					name = fmt.Sprintf("poison %d", c.rand.IntN(hot))
				}
				if j.Bucket {
					name = subject(name)
				} else {
					name += strings.Repeat("-", j.Pad)
				}
				for range 1 + c.rand.IntN(4) {
					v := c.tell(call{Op: "issue", Key: name})
					if enqueue(ctx, name) == nil {
						c.tell(call{Op: "accept", Key: name, Version: v})
					}
					time.Sleep(below(c.rand, 8*time.Millisecond))
				}
			}
		})
	}
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			select {
			case tokens <- n:
			default: // all are busy: the server is down
			}
		}
	}
}
