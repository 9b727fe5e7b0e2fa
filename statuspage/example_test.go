// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

func Example() {
	queue := reconcile.NewQueue[string]()
	assets := &statuspage.Loop[string]{Name: "assets", Queue: queue}
	reconciler := &reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(context.Context, string) error { return reconcile.Terminal(errors.New("no such region")) },
		OnResult:  assets.OnResult(nil),
		Logger:    discard,
	}

	page := statuspage.New(assets)
	server := httptest.NewServer(page) // or http.ListenAndServe("127.0.0.1:8080", page)
	defer server.Close()

	queue.Enqueue("bucket/invoices")
	queue.Close()
	if err := reconciler.Run(context.Background()); err != nil {
		fmt.Println(err)
	}

	var answer items
	if err := getJSON(server.URL+"/items.json?state=failing", &answer); err != nil {
		fmt.Println(err)
	}
	for _, item := range answer.Items {
		fmt.Println(item.Name, "is", item.Phase, "after it", item.Outcome+":", item.Error)
	}
	// Output: bucket/invoices is idle after it terminated: no such region
}

// A page that runs in a group, and ends with it.
func ExamplePage() {
	queue := reconcile.NewQueue[string]()
	assets := &statuspage.Loop[string]{Name: "assets", Queue: queue}
	group := &statuspage.Group{Name: "Controller"}
	group.Logger = discard // by default it logs where the page is
	group.Add("reconciler", &reconcile.Reconciler[string]{
		Queue:     queue,
		Reconcile: func(context.Context, string) error { return nil },
		OnResult:  assets.OnResult(nil),
	})

	page := statuspage.New(assets, group)
	page.AllowActions = true
	group.Add("page", statuspage.Serve("127.0.0.1:0", page))

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(group.Run(ctx))
	// Output: <nil>
}
