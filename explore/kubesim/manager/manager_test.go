// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile/explore/kubesim"
	"github.com/reconkernel/reconcile/explore/kubesim/manager"
)

// A copier keeps a Secret as each ConfigMap.
type copier struct{ client.Client }

func (c *copier) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(c)
}

func (c *copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.Client, secret, func() error {
		secret.Data = map[string][]byte{"text": []byte(cm.Data["text"])}
		return controllerutil.SetControllerReference(&cm, secret, c.Scheme())
	})
	return ctrl.Result{}, err
}

func TestCopier(t *testing.T) {
	kubesim.Explore(t, kubesim.Scenario{
		Start: manager.Start(ctrl.Options{Scheme: clientscheme.Scheme}, func(mgr ctrl.Manager) error {
			return (&copier{mgr.GetClient()}).SetupWithManager(mgr)
		}),
		Steps: func(s *kubesim.Environment) {
			a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"text": "1"}}
			s.Create(a)
			s.Advance(time.Minute)
			kubesim.Update(s.Server, a, func(cm *corev1.ConfigMap) { cm.Data["text"] = "2" })
			s.Advance(time.Minute)
			b := a.DeepCopy()
			b.Name = "b"
			s.Create(b)
			s.Delete(a)
		},
		Plans: 100,
	})
}

// TestErrorsAreInTheJournal has a controller that fails: the finding says why.
func TestErrorsAreInTheJournal(t *testing.T) {
	r, err := kubesim.Search(t, kubesim.Scenario{
		Start: manager.Start(ctrl.Options{Scheme: clientscheme.Scheme}, func(mgr ctrl.Manager) error {
			return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				return ctrl.Result{}, errors.New("no quota")
			}))
		}),
		Steps: func(s *kubesim.Environment) {
			s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
			s.Advance(time.Minute)
		},
		Final: func(*kubesim.Server) error { return errors.New("no Secret") },
		Plans: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`log: level=ERROR msg="Reconciler error" controller=configmap namespace=default name=a err="no quota"`)
	if r.Found == nil || !want.MatchString(r.Found.String()) || strings.Contains(r.Found.String(), "level=INFO") {
		t.Errorf("found: %v, want a line %s, and errors alone", r.Found, want)
	}
}
