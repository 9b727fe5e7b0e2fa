// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// stream opens a stream of events, which ends with the test, and returns what
// comes: the regions that have changed.
func stream(t *testing.T, h http.Handler, target string) <-chan map[string]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	events, done := follow(t, ctx, h, target)
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return events
}

// TestHeadOfEventsEnds asks for the headers of a stream alone. The answer ends with them:
// the client may already use the connection for its next request.
func TestHeadOfEventsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		r := send(t, page, httptest.NewRequestWithContext(ctx, http.MethodHead, "/events", nil))
		if took := time.Since(began); took != 0 || r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("after %v: %d, %v; want 200 at once, and the type of a stream", took, r.StatusCode, r.Header)
		}
		if got := r.Header.Get("X-Accel-Buffering"); got != "no" {
			t.Errorf("X-Accel-Buffering is %q, want no: nginx would hold events back", got)
		}
	})
}

// follow opens a stream that ends with ctx; done is closed once it has.
func follow(t *testing.T, ctx context.Context, h http.Handler, target string) (events <-chan map[string]string, done <-chan struct{}) {
	t.Helper()
	w := &streamWriter{header: make(http.Header), events: make(chan map[string]string, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, target, nil))
		if w.err != nil {
			t.Error(w.err)
		}
	}()
	return w.events, ended
}

// A streamWriter is a ResponseWriter that reads the events written to it.
type streamWriter struct {
	header http.Header
	buffer bytes.Buffer
	events chan map[string]string
	err    error
}

func (w *streamWriter) Header() http.Header         { return w.header }
func (w *streamWriter) WriteHeader(int)             {}
func (w *streamWriter) Write(p []byte) (int, error) { return w.buffer.Write(p) }

func (w *streamWriter) Flush() {
	text := w.buffer.String()
	w.buffer.Reset()
	if text == ":\n\n" {
		w.events <- map[string]string{"": "ping"}
		return
	}
	data, ok := strings.CutPrefix(text, "event: regions\ndata: ")
	data, end := strings.CutSuffix(data, "\n\n")
	if !ok || !end || strings.ContainsAny(data, "\r\n") {
		w.err = fmt.Errorf("not one event: %q", text)
		return
	}
	var regions map[string]string
	if w.err = json.Unmarshal([]byte(data), &regions); w.err == nil {
		w.events <- regions
	}
}

// names returns the names of the regions that came.
func names(event map[string]string) string {
	var all []string
	for _, name := range []string{"", "title", "queues", "alerts", "tiles", "charts", "items", "groups", "item", "runs"} {
		if _, ok := event[name]; ok {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// TestEvents checks the events of a stream and their times.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.returns("a", 100*time.Millisecond, errors.New("quota"))
		begin := time.Now()
		events := stream(t, w.page, "/events?queue=assets")
		next := func(at time.Duration, want string) map[string]string {
			t.Helper()
			event := <-events
			if got := time.Since(begin); got != at || names(event) != want {
				t.Fatalf("after %v came %q, want after %v %q", got, names(event), at, want)
			}
			return event
		}
		next(0, "title queues alerts tiles charts items groups")
		next(3*time.Second, "charts") // the first bucket has begun to count
		sleep(1500 * time.Millisecond)
		w.queue.Enqueue("a")
		event := next(5*time.Second, "title tiles charts items")
		if !strings.Contains(event["items"], "<bdi>quota</bdi>") {
			t.Errorf("the failed item is not among\n%s", event["items"])
		}
		for s := 6; s < 9; s++ {
			next(time.Duration(s)*time.Second, "tiles charts items") // ages, and the rate
		}
	})
}

// deadlines is a ResponseWriter that knows its deadline.
type deadlines struct {
	*streamWriter
	at atomic.Pointer[time.Time]
}

func (d *deadlines) SetWriteDeadline(t time.Time) error { d.at.Store(&t); return nil }

// TestIdleStreamHasNoDeadline has a page on which nothing changes. No deadline is set
// between two messages, because over HTTP/2 it would end the stream.
func TestIdleStreamHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := statuspage.New(&statuspage.Group{Name: "g"})
		w := &deadlines{streamWriter: &streamWriter{header: make(http.Header), events: make(chan map[string]string, 10)}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
		}()
		for range 3 {
			<-w.events
			synctest.Wait()
			if at := w.at.Load(); !at.IsZero() {
				t.Errorf("while nothing is sent, there is a deadline in %v", time.Until(*at))
			}
		}
		cancel()
		<-ended
	})
}

func TestEventsOfItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.returns("a", 100*time.Millisecond, nil)
		w.queue.EnqueueAfter("a", time.Minute)
		events := stream(t, w.page, "/events?queue=assets&item=a")
		if event := <-events; names(event) != "item runs" || !strings.Contains(event["item"], "The next run is in 1 m;") {
			t.Errorf("first came %v", event)
		}
		w.queue.EnqueueNow("a")
		event := <-events
		if names(event) != "item runs" || !strings.Contains(event["runs"], "succeeded") {
			t.Errorf("after the run came %v", event)
		}
	})
}

// TestEventsPing has a stream without changes.
func TestEventsPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		events := stream(t, statuspage.New(), "/events")
		<-events
		for i := 1; i <= 3; i++ {
			event := <-events
			if got, want := time.Since(begin), time.Duration(i)*15*time.Second; names(event) != "" || event[""] != "ping" || got != want {
				t.Fatalf("after %v came %v, want a ping after %v", got, event, want)
			}
		}
	})
}

// countingQueue counts how often it is asked.
type countingQueue struct {
	*reconcile.Queue[string]
	all, states, stats atomic.Int64
}

func (q *countingQueue) All() iter.Seq2[string, reconcile.State] {
	q.all.Add(1)
	return q.Queue.All()
}

func (q *countingQueue) State(item string) reconcile.State {
	q.states.Add(1)
	return q.Queue.State(item)
}

func (q *countingQueue) Stats() reconcile.Stats {
	q.stats.Add(1)
	return q.Queue.Stats()
}

// TestSnapshotsAreShared has many readers at once, and then none.
func TestSnapshotsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &countingQueue{Queue: reconcile.NewQueue[string]()}
		q.Enqueue("a")
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: q})
		page.Refresh = 2 * time.Second

		sleep(time.Hour)
		if n := q.all.Load() + q.stats.Load() + q.states.Load(); n != 0 {
			t.Errorf("the queue was asked %d times, and nobody looked", n)
		}

		ctx, cancel := context.WithCancel(t.Context())
		var ended []<-chan struct{}
		for i := range 10 {
			_, done := follow(t, ctx, page, fmt.Sprintf("/events?sort=item&page=%d", i+1))
			ended = append(ended, done)
			sleep(150 * time.Millisecond)
		}
		begin := q.all.Load()
		for range 60 { // a program that asks twice a second
			get(t, page, "/items.json")
			sleep(500 * time.Millisecond)
		}
		if n := q.all.Load() - begin; n != 15 {
			t.Errorf("All was called %d times in 30 s, want 15", n)
		}

		cancel()
		for _, done := range ended {
			<-done
		}
		last := q.all.Load()
		sleep(time.Hour)
		if n := q.all.Load() - last; n != 0 {
			t.Errorf("All was called %d times after the last had gone", n)
		}
	})
}

// TestWorkersCallStatsOnceASecond checks how often a worker calls Stats of the queue.
func TestWorkersCallStatsOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &countingQueue{Queue: reconcile.NewQueue[string]()}
		record := (&statuspage.Loop[string]{Name: "q", Queue: q}).OnResult(nil)
		for range 10 {
			for range 1000 {
				record(reconcile.Result[string]{Item: "a", Outcome: reconcile.OutcomeSucceeded})
			}
			time.Sleep(500 * time.Millisecond)
		}
		if n := q.stats.Load(); n != 5 {
			t.Errorf("Stats was called %d times in 5 s, want 5", n)
		}
		if n := q.all.Load() + q.states.Load(); n != 0 {
			t.Errorf("All and State were called %d times by workers", n)
		}
	})
}

// TestEventsEnd ends a stream by its context, and by a reader that has disconnected.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
		ctx, cancel := context.WithCancel(t.Context())
		_, done := follow(t, ctx, page, "/events")
		sleep(10 * time.Second)
		begin := time.Now()
		cancel()
		<-done
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %v to end", d)
		}

		// That a reader has gone shows when something is written.
		page.ServeHTTP(&brokenWriter{httptest.NewRecorder()}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if d := time.Since(begin); d != 0 {
			t.Errorf("a stream to nobody went on for %v", d)
		}
	})
}

type brokenWriter struct{ *httptest.ResponseRecorder }

func (*brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestEventsWithoutFlusher has a handler around the page that hides http.Flusher: the
// stream ends and does not hang, tells the browser when to come again, and one line says so.
func TestEventsWithoutFlusher(t *testing.T) {
	var log bytes.Buffer
	page := statuspage.New(&statuspage.Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
	page.Logger = slog.New(slog.NewTextHandler(&log, nil))
	for range 2 {
		r := httptest.NewRecorder()
		page.ServeHTTP(struct{ http.ResponseWriter }{r}, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/events", nil))
		if got := r.Body.String(); !strings.HasPrefix(got, "event: regions\n") || !strings.HasSuffix(got, "\n\nretry: 5000\nevent: polled\ndata: 5\n\n") {
			t.Errorf("it wrote %q", got)
		}
	}
	if n := strings.Count(log.String(), "hides http.Flusher"); n != 1 {
		t.Errorf("it logs that %d times, want once:\n%s", n, &log)
	}
}
