// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import "testing"

// t is the *testing.T of the examples. Each of them stands for the body of a test.
var t *testing.T

// TestExamples runs the examples.
func TestExamples(tt *testing.T) {
	for name, example := range map[string]func(){
		"Run":          ExampleRun,
		"Process.DoOr": ExampleProcess_DoOr,
		"database":     ExampleRead_database,
	} {
		tt.Run(name, func(tt *testing.T) {
			t = tt
			example()
		})
	}
}
