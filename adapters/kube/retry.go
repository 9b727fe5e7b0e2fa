// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
)

// conflicts is the back-off of a conflict: the cache is a few milliseconds behind.
var conflicts = reconcile.Backoff(5*time.Millisecond, time.Minute)

// Retry returns a RetryPolicy for [reconcile.Reconciler].Retry that knows what
// the API server answers, also where the error is wrapped:
//
//   - a conflict, of a cache that was behind, comes back after 5 milliseconds, and
//     then after twice as long each time, up to a minute;
//   - what the server asks to be sent again later, as it does with 429 and 503,
//     comes back after the time it says, or up to half as long again, so that not
//     all come back at once; an event runs it sooner, unless
//     Reconciler.HoldRetries is set;
//   - about a conflict of a server-side apply with another field manager, which no newer
//     cache resolves, and about everything else, such as what is forbidden or invalid,
//     or a server that cannot be reached, p decides; a nil p means
//     [reconcile.DefaultRetry].
//
// P is not asked about the first two, so these come back also with
// [reconcile.NoRetry]. To limit them, use Limit on the result. It may be called
// from any goroutine if p may.
func Retry(p reconcile.RetryPolicy) reconcile.RetryPolicy {
	if p == nil {
		p = reconcile.DefaultRetry
	}
	return func(err error, failures int) (time.Duration, bool) {
		if _, owned := apierrors.StatusCause(err, metav1.CauseTypeFieldManagerConflict); !owned && apierrors.IsConflict(err) {
			return conflicts(err, failures)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			delay := time.Duration(seconds) * time.Second
			shortened, again := reconcile.Backoff(delay, delay)(err, 1) // by up to half, and the same in each play of a plan
			return 2*delay - shortened, again
		}
		return p(err, failures)
	}
}
