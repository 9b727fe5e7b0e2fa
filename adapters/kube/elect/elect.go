// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package elect runs something in one process of many: in the one that holds a
// Lease.
//
// What [Elect] returns is a member of a Group. What keeps a process that waits
// warm, an informer, is a member beside it. What only the leader does is inside,
// made anew by [EachTerm]: the queue, what feeds it, and the workers.
package elect

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/absent"
	"github.com/reconkernel/reconcile/adapters/kube/internal/lease"
	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// A Config says which Lease is stood for, and how. Client and Name are required;
// zero is a good default for the rest.
type Config struct {
	// Client is that of a clientset that nothing else uses, such as
	// kubernetes.Interface.CoordinationV1(). A clientset has one rate limiter: behind
	// the requests of the workers, those for the Lease come too late, and it is lost.
	Client    typedv1.LeasesGetter
	Namespace string // of the Lease; empty means that of the pod this process is in
	Name      string // of the Lease; it is made if it is not there

	// Identity names this candidate. No two may have the same: both would lead.
	// Empty means the host's name and something random.
	Identity string

	// Duration is how long a lease is good for, and how long the others wait
	// after a leader that died: whole seconds; 0 means 15 seconds.
	Duration time.Duration

	// Deadline is when a leader that could not renew its lease ends: so long
	// after it last could. It is less than Duration, and the difference is the
	// time to end in; 0 means two thirds of Duration.
	Deadline time.Duration

	// Period is the time from one try, to get the lease or to renew it, to the
	// next; it is less than Deadline/1.2; 0 means two fifteenths of Duration.
	Period time.Duration

	// Exit is called if the runner has not returned though its lease is about
	// to pass to another. It ends the process: there is no other way to keep the
	// guarantee. Nil means to log the error and to exit with status 1.
	Exit func(err error)

	Logger *slog.Logger // nil means reconcile.Logger(ctx) of Run: that of the Group, or slog.Default() without a Group
}

// Elect returns a Candidate, which runs r while this process holds the lease: no two
// processes run it at the same time.
//
// It stands for the lease until it has it, or ctx is done. Then it runs r. When
// ctx is done, r may end as it likes, with grace: the lease is renewed meanwhile,
// and given up when r has returned, so that the next leader need not wait. If r
// returns by itself, the lease is given up as well, and the Runner returns what
// r did.
//
// If the lease cannot be renewed in time, r is ended hard: its context ends,
// with [reconcile.ErrLeaseLost] as cause, at Config.Deadline after the last
// renewal. It has the time up to Config.Duration to return, less one fifteenth;
// after that Config.Exit ends the process. A Reconciler that has a Grace takes
// it also then, unless its queue is [Held]. Run returns an error that matches
// reconcile.ErrLeaseLost. In a Group this ends the process in good order; with
// [supervise.Restart] around it, it stands again, and r runs once for each term.
//
// Nothing outside of Elect may feed the queue of a Reconciler: while this
// process waits nobody takes from it, so it grows by an item for each object that
// comes, also of those that are gone again. [EachTerm] makes one for each term.
//
// A Lease that is deleted is free: another candidate takes it when it asks next. The leader
// watches it, and its lease is lost as soon as it hears that the Lease is gone, or another's.
// Without the right to watch it, it ends when it is to renew, up to Config.Period later.
//
// Times are measured from before the request that renewed the lease, on the monotonic
// clock and on the wall clock of this process: the lease is lost when either says so. A
// process that is stopped, or a machine that sleeps, finds out within a second after it
// goes on. A wall clock that is set forward by more than Config.Deadline ends the lease,
// too.
func Elect(cfg Config, r reconcile.Runner) *Candidate {
	return &Candidate{config: cfg, runner: r}
}

// EachTerm returns a Runner for [Elect] that runs a new Group in each term, with
// the members that fill adds: a queue of that term, what feeds it, and its
// workers. So a process that waits has no queue. The informers run outside, and
// a feeder begins with all that they know. Fill is called once for each term,
// before its Group runs.
//
// For a Group around Elect this is no Reconciler: it is ended together with the
// informers, and ends its own members in good order.
func EachTerm(fill func(term *supervise.Group)) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		if fill == nil {
			return reconcile.Terminal(errors.New("elect: EachTerm needs a function, got nil"))
		}
		var term supervise.Group
		fill(&term)
		return term.Run(ctx)
	})
}

// A Candidate is a [reconcile.Runner] that [Elect] returns.
type Candidate struct {
	config Config
	runner reconcile.Runner
	leads  atomic.Pointer[term] // nil while another leads
}

// IsLeader reports whether the runner runs, and the lease is held. It is for the
// page or the metric of a process, and may be called from any goroutine: what it
// says may be over at once, so work belongs into the runner.
func (e *Candidate) IsLeader() bool {
	t := e.leads.Load()
	return t != nil && t.lost.Err() == nil && t.left() > 0
}

// Unwrap lets a Group know what runs in here.
func (e *Candidate) Unwrap() reconcile.Runner { return e.runner }

// Run does what Elect says.
func (e *Candidate) Run(ctx context.Context) error {
	checked, err := lease.Config(e.config).WithDefaults(ctx, "elect: Config", 1/leaderelection.JitterFactor)
	if err != nil {
		return err
	}
	c := Config(checked)
	if e.config.Identity == "" {
		c.Identity += "_" + rand.Text()
	}
	switch e.runner.(type) {
	case nil:
		return reconcile.Terminal(errors.New("elect: Elect needs a Runner, got nil"))
	case *supervise.Group:
		return reconcile.Terminal(errors.New("elect: a Group runs once, and not again in the next term; EachTerm makes one for each"))
	}
	// The elector must outlive ctx: it renews the lease until the runner has ended.
	electing, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	electing = klog.NewContext(electing, logr.FromSlogHandler(noErrors{c.Logger.Handler()}))
	t := newTerm(c)
	leading := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          t,
		LeaseDuration: c.Duration,
		RenewDeadline: c.Deadline,
		RetryPeriod:   c.Period,
		Name:          c.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leading) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { c.Logger.Info("lease has a holder", "lease", c.Name, "holder", identity) },
		},
	})
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("elect: %w", err))
	}
	stopped := make(chan struct{}) // the elector has ended
	go func() {
		defer close(stopped)
		elector.Run(electing)
	}()
	defer func() {
		resign()
		<-stopped
		if t.lost.Err() == nil {
			t.release()
		}
	}()
	select {
	case <-leading:
	case <-ctx.Done():
		return nil
	}
	if ctx.Err() != nil {
		return nil
	}
	e.leads.Store(t)
	defer e.leads.Store(nil)
	return t.run(ctx, e.runner, stopped)
}

// A term is the time of one leader. It is also the elector's lock, and takes
// note of what comes by.
type term struct {
	resourcelock.Interface
	Config
	lost context.Context // done once the lease is lost
	lose context.CancelCauseFunc

	mu      sync.Mutex // guards what follows
	renewed time.Time  // before the last request that got or renewed the lease
	trouble error      // of the last request; nil if it succeeded
	asked   time.Time  // when the request in flight began; zero if there is none

	failures rare.Failures // of requests
}

// noErrors leaves out the errors that the elector logs: all are of requests that the
// term has sent and logged, more and more rarely.
type noErrors struct{ slog.Handler }

// Handle logs a record that is no error.
func (h noErrors) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelError {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs returns a handler that has attributes.
func (h noErrors) WithAttrs(attrs []slog.Attr) slog.Handler {
	return noErrors{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a handler with a group.
func (h noErrors) WithGroup(name string) slog.Handler { return noErrors{h.Handler.WithGroup(name)} }

// failed notes how a request ended, and logs that it failed, unless that somebody else was faster.
func (t *term) failed(ctx context.Context, err error) {
	err = lease.Explain(err)
	t.mu.Lock()
	t.trouble, t.asked = err, time.Time{}
	t.mu.Unlock()
	if err == nil || ctx.Err() != nil || absent.Object(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return
	}
	if count, log := t.failures.Add(err); log {
		t.Logger.Warn("cannot read or write the lease, retrying", "lease", t.Namespace+"/"+t.Name, "failures", count, "err", err)
	}
}

// asks notes that a request begins.
func (t *term) asks() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = time.Now()
}

func newTerm(c Config) *term {
	t := &term{Config: c}
	t.lost, t.lose = context.WithCancelCause(context.Background())
	t.Interface = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name},
		Client:     c.Client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: c.Identity},
	}
	return t
}

// Get reads the lease.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	t.asks()
	record, raw, err := t.Interface.Get(ctx)
	t.failed(ctx, err)
	if err == nil && record.HolderIdentity != t.Config.Identity && !t.last().IsZero() {
		t.lose(t.heldBy(record.HolderIdentity))
	}
	return record, raw, err
}

// Create makes the lease, with this process as its holder.
func (t *term) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(ctx, record, func() error { return t.Interface.Create(ctx, record) })
}

// Update writes the lease.
func (t *term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.note(ctx, record, func() error { return t.Interface.Update(ctx, record) })
}

func (t *term) note(ctx context.Context, record resourcelock.LeaderElectionRecord, write func() error) error {
	begin := time.Now()
	t.asks()
	err := write()
	t.failed(ctx, err)
	if err == nil && record.HolderIdentity == t.Config.Identity {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.renewed = begin
	}
	return err
}

func (t *term) last() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.renewed
}

// Identity is this candidate's.
func (t *term) Identity() string { return t.Interface.Identity() }

// run runs r, and ends it if the lease is lost.
func (t *term) run(ctx context.Context, r reconcile.Runner, stopped <-chan struct{}) error {
	running, end := context.WithCancelCause(held.With(ctx, t))
	returned := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { t.watch(end, stopped, returned) })
	observing, unobserve := context.WithCancel(context.WithoutCancel(ctx))
	watching.Go(func() { t.observe(observing) })
	defer func() { // also if r panics
		close(returned)
		unobserve()
		watching.Wait()
		end(nil)
	}()
	err := r.Run(running)
	if cause := context.Cause(t.lost); cause != nil {
		end(cause)
		// Restart returns nil for the error of running.
		failure := supervise.Restart(reconcile.NoRetry, reconcile.RunFunc(func(context.Context) error { return err })).Run(running)
		if failure == nil {
			return fmt.Errorf("elect: %w", cause)
		}
		return fmt.Errorf("elect: %w; then: %w", cause, err)
	}
	return err
}

// left returns how long the lease still holds, by the clock that says less: the
// monotonic one stands still while a machine sleeps.
func (t *term) left() time.Duration {
	now, last := time.Now(), t.last()
	return t.Deadline - max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
}

// Over reports whether the lease is lost. If it was not renewed in time, it is from
// now on, even if a renewal comes yet.
func (t *term) Over() bool {
	if t.lost.Err() == nil && t.left() <= 0 {
		t.mu.Lock()
		trouble := t.trouble
		if trouble == nil && !t.asked.IsZero() {
			trouble = lease.Unanswered(time.Since(t.asked))
		}
		t.mu.Unlock()
		err := fmt.Errorf("%w: %s/%s was not renewed for %v", reconcile.ErrLeaseLost, t.Namespace, t.Name, t.Deadline)
		if trouble != nil {
			err = fmt.Errorf("%w: %w", err, trouble)
		}
		t.lose(err)
	}
	return t.lost.Err() != nil
}

// Lost returns a context that is done once the lease is lost.
func (t *term) Lost() context.Context { return t.lost }

// watch ends the runner, with end, if the lease is lost before it has returned.
func (t *term) watch(end context.CancelCauseFunc, stopped, returned <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for t.lost.Err() == nil {
		select {
		case <-returned:
			return
		case <-t.lost.Done():
		case <-stopped:
			t.lose(fmt.Errorf("%w: the elector has ended", reconcile.ErrLeaseLost))
		case <-timer.C:
			if !t.Over() {
				timer.Reset(min(time.Second, t.left())) // the machine may sleep meanwhile
			}
		}
	}
	cause := context.Cause(t.lost)
	t.Logger.Error("lease lost", "err", cause)
	end(cause)
	timer.Reset(time.Until(t.last().Add(t.Duration - t.Duration/15)))
	select {
	case <-returned:
	case <-timer.C:
		t.Exit(fmt.Errorf("elect: the runner has not returned, and the lease may pass to another: %w", cause))
	}
}

// observe watches the Lease until ctx is done or the lease is lost, which it is if the Lease
// is deleted, or another's.
func (t *term) observe(ctx context.Context) {
	var failures rare.Failures
	for ctx.Err() == nil && t.lost.Err() == nil {
		err := t.observeOnce(ctx)
		if err != nil && ctx.Err() == nil {
			if count, log := failures.Add(err); log {
				t.Logger.Warn("cannot watch the lease, retrying; if it is deleted, this is noticed later", "lease", t.Namespace+"/"+t.Name, "failures", count, "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(t.Duration): // a server may end each watch at once
		}
	}
}

func (t *term) observeOnce(ctx context.Context) error {
	leases := t.Client.Leases(t.Namespace)
	w, err := leases.Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: t.Name}))
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-w.ResultChan():
			switch lease, isLease := e.Object.(*coordinationv1.Lease); {
			case !ok:
				return nil
			case !isLease:
				return apierrors.FromObject(e.Object)
			case e.Type != watch.Deleted && t.holds(lease):
				continue
			}
			// What a watch says may be old.
			now, err := leases.Get(ctx, t.Name, metav1.GetOptions{})
			switch {
			case absent.Object(err):
				t.lose(fmt.Errorf("%w: %s/%s was deleted", reconcile.ErrLeaseLost, t.Namespace, t.Name))
				return nil
			case err != nil:
				return err
			case !t.holds(now):
				t.lose(t.heldBy(*cmp.Or(now.Spec.HolderIdentity, new(string))))
				return nil
			}
		}
	}
}

func (t *term) holds(lease *coordinationv1.Lease) bool {
	return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity == t.Config.Identity
}

func (t *term) heldBy(identity string) error {
	return fmt.Errorf("%w: %s/%s is held by %q", reconcile.ErrLeaseLost, t.Namespace, t.Name, identity)
}

// release gives the lease up, if it is held. The elector has ended: no other
// goroutine uses the lock.
func (t *term) release() {
	if t.last().IsZero() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.Deadline)
	defer cancel()
	for {
		record, _, err := t.Get(ctx)
		if err == nil && record.HolderIdentity == t.Config.Identity {
			now := metav1.Now()
			err = t.Update(ctx, resourcelock.LeaderElectionRecord{
				LeaseDurationSeconds: 1,
				LeaderTransitions:    record.LeaderTransitions,
				AcquireTime:          now,
				RenewTime:            now,
			})
		}
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Logger.Warn("lease not released; the next leader waits until it expires", "err", err)
		}
		return
	}
}
