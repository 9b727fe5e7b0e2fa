// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package rare says when a failure that comes again and again is to be logged: the
// first time, and then each time that their number has doubled.
package rare

import (
	"regexp"
	"sync"
	"time"
)

// Failures are those of one thing. The zero value is ready. Its methods may be called
// from any goroutine.
type Failures struct {
	mu    sync.Mutex // guards what follows
	err   error      // the last
	at    time.Time  // when that was
	count int        // of those that read like it, in a row
}

// forgotten is after how long without one a failure counts as the first. What fails
// tries again after up to a minute: longer ago, all was well since.
const forgotten = 5 * time.Minute

// Add takes note of a failure. It returns how many there were in a row that read like
// it, and whether it is to be logged. Our own address in an error of a connection does
// not count: its port is another each time.
func (f *Failures) Add(err error) (count int, log bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || text(f.err) != text(err) || time.Since(f.at) > forgotten {
		f.count = 0
	}
	f.count++
	f.err, f.at = err, time.Now()
	return f.count, f.count&(f.count-1) == 0
}

// ours is our own end of a connection, as in: read tcp 10.0.0.1:51234->10.0.0.2:443. It is
// looked for in the text, as the error of a name server is a text in that of the lookup.
var ours = regexp.MustCompile(`\S+:\d+->`)

func text(err error) string { return ours.ReplaceAllString(err.Error(), "") }

// Last returns the last failure, or nil.
func (f *Failures) Last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
