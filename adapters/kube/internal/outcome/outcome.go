// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package outcome tells what a Reconciler makes of the result of a run.
package outcome

import (
	"errors"

	"github.com/reconkernel/reconcile"
)

// Of returns Succeeded for nil and RecheckWithin, Requeued for the other plans,
// Terminated for Terminal, and Retrying for any other error.
func Of(err error) reconcile.Outcome {
	if err == nil {
		return reconcile.Succeeded
	}
	if planned := (reconcile.RequeueError{}); errors.As(err, &planned) {
		if planned.Settled && !planned.Hold {
			return reconcile.Succeeded
		}
		return reconcile.Requeued
	}
	if errors.Is(err, reconcile.ErrTerminal) {
		return reconcile.Terminated
	}
	return reconcile.Retrying
}
