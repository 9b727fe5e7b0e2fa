// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package conditions_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestReportErrors has the writing fail: it is an error, with that of the run, and is
// tried again also where the run is not.
func TestReportErrors(t *testing.T) {
	s := kubetest.Shared(t)
	client, _ := define(t, s, s.User("eve")) // may do nothing
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a", "uid": "1"}}}
	unlucky := errors.New("no luck")
	for _, result := range []error{
		nil, unlucky, reconcile.RequeueAfter(1), reconcile.RecheckWithin(1), reconcile.Terminal(errors.New("never")),
		errors.Join(unlucky, reconcile.RecheckWithin(1)),
	} {
		err := conditions.Report(t.Context(), client, obj, result, set)
		outcome, _ := reconcile.Classify(err, 1, nil)
		if !apierrors.IsForbidden(err) || outcome != reconcile.OutcomeRetrying || errors.Is(result, unlucky) != errors.Is(err, unlucky) {
			t.Errorf("run with %v: %v, which is %s, want forbidden, and its own error, to be retried", result, err, outcome)
		}
	}
}
