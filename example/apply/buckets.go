// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/batch"
	"github.com/reconkernel/reconcile/example/cloud"
)

// buckets are the desired buckets, by name.
type buckets struct {
	cloud *cloud.Fake
	want  map[string]cloud.Spec

	// describe returns a bucket, or nil if it does not exist: by one call for all
	// buckets that are asked for at the time.
	describe func(ctx context.Context, name string) (*cloud.Asset, error)
}

// joined is how many buckets a call describes at most: as many as there are workers,
// because each asks for one.
const joined = 100

func newBuckets(c *cloud.Fake, want map[string]cloud.Spec, joined int) *buckets {
	return &buckets{cloud: c, want: want, describe: batch.New(joined, 10*time.Millisecond,
		func(ctx context.Context, names []string) ([]*cloud.Asset, error) {
			ids := make([]cloud.ID, len(names))
			for i, name := range names {
				ids[i] = cloud.ID{Kind: cloud.Bucket, Name: name}
			}
			list, err := c.List(ctx, ids...)
			found := make([]*cloud.Asset, len(names))
			for _, actual := range list {
				found[slices.Index(ids, actual.ID)] = &actual
			}
			return found, err
		})}
}

// reconcile does the next step for one bucket.
func (b *buckets) reconcile(ctx context.Context, name string) error {
	id := cloud.ID{Kind: cloud.Bucket, Name: name}
	actual, err := b.describe(ctx, name)
	if err == nil && actual == nil {
		actual = &cloud.Asset{ID: id}
		_, err = b.cloud.Create(ctx, id, b.want[name])
	}
	var answer *cloud.Error
	switch {
	case errors.As(err, &answer) && answer.RetryAfter > 0:
		return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(answer.RetryAfter))
	case errors.As(err, &answer) && answer.Final():
		return reconcile.Terminal(err)
	case err != nil:
		return err // retried
	case actual.State == cloud.Failed:
		return errors.Join(errors.New("its creation failed"), b.cloud.Delete(ctx, id))
	case actual.State != cloud.Ready:
		return reconcile.RequeueWithin(100 * time.Millisecond) // it is being created
	}
	return nil
}
