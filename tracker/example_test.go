// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package tracker_test

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/tracker"
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
	buckets := &tracker.Tracker[string, string]{
		Queue: queue,
		List: func(ctx context.Context) iter.Seq2[tracker.Listed[string, string], error] {
			return func(yield func(tracker.Listed[string, string], error) bool) {
				for page, err := range store.Pages(ctx) {
					if err != nil {
						yield(tracker.Listed[string, string]{}, err) // what is gone is not known then
						return
					}
					if !yield(tracker.Listed[string, string]{Item: page[0], Version: page[1]}, nil) {
						return
					}
				}
			}
		},
		Period: time.Minute,
		OnChange: func(c tracker.Change[string, string]) {
			fmt.Printf("%s %s %q %q\n", c.Item, c.Kind, c.Old, c.New)
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- buckets.Run(ctx) }()

	for taken := range 5 { // a Reconciler does this
		bucket, _ := queue.Dequeue(ctx)
		queue.Done(bucket)
		if taken == 1 {
			buckets.Trigger() // somebody has changed a bucket
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

// What most sources return is a map.
func ExampleFromMap() {
	list := tracker.FromMap(func(context.Context) (map[string]string, error) {
		return map[string]string{"logs": "e1"}, nil // from a folder, a table, a server
	})
	for listed, err := range list(context.Background()) {
		fmt.Println(listed.Item, listed.Version, err)
	}
	// Output:
	// logs e1 <nil>
}
