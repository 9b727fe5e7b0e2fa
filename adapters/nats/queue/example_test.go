// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// An itemQueue is what a service needs of one, in one process or in many.
type itemQueue interface {
	reconcile.Enqueuer[string]
	reconcile.Dequeuer[string]
}

// serve is a service: it knows nothing of where its queue is.
func serve(ctx context.Context, q itemQueue, ran chan<- string) error {
	r := &reconcile.Reconciler[string]{
		Queue:   q,
		Workers: 8,
		Reconcile: func(ctx context.Context, item string) error {
			// Compare the desired with the actual state, and correct the difference.
			ran <- item
			return nil
		},
	}
	return r.Run(ctx)
}

// inOneProcess serves alone.
func inOneProcess(ctx context.Context, ran chan<- string) error {
	q := reconcile.NewQueue[string]()
	q.Enqueue("a")
	return serve(ctx, q, ran)
}

// inManyProcesses serves together with all others that do the same.
func inManyProcesses(ctx context.Context, url string, ran chan<- string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	q, err := queue.New[string](ctx, js, queue.Config{Name: "sites"})
	if err != nil {
		return err
	}
	q.Enqueue("a")
	err = serve(ctx, q, ran)

	// What the outbox holds is stored, or the error says what is not.
	stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(err, q.Close(stop))
}

func ExampleNew() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server, err := natstest.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	for _, run := range []func(ctx context.Context, ran chan<- string) error{
		inOneProcess,
		func(ctx context.Context, ran chan<- string) error {
			return inManyProcesses(ctx, server.URL(), ran)
		},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		ran, ended := make(chan string), make(chan error)
		go func() { ended <- run(ctx, ran) }()
		fmt.Println("ran", <-ran)
		cancel()
		fmt.Println("ended", <-ended)
	}
	// Output:
	// ran a
	// ended <nil>
	// ran a
	// ended <nil>
}
