// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A play is some processes on one queue in a bubble, with a memory for a server,
// and faults on the way. It checks the guarantees:
//
//   - no two live runs of an item: a run is live from Dequeue until it is given
//     back, its context ends, or its process dies;
//   - fences grow;
//   - each event that was stored, or handed to a process that lives on, is followed
//     by a run that begins after it and ends well;
//   - in peace all is done, and the stream holds no item, within peaceBound;
//   - while processes die and nothing else is wrong, no item that is asked for is
//     without a live run for longer than deathsBound.
//
// One clock is all that a bubble has. That clocks of processes run apart is played
// by leases of different lengths.

const (
	playLease   = 2 * time.Second
	peaceBound  = 12 * playLease
	deathsBound = 4 * playLease
	playItems   = 6
)

var (
	plays     = flag.Int("plays", 60, "how many plays TestPlays has, and a tenth of those that TestShortPlays has")
	firstPlay = flag.Uint64("play", 1, "the seed of the first play of each")
	playLog   = flag.Bool("playlog", false, "say what happens in plays")
)

// A plan is the faults of a play.
type plan struct {
	seed   uint64 // of what is not planned: who enqueues what when, how long runs take
	deaths bool   // there are deaths only, and deathsBound holds
	short  bool   // there is one item, with few events
	faults []fault
}

// A fault is something that is wrong for a while.
type fault struct {
	at, lasts time.Duration
	kind      faultKind
	who       int     // the process, or one of the following
	much      float64 // of the kind
}

const (
	everybody = -1
	eldest    = -2
)

type faultKind string

const (
	kill     faultKind = "kill"     // another process begins in its place afterwards
	leave    faultKind = "leave"    // the same by Close
	stall    faultKind = "stall"    // what is sent arrives when it is over
	deaf     faultKind = "deaf"     // what the server says arrives when it is over
	mute     faultKind = "mute"     // what the process says arrives when it is over
	tear     faultKind = "tear"     // there is no connection, and the process knows
	reset    faultKind = "reset"    // a stall that ends with a new connection: what was sent is lost
	slow     faultKind = "slow"     // much is how many seconds a message is on its way
	lossy    faultKind = "lossy"    // much is the part of the messages that gets lost
	twice    faultKind = "twice"    // much is the part of the messages that comes twice
	full     faultKind = "full"     // the store is
	consumer faultKind = "consumer" // is deleted
)

func (p plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan{seed: %d, deaths: %t, short: %t, faults: []fault{\n", p.seed, p.deaths, p.short)
	for _, f := range p.faults {
		fmt.Fprintf(&b, "\t{%d * ms, %d * ms, %s, %d, %.2f},\n", f.at.Milliseconds(), f.lasts.Milliseconds(), f.kind, f.who, f.much)
	}
	b.WriteString("}}")
	return b.String()
}

const playProcesses = 3

// items is how many there are.
func (p plan) items() int {
	if p.short {
		return 1
	}
	return playItems
}

// newShortPlan returns the short plan of a seed.
func newShortPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 5))
	p := plan{seed: seed, short: true}
	for range 1 + r.IntN(4) {
		p.faults = append(p.faults, newFault(r, allKinds, 5*playLease, 7))
	}
	slices.SortFunc(p.faults, byTime)
	return p
}

// between returns a duration of some seconds: short ones as likely as long ones.
func between(r *rand.Rand, a, b float64) time.Duration {
	return time.Duration(a * math.Pow(b/a, r.Float64()) * float64(time.Second)).Truncate(time.Millisecond)
}

var (
	linkKinds = []faultKind{stall, deaf, mute, tear, reset, slow, lossy, twice}
	allKinds  = append(slices.Clip(linkKinds), kill, kill, leave, full, consumer)
)

// newFault returns a fault that begins before length, and lasts for some seconds at
// most.
func newFault(r *rand.Rand, kinds []faultKind, length time.Duration, longest float64) fault {
	f := fault{
		at:    time.Duration(r.Int64N(int64(length))).Truncate(time.Millisecond),
		lasts: between(r, 0.1, longest),
		kind:  kinds[r.IntN(len(kinds))],
		who:   r.IntN(playProcesses),
		much:  r.Float64() * r.Float64(),
	}
	if r.IntN(6) == 0 {
		f.who = everybody
	}
	if f.kind == slow {
		f.much *= 1.5
	}
	return f
}

func byTime(a, b fault) int { return cmp.Compare(a.at, b.at) }

// newPlan returns the plan of a seed.
func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := plan{seed: seed}
	if p.deaths = seed%4 == 0; p.deaths {
		every := between(r, 1, 3)
		for at := between(r, 1, 5); at < 30*time.Second; at += every {
			who := eldest
			if r.IntN(5) == 0 {
				who = r.IntN(playProcesses)
			}
			p.faults = append(p.faults, fault{at, between(r, 0.05, 0.8), kill, who, 0})
		}
		return p
	}
	kinds := linkKinds
	if seed%4 > 1 {
		kinds = allKinds
	}
	length := between(r, 10, 40)
	longest := 15.
	if seed%16 == 1 {
		length, longest = 150*time.Second, 120
	}
	for range 2 + r.IntN(10) {
		p.faults = append(p.faults, newFault(r, kinds, length, longest))
	}
	slices.SortFunc(p.faults, byTime)
	return p
}

// A play is one.
type play struct {
	plan   plan
	m      *memory
	began  time.Time
	logger *slog.Logger

	mu     sync.Mutex // guards the fields below; a queue's mu is never locked with it held
	cast   [playProcesses]*process
	births uint64
	order  uint64 // counts events and beginnings of runs
	items  map[string]*playedItem
	wrong  string        // the first violation
	ended  chan struct{} // closed when there is one
	gap    time.Duration // the longest that an item waited that was asked for, since peace
	peace  bool
	runs   int
}

// A playedItem is what is known of an item.
type playedItem struct {
	live    *playedRun
	fence   uint64
	asked   uint64    // the last event that was stored
	ran     uint64    // the beginning of the last run that ended well
	waiting time.Time // since when it is asked for and has no live run
}

type playedRun struct {
	at    *process
	ctx   context.Context
	order uint64
	over  bool
}

// A process is one of a play.
type process struct {
	slot  int
	link  *link
	q     *Queue[string]
	ctx   context.Context
	end   context.CancelFunc
	asked map[string]uint64 // guarded by the mu of the play
	dead  bool              // the same
}

func (p *play) fail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(format, args...)
}

func (p *play) failLocked(format string, args ...any) {
	if p.wrong == "" {
		p.wrong = fmt.Sprintf("after %v: ", time.Since(p.began)) + fmt.Sprintf(format, args...)
		close(p.ended)
	}
}

// start begins a process.
func (p *play) start(slot int) {
	p.mu.Lock()
	p.births++
	births := p.births
	p.mu.Unlock()
	cfg, err := Config{
		Name: "q", Owner: fmt.Sprintf("%d.%d", slot, births),
		// Clocks that run 10 % apart.
		Lease:  playLease * time.Duration(95+5*slot) / 100,
		Gone:   func(error, int) (time.Duration, bool) { return 0, true },
		Logger: p.logger.With("at", slot),
	}.check(context.Background())
	if err != nil {
		panic(err)
	}
	c, err := newCodec[string]()
	if err != nil {
		panic(err)
	}
	timeout := cfg.Lease / 4
	a := &process{slot: slot, asked: make(map[string]uint64)}
	a.link = newLink(p.m, timeout, p.plan.seed*1000+births)
	a.q = openQueue(cfg, a.link, c, timeout)
	a.ctx, a.end = context.WithCancel(context.Background())
	a.q.running.Go(func() { a.q.keepReserve(a.q.life) })
	p.mu.Lock()
	p.cast[slot] = a
	p.mu.Unlock()
	for w := range p.plan.items() {
		go p.work(a, rand.New(rand.NewPCG(births, uint64(w))))
	}
}

// work takes items as a Reconciler does.
func (p *play) work(a *process, r *rand.Rand) {
	for {
		item, err := a.q.Dequeue(a.ctx)
		if err != nil {
			return
		}
		ctx := a.q.Lease(a.ctx, item)
		run := p.begin(a, item, ctx)
		works := time.Duration(r.Int64N(int64(playLease)))
		if r.IntN(4) == 0 {
			works *= 3 // so that it outlasts a lease that is lost
		}
		t := time.NewTimer(works)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		again := r.IntN(8) == 0
		alive := p.finish(item, run, again)
		switch {
		case !alive:
			a.q.Requeue(item, reconcile.RequeueOptions{Aborted: true})
		case again:
			d := time.Duration(r.Int64N(int64(playLease / 4)))
			a.q.Requeue(item, reconcile.RequeueOptions{Delay: d, MinDelay: d})
		default:
			a.q.Done(item)
		}
	}
}

func (p *play) item(item string) *playedItem {
	i := p.items[item]
	if i == nil {
		i = new(playedItem)
		p.items[item] = i
	}
	return i
}

func (p *play) begin(a *process, item string, ctx context.Context) *playedRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order++
	p.runs++
	run := &playedRun{at: a, ctx: ctx, order: p.order}
	if ctx.Err() != nil || a.dead {
		run.over = true
		return run
	}
	i := p.item(item)
	fence := Fence(ctx)
	p.logger.Debug("run", "at", a.slot, "item", item, "fence", fence)
	if o := i.live; o != nil && !o.over && o.ctx.Err() == nil {
		p.failLocked("item %s has a live run at process %d and another at %d", item, o.at.slot, a.slot)
	}
	if fence <= i.fence {
		p.failLocked("item %s has the fence %d after %d", item, fence, i.fence)
	}
	p.waitedLocked(item, i)
	i.live, i.fence, i.waiting = run, fence, time.Time{}
	return run
}

// waitedLocked looks how long an item has waited for a run.
func (p *play) waitedLocked(item string, i *playedItem) {
	if i.waiting.IsZero() {
		return
	}
	gap := time.Since(i.waiting)
	if p.plan.deaths || p.peace {
		p.gap = max(p.gap, gap)
	}
	if p.plan.deaths && gap > deathsBound {
		p.failLocked("item %s is asked for, and has no live run for %v", item, gap)
	}
}

// finish ends a run, and reports whether it was live.
func (p *play) finish(item string, run *playedRun, again bool) bool {
	alive := run.ctx.Err() == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if run.over {
		return alive && !run.at.dead
	}
	run.over = true
	i := p.item(item)
	if alive {
		i.ran = run.order
		if again {
			p.order++
			i.asked = p.order
		}
	}
	p.restLocked(i)
	return alive
}

// restLocked notes that an item is without a run.
func (p *play) restLocked(i *playedItem) {
	if i.asked > i.ran && i.waiting.IsZero() {
		i.waiting = time.Now()
	}
}

// die ends a process without a word.
func (p *play) die(a *process) {
	p.mu.Lock()
	a.dead = true
	for _, i := range p.items {
		if run := i.live; run != nil && run.at == a && !run.over {
			run.over = true
			p.restLocked(i)
		}
	}
	p.mu.Unlock()
	a.link.dies()
	a.end()
	a.q.end()
}

// enqueue has an event at a process.
func (p *play) enqueue(slot int, item string, verb int) {
	p.mu.Lock()
	a := p.cast[slot]
	if a == nil || a.dead {
		p.mu.Unlock()
		return
	}
	p.order++
	order := p.order
	if verb > 0 {
		a.asked[item] = order
	}
	p.mu.Unlock()
	switch verb {
	case 1:
		a.q.Enqueue(item)
	case 2:
		a.q.EnqueueAfter(item, playLease/8)
	case 3:
		a.q.EnqueueWithin(item, playLease/4)
	case 4:
		a.q.EnqueueNow(item)
	default:
		ctx, cancel := context.WithTimeout(a.ctx, 5*time.Second)
		defer cancel()
		if a.q.EnqueueContext(ctx, item) != nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		i := p.item(item)
		i.asked = max(i.asked, order)
		if run := i.live; run == nil || run.over || run.ctx.Err() != nil {
			p.restLocked(i)
		}
	}
}

// inflict has a fault happen, for its time.
func (p *play) inflict(f fault) {
	time.Sleep(f.at)
	p.logger.Debug("fault", "kind", f.kind, "who", f.who, "lasts", f.lasts)
	switch f.kind {
	case full:
		p.m.setLimit(2000)
		time.Sleep(f.lasts)
		p.m.setLimit(0)
		return
	case consumer:
		p.m.deleteConsumer()
		return
	}
	var hit []*process
	p.mu.Lock()
	cast := p.cast
	p.mu.Unlock()
	switch f.who {
	case everybody:
		hit = cast[:]
	case eldest:
		var oldest string
		for _, a := range cast {
			if a == nil {
				continue
			}
			a.q.mu.Lock()
			id := a.q.member.id
			a.q.mu.Unlock()
			if id != "" && (oldest == "" || id < oldest) {
				oldest, hit = id, []*process{a}
			}
		}
	default:
		hit = cast[f.who : f.who+1]
	}
	var wait sync.WaitGroup
	for _, a := range hit {
		if a != nil {
			wait.Go(func() { p.hit(a, f) })
		}
	}
	wait.Wait()
}

func (p *play) hit(a *process, f fault) {
	l := a.link
	switch f.kind {
	case kill, leave:
		p.mu.Lock()
		mine := p.cast[a.slot] == a
		if mine {
			p.cast[a.slot] = nil
		}
		p.mu.Unlock()
		if !mine {
			return // it is gone already
		}
		if f.kind == leave {
			ctx, cancel := context.WithTimeout(context.Background(), 2*playLease)
			a.q.Close(ctx)
			cancel()
		}
		p.die(a)
		time.Sleep(f.lasts)
		p.start(a.slot)
	case stall, reset:
		l.stick(toServer)
		l.stick(toClient)
		time.Sleep(f.lasts)
		if f.kind == reset {
			l.tear()
		}
		l.unstick(toServer)
		l.unstick(toClient)
		if f.kind == reset {
			time.Sleep(50 * time.Millisecond)
			l.reconnect()
		}
	case deaf, mute:
		d := toServer
		if f.kind == deaf {
			d = toClient
		}
		l.stick(d)
		time.Sleep(f.lasts)
		l.unstick(d)
	case tear:
		l.tear()
		time.Sleep(f.lasts)
		l.reconnect()
	case slow, lossy, twice:
		l.disturb(f, +1)
		time.Sleep(f.lasts)
		l.disturb(f, -1)
	}
}

func (s *linkState) disturb(f fault, sign float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.kind {
	case slow:
		for d := range s.dirs {
			s.dirs[d].delay += time.Duration(sign * f.much * float64(time.Second))
		}
	case lossy:
		s.loss += sign * f.much
	case twice:
		s.twice += sign * f.much
	}
}

// perform plays a plan, and returns what was wrong.
func perform(pl plan) *play {
	p := &play{
		plan: pl, m: newMemory("q", playLease), began: time.Now(), items: make(map[string]*playedItem),
		ended: make(chan struct{}), logger: slog.New(slog.DiscardHandler),
	}
	if *playLog {
		p.logger = slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for slot := range p.cast {
		p.start(slot)
		time.Sleep(10 * time.Millisecond)
	}
	var faults, events sync.WaitGroup
	for _, f := range pl.faults {
		faults.Go(func() { p.inflict(f) })
	}
	stop := make(chan struct{})
	events.Go(func() {
		r := rand.New(rand.NewPCG(pl.seed, 3))
		pause := playLease / 5
		if pl.short {
			pause = 2 * playLease
		}
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.Int64N(int64(pause)))):
			}
			slot, item, verb := r.IntN(len(p.cast)), fmt.Sprint(r.IntN(pl.items())), r.IntN(8)-3
			events.Go(func() { p.enqueue(slot, item, max(0, verb)) })
		}
	})
	wait := func(d time.Duration, until func() bool) bool {
		for end := time.Now().Add(d); time.Now().Before(end); {
			select {
			case <-p.ended:
				return false
			case <-time.After(playLease / 10):
			}
			if until() {
				return true
			}
		}
		return false
	}
	over := make(chan struct{})
	go func() { faults.Wait(); close(over) }()
	wait(time.Hour, func() bool {
		p.look()
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	peace := 6 * playLease
	if pl.short {
		peace = 2 * playLease
	}
	wait(peace, func() bool { p.look(); return false }) // with events
	close(stop)
	p.mu.Lock()
	p.peace = true
	p.mu.Unlock()
	if !wait(peaceBound, p.done) {
		p.fail("not all is done after %v of peace: %s", peaceBound, p.left())
	}
	for _, a := range p.cast {
		if a != nil {
			p.die(a)
		}
	}
	<-over
	events.Wait()
	p.mu.Lock()
	cast := p.cast
	p.mu.Unlock()
	for _, a := range cast { // and those that began when all was over
		if a != nil {
			p.die(a)
		}
	}
	return p
}

// look looks how long items wait.
func (p *play) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for item, i := range p.items {
		p.waitedLocked(item, i)
	}
}

func (p *play) done() bool { return p.left() == "" }

// left says what is not done.
func (p *play) left() string {
	var left []string
	p.mu.Lock()
	cast := p.cast
	for _, a := range cast {
		if a == nil {
			continue
		}
		for item, order := range a.asked {
			if i := p.item(item); i.ran < order {
				left = append(left, fmt.Sprintf("item %s has not run since it was asked for at process %d", item, a.slot))
			}
		}
	}
	for item, i := range p.items {
		if i.ran < i.asked {
			left = append(left, fmt.Sprintf("item %s has not run since it was asked for", item))
		}
	}
	p.mu.Unlock()
	for _, a := range cast {
		if a != nil && a.q.Stats().Outbox > 0 {
			left = append(left, fmt.Sprintf("process %d has something to store", a.slot))
		}
	}
	for _, k := range p.m.items() {
		if r, _, err := decodeRecord(k.stored); err != nil || r != (record{}) {
			left = append(left, fmt.Sprintf("stored is %s %s", k.subject, k.data))
		}
	}
	return strings.Join(left, "; ")
}

// TestPlays plays plans of random faults. With -plays N -play SEED it plays others.
func TestPlays(t *testing.T) { playAll(t, *plays, newPlan) }

// TestShortPlays plays many that are over soon.
func TestShortPlays(t *testing.T) { playAll(t, 10**plays, newShortPlan) }

func playAll(t *testing.T, n int, newPlan func(seed uint64) plan) {
	began := time.Now()
	var longest time.Duration
	runs := 0
	for seed := *firstPlay; seed < *firstPlay+uint64(n); seed++ {
		pl := newPlan(seed)
		var p *play
		synctest.Test(t, func(*testing.T) { p = perform(pl) })
		if p.wrong != "" {
			t.Errorf("%s\n%v", p.wrong, pl)
		}
		longest = max(longest, p.gap)
		runs += p.runs
	}
	took := time.Since(began)
	t.Logf("%d plays with %d runs in %v, %.1f a second; the longest wait in peace was %v", n, runs, took, float64(n)/took.Seconds(), longest)
}

const ms = time.Millisecond

// savedPlans are those that found something once.
var savedPlans = []struct {
	name string
	plan plan
}{
	// An attempt to join was stored and not answered; the others declared it gone and
	// forgot it, and then the same id joined, and no other member noticed that it is alive.
	{"deaf for seven seconds", plan{seed: 1, faults: []fault{{1000 * ms, 7000 * ms, deaf, 1, 0}}}},
	{"deaf for twelve seconds", plan{seed: 1, faults: []fault{{1000 * ms, 12000 * ms, deaf, 1, 0}}}},
	// Only the eldest buried, and each died before it had seen the one before silent
	// for a lease.
	{"the eldest dies all the time", plan{seed: 4, deaths: true, faults: every(1500*ms, 20, fault{2000 * ms, 100 * ms, kill, eldest, 0})}},
}

// every returns a fault n times.
func every(d time.Duration, n int, f fault) (all []fault) {
	for range n {
		all = append(all, f)
		f.at += d
	}
	return all
}

func TestSavedPlans(t *testing.T) {
	for _, s := range savedPlans {
		t.Run(s.name, func(t *testing.T) {
			var p *play
			synctest.Test(t, func(*testing.T) { p = perform(s.plan) })
			if p.wrong != "" {
				t.Errorf("%s\n%v", p.wrong, s.plan)
			}
		})
	}
}
