// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[3]ss.%[2]s}
spec:
  group: %[2]s
  scope: %[1]s
  names: {plural: %[3]ss, singular: %[3]s, kind: %[4]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// Define has the server know a kind, which takes any content and has a status,
// and returns when it is served. The scope is Namespaced or Cluster.
func (s *Server) Define(t testing.TB, scope, group, kind string) schema.GroupVersionResource {
	t.Helper()
	gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
	s.KubectlInput(t, fmt.Sprintf(definition, scope, group, strings.ToLower(kind), kind), "apply", "-f", "-")
	s.Kubectl(t, "wait", "--for=condition=Established", "crd/"+gvr.GroupResource().String(), "--timeout=5m")
	s.serves(t, gvr)
	return gvr
}

// CRDs has the server know the kinds that the files of folders define, in YAML or JSON,
// and returns when they are served. A folder may be a file.
func (s *Server) CRDs(t testing.TB, folders ...string) {
	t.Helper()
	type definition struct {
		Items []json.RawMessage // of a list
		Spec  struct {
			Group    string
			Names    struct{ Plural string }
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	for _, folder := range folders {
		s.Kubectl(t, "apply", "--server-side", "-f", folder)
		s.Kubectl(t, "wait", "--for=condition=Established", "-f", folder, "--timeout=5m")
		texts := []json.RawMessage{json.RawMessage(s.Kubectl(t, "get", "-o", "json", "-f", folder))}
		for i := 0; i < len(texts); i++ {
			var d definition
			if err := json.Unmarshal(texts[i], &d); err != nil {
				t.Fatalf("kubetest: what kubectl says of %s: %v", folder, err)
			}
			texts = append(texts, d.Items...)
			for _, v := range d.Spec.Versions {
				if v.Served {
					s.serves(t, schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: d.Spec.Names.Plural})
				}
			}
		}
	}
}

// serves waits until a kind is served: its endpoints come a moment after the condition.
func (s *Server) serves(t testing.TB, gvr schema.GroupVersionResource) {
	t.Helper()
	Eventually(t, func() error {
		return get(t.Context(), s.probe, s.url+"/apis/"+gvr.GroupVersion().String()+"/"+gvr.Resource)
	})
}

// Dynamic returns a client of any kind.
func Dynamic(t testing.TB, config *rest.Config) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Run runs a Runner until the test ends, or until stop is called, which waits
// for it and may be called again. It fails the test if the Runner fails.
func Run(t testing.TB, r reconcile.Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
