// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

// Code of the user may panic, or call runtime.Goexit. Around single calls that is
// caught here; around the calls of a run, which must cost nothing, in loop.go.

// A PanicError, always as *PanicError, is the error of a call into user code
// that panicked or called [runtime.Goexit].
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine, as [debug.Stack] formats it; what is logged of it is one line
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// line returns Stack as a log line has room for it: the calls that led to the
// panic, the last first, as "main.size disk.go:7 < main.attach disk.go:31".
func (e *PanicError) line() string {
	_, stack, _ := strings.Cut(strings.Replace(string(e.Stack), "\nruntime.Goexit(", "\npanic(", 1), "\npanic(")
	kernel := reflect.TypeFor[RequeueOptions]().PkgPath() + "."
	var calls []string
	call, users := "", 0 // users is how many of calls there are down to the first one of the user's code
	for line := range strings.Lines(stack) {
		place, ok := strings.CutPrefix(line, "\t")
		if !ok {
			call = line[:max(0, strings.LastIndexByte(line, '('))]
		} else if call != "" && call != "panic" && !strings.HasPrefix(call, "runtime.") {
			place, _, _ = strings.Cut(strings.TrimSpace(path.Base(place)), " ")
			calls = append(calls, path.Base(call)+" "+place)
			if !strings.HasPrefix(call, kernel) && !strings.HasPrefix(call, "sync.") && !strings.HasPrefix(call, "created by ") {
				users = len(calls)
			}
		}
	}
	return strings.Join(calls[:users], " < ")
}

// errGoexit is the Value of a PanicError that stands for a call of runtime.Goexit.
var errGoexit = errors.New("runtime.Goexit called")

// guard calls f, and makes an error of a panic or a runtime.Goexit in it. It
// uses a goroutine, because there is no other way to outlive a Goexit.
func guard(f func() error) (err error) {
	return guardWatched(context.Background(), nil, f)
}

// guardWatched is guard, and calls late when f has not returned although ctx has ended:
// after stuckTick, and each time the age of the call has doubled.
func guardWatched(ctx context.Context, late func(age time.Duration), f func() error) (err error) {
	begin, returned := time.Now(), make(chan struct{})
	go func() {
		defer close(returned)
		ok := false
		defer func() {
			if !ok {
				err = &PanicError{Value: cmp.Or[any](recover(), errGoexit), Stack: debug.Stack()}
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
	for wait := stuckTick; ; wait = time.Since(begin) {
		select {
		case <-returned:
			return err
		case <-time.After(wait):
			late(time.Since(begin))
		}
	}
}

// stuckTick is how long a call has to return after the end of its context.
const stuckTick = 500 * time.Millisecond

// idleTimer returns a timer that does not fire before it is reset.
func idleTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}
