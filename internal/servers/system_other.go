// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package servers

import (
	"errors"
	"net"
	"syscall"
)

// childAttr does nothing: a child stays if this process is killed.
func childAttr(name string) (*syscall.SysProcAttr, error) {
	if name != "" {
		return nil, errors.New("servers: a Process runs as another user only on Linux")
	}
	return nil, nil
}

// HoldPort returns an address of loopback whose port no program uses. Nothing holds it
// here: if another program takes it before the server does, the server does not start.
func HoldPort() (address string, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
