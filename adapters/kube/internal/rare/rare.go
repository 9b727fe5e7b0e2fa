// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package rare says when a failure that comes again and again is to be logged: the
// first time, and then each time that their number has doubled.
package rare

import (
	"sync"
	"time"
)

// Failures are those of one thing. The zero value is ready. Its methods may be called
// from any goroutine.
type Failures struct {
	mu    sync.Mutex // guards what follows
	err   error      // the last
	at    time.Time  // when that was
	count int        // in a row
}

// forgotten is after how long without one a failure counts as the first. What fails
// tries again after up to a minute: longer ago, all was well since.
const forgotten = 5 * time.Minute

// Add takes note of a failure. It returns how many there were in a row, and whether it is
// to be logged. The text does not count, since one with a request ID or a port is another
// one each time.
func (f *Failures) Add(err error) (count int, log bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) > forgotten {
		f.count = 0
	}
	f.count++
	f.err, f.at = err, time.Now()
	return f.count, f.count&(f.count-1) == 0
}

// Last returns the last failure, or nil.
func (f *Failures) Last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
