// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestLoggerInsideReconcileCarriesTheItem(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: d.of(q),
					Reconcile: func(ctx context.Context, _ string) error {
						ctx, cancel := context.WithCancel(ctx)
						defer cancel()
						reconcile.Logger(ctx).Info("mine", "more", 7)
						return errBoom
					},
					Name:   "buckets",
					Retry:  minutes,
					Logger: book.logger(),
				})
				q.Enqueue("b1")
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				failures := 0
				for _, l := range book.from(slog.LevelInfo) {
					if l.Message != "mine" {
						continue
					}
					l.mustSay(t, slog.LevelInfo, map[string]string{
						"reconciler": "buckets", "item": "b1", "failures": fmt.Sprint(failures), "more": "7",
					})
					failures++
				}
				if failures != 3 {
					t.Errorf("%d runs, want 3", failures)
				}
				run.end()
			})
		})
	}
}

func TestLoggerOutsideIsTheDefault(t *testing.T) {
	book := newLogBook()
	setDefaultLogger(t, book)
	if got := reconcile.Logger(t.Context()); got != slog.Default() {
		t.Errorf("Logger(ctx) outside Reconcile = %v, want slog.Default()", got)
	}
}

func TestReconcilerLoggerNilMeansTheDefault(t *testing.T) {
	book := newLogBook()
	setDefaultLogger(t, book)
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, _ string) error {
				reconcile.Logger(ctx).Info("mine")
				return errBoom
			},
			Name:  "buckets",
			Retry: reconcile.NoRetry,
		})
		q.Enqueue("b1")
		synctest.Wait()
		lines := book.from(slog.LevelInfo)
		if len(lines) != 2 {
			t.Fatalf("log lines %v, want that of Reconcile and that of the outcome", lines)
		}
		about := map[string]string{"reconciler": "buckets", "item": "b1"}
		lines[0].mustSay(t, slog.LevelInfo, about, "mine")
		lines[1].mustSay(t, slog.LevelError, about, "boom")
		run.end()
	})
}

// An asset knows what to tell about itself.
type asset struct{ region, name string }

func (a asset) LogValue() slog.Value { return slog.StringValue(a.region + "/" + a.name) }

func TestLogHonoursTheLogValuerOfAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[asset]()
		book := newLogBook()
		run := launch(t, &reconcile.Reconciler[asset]{
			Queue: q,
			Reconcile: func(ctx context.Context, _ asset) error {
				reconcile.Logger(ctx).Info("mine")
				return errBoom
			},
			Retry:  minutes,
			Logger: book.logger(),
		})
		q.Enqueue(asset{"eu", "b1"})
		synctest.Wait()
		lines := book.from(slog.LevelDebug)
		if len(lines) != 3 {
			t.Errorf("log lines %v, want start, mine and outcome", lines)
		}
		for _, l := range lines {
			l.mustSay(t, l.Level, map[string]string{"item": "eu/b1"})
		}
		run.end()
	})
}

// A handler that does not want debug lines is not given any.
func TestLogAsksWhetherALevelIsEnabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Reconcile: nothing, Logger: slog.New(warnOnly{book}),
		})
		q.Enqueue("a")
		synctest.Wait()
		if lines := book.from(slog.LevelDebug); len(lines) != 0 {
			t.Errorf("log lines %v, want none below warnings", lines)
		}
		run.end()
	})
}

type warnOnly struct{ slog.Handler }

func (h warnOnly) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (h warnOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnOnly{h.Handler.WithAttrs(attrs)}
}

// A retry and a plan say when; what ended well has no next.
func TestLogOfARunTellsTheNext(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		next string
	}{
		"succeeded": {nil, "<nil>"},
		"plan":      {reconcile.RequeueAfter(time.Hour), "1h0m0s"},
		"retry":     {errBoom, "1m0s"},
		"gave up":   {reconcile.Terminal(errBoom), "<nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				run := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(context.Context, string) error { return c.err },
					Retry:     minutes,
					Logger:    book.logger(),
				})
				q.Enqueue("a")
				synctest.Wait()
				lines := book.from(slog.LevelDebug)
				last := lines[len(lines)-1]
				if next := last.Attrs["next"].String(); next != c.next {
					t.Errorf("%s: next is %s, want %s", last, next, c.next)
				}
				run.end()
			})
		})
	}
}

// A slowHandler takes a second for each line of a run that ended.
type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "run succeeded" {
		time.Sleep(time.Second)
	}
	return nil
}

// The next item is taken when the log is done with the one before.
func TestTimeThatTheLogTakesIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Enqueue("b")
		q.Close()
		r := &reconcile.Reconciler[string]{
			Queue: q, Logger: slog.New(slowHandler{slog.DiscardHandler}),
			Reconcile: func(_ context.Context, item string) error {
				if s := q.State(item); !s.Since.Equal(time.Now()) {
					t.Errorf("%s is in flight since %v, want now, %v", item, s.Since, time.Now())
				}
				return nil
			},
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
