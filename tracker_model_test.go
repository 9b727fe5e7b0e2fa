// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A slowTracker is a Tracker that anybody can read. It answers what a listing
// is to tell, sorted.
type slowTracker struct {
	resync int
	known  map[int]int
	begun  map[int]bool
	quiet  int
}

func (m *slowTracker) listing(seen []reconcile.Seen[int, int], complete bool) []string {
	var told []string
	say := func(verb string, item int) { told = append(told, fmt.Sprint(verb, " ", item)) }
	offers := m.resync > 0 && m.quiet == m.resync-1
	for _, s := range seen {
		old, known := m.known[s.Item]
		switch {
		case !known:
			say(fmt.Sprint("appeared ", s.Version, " enqueue"), s.Item)
		case old != s.Version || m.begun[s.Item]:
			say(fmt.Sprint("altered ", old, " ", s.Version, " enqueue"), s.Item)
		case offers:
			say("offer", s.Item)
		}
		m.known[s.Item] = s.Version
		delete(m.begun, s.Item)
	}
	if complete {
		for item, old := range m.known {
			if !slices.ContainsFunc(seen, func(s reconcile.Seen[int, int]) bool { return s.Item == item }) {
				say(fmt.Sprint("vanished ", old, " enqueue"), item)
				delete(m.known, item)
				delete(m.begun, item)
			}
		}
		if m.quiet++; offers {
			m.quiet = 0
		}
	}
	slices.Sort(told)
	return told
}

// A teller is an Enqueuer that keeps what it is told, with the change before it.
type teller struct {
	change string
	told   []string
}

func (q *teller) Enqueue(item int) {
	q.told = append(q.told, fmt.Sprint(q.change, " enqueue ", item))
	q.change = ""
}
func (q *teller) EnqueueAfter(item int, d time.Duration) { panic("not asked for") }
func (q *teller) Offer(item int)                         { q.told = append(q.told, fmt.Sprint("offer ", item)) }

func (q *teller) note(c reconcile.Change[int, int]) {
	switch c.Kind {
	case reconcile.Appeared:
		q.change = fmt.Sprint(c.Kind, " ", c.New)
	case reconcile.Altered:
		q.change = fmt.Sprint(c.Kind, " ", c.Old, " ", c.New)
	case reconcile.Vanished:
		q.change = fmt.Sprint(c.Kind, " ", c.Old)
	}
}

// Random listings, some of which fail in one way or another, tell what the model
// says, each exactly that.
func TestTrackerAgreesWithItsModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			known := make(map[int]int)
			begun := make(map[int]bool)
			for range rnd.IntN(6) {
				item, version := rnd.IntN(8), rnd.IntN(3)
				known[item] = version
				begun[item] = version == 0
			}
			for item := range begun {
				if !begun[item] {
					delete(begun, item)
				}
			}
			model := &slowTracker{resync: rnd.IntN(4), known: known, begun: begun}
			recalled := make(map[int]int)
			maps.Copy(recalled, known)
			q := new(teller)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var want []string
			steps := 0
			tr := &reconcile.Tracker[int, int]{
				Period: time.Minute,
				Resync: model.resync,
				Known: func(yield func(int, int) bool) {
					for item, version := range recalled {
						if !yield(item, version) {
							return
						}
					}
				},
				OnChange: q.note,
				Logger:   unlogged(),
			}
			tr.List = func(context.Context) iter.Seq2[reconcile.Seen[int, int], error] {
				if slices.Sort(q.told); !slices.Equal(q.told, want) {
					t.Errorf("seed %d, listing %d told %q, want %q", seed, steps, q.told, want)
				}
				if steps++; steps > 40 {
					cancel()
					return nil
				}
				var seen []reconcile.Seen[int, int]
				for range rnd.IntN(10) {
					seen = append(seen, reconcile.Seen[int, int]{Item: rnd.IntN(8), Version: rnd.IntN(3)})
				}
				if rnd.IntN(3) == 0 { // as it was
					seen = seen[:0]
					for item, version := range model.known {
						seen = append(seen, reconcile.Seen[int, int]{Item: item, Version: version})
					}
				}
				end := rnd.IntN(6)
				q.told, want = nil, model.listing(seen, end > 2)
				return func(yield func(reconcile.Seen[int, int], error) bool) {
					for i, s := range seen {
						if end == 0 && i == len(seen)/2 && !yield(reconcile.Seen[int, int]{Item: 99}, errBoom) {
							return
						}
						if !yield(s, nil) {
							return
						}
					}
					switch end {
					case 0, 1:
						yield(reconcile.Seen[int, int]{Item: 99}, errBoom)
					case 2:
						panic(errBoom)
					}
				}
			}
			if err := tr.Feed(ctx, q); err != nil {
				t.Errorf("Feed = %v, want nil", err)
			}
		})
	}
}
