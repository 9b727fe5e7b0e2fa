// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"net"
	"testing"
)

// One listens there, ends, and another does; in between nobody answers.
func TestAddress(t *testing.T) {
	address := Address(t)
	for range 3 {
		if c, err := net.Dial("tcp", address); err == nil {
			t.Errorf("somebody answers at %s", address)
			c.Close()
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
