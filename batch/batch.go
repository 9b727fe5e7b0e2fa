// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package batch is request batching: it combines the requests of concurrent runs into one
// API call, such as the description of two hundred machines or the deletion of a thousand
// objects.
//
//	describe := batch.New(200, 50*time.Millisecond,
//		func(ctx context.Context, ids []string) ([]VM, error) { return cloud.Describe(ctx, ids) })
//
//	func reconcileVM(ctx context.Context, id string) error {
//		vm, err := describe(ctx, id) // one API call for the requests of several workers
//		…
//
// A batch has at most one request of each worker: set Workers to the size of a batch, or a
// few times that. A rate limit must then count batches, not runs.
package batch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile/internal/guard"
)

// Errors is the error of a batch in which some requests failed: one error for each
// request, in the order of the requests, nil for a request that succeeded. See [New].
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

// Unwrap returns the errors that there are as an errors.Join, whose members
// [reconcile.Classify] classifies one by one.
func (e Errors) Unwrap() error { return errors.Join(e...) }

// New returns a function that sends a request as part of a batch and returns its result.
// Any number of goroutines may call it at once. The first call opens a window. Requests
// that come within the window join the batch. The batch is passed to do when the window
// ends, or as soon as it has max requests. With a window of 0 it is passed at once, with
// the requests that are there. The function blocks until do has returned or ctx is done.
// If ctx is done it returns the cause of ctx, and withdraws the request if do has not begun.
//
// Equal requests of one batch, as == compares them, are passed to do once. Their calls
// share the result, which must not be changed then. Requests that cannot be compared,
// such as slices, are passed to do one by one.
//
// Do returns one result for each request, in the order of the requests. If it returns an
// error, each call returns that error, except for [Errors], alone or wrapped. Errors has
// one error for each request; the results may then be nil, and count as zero values. An
// empty Errors alone counts as nil. Each call returns the whole error if Errors is joined
// with other errors, or if the number of errors or results is wrong. If do panics, each
// call returns a [*reconcile.PanicError].
//
// Some APIs reject the whole batch because of one request: one of 200 machines does not
// exist any more, and the response says nothing about the other 199. Do must then find
// that request, from the error or by repeating the call for each half of the batch, and
// return Errors. Otherwise each run of the batch fails because of one item, and the
// retries form the same batch again.
//
// The ctx of do has the values of the ctx of the first call, so [reconcile.Logger] names
// its item. It ends when the contexts of all calls in the batch have ended. Several calls of
// do may be in flight at once.
//
// There is no goroutine while there is no call. New panics if max is less than 1, if
// window is negative, or if do is nil.
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
	err := guard.Call(func() error {
		reqs, index := distinct(calls)
		res, err := b.do(t.ctx, reqs)
		share(calls, index, len(reqs), res, err)
		return nil
	})
	if err != nil { // do panicked, or called runtime.Goexit
		for _, c := range calls {
			c.err = err
		}
	}
	t.cancel(nil)
	close(t.done)
}

// distinct returns the requests of the calls, equal ones once, and the index of that of
// each call.
func distinct[Req, Res any](calls []*call[Req, Res]) (reqs []Req, index []int) {
	reqs, index = make([]Req, 0, len(calls)), make([]int, len(calls))
	known := make(map[any]int, len(calls))
	for i, c := range calls {
		comparable := reflect.ValueOf(&c.req).Elem().Comparable()
		at, ok := 0, false
		if comparable {
			at, ok = known[c.req]
		}
		if !ok {
			at = len(reqs)
			reqs = append(reqs, c.req)
			if comparable {
				known[c.req] = at
			}
		}
		index[i] = at
	}
	return reqs, index
}

// share gives each call its part of what do returned for n requests; index has the
// request of each call.
func share[Req, Res any](calls []*call[Req, Res], index []int, n int, res []Res, err error) {
	if empty, ok := err.(Errors); ok && len(empty) == 0 { // and not one that is wrapped: the wrapping may be a failure
		err = nil
	}
	each := errorsOf(err)
	switch {
	case each != nil && len(each) != n:
		err = fmt.Errorf("batch: do returned %d errors for %d requests: %w", len(each), n, err)
	case each == nil && err == nil && len(res) != n:
		err = fmt.Errorf("batch: do returned %d results for %d requests", len(res), n)
	case each != nil && len(res) != n && len(res) > 0:
		err = fmt.Errorf("batch: do returned %d results, and errors, for %d requests: %w", len(res), n, err)
	case each != nil:
		for i, c := range calls {
			if c.err = each[index[i]]; c.err == nil && len(res) > 0 {
				c.res = res[index[i]]
			}
		}
		return
	case err == nil:
		for i, c := range calls {
			c.res = res[index[i]]
		}
		return
	}
	for _, c := range calls {
		c.err = err
	}
}

// errorsOf returns the Errors that err is or wraps, and nil if there are none. In a join
// the other errors concern each request, so those are not looked for.
func errorsOf(err error) Errors {
	for ; err != nil; err = errors.Unwrap(err) {
		if each, ok := err.(Errors); ok {
			return each
		}
	}
	return nil
}
