// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/remember"
)

// A Set whose actual state is a memory: see deleting-safely.md.

// A store has things, each with an ETag.
type store struct {
	mu    sync.Mutex // guards etags
	etags map[string]string
}

func (s *store) get(_ context.Context, name, _ string) (etag string, there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	etag, there = s.etags[name]
	return etag, there, nil
}

func (s *store) set(etags map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.etags = etags
}

func (s *store) list(context.Context) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.etags), nil
}

func TestListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "memory")
		happened := newDiary()
		s := &store{etags: map[string]string{"a": "e1"}}
		serve := func(d time.Duration) {
			memory := &remember.File[string, string]{Path: path}
			if err := memory.Open(); err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			queue := reconcile.NewQueue[string]()
			things := &keep.Set[string, string, string]{
				Queue:   queue,
				Period:  time.Minute,
				Desired: s.list,
				Lookup:  s.get,
				Actual: func(context.Context) (map[string]string, error) {
					return maps.Collect(memory.All()), nil
				},
				InSync: func(etag, made string) bool { return etag == made },
				Ensure: func(_ context.Context, name, etag string) error {
					if err := memory.Begin(name); err != nil {
						return err
					}
					happened.note("make %s as in %s", name, etag)
					return memory.Done(name, etag)
				},
				Delete: func(_ context.Context, name, _ string) error {
					if err := memory.Begin(name); err != nil {
						return err
					}
					happened.note("remove what was made for %s", name)
					return memory.Forget(name)
				},
			}
			var group reconcile.Group
			group.Add("list", things)
			group.Add("things", &reconcile.Reconciler[string]{Queue: queue, Reconcile: things.Reconcile, Logger: quiet})
			run(t, &group, d)
		}
		time.AfterFunc(30*time.Second, func() { s.set(map[string]string{"a": "e1", "b": "e1"}) })
		time.AfterFunc(90*time.Second, func() { s.set(map[string]string{"a": "e1", "b": "e2"}) })
		time.AfterFunc(150*time.Second, func() { s.set(map[string]string{"a": "e1", "b": "e2", "c": "e1"}) })
		serve(3*time.Minute + 30*time.Second)
		time.Sleep(time.Hour) // nobody serves
		s.set(map[string]string{"a": "e2", "b": "e2"})
		serve(time.Minute + 30*time.Second)
		happened.check(t, `
0s      make a as in e1
1m0s    make b as in e1
2m0s    make b as in e2
3m0s    make c as in e1
1h3m30s make a as in e2
1h3m30s remove what was made for c
`)
	})
}
