// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package apitest gives a test an API server. By itself that is kubesim, in memory, and
// the test runs in a bubble of synctest: its time is exact and takes none. With the tag
// nightly the same test runs with kube-apiserver and etcd, which kubetest starts.
package apitest
