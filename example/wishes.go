// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

//go:embed assets.json
var shipped []byte

// generate makes up n assets: a key for every 50 of them, and buckets.
func generate(n int) assets {
	a := assets{specs: make(map[cloud.ID]cloud.Spec, n), order: make([]cloud.ID, 0, n)}
	keys := (n + 49) / 50
	regions := []string{"eu-west", "eu-north", "us-east", "us-west"}
	for i := range n {
		spec := cloud.Spec{Region: regions[i%len(regions)], Labels: map[string]string{"made": "by-number"}}
		if i < keys {
			a.add(cloud.ID{Kind: cloud.Key, Name: fmt.Sprintf("key-%05d", i)}, spec)
			continue
		}
		spec.Size = sizes[i%len(sizes)]
		spec.Key = fmt.Sprintf("key-%05d", i%keys)
		a.add(cloud.ID{Kind: cloud.Bucket, Name: fmt.Sprintf("bucket-%05d", i)}, spec)
	}
	return a
}
