// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package guard calls functions of the user that may panic, call runtime.Goexit, or not
// return. The kernel has its own, because it imports no other package.
package guard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/reconkernel/reconcile"
)

// Call calls f, and makes an error of a panic or a runtime.Goexit in it. It
// uses a goroutine, because there is no other way to outlive a Goexit.
func Call(f func() error) (err error) {
	return Watched(context.Background(), nil, f)
}

// Watched is Call, and calls late when f has not returned although ctx has ended:
// after lateAfter, and each time the age of the call has doubled.
func Watched(ctx context.Context, late func(age time.Duration), f func() error) (err error) {
	begin, returned := time.Now(), make(chan struct{})
	go func() {
		defer close(returned)
		ok := false
		defer func() {
			if !ok {
				err = &reconcile.PanicError{Value: cmp.Or[any](recover(), errGoexit), Stack: debug.Stack()}
			}
		}()
		err = f()
		ok = true
	}()
	select {
	case <-returned:
		return err
	case <-ctx.Done():
	}
	for wait := lateAfter; ; wait = time.Since(begin) {
		select {
		case <-returned:
			return err
		case <-time.After(wait):
			late(time.Since(begin))
		}
	}
}

// lateAfter is how long a call has to return after the end of its context.
const lateAfter = 500 * time.Millisecond

var errGoexit = errors.New("runtime.Goexit called")

// Try calls f, and makes an error of a panic in it. It costs less than Call, and a call of
// runtime.Goexit takes the goroutine with it.
func Try(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &reconcile.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// Log writes a line. A handler, or a method of an error, that panics or calls
// Goexit costs no more than the line.
func Log(logger *slog.Logger, level slog.Level, msg string, args ...any) {
	_ = Call(func() error {
		logger.Log(context.Background(), level, msg, args...)
		return nil
	})
}
