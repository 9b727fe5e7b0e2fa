// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command cloud starts the simulated cloud of the example alone, so that one or
// more controllers in other terminals can use it:
//
//	go run ./example/cloud -chaos
//	go run ./example -watch -cloud http://127.0.0.1:8900
package main

import (
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

func main() { program.Main(fakecloud.Main) }
