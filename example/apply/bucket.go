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
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// buckets are what is wanted, by name.
type buckets struct {
	cloud *cloud.Client
	want  map[string]cloud.Spec

	// describe returns what there is of a bucket, nil if it is not there: by a call
	// for all the buckets that are asked for at the time.
	describe func(ctx context.Context, name string) (*cloud.Asset, error)
}

// joined is how many buckets a call describes at most: as many as there are workers,
// since each asks for one.
const joined = 100

func newBuckets(c *cloud.Client, want map[string]cloud.Spec, joined int) *buckets {
	return &buckets{cloud: c, want: want, describe: batch.New(joined, 10*time.Millisecond,
		func(ctx context.Context, names []string) ([]*cloud.Asset, error) {
			list, err := c.List(ctx, cloud.Bucket, names...)
			found := make([]*cloud.Asset, len(names))
			for _, there := range list {
				if i := slices.Index(names, there.ID.Name); i >= 0 {
					found[i] = &there
				}
			}
			return found, err
		})}
}

// reconcile does the next step for one bucket.
func (b *buckets) reconcile(ctx context.Context, name string) error {
	id := cloud.ID{Kind: cloud.Bucket, Name: name}
	there, err := b.describe(ctx, name)
	if err == nil && there == nil {
		there = &cloud.Asset{ID: id}
		_, err = b.cloud.Create(ctx, id, b.want[name])
	}
	var answer *cloud.Error
	switch {
	case errors.As(err, &answer) && answer.RetryAfter > 0:
		return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(answer.RetryAfter))
	case errors.As(err, &answer) && answer.Final():
		return reconcile.Terminal(err)
	case err != nil:
		return err // it is tried again
	case there.State == cloud.Failed:
		return errors.Join(errors.New("its creation failed"), b.cloud.Delete(ctx, id))
	case there.State != cloud.Ready:
		return reconcile.RequeueWithin(100 * time.Millisecond) // it is being made
	}
	return nil
}
