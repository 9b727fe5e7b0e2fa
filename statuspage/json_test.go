// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

func TestStatusJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.fill()
		var got struct {
			At     time.Time
			Queues []map[string]any
		}
		fromJSON(t, get(t, w.page, "/status.json"), &got)
		if !got.At.Equal(time.Now()) {
			t.Errorf("at = %v, want %v", got.At, time.Now())
		}
		if len(got.Queues) != 1 {
			t.Fatalf("%d queues, want 1", len(got.Queues))
		}
		runs := got.Queues[0]["runs"].(map[string]any)
		delete(got.Queues[0], "runs")
		for name, want := range map[string]any{
			"name": "assets", "items": 7.0, "in_sync": 2.0, "ready": 0.0, "waiting": 3.0, "held": 1.0, "in_flight": 1.0, "idle": 1.0,
			"failing": 2.0, "given_up": 1.0, "longest_ready_seconds": 0.0, "longest_in_flight_seconds": 30.0, "longest_pending_seconds": 30.0,
			"dropped": 0.0, "items_url": "items.json?queue=assets",
		} {
			if got := got.Queues[0][name]; got != want {
				t.Errorf("%s = %v, want %v", name, got, want)
			}
		}
		// Six runs ended; a bucket of ten seconds has them all.
		if got := got.Queues[0]["runs_per_second"].(float64); got != 6.0/30 {
			t.Errorf("runs_per_second = %v, want %v", got, 6.0/30)
		}
		if got := got.Queues[0]["p99_seconds"].(float64); got < 0.035 || got > 0.06 {
			t.Errorf("p99_seconds = %v, want about 0.05", got)
		}
		for outcome, want := range map[string]float64{
			"succeeded": 2, "requeued": 2, "retrying": 1, "terminal_error": 1, "gave_up": 0, "aborted": 0,
		} {
			if got := runs[outcome]; got != want {
				t.Errorf("runs %s = %v, want %v", outcome, got, want)
			}
		}
	})
}

// aheadQueue is a queue on a machine whose clock is an hour ahead.
type aheadQueue struct{ *reconcile.Queue[string] }

func (q aheadQueue) All() iter.Seq2[string, reconcile.State] {
	return func(yield func(string, reconcile.State) bool) {
		for item, s := range q.Queue.All() {
			s.Since = s.Since.Add(time.Hour)
			if !yield(item, s) {
				return
			}
		}
	}
}

func TestStatusJSONClockAhead(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	queue.Enqueue("b")
	queue.Dequeue(t.Context())
	page := statuspage.New(&statuspage.Loop[string]{Name: "assets", Queue: aheadQueue{queue}})
	var got struct{ Queues []map[string]any }
	fromJSON(t, get(t, page, "/status.json"), &got)
	for _, name := range []string{"longest_ready_seconds", "longest_in_flight_seconds"} {
		if got := got.Queues[0][name]; got != 0.0 {
			t.Errorf("%s = %v, want 0", name, got)
		}
	}
}

func TestItemsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := newWorld(t, 8)
		w.fill()
		var all items
		fromJSON(t, get(t, w.page, "/items.json"), &all)
		if got, want := all.names(), "refused retrying running fine held planned well"; got != want {
			t.Errorf("by attention: %s, want %s", got, want)
		}
		got := make(map[string]item)
		for _, i := range all.Items {
			got[i.Name] = i
		}
		at := func(d time.Duration) time.Time { return begin.Add(d) }
		for _, want := range []item{
			{Name: "refused", Phase: "idle", Since: at(50 * time.Millisecond), Failing: true, Failures: 1, Error: "region cannot change", Outcome: "terminal_error", Ended: at(50 * time.Millisecond), Took: 0.05},
			{Name: "retrying", Phase: "waiting", Since: at(40 * time.Millisecond), Due: at(time.Hour + 40*time.Millisecond), Failing: true, Failures: 1, Error: "quota exceeded", Outcome: "retrying", Ended: at(40 * time.Millisecond), Took: 0.04},
			{Name: "running", Phase: "in flight", Since: begin},
			{Name: "held", Phase: "waiting", Since: at(30 * time.Millisecond), Due: at(2*time.Hour + 30*time.Millisecond), NotBefore: at(2*time.Hour + 30*time.Millisecond), Outcome: "requeued", Ended: at(30 * time.Millisecond), Took: 0.03},
			{Name: "planned", Phase: "waiting", Since: at(20 * time.Millisecond), Due: at(time.Hour + 20*time.Millisecond), Error: "being made: requeue within 1h0m0s", Outcome: "requeued", Ended: at(20 * time.Millisecond), Took: 0.02},
			{Name: "fine", Phase: "waiting", InSync: true, Since: at(10 * time.Millisecond), Due: at(time.Hour + 10*time.Millisecond), Error: "in sync: recheck within 1h0m0s", Outcome: "succeeded", Ended: at(10 * time.Millisecond), Took: 0.01},
			{Name: "well", Phase: "idle", InSync: true, Since: at(time.Millisecond), Outcome: "succeeded", Ended: at(time.Millisecond), Took: 0.001},
		} {
			got := got[want.Name]
			want.URL = "item.json?item=" + want.Name + "&queue=assets"
			for _, t := range []*time.Time{&got.Since, &got.Due, &got.Ended, &want.Since, &want.Due, &want.Ended} {
				*t = t.UTC().Round(0)
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
				t.Errorf("item\n%+v, want\n%+v", got, want)
			}
		}
		var fine item
		fromJSON(t, get(t, w.page, "/item.json?item=fine"), &fine)
		if len(fine.Runs) != 1 || fine.Runs[0].Outcome != "succeeded" || fine.Runs[0].Next != 3600 {
			t.Errorf("the runs of fine are %+v, want one that succeeded, the next in 3600 s", fine.Runs)
		}
	})
}

func TestItemsJSONQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.fill()
		w.queue.EnqueueAfter("Held 2", 3*time.Hour)
		sleep(time.Second)
		for query, want := range map[string]string{
			"":                         "refused retrying running Held 2 fine held planned well",
			"sort=-attention":          "well planned held fine Held 2 running retrying refused",
			"sort=item":                "Held 2 fine held planned refused retrying running well",
			"sort=-item":               "well running retrying refused planned held fine Held 2",
			"sort=state":               "running Held 2 held planned retrying refused fine well",
			"sort=since":               "running well fine planned held retrying refused Held 2",
			"sort=next":                "fine planned retrying held Held 2 refused running well",
			"sort=-next":               "well running refused Held 2 held retrying planned fine",
			"sort=failures":            "refused retrying Held 2 fine held planned running well",
			"sort=last":                "refused retrying held planned fine well Held 2 running",
			"sort=duration":            "refused retrying held planned fine well Held 2 running",
			"state=in-sync":            "fine well",
			"state=failing":            "refused retrying",
			"state=in-flight":          "running",
			"state=ready":              "",
			"state=waiting":            "retrying Held 2 held planned",
			"state=idle":               "refused",
			"search=HELD":              "Held 2 held",
			"search=quota":             "retrying",
			"search=nothing":           "",
			"size=3":                   "refused retrying running",
			"size=3&page=3":            "planned well",
			"size=3&page=99":           "planned well",
			"size=2&page=2&sort=-item": "retrying refused",
			"search=e&state=waiting":   "retrying Held 2 held planned",
		} {
			var got items
			fromJSON(t, get(t, w.page, "/items.json?queue=assets&"+query), &got)
			if got.names() != want {
				t.Errorf("%s: %s, want %s", query, got.names(), want)
			}
		}
		var page items
		fromJSON(t, get(t, w.page, "/items.json?size=3&page=2"), &page)
		if page.Total != 8 || page.Page != 2 || page.Pages != 3 || page.Next != "items.json?page=3&size=3" {
			t.Errorf("page = %+v", page)
		}
	})
}

// TestOrderOfAttention has items of one kind stand in the order of how bad it is
// with them, and rows that run or wait in turn stay where they are.
func TestOrderOfAttention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		check := func(query, want string) {
			t.Helper()
			var got items
			fromJSON(t, get(t, w.page, "/items.json?"+query), &got)
			if got.names() != want {
				t.Errorf("%s: %s, want %s", query, got.names(), want)
			}
		}
		for _, item := range []string{"a", "b", "c"} {
			w.returns(item, time.Millisecond, errors.New("quota"))
			w.queue.Enqueue(item)
		}
		sleep(time.Minute)
		w.queue.EnqueueNow("c")
		sleep(time.Minute)
		check("", "c a b")
		w.queue.EnqueueNow("b")
		w.queue.EnqueueNow("c") // gives up
		sleep(time.Minute)
		check("", "c b a")
		check("state=idle", "c")

		// Given up, and fed again while all workers are busy: what failed last is
		// failing until it has run.
		for _, item := range []string{"x", "y", "z"} {
			w.returns(item, time.Minute, nil)
			w.queue.Enqueue(item)
			sleep(time.Second)
		}
		w.queue.Enqueue("c")
		w.queue.Enqueue("d")
		sleep(time.Second)
		check("", "b a c d x y z")
		check("state=failing", "b a c")
		check("state=ready", "c d")
		check("sort=next", "c d a b x y z")
		sleep(10 * time.Second) // x, y and z run for long now
		check("", "b a c x y z d")
	})
}

// TestFailuresThatThePageHasNotSeen has a queue with failures from before the page recorded runs.
func TestFailuresThatThePageHasNotSeen(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	if _, err := queue.Dequeue(t.Context()); err != nil {
		t.Fatal(err)
	}
	queue.Requeue("a", reconcile.RequeueOptions{Delay: time.Hour, Err: errors.New("quota")})
	page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: queue})
	var got items
	fromJSON(t, get(t, page, "/items.json?state=failing&search=quota"), &got)
	if got.names() != "a" || got.Items[0].Failures != 1 || got.Items[0].Error != "quota" || got.Items[0].Outcome != "" {
		t.Errorf("items %+v, want a that failed once for quota", got.Items)
	}
}

func TestItemJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.returns("a", 100*time.Millisecond, errors.New("quota exceeded"))
		w.queue.Enqueue("a")
		sleep(3 * time.Hour)
		w.returns("a", 200*time.Millisecond, nil)
		w.returns("b", 300*time.Millisecond, nil)
		w.queue.Enqueue("b") // just before a, so that a waits
		w.queue.Enqueue("a")
		sleep(time.Second)

		var got item
		fromJSON(t, get(t, w.page, "/item.json?item=a"), &got)
		want := "[succeeded 0.2 0.3 0 0  retrying 0.1 0 3600 2 quota exceeded retrying 0.1 0 3600 1 quota exceeded]"
		text := "["
		for i, r := range got.Runs {
			if i == 1 {
				if r.Outcome != "gave_up" || r.Failures != 3 {
					t.Errorf("the run before the last = %+v, want gave_up after 3", r)
				}
				continue
			}
			text += fmt.Sprint(r.Outcome, " ", r.Duration, " ", r.Waited, " ", r.Next, " ", r.Failures, " ", r.Error, " ")
		}
		if text = text[:len(text)-1] + "]"; text != want {
			t.Errorf("runs\n%s, want\n%s", text, want)
		}
		if want := "The last run succeeded 0 s ago. It runs again only after the next event or poll."; got.Story != want {
			t.Errorf("story = %q, want %q", got.Story, want)
		}
		if got.ID == "" || got.URL != "item.json?id="+got.ID+"&item=a&queue=assets" {
			t.Errorf("id %q, url %q", got.ID, got.URL)
		}
	})
}

// TestErrors requests items, queues and pages that do not exist.
func TestErrors(t *testing.T) {
	a := &statuspage.Loop[string]{Name: "a", Queue: reconcile.NewQueue[string]()}
	b := &statuspage.Loop[string]{Name: "b", Queue: reconcile.NewQueue[string]()}
	page := statuspage.New(a, b)
	for _, test := range []struct {
		target string
		status int
		want   string
	}{
		{"/items.json", http.StatusNotFound, "which queue? Add queue=NAME; there are a, b"},
		{"/items.json?queue=c", http.StatusNotFound, `no queue "c"; there are a, b`},
		{"/items.json?queue=a&state=x", http.StatusBadRequest, `no state "x"; there are all, in-sync, failing, in-flight, ready, waiting, idle`},
		{"/item.json?item=x", http.StatusNotFound, "which queue? Add queue=NAME; there are a, b"},
		{"/item.json?queue=a", http.StatusNotFound, "no item is named: want item=NAME"},
		{"/item.json?queue=a&item=x", http.StatusNotFound, `queue "a" does not know item "x", and no run of it is remembered`},
		{"/events?queue=c", http.StatusNotFound, `no queue "c"; there are a, b`},
		{"/events?page=x", http.StatusBadRequest, `page "x": want a number, 1 or more`},
		{"/events?item=x", http.StatusNotFound, `queue "a" does not know item "x", and no run of it is remembered`},
	} {
		want := fmt.Sprintf("{\n  \"error\": %q\n}\n", test.want)
		if got := body(t, get(t, page, test.target), test.status); got != want {
			t.Errorf("%s: %s, want %s", test.target, got, want)
		}
	}
}
