// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package rare_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
)

// TestFailures logs the first, second, fourth of those that read alike; a different
// one, and one after a quiet while, is the first again.
func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f rare.Failures
		if f.Last() != nil {
			t.Error("a failure before there is one")
		}
		for i, step := range []struct {
			pause time.Duration
			text  string
			count int
			log   bool
		}{
			{0, "a", 1, true},
			{time.Minute, "a", 2, true},
			{time.Minute, "a", 3, false},
			{5 * time.Minute, "a", 4, true},
			{5*time.Minute + 1, "a", 1, true},
			{0, "a", 2, true},
			{0, "b", 1, true},
			{0, "a", 1, true},
		} {
			time.Sleep(step.pause)
			err := fmt.Errorf("%s", step.text) // each time another value
			if count, log := f.Add(err); count != step.count || log != step.log || !errors.Is(f.Last(), err) {
				t.Errorf("step %d: %d, %t, want %d, %t", i, count, log, step.count, step.log)
			}
		}
	})
}

// TestFailuresOfConnections has errors of connections read alike that differ in our own
// port, and not those of another server.
func TestFailuresOfConnections(t *testing.T) {
	lost := func(network, ours, theirs string) error {
		return &net.OpError{Op: "read", Net: network, Source: address(ours), Addr: address(theirs), Err: errors.New("reset")}
	}
	lookup := func(port string) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{
			Err: lost("udp", "10.0.0.1:"+port, "10.0.0.10:53").Error(), Name: "x.example.com", Server: "10.0.0.10:53",
		}}
	}
	var f rare.Failures
	for i, step := range []struct {
		err   error
		count int
	}{
		{fmt.Errorf("watch: %w", lost("tcp", "10.0.0.1:51234", "10.0.0.2:443")), 1},
		{fmt.Errorf("watch: %w", lost("tcp", "10.0.0.1:51236", "10.0.0.2:443")), 2},
		{fmt.Errorf("watch: %w", lost("tcp", "10.0.0.1:51236", "10.0.0.3:443")), 1},
		{lost("tcp", "[::1]:51234", "[::1]:443"), 1},
		{lost("tcp", "[::1]:51236", "[::1]:443"), 2},
		{lookup("51234"), 1},
		{lookup("51236"), 2},
	} {
		if count, _ := f.Add(step.err); count != step.count {
			t.Errorf("step %d, %v: %d, want %d", i, step.err, count, step.count)
		}
	}
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }
