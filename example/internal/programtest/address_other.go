// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package programtest

import (
	"net"
	"testing"
)

// Address returns an address on loopback whose port is free now. Another process
// can be given it, before a program listens there and in between.
func Address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
