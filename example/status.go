// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// A status says in a word how an asset stands. It is an error, so that it can
// travel in the one that a run returns: fmt.Errorf("%w: %w", inSync, …).
type status string

func (s status) Error() string { return string(s) }

const (
	pending   status = "pending" // not looked at yet, or something new was asked for
	surplus   status = "surplus" // there, but not wanted
	inSync    status = "in sync"
	creating  status = "creating"
	updating  status = "updating"
	removing  status = "removing"
	waiting   status = "waiting"   // for another asset
	throttled status = "throttled" // the cloud asked for a pause
	retrying  status = "retrying"
	refused   status = "refused" // for good
	gaveUp    status = "gave up" // after many tries
	removed   status = "removed"
)

// statusOf reads the status out of a result.
func statusOf(r reconcile.Result[cloud.ID]) status {
	switch s := status(""); {
	case r.Outcome == reconcile.Terminated:
		return refused
	case r.Outcome == reconcile.GaveUp:
		return gaveUp
	case r.Outcome != reconcile.Retrying && errors.As(r.Err, &s):
		return s
	case r.Outcome == reconcile.Succeeded:
		return removed
	}
	return retrying
}
