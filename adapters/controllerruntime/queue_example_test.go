// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile/adapters/controllerruntime"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/statuspage"
)

// A controller of controller-runtime with a queue of this module, a status page and
// metrics.
func ExampleQueue() {
	setUp := func(m ctrl.Manager, r ctrlreconcile.Reconciler) error {
		var queue controllerruntime.Queue[ctrl.Request]
		queue.Fair = func(r ctrl.Request) string { return r.Namespace }

		loop := &statuspage.Loop[ctrl.Request]{Name: "pods", Queue: &queue}
		queue.OnResult = loop.OnResult(nil)
		page := statuspage.Serve("127.0.0.1:8080", statuspage.New(loop))

		var collector promadapter.Collector
		metrics.Registry.MustRegister(&collector)

		return errors.Join(
			ctrl.NewControllerManagedBy(m).For(&corev1.Pod{}).
				WithOptions(controller.Options{NewQueue: queue.NewQueue}).
				Complete(queue.Reconciler(r)),
			m.Add(manager.RunnableFunc(page.Run)),
			collector.AddQueue("pods", &queue),
			promadapter.AddPending(&collector, "pods", &queue),
		)
	}
	_ = setUp // is called by main
}
