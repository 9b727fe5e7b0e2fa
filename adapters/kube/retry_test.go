// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestRetry asks for the delays after errors that a client has got.
func TestRetry(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	var link kubetest.Link
	client := typed(t, link.Config(s.Admin()))
	stale := create(t, client, configMap(ns, "a"))
	configMaps := client.CoreV1().ConfigMaps(ns)
	changed := stale.DeepCopy()
	changed.Data = map[string]string{"x": "y"}
	if _, err := configMaps.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, conflict := configMaps.Update(t.Context(), stale, metav1.UpdateOptions{})
	apply := func(manager, value string) error {
		a := applycorev1.ConfigMap("a", ns).WithData(map[string]string{"y": value})
		_, err := configMaps.Apply(t.Context(), a, metav1.ApplyOptions{FieldManager: manager})
		return err
	}
	if err := apply("one", "1"); err != nil {
		t.Fatal(err)
	}
	owned := apply("another", "2")
	_, invalid := configMaps.Create(t.Context(), configMap(ns, "No Name"), metav1.CreateOptions{})
	_, forbidden := typed(t, s.User("nobody")).CoreV1().ConfigMaps(ns).Get(t.Context(), "a", metav1.GetOptions{})
	refused := func(fault kubetest.Fault) error {
		link.Fail(fault)
		defer link.Fail(nil)
		return client.CoreV1().RESTClient().Get().Namespace(ns).Resource("configmaps").MaxRetries(0).Do(t.Context()).Error()
	}
	tooMany := refused(kubetest.TooManyRequests(7))
	unavailable := refused(func(req *http.Request) (*http.Response, error) {
		return kubetest.Answer(req, http.StatusServiceUnavailable, http.Header{"Retry-After": {"30"}}), nil
	})
	unsaid := refused(func(req *http.Request) (*http.Response, error) {
		return kubetest.Answer(req, http.StatusServiceUnavailable, nil), nil
	})
	for err, is := range map[error]func(error) bool{
		conflict: apierrors.IsConflict, owned: apierrors.IsConflict, invalid: apierrors.IsInvalid, forbidden: apierrors.IsForbidden,
		tooMany: apierrors.IsTooManyRequests, unavailable: apierrors.IsServiceUnavailable, unsaid: apierrors.IsServiceUnavailable,
	} {
		if !is(err) {
			t.Fatalf("the client got %v", err)
		}
	}

	const ms = time.Millisecond
	minutely := reconcile.RetryPolicy(func(error, int) (time.Duration, bool) { return time.Minute, true })
	for _, test := range []struct {
		what     string
		policy   reconcile.RetryPolicy
		err      error
		failures int
		min, max time.Duration // a max of 0 means no retry
	}{
		{"a conflict", minutely, conflict, 1, 1, 10 * ms},
		{"a wrapped conflict", minutely, fmt.Errorf("writing: %w", conflict), 1, 1, 10 * ms},
		{"the fourth conflict", minutely, conflict, 4, 20 * ms, 80 * ms},
		{"a conflict that stays", minutely, conflict, 100, 10 * time.Second, time.Minute},
		{"a conflict without other retries", reconcile.NoRetry, conflict, 1, 1, 10 * ms},
		{"a field that another manager owns", minutely, fmt.Errorf("writing: %w", owned), 1, time.Minute, time.Minute},
		{"429", minutely, tooMany, 1, 7 * time.Second, 10500 * ms},
		{"429 without other retries", reconcile.NoRetry, tooMany, 9, 7 * time.Second, 10500 * ms},
		{"503", minutely, unavailable, 1, 30 * time.Second, 45 * time.Second},
		{"503 with nothing said", minutely, unsaid, 1, time.Minute, time.Minute},
		{"forbidden", minutely, forbidden, 1, time.Minute, time.Minute},
		{"forbidden, and no retry of it", reconcile.NoRetry, forbidden, 1, 0, 0},
		{"invalid", minutely, invalid, 1, time.Minute, time.Minute},
		{"anything else", minutely, errors.New("broken"), 1, time.Minute, time.Minute},
		{"anything else by default", nil, errors.New("broken"), 1, 500 * ms, time.Second},
	} {
		delay, again := kube.Retry(test.policy)(test.err, test.failures)
		if again != (test.max > 0) || delay < test.min || delay > test.max {
			t.Errorf("after %s: %v, %t, want %v to %v", test.what, delay, again, test.min, test.max)
		}
	}
}
