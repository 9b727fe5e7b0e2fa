// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A countedContext counts what is still to be told when it ends.
type countedContext struct {
	context.Context
	waiting *atomic.Int64
}

// Value hides what is inside, so that all that derives from it has to ask it.
func (c countedContext) Value(any) any { return nil }

func (c countedContext) AfterFunc(f func()) (stop func() bool) {
	c.waiting.Add(1)
	inner := context.AfterFunc(c.Context, f)
	return func() bool {
		stopped := inner()
		if stopped {
			c.waiting.Add(-1)
		}
		return stopped
	}
}

// A service may call Run with the same context again and again. What has ended
// leaves nothing on it.
func TestRunLeavesNothingOnItsContext(t *testing.T) {
	closed := func() reconcile.Dequeuer[string] {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Close()
		return q
	}
	for name, runner := range map[string]func() reconcile.Runner{
		"Reconciler": func() reconcile.Runner {
			return &reconcile.Reconciler[string]{Queue: closed(), Reconcile: nothing}
		},
		"Reconciler, with Grace": func() reconcile.Runner {
			return &reconcile.Reconciler[string]{Queue: closed(), Reconcile: nothing, Grace: time.Hour, Timeout: time.Hour}
		},
		"Reconciler, broken": func() reconcile.Runner {
			broken := &ledger{journal: newJournal(), end: func() error { return errBoom }}
			return &reconcile.Reconciler[string]{Queue: broken, Reconcile: nothing}
		},
		"Feed": func() reconcile.Runner {
			ch := make(chan string)
			close(ch)
			return reconcile.Feed(reconcile.NewQueue[string](), reconcile.FromChan(ch))
		},
		"After": func() reconcile.Runner {
			return reconcile.After(func(context.Context) error { return nil }, after(0, nil))
		},
		"Restart":        func() reconcile.Runner { return reconcile.Restart(reconcile.NoRetry, after(0, errBoom)) },
		"Group":          func() reconcile.Runner { return groupOf(after(0, nil), after(time.Second, nil)) },
		"Group, failing": func() reconcile.Runner { return groupOf(after(0, errBoom), after(time.Second, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				counted := countedContext{ctx, new(atomic.Int64)}
				_ = runner().Run(counted)
				synctest.Wait()
				if n := counted.waiting.Load(); n != 0 {
					t.Errorf("%d functions wait for the end of the context after Run returned, want none", n)
				}
			})
		})
	}
}

func groupOf(members ...reconcile.Runner) *reconcile.Group {
	g := &reconcile.Group{Logger: unlogged()}
	for _, m := range members {
		g.Add("member", m)
	}
	return g
}
