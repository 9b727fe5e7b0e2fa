// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Fake is a cloud in memory. Its zero value is an empty cloud that answers at once
// and never fails. The fields must not be changed after the first call. All methods may
// be called from any goroutine.
type Fake struct {
	Latency  time.Duration                    // of a call, on average
	Build    time.Duration                    // of a creation, on average
	Faults   float64                          // the fraction of calls and creations that fail, 0 to 1
	PageSize int                              // of a page; 0 means 1000
	Seed     uint64                           // of the random numbers
	Refuse   func(op string, id ID) (e error) // may be nil; called with get, list, create, update, delete or events before that call does anything

	mu        sync.Mutex // guards the fields below
	random    *rand.Rand // nil before the first use
	assets    map[ID]*Asset
	listeners map[chan Event]bool
	last      int64 // the last version
}

// ErrHangs, as the error of Refuse, makes the call hang until its context ends.
var ErrHangs = errors.New("cloud: the call hangs")

// call does the work of one call after its latency. A call that fails by chance has
// done its work in half of all cases.
func (f *Fake) call(ctx context.Context, op string, id ID, work func() error) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", op, id, context.Cause(ctx))
	case <-time.After(f.about(f.Latency)):
	}
	if f.Refuse != nil {
		switch err := f.Refuse(op, id); {
		case err == ErrHangs:
			<-ctx.Done()
			return fmt.Errorf("%s %s: %w", op, id, context.Cause(ctx))
		case err != nil:
			return err
		}
	}
	fault, before := f.chance(f.Faults), f.chance(0.5)
	if fault && before {
		return refuse(500, "internal error")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := work(); err != nil || !fault {
		return err
	}
	return refuse(500, "internal error after the work")
}

func refuse(code int, format string, args ...any) error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Get returns an asset as it is now, or an error that matches [ErrNotFound].
func (f *Fake) Get(ctx context.Context, id ID) (a Asset, err error) {
	err = f.call(ctx, "get", id, func() error {
		found, err := f.findLocked(id)
		if err == nil {
			a = *found
		}
		return err
	})
	return a, err
}

// List returns all assets or, if there are ids, those of them that exist, by one call.
// They are sorted by kind and name.
func (f *Fake) List(ctx context.Context, ids ...ID) (all []Asset, err error) {
	err = f.call(ctx, "list", ID{}, func() error {
		for id, a := range f.assets {
			if len(ids) == 0 || slices.Contains(ids, id) {
				all = append(all, *a)
			}
		}
		slices.SortFunc(all, func(a, b Asset) int { return strings.Compare(a.ID.String(), b.ID.String()) })
		return nil
	})
	return all, err
}

// Page returns the assets after one in the order of their kinds and names, as many as a
// page has, and whether there are more. The zero ID stands for the beginning.
func (f *Fake) Page(ctx context.Context, after ID) (page []Asset, more bool, err error) {
	err = f.call(ctx, "list", ID{}, func() error {
		for id, a := range f.assets {
			if after == (ID{}) || id.String() > after.String() {
				page = append(page, *a)
			}
		}
		slices.SortFunc(page, func(a, b Asset) int { return strings.Compare(a.ID.String(), b.ID.String()) })
		n := min(len(page), cmp.Or(f.PageSize, 1000))
		page, more = page[:n], n < len(page)
		return nil
	})
	return page, more, err
}

// Create begins the creation of an asset, and returns the asset as it is then.
func (f *Fake) Create(ctx context.Context, id ID, spec Spec) (a Asset, err error) {
	err = f.call(ctx, "create", id, func() error {
		if !slices.Contains(Regions, spec.Region) {
			return refuse(400, "region %q does not exist; there are %s", spec.Region, strings.Join(Regions, ", "))
		}
		if f.assets[id] != nil {
			return refuse(412, "%s exists already", id)
		}
		if err := f.checkKeyLocked(spec.Key); err != nil {
			return err
		}
		if f.assets == nil {
			f.assets = map[ID]*Asset{}
		}
		f.last++
		created := &Asset{ID: id, Spec: spec, State: Creating, Operation: fmt.Sprintf("op-%d", f.last), Version: f.last}
		f.assets[id] = created
		failed := f.chanceLocked(f.Faults)
		time.AfterFunc(f.aboutLocked(f.Build), func() { f.built(created, failed) })
		a = *created
		return nil
	})
	return a, err
}

// built ends the creation of an asset, unless it was deleted meanwhile.
func (f *Fake) built(a *Asset, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.assets[a.ID] != a:
	case failed:
		a.State, a.Reason = Failed, "no capacity left in "+a.Region
		f.changedLocked(a, "failed")
	default:
		a.State = Ready
		f.changedLocked(a, "ready")
	}
}

// Update changes an asset, if it still has the version given.
func (f *Fake) Update(ctx context.Context, id ID, spec Spec, version int64) error {
	return f.call(ctx, "update", id, func() error {
		a, err := f.findLocked(id)
		switch {
		case err != nil:
			return err
		case a.Version != version:
			return refuse(412, "%s was changed meanwhile", id)
		case a.State != Ready:
			return refuse(412, "%s is %s", id, a.State)
		case spec.Region != a.Region:
			return refuse(422, "the region cannot be changed from %s to %s", a.Region, spec.Region)
		}
		if err := f.checkKeyLocked(spec.Key); err != nil && spec.Key != a.Key {
			return err
		}
		a.Spec = spec
		f.changedLocked(a, "changed")
		return nil
	})
}

// Delete removes an asset. It is no error if the asset does not exist.
func (f *Fake) Delete(ctx context.Context, id ID) error {
	return f.call(ctx, "delete", id, func() error {
		a := f.assets[id]
		if a == nil {
			return nil
		}
		if users := f.usersLocked(a); len(users) > 0 {
			return &Error{Code: 409, Message: fmt.Sprintf("%s is in use", id), Blocking: users}
		}
		f.removeLocked(a)
		return nil
	})
}

// Events streams the changes of all assets as they happen. The last pair is the error
// that ended the stream. With Faults, each stream ends after about 90 seconds.
func (f *Fake) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := f.call(ctx, "events", ID{}, func() error { return nil }); err != nil {
			yield(Event{}, err)
			return
		}
		events := f.join()
		defer f.leave(events)
		var cut <-chan time.Time
		if f.Faults > 0 {
			cut = time.After(f.about(90 * time.Second))
		}
		if !yield(Event{What: "hello"}, nil) {
			return
		}
		for {
			select {
			case e, ok := <-events:
				if !ok {
					yield(Event{}, errors.New("event stream: the listener is too slow"))
					return
				}
				if !yield(e, nil) {
					return
				}
			case <-cut:
				yield(Event{}, errors.New("event stream: closed by the cloud"))
				return
			case <-ctx.Done():
				yield(Event{}, context.Cause(ctx))
				return
			}
		}
	}
}

// join returns a channel with the events. It is closed if its receiver is too slow.
func (f *Fake) join() chan Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := make(chan Event, 4096)
	if f.listeners == nil {
		f.listeners = map[chan Event]bool{}
	}
	f.listeners[events] = true
	return events
}

func (f *Fake) leave(events chan Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, events)
}

func (f *Fake) publishLocked(e Event) {
	for events := range f.listeners {
		select {
		case events <- e:
		default:
			delete(f.listeners, events)
			close(events)
		}
	}
}

// Interfere is another client, which deletes and changes assets until ctx is done, about
// three in two seconds.
func (f *Fake) Interfere(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.about(700 * time.Millisecond)):
			f.interfere()
		}
	}
}

func (f *Fake) interfere() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ready []*Asset
	for _, a := range f.assets {
		if a.State == Ready {
			ready = append(ready, a)
		}
	}
	if len(ready) == 0 {
		return
	}
	slices.SortFunc(ready, func(a, b *Asset) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	switch a := ready[f.randomLocked().IntN(len(ready))]; {
	case f.chanceLocked(0.4):
		f.removeLocked(a)
	default:
		a.Team = "another client"
		f.changedLocked(a, "changed")
	}
}

func (f *Fake) findLocked(id ID) (*Asset, error) {
	if a := f.assets[id]; a != nil {
		return a, nil
	}
	return nil, refuse(404, "%s does not exist", id)
}

// checkKeyLocked refuses a bucket whose key is not ready.
func (f *Fake) checkKeyLocked(name string) error {
	id := ID{Kind: Key, Name: name}
	if key := f.assets[id]; name != "" && (key == nil || key.State != Ready) {
		return &Error{Code: 409, Message: id.String() + " is not ready", Blocking: []ID{id}}
	}
	return nil
}

// usersLocked returns the buckets that use a key. A key that is not ready has none, but
// there may be buckets of a key that another client has deleted.
func (f *Fake) usersLocked(key *Asset) (users []ID) {
	if key.ID.Kind != Key || key.State != Ready {
		return nil
	}
	for id, a := range f.assets {
		if a.Key == key.ID.Name {
			users = append(users, id)
		}
	}
	slices.SortFunc(users, func(a, b ID) int { return strings.Compare(a.Name, b.Name) })
	return users
}

// changedLocked gives an asset a new version, and publishes that it has changed.
func (f *Fake) changedLocked(a *Asset, what string) {
	f.last++
	a.Version = f.last
	f.publishLocked(Event{Asset: a.ID, What: what})
}

func (f *Fake) removeLocked(a *Asset) {
	delete(f.assets, a.ID)
	f.publishLocked(Event{Asset: a.ID, What: "deleted"})
}

func (f *Fake) randomLocked() *rand.Rand {
	if f.random == nil {
		f.random = rand.New(rand.NewPCG(f.Seed, 0))
	}
	return f.random
}

func (f *Fake) chance(part float64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chanceLocked(part)
}

// chanceLocked is true for that part of all calls.
func (f *Fake) chanceLocked(part float64) bool { return f.randomLocked().Float64() < part }

func (f *Fake) about(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aboutLocked(d)
}

// aboutLocked gives half of d to one and a half.
func (f *Fake) aboutLocked(d time.Duration) time.Duration {
	return d/2 + time.Duration(f.randomLocked().Int64N(int64(d)+1))
}
