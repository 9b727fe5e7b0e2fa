// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// The program of README.md for client-go: a controller by hand.

// runKeys makes a Secret for each ConfigMap. If retry is not set, an error is the end of it.
func runKeys(ctx context.Context, cfg *rest.Config, retry bool) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, time.Hour)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { queue.Add(cache.MetaObjectToName(o.(*corev1.ConfigMap))) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for {
		name, quit := queue.Get()
		if quit {
			return nil
		}
		key := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		_, err := client.CoreV1().Secrets(name.Namespace).Create(ctx, key, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && retry {
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

func keys(retry bool) kubesim.Scenario {
	return kubesim.Scenario{
		Start: func(_ *explore.Process, cfg *rest.Config) kubesim.Runner {
			return reconcile.RunFunc(func(ctx context.Context) error { return runKeys(ctx, cfg, retry) })
		},
		Steps: func(s *kubesim.Environment) {
			s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
			s.Advance(time.Minute)
		},
		Plans: 50,
	}
}

func TestKeys(t *testing.T) {
	r, err := kubesim.Search(t, keys(false))
	if err != nil {
		t.Fatal(err)
	}
	if r.Found == nil || strings.Join(r.Found.Plan, "") != "call create secrets default/a #1: fails" {
		t.Errorf("it finds %v, want the Secret that is never made", r.Found)
	}
	kubesim.Explore(t, keys(true))
}
