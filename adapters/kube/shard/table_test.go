// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"fmt"
	"testing"
)

// TestTable gives each slot one owner, about as many to each, and moves none but
// from a member that went or to one that came.
func TestTable(t *testing.T) {
	var before map[int]string
	for n := 1; n <= 20; n++ {
		var members []string
		for i := range n {
			members = append(members, fmt.Sprintf("set-host-%d", i))
		}
		owner := make(map[int]string)
		for _, m := range members {
			count := 0
			for slot, ours := range tableOf(m, members) {
				if !ours {
					continue
				}
				count++
				if owner[slot] != "" {
					t.Fatalf("%d members: slot %d is of %s and of %s", n, slot, owner[slot], m)
				}
				owner[slot] = m
			}
			if fair := slots / n; count < fair*3/4 || count > fair*5/4 {
				t.Errorf("%d members: %s has %d slots, want about %d", n, m, count, fair)
			}
		}
		if len(owner) != slots {
			t.Errorf("%d members: %d slots have an owner, want %d", n, len(owner), slots)
		}
		for slot, m := range before {
			if owner[slot] != m && owner[slot] != members[n-1] {
				t.Errorf("%d members: slot %d went from %s to %s, though only %s came", n, slot, m, owner[slot], members[n-1])
			}
		}
		before = owner
	}
}

// TestHashNeverChanges pins what all versions of this package must agree on.
func TestHashNeverChanges(t *testing.T) {
	if got := fmt.Sprint(slotOf(""), slotOf("default/a"), slotOf("{default a}")); got != "2203 3595 3149" {
		t.Errorf("slots: %s, want 2203 3595 3149", got)
	}
	members := []string{"set-a", "set-b"}
	got := ""
	for slot := range 20 {
		if tableOf("set-a", members)[slot] {
			got += "a"
		} else {
			got += "b"
		}
	}
	if got != "babbbbabbbaaaaaabbaa" {
		t.Errorf("owners: %s, want babbbbabbbaaaaaabbaa", got)
	}
}
