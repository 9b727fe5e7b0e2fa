// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"

	"github.com/reconkernel/reconcile"
)

// guard calls f, and makes an error of a panic or a runtime.Goexit in it. It
// uses a goroutine, because there is no other way to outlive a Goexit.
func guard(f func() error) (err error) {
	var call sync.WaitGroup
	call.Go(func() {
		returned := false
		defer func() {
			if !returned {
				err = &reconcile.PanicError{Value: cmp.Or[any](recover(), errGoexit), Stack: debug.Stack()}
			}
		}()
		err = f()
		returned = true
	})
	call.Wait()
	return err
}

var errGoexit = errors.New("runtime.Goexit called")

// logGuarded writes a line. A handler, or a method of an error, that panics or calls
// Goexit costs no more than the line.
func logGuarded(logger *slog.Logger, level slog.Level, msg string, args ...any) {
	_ = guard(func() error {
		logger.Log(context.Background(), level, msg, args...)
		return nil
	})
}
