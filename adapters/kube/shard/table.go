// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import "hash/fnv"

// slots is how many parts the items are in. A slot has one owner; members can
// share them out evenly if they are not many more than a hundred.
const slots = 4096

// slotOf returns the slot of an item. All processes must agree on it, also those
// of another version of this package.
func slotOf(key string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // a hash takes everything
	return int(mix(h.Sum64()) % slots)
}

// A table says which slots a member has.
type table [slots]bool

// tableOf returns the slots of member, which is one of members: a slot goes to
// the one that draws the highest number for it. So when a member comes or goes,
// only slots that it gets, or had, change hands.
func tableOf(member string, members []string) *table {
	seeds := make([]uint64, len(members))
	for i, m := range members {
		h := fnv.New64a()
		_, _ = h.Write([]byte(m))
		seeds[i] = mix(h.Sum64())
	}
	t := new(table)
	for slot := range t {
		best, highest := "", uint64(0)
		for i, m := range members {
			draw := mix(seeds[i] ^ mix(uint64(slot)+1))
			if best == "" || draw > highest || draw == highest && m < best {
				best, highest = m, draw
			}
		}
		t[slot] = best == member
	}
	return t
}

// mix spreads the bits of x over all of it.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
