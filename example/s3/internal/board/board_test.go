// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"errors"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
)

// A change may come just as the queue was found idle. The other tests of the board
// are those of the program.
func TestLooksAtTheQueueAgain(t *testing.T) {
	b := New(reconcile.NewQueue[string](), func(a, b int) bool { return a == b }, strings.Compare)
	b.Want([]string{"a"}, map[string]int{"a": 1})
	b.Listed(nil, nil, nil)
	<-b.looked
	if b.finish() || len(b.looked) != 1 {
		t.Error("the board is done, or Wait does not go on, with an item that is to run")
	}
}

// What is there may be forbidden to know: Wait does not ask for minutes then.
func TestLists(t *testing.T) {
	b := New(reconcile.NewQueue[string](), func(a, b int) bool { return a == b }, strings.Compare)
	b.Lists = 3
	for n := range 3 {
		if b.finish() {
			t.Errorf("the board is done after %d lists that failed, want 3", n)
		}
		b.Listed(nil, nil, errors.New("access denied"))
	}
	if !b.finish() {
		t.Error("the board is not done after 3 lists that failed")
	}
}
