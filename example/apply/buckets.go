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

// A bucketClient has the functions of the Set.
type bucketClient struct {
	cloud *cloud.Fake

	// describe returns a bucket, or nil if it does not exist: by one call for all
	// buckets that are asked for at the time.
	describe func(ctx context.Context, name string) (*cloud.Asset, error)
}

// joined is how many buckets a call describes at most: as many as there are workers,
// because each asks for one.
const joined = 100

func newBucketClient(c *cloud.Fake, joined int) *bucketClient {
	return &bucketClient{cloud: c, describe: batch.New(joined, 10*time.Millisecond,
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

// list lists all buckets. Nobody else has buckets in this cloud: otherwise it would leave
// out those that have no mark of ours.
func (b *bucketClient) list(ctx context.Context) (map[string]*cloud.Asset, error) {
	assets, err := b.cloud.List(ctx)
	all := map[string]*cloud.Asset{}
	for _, a := range assets {
		if a.ID.Kind == cloud.Bucket {
			all[a.ID.Name] = &a
		}
	}
	return all, err
}

// ensure does the next step for one bucket.
func (b *bucketClient) ensure(ctx context.Context, name string, desired cloud.Spec) error {
	id := cloud.ID{Kind: cloud.Bucket, Name: name}
	actual, err := b.describe(ctx, name)
	if err == nil && actual == nil {
		actual = &cloud.Asset{ID: id}
		_, err = b.cloud.Create(ctx, id, desired)
	}
	switch {
	case err != nil:
		return classify(err)
	case actual.State == cloud.Failed:
		return errors.Join(errors.New("its creation failed"), b.cloud.Delete(ctx, id))
	case actual.State != cloud.Ready:
		return reconcile.RequeueWithin(100 * time.Millisecond) // it is being created
	}
	return nil
}

func (b *bucketClient) delete(ctx context.Context, name string, _ *cloud.Asset) error {
	return classify(b.cloud.Delete(ctx, cloud.ID{Kind: cloud.Bucket, Name: name}))
}

// classify decides what an error of the cloud means for the next run.
func classify(err error) error {
	var answer *cloud.Error
	switch {
	case errors.As(err, &answer) && answer.RetryAfter > 0:
		return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(min(answer.RetryAfter, time.Hour)))
	case errors.As(err, &answer) && answer.Final():
		return reconcile.Terminal(err)
	}
	return err // retried
}
