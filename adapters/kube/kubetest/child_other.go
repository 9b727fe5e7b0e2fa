// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package kubetest

import "syscall"

func childAttr() *syscall.SysProcAttr { return nil }
