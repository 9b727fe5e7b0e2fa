// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"errors"
	"strings"

	"github.com/reconkernel/reconcile"
)

// A Status says in a word how an item stands. It is an error, so that it can
// travel in the one that a run returns: fmt.Errorf("%w: %w", InSync, …).
type Status string

func (s Status) Error() string { return string(s) }

// What items have in common. A program may have others.
const (
	Pending   Status = "pending" // not looked at yet, or something new was asked for
	Surplus   Status = "surplus" // there, but not wanted
	InSync    Status = "in sync"
	Creating  Status = "creating"
	Updating  Status = "updating"
	Removing  Status = "removing"
	Waiting   Status = "waiting"   // for another item
	Throttled Status = "throttled" // the other side asked for a pause
	Retrying  Status = "retrying"
	Rejected  Status = "rejected" // not retried
	GaveUp    Status = "gave up"  // after many tries
	Removed   Status = "removed"
)

// StatusOf reads the status out of a result.
func StatusOf[T comparable](r reconcile.Result[T]) Status {
	switch s := Status(""); {
	case r.Outcome == reconcile.TerminalError:
		return Rejected
	case r.Outcome == reconcile.GaveUp:
		return GaveUp
	case r.Outcome != reconcile.Retrying && errors.As(r.Err, &s):
		return s
	case r.Outcome == reconcile.Succeeded:
		return Removed
	}
	return Retrying
}

// Reason gives the error of a result in a line, without what its status says
// and what the loop makes of it.
func Reason(s Status, err error) string {
	if err == nil || s == InSync {
		return ""
	}
	text := err.Error()
	if planned := (reconcile.RequeueError{}); errors.As(err, &planned) {
		text = strings.TrimSuffix(strings.TrimSuffix(text, planned.Error()), ": ")
	}
	text = strings.TrimLeft(strings.TrimPrefix(text, string(s)), ",: ")
	return strings.ReplaceAll(text, "\n", " ")
}
