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
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
)

// A job is what a child process is told through its environment.
type job struct {
	Role     string // work or feed
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
	var q *natsadapter.Queue[string]
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		q, err = natsadapter.NewQueue[string](attempt, js, natsadapter.Config{
			Name: j.Queue, Replicas: j.Replicas, Lease: j.Lease, Owner: "process " + strconv.Itoa(j.Process),
			Gone: reconcile.Backoff(50*time.Millisecond, time.Second),
		})
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond) // the server may be down for now
	}
	if j.Role == "feed" {
		err = feed(ctx, j, q.EnqueueContext)
	} else {
		err = work(ctx, j, q)
	}
	stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(err, q.Close(stop))
}

func work(ctx context.Context, j job, q *natsadapter.Queue[string]) error {
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
			c.tell(call{Op: "enter", Key: item, Fence: natsadapter.Fence(ctx)})
			defer c.tell(call{Op: "leave", Key: item})
			select {
			case <-time.After(below(c.rand, j.RunMax+1)):
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// What a run asks for is an event like any other.
			again := func() {
				v := c.tell(call{Op: "issue", Key: item, Fence: natsadapter.Fence(ctx)})
				c.tell(call{Op: "accept", Key: item, Fence: natsadapter.Fence(ctx), Version: v})
			}
			switch n := c.rand.IntN(100); {
			case n < 6:
				again()
				return errors.New("now and then it fails")
			case n < 9:
				again()
				return reconcile.RequeueAfter(below(c.rand, 400*time.Millisecond))
			case n < 12:
				again()
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
