// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
	"github.com/reconkernel/reconcile/statuspage"
)

// asked returns what a page answers, which is JSON.
func asked(t *testing.T, page http.Handler, r *http.Request) map[string]any {
	t.Helper()
	r.Host = "localhost"
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s %s: %d, %s", r.Method, r.URL, w.Code, w.Body)
	}
	return answer
}

// A page of a process that takes no items shows those of others, and its buttons
// reach them.
func TestViewOnAPage(t *testing.T) {
	s := natstest.New(t)
	worker := newQueue[string](t, s, queue.Config{Name: "q"})
	may := natstest.Documented(t, "reader", "q")
	may.Publish.Allow = append(may.Publish.Allow, natstest.Documented(t, "enqueuer", "q").Publish.Allow...)
	other, err := queue.New[string](t.Context(), s.JetStream(t, natstest.As(t, may)), queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, other)

	enqueue(t, worker, "runs")
	mustTake(t, worker, "runs")
	enqueue(t, worker, "fails")
	mustTake(t, worker, "fails")
	worker.Requeue("fails", reconcile.RequeueOptions{Err: errors.New("no cloud"), Delay: time.Hour})
	worker.EnqueueAfter("waits", time.Hour)
	flush(t, worker)

	var cut error
	group := new(statuspage.Group)
	view := &queue.View[string]{Queue: other, List: statuspage.Poll(group, "list", func(context.Context) ([]queue.Entry[string], error) {
		if cut != nil {
			return nil, cut
		}
		return other.All(t.Context()) // however long it takes
	})}
	newPage := func() *statuspage.Page { // which has seen nothing yet
		page := statuspage.New(&statuspage.Loop[string]{Name: "vms", Queue: view}, group)
		page.AllowActions = true
		return page
	}
	shows := func(want map[string]string) error {
		got := make(map[string]string)
		for _, item := range asked(t, newPage(), httptest.NewRequest("GET", "/items.json?queue=vms", nil))["items"].([]any) {
			item := item.(map[string]any)
			got[fmt.Sprint(item["name"])] = fmt.Sprint(item["phase"], ", failing ", item["failing"], ", ", item["error"])
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the page has %q, want %q", got, want)
		}
		return nil
	}
	act := func(action, item string) {
		t.Helper()
		form := url.Values{"queue": {"vms"}, "item": {item}, "action": {action}}
		r := httptest.NewRequest("POST", "/item.json", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		asked(t, newPage(), r)
	}
	all := map[string]string{"runs": "in flight, failing false, <nil>", "fails": "waiting, failing true, no cloud", "waits": "waiting, failing false, <nil>"}
	natstest.Eventually(t, func(context.Context) error { return shows(all) })
	if got := view.Stats(); got.InFlight != 1 || got.Waiting != 2 || got.Ready != 0 {
		t.Errorf("Stats: %+v, want one in flight and two that wait", got)
	}
	cut = errors.New("cut off")
	if err := shows(all); err != nil { // as it was
		t.Error(err)
	}
	if groups := fmt.Sprint(asked(t, newPage(), httptest.NewRequest("GET", "/status.json", nil))["groups"]); !strings.Contains(groups, "cut off") {
		t.Errorf("the page does not say that the list fails: %s", groups)
	}
	cut = nil

	act("reconcile", "fails")
	mustTake(t, worker, "fails")
	act("cancel", "waits")
	natstest.Eventually(t, func(context.Context) error {
		return shows(map[string]string{"runs": "in flight, failing false, <nil>", "fails": "in flight, failing true, no cloud"})
	})

	// With the server down, the first item is the last.
	for i := range 10 {
		worker.EnqueueAfter(fmt.Sprint(i), time.Hour)
	}
	flush(t, worker)
	page := newPage()
	page.Refresh = time.Hour
	asked(t, page, httptest.NewRequest("GET", "/items.json", nil))
	s.Kill()
	began := time.Now()
	r := httptest.NewRequest("POST", "/items.json", strings.NewReader("queue=vms&action=cancel&all=true"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host = "localhost"
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	if took := time.Since(began); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "after 0 of 12 items") || took > 15*time.Second {
		t.Errorf("cancel all after %v: %d, %s; want %d within 15s, after 0 of 12 items", took, w.Code, w.Body, http.StatusServiceUnavailable)
	}
}
