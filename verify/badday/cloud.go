// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package badday simulates days with outages, in bubbles. Four services keep ten
// thousand assets in a cloud that allows a hundred calls a second: one as the guides
// teach it, one on client-go's workqueue, the same with a rate limiter, and a ticker.
//
//	go test -count=1 -v ./badday
package badday

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// An answer is an error status of the cloud.
type answer struct {
	status     int
	retryAfter time.Duration
}

func (a *answer) Error() string { return fmt.Sprintf("cloud: %d", a.status) }

var errNotFound = errors.New("cloud: 404")

// An asset is in sync if it has the desired spec and is ready.
type asset struct {
	spec    string
	changed time.Time
	ready   time.Time
	old     string // the spec before, which a listing may still show
	created time.Time
}

// A fault is what happens to a call.
type fault int

const (
	noFault     fault = iota
	unavailable       // 503, at once
	hangs             // until its ctx ends
	stuck             // for half an hour, whatever its ctx says
)

// A world is a cloud with its assets, and another service that knows their desired
// state. It records the events of the day.
type world struct {
	begun time.Time

	// The faults of the day; nil or 0 means none.
	fault          func(t time.Duration, name string) fault
	desiredListing func(t time.Duration, desired map[string]string) map[string]string // changes a listing of the desired state
	list           func(t time.Duration, there map[string]string) map[string]string   // changes a listing of the assets
	latency        float64                                                            // times as long
	age            time.Duration                                                      // of a listing
	recheck        time.Duration                                                      // of ours
	build          func(name string) time.Duration                                    // of an asset; nil means a minute
	penal          bool                                                               // rejected calls count against the limit

	// watch gets the parts of our service before it runs; it may be nil.
	watch func(*parts)

	mu        sync.Mutex // guards the fields below
	assets    map[string]*asset
	desired   map[string]string
	rate      float64 // calls a second
	tokens    float64
	filled    time.Time // when the tokens were counted last
	calls     []int     // in each second
	rejected  []int
	readAt    map[string]time.Duration // when a service last read an asset
	outOfSync map[string]time.Time     // since when
	corrected []correction
	deleted   int // although desired
	created   int
}

type correction struct {
	name     string
	at, took time.Duration
}

func nameOf(i int) string { return fmt.Sprintf("r%d-%05d", i%4, i) }

func region(name string) string { return name[:2] }

// newWorld returns a world of n assets that are in sync.
func newWorld(n int) *world {
	now := time.Now()
	w := &world{
		begun: now, assets: map[string]*asset{}, desired: map[string]string{}, latency: 1, age: 10 * time.Second, recheck: 6 * time.Hour,
		rate: float64(n) / 100, tokens: float64(n) / 50, filled: now, readAt: map[string]time.Duration{}, outOfSync: map[string]time.Time{},
	}
	for i := range n {
		before := now.Add(-24 * time.Hour)
		w.desired[nameOf(i)] = "v1"
		w.assets[nameOf(i)] = &asset{spec: "v1", old: "v1", changed: before, created: before, ready: before}
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.begun) }

func count(seconds *[]int, t time.Duration) {
	for len(*seconds) <= int(t/time.Second) {
		*seconds = append(*seconds, 0)
	}
	(*seconds)[t/time.Second]++
}

// call is the part of each call to the cloud that all have in common.
func (w *world) call(ctx context.Context, name string, latency time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // as of an http.Client
	defer cancel()
	w.mu.Lock()
	t, now := w.now(), time.Now()
	count(&w.calls, t)
	w.tokens = min(2*w.rate, w.tokens+w.rate*now.Sub(w.filled).Seconds())
	w.filled = now
	limited := w.tokens < 1
	switch {
	case !limited:
		w.tokens--
	default:
		count(&w.rejected, t)
		if w.penal {
			w.tokens = max(w.tokens-1, -2*w.rate)
		}
	}
	f := noFault
	if w.fault != nil {
		f = w.fault(t, name)
	}
	w.mu.Unlock()
	switch {
	case limited:
		latency = 10 * time.Millisecond
	case f == unavailable:
		latency = 20 * time.Millisecond
	case f == hangs:
		<-ctx.Done()
		return ctx.Err()
	case f == stuck:
		time.Sleep(30 * time.Minute)
		return ctx.Err()
	default:
		latency = time.Duration(w.latency * float64(latency/2+rand.N(latency)))
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case limited:
		return &answer{429, 5 * time.Second}
	case f == unavailable:
		return &answer{503, 0}
	}
	return nil
}

// noteSyncLocked records that an asset left its desired state, or is in sync again.
func (w *world) noteSyncLocked(name string) {
	want, wanted := w.desired[name]
	a := w.assets[name]
	ok := !wanted && a == nil || wanted && a != nil && a.spec == want && !time.Now().Before(a.ready)
	since, bad := w.outOfSync[name]
	if ok && bad {
		w.corrected = append(w.corrected, correction{name, w.now(), time.Since(since)})
		delete(w.outOfSync, name)
	} else if !ok && !bad {
		w.outOfSync[name] = time.Now()
	}
}

func (w *world) get(ctx context.Context, name string) (asset, error) {
	if err := w.call(ctx, name, 50*time.Millisecond); err != nil {
		return asset{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readAt[name] = w.now()
	if a := w.assets[name]; a != nil {
		return *a, nil
	}
	return asset{}, errNotFound
}

func (w *world) create(ctx context.Context, name, spec string) error {
	if err := w.call(ctx, name, 150*time.Millisecond); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.assets[name] != nil {
		return &answer{409, 0}
	}
	w.created++
	now, takes := time.Now(), time.Minute
	if w.build != nil {
		takes = w.build(name)
	}
	w.assets[name] = &asset{spec: spec, old: spec, changed: now, created: now, ready: now.Add(takes)}
	w.noteSyncLocked(name)
	time.AfterFunc(takes, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.noteSyncLocked(name)
	})
	return nil
}

func (w *world) update(ctx context.Context, name, spec string) error {
	if err := w.call(ctx, name, 150*time.Millisecond); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.assets[name] == nil {
		return errNotFound
	}
	w.alterLocked(name, spec)
	return nil
}

func (w *world) alterLocked(name, spec string) {
	a := w.assets[name]
	a.old, a.spec, a.changed = a.spec, spec, time.Now()
	w.noteSyncLocked(name)
}

func (w *world) remove(ctx context.Context, name string) error {
	if err := w.call(ctx, name, 150*time.Millisecond); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.assets[name] == nil {
		return errNotFound
	}
	if _, wanted := w.desired[name]; wanted {
		w.deleted++
	}
	delete(w.assets, name)
	w.noteSyncLocked(name)
	return nil
}

// listAssets returns the specs of all assets as they were a while ago, in pages of a
// thousand, each a call.
func (w *world) listAssets(ctx context.Context) (map[string]string, error) {
	return w.listed(ctx, func(_ *asset, spec string) string { return spec })
}

func (w *world) listed(ctx context.Context, show func(a *asset, spec string) string) (map[string]string, error) {
	w.mu.Lock()
	at := time.Now().Add(-w.age)
	there := make(map[string]string, len(w.assets))
	for name, a := range w.assets {
		switch {
		case a.created.After(at):
		case a.changed.After(at):
			there[name] = show(a, a.old)
		default:
			there[name] = show(a, a.spec)
		}
	}
	w.mu.Unlock()
	for range max(1, (len(there)+999)/1000) {
		if err := w.call(ctx, "", 300*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if w.list != nil {
		there = w.list(w.now(), there)
	}
	return there, nil
}

// listDesired lists the desired state; calls of that service are not limited.
func (w *world) listDesired(ctx context.Context) (map[string]string, error) {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	desired := maps.Clone(w.desired)
	w.mu.Unlock()
	if w.desiredListing != nil {
		desired = w.desiredListing(w.now(), desired)
	}
	return desired, nil
}

// lookup returns the desired state of one asset.
func (w *world) lookup(_ context.Context, name string) (string, bool) {
	time.Sleep(10 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	want, ok := w.desired[name]
	return want, ok
}

// live changes assets as another client does, broken times an hour, and the desired
// state, changed times an hour, until ctx is done.
func (w *world) live(ctx context.Context, broken, changed int) {
	random := rand.New(rand.NewPCG(1, 2))
	names := slices.Sorted(maps.Keys(w.desired))
	every := func(n int, do func(i int, name string)) {
		for i := 0; n > 0; i++ {
			d := time.Hour / time.Duration(n)
			select {
			case <-time.After(d/2 + rand.N(d)):
			case <-ctx.Done():
				return
			}
			w.mu.Lock()
			name := names[random.IntN(len(names))]
			do(i, name)
			w.noteSyncLocked(name)
			w.mu.Unlock()
		}
	}
	go every(broken, func(i int, name string) {
		if w.assets[name] == nil {
			return
		}
		if i%5 == 0 {
			delete(w.assets, name)
		} else {
			w.alterLocked(name, fmt.Sprint("broken ", i))
		}
	})
	go every(changed, func(i int, name string) { w.desired[name] = fmt.Sprint("v", i+2) })
}

// between sums what was counted from a to b, and finds the worst second.
func between(seconds []int, a, b time.Duration) (sum, peak int) {
	for i := int(a / time.Second); i < min(int(b/time.Second), len(seconds)); i++ {
		sum += seconds[i]
		peak = max(peak, seconds[i])
	}
	return sum, peak
}

// quantile returns a quantile of the times to correct the chosen assets that were
// corrected from a on. An asset that is out of sync at the end counts with its age.
func (w *world) quantile(q float64, a time.Duration, chosen func(name string) bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for _, m := range w.corrected {
		if m.at >= a && chosen(m.name) {
			took = append(took, m.took)
		}
	}
	for name, since := range w.outOfSync {
		if chosen(name) {
			took = append(took, time.Since(since))
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(q*float64(len(took))))].Round(100 * time.Millisecond)
}

// slowdown returns the median time to correct an asset from a to b, relative to the median
// before a.
func (w *world) slowdown(a, b time.Duration, chosen func(name string) bool) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var before, then []time.Duration
	for _, m := range w.corrected {
		switch {
		case !chosen(m.name):
		case m.at < a:
			before = append(before, m.took)
		case m.at < b:
			then = append(then, m.took)
		}
	}
	if len(before) == 0 || len(then) == 0 {
		return 0
	}
	slices.Sort(before)
	slices.Sort(then)
	return float64(then[len(then)/2]) / float64(before[len(before)/2])
}

// lastCorrected returns how long after at the last asset that was out of sync at that
// time was corrected. An asset that never was counts until now.
func (w *world) lastCorrected(at time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := time.Duration(0)
	for _, m := range w.corrected {
		if m.at >= at && m.at-m.took < at {
			last = max(last, m.at-at)
		}
	}
	for _, since := range w.outOfSync {
		if since.Sub(w.begun) < at {
			last = max(last, w.now()-at)
		}
	}
	return last.Round(time.Second)
}

func anyName(string) bool { return true }
