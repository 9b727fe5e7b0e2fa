// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kubetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

var configMapResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// TestKillAndRestart kills either process and finds what was written before.
func TestKillAndRestart(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	admin := kubetest.Dynamic(t, s.Admin())
	s.Kubectl(t, "create", "configmap", "a", "-n", ns)

	s.Etcd.Kill()
	if err := s.Etcd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.API.Kill()
	if _, err := admin.Resource(configMapResource).Namespace(ns).Get(t.Context(), "a", metav1.GetOptions{}); err == nil {
		t.Error("a killed API server answers")
	}
	if err := s.API.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Resource(configMapResource).Namespace(ns).Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if out := s.Kubectl(t, "get", "configmaps", "-n", ns, "-o", "name"); !strings.Contains(out, "configmap/a\n") {
		t.Errorf("kubectl get: %q, want configmap/a in it", out)
	}
}

// TestUser sees a user who may do what a role binding says and no more.
func TestUser(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	eve := kubetest.Dynamic(t, s.User("eve")).Resource(configMapResource).Namespace(ns)
	if _, err := eve.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list by a user without a role: %v, want forbidden", err)
	}
	s.Kubectl(t, "create", "role", "reader", "-n", ns, "--verb=list", "--resource=configmaps")
	s.Kubectl(t, "create", "rolebinding", "eve", "-n", ns, "--role=reader", "--user=eve")
	kubetest.Eventually(t, func() error {
		_, err := eve.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if err := eve.Delete(t.Context(), "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete by a user who may list: %v, want forbidden", err)
	}
}

// TestLink sees answers, delays and cuts that a Link makes.
func TestLink(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	var link kubetest.Link
	maps := kubetest.Dynamic(t, link.Config(s.Admin())).Resource(configMapResource).Namespace(ns)

	watch, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	link.Cut()
	for range watch.ResultChan() { // until it ends
	}
	link.Fail(kubetest.TooManyRequests(0))
	err = kubetest.Dynamic(t, link.Config(s.Admin())).Resource(configMapResource).Namespace(ns).Delete(t.Context(), "x", metav1.DeleteOptions{})
	if !apierrors.IsTooManyRequests(err) {
		t.Errorf("a throttled request: %v, want 429", err)
	}
	broken := errors.New("broken")
	link.Fail(kubetest.Broken(broken))
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); !errors.Is(err, broken) {
		t.Errorf("a request over a broken link: %v, want %v", err, broken)
	}
	link.Fail(nil)
	if _, err := maps.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("over a repaired link: %v", err)
	}
	if got := link.Requests(); got["WATCH configmaps"] != 1 || got["LIST configmaps"] != 2 {
		t.Errorf("requests: %v, want 1 WATCH and 2 LIST of configmaps", got)
	}
}

// TestMissingBinary sees an error that says what to run, in another repository too.
func TestMissingBinary(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("KUBETEST_BIN", t.TempDir())
	s, err := kubetest.Start(t.Context())
	if err == nil {
		s.Close()
		t.Fatal("started without binaries")
	}
	if want := "run adapters/kube/testserver/build.sh"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s in it", err, want)
	}
}

// TestEndedProcess sees the output of a server that ends at once.
func TestEndedProcess(t *testing.T) {
	s, err := kubetest.Start(t.Context(), "--no-such-flag")
	if err == nil {
		s.Close()
		t.Fatal("started with a flag that does not exist")
	}
	if !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("%v, want the output of kube-apiserver in it", err)
	}
}

// TestCRDs defines two kinds by the files of a folder: either is served when it returns.
func TestCRDs(t *testing.T) {
	s := kubetest.Shared(t)
	folder := t.TempDir()
	for _, kind := range []string{"cup", "plate"} {
		text := strings.ReplaceAll(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "KINDs.crds.example.com"},
			"spec": {"group": "crds.example.com", "scope": "Namespaced", "names": {"plural": "KINDs", "singular": "KIND", "kind": "KIND"},
			"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`, "KIND", kind)
		if err := os.WriteFile(filepath.Join(folder, kind+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.CRDs(t, folder)
	for _, kinds := range []string{"cups", "plates"} {
		gvr := schema.GroupVersionResource{Group: "crds.example.com", Version: "v1", Resource: kinds}
		if _, err := kubetest.Dynamic(t, s.Admin()).Resource(gvr).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
}
