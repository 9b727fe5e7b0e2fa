// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package fakecloud_test

import (
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

func TestOneProgramPerFolder(t *testing.T) {
	dir := t.TempDir()
	_, _, stop, err := fakecloud.Start(fakecloud.Config{Dir: dir}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fakecloud.Open(fakecloud.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "is in use by another program") {
		t.Errorf("a second cloud in the folder gives %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	s, err := fakecloud.Open(fakecloud.Config{Dir: dir})
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
