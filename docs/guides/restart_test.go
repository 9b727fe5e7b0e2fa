// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

// A Set whose actual state is a file of what was made: see deleting-safely.md.

// A madeFile is a file of what was made, by name, with the ETag that it was made from.
// A name that is noted before its thing is made has no ETag.
type madeFile struct {
	path string
	mu   sync.Mutex // guards made
	made map[string]string
}

func (m *madeFile) open() error {
	data, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("{}"), nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, &m.made)
}

func (m *madeFile) list(context.Context) (map[string]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.made), nil
}

// update changes what was made, and returns when the disk has the change.
func (m *madeFile) update(change func(made map[string]string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := maps.Clone(m.made)
	change(next)
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	f, err := os.Create(m.path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), m.path); err != nil {
		return err
	}
	m.made = next
	folder, err := os.Open(filepath.Dir(m.path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // the new name
}

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
		path := filepath.Join(t.TempDir(), "made.json")
		happened := newDiary()
		s := &store{etags: map[string]string{"a": "e1"}}
		serve := func(d time.Duration) {
			m := &madeFile{path: path}
			if err := m.open(); err != nil {
				t.Fatal(err)
			}
			queue := reconcile.NewQueue[string]()
			things := &keep.Set[string, string, string]{
				Queue:       queue,
				Period:      time.Minute,
				Desired:     s.list,
				Lookup:      s.get,
				DeleteAfter: -1,
				Actual:      m.list,
				InSync:      func(etag, made string) bool { return etag == made },
				Ensure: func(_ context.Context, name, etag string) error {
					if err := m.update(func(made map[string]string) { made[name] = "" }); err != nil {
						return err
					}
					happened.note("make %s as in %s", name, etag)
					return m.update(func(made map[string]string) { made[name] = etag })
				},
				Delete: func(_ context.Context, name, _ string) error {
					if err := m.update(func(made map[string]string) { made[name] = "" }); err != nil {
						return err
					}
					happened.note("remove what was made for %s", name)
					return m.update(func(made map[string]string) { delete(made, name) })
				},
			}
			var group supervise.Group
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
