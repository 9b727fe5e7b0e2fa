// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubesim finds, in go test, what a crash, a lost answer, a conflict, a refusal, a
// server that restarts, a cache that lags or an event that never came breaks in a controller
// of Kubernetes. It is an API server in memory, and package explore: an hour takes no
// time, and each plan of faults has a cluster of its own.
//
//	func TestWhateverFails(t *testing.T) {
//		kubesim.Explore(t, kubesim.Scenario{
//			Kinds: kubesim.CRDs(t, "../../config/crd/bases"),
//			Start: func(proc *explore.Process, cfg *rest.Config) kubesim.Runner { return newController(cfg) },
//			Steps: func(s *kubesim.Environment) {
//				s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
//				s.Advance(time.Minute)
//			},
//		})
//	}
//
// The controller is any program that reaches the cluster by a [rest.Config]: with
// informers of client-go, or, by package manager, a Manager of controller-runtime.
// A [Server] also stands alone, as an [net/http.Handler].
//
// Plans have the faults of package explore, and those that only a cluster has: another client
// that writes first, a webhook that refuses, a watch that is cut, a server that restarts. They
// are described with [Conflict] and those after it.
//
// Its answers are those of kube-apiserver: the tests ask both the same 1,000 requests, and
// compare. What it does not do:
//   - authentication, authorization, admission, webhooks and quotas, except for [Refused];
//   - several versions of a kind: of each there is one, and no conversion;
//   - defaults and rules of the kinds that Kubernetes has, besides types, metadata, and
//     what of ConfigMaps, Secrets, Jobs, workloads and role bindings is immutable; kinds of
//     CRD files have all theirs;
//   - metadata.managedFields before the first server-side apply to an object: the
//     fields that it had by then have no owner, and conflicts call it
//     "before-first-apply";
//   - controllers, besides the garbage collector and that of namespaces; no kubelet: a pod
//     is gone when it is deleted, without a grace period;
//   - subresources other than status and scale; server-side apply of scale;
//   - CustomResourceDefinitions as objects; the two groups of events as one kind;
//   - tables, protobuf and CBOR, OpenAPI documents, discovery in one document, warnings;
//   - limits of time, size and rate.
package kubesim
