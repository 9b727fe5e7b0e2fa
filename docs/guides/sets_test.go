// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

// The programs of sets.md.

// A server is what our database has; an instance is what the provider lists.
type (
	server struct {
		Size   string
		ID     string // of the instance, once there is one
		Absent bool
	}
	instance struct{ ID, Size string }
)

// A table stands in for a database or a provider: rows with a key.
type table[V any] struct {
	mu   sync.Mutex // guards rows
	rows map[string]V
}

func (t *table[V]) list(context.Context) (map[string]V, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.rows), nil
}

func (t *table[V]) get(key string) (row V, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok = t.rows[key]
	return row, ok
}

func (t *table[V]) put(key string, row V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = map[string]V{}
	}
	t.rows[key] = row
}

func (t *table[V]) remove(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, key)
}

func (t *table[V]) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.rows)
}

// runSet runs a Set and its Reconciler for d.
func runSet[K comparable, D, A any](t *testing.T, set *keep.Set[K, D, A], d time.Duration, more ...reconcile.Runner) {
	t.Helper()
	set.Reconciler = &reconcile.Reconciler[K]{Workers: 10}
	group := supervise.Group{Logger: quiet}
	group.Add("set", set)
	for i, r := range more {
		group.Add(fmt.Sprint("more ", i), r)
	}
	run(t, &group, d)
}

// fleet is 20 servers in sync.
func fleet() (records *table[server], machines *table[instance]) {
	records, machines = &table[server]{}, &table[instance]{}
	for i := range 20 {
		name := fmt.Sprintf("web-%02d", i)
		records.put(name, server{Size: "s"})
		machines.put(name, instance{ID: "i-" + name, Size: "s"})
	}
	return records, machines
}

func TestRecipeAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, machines := fleet()
		happened := newDiary()
		servers := &keep.Set[string, server, instance]{
			Period: time.Minute,
			Actual: machines.list,
			InSync: func(s server, m instance) bool { return s.Size == m.Size },
			Ensure: func(context.Context, string, server) error { return nil },
			Delete: func(_ context.Context, name string, m instance) error {
				machines.remove(name)
				return nil
			},
			Absent: func(s server) bool { return s.Absent },
			// The record stays, marked, until the machine is gone.
			Desired: func(ctx context.Context) (map[string]server, error) {
				all, err := records.list(ctx)
				for name, s := range all {
					if _, exists := machines.get(name); s.Absent && !exists { // a GET of one machine
						records.remove(name)
						delete(all, name)
					}
				}
				return all, err
			},
		}
		time.AfterFunc(90*time.Second, func() {
			for i := 15; i < 20; i++ {
				records.put(fmt.Sprintf("web-%02d", i), server{Size: "s", Absent: true})
			}
		})
		for _, at := range []time.Duration{150 * time.Second, 210 * time.Second, 270 * time.Second} {
			time.AfterFunc(at, func() { happened.note("%d machines, %d records", machines.size(), records.size()) })
		}
		runSet(t, servers, time.Hour)
		happened.check(t, `
2m30s   20 machines, 20 records
3m30s   15 machines, 20 records
4m30s   15 machines, 15 records
`)
	})
}

func TestRecipePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		size, slots, machines := &table[int]{}, &table[server]{}, &table[instance]{}
		size.put("web", 5)
		var made atomic.Int32

		// The item of this queue is the pool. It records names: slots.
		pools := reconcile.NewQueue[string]()
		pool := func(_ context.Context, name string) error {
			want, _ := size.get(name)
			more, _ := slots.list(context.Background())
			for i := range want {
				slot := fmt.Sprintf("%s-%d", name, i)
				if s, recorded := more[slot]; !recorded || s.Absent {
					slots.put(slot, server{Size: "s"})
				}
				delete(more, slot)
			}
			for slot, s := range more {
				if !s.Absent {
					slots.put(slot, server{Size: "s", Absent: true})
				} else if _, exists := machines.get(slot); !exists {
					slots.remove(slot)
				}
			}
			return nil
		}

		servers := &keep.Set[string, server, instance]{
			Period:  time.Minute,
			Desired: slots.list, // recorded names, and no new ones
			Actual:  machines.list,
			InSync:  func(server, instance) bool { return true },
			Ensure: func(_ context.Context, slot string, s server) error {
				if _, ok := machines.get(slot); ok {
					return nil
				}
				time.Sleep(150 * time.Second) // a creation
				made.Add(1)
				machines.put(slot, instance{Size: s.Size})
				return nil
			},
			Delete: func(_ context.Context, slot string, _ instance) error { machines.remove(slot); return nil },
			Absent: func(s server) bool { return s.Absent },
		}
		time.AfterFunc(30*time.Minute, func() {
			happened.note("%d machines, %d made", machines.size(), made.Load())
			size.put("web", 2)
		})
		time.AfterFunc(35*time.Minute, func() {
			happened.note("%d machines, %d made, %d slots", machines.size(), made.Load(), slots.size())
		})
		runSet(t, servers, time.Hour,
			&reconcile.Poller[string]{Queue: pools, Period: time.Minute, GetItems: func(context.Context) ([]string, error) { return []string{"web"}, nil }},
			&reconcile.Reconciler[string]{Queue: pools, Reconcile: pool})
		happened.check(t, `
30m0s   5 machines, 5 made
35m0s   2 machines, 5 made, 2 slots
`)
	})
}

func TestRecipeListedLate(t *testing.T) {
	for _, apply := range []bool{false, true} {
		testListedLate(t, apply)
	}
}

func testListedLate(t *testing.T, apply bool) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		machines, visible := &table[instance]{}, &table[instance]{}
		records := &table[server]{}
		for i := range 4 {
			records.put(fmt.Sprintf("web-%d", i), server{Size: "s"})
		}
		// create returns the machine that it has created for a token, if it has.
		create := func(token string, s server) {
			if _, ok := machines.get(token); ok {
				return
			}
			happened.note("create %s", token)
			machines.put(token, instance{ID: "i-" + token, Size: s.Size})
			time.AfterFunc(3*time.Minute, func() { visible.put(token, instance{ID: "i-" + token, Size: s.Size}) })
		}
		servers := &keep.Set[string, server, instance]{
			Period:  time.Minute,
			Desired: records.list,
			Actual:  visible.list, // three minutes late
			InSync:  func(s server, m instance) bool { return s.Size == m.Size },
			Ensure: func(_ context.Context, name string, s server) error {
				if _, listed := visible.get(name); listed { // ask the provider: servers.Listed does not change during Apply
					return nil // a change of size would follow here
				}
				create(name, s) // again and again, with the same token
				return fmt.Errorf("created, and not listed yet: %w", reconcile.RequeueWithin(30*time.Second))
			},
			Delete: func(context.Context, string, instance) error { return nil },
		}
		if apply {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := servers.Apply(ctx, &reconcile.Reconciler[string]{Workers: 4, Logger: quiet}); err != nil || visible.size() != 4 {
				t.Errorf("Apply returned %v, and %d machines are listed", err, visible.size())
			}
		} else {
			runSet(t, servers, time.Hour)
		}
		lines := happened.Lines()
		slices.Sort(lines)
		if want := []string{"0s create web-0", "0s create web-1", "0s create web-2", "0s create web-3"}; !slices.Equal(lines, want) {
			t.Errorf("what happened: %q, want %q", lines, want)
		}
	})
}

func TestRecipeThreeSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		records, machines, registrations := &table[server]{}, &table[instance]{}, &table[string]{}
		records.put("a", server{Size: "s"})
		records.put("b", server{Size: "s"})

		servers := &keep.Set[string, server, instance]{
			Period:  time.Minute,
			Desired: records.list,
			Actual:  machines.list,
			InSync:  func(s server, m instance) bool { return s.Size == m.Size },
			Ensure: func(_ context.Context, name string, s server) error {
				if _, ok := machines.get(name); !ok {
					happened.note("create machine %s", name)
					machines.put(name, instance{Size: s.Size})
				}
				return nil
			},
			Delete: func(_ context.Context, name string, _ instance) error {
				happened.note("delete machine %s", name)
				machines.remove(name)
				return nil
			},
			Absent: func(s server) bool { return s.Absent },
		}
		// Each machine has a registration, and no registration outlives its machine.
		registered := &keep.Set[string, instance, string]{
			Period:      time.Minute,
			DeleteAfter: -1, // the next step of a deletion that the first Set was careful with
			Desired:     machines.list,
			Lookup: func(_ context.Context, name string, _ instance) (instance, bool, error) {
				m, ok := machines.get(name)
				return m, ok, nil
			},
			Actual: registrations.list,
			InSync: func(instance, string) bool { return true },
			Ensure: func(_ context.Context, name string, _ instance) error {
				if _, ok := registrations.get(name); !ok {
					happened.note("register %s", name)
					registrations.put(name, "idle")
				}
				return nil
			},
			Delete: func(_ context.Context, name, _ string) error {
				happened.note("remove registration %s", name)
				registrations.remove(name)
				return nil
			},
		}
		time.AfterFunc(5*time.Minute-30*time.Second, func() { records.put("b", server{Size: "s", Absent: true}) })
		runSet(t, servers, time.Hour, reconcile.RunFunc(func(ctx context.Context) error {
			time.Sleep(time.Second)
			return registered.Run(ctx)
		}))
		lines := happened.Lines()
		slices.Sort(lines)
		want := []string{
			"0s create machine a", "0s create machine b", "1s register a", "1s register b",
			"6m0s delete machine b", "6m1s remove registration b",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("what happened: %q, want %q", lines, want)
		}
	})
}

var errNoID = errors.New("the id is not known yet")

func TestRecipeLookupByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, machines := fleet()
		byID := map[string]server{}
		for name, s := range records.rows {
			s.ID = "record-" + name
			records.rows[name] = s
			byID[s.ID] = s
		}
		var deleted atomic.Int32
		servers := &keep.Set[string, server, instance]{
			Period: time.Minute,
			Desired: func(ctx context.Context) (map[string]server, error) {
				all, err := records.list(ctx)
				if time.Now().Minute() > 2 {
					delete(all, "web-19") // it fell off a page, for the rest of the hour
				}
				return all, err
			},
			Actual: machines.list,
			InSync: func(s server, m instance) bool { return s.Size == m.Size },
			Ensure: func(context.Context, string, server) error { return nil },
			Delete: func(_ context.Context, name string, _ instance) error {
				deleted.Add(1)
				machines.remove(name)
				return nil
			},
			Lookup: func(_ context.Context, name string, last server) (server, bool, error) {
				if last.ID == "" {
					return server{}, false, errNoID // a GET of an empty id answers 404
				}
				s, ok := byID[last.ID] // a GET of one record, and not of the list
				return s, ok, nil
			},
		}
		runSet(t, servers, 30*time.Minute)
		delete(byID, "record-web-18")
		records.remove("web-18")
		runSet(t, servers, 10*time.Minute) // a restart: last is not known
		if n := deleted.Load(); n != 0 {
			t.Errorf("%d machines were deleted", n)
		}
	})
}

// A parser reads one record.
func parse(text string) (server, error) {
	if text == "" {
		return server{}, errors.New("no size")
	}
	return server{Size: text}, nil
}

func TestRecipeOneBadRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows, machines := &table[string]{}, &table[instance]{}
		for name, s := range first(fleet()).rows {
			rows.put(name, s.Size)
			machines.put(name, instance{Size: s.Size})
		}
		last := map[string]server{} // as they were read last; in one goroutine at a time
		desired := func(ctx context.Context) (map[string]server, error) {
			all, err := rows.list(ctx)
			servers := map[string]server{}
			for name, text := range all {
				s, bad := parse(text)
				if bad != nil {
					old, known := last[name]
					if !known {
						return nil, fmt.Errorf("%s: %w", name, bad) // after a restart: an incomplete listing
					}
					s = old
				}
				servers[name] = s
			}
			last = servers
			return servers, err
		}
		set := keepMachines(desired, machines.list, machines)
		time.AfterFunc(90*time.Second, func() { rows.put("web-07", ""); rows.put("new", "s") })
		runSet(t, set, time.Hour)
		if _, ok := machines.get("web-07"); !ok || machines.size() != 21 {
			t.Errorf("%d machines, with the bad record %t, want 21 and true", machines.size(), ok)
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// keepMachines returns a Set of these machines, which creates and deletes them.
func keepMachines(desired func(context.Context) (map[string]server, error), actual func(context.Context) (map[string]instance, error), machines *table[instance]) *keep.Set[string, server, instance] {
	return &keep.Set[string, server, instance]{
		Period: time.Minute, Desired: desired, Actual: actual,
		InSync: func(s server, m instance) bool { return s.Size == m.Size },
		Ensure: func(_ context.Context, name string, s server) error {
			machines.put(name, instance{ID: "i-" + name, Size: s.Size})
			return nil
		},
		Delete: func(_ context.Context, name string, _ instance) error { machines.remove(name); return nil },
	}
}

func TestRecipeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type owned struct{ Team string }
		happened := newDiary()
		records, things := &table[owned]{}, &table[owned]{} // a thing has the mark of its team
		for i := range 20 {
			records.put(fmt.Sprint("a-", i), owned{"a"})
			records.put(fmt.Sprint("b-", i), owned{"b"})
		}
		things.rows = maps.Clone(records.rows)
		of := func(t *table[owned], team string) func(context.Context) (map[string]owned, error) {
			return func(ctx context.Context) (map[string]owned, error) {
				all, err := t.list(ctx)
				maps.DeleteFunc(all, func(_ string, o owned) bool { return o.Team != team })
				return all, err
			}
		}
		set := func(team string) *keep.Set[string, owned, owned] {
			return &keep.Set[string, owned, owned]{
				Period: time.Minute, Desired: of(records, team), Actual: of(things, team),
				InSync: func(owned, owned) bool { return true },
				Ensure: func(_ context.Context, name string, _ owned) error {
					if o, exists := things.get(name); exists && o.Team != team {
						// The record is ours now, so take the mark over. Create nothing.
						happened.note("%s takes %s over", team, name)
					}
					things.put(name, owned{team})
					return nil
				},
				Delete: func(_ context.Context, name string, listed owned) error {
					if o, _ := things.get(name); o != listed {
						return nil // it has the mark of another team by now
					}
					happened.note("%s deletes %s", team, name)
					things.remove(name)
					return nil
				},
			}
		}
		time.AfterFunc(90*time.Second, func() { records.put("a-7", owned{"b"}) })
		runSet(t, set("a"), time.Hour, set("b"))
		happened.check(t, "\n2m0s    b takes a-7 over\n")
	})
}

func TestRecipeDeadNamesakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type vm struct {
			Name string
			Dead bool
		}
		records, _ := fleet()
		byID := &table[vm]{}
		actual := func(ctx context.Context) (map[string]string, error) {
			all, err := byID.list(ctx)
			ids := map[string]string{}
			for id, m := range all {
				if m.Dead {
					continue // it is listed for an hour after its end
				}
				if ids[m.Name] != "" {
					return nil, fmt.Errorf("two machines are named %s", m.Name)
				}
				ids[m.Name] = id
			}
			return ids, err
		}
		set := &keep.Set[string, server, string]{
			Period: time.Minute, Desired: records.list, Actual: actual,
			InSync: func(server, string) bool { return true },
			Ensure: func(ctx context.Context, name string, _ server) error {
				if ids, err := actual(ctx); err != nil || ids[name] != "" {
					return err
				}
				byID.put(fmt.Sprint("i-", byID.size()), vm{Name: name})
				return nil
			},
			Delete: func(_ context.Context, _, id string) error { byID.remove(id); return nil },
		}
		for i := range 31 { // another machine dies each 45 minutes
			time.AfterFunc(time.Duration(i+1)*45*time.Minute, func() {
				ids, _ := actual(t.Context())
				name := fmt.Sprintf("web-%02d", i%20)
				byID.put(ids[name], vm{name, true})
			})
		}
		runSet(t, set, 24*time.Hour)
		if n := byID.size(); n != 20+31 {
			t.Errorf("%d machines were created, want 20 and one for each of 31 that died", n)
		}
	})
}

func TestRecipeShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records, machines := fleet()
		const shards uint32 = 3
		var sets []reconcile.Runner
		for i := range shards {
			mine := func(name string) bool { return owns(name, i, shards) }
			set := keepMachines(only(records.list, mine), only(machines.list, mine), machines)
			set.Name = fmt.Sprint("shard ", i)
			sets = append(sets, set)
		}
		time.AfterFunc(90*time.Second, func() { records.put("new", server{Size: "s"}); records.remove("web-03") })
		runSet(t, sets[0].(*keep.Set[string, server, instance]), time.Hour, sets[1:]...)
		if _, old := machines.get("web-03"); old || machines.size() != 20 {
			t.Errorf("%d machines, with the old one %t, want 20 and false", machines.size(), old)
		}
	})
}

// only lists the things of one shard. Both sides need it: a Set whose Actual lists all
// things deletes those of the other shards.
func only[V any](list func(context.Context) (map[string]V, error), mine func(string) bool) func(context.Context) (map[string]V, error) {
	return func(ctx context.Context) (map[string]V, error) {
		all, err := list(ctx)
		maps.DeleteFunc(all, func(name string, _ V) bool { return !mine(name) })
		return all, err
	}
}

func TestRecipePages(t *testing.T) {
	calls := 0
	page := func(_ context.Context, n int) ([]string, error) { // 51 pages; each 50th call fails
		if calls++; calls%50 == 0 {
			return nil, errNoID
		}
		return []string{fmt.Sprint("thing-", n)}, nil
	}
	actual := func(ctx context.Context) (map[string]string, error) {
		all := map[string]string{}
		for n := range 51 {
			names, err := page(ctx, n)
			for try := 1; err != nil && try < 4 && ctx.Err() == nil; try++ {
				time.Sleep(100 * time.Millisecond << try)
				names, err = page(ctx, n)
			}
			if err != nil {
				return nil, fmt.Errorf("page %d: %w", n, err)
			}
			for _, name := range names {
				all[name] = name
			}
		}
		return all, nil
	}
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			if all, err := actual(t.Context()); err != nil || len(all) != 51 {
				t.Errorf("the listing has %d things, %v", len(all), err)
			}
		}
	})
}
