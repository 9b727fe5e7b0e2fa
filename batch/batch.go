// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package batch is request batching: it makes one call of the requests of many runs, as
// the APIs of clouds want it: two hundred machines described by one request, a thousand
// objects deleted.
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
	"reflect"
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

// Unwrap returns the errors that there are as an errors.Join, whose members
// [reconcile.Classify] classifies one by one.
func (e Errors) Unwrap() error { return errors.Join(e...) }

// New returns a function that any number of goroutines may call at once. Calls that
// come within the window that the first of them opened join one call of do, which
// goes as soon as there are max of them, or when the window is over; with a window of
// 0 it goes at once, with those that are there. The function blocks until do has
// answered, or ctx is done: then it returns ctx's cause, and the request is withdrawn,
// unless do has begun.
//
// Equal requests of one batch, as == compares them, are passed to do once. Their calls
// share the result, which must not be changed then. Requests that cannot be compared,
// such as slices, are passed on one by one.
//
// Do returns one result for each request, in their order. If it returns an error, each
// call returns that error. The exception is [Errors], alone or wrapped, which has one
// error for each request; then the results may be left out, which makes them zero
// values. Each call returns the whole error if Errors is joined with other errors, if
// the numbers do not fit, and, as a [*reconcile.PanicError], if do panics.
//
// Some APIs refuse the whole batch because of one request: of 200 machines one does not
// exist any more, and nobody learns about the other 199. Do must then find out which
// request it was, from the error or by asking for each half of the batch again, and
// return Errors. Otherwise each run of a batch fails because of one item, and each retry
// puts them together again.
//
// The ctx of do has the values of the ctx that opened the window, except that it does
// not belong to a run: [reconcile.Logger] does not name the item of the first call, and
// [reconcile.UntilChanged] does not watch it. It ends when the ctx of each call in it
// has ended. Many do may go on at once.
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
		joined.ctx, joined.cancel = context.WithCancelCause(outsideRun{context.WithoutCancel(ctx)})
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

// outsideRun is a context without the run that it belongs to, which is that of one of
// many calls.
type outsideRun struct{ context.Context }

var kernel = reflect.TypeFor[reconcile.RequeueOptions]().PkgPath()

func (c outsideRun) Value(key any) any {
	if t := reflect.TypeOf(key); t != nil && t.Name() == "runKey" && t.PkgPath() == kernel {
		return nil
	}
	return c.Context.Value(key)
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
	reqs, index := distinct(calls)
	res, err := b.do(t.ctx, reqs)
	share(calls, index, len(reqs), res, err)
	ended = true
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
