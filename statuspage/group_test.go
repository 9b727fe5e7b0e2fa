// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/supervise"
)

// members returns what a page says of the members of its only group.
func members(t *testing.T, page *statuspage.Page) string {
	t.Helper()
	var got struct {
		Groups []struct {
			Members []struct {
				Name, State, Error string
				Since, Succeeded   time.Time
				Starts, Failures   int
			}
		}
	}
	fromJSON(t, get(t, page, "/status.json"), &got)
	var lines []string
	for _, m := range got.Groups[0].Members {
		line := fmt.Sprintf("%s: %s, %d", m.Name, m.State, m.Starts)
		if !m.Since.IsZero() {
			line += fmt.Sprintf(", %v", time.Since(m.Since))
		}
		if m.Error != "" {
			line += ", " + m.Error
		}
		if m.Failures > 0 {
			line += fmt.Sprintf(", %d in a row", m.Failures)
		}
		if m.Failures > 0 && !m.Succeeded.IsZero() {
			line += fmt.Sprintf(", succeeded %v ago", time.Since(m.Succeeded))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &statuspage.Group{Name: "Controller"}
		group.Logger = discard
		page := statuspage.New(group)
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			if got := members(t, page); got != want {
				t.Errorf("%s:\n%s\nwant\n%s", when, got, want)
			}
		}

		group.Add("reconciler", reconcile.RunFunc(untilDone))
		group.Add("once", reconcile.RunFunc(func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done(): // the test failed
			}
			return nil
		}))
		stream := group.Watch("stream", reconcile.RunFunc(func(ctx context.Context) error {
			select {
			case <-time.After(10 * time.Second):
				return errors.New("connection reset")
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}))
		group.Add("feeder", supervise.Restart(func(error, int) (time.Duration, bool) { return 5 * time.Second, true }, stream))
		check("before Run", "reconciler: not started, 0\nonce: not started, 0\nstream: not started, 0\nfeeder: not started, 0")

		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- group.Run(ctx) }()
		check("at once", "reconciler: running, 1, 0s\nonce: running, 1, 0s\nstream: running, 1, 0s\nfeeder: running, 1, 0s")
		sleep(11 * time.Second)
		check("after a failure", "reconciler: running, 1, 11s\nonce: ended, 1, 10s\nstream: failed, 1, 1s, connection reset\nfeeder: running, 1, 11s")
		if text := body(t, get(t, page, "/"), http.StatusOK); !strings.Contains(text, `<p class="alert">stream failed: connection reset</p>`) {
			t.Errorf("the page has no alert:\n%s", text)
		}
		sleep(5 * time.Second)
		check("after the restart", "reconciler: running, 1, 16s\nonce: ended, 1, 15s\nstream: running, 2, 1s, connection reset\nfeeder: running, 1, 16s")
		if text := body(t, get(t, page, "/"), http.StatusOK); !strings.Contains(text, "stream failed: connection reset (it runs again)") {
			t.Errorf("the page has no alert:\n%s", text)
		}

		stop := group.Add("late", reconcile.RunFunc(untilDone))
		check("after Add", "reconciler: running, 1, 16s\nonce: ended, 1, 15s\nstream: running, 2, 1s, connection reset\nfeeder: running, 1, 16s\nlate: running, 1, 0s")
		stop()
		stop()
		check("after stop", "reconciler: running, 1, 16s\nonce: ended, 1, 15s\nstream: running, 2, 1s, connection reset\nfeeder: running, 1, 16s")

		cancel(errors.New("enough"))
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
		check("at the end", "reconciler: ended, 1, 0s\nonce: ended, 1, 15s\nstream: ended, 2, 0s, connection reset\nfeeder: ended, 1, 0s")
	})
}

// TestGroupWaits has members that supervise.After holds back, one of them twice, and one
// that is never ready.
func TestGroupWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &statuspage.Group{Group: supervise.Group{Logger: discard}}
		page := statuspage.New(group)
		in := func(d time.Duration, err error) func(context.Context) error {
			return func(ctx context.Context) error {
				select {
				case <-time.After(d):
				case <-ctx.Done():
				}
				return err
			}
		}
		group.Add("runs", supervise.After(in(2*time.Second, nil), supervise.After(in(2*time.Second, nil), reconcile.RunFunc(untilDone))))
		source := group.Watch("source", supervise.After(in(5*time.Second, errors.New("no cache")), reconcile.RunFunc(untilDone)))
		group.Add("feeder", supervise.Restart(func(error, int) (time.Duration, bool) { return time.Hour, true }, source))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- group.Run(ctx) }()
		for _, want := range []string{
			"runs: waiting, 0, 1s\nsource: waiting, 0, 1s\nfeeder: running, 1, 1s",
			"runs: waiting, 0, 1s\nsource: waiting, 0, 3s\nfeeder: running, 1, 3s",
			"runs: running, 1, 1s\nsource: failed, 0, 0s, not ready: no cache\nfeeder: running, 1, 5s",
		} {
			sleep(time.Second)
			if got := members(t, page); got != want {
				t.Errorf("the members are\n%s\nwant\n%s", got, want)
			}
			sleep(time.Second)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

// TestGroupEndsFeedersFirst checks that a member keeps its place in the order in
// which a group ends: a Reconciler last, however it is wrapped.
func TestGroupEndsFeedersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := reconcile.NewQueue[string]()
		ended := make(chan string, 10)
		group, inner := &statuspage.Group{}, &statuspage.Group{}
		group.Logger, inner.Logger = discard, discard
		reconciler := &reconcile.Reconciler[string]{
			Queue: queue, Logger: discard, Grace: time.Hour, Workers: 2,
			Reconcile: func(ctx context.Context, item string) error {
				time.Sleep(time.Minute)
				ended <- item
				return nil
			},
		}
		inner.Add("reconciler", group.Watch("watched", reconciler))
		group.Add("inner", inner)
		group.Add("feeder", reconcile.RunFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(250 * time.Millisecond)
			queue.Enqueue("last words")
			time.Sleep(250 * time.Millisecond)
			ended <- "feeder"
			return nil
		}))
		queue.Enqueue("first")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := group.Run(ctx); err != nil {
			t.Fatal(err)
		}
		// A worker that has nothing to do is still there for the last item.
		close(ended)
		var order []string
		for name := range ended {
			order = append(order, name)
		}
		if got := fmt.Sprint(order); got != "[feeder first last words]" {
			t.Errorf("in this order ended %s, want [feeder first last words]", got)
		}
	})
}

// atEnd is a Runner that returns an error when its context ends.
func atEnd(of func(error) error) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error { return of(untilDone(ctx)) })
}

func TestGroupFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			runner      reconcile.Runner
			run, member string
		}{
			{reconcile.RunFunc(func(context.Context) error { panic("at the disco") }), "a: panic: at the disco", "a: failed, 1, 0s, panic or runtime.Goexit; the log says where"},
			{reconcile.RunFunc(func(context.Context) error { return errors.New("no") }), "a: no", "a: failed, 1, 0s, no"},
			{nil, "a: statuspage: Group needs a Runner, got nil", "a: failed, 0, 0s, statuspage: Group needs a Runner, got nil"},
			{atEnd(func(err error) error { return errors.Join(err, errors.New("no flush")) }), "a: context deadline exceeded\nno flush", "a: failed, 1, 0s, context deadline exceeded\nno flush"},
			{atEnd(func(err error) error { return fmt.Errorf("read: %w", err) }), "<nil>", "a: ended, 1, 0s"},
		} {
			group := &statuspage.Group{}
			page := statuspage.New(group)
			group.Add("a", test.runner)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if err := group.Run(ctx); fmt.Sprint(err) != test.run {
				t.Errorf("Run = %v, want %s", err, test.run)
			} else if errors.Is(err, reconcile.ErrTerminal) != (test.runner == nil) {
				t.Errorf("Run = %v, want a terminal error only for a Runner that is nil", err)
			}
			cancel()
			if got := members(t, page); got != test.member {
				t.Errorf("members = %s, want %s", got, test.member)
			}
		}
	})
}

// A method of an error that panics does not keep the Group from ending.
func TestGroupEndsWithAnErrorWhoseMethodPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group := &statuspage.Group{}
		page := statuspage.New(group)
		group.Add("a", reconcile.RunFunc(func(context.Context) error { return (*fs.PathError)(nil) }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := group.Run(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("Run = %v, want an error before ctx ends", err)
		}
		if got := members(t, page); !strings.HasPrefix(got, "a: failed, 1, 0s, ") {
			t.Errorf("members = %s, want one that failed", got)
		}
	})
}

// TestGroupIsBounded adds more members than a Group remembers. One that runs stays, and
// one that was forgotten is shown while it runs again.
func TestGroupIsBounded(t *testing.T) {
	long := errors.New(strings.Repeat("x", 10_000))
	run := func(err error) func(g *statuspage.Group) {
		return func(g *statuspage.Group) {
			_ = g.Watch("short", reconcile.RunFunc(func(context.Context) error { return err })).Run(context.Background())
		}
	}
	for name, add := range map[string]func(g *statuspage.Group){
		"ended":       run(nil),
		"failed":      run(long),
		"not started": func(g *statuspage.Group) { g.Watch("short", nil) },
		"polled": func(g *statuspage.Group) {
			_, _ = statuspage.Poll(g, "short", func(context.Context) (int, error) { return 0, nil })(context.Background())
		},
		"poll failed": func(g *statuspage.Group) {
			_, _ = statuspage.Poll(g, "short", func(context.Context) (int, error) { return 0, long })(context.Background())
		},
		"poll not started": func(g *statuspage.Group) {
			statuspage.Poll(g, "short", func(context.Context) (int, error) { return 0, nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				group := &statuspage.Group{}
				group.Logger = discard
				page := statuspage.New(group)
				group.Add("stays", reconcile.RunFunc(untilDone))
				first := statuspage.Poll(group, "first", func(context.Context) (int, error) { return 0, nil })
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- group.Run(ctx) }()
				for range 1000 {
					add(group)
					synctest.Wait()
				}
				lines := strings.Split(members(t, page), "\n")
				if len(lines) != 200 || !strings.HasPrefix(lines[0], "stays: running") {
					t.Errorf("%d members, the first is %.100s; want 200, and the one that runs still", len(lines), lines[0])
				}
				if _, err := first(t.Context()); err != nil {
					t.Fatal(err)
				}
				if lines := members(t, page); !strings.Contains(lines, "first: succeeded, 1") {
					t.Error("a poll that goes on is not shown")
				}
				stop := group.Add(strings.Repeat("n", 1<<20), reconcile.RunFunc(untilDone))
				synctest.Wait()
				if text := body(t, get(t, page, "/status.json"), http.StatusOK); len(text) > 400_000 {
					t.Errorf("the page has %d bytes", len(text))
				}
				stop()
				cancel()
				<-done
				if text := members(t, page); strings.Contains(text, "nnn") {
					t.Error("a member is shown after its stop")
				}
			})
		})
	}
}
