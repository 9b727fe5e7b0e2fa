// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var writeController = flag.Bool("write-controller", false, "copy example/controller.go to controller.go")

// The controller that lives through the bad days is that of the example, unchanged
// except for its client and its board. After a change of that one:
//
//	go test -run TestController ./badday -write-controller
func TestController(t *testing.T) {
	theirs, err := os.ReadFile("../../example/controller.go")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(
		"package main\n", "package badday\n",
		"reconcile/example/internal/", "reconcile/verify/badday/internal/",
	).Replace(string(theirs))
	if *writeController {
		if err := os.WriteFile("controller.go", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile("controller.go"); err != nil || string(got) != want {
		t.Errorf("controller.go is not that of the example (%v): want it copied by -write-controller", err)
	}
}
