// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Plan lists the changes that Apply would make, each list in the order of the texts of
// its keys. The zero Plan is empty: there is nothing to do.
type Plan[K comparable] struct {
	Create, Update, Delete []K
	Rejected               error // nil, or a *Rejection[K]: too many things are surplus, and none of its keys is in Delete
}

// String has a line for each key: + for Create, ~ for Update, - for Delete. The last line
// has the rejection, if there is one.
func (p Plan[K]) String() string {
	var b strings.Builder
	for _, part := range []struct {
		sign string
		keys []K
	}{{"+", p.Create}, {"~", p.Update}, {"-", p.Delete}} {
		for _, key := range part.keys {
			fmt.Fprintln(&b, part.sign, key)
		}
	}
	if p.Rejected != nil {
		fmt.Fprintln(&b, p.Rejected)
	}
	return b.String()
}

// ErrTooMany is matched by each [Rejection].
var ErrTooMany = errors.New("keep: too many things would be deleted at once")

// A Rejection, always as *Rejection, is the error of a pair of listings in which too many
// things are newly surplus; see [Set]. It is not changed after it was returned.
type Rejection[K comparable] struct {
	Keys []K // all that would be deleted, in the order of their texts
}

// Error names the number of the keys, and the first ones.
func (r *Rejection[K]) Error() string {
	return fmt.Sprintf("%v: %d, first %v", ErrTooMany, len(r.Keys), r.Keys[:min(5, len(r.Keys))])
}

// Names returns the text of each key, for code that does not know K.
func (r *Rejection[K]) Names() []string {
	names := make([]string, len(r.Keys))
	for i, key := range r.Keys {
		names[i] = fmt.Sprint(key)
	}
	return names
}

// Unwrap returns [ErrTooMany].
func (r *Rejection[K]) Unwrap() error { return ErrTooMany }

// Plan returns the changes that Apply would make or, while Run goes on, the changes that
// Run would make to the things that it knows, except for corrections of rejected things.
// It lists both sides, twice if an existing thing is Absent, and blocks until they are
// listed. It calls no Lookup and changes nothing, also not the state of the Set. The error
// is that of a listing, or a [reconcile.Terminal] one that names a field that is wrong.
func (s *Set[K, D, A]) Plan(ctx context.Context) (Plan[K], error) {
	if err := s.check(false); err != nil {
		return Plan[K]{}, reconcile.Terminal(err)
	}
	k, accepted := s.snapshot()
	if s.poller.Load() == nil {
		k = known[K, D, A]{}
	}
	k, err := s.listTwice(ctx, k, accepted)
	if err != nil {
		return Plan[K]{}, err
	}
	return k.plan(), nil
}

// listTwice lists, and again at once if an existing thing is Absent.
func (s *Set[K, D, A]) listTwice(ctx context.Context, old known[K, D, A], accepted map[K]struct{}) (known[K, D, A], error) {
	first, err := s.list(ctx, old, accepted, 0)
	if err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(first.surplus)), func(thing surplus[D]) bool { return thing.absent }) {
		return first, err
	}
	for key, thing := range first.surplus { // 4: MaxDeleted bounds what is newly surplus in both together
		thing.allowed = old.surplus[key].allowed
		first.surplus[key] = thing
	}
	first.unseen = first.todo // without an InSync the second pair shows no change
	return s.list(ctx, first, accepted, 0)
}

// plan returns what there is to do.
func (k *known[K, D, A]) plan() (p Plan[K]) {
	for key := range k.todo {
		_, exists := k.actual[key]
		_, leaves := k.surplus[key]
		switch {
		case leaves: // Run corrects it while it is rejected
		case exists:
			p.Update = append(p.Update, key)
		default:
			p.Create = append(p.Create, key)
		}
	}
	for key, thing := range k.surplus {
		if thing.absent && thing.confirmed || !thing.absent && thing.allowed {
			p.Delete = append(p.Delete, key)
		}
	}
	sortKeys(p.Create)
	sortKeys(p.Update)
	sortKeys(p.Delete)
	p.Rejected = k.rejection
	return p
}

// Apply makes the changes of Plan once, as [reconcile.Reconciler.Apply] does with the
// fields of r. The field Reconcile may be nil, and a nil r has the zero fields. Without a
// Lookup, Apply waits DeleteAfter, lists again, and then deletes the things that are
// still surplus.
//
// Apply blocks until all changes are made, or ctx is done. It does not list during its
// runs. If too many things are surplus, it deletes none of these, makes the other changes,
// and returns a [*Rejection], for [errors.As]. To delete them, call Accept with that error,
// and Apply again. Of an earlier call, Apply keeps only the accepted keys that were not
// deleted. It returns an error at once while Run or another Apply goes on, and a
// [reconcile.Terminal] error if a field is wrong.
func (s *Set[K, D, A]) Apply(ctx context.Context, r *reconcile.Reconciler[K]) error {
	if err := s.check(false); err != nil {
		return reconcile.Terminal(err)
	}
	if !s.running.TryLock() {
		return errRunning
	}
	defer s.running.Unlock()
	var once reconcile.Reconciler[K]
	if r != nil {
		once = *r
	}
	if once.Reconcile == nil {
		once.Reconcile = s.Reconcile
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := once.Apply(ended); err != nil { // runs nothing: it checks the fields before the listings
		return err
	}
	_, accepted := s.snapshot()
	defer s.end()
	k, err := s.listTwice(ctx, known[K, D, A]{}, accepted)
	if err != nil {
		return err // what was accepted stays so
	}
	s.commit(k)
	p := k.plan()
	now, later := s.split(&k, p.Delete)
	err = once.Apply(ctx, slices.Concat(p.Create, p.Update, now)...)
	if len(later) > 0 {
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx), p.Rejected)
		case <-time.After(s.deleteAfter()):
		}
		var errList error
		k, _ = s.snapshot() // with the runs that have begun
		k, errList = s.list(ctx, k, accepted, 0)
		s.commit(k)
		now, _ = s.split(&k, later)
		err = errors.Join(err, errList, once.Apply(ctx, now...))
	}
	return errors.Join(err, cmp.Or(k.rejection, p.Rejected))
}

// split returns the keys that may be deleted now, and those that have to wait.
func (s *Set[K, D, A]) split(k *known[K, D, A], keys []K) (now, later []K) {
	for _, key := range keys {
		if k.blocked(key, s.Lookup != nil) == nil {
			now = append(now, key)
		} else {
			later = append(later, key)
		}
	}
	return now, later
}
