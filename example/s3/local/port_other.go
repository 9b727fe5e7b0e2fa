// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

import "net"

// Hold returns an address on loopback whose port is free now. Another process
// can be given it, before a program listens there and in between.
func Hold() (address string, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
