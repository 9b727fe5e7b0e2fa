// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

// This file has what the tests of several files share.

// inBubble runs f with an empty queue in a bubble, and checks the queue's
// invariants afterwards.
func inBubble(t *testing.T, f func(t *testing.T, q *reconcile.Queue[string])) {
	t.Helper()
	inBackground(t, 0, f)
}

// inBackground is inBubble for a queue of that Background.
func inBackground(t *testing.T, background int, f func(t *testing.T, q *reconcile.Queue[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Background = background
		f(t, q)
		mustAgree(t, q)
	})
}

// runQueue is inBubble as a subtest.
func runQueue(t *testing.T, name string, f func(t *testing.T, q *reconcile.Queue[string])) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// runBubble runs f as a subtest, in a bubble.
func runBubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// mustAgree checks that the queue keeps its own rules.
func mustAgree[T comparable](t *testing.T, q *reconcile.Queue[T]) {
	t.Helper()
	if err := reconcile.Check(q); err != nil {
		t.Errorf("check: %v", err)
	}
}

// mustTake dequeues an item that is ready.
func mustTake[T comparable](t *testing.T, q *reconcile.Queue[T]) T {
	t.Helper()
	if q.Len() == 0 {
		t.Fatal("nothing is ready to be taken")
	}
	item, err := q.Dequeue(t.Context())
	if err != nil {
		t.Fatalf("Dequeue: %v", err)
	}
	return item
}

// mustTakeAll dequeues the items that are ready and wants them in this order.
func mustTakeAll[T comparable](t *testing.T, q *reconcile.Queue[T], want ...T) {
	t.Helper()
	var got []T
	for q.Len() > 0 {
		got = append(got, mustTake(t, q))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("taken: %v, want %v", got, want)
	}
}

func wantState(t *testing.T, q *reconcile.Queue[string], item string, want reconcile.State) {
	t.Helper()
	wantSame(t, fmt.Sprintf("State(%q)", item), q.State(item), want)
}

func wantPhase(t *testing.T, q *reconcile.Queue[string], item string, want reconcile.Phase) {
	t.Helper()
	if got := q.State(item).Phase; got != want {
		t.Errorf("State(%q).Phase: %v, want %v", item, got, want)
	}
}

func wantStats[T comparable](t *testing.T, q *reconcile.Queue[T], want reconcile.Stats) {
	t.Helper()
	if got := q.Stats(); got != want {
		t.Errorf("Stats:\n got %+v\nwant %+v", got, want)
	}
}

// wantSame checks a value with cmp, and the errors in it with sameErrors.
func wantSame[V any](t *testing.T, what string, got, want V, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, append(opts, sameErrors)...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// sameErrors finds two errors equal if they read alike and are one, or one wraps
// the other, as far as they can be compared.
var sameErrors = cmp.Comparer(func(a, b error) bool {
	if fmt.Sprint(a) != fmt.Sprint(b) {
		return false
	}
	return errors.Is(a, b) || errors.Is(b, a) || !reflect.TypeOf(a).Comparable() && reflect.DeepEqual(a, b)
})

// A reply is what a call in a goroutine of its own returned, and when.
type reply[T any] struct {
	item T
	err  error
	at   time.Time
}

// startCall lets a call wait and returns where its reply will be.
func startCall[T any](call func() (T, error)) <-chan reply[T] {
	c := make(chan reply[T], 1)
	go func() {
		item, err := call()
		c <- reply[T]{item, err, time.Now()}
	}()
	synctest.Wait()
	return c
}

// startDequeue lets a consumer wait.
func startDequeue[T comparable](ctx context.Context, q *reconcile.Queue[T]) <-chan reply[T] {
	return startCall(func() (T, error) { return q.Dequeue(ctx) })
}

// startWait lets a call wait that returns no more than an error.
func startWait(wait func() error) <-chan reply[struct{}] {
	return startCall(func() (struct{}, error) { return struct{}{}, wait() })
}

// mustWait wants the call to be waiting still.
func mustWait[T any](t *testing.T, c <-chan reply[T]) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		t.Fatalf("the call returned %v, %v, want it to wait", a.item, a.err)
	default:
	}
}

// mustReturn wants the call to have returned.
func mustReturn[T any](t *testing.T, c <-chan reply[T]) reply[T] {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		return a
	default:
	}
	t.Fatal("the call waits, want it to return")
	return reply[T]{}
}

// mustEnd wants a Dequeue to return ErrClosed.
func mustEnd[T comparable](t *testing.T, q *reconcile.Queue[T]) {
	t.Helper()
	if d := mustReturn(t, startDequeue(t.Context(), q)); d.err != reconcile.ErrClosed {
		t.Errorf("Dequeue: %v, %v, want %v", d.item, d.err, reconcile.ErrClosed)
	}
}

// panics returns what f panics with, as text.
func panics(f func()) (msg string) {
	defer func() {
		if v := recover(); v != nil {
			msg = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

// wantNoAllocs counts over many cycles in one go: an average would hide what
// comes now and then. The few that it allows are the runtime's own, when a
// timer fires and its goroutine is a new one.
func wantNoAllocs(t *testing.T, cycle func()) {
	t.Helper()
	if got := testing.AllocsPerRun(1, func() {
		for range 2000 {
			cycle()
		}
	}); got > 10 {
		t.Errorf("%v allocations in 2000 cycles, want none", got)
	}
}

// tellSeed is deferred: it tells with which seed a test has failed, which a bubble
// that fails ends.
func tellSeed(t *testing.T, seed *uint64) {
	if t.Failed() {
		t.Logf("seed %d", *seed)
	}
}

// randoms returns n sources of random numbers, one for the runs of each item: what
// an item draws does not depend on whose turn it is.
func randoms(seed, first uint64, n int) []*rand.Rand {
	all := make([]*rand.Rand, n)
	for i := range all {
		all[i] = rand.New(rand.NewPCG(seed, first+uint64(i)))
	}
	return all
}

// within reports whether low < d ≤ high.
func within(d, low, high time.Duration) bool { return low < d && d <= high }

var (
	errBoom = record.ErrBoom
	errEnd  = record.ErrEnd
)

// panicsHere is found in the stack of what it calls.
func panicsHere(end func()) error {
	end()
	return nil
}

// A service is a Reconciler at work, with what it leaves behind.
type service struct {
	*record.Running
	q       *reconcile.Queue[string] // nil if the Dequeuer has none inside
	results *resultBook[string]
	log     *record.Log
	began   time.Time
}

// wantResult looks at the last result.
func (s *service) wantResult(t *testing.T, item string, o reconcile.Outcome, failures int) reconcile.Result[string] {
	t.Helper()
	r := s.results.last(t)
	if r.Item != item || r.Outcome != o || r.Failures != failures {
		t.Errorf("result %+v, want %s: %s, with %d failures", r, item, o, failures)
	}
	return r
}

// wantItem looks at an item in the queue; in is when it is due, from now on.
func (s *service) wantItem(t *testing.T, item string, phase reconcile.Phase, in time.Duration, failures int) {
	t.Helper()
	got := s.q.State(item)
	if got.Phase != phase || got.Failures != failures || phase == reconcile.PhaseWaiting && !got.Due.Equal(time.Now().Add(in)) {
		t.Errorf("State(%q) = %+v, want %v, due in %v, with %d failures", item, got, phase, in, failures)
	}
}

func (s *service) wantSilence(t *testing.T, least slog.Level) {
	t.Helper()
	if lines := s.log.From(least); len(lines) != 0 {
		t.Errorf("log lines of level %v or more: %v, want none", least, lines)
	}
}

// serve launches a Reconciler, and enqueues items. It fills in what is missing: a
// Queue, a Reconcile that succeeds, OnResult, a Logger, and minutes as Retry.
func serve(t *testing.T, r reconcile.Reconciler[string], items ...string) *service {
	t.Helper()
	s := &service{results: new(resultBook[string]), log: record.NewLog(), began: time.Now()}
	if r.Queue == nil {
		r.Queue = reconcile.NewQueue[string]()
	}
	s.q = queueInside(r.Queue)
	if r.Reconcile == nil {
		r.Reconcile = nothing
	}
	if r.OnResult == nil {
		r.OnResult = s.results.add
	}
	if r.Logger == nil {
		r.Logger = s.log.Logger()
	}
	if r.Retry == nil {
		r.Retry = minutes
	}
	for _, item := range items {
		s.q.Enqueue(item)
	}
	s.Running = record.Launch(t, &r)
	synctest.Wait()
	return s
}

// pass lets time pass, and all that is to happen then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A resultBook collects results.
type resultBook[T comparable] struct {
	mu   sync.Mutex
	list []reconcile.Result[T]
}

func (b *resultBook[T]) add(r reconcile.Result[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, r)
}

func (b *resultBook[T]) all() []reconcile.Result[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]reconcile.Result[T](nil), b.list...)
}

func (b *resultBook[T]) only(t *testing.T) reconcile.Result[T] {
	t.Helper()
	all := b.all()
	if len(all) != 1 {
		t.Fatalf("%d results, want 1: %+v", len(all), all)
	}
	return all[0]
}

func (b *resultBook[T]) last(t *testing.T) reconcile.Result[T] {
	t.Helper()
	all := b.all()
	if len(all) == 0 {
		t.Fatal("no result")
	}
	return all[len(all)-1]
}

// minutes is a policy that tells from a delay how many failures it was told.
func minutes(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures) * time.Minute, true
}

// fails makes a Reconcile that fails n times and then ends as last says.
func fails(n int, last func(context.Context) error) func(context.Context, string) error {
	runs := 0
	return func(ctx context.Context, _ string) error {
		if runs++; runs <= n {
			return fmt.Errorf("failure %d", runs)
		}
		return last(ctx)
	}
}

// A plainQueue hides everything of a Queue but the methods of a Dequeuer, as
// somebody else's Dequeuer does.
type plainQueue[T comparable] struct{ q *reconcile.Queue[T] }

func (p plainQueue[T]) Dequeue(ctx context.Context) (T, error) { return p.q.Dequeue(ctx) }

func (p plainQueue[T]) Done(item T) { p.q.Done(item) }

func (p plainQueue[T]) Requeue(item T, w reconcile.RequeueOptions) { p.q.Requeue(item, w) }

func (p plainQueue[T]) State(item T) (state reconcile.State) { return p.q.State(item) }

func (p plainQueue[T]) inside() *reconcile.Queue[T] { return p.q }

func plainly[T comparable](q *reconcile.Queue[T]) plainQueue[T] { return plainQueue[T]{q} }

// A leasing queue hands out items under leases that can be lost.
type leasing struct {
	plainQueue[string]
	lose *sync.Map // from an item to the context.CancelCauseFunc of its lease
}

type leaseKey struct{}

func newLeasing() leasing { return leasingOf(plainly(reconcile.NewQueue[string]())) }

func leasingOf(q plainQueue[string]) leasing { return leasing{q, new(sync.Map)} }

func (q leasing) Lease(ctx context.Context, item string) context.Context {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, leaseKey{}, "lease of "+item))
	q.lose.Store(item, cancel)
	return ctx
}

// loseLease ends the lease of an item.
func (q leasing) loseLease(item string) {
	cancel, _ := q.lose.Load(item)
	cancel.(context.CancelCauseFunc)(reconcile.ErrLeaseLost)
}

// A brokenQueue fails to dequeue once it is broken. It wraps the errors of Dequeue,
// as a Dequeuer may.
type brokenQueue struct {
	plainQueue[string]
	broken chan struct{}
}

func (q brokenQueue) Dequeue(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	select {
	case <-q.broken:
		return "", errBoom
	default:
	}
	go func() {
		select {
		case <-q.broken:
			cancel(errBoom)
		case <-ctx.Done():
		}
	}()
	item, err := q.q.Dequeue(ctx)
	if err != nil {
		err = fmt.Errorf("waiting for work: %w", err)
	}
	return item, err
}

// A ledger is a Dequeuer that hands out some items, then ends as it is told to,
// and notes all that it is called for.
type ledger struct {
	*record.Journal
	items []string
	end   func() error
}

func (q *ledger) Dequeue(context.Context) (string, error) {
	if len(q.items) == 0 {
		q.Note("no more")
		return "", q.end()
	}
	item := q.items[0]
	q.items = q.items[1:]
	q.Note("take %s", item)
	return item, nil
}

func (q *ledger) Done(item string) { q.Note("done %s", item) }

func (q *ledger) Requeue(item string, _ reconcile.RequeueOptions) { q.Note("requeue %s", item) }

func (q *ledger) State(string) (state reconcile.State) { return reconcile.State{} }

// queueInside returns the Queue that a Dequeuer is, or has inside; nil if there is none.
func queueInside(d reconcile.Dequeuer[string]) *reconcile.Queue[string] {
	switch q := d.(type) {
	case *reconcile.Queue[string]:
		return q
	case interface {
		inside() *reconcile.Queue[string]
	}:
		return q.inside()
	}
	return nil
}

// dequeuers are the ways in which a Reconciler meets a Queue.
var dequeuers = []struct {
	name string
	of   func(q *reconcile.Queue[string]) reconcile.Dequeuer[string]
}{
	{"Queue", func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return q }},
	{"Foreign", func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return plainly(q) }},
}

// eachDequeuer runs f in a bubble for each of them.
func eachDequeuer(t *testing.T, f func(t *testing.T, d reconcile.Dequeuer[string])) {
	for _, d := range dequeuers {
		runQueue(t, d.name, func(t *testing.T, q *reconcile.Queue[string]) { f(t, d.of(q)) })
	}
}

func nothing(context.Context, string) error { return nil }

// untilDone is a Reconcile that works until its context ends.
func untilDone(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("working: %w", ctx.Err())
}

// mixed ends in each way that there is, by the name of the item.
func mixed(_ context.Context, item string) error {
	switch item {
	case "plan":
		return reconcile.RequeueAfter(time.Hour)
	case "fail":
		return errBoom
	case "refuse":
		return reconcile.Terminal(errBoom)
	case "panic":
		panic("no disk")
	}
	return nil
}

// A funcHandler is a slog.Handler that calls a function first.
type funcHandler struct {
	slog.Handler
	handle func(slog.Record)
}

func (h funcHandler) Handle(ctx context.Context, r slog.Record) error {
	h.handle(r)
	return h.Handler.Handle(ctx, r)
}

func (h funcHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return funcHandler{h.Handler.WithAttrs(attrs), h.handle}
}

// A badHandler is a slog.Handler that ends badly in the methods given.
type badHandler struct {
	end                   func()
	enabled, handle, with bool
}

func (h badHandler) Enabled(context.Context, slog.Level) bool {
	if h.enabled {
		h.end()
	}
	return true
}

func (h badHandler) Handle(context.Context, slog.Record) error {
	if h.handle {
		h.end()
	}
	return nil
}

func (h badHandler) WithAttrs([]slog.Attr) slog.Handler {
	if h.with {
		h.end()
	}
	return h
}

func (h badHandler) WithGroup(string) slog.Handler { return h }

// A tray is an Enqueuer that notes its calls.
type tray[T comparable] struct {
	*record.Journal
}

func (q tray[T]) Enqueue(item T) { q.Note("enqueue %v", item) }

func (q tray[T]) EnqueueAfter(item T, d time.Duration) { q.Note("enqueue %v after %v", item, d) }

func (q tray[T]) Offer(item T) { q.Note("offer %v", item) }

func newTray[T comparable]() tray[T] { return tray[T]{record.New()} }

// An admit is a Reconciler.Admit.
type admit = func(context.Context) (done func(reconcile.Outcome, error, time.Duration), err error)

// places returns an Admit that lets n runs go on at once. It may be made outside of
// the bubble that it is used in.
func places(n int) admit {
	var once sync.Once
	var taken chan struct{}
	return func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
		once.Do(func() { taken = make(chan struct{}, n) })
		select {
		case taken <- struct{}{}:
			return func(reconcile.Outcome, error, time.Duration) { <-taken }, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// wantCause checks why a context has ended; nil means that it has not.
func wantCause(t *testing.T, ctx context.Context, want error) {
	t.Helper()
	if got := context.Cause(ctx); got != want {
		t.Errorf("cause of the end of the context: %v, want %v", got, want)
	}
}
