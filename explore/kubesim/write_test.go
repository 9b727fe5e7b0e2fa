// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// Only a deletion sets the deletionTimestamp of an object: an update that does is refused, and
// one that removes it changes nothing.
func TestDeletionTimestampOfAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := kubesim.NewServer()
		client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().ConfigMaps("default")
		a := owned("default", "a")
		a.Finalizers = []string{"example.com/x"}
		s.Create(a)
		a, _ = kubesim.Get(s, a)
		now, zero := metav1.Now(), int64(0)
		for name, change := range map[string]func(*metav1.ObjectMeta){
			"deletionTimestamp":          func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &now },
			"deletionGracePeriodSeconds": func(m *metav1.ObjectMeta) { m.DeletionGracePeriodSeconds = &zero },
		} {
			changed := a.DeepCopy()
			change(&changed.ObjectMeta)
			if _, err := client.Update(t.Context(), changed, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("an update that sets %s returns %v, want that it is invalid", name, err)
			}
		}
		time.Sleep(time.Minute)
		s.Delete(a)
		a, _ = kubesim.Get(s, a)
		a.DeletionTimestamp, a.DeletionGracePeriodSeconds = nil, nil
		a, err := client.Update(t.Context(), a, metav1.UpdateOptions{})
		if err != nil || a.DeletionTimestamp == nil || a.DeletionGracePeriodSeconds == nil {
			t.Errorf("an update that removes the deletionTimestamp returns %v, %v, want it with that", a, err)
		}
	})
}

// Of an update of the status, the older kinds take over labels, the newer ones only the
// status.
func TestLabelsOfAStatus(t *testing.T) {
	s := kubesim.NewServer()
	clients := kubernetes.NewForConfigOrDie(s.Config(nil)).NetworkingV1()
	labels := map[string]string{"tier": "web"}
	s.Create(&networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: labels}})
	s.Create(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: labels}})
	ingress, _ := kubesim.Get(s, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
	ingress.Labels = nil
	ingress.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "192.0.2.1"}}
	ingress, err := clients.Ingresses("default").UpdateStatus(t.Context(), ingress, metav1.UpdateOptions{})
	if err != nil || len(ingress.Labels) > 0 || len(ingress.Status.LoadBalancer.Ingress) == 0 {
		t.Errorf("an Ingress becomes %v, %v, want it without labels", ingress, err)
	}
	cidr, _ := kubesim.Get(s, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	cidr.Labels = nil
	cidr.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "x"}}
	cidr, err = clients.ServiceCIDRs().UpdateStatus(t.Context(), cidr, metav1.UpdateOptions{})
	if err != nil || !maps.Equal(cidr.Labels, labels) || len(cidr.Status.Conditions) == 0 {
		t.Errorf("a ServiceCIDR becomes %v, %v, want it with its labels", cidr, err)
	}
}
