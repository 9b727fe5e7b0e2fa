// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// buckets are what is wanted, by name.
type buckets struct {
	cloud *cloud.Client
	want  map[string]cloud.Spec
}

// reconcile does the next step for one bucket.
func (b *buckets) reconcile(ctx context.Context, name string) error {
	id := cloud.ID{Kind: cloud.Bucket, Name: name}
	there, err := b.cloud.Get(ctx, id)
	if errors.Is(err, cloud.ErrNotFound) {
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
