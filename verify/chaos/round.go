// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Queue is what a round needs of [reconcile.Queue].
type Queue interface {
	reconcile.Enqueuer[int]
	reconcile.Dequeuer[int]
	EnqueueWithin(item int, d time.Duration)
	EnqueueNow(item int)
	EnqueueAndWait(ctx context.Context, items ...int) error
	Remove(item int) bool
	Close()
	Stats() reconcile.Stats
}

// A Config says how a round goes.
type Config struct {
	Seed    uint64 // of all that is done at random; what meets is up to the runtime
	Items   int
	Changes int

	// Unit is that of all pauses: a second in a bubble.
	Unit time.Duration
	// Exact says that the clock stands still while anybody works, as that of a
	// bubble does.
	Exact bool
	// Settle waits until nothing goes on any more. It may ask settled. [Settle]
	// does for a clock that is no bubble's.
	Settle func(settled func() bool)
	// Wrap puts something between the queue and everybody else; it may be nil.
	Wrap func(*reconcile.Queue[int]) Queue
}

// Settle asks again and again, for ten minutes at most: the referee complains of
// what is still going on then.
func Settle(settled func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	enough := time.NewTimer(10 * time.Minute)
	defer enough.Stop()
	for !settled() {
		select {
		case <-tick.C:
		case <-enough.C:
			return
		}
	}
}

// round is what the parts of a round share.
type round struct {
	Config
	world   *World
	queue   Queue
	logger  *slog.Logger
	channel chan int
	calm    atomic.Bool   // nothing goes wrong any more
	enough  atomic.Bool   // of changes
	budget  atomic.Int64  // changes left
	randoms atomic.Uint64 // sources of randomness so far
	nudge   chan struct{} // told now and then, in the midst of things
	steps   atomic.Int64
	admits  bool // some runs have to be admitted
	groups  int64
	members atomic.Int64
}

// Run is one round: groups that come and go and share a queue, until there have
// been enough changes; then one more that does the rest in peace.
func Run(c Config) Report {
	q := reconcile.NewQueue[int]()
	q.Background = int(c.Seed % 4)
	admits := c.Seed%4 > 1
	r := &round{
		// A Reconciler does not know when an item of a queue that is not of the
		// kernel became ready; nor does the referee, if it was given back after it
		// had waited to be admitted.
		Config: c, world: newWorld(c.Items, c.Exact && c.Wrap == nil && !admits), queue: q, admits: admits,
		logger:  slog.New(&handler{}),
		channel: make(chan int), nudge: make(chan struct{}, 1),
	}
	r.budget.Store(int64(c.Changes))
	if c.Wrap != nil {
		r.queue = c.Wrap(q)
	}
	for !r.enough.Load() {
		r.group()
	}
	r.finish()
	report := r.world.report()
	report.Stats = r.queue.Stats()
	report.Groups, report.Members = r.groups, r.members.Load()
	return report
}

// random returns a source that is the caller's own.
func (r *round) random() *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, r.randoms.Add(1)))
}

// pause waits for up to n units, or until ctx is done.
func (r *round) pause(ctx context.Context, random *rand.Rand, n float64) {
	t := time.NewTimer(time.Duration(n * random.Float64() * float64(r.Unit)))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// step tells whoever ends and stops things that now is a moment as any other.
func (r *round) step() {
	if r.steps.Add(1)%701 == 0 {
		select {
		case r.nudge <- struct{}{}:
		default:
		}
	}
}

var errBoom = errors.New("boom")

// group runs one group until it is ended, or fails.
func (r *round) group() {
	r.groups++
	random := r.random()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	g := &reconcile.Group{Logger: r.logger}
	inner := &reconcile.Group{Logger: r.logger}
	inner.Add("inner reconciler", r.reconciler(random))
	inner.Add("inner feeder", r.feeder(random))
	stops := []func(){
		g.Add("reconciler", r.reconciler(random)),
		g.Add("poller", reconcile.Restart(reconcile.Backoff(r.Unit, r.Unit), r.poller())),
		g.Add("group", reconcile.Restart(reconcile.NoRetry, inner)),
		g.Add("channel", reconcile.Restart(r.retry(), reconcile.Feed(r.queue, reconcile.FromChan(r.channel)))),
		g.Add("sender", reconcile.Restart(r.retry(), reconcile.RunFunc(r.send))),
		g.Add("applier", reconcile.Restart(r.retry(), reconcile.RunFunc(r.apply))),
	}
	for range 1 + random.IntN(4) {
		stops = append(stops, g.Add("feeder", reconcile.Restart(r.retry(), r.feeder(random))))
	}

	ended := make(chan struct{})
	var meddling sync.WaitGroup
	meddling.Go(func() {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			timer.Reset(time.Duration(random.Int64N(int64(20 * r.Unit))))
			select {
			case <-ended:
				return
			case <-r.nudge:
			case <-timer.C:
			}
			switch random.IntN(12) {
			case 0:
				if r.enough.Load() || random.IntN(3) == 0 {
					cancel(errBoom)
				}
			case 1, 2, 3:
				i := random.IntN(len(stops))
				meddling.Go(stops[i])
				if random.IntN(4) == 0 {
					meddling.Go(stops[i])
				}
			case 4, 5, 6:
				stops = append(stops, g.Add("late reconciler", r.late(random, r.reconciler(random))))
			case 7:
				stops = append(stops, g.Add("mortal feeder", r.late(random, r.feeder(random))))
			default:
				stops = append(stops, g.Add("late feeder", reconcile.Restart(r.retry(), r.feeder(random))))
			}
			if r.enough.Load() {
				cancel(errBoom)
			}
		}
	})
	if err := g.Run(ctx); err != nil && !expected(err) {
		r.world.complain(Ended, "%v", err)
	}
	close(ended)
	meddling.Wait()
	r.members.Add(int64(len(stops)))
}

// expected reports whether a member was meant to fail.
func expected(err error) bool {
	var p *reconcile.PanicError
	return errors.Is(err, errBoom) || errors.As(err, &p)
}

// late has a member start after a while; or fail, if that takes too long.
func (r *round) late(random *rand.Rand, m reconcile.Runner) reconcile.Runner {
	patience := random.Float64()
	return reconcile.After(func(ctx context.Context) error {
		r.pause(ctx, r.random(), 5)
		if patience < 0.02 {
			return errBoom
		}
		return nil
	}, m)
}

// finish does what is left, in peace, and looks at what came of it.
func (r *round) finish() {
	r.calm.Store(true)
	r.groups++
	g := &reconcile.Group{Logger: r.logger}
	reconciler := &reconcile.Reconciler[int]{Queue: r.queue, Reconcile: r.reconcile, Workers: 32, OnResult: r.results(false), Logger: r.logger}
	g.Add("reconciler", reconciler)
	stop := g.Add("poller", r.poller())
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { ended <- g.Run(ctx) }()
	wasSettled := false // at the last look: since then a poll may have offered an item
	settled := func() bool {
		s := r.queue.Stats()
		wasSettled = s.Ready+s.Waiting-s.Rechecks+s.InFlight == 0 && len(r.drifted()) == 0
		return wasSettled
	}
	r.Settle(settled)
	if !wasSettled && !settled() {
		r.world.complain(Left, "%+v", r.queue.Stats())
	}
	r.world.judge(false)

	// What is ready when the queue is closed has its run.
	stop()
	for i := 0; i < len(r.world.assets); i += 10 {
		r.world.change(i)
		r.queue.Enqueue(i)
	}
	r.queue.Close()
	patience := time.AfterFunc(max(1000*r.Unit, time.Minute), func() {
		r.world.complain(Ended, "the queue is closed, and the group goes on: %+v", r.queue.Stats())
		cancel()
	})
	defer patience.Stop()
	if err := <-ended; err != nil {
		r.world.complain(Ended, "closed: %v", err)
	}
	r.world.judge(true)
}

// reconciler makes one of many kinds.
func (r *round) reconciler(random *rand.Rand) reconcile.Runner {
	m := &reconcile.Reconciler[int]{
		Queue:       r.queue,
		Reconcile:   r.reconcile,
		Name:        "chaos",
		Workers:     1 + random.IntN(100),
		Retry:       r.retry(),
		HoldRetries: random.IntN(2) == 0,
		Logger:      r.logger,
	}
	m.OnResult = r.results(m.HoldRetries)
	if random.IntN(2) == 0 {
		m.Timeout = time.Duration(1 + random.Int64N(int64(5*r.Unit)))
	}
	if random.IntN(2) == 0 {
		m.Grace = time.Duration(1 + random.Int64N(int64(5*r.Unit)))
	}
	if r.admits && random.IntN(3) == 0 {
		m.Admit = r.admit
	}
	if random.IntN(3) == 0 {
		// Two loops of one Reconciler.
		g := &reconcile.Group{Logger: r.logger}
		g.Add("one", m)
		g.Add("other", m)
		return reconcile.Restart(reconcile.NoRetry, g)
	}
	return m
}

// admit holds runs back for a while, now and then for longer than it may, and panics
// now and then once they are over.
func (r *round) admit(ctx context.Context) (done func(reconcile.Outcome, error, time.Duration), err error) {
	random := r.random()
	switch n := random.IntN(100); {
	case n < 60:
		return nil, nil
	case n < 63:
		r.pause(context.Background(), random, 3)
	case n < 80:
		r.pause(ctx, random, 0.1)
	}
	return func(reconcile.Outcome, error, time.Duration) {
		if !r.calm.Load() && random.IntN(500) == 0 {
			panic(errBoom)
		}
	}, ctx.Err()
}

// results has the referee see each result, and panics now and then.
func (r *round) results(holdRetries bool) func(reconcile.Result[int]) {
	return func(res reconcile.Result[int]) {
		r.world.result(res, holdRetries)
		if rand.IntN(20) == 0 {
			r.world.count(r.queue.Stats)
		}
		if !r.calm.Load() && rand.IntN(500) == 0 {
			panic(errBoom)
		}
	}
}

// retry makes a policy that panics now and then, and gives up after a while.
func (r *round) retry() reconcile.RetryPolicy {
	p := reconcile.Backoff(r.Unit/10, 20*r.Unit).Limit(2)
	return func(err error, failures int) (time.Duration, bool) {
		if r.calm.Load() {
			return 0, false
		}
		if failures > 0 && rand.IntN(500) == 0 {
			panic(errBoom)
		}
		return p(err, failures)
	}
}

// handler is that of the logs: it drops them, and panics now and then.
type handler struct{}

func (*handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler         { return h }
func (h *handler) WithGroup(string) slog.Handler              { return h }
func (*handler) Handle(context.Context, slog.Record) error {
	if rand.IntN(500) == 0 {
		panic(errBoom)
	}
	return nil
}
