// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// A Plan lists the changes that Apply would make, each list sorted by the text that
// fmt.Sprint makes of each key. The zero Plan is empty: there is nothing to do.
type Plan[K comparable] struct {
	Create, Update, Delete []K
	Rejected               error // nil, or a *Rejection[K]: too many things are newly surplus, and none of them is in Delete
}

// String has a line for each key: + for Create, ~ for Update, - for Delete, ! for what is
// rejected. A key is quoted if it is empty, or has spaces or characters that do not print. Then
// comes the rejection, if there is one. The last line, without a line end, has the counts.
func (p Plan[K]) String() string {
	var b strings.Builder
	rejected := rejectedKeys[K](p.Rejected)
	for i, keys := range [][]K{p.Create, p.Update, p.Delete, rejected} {
		for _, key := range keys {
			fmt.Fprintf(&b, "%c %s\n", "+~-!"[i], text(key))
		}
	}
	if p.Rejected != nil {
		fmt.Fprintln(&b, p.Rejected)
	}
	fmt.Fprintf(&b, "%d to create, %d to update, %d to delete", len(p.Create), len(p.Update), len(p.Delete))
	if len(rejected) > 0 {
		fmt.Fprintf(&b, ", %d rejected", len(rejected))
	}
	return b.String()
}

// rejectedKeys returns the keys of a Rejection.
func rejectedKeys[K comparable](err error) []K {
	if r := (*Rejection[K])(nil); errors.As(err, &r) && r != nil {
		return r.Keys
	}
	return nil
}

// text returns the text of a key, quoted if it is empty, or has spaces or what does not print.
func text[K any](key K) string {
	t := fmt.Sprint(key)
	if quoted := strconv.Quote(t); t == "" || quoted != `"`+t+`"` || strings.ContainsFunc(t, unicode.IsSpace) {
		return quoted
	}
	return t
}

// ErrTooMany is matched by each [Rejection].
var ErrTooMany = errors.New("keep: too many things would be deleted at once")

// A Rejection, always as *Rejection, is the error of a pair of listings in which too many
// things are newly surplus; see [Set]. It is not changed after it was returned.
type Rejection[K comparable] struct {
	Keys []K // the newly surplus things, sorted by their texts

	all bool // MaxDeleted is below 0
}

// Error names the number of the keys, and the first ones.
func (r *Rejection[K]) Error() string {
	why := ErrTooMany.Error()
	if r.all {
		why = "keep: MaxDeleted is below 0, so deletions wait for Accept"
	}
	var first []string
	for _, key := range r.Keys[:min(5, len(r.Keys))] {
		first = append(first, text(key))
	}
	return fmt.Sprintf("%s: %d, first %v", why, len(r.Keys), first)
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

// Plan lists both sides, twice if an existing thing is Absent, and returns the changes that
// Apply would make. While Run goes on, it returns those that Run would make after that pair,
// except for corrections of things whose deletion is rejected. It blocks until it has listed.
// It calls no Lookup, and does not change the state of the Set. The error is that of a
// listing, or a [reconcile.Terminal] one that names a field that is wrong.
func (s *Set[K, D, A]) Plan(ctx context.Context) (Plan[K], error) {
	if err := s.check(false); err != nil {
		return Plan[K]{}, reconcile.Terminal(err)
	}
	k, accepted := s.snapshot()
	besideRun := s.poller.Load() != nil
	if !besideRun {
		k = known[K, D, A]{}
	}
	_, k, err := s.listTwice(ctx, k, how[K]{accepted: accepted, begin: func(context.Context) {}, logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return Plan[K]{}, err
	}
	if now, _ := s.snapshot(); s.InSync == nil && besideRun { // runs may have ended since
		for key := range k.desired {
			if _, exists := k.actual[key]; exists && k.ensured(&now, key) {
				delete(k.todo, key)
			} else if exists && guard.Call(func() error { s.absent(k.desired[key]); return nil }) == nil {
				k.todo[key] = false
			}
		}
	}
	return k.plan(), nil
}

// listTwice lists, and again at once if an existing thing is Absent. It also returns what
// the last listing was compared with.
func (s *Set[K, D, A]) listTwice(ctx context.Context, old known[K, D, A], how how[K]) (before, next known[K, D, A], err error) {
	first, err := s.list(ctx, old, how)
	if err != nil || !slices.ContainsFunc(slices.Collect(maps.Values(first.surplus)), func(thing surplus[D]) bool { return thing.absent }) {
		return old, first, err
	}
	for key, thing := range first.surplus { // 3: MaxDeleted bounds what is newly surplus in both together
		thing.allowed = old.surplus[key].allowed
		first.surplus[key] = thing
	}
	maps.DeleteFunc(how.accepted, func(key K, _ struct{}) bool { _, ok := first.surplus[key]; return !ok }) // 3
	next, err = s.list(ctx, first, how)
	return first, next, err
}

// plan returns what there is to do.
func (k *known[K, D, A]) plan() Plan[K] {
	var create, update, remove []K
	for key := range k.todo {
		_, exists := k.actual[key]
		_, leaves := k.surplus[key]
		switch {
		case leaves: // Run corrects it while it is rejected
		case exists:
			update = append(update, key)
		default:
			create = append(create, key)
		}
	}
	for key, thing := range k.surplus {
		if thing.absent && thing.confirmed || !thing.absent && thing.allowed {
			remove = append(remove, key)
		}
	}
	return Plan[K]{sortKeys(create), sortKeys(update), sortKeys(remove), k.rejection}
}

// Apply lists both sides, ensures what is missing or not in sync, deletes what is surplus, and
// returns. It runs the items by [reconcile.Reconciler.Apply] with the fields of r. The field
// Reconcile may be nil, and a nil r has the zero fields. If things that are not Absent are
// surplus, Apply logs at Info, waits DeleteAfter, lists again, and deletes what is still surplus.
//
// Apply blocks until all changes are made, or ctx is done. It does not list during its runs. If
// too many things are newly surplus, it deletes none of these, makes the other changes, and
// returns a [*Rejection], for [errors.As]. To delete them, call Accept with that error, and Apply
// again. What Accept allowed stays so in later calls, while the thing is surplus. A later Apply
// does not reset Age and the time that Rejected returns. Apply returns an error at once while Run
// or another Apply goes on, and a [reconcile.Terminal] error if a field is wrong.
func (s *Set[K, D, A]) Apply(ctx context.Context, r *reconcile.Reconciler[K]) error {
	return s.apply(ctx, nil, r)
}

// ApplyPlan does what Apply does, except that it makes only changes that the Plan lists. It
// leaves others as they are, and returns an error that names them. The conditions of a
// deletion hold for the deletions of the Plan too. An event of a thing outside the Plan
// waits in the queue until ApplyPlan has ended, and up to a minute more.
func (s *Set[K, D, A]) ApplyPlan(ctx context.Context, plan Plan[K], r *reconcile.Reconciler[K]) error {
	return s.apply(ctx, &plan, r)
}

// apply makes the changes that plan has; nil means all of them.
func (s *Set[K, D, A]) apply(ctx context.Context, plan *Plan[K], r *reconcile.Reconciler[K]) error {
	if err := s.check(false); err != nil {
		return reconcile.Terminal(err)
	}
	if !s.running.TryLock() {
		return errRunning
	}
	defer s.running.Unlock()
	once, err := s.reconciler(ctx, r) // before the listings
	if err != nil {
		return err
	}
	old, accepted := s.snapshot()
	list := how[K]{accepted: accepted, begin: s.lists, logger: cmp.Or(s.Logger, reconcile.Logger(ctx))}
	defer s.end()
	if plan != nil { // until it is known what of it is to be done
		s.change(func(k *known[K, D, A]) {
			k.ensures, k.deletes = isOneOf(slices.Concat(plan.Create, plan.Update)), isOneOf[K](nil)
		})
	}
	before, k, err := s.listTwice(ctx, known[K, D, A]{rejectedAt: old.rejectedAt, acceptedAt: old.acceptedAt}, list)
	var waiting map[K]wait // why the items of Run wait: the runs of Apply forget it, for its own items
	s.change(func(k *known[K, D, A]) {
		k.runs, waiting = map[K]run{}, maps.Clone(s.waiting) // runs of an earlier call say nothing of these listings
		maps.DeleteFunc(s.accepted, func(key K, _ struct{}) bool {
			_, ok := before.surplus[key]
			return before.surplus != nil && !ok
		})
	})
	defer s.change(func(*known[K, D, A]) { maps.Copy(s.waiting, waiting) })
	if err != nil {
		return err // what was accepted stays so, unless the first listing has it as desired
	}
	p := k.plan()
	var errOthers error
	if plan != nil {
		p, errOthers = p.within(*plan, accepted)
		k.ensures, k.deletes = isOneOf(slices.Concat(p.Create, p.Update)), isOneOf(p.Delete)
	}
	s.commit(before, k)
	now, later := split(p.Delete, func(key K) bool { return k.blocked(key) == nil })
	err = once.Apply(ctx, slices.Concat(p.Create, p.Update, now)...)
	if len(later) > 0 {
		s.log(list.logger, slog.LevelInfo, "waiting before the next listings, which must confirm deletions", "deletions", len(later), "for", s.deleteAfter())
		select {
		case <-ctx.Done():
			return errors.Join(errOthers, err, context.Cause(ctx), p.Rejected)
		case <-time.After(s.deleteAfter()):
		}
		old, list.accepted = s.snapshot() // with the runs that have begun
		var errList error
		k, errList = s.list(ctx, old, list)
		s.commit(old, k)
		now, _ = split(later, func(key K) bool { return k.blocked(key) == nil })
		err = errors.Join(err, errList, once.Apply(ctx, now...))
		if plan != nil && errList == nil {
			_, errOthers = k.plan().within(*plan, accepted)
		}
	}
	return errors.Join(errOthers, err, cmp.Or(k.rejection, p.Rejected))
}

// within returns the changes that plan has too, and an error that names the others. What an
// operator has accepted since belongs to the plan.
func (p Plan[K]) within(plan Plan[K], accepted map[K]struct{}) (Plan[K], error) {
	var others Plan[K]
	isEnsured := isOneOf(slices.Concat(plan.Create, plan.Update)) // what was to be created may exist by now
	p.Create, others.Create = split(p.Create, isEnsured)
	p.Update, others.Update = split(p.Update, isEnsured)
	since, _ := split(rejectedKeys[K](plan.Rejected), func(key K) bool { _, ok := accepted[key]; return ok })
	p.Delete, others.Delete = split(p.Delete, isOneOf(slices.Concat(plan.Delete, since)))
	if len(slices.Concat(others.Create, others.Update, others.Delete)) == 0 {
		return p, nil
	}
	return p, fmt.Errorf("keep: not in the plan, and not done:\n%v", others)
}

// split returns the keys for which is is true, and the others.
func split[K any](keys []K, is func(K) bool) (in, others []K) {
	for _, key := range keys {
		if is(key) {
			in = append(in, key)
		} else {
			others = append(others, key)
		}
	}
	return in, others
}

func isOneOf[K comparable](keys []K) func(K) bool {
	set := map[K]bool{}
	for _, key := range keys {
		set[key] = true
	}
	return func(key K) bool { return set[key] }
}
