// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"bytes"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// The stringData of a Secret is written only: what is read has it in data.
func TestStringData(t *testing.T) {
	s := kubesim.NewServer()
	client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().Secrets("default")
	want := func(where string, got *corev1.Secret, err error, data map[string][]byte) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if len(got.StringData) > 0 || !maps.EqualFunc(got.Data, data, bytes.Equal) {
			t.Errorf("%s: a Secret has data %q and stringData %q, want data %q", where, got.Data, got.StringData, data)
		}
	}
	a := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Data:       map[string][]byte{"x": []byte("0"), "y": []byte("0")}, StringData: map[string]string{"x": "1"},
	}
	got, err := client.Create(t.Context(), a, metav1.CreateOptions{})
	want("created", got, err, map[string][]byte{"x": []byte("1"), "y": []byte("0")})
	got.StringData = map[string]string{"z": "2"}
	got, err = client.Update(t.Context(), got, metav1.UpdateOptions{})
	want("updated", got, err, map[string][]byte{"x": []byte("1"), "y": []byte("0"), "z": []byte("2")})
	got, err = client.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":null,"stringData":{"x":"3"}}`), metav1.PatchOptions{})
	want("patched", got, err, map[string][]byte{"x": []byte("3")})
	s.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, StringData: map[string]string{"x": "4"}})
	got, err = client.Get(t.Context(), "b", metav1.GetOptions{})
	want("created by Steps", got, err, map[string][]byte{"x": []byte("4")})
}

// A namespace keeps the label of its name.
func TestLabelOfANamespace(t *testing.T) {
	s := kubesim.NewServer()
	client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().Namespaces()
	got, err := client.Patch(t.Context(), "default", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
	if err != nil || got.Labels["kubernetes.io/metadata.name"] != "default" {
		t.Errorf("a namespace without labels becomes %v, %v, want the label of its name", got, err)
	}
	got, err = client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
	if err != nil || got.Labels["kubernetes.io/metadata.name"] != got.Name {
		t.Errorf("a namespace with a generated name becomes %v, %v, want the label of its name", got, err)
	}
}
