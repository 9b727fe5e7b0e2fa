// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package badday simulates days with outages, in bubbles. Five services keep ten
// thousand assets in a cloud that allows a hundred calls a second: one as the guides
// teach it, one on client-go's workqueue, the same with a rate limiter, the same with
// listings that are compared, and a ticker.
//
//	go test -count=1 -v ./badday
package badday

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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

// Two faults that are no answer.
var (
	errHangs = errors.New("the call hangs until its ctx ends")
	errStuck = errors.New("the call takes as long as stuckFor, whatever its ctx says")
)

// A world is a cloud with its assets, and another service that knows their desired
// state. It records the events of the day.
type world struct {
	begun time.Time

	// The faults of the day; nil or 0 means none.
	fault          func(t time.Duration, op, name string) error                       // of a call: an answer, errHangs or errStuck
	stuckFor       time.Duration                                                      // 0 means half an hour
	desiredListing func(t time.Duration, desired map[string]string) map[string]string // changes a listing of the desired state
	desiredDown    func(t time.Duration) bool                                         // the other service answers nothing but errors
	renamed        func(t time.Duration) bool                                         // that service has other names for all assets
	list           func(t time.Duration, there map[string]string) map[string]string   // changes a listing of the assets
	latency        func(t time.Duration, op string) float64                           // times as long; nil means 1
	behind         time.Duration                                                      // what reads of an asset return is as old as this
	age            time.Duration                                                      // of a listing
	recheck        time.Duration                                                      // of ours
	build          func(name string) time.Duration                                    // of an asset; nil means a minute
	pageSize       int                                                                // of a listing of the assets
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
	outOfSync map[string]*drift
	corrected []correction
	deleted   int // although desired
	created   int
}

// A drift is an asset that left its desired state.
type drift struct {
	name    string
	since   time.Time
	missing bool // then
}

type correction struct {
	drift
	at, took time.Duration
}

func nameOf(i int) string { return fmt.Sprintf("r%d-%05d", i%4, i) }

func region(name string) string { return name[:min(2, len(name))] }

// newWorld returns a world of n assets that are in sync.
func newWorld(n int) *world {
	now := time.Now()
	w := &world{
		begun: now, assets: map[string]*asset{}, desired: map[string]string{}, age: 10 * time.Second, recheck: 6 * time.Hour, pageSize: 1000,
		rate: float64(n) / 100, tokens: float64(n) / 50, filled: now, readAt: map[string]time.Duration{}, outOfSync: map[string]*drift{},
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
func (w *world) call(ctx context.Context, op, name string, latency time.Duration) error {
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
	var fault error
	if w.fault != nil {
		fault = w.fault(t, op, name)
	}
	longer := 1.0
	if w.latency != nil {
		longer = w.latency(t, op)
	}
	w.mu.Unlock()
	switch {
	case limited:
		latency = 10 * time.Millisecond
	case fault == errHangs:
		<-ctx.Done()
		return ctx.Err()
	case fault == errStuck:
		time.Sleep(cmp.Or(w.stuckFor, 30*time.Minute))
		return ctx.Err()
	case fault != nil:
		latency = 20 * time.Millisecond
	default:
		latency = time.Duration(longer * float64(latency/2+rand.N(latency)))
	}
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	if limited {
		return &answer{429, 5 * time.Second}
	}
	return fault
}

// noteSyncLocked records that an asset left its desired state, or is in sync again.
func (w *world) noteSyncLocked(name string) {
	want, wanted := w.desired[name]
	a := w.assets[name]
	ok := !wanted && a == nil || wanted && a != nil && a.spec == want && !time.Now().Before(a.ready)
	d := w.outOfSync[name]
	if ok && d != nil {
		w.corrected = append(w.corrected, correction{*d, w.now(), time.Since(d.since)})
		delete(w.outOfSync, name)
	} else if !ok && d == nil {
		w.outOfSync[name] = &drift{name, time.Now(), a == nil}
	}
}

func (w *world) get(ctx context.Context, name string) (asset, error) {
	if err := w.call(ctx, "get", name, 50*time.Millisecond); err != nil {
		return asset{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.readAt[name] = w.now()
	a, then := w.assets[name], time.Now().Add(-w.behind)
	switch {
	case a == nil, a.created.After(then):
		return asset{}, errNotFound
	case a.changed.After(then):
		old := *a
		old.spec = a.old
		return old, nil
	}
	return *a, nil
}

func (w *world) create(ctx context.Context, name, spec string) error {
	if err := w.call(ctx, "create", name, 150*time.Millisecond); err != nil {
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
	if err := w.call(ctx, "update", name, 150*time.Millisecond); err != nil {
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
	if err := w.call(ctx, "delete", name, 150*time.Millisecond); err != nil {
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

// listAssets returns the specs of all assets as they were a while ago, in pages, each a
// call.
func (w *world) listAssets(ctx context.Context) (map[string]string, error) {
	there := w.snapshot()
	for range max(1, (len(there)+w.pageSize-1)/w.pageSize) {
		if err := w.listPage(ctx); err != nil {
			return nil, err
		}
	}
	return there, nil
}

// listPage is the call for a page.
func (w *world) listPage(ctx context.Context) error {
	return w.call(ctx, "list", "", 300*time.Millisecond)
}

// snapshot returns the specs of all assets as a listing shows them.
func (w *world) snapshot() map[string]string {
	w.mu.Lock()
	at := time.Now().Add(-w.age)
	there := make(map[string]string, len(w.assets))
	for name, a := range w.assets {
		switch {
		case a.created.After(at):
		case a.changed.After(at):
			there[name] = a.old
		default:
			there[name] = a.spec
		}
	}
	w.mu.Unlock()
	if w.list != nil {
		there = w.list(w.now(), there)
	}
	return there
}

// asKey is the key of a context, for which desired versions are others.
type asKey struct{}

// otherVersion makes all desired versions other ones for those who ask with this context.
func otherVersion(ctx context.Context) context.Context {
	return context.WithValue(ctx, asKey{}, "not ")
}

func versionFor(ctx context.Context, version string) string {
	prefix, _ := ctx.Value(asKey{}).(string)
	return prefix + version
}

// listDesired lists the desired state; calls of that service are not limited.
func (w *world) listDesired(ctx context.Context) (map[string]string, error) {
	time.Sleep(100 * time.Millisecond)
	if w.isDesiredDown() {
		return nil, errDesiredDown
	}
	w.mu.Lock()
	desired := maps.Clone(w.desired)
	if w.isRenamed() {
		clear(desired)
		for name, version := range w.desired {
			desired[name+newName] = version
		}
	}
	w.mu.Unlock()
	for name, version := range desired {
		desired[name] = versionFor(ctx, version)
	}
	if w.desiredListing != nil {
		desired = w.desiredListing(w.now(), desired)
	}
	return desired, nil
}

// lookup returns the desired state of one asset.
func (w *world) lookup(ctx context.Context, name string) (string, bool, error) {
	time.Sleep(10 * time.Millisecond)
	if w.isDesiredDown() {
		return "", false, errDesiredDown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isRenamed() {
		old, isNew := strings.CutSuffix(name, newName)
		return versionFor(ctx, w.desired[old]), isNew, nil
	}
	want, ok := w.desired[name]
	return versionFor(ctx, want), ok, nil
}

const newName = "-new"

func (w *world) isRenamed() bool { return w.renamed != nil && w.renamed(w.now()) }

var errDesiredDown = errors.New("the desired state: 503")

func (w *world) isDesiredDown() bool { return w.desiredDown != nil && w.desiredDown(w.now()) }

// grow adds n assets to the desired state at a time.
func (w *world) grow(at time.Duration, n int) {
	time.AfterFunc(at, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range n {
			name := nameOf(len(w.assets) + i + 10000)
			w.desired[name] = "v1"
			w.noteSyncLocked(name)
		}
	})
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
func (w *world) quantile(q float64, a time.Duration, chosen func(drift) bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for _, m := range w.corrected {
		if m.at >= a && chosen(m.drift) {
			took = append(took, m.took)
		}
	}
	for _, d := range w.outOfSync {
		if chosen(*d) {
			took = append(took, time.Since(d.since))
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
func (w *world) slowdown(a, b time.Duration, chosen func(drift) bool) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	var before, then []time.Duration
	for _, m := range w.corrected {
		switch {
		case !chosen(m.drift):
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
	for _, d := range w.outOfSync {
		if d.since.Sub(w.begun) < at {
			last = max(last, w.now()-at)
		}
	}
	return last.Round(time.Second)
}

func anyDrift(drift) bool { return true }
