// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package record has the event recorder that tests share.
package record

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Journal records events as lines of text. Each line begins with the time since the
// journal was created. It may be used from several goroutines, in a synctest bubble.
type Journal struct {
	begun time.Time

	mu    sync.Mutex // guards the field below
	lines []string
}

// New returns an empty journal.
func New() *Journal { return &Journal{begun: time.Now()} }

// Elapsed is the time since the journal was created.
func (j *Journal) Elapsed() time.Duration { return time.Since(j.begun) }

// Note records an event, which is formatted as by [fmt.Sprintf].
func (j *Journal) Note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%v ", j.Elapsed())+fmt.Sprintf(format, args...))
}

// Lines waits until all goroutines of the bubble are blocked, and returns the lines.
func (j *Journal) Lines() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// Want fails the test unless the lines are these.
func (j *Journal) Want(t *testing.T, want ...string) {
	t.Helper()
	compare(t, j.Lines(), want)
}

// WantAll fails the test unless the lines are these, in any order.
func (j *Journal) WantAll(t *testing.T, want ...string) {
	t.Helper()
	compare(t, slices.Sorted(slices.Values(j.Lines())), slices.Sorted(slices.Values(want)))
}

func compare(t *testing.T, got, want []string) {
	t.Helper()
	if got, want := strings.Join(got, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", got, want)
	}
}
