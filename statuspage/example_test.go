// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
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
		fmt.Println(item.Name, "is", item.Phase, "with the outcome", item.Outcome+":", item.Error)
	}
	// Output: bucket/invoices is idle with the outcome terminal_error: no such region
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
	fmt.Println(group.Run(ctx)) // the same result, however late the real clock ends ctx
	// Output: <nil>
}

// The page has no login. A handler in front asks for one; over a network it needs TLS as
// well.
func ExamplePage_password() {
	page := statuspage.New(&statuspage.Loop[string]{Name: "assets", Queue: reconcile.NewQueue[string]()})
	page.AllowActions = true
	want := sha256.Sum256([]byte("a long random password"))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(password))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="status"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
	// group.Add("page", statuspage.Serve("127.0.0.1:8080", handler))

	for _, password := range []string{"a guess", "a long random password"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("", password)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}
