// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"reflect"
	"testing"
)

func TestMayBeNaN(t *testing.T) {
	for _, c := range []struct {
		typ  reflect.Type
		want bool
	}{
		{reflect.TypeFor[int](), false},
		{reflect.TypeFor[string](), false},
		{reflect.TypeFor[struct{ kind, name string }](), false},
		{reflect.TypeFor[[2]string](), false},
		{reflect.TypeFor[*float64](), false},
		{reflect.TypeFor[float64](), true},
		{reflect.TypeFor[float32](), true},
		{reflect.TypeFor[complex128](), true},
		{reflect.TypeFor[complex64](), true},
		{reflect.TypeFor[any](), true},
		{reflect.TypeFor[[2]float64](), true},
		{reflect.TypeFor[struct {
			name string
			at   struct{ x, y [1]any }
		}](), true},
	} {
		if got := mayBeNaN(c.typ); got != c.want {
			t.Errorf("mayBeNaN(%v) = %t, want %t", c.typ, got, c.want)
		}
	}
}
