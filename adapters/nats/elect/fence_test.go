// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// A bucket keeps one lease in memory.
type bucket struct {
	jetstream.KeyValue
	mu      sync.Mutex // guards the fields below
	ttl     time.Duration
	created time.Time
	broken  time.Time // from then on it does not answer; zero for never

	value    []byte
	revision uint64

	before, after func() // a write; nil for nothing
}

var errBroken = errors.New("broken")

func (b *bucket) answer() error {
	if !b.broken.IsZero() && !time.Now().Before(b.broken) {
		return errBroken
	}
	return nil
}

type bucketStatus struct {
	jetstream.KeyValueStatus
	ttl     time.Duration
	created time.Time
}

func (s bucketStatus) TTL() time.Duration { return s.ttl }

func (s bucketStatus) StreamInfo() *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Created: s.created}
}

func (b *bucket) Bucket() string { return "leases" }

func (b *bucket) Status(context.Context) (jetstream.KeyValueStatus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bucketStatus{ttl: b.ttl, created: b.created}, b.answer()
}

func (b *bucket) Watch(context.Context, string, ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	return nil, errBroken // there is a timer as well
}

func (b *bucket) Create(_ context.Context, _ string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return b.write(value, nil, jetstream.ErrKeyExists)
}

func (b *bucket) Update(_ context.Context, _ string, value []byte, last uint64) (uint64, error) {
	return b.write(value, &last, jetstream.ErrKeyRevisionMismatch)
}

func (b *bucket) write(value []byte, last *uint64, conflict error) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.before != nil {
		b.before()
	}
	if b.after != nil {
		defer b.after()
	}
	switch err := b.answer(); {
	case err != nil:
		return 0, err
	case last == nil && b.value != nil, last != nil && *last != b.revision:
		return 0, conflict
	}
	b.value = value
	b.revision++
	return b.revision, nil
}

type bucketEntry struct {
	jetstream.KeyValueEntry
	value    []byte
	revision uint64
}

func (e bucketEntry) Value() []byte    { return e.value }
func (e bucketEntry) Revision() uint64 { return e.revision }

func (b *bucket) Get(context.Context, string) (jetstream.KeyValueEntry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.value == nil {
		return nil, jetstream.ErrKeyNotFound
	}
	return bucketEntry{value: b.value, revision: b.revision}, b.answer()
}

func (b *bucket) Delete(context.Context, string, ...jetstream.KVDeleteOpt) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.answer(); err != nil {
		return err
	}
	b.value = nil
	b.revision++
	return nil
}

// The Fence of a term is higher than those before, also if the bucket is made anew while
// the lease is won.
func TestFenceOfABucketThatIsMadeAnew(t *testing.T) {
	for _, when := range []string{"before the lease is written", "after it"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kv := &bucket{ttl: 30 * time.Second, created: time.Now(), revision: 1000}
				time.Sleep(time.Second)
				anew := sync.OnceFunc(func() { kv.created, kv.value, kv.revision = time.Now(), nil, 0 })
				if kv.before = anew; when == "after it" {
					kv.before, kv.after = nil, anew
				}
				var fence, want uint64
				err := Elect(kv, "leader", reconcile.RunFunc(func(ctx context.Context) error {
					fence, want = Fence(ctx), uint64(kv.created.UnixNano())+kv.revision
					return nil
				})).Run(t.Context())
				if err != nil || fence != want {
					t.Errorf("the fence is %d, %v; want %d, of the bucket as it is now", fence, err, want)
				}
			})
		})
	}
}

// A candidate that sees that the bucket was made anew waits until the leader of the one
// before, which may not know, has lost its lease.
func TestBucketThatIsMadeAnewHasOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := &bucket{ttl: 30 * time.Second, created: time.Now()} // renewed each 7.5 s
		var mu sync.Mutex
		var terms []context.Context
		r := reconcile.RunFunc(func(ctx context.Context) error {
			mu.Lock()
			for _, other := range terms {
				if other.Err() == nil {
					t.Error("two lead at once")
				}
			}
			terms = append(terms, ctx)
			mu.Unlock()
			<-ctx.Done()
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if err := Elect(kv, "leader", r).Run(ctx); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
		}
		time.Sleep(6 * time.Second)
		kv.mu.Lock()
		kv.created, kv.value, kv.revision = time.Now(), nil, 0
		kv.mu.Unlock()
		time.Sleep(time.Minute)
		stop()
		all.Wait()
		if len(terms) != 2 {
			t.Errorf("%d terms, want 2", len(terms))
		}
	})
}
