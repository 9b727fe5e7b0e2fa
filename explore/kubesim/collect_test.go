// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// owned is a ConfigMap and its owners.
func owned(namespace, name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
}

func reference(cm *corev1.ConfigMap) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: cm.Name, UID: cm.UID}
}

func TestCollector(t *testing.T) {
	kubesim.Silence()
	yes := true
	orphan, foreground := metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground
	none := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}
	for name, test := range map[string]struct {
		refs   func(a, b *corev1.ConfigMap) []metav1.OwnerReference // of d
		space  string                                               // of d
		delete []string
		policy *metav1.DeletionPropagation
		gone   bool     // d
		left   []string // owners of d
		stays  []string // of a and b
	}{
		"both owners orphan it": {
			refs: func(a, b *corev1.ConfigMap) []metav1.OwnerReference {
				return []metav1.OwnerReference{reference(a), reference(b)}
			},
			delete: []string{"a", "b"}, policy: &orphan,
		},
		"one owner waits and one is there": {
			refs: func(a, b *corev1.ConfigMap) []metav1.OwnerReference {
				waits := reference(a)
				waits.BlockOwnerDeletion = &yes
				return []metav1.OwnerReference{waits, reference(b), none}
			},
			delete: []string{"a"}, policy: &foreground, left: []string{"b"}, stays: []string{"b"},
		},
		"the owner of another namespace": {
			refs:  func(a, b *corev1.ConfigMap) []metav1.OwnerReference { return []metav1.OwnerReference{reference(a)} },
			space: "kube-public", gone: true, stays: []string{"a", "b"},
		},
		"the owner of another name": {
			refs: func(a, b *corev1.ConfigMap) []metav1.OwnerReference {
				ref := reference(a)
				ref.Name = "b"
				return []metav1.OwnerReference{ref}
			},
			gone: true, stays: []string{"a", "b"},
		},
		"the owner of another kind": {
			refs: func(a, b *corev1.ConfigMap) []metav1.OwnerReference {
				ref := reference(a)
				ref.Kind = "Secret"
				return []metav1.OwnerReference{ref, reference(b)}
			},
			left: []string{"b"}, stays: []string{"a", "b"},
		},
		"a kind that nobody serves": {
			refs: func(a, b *corev1.ConfigMap) []metav1.OwnerReference {
				ref := reference(a)
				ref.APIVersion = "example.org/v1"
				return []metav1.OwnerReference{ref}
			},
			left: []string{"a"}, stays: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := kubesim.NewServer()
				client := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().ConfigMaps("default")
				s.Create(owned("default", "a"))
				s.Create(owned("default", "b"))
				a, _ := kubesim.Get(s, owned("default", "a"))
				b, _ := kubesim.Get(s, owned("default", "b"))
				d := owned("default", "d", test.refs(a, b)...)
				if test.space != "" {
					d.Namespace = test.space
				}
				s.Create(d)
				for _, name := range test.delete {
					if err := client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: test.policy}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				d, there := kubesim.Get(s, d)
				if there == test.gone {
					t.Errorf("d is there: %v, want %v", there, !test.gone)
				}
				var left []string
				if there {
					for _, ref := range d.OwnerReferences {
						left = append(left, ref.Name)
					}
				}
				var stays []string
				for _, name := range []string{"a", "b"} {
					if _, there := kubesim.Get(s, owned("default", name)); there {
						stays = append(stays, name)
					}
				}
				if !slices.Equal(left, test.left) || !slices.Equal(stays, test.stays) {
					t.Errorf("d has the owners %v, want %v; of a and b %v stay, want %v", left, test.left, stays, test.stays)
				}
			})
		})
	}
}

func TestCollectorOfTwoScopes(t *testing.T) {
	kubesim.Silence()
	synctest.Test(t, func(t *testing.T) {
		s := kubesim.NewServer()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		s.Create(node)
		node, _ = kubesim.Get(s, node)
		down := owned("default", "down", metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "node", UID: node.UID})
		s.Create(down)
		down, _ = kubesim.Get(s, down)
		up := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "up", OwnerReferences: []metav1.OwnerReference{reference(down)}}}
		s.Create(up)
		time.Sleep(time.Hour)
		if _, there := kubesim.Get(s, down); !there {
			t.Error("an object in a namespace went, whose owner has none")
		}
		if _, there := kubesim.Get(s, up); !there {
			t.Error("an object without a namespace went, whose owner has one: a collector cannot look it up")
		}
	})
}
