// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile/example/cloud"
)

// specs is a desired state. The Team of a spec is its version.
type specs map[cloud.ID]cloud.Spec

// errStuck is a fault: the call takes half an hour, whatever its context says.
var errStuck = errors.New("the call takes half an hour")

// A world is the cloud of the example with a limit of its calls, and another service that
// knows the desired state. It records the events of the day.
type world struct {
	cloud *cloud.Fake // has no faults of its own
	rate  float64     // calls a second
	begun time.Time

	// The faults of the day; nil or 0 means none.
	fault     func(t time.Duration, op string, id cloud.ID) error // of a call: an answer, cloud.ErrHangs or errStuck
	latency   func(t time.Duration, op string) float64            // times as long
	behind    time.Duration                                       // the age of an asset that is read
	losePages bool                                                // about each third listing of the cloud lacks a page after an hour
	listed    func(t time.Duration, desired specs) specs          // a listing of that service
	watch     func(*parts)                                        // gets the parts of our service before it runs

	changes chan cloud.ID // assets and desired states that changed, in order

	mu        sync.Mutex // guards the fields below
	desired   specs
	tokens    float64
	filled    time.Time // when the tokens were counted last
	calls     []int     // in each second
	assets    map[cloud.ID]view
	before    map[cloud.ID]view
	outOfSync map[cloud.ID]time.Time
	corrected []correction
	deleted   int // although desired
}

// A view is an asset as it was until a time.
type view struct {
	asset  cloud.Asset
	exists bool
	until  time.Time
}

type correction struct {
	id       cloud.ID
	at, took time.Duration
}

// idOf returns the ids of assets in four regions.
func idOf(i int) cloud.ID {
	return cloud.ID{Kind: cloud.Bucket, Name: fmt.Sprintf("%s/%05d", cloud.Regions[i%4], i)}
}

func region(id cloud.ID) string {
	name, _, _ := strings.Cut(id.Name, "/")
	return name
}

func isFirstRegion(id cloud.ID) bool { return region(id) == cloud.Regions[0] }

// newWorld returns a world of n assets that are in sync.
func newWorld(ctx context.Context, n int) *world {
	w := &world{
		cloud: &cloud.Fake{Build: time.Minute, PageSize: n / 10}, rate: float64(n) / 100, tokens: float64(n) / 50,
		desired: specs{}, assets: map[cloud.ID]view{}, before: map[cloud.ID]view{}, outOfSync: map[cloud.ID]time.Time{},
		changes: make(chan cloud.ID),
	}
	for i := range n {
		id := idOf(i)
		w.desired[id] = cloud.Spec{Region: region(id), Team: "v1"}
		if _, err := w.cloud.Create(ctx, id, w.desired[id]); err != nil {
			panic(err)
		}
	}
	time.Sleep(2 * time.Minute) // until all are ready
	all, err := w.cloud.List(ctx)
	if err != nil {
		panic(err)
	}
	for _, a := range all {
		w.assets[a.ID] = view{asset: a, exists: true}
	}
	w.begun, w.filled = time.Now(), time.Now()
	return w
}

func (w *world) now() time.Duration { return time.Since(w.begun) }

// live notes all changes until ctx is done. It changes assets as another client does,
// broken times an hour, and the desired state, changed times an hour.
func (w *world) live(ctx context.Context, broken, changed int) {
	go func() {
		for {
			select {
			case id := <-w.changes:
				w.note(ctx, id)
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		for e := range w.cloud.Events(ctx) {
			w.changed(ctx, e.Asset)
		}
	}()
	n := len(w.desired)
	every := func(d time.Duration, do func(i int, id cloud.ID)) {
		for i := 0; ; i++ {
			select {
			case <-time.After(d/2 + rand.N(d)):
			case <-ctx.Done():
				return
			}
			do(i, idOf(rand.IntN(n)))
		}
	}
	go every(hour/time.Duration(broken), func(i int, id cloud.ID) {
		a, err := w.cloud.Get(ctx, id)
		switch {
		case err != nil:
		case i%5 == 0:
			_ = w.cloud.Delete(ctx, id)
		default:
			a.Team = fmt.Sprint("broken ", i)
			_ = w.cloud.Update(ctx, id, a.Spec, a.Version) // refused while it is created
		}
	})
	go every(hour/time.Duration(changed), func(i int, id cloud.ID) {
		w.mu.Lock()
		w.desired[id] = cloud.Spec{Region: region(id), Team: fmt.Sprint("v", i+2)}
		w.mu.Unlock()
		w.changed(ctx, id)
	})
}

func (w *world) changed(ctx context.Context, id cloud.ID) {
	select {
	case w.changes <- id:
	case <-ctx.Done():
	}
}

// note records how an asset is now, and whether it is in sync.
func (w *world) note(ctx context.Context, id cloud.ID) {
	a, err := w.cloud.Get(ctx, id)
	if err != nil && !errors.Is(err, cloud.ErrNotFound) {
		return // the day is over
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := view{asset: a, exists: err == nil}
	if last := w.assets[id]; last != now {
		last.until = time.Now()
		w.assets[id], w.before[id] = now, last
	}
	want, desired := w.desired[id]
	ok := desired == now.exists && a.Spec == want && (!desired || a.State == cloud.Ready)
	since, wasOut := w.outOfSync[id]
	if ok && wasOut {
		w.corrected = append(w.corrected, correction{id, w.now(), time.Since(since)})
		delete(w.outOfSync, id)
	} else if !ok && !wasOut {
		w.outOfSync[id] = time.Now()
	}
}

// call is the part of each call to the cloud that all have in common.
func (w *world) call(ctx context.Context, op string, id cloud.ID, latency time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // as of an http.Client
	defer cancel()
	t, limited := w.count()
	var fault error
	if limited {
		fault = &cloud.Error{Code: 429, RetryAfter: 5 * time.Second, Message: "too many calls"}
	} else if w.fault != nil {
		fault = w.fault(t, op, id)
	}
	switch {
	case fault == cloud.ErrHangs:
		<-ctx.Done()
		return ctx.Err()
	case fault == errStuck:
		time.Sleep(30 * time.Minute)
		return ctx.Err()
	case fault != nil:
		latency = 20 * time.Millisecond
	default:
		latency = latency/2 + rand.N(latency)
		if w.latency != nil {
			latency = time.Duration(w.latency(t, op) * float64(latency))
		}
	}
	select {
	case <-time.After(latency):
		return fault
	case <-ctx.Done():
		return ctx.Err()
	}
}

// count counts a call, and reports whether it is above the limit.
func (w *world) count() (t time.Duration, limited bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t = w.now()
	for len(w.calls) <= int(t/time.Second) {
		w.calls = append(w.calls, 0)
	}
	w.calls[t/time.Second]++
	w.tokens = min(2*w.rate, w.tokens+w.rate*time.Since(w.filled).Seconds())
	w.filled = time.Now()
	if w.tokens < 1 {
		return t, true
	}
	w.tokens--
	return t, false
}

// A client is the cloud as a service sees it.
type client struct {
	*cloud.Fake
	w *world
}

func (c client) Get(ctx context.Context, id cloud.ID) (cloud.Asset, error) {
	if err := c.w.call(ctx, "get", id, 50*time.Millisecond); err != nil {
		return cloud.Asset{}, err
	}
	c.w.mu.Lock()
	old := c.w.before[id]
	c.w.mu.Unlock()
	switch {
	case time.Since(old.until) >= c.w.behind:
		return c.Fake.Get(ctx, id)
	case !old.exists:
		return cloud.Asset{}, &cloud.Error{Code: 404, Message: "not there yet"}
	}
	return old.asset, nil
}

func (c client) Page(ctx context.Context, after cloud.ID) (page []cloud.Asset, more bool, err error) {
	if err := c.w.call(ctx, "list", cloud.ID{}, 300*time.Millisecond); err != nil {
		return nil, false, err
	}
	page, more, err = c.Fake.Page(ctx, after)
	if more && c.w.losePages && c.w.now() >= hour && rand.IntN(25) == 0 {
		return c.Fake.Page(ctx, page[len(page)-1].ID)
	}
	return page, more, err
}

func (c client) Create(ctx context.Context, id cloud.ID, spec cloud.Spec) (cloud.Asset, error) {
	if err := c.w.call(ctx, "create", id, 150*time.Millisecond); err != nil {
		return cloud.Asset{}, err
	}
	defer c.w.changed(ctx, id) // there is an event only when it is ready
	return c.Fake.Create(ctx, id, spec)
}

func (c client) Update(ctx context.Context, id cloud.ID, spec cloud.Spec, version int64) error {
	if err := c.w.call(ctx, "update", id, 150*time.Millisecond); err != nil {
		return err
	}
	return c.Fake.Update(ctx, id, spec, version)
}

func (c client) Delete(ctx context.Context, id cloud.ID) error {
	if err := c.w.call(ctx, "delete", id, 150*time.Millisecond); err != nil {
		return err
	}
	c.w.mu.Lock()
	if _, desired := c.w.desired[id]; desired && c.w.assets[id].exists {
		c.w.deleted++
	}
	c.w.mu.Unlock()
	return c.Fake.Delete(ctx, id)
}

// versionKey is the key of a context with a prefix of all desired versions.
type versionKey struct{}

// otherVersion makes all desired versions other ones for those who ask with this context.
func otherVersion(ctx context.Context) context.Context {
	return context.WithValue(ctx, versionKey{}, "not ")
}

func versionFor(ctx context.Context, spec cloud.Spec) cloud.Spec {
	prefix, _ := ctx.Value(versionKey{}).(string)
	spec.Team = prefix + spec.Team
	return spec
}

// listDesired lists the desired state, by a call that is not limited.
func (w *world) listDesired(ctx context.Context) specs {
	time.Sleep(100 * time.Millisecond)
	w.mu.Lock()
	desired := specs{}
	for id, spec := range w.desired {
		desired[id] = versionFor(ctx, spec)
	}
	w.mu.Unlock()
	if w.listed != nil {
		desired = w.listed(w.now(), desired)
	}
	return desired
}

// lookup returns the desired state of one asset.
func (w *world) lookup(ctx context.Context, id cloud.ID, _ cloud.Spec) (cloud.Spec, bool, error) {
	time.Sleep(10 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	spec, ok := w.desired[id]
	return versionFor(ctx, spec), ok, nil
}

// callsBetween returns the number of calls from a to b.
func (w *world) callsBetween(a, b time.Duration) (sum int) {
	for i := int(a / time.Second); i < min(int(b/time.Second), len(w.calls)); i++ {
		sum += w.calls[i]
	}
	return sum
}

// quantile returns a quantile of the times to correct the chosen assets that were
// corrected from a on. An asset that is out of sync at the end counts with its age.
func (w *world) quantile(q float64, a time.Duration, chosen func(cloud.ID) bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var took []time.Duration
	for _, c := range w.corrected {
		if c.at >= a && chosen(c.id) {
			took = append(took, c.took)
		}
	}
	for id, since := range w.outOfSync {
		if chosen(id) {
			took = append(took, time.Since(since))
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(q*float64(len(took))))]
}

// lastCorrected returns how long after at the last asset that was out of sync at that
// time was corrected. An asset that never was counts until now.
func (w *world) lastCorrected(at time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := time.Duration(0)
	for _, c := range w.corrected {
		if c.at >= at && c.at-c.took < at {
			last = max(last, c.at-at)
		}
	}
	for _, since := range w.outOfSync {
		if since.Sub(w.begun) < at {
			last = max(last, w.now()-at)
		}
	}
	return last
}
