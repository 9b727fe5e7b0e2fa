// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// A web server as a member of a Group.
func Example() {
	server := &http.Server{Addr: "127.0.0.1:0", ReadHeaderTimeout: time.Second}
	serve := reconcile.RunFunc(func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { server.Close() })
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})

	var group supervise.Group
	group.Add("status page", serve)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	fmt.Println(group.Run(ctx)) // the same result, however late the real clock ends ctx
	// Output:
	// <nil>
}

// If a member fails, the others are ended and waited for.
func ExampleGroup() {
	var group supervise.Group
	group.Add("server", reconcile.RunFunc(func(ctx context.Context) error {
		<-ctx.Done()
		fmt.Println("server ends")
		return nil
	}))
	group.Add("watch", reconcile.RunFunc(func(context.Context) error {
		return errors.New("connection refused")
	}))
	fmt.Println(group.Run(context.Background()))
	// Output:
	// server ends
	// watch: connection refused
}

// The work begins once what it looks at is complete.
func ExampleAfter() {
	synced := make(chan struct{})
	var group supervise.Group
	group.Add("cache", reconcile.RunFunc(func(context.Context) error {
		fmt.Println("cache is synced")
		close(synced)
		return nil
	}))
	ready := func(ctx context.Context) error {
		select {
		case <-synced:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	group.Add("work", supervise.After(ready, reconcile.RunFunc(func(context.Context) error {
		fmt.Println("work begins")
		return nil
	})))
	fmt.Println(group.Run(context.Background()))
	// Output:
	// cache is synced
	// work begins
	// <nil>
}

// A watch is begun again when its connection breaks.
func ExampleRestart() {
	connections := 0
	watch := reconcile.RunFunc(func(context.Context) error {
		connections++
		fmt.Println("connection", connections)
		switch connections {
		case 1:
			return errors.New("connection reset")
		case 2:
			panic("bad message")
		}
		return reconcile.Terminal(errors.New("no access"))
	})
	err := supervise.Restart(reconcile.Backoff(time.Millisecond, time.Second), watch).Run(context.Background())
	fmt.Println(err)
	// Output:
	// connection 1
	// connection 2
	// connection 3
	// no access
}
