// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !nightly

package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// A Server is the API server of a test. It has the methods of a kubetest.Server that
// need no process.
type Server struct {
	mu     sync.Mutex // guards the fields below
	kinds  []*kubesim.Kind
	config *rest.Config // nil until the first request
	server *kubesim.Server
	spaces []string
}

// Run calls f in a bubble, with a server of its own.
func Run(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Helper()
	kubesim.Silence()
	synctest.Test(t, func(t *testing.T) { f(t, new(Server)) })
}

// Admin returns the configuration of a client.
func (s *Server) Admin() *rest.Config {
	config := new(kubesim.Server).Config(nil)
	config.Transport = lazily{s}
	return config
}

// lazily reaches the server, whose kinds are known with the first request.
type lazily struct{ *Server }

func (l lazily) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.started().Transport.RoundTrip(r)
}

func (s *Server) started() *rest.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config == nil {
		s.server = kubesim.NewServer(s.kinds...)
		for _, name := range s.spaces {
			s.server.Create(namespace(name))
		}
		s.config = s.server.Config(nil)
	}
	return s.config
}

// Namespace makes a namespace and returns its name.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("namespace-%d", len(s.spaces)+1)
	s.spaces = append(s.spaces, name)
	if s.server != nil {
		s.server.Create(namespace(name))
	}
	return name
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

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

// Define has the server know a kind, which takes any content and has a status. The scope
// is Namespaced or Cluster.
func (s *Server) Define(t testing.TB, scope, group, kind string) schema.GroupVersionResource {
	t.Helper()
	kinds, err := kubesim.ReadCRDs(strings.NewReader(fmt.Sprintf(definition, scope, group, strings.ToLower(kind), kind)))
	if err != nil {
		t.Fatal(err)
	}
	s.add(t, kinds)
	return kinds[0].GroupVersion().WithResource(kinds[0].Resource)
}

// CRDs has the server know the kinds that the files define.
func (s *Server) CRDs(t testing.TB, paths ...string) {
	t.Helper()
	s.add(t, kubesim.CRDs(t, paths...))
}

func (s *Server) add(t testing.TB, kinds []*kubesim.Kind) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		t.Fatal("apitest: the kinds are defined before the first request")
	}
	s.kinds = append(s.kinds, kinds...)
}

// Kubectl does what kubectl does with these arguments: create configmap and secret
// generic, create and apply -f -, label, annotate, patch, delete, and get -o name.
func (s *Server) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return s.KubectlInput(t, "", args...)
}

// KubectlInput is Kubectl with a standard input, for -f -.
func (s *Server) KubectlInput(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, err := s.kubectl(t, stdin, args)
	if err != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

var flag = regexp.MustCompile(`^--?([a-z-]+)(?:=(.*))?$`)

func (s *Server) kubectl(t testing.TB, stdin string, args []string) (out string, err error) {
	var words []string
	flags := make(map[string]string)
	for i := 0; i < len(args); i++ {
		m := flag.FindStringSubmatch(args[i])
		switch {
		case m == nil:
			words = append(words, args[i])
		case slices.Contains([]string{"n", "f", "o", "l", "p"}, m[1]) && i+1 < len(args):
			i++
			flags[m[1]] = args[i]
		default:
			flags[m[1]] = m[2]
		}
	}
	client, err := dynamic.NewForConfig(s.Admin())
	if err != nil {
		return "", err
	}
	s.started()
	of := func(resource string) (dynamic.ResourceInterface, error) {
		plural, group, _ := strings.Cut(resource, ".")
		gvr, err := s.server.Mapper().ResourceFor(schema.GroupVersionResource{Group: group, Resource: plural})
		if err != nil {
			return nil, err
		}
		if ns := flags["n"]; ns != "" {
			return client.Resource(gvr).Namespace(ns), nil
		}
		return client.Resource(gvr), nil
	}
	verb, words := words[0], words[1:]
	ctx := t.Context()

	if verb == "create" || verb == "apply" {
		object := &unstructured.Unstructured{}
		if stdin != "" {
			if err := yaml.Unmarshal([]byte(stdin), &object.Object); err != nil {
				return "", err
			}
		} else {
			kind := map[string]string{"configmap": "ConfigMap", "secret": "Secret"}[words[0]]
			object.Object = map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": words[len(words)-1]}}
			if key, value, ok := strings.Cut(flags["from-literal"], "="); ok {
				object.Object["data"] = map[string]any{key: value}
			}
		}
		if ns := object.GetNamespace(); ns != "" {
			flags["n"] = ns
		}
		resource, err := of(strings.ToLower(object.GetKind()) + "." + object.GroupVersionKind().Group)
		if err != nil {
			return "", err
		}
		_, err = resource.Create(ctx, object, metav1.CreateOptions{})
		return "", err
	}

	resource, err := of(words[0])
	if err != nil {
		return "", err
	}
	switch verb {
	case "label", "annotate":
		values := make(map[string]any)
		for _, word := range words[2:] {
			key, value, _ := strings.Cut(word, "=")
			values[key] = value
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{map[string]string{"label": "labels", "annotate": "annotations"}[verb]: values}})
		if err != nil {
			return "", err
		}
		_, err = resource.Patch(ctx, words[1], types.MergePatchType, body, metav1.PatchOptions{})
		return "", err
	case "patch":
		_, err := resource.Patch(ctx, words[1], types.MergePatchType, []byte(flags["p"]), metav1.PatchOptions{})
		return "", err
	case "delete":
		return "", resource.Delete(ctx, words[1], metav1.DeleteOptions{})
	case "get":
		list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: flags["l"]})
		if err != nil {
			return "", err
		}
		for _, item := range list.Items {
			out += strings.ToLower(item.GetKind()) + "/" + item.GetName() + "\n"
		}
		return out, nil
	}
	return "", fmt.Errorf("apitest does not know %q", verb)
}
