// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// A world is a queue with a reconciler, and their page. It lives in a bubble.
type world struct {
	queue *reconcile.Queue[string]
	loop  *statuspage.Loop[string]
	page  *statuspage.Page

	mu   sync.Mutex // guards the field below
	runs map[string]func(ctx context.Context) error
}

// does says what a run of an item does; of the others it does nothing.
func (w *world) does(item string, run func(ctx context.Context) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[item] = run
}

// newWorld runs the reconciler until the test ends.
func newWorld(t *testing.T, workers int) *world {
	t.Helper()
	w := &world{queue: reconcile.NewQueue[string](), runs: make(map[string]func(context.Context) error)}
	w.loop = &statuspage.Loop[string]{Name: "assets", Queue: w.queue}
	w.page = statuspage.New(w.loop)
	w.page.Logger = discard
	r := &reconcile.Reconciler[string]{
		Queue:    w.queue,
		Workers:  workers,
		Logger:   discard,
		OnResult: w.loop.OnResult(nil),
		Retry:    func(_ error, failures int) (time.Duration, bool) { return time.Hour, failures < 3 },
		Reconcile: func(ctx context.Context, item string) error {
			w.mu.Lock()
			run := w.runs[item]
			w.mu.Unlock()
			if run == nil {
				return nil
			}
			return run(ctx)
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// returns makes the runs of an item take some time and return an error.
func (w *world) returns(item string, after time.Duration, err error) {
	w.does(item, func(ctx context.Context) error {
		select {
		case <-time.After(after):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// sleep lets time pass in a bubble, and all that is due happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// fill brings one item into each state, and ends 30 s after it began.
func (w *world) fill() {
	w.returns("well", time.Millisecond, nil)
	w.returns("fine", 10*time.Millisecond, fmt.Errorf("in sync: %w", reconcile.RecheckWithin(time.Hour)))
	w.returns("planned", 20*time.Millisecond, fmt.Errorf("being made: %w", reconcile.RequeueWithin(time.Hour)))
	w.returns("held", 30*time.Millisecond, reconcile.RequeueAfter(2*time.Hour))
	w.returns("retrying", 40*time.Millisecond, errors.New("quota exceeded"))
	w.returns("refused", 50*time.Millisecond, reconcile.Terminal(errors.New("region cannot change")))
	w.returns("running", time.Minute, nil)
	for _, item := range []string{"well", "fine", "planned", "held", "retrying", "refused", "running"} {
		w.queue.Enqueue(item)
	}
	sleep(30 * time.Second)
}

// get asks a handler for a page and returns the answer.
func get(t *testing.T, h http.Handler, target string, change ...func(r *http.Request)) *http.Response {
	t.Helper()
	return send(t, h, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil), change...)
}

// post sends a form.
func post(t *testing.T, h http.Handler, target string, form url.Values, change ...func(r *http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(form.Encode()))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(t, h, r, change...)
}

func send(t *testing.T, h http.Handler, r *http.Request, change ...func(r *http.Request)) *http.Response {
	t.Helper()
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func header(name, value string) func(r *http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// body returns the body of an answer, which is to have that status.
func body(t *testing.T, r *http.Response, status int) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != status {
		t.Fatalf("status %d, want %d:\n%.500s", r.StatusCode, status, data)
	}
	return string(data)
}

// fromJSON reads the body of an answer, which is to be well, into v.
func fromJSON(t *testing.T, r *http.Response, v any) {
	t.Helper()
	text := body(t, r, http.StatusOK)
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q, want application/json", got)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
}

type items struct {
	Queue              string
	Total, Page, Pages int
	Items              []item
	Next               string `json:"next_url"`
}

type item struct {
	Name, ID, Phase string
	Since, Due      time.Time
	InSync          bool      `json:"in_sync"`
	NotBefore       time.Time `json:"not_before"`
	Again           bool
	Failing         bool
	Failures        int
	Error           string
	Outcome         string    `json:"last_outcome"`
	Ended           time.Time `json:"last_run"`
	Took            float64   `json:"last_duration_seconds"`
	URL, Story      string
	Runs            []struct {
		Ended    time.Time
		Outcome  string
		Duration float64 `json:"duration_seconds"`
		Waited   float64 `json:"waited_seconds"`
		Next     float64 `json:"next_seconds"`
		Failures int
		Error    string
	}
}

// names returns the names of the items on a page.
func (i items) names() string {
	var names []string
	for _, item := range i.Items {
		names = append(names, item.Name)
	}
	return strings.Join(names, " ")
}

var discard = slog.New(slog.DiscardHandler)

// getJSON asks a server.
func getJSON(url string, v any) error {
	r, err := http.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	return json.NewDecoder(r.Body).Decode(v)
}
