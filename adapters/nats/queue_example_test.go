// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

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
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A queue is what a service needs of one, in one process or in many.
type queue interface {
	reconcile.Enqueuer[string]
	reconcile.Dequeuer[string]
}

// serve is a service: it knows nothing of where its queue is.
func serve(ctx context.Context, q queue, ran chan<- string) error {
	r := &reconcile.Reconciler[string]{
		Queue:   q,
		Workers: 8,
		Reconcile: func(ctx context.Context, item string) error {
			// Compare what is wanted with what is there, and mend the difference.
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
	q, err := natsadapter.NewQueue[string](ctx, js, natsadapter.Config{Name: "sites"})
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

func ExampleNewQueue() {
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
