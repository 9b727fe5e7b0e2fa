// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Of a Dequeuer that is not a Queue it is not known when its items change.
func TestUntilChangedOfAForeignQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{Queue: plainly(q)}, func(ctx context.Context) error {
			changed, stop := reconcile.UntilChanged(ctx)
			q.Enqueue("x")
			wantCause(t, changed, nil)
			stop()
			wantCause(t, changed, context.Canceled)
			return errBoom
		}), reconcile.Retrying)
	})
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		r := reconcile.Reconciler[string]{Queue: leased{q, func(ctx context.Context) context.Context {
			ctx, lose := context.WithCancelCause(ctx)
			time.AfterFunc(time.Minute, func() { lose(reconcile.ErrLeaseLost) })
			return ctx
		}}}
		wantOutcome(t, oneRun(t, q, r, func(ctx context.Context) error {
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			q.Enqueue("x")
			<-changed.Done()
			wantCause(t, changed, reconcile.ErrLeaseLost)
			return errBoom
		}), reconcile.Aborted)
	})
}

func TestUntilChangedOutsideOfARun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	changed, stop := reconcile.UntilChanged(ctx)
	defer stop()
	if err := changed.Err(); err != nil {
		t.Errorf("ended: %v", err)
	}
	cancel(errEnd)
	if cause := context.Cause(changed); cause != errEnd {
		t.Errorf("cause %v, want that of ctx", cause)
	}
	changed, stop = reconcile.UntilChanged(context.Background())
	stop()
	stop()
	if cause := context.Cause(changed); cause != context.Canceled {
		t.Errorf("cause %v after stop, want %v", cause, context.Canceled)
	}
}

// Whatever context of the run it is called with, it finds the run; and the run
// may call it as often as it likes, wherever.
func TestUntilChangedManyTimesInARun(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			valued := context.WithValue(ctx, key{}, "v")
			timed, cancel := context.WithTimeout(valued, time.Hour)
			defer cancel()
			contexts := []context.Context{ctx, valued, timed, context.WithoutCancel(timed)}
			inner, stop := reconcile.UntilChanged(ctx)
			defer stop()
			contexts = append(contexts, inner)
			var mu sync.Mutex
			var all []context.Context
			var calls sync.WaitGroup
			for _, ctx := range contexts {
				for range 3 {
					calls.Go(func() {
						changed, stop := reconcile.UntilChanged(ctx)
						context.AfterFunc(changed, stop)
						if got, want := changed.Value(key{}), ctx.Value(key{}); got != want {
							t.Errorf("it has the value %v, want that of the context it is derived from, %v", got, want)
						}
						mu.Lock()
						defer mu.Unlock()
						all = append(all, changed)
					})
				}
			}
			calls.Wait()
			if n := reconcile.Watchers(q); n != 16 {
				t.Errorf("%d watchers, want 16", n)
			}
			mustAgree(t, q)
			for _, i := range []int{0, 7, 14} { // some give up
				_, stop := reconcile.UntilChanged(all[i])
				stop()
			}
			q.Enqueue("x")
			for _, changed := range all {
				wantCause(t, changed, reconcile.ErrChanged)
			}
			if n := reconcile.Watchers(q); n != 0 {
				t.Errorf("%d watchers are left", n)
			}
			return errBoom
		}), reconcile.Requeued)
	})
}

// A badContext is user code that panics, or takes long, when a context derived from
// it ends.
type badContext struct {
	context.Context
	done chan struct{}
	end  func()
}

func (b badContext) Done() <-chan struct{} { return b.done }

func (b badContext) AfterFunc(func()) func() bool {
	return func() bool { b.end(); return true }
}

// A context of a run that panics as it ends harms nobody but that run.
func TestUntilChangedOfAContextThatPanics(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				book := newLogBook()
				var changed []context.Context
				hour := func() { time.Sleep(time.Hour) }
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q, Name: "disks", Logger: book.logger(),
					Reconcile: func(ctx context.Context, _ string) error {
						if len(changed) > 0 {
							return nil
						}
						for _, ctx := range []context.Context{ctx, badContext{ctx, make(chan struct{}), end}, ctx} {
							c, _ := reconcile.UntilChanged(ctx)
							changed = append(changed, c)
						}
						hour()
						return errBoom
					},
				})
				q.Enqueue("x")
				synctest.Wait()
				book.clear()
				q.Enqueue("x") // does not panic
				for _, c := range changed {
					wantCause(t, c, reconcile.ErrChanged)
				}
				book.onlyLine(t, slog.LevelError).mustSay(t, slog.LevelError, map[string]string{"item": "x", "reconciler": "disks"}, "context")
				time.Sleep(2 * time.Hour)
				wantPhase(t, q, "x", reconcile.Idle)
				run.end()
			})
		})
	}
}

// A trapContext panics once when it is asked for its error.
type trapContext struct {
	context.Context
	set *atomic.Bool
}

func (c trapContext) Err() error {
	if c.set.Swap(false) {
		panic("no disk")
	}
	return c.Context.Err()
}

// That an earlier run was outdated says nothing of one whose end is not looked at,
// because the context of Run panics.
func TestRunAfterOneThatEndedEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		var results resultBook[string]
		set := new(atomic.Bool)
		run := launch(t, reconcile.RunFunc(func(ctx context.Context) error {
			return (&reconcile.Reconciler[string]{
				Queue: q, OnResult: results.add, Logger: unlogged(),
				Reconcile: func(ctx context.Context, item string) error {
					switch len(results.all()) {
					case 0:
						_, stop := reconcile.UntilChanged(ctx)
						defer stop()
						q.Enqueue(item)
						return errBoom
					case 1:
						set.Store(true)
						return errBoom
					}
					return nil
				},
			}).Run(trapContext{ctx, set})
		}))
		q.Enqueue("x")
		time.Sleep(time.Minute)
		synctest.Wait()
		var outcomes []reconcile.Outcome
		for _, r := range results.all() {
			outcomes = append(outcomes, r.Outcome)
		}
		if want := []reconcile.Outcome{reconcile.Requeued, reconcile.Retrying, reconcile.Succeeded}; !slices.Equal(outcomes, want) {
			t.Errorf("outcomes %q, want %q", outcomes, want)
		}
		run.end()
	})
}

// A run may return as soon as its context has ended, while whoever ended it is not
// through with that yet. It is known by then why.
func TestUntilChangedTakesTimeToEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		judged := make(chan struct{})
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				if len(results.all()) > 0 {
					return nil
				}
				slow := badContext{ctx, make(chan struct{}), func() { <-judged }}
				changed, stop := reconcile.UntilChanged(slow)
				defer stop()
				<-changed.Done()
				return errBoom
			},
			OnResult: func(r reconcile.Result[string]) {
				if results.add(r); len(results.all()) == 1 {
					close(judged)
				}
			},
		})
		q.Enqueue("x")
		synctest.Wait()
		q.Enqueue("x") // ends the context
		run.end()
		wantOutcome(t, results.all()[0], reconcile.Requeued)
	})
}

// A context that takes long to end keeps nobody waiting who was handed an item at the
// same time.
func TestConsumersAreToldBeforeWatchers(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		release := make(chan struct{})
		end := sync.OnceFunc(func() { close(release) })
		defer end() // also when the test fails before its end
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				_, stop := reconcile.UntilChanged(badContext{ctx, make(chan struct{}), func() { <-release }})
				defer stop()
				<-release
				return nil
			},
		})
		q.Enqueue("x")
		synctest.Wait()
		other := startDequeue(t.Context(), q)
		mustWait(t, other)
		q.EnqueueAfter("x", time.Minute)
		q.EnqueueAfter("y", time.Minute)
		time.Sleep(time.Minute)
		if d := mustReturn(t, other); d.item != "y" || d.err != nil {
			t.Errorf("Dequeue: %q, %v, want y", d.item, d.err)
		}
		q.Remove("x")
		end()
		run.end()
	})
}

// A nosyContext asks the queue in each of its methods, as it may: none of them
// is called with the lock held.
type nosyContext struct {
	context.Context
	q *reconcile.Queue[string]
}

func (n nosyContext) Done() <-chan struct{} { n.q.Len(); return n.Context.Done() }
func (n nosyContext) Err() error            { n.q.Len(); return n.Context.Err() }
func (n nosyContext) Value(key any) any     { n.q.Len(); return n.Context.Value(key) }

func TestWatchersCallNoContextUnderTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		var changed context.Context
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			nosy := nosyContext{context.WithoutCancel(ctx), q}
			_, stop := reconcile.UntilChanged(nosy)
			stop()
			changed, stop = reconcile.UntilChanged(nosy)
			defer stop()
			q.Enqueue("x")
			return errBoom
		}), reconcile.Requeued)
		wantCause(t, changed, reconcile.ErrChanged)

		q.Enqueue("x")
		ctx, cancel := context.WithCancelCause(t.Context())
		idle := startWait(func() error { return q.WaitIdle(nosyContext{ctx, q}) })
		item := startWait(func() error { return q.WaitItem(nosyContext{ctx, q}, "x") })
		cancel(errEnd)
		for _, w := range []<-chan waitResult{idle, item} {
			if r := mustHaveReturned(t, w); !errors.Is(r.err, errEnd) {
				t.Errorf("returned %v, want the cause of its context", r.err)
			}
		}
	})
}

// A gate changes nothing about what a run is told, and when.
func TestUntilChangedBehindAGate(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		r := reconcile.Reconciler[string]{Gate: &reconcile.Gate{Max: 1}}
		var changed context.Context
		wantOutcome(t, oneRun(t, q, r, func(ctx context.Context) error {
			changed, _ = reconcile.UntilChanged(ctx)
			time.AfterFunc(time.Minute, func() { q.Enqueue("x") })
			began := time.Now()
			<-changed.Done()
			if d := time.Since(began); d != time.Minute {
				t.Errorf("ended after %v, want %v", d, time.Minute)
			}
			return errBoom
		}), reconcile.Requeued)
		wantCause(t, changed, reconcile.ErrChanged)
	})
}
