// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A badHandler is a slog.Handler that ends badly in the methods given.
type badHandler struct {
	end                   func()
	enabled, handle, with bool
}

func (h badHandler) Enabled(context.Context, slog.Level) bool {
	if h.enabled {
		h.end()
	}
	return true
}

func (h badHandler) Handle(context.Context, slog.Record) error {
	if h.handle {
		h.end()
	}
	return nil
}

func (h badHandler) WithAttrs([]slog.Attr) slog.Handler {
	if h.with {
		h.end()
	}
	return h
}

func (h badHandler) WithGroup(string) slog.Handler { return h }

func TestPanicInLoggerHandlerLosesNeitherItemNorWorker(t *testing.T) {
	for name, end := range failuresOfUserCode {
		for where, h := range map[string]badHandler{
			"Enabled":   {end: end, enabled: true},
			"Handle":    {end: end, handle: true},
			"WithAttrs": {end: end, with: true},
		} {
			t.Run(where+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					var results resultBook[string]
					run := launch(t, &reconcile.Reconciler[string]{
						Queue: q,
						Reconcile: func(ctx context.Context, item string) error {
							if item == "stuck" {
								time.Sleep(time.Hour)
							}
							return mixed(ctx, item)
						},
						Timeout:  time.Minute,
						Retry:    minutes,
						OnResult: results.add,
						Logger:   slog.New(h),
					})
					for item := range strings.FieldsSeq("good plan fail refuse panic") {
						q.Enqueue(item)
					}
					mustHaveMixed(t, q)
					if n := len(results.all()); n != 5 {
						t.Errorf("%d results, want 5", n)
					}
					q.Enqueue("stuck") // warnings are logged, too
					time.Sleep(59 * time.Minute)
					run.end()
					if r := results.last(t); r.Item != "stuck" || r.Outcome != reconcile.Succeeded {
						t.Errorf("result = %+v, want stuck to succeed", r)
					}
				})
			})
		}
	}
}

func TestPollerOutlivesItsLoggerHandler(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &reconcile.Poller[string]{Period: time.Second, Logger: slog.New(badHandler{end: end, handle: true})}
				starts := polls(t, p, 10*time.Second, func(int) ([]string, error) { return nil, errBoom })
				if len(starts) < 10 {
					t.Errorf("polls began at %v, want them to go on", starts)
				}
			})
		})
	}
}

func TestGroupOutlivesItsLoggerHandler(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				g := reconcile.Group{Logger: slog.New(badHandler{end: end, handle: true})}
				g.Add("first", after(time.Second, errBoom))
				g.Add("second", member(j, "second", time.Second, errors.New("disk full")))
				g.Add("slow", member(j, "slow", time.Hour, nil)) // which may be warned about
				if err := launch(t, &g).wait(); !errors.Is(err, errBoom) {
					t.Errorf("Run = %v, want %v", err, errBoom)
				}
				if j.len() != 4 {
					t.Errorf("journal %q, want all members ended", j.list)
				}
			})
		})
	}
}

// A trapError ends badly when it is looked into.
type trapError struct{ message, is, as, unwrap func() }

func (e trapError) Error() string {
	if e.message != nil {
		e.message()
	}
	return "trap"
}

func (e trapError) Is(error) bool {
	if e.is != nil {
		e.is()
	}
	return false
}

func (e trapError) As(any) bool {
	if e.as != nil {
		e.as()
	}
	return false
}

func (e trapError) Unwrap() error {
	if e.unwrap != nil {
		e.unwrap()
	}
	return nil
}

func TestPanicInsideAnErrorLosesNeitherItemNorWorker(t *testing.T) {
	var typedNil *fs.PathError // its Error method panics
	traps := map[string]error{"typed nil": typedNil}
	for name, end := range failuresOfUserCode {
		traps["Error "+name] = &trapError{message: end}
		traps["Is "+name] = &trapError{is: end}
		traps["As "+name] = &trapError{as: end}
		traps["Unwrap "+name] = &trapError{unwrap: end}
	}
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				var results resultBook[string]
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(_ context.Context, item string) error {
						if item == "bad" {
							return trap
						}
						return nil
					},
					Retry:    minutes,
					OnResult: results.add,
					Logger:   unlogged(),
				})
				q.Enqueue("bad")
				q.Enqueue("good")
				synctest.Wait()
				if r := results.last(t); r.Item != "good" || r.Outcome != reconcile.Succeeded {
					t.Errorf("result = %+v, want good to succeed", r)
				}
				if s := q.State("bad"); s.Phase != reconcile.Waiting || s.Failures != 1 {
					t.Errorf("State(bad) = %+v, want it to wait for a retry", s)
				}
				run.end()
			})
		})
	}
}

// A badLeaser ends badly when it is asked for a lease.
type badLeaser struct {
	plainQueue[string]
	end func()
}

func (q badLeaser) Lease(ctx context.Context, item string) context.Context {
	if item == "bad" {
		panicsHere(q.end)
	}
	return ctx
}

func TestPanicInLeaseLosesNeitherItemNorWorker(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := badLeaser{plainly(reconcile.NewQueue[string]()), end}
				var results resultBook[string]
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q, Reconcile: nothing, Retry: minutes, OnResult: results.add, Logger: unlogged(),
				})
				q.q.Enqueue("bad")
				q.q.Enqueue("good")
				synctest.Wait()
				if r := results.last(t); r.Item != "good" || r.Outcome != reconcile.Succeeded {
					t.Errorf("result = %+v, want good to succeed", r)
				}
				if s := q.q.State("bad"); s.Phase != reconcile.Waiting || s.Failures != 1 {
					t.Errorf("State(bad) = %+v, want it to wait for a retry", s)
				}
				run.end()
			})
		})
	}
}
