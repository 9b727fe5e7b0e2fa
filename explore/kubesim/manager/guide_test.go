// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/reconkernel/reconcile/explore/kubesim"
	"github.com/reconkernel/reconcile/explore/kubesim/manager"
)

// The project of ../README.md.

type (
	Site struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`
		Spec              SiteSpec   `json:"spec"`
		Status            SiteStatus `json:"status,omitzero"`
	}
	SiteSpec struct {
		Text string `json:"text"`
	}
	SiteStatus struct {
		Ready bool `json:"ready,omitempty"`
	}
	SiteList struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata,omitempty"`
		Items           []Site `json:"items"`
	}
)

func (s *Site) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (l *SiteList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Site))
	}
	return &out
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	_ = clientscheme.AddToScheme(s)
	s.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: "v1"}, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: "example.com", Version: "v1"})
	return s
}()

// A SiteReconciler keeps a ConfigMap for each Site.
type SiteReconciler struct {
	client.Client
	Scheme     *runtime.Scheme
	EnsurePage func(ctx context.Context, r *SiteReconciler, site *Site) error
}

func (r *SiteReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&Site{}).Owns(&corev1.ConfigMap{}).Complete(r)
}

func (r *SiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site Site
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if err := r.EnsurePage(ctx, r, &site); err != nil {
		return ctrl.Result{}, err
	}
	site.Status.Ready = true
	return ctrl.Result{}, r.Status().Update(ctx, &site)
}

func ensureSomePage(ctx context.Context, r *SiteReconciler, site *Site) error {
	var pages corev1.ConfigMapList
	err := r.List(ctx, &pages, client.InNamespace(site.Namespace), client.MatchingLabels{"site": site.Name})
	if err != nil || len(pages.Items) > 0 {
		return err
	}
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, GenerateName: site.Name + "-", Labels: map[string]string{"site": site.Name}}}
	if err := controllerutil.SetControllerReference(site, page, r.Scheme); err != nil {
		return err
	}
	return r.Create(ctx, page)
}

func ensureOnePage(ctx context.Context, r *SiteReconciler, site *Site) error {
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}}
	if err := controllerutil.SetControllerReference(site, page, r.Scheme); err != nil {
		return err
	}
	if err := r.Create(ctx, page); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

func scenario(t *testing.T, ensure func(context.Context, *SiteReconciler, *Site) error) kubesim.Scenario {
	return kubesim.Scenario{
		Kinds:  kubesim.CRDs(t, "testdata/config/crd/bases"),
		Scheme: scheme,
		Start: manager.Start(ctrl.Options{Scheme: scheme}, func(mgr ctrl.Manager) error {
			return (&SiteReconciler{Client: mgr.GetClient(), Scheme: scheme, EnsurePage: ensure}).SetupWithManager(mgr)
		}),
		Steps: func(s *kubesim.Environment) {
			s.Create(&Site{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: SiteSpec{Text: "hello"}})
			s.Advance(time.Minute)
		},
		Plans: 100,
	}
}

// TestWhateverFails is the test of the README, once its controller is corrected.
func TestWhateverFails(t *testing.T) { kubesim.Explore(t, scenario(t, ensureOnePage)) }

// story is what it says before, as the README has it.
const story = `
it fails with one fault:
	event configmaps ADDED default/a-* #1: lost
this happened:
	0s event sites.example.com ADDED default/a
	200ms call create configmaps default/a-*
	200ms event configmaps ADDED default/a-*  <== lost
	200ms call update sites/status default/a
	200ms event sites.example.com MODIFIED default/a
	200ms call create configmaps default/a-*
and then:
	the world is not what it is without faults:
	+ configmaps default/a-*
`

var times = regexp.MustCompile(`^\d+m?s `)

// watchLists has the caches list by a watch, as client-go does by itself since 0.35.
func watchLists(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, true)
}

// TestGuideStory finds two pages, and tells what the README says of it, line after line. Its
// times are those of the newest controller-runtime.
func TestGuideStory(t *testing.T) {
	watchLists(t)
	r, err := kubesim.Search(t, scenario(t, ensureSomePage))
	if err != nil {
		t.Fatal(err)
	}
	found := fmt.Sprint(r.Found)
	rest := found
	for line := range strings.Lines(strings.TrimSpace(story)) {
		line = times.ReplaceAllString(strings.TrimRight(strings.TrimSpace(line), ":"), "")
		_, after, ok := strings.Cut(rest, line)
		if !ok {
			t.Fatalf("there is no %q, or not there, in\n%s", line, found)
		}
		rest = after
	}
}
