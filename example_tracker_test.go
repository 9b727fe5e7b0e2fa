// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/reconkernel/reconcile"
)

// A bucketStore answers a listing page by page, with an ETag of each bucket.
type bucketStore struct{ listings [][]string }

func (s *bucketStore) Pages(context.Context) iter.Seq2[[]string, error] {
	listing := s.listings[0]
	s.listings = s.listings[1:]
	return func(yield func([]string, error) bool) {
		for ; len(listing) > 0; listing = listing[2:] {
			if !yield(listing[:2], nil) {
				return
			}
		}
	}
}

func ExampleTracker() {
	store := &bucketStore{listings: [][]string{
		{"logs", "e1", "photos", "e1"},
		{"photos", "e2", "videos", "e1"},
	}}
	queue := reconcile.NewQueue[string]()
	tracker := &reconcile.Tracker[string, string]{
		List: func(ctx context.Context) iter.Seq2[reconcile.Seen[string, string], error] {
			return func(yield func(reconcile.Seen[string, string], error) bool) {
				for page, err := range store.Pages(ctx) {
					if err != nil {
						yield(reconcile.Seen[string, string]{}, err) // what is gone cannot be told
						return
					}
					if !yield(reconcile.Seen[string, string]{Item: page[0], Version: page[1]}, nil) {
						return
					}
				}
			}
		},
		Period: time.Minute,
		OnChange: func(c reconcile.Change[string, string]) {
			fmt.Printf("%s %s %q %q\n", c.Item, c.Kind, c.Old, c.New)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- reconcile.Feed(queue, tracker.Feed).Run(ctx) }()

	for taken := range 5 { // a Reconciler does this
		bucket, _ := queue.Dequeue(ctx)
		queue.Done(bucket)
		if taken == 1 {
			tracker.Trigger() // somebody has changed a bucket
		}
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// logs appeared "" "e1"
	// photos appeared "" "e1"
	// photos altered "e1" "e2"
	// videos appeared "" "e1"
	// logs vanished "e1" ""
	// <nil>
}
