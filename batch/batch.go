// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package batch makes the calls of many runs one, as the APIs of clouds want it: two
// hundred machines described by one request, a thousand objects deleted.
//
//	describe := batch.New(200, 50*time.Millisecond,
//		func(ctx context.Context, ids []string) ([]VM, error) { return cloud.Describe(ctx, ids) })
//
//	func reconcileVM(ctx context.Context, id string) error {
//		vm, err := describe(ctx, id) // with those that the other workers ask for
//		…
//
// No more calls can join than there are workers: set Workers to the size of a batch,
// or some times that, and let the budget be one of batches, not of runs.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// Errors is the error of a batch whose requests did not all go well: one for each
// request, in their order, nil for those that did. See [New].
type Errors []error

// Error names the errors that there are, each on a line.
func (e Errors) Error() string {
	var lines []string
	for i, err := range e {
		if err != nil {
			lines = append(lines, fmt.Sprintf("request %d of %d: %v", i+1, len(e), err))
		}
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors that there are.
func (e Errors) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone([]error(e)), func(err error) bool { return err == nil })
}

// New returns a function that any number of goroutines may call at once. Calls that
// come within the window that the first of them opened join one call of do, which
// goes as soon as there are max of them, or when the window is over; with a window of
// 0 it goes at once, with those that are there. The function blocks until do has
// answered, or ctx is done: then it returns ctx's cause, and the request is withdrawn,
// unless do has begun.
//
// Do returns one result for each request, in their order. If it returns an error,
// that is everybody's, except for [Errors], which has one for each; then the results
// may be left out, which makes them zero values. Anything else that does not fit
// is everybody's error, and so is a panic in do, as a [*reconcile.PanicError].
//
// The ctx of do has the values of the ctx that opened the window. It ends when the
// ctx of each call in it has ended. Many do may go on at once.
//
// Nothing runs while there is no call. New panics if max is less than 1, the window
// less than 0, or do nil.
func New[Req, Res any](max int, window time.Duration, do func(ctx context.Context, reqs []Req) ([]Res, error)) func(ctx context.Context, req Req) (Res, error) {
	switch {
	case max < 1:
		panic(fmt.Sprintf("batch: max is %d, want 1 or more", max))
	case window < 0:
		panic(fmt.Sprintf("batch: the window is %v, want 0 (which means none) or more", window))
	case do == nil:
		panic("batch: do is nil, want a function")
	}
	return (&batcher[Req, Res]{max: max, window: window, do: do}).call
}

type batcher[Req, Res any] struct {
	max    int
	window time.Duration
	do     func(ctx context.Context, reqs []Req) ([]Res, error)

	mu   sync.Mutex       // guards the field below, and the calls of batches
	open *batch[Req, Res] // that which calls join; nil if there is none
}

type batch[Req, Res any] struct {
	calls  []*call[Req, Res] // those that have not left
	timer  *time.Timer       // ends the window
	ctx    context.Context   // of do
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when all calls have their answers
}

type call[Req, Res any] struct {
	req Req
	res Res
	err error
}

func (b *batcher[Req, Res]) call(ctx context.Context, req Req) (Res, error) {
	var none Res
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	c := &call[Req, Res]{req: req}
	joined := b.join(ctx, c)
	select {
	case <-joined.done:
		return c.res, c.err
	case <-ctx.Done():
	}
	b.leave(joined, c, context.Cause(ctx))
	return none, context.Cause(ctx)
}

// join adds a call to the open batch, or opens one.
func (b *batcher[Req, Res]) join(ctx context.Context, c *call[Req, Res]) *batch[Req, Res] {
	b.mu.Lock()
	defer b.mu.Unlock()
	joined := b.open
	if joined == nil {
		joined = &batch[Req, Res]{done: make(chan struct{})}
		joined.ctx, joined.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		b.open = joined
		joined.timer = time.AfterFunc(b.window, func() { b.endWindow(joined) })
	}
	joined.calls = append(joined.calls, c)
	if len(joined.calls) == b.max {
		b.closeLocked()
		go b.run(joined, slices.Clone(joined.calls))
	}
	return joined
}

// leave takes out a call whose context has ended.
func (b *batcher[Req, Res]) leave(left *batch[Req, Res], c *call[Req, Res], cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left.calls = slices.DeleteFunc(left.calls, func(other *call[Req, Res]) bool { return other == c })
	if len(left.calls) > 0 {
		return
	}
	left.cancel(cause)
	if b.open == left {
		b.closeLocked()
	}
}

// endWindow is called by the timer of a batch, which may be full by then.
func (b *batcher[Req, Res]) endWindow(ended *batch[Req, Res]) {
	b.mu.Lock()
	if b.open != ended {
		b.mu.Unlock()
		return
	}
	b.closeLocked()
	calls := slices.Clone(ended.calls)
	b.mu.Unlock()
	b.run(ended, calls)
}

// closeLocked lets no more calls join the open batch.
func (b *batcher[Req, Res]) closeLocked() {
	b.open.timer.Stop()
	b.open = nil
}

// run calls do, and gives each call its answer.
func (b *batcher[Req, Res]) run(t *batch[Req, Res], calls []*call[Req, Res]) {
	reqs := make([]Req, len(calls))
	for i, c := range calls {
		reqs[i] = c.req
	}
	ended := false
	defer func() { // also if do panics, or calls runtime.Goexit
		if !ended {
			p := &reconcile.PanicError{Value: recover(), Stack: debug.Stack()}
			if p.Value == nil {
				p.Value = errors.New("runtime.Goexit was called")
			}
			for _, c := range calls {
				c.err = p
			}
		}
		t.cancel(nil)
		close(t.done)
	}()
	res, err := b.do(t.ctx, reqs)
	share(calls, res, err)
	ended = true
}

// share gives each call its part of what do returned.
func share[Req, Res any](calls []*call[Req, Res], res []Res, err error) {
	var each Errors
	switch {
	case errors.As(err, &each) && len(each) != len(calls):
		err = fmt.Errorf("batch: do returned %d errors for %d requests: %w", len(each), len(calls), err)
	case each == nil && err == nil && len(res) != len(calls):
		err = fmt.Errorf("batch: do returned %d results for %d requests", len(res), len(calls))
	case each != nil && len(res) != len(calls) && len(res) > 0:
		err = fmt.Errorf("batch: do returned %d results, and errors, for %d requests: %w", len(res), len(calls), err)
	case each != nil:
		for i, c := range calls {
			if c.err = each[i]; c.err == nil && len(res) > 0 {
				c.res = res[i]
			}
		}
		return
	case err == nil:
		for i, c := range calls {
			c.res = res[i]
		}
		return
	}
	for _, c := range calls {
		c.err = err
	}
}
