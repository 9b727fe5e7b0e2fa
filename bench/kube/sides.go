// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// What follows is for the controllers that run in this process; see standby and
// stale.

const mergePatch = types.MergePatchType

var quiet = slog.New(slog.DiscardHandler)

// unlimited returns a config without a limit on requests.
func unlimited(s *kubetest.Server) *rest.Config {
	config := rest.CopyConfig(s.Admin())
	config.QPS = -1
	return config
}

func newInformer(config *rest.Config, resource, namespace string, of runtime.Object) (cache.SharedIndexInformer, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lw := cache.NewListWatchFromClient(client.RESTClient(), resource, namespace, fields.Everything())
	return cache.NewSharedIndexInformer(lw, of, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), nil
}

// managerOptions are those of a manager for one namespace, of many in this process.
func managerOptions(namespace string) ctrl.Options {
	again := true
	return ctrl.Options{
		Logger:     logr.FromSlogHandler(quiet.Handler()),
		Metrics:    server.Options{BindAddress: "0"},
		Cache:      ctrlcache.Options{DefaultNamespaces: map[string]ctrlcache.Config{namespace: {}}},
		Controller: ctrlconfig.Controller{SkipNameValidation: &again},
	}
}

// background runs run until stop is called, which returns its error each time. If
// it returns before that, fail is called.
func background(ctx context.Context, fail context.CancelCauseFunc, run func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := run(ctx)
		if ctx.Err() == nil {
			fail(fmt.Errorf("it ended by itself: %w", cmp.Or(err, errors.New("no error"))))
		}
		ended <- err
	}()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}
