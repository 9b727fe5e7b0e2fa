// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

// A slab holds values that are known by their numbers, from 0 on. It grows in
// chunks, so that growing never moves what is there.
type slab[V any] struct {
	chunks []*[slabChunk]V
	len    uint32
}

const slabChunk = 256

func (s *slab[V]) at(i uint32) *V { return &s.chunks[i/slabChunk][i%slabChunk] }

// grow adds a zero value and returns its number.
func (s *slab[V]) grow() uint32 {
	if s.len%slabChunk == 0 {
		s.chunks = append(s.chunks, new([slabChunk]V))
	}
	s.len++
	return s.len - 1
}
