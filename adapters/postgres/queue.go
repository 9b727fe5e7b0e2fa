// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// A Queue is one process's part in a queue that any number of processes share, kept by
// PostgreSQL. It takes the place of a [reconcile.Queue]. Its methods act as the methods of the
// same name there, with these exceptions: Close ends only the part of this process, and a
// MinDelay holds after it too; there is no Background; errors are kept as texts.
//
// A Queue is created by [New] or [NewFunc] and has to be closed. Its methods may be called from
// any goroutine. The times of a [reconcile.State] are those of the database's clock.
type Queue[T comparable] struct {
	cfg     Config
	encode  func(T) string
	decode  func(string) (T, error)
	in      func(string) string // puts the schema's name into a statement
	channel string              // for NOTIFY

	life   context.Context // of all that works in the background
	end    context.CancelFunc
	ended  chan struct{} // closed when all of it has ended
	group  supervise.Group
	starts sync.Once // the lease and LISTEN, which only a process needs that takes items

	maxHold float64 // the longest, in seconds, for an item whose processes died

	tasks   *reconcile.Queue[task]
	local   *reconcile.Queue[string] // items that were taken, for the Dequeues that wait
	drained chan struct{}            // closed when the queue is closed and has nothing left to store

	mu      sync.Mutex // guards the fields below
	closed  bool
	empty   bool            // drained is closed
	outbox  map[string][]op // the ops of each item that are not stored, in order
	line    []string        // the items of outbox of which nothing is being stored
	held    map[string]*holding[T]
	waiting int    // Dequeues that wait
	lease   *lease // nil while there is none
	check   bool   // held may differ from the table
	merge   bool   // there may be events
	notify  bool   // an item became due
	merged  time.Time
	woke    time.Time // the last NOTIFY
	took    time.Time // when a Dequeue last returned an item
	heard   bool      // a notification came since asked
	asked   bool      // for one, to see whether it is heard
	stats   reconcile.Stats
	counted time.Time // when Stats was last called
	failed  int       // reads of State and All in a row
}

// A holding is an item that is in flight here.
type holding[T comparable] struct {
	text     string
	item     T
	bad      error // why the text is not an item
	fence    int64
	failures int
	err      string
	since    time.Time
	pending  time.Time
	lease    *lease
	over     context.Context // done with the lease, or when the item is lost alone
	lose     context.CancelCauseFunc
	again    bool // an event came during the run
	giving   bool // the run has ended, which is not stored yet
}

// Over reports whether another process may have the item.
func (h *holding[T]) Over() bool { return h.lease.Over() || h.over.Err() != nil }

// Lost returns a context that is done once Over reports true.
func (h *holding[T]) Lost() context.Context { return h.over }

// New returns the part of this process in the queue cfg.Name. Items are strings or integers; for
// others see [NewFunc]. It asks the database, with ctx, whether the tables are there. Its
// error is [reconcile.Terminal] if cfg is wrong.
func New[T comparable](ctx context.Context, cfg Config) (*Queue[T], error) {
	encode, decode := codecOf[T]()
	if encode == nil {
		return nil, reconcile.Terminal(fmt.Errorf("postgres: New: an item is a %T, want a string or an integer; NewFunc takes others", *new(T)))
	}
	return NewFunc(ctx, cfg, encode, decode)
}

// NewFunc is New for items of any type. Encode returns the text of an item: the same for equal
// items and another for others, valid UTF-8 of at most 1000 bytes without zero bytes. Decode
// returns the item of a text. A text that decode does not accept is logged, and stays in
// the table: it is tried again, by any process, after a second, and then more and more rarely, up
// to an hour apart.
func NewFunc[T comparable](ctx context.Context, cfg Config, encode func(T) string, decode func(string) (T, error)) (*Queue[T], error) {
	if encode == nil || decode == nil {
		return nil, reconcile.Terminal(errors.New("postgres: NewFunc needs two functions, and one is nil"))
	}
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	return newQueue(ctx, cfg, encode, decode)
}

func newQueue[T comparable](ctx context.Context, cfg Config, encode func(T) string, decode func(string) (T, error)) (*Queue[T], error) {
	in, err := within(cfg.Schema)
	if err != nil {
		return nil, err
	}
	if err := cfg.checkServer(ctx, in); err != nil {
		return nil, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, reconcile.Logger(ctx)).With("queue", cfg.Name)
	q := &Queue[T]{
		cfg: cfg, encode: encode, decode: decode, in: in, maxHold: 60,
		channel: cmp.Or(cfg.Schema, "reconcile") + "." + cfg.Name,
		ended:   make(chan struct{}), drained: make(chan struct{}),
		tasks: reconcile.NewQueue[task](), local: reconcile.NewQueue[string](),
		outbox: make(map[string][]op), held: make(map[string]*holding[T]),
	}
	q.life, q.end = context.WithCancel(context.Background())
	q.group.Logger = cfg.Logger
	q.group.Add("tasks", &reconcile.Reconciler[task]{
		Queue: q.tasks, Reconcile: q.do, Workers: 4, OnResult: q.report,
		Retry:  reconcile.Backoff(50*time.Millisecond, min(2*time.Second, cfg.Lease/8)),
		Logger: slog.New(slog.DiscardHandler),
	})
	go func() {
		_ = q.group.Run(q.life) // No member of it returns an error.
		close(q.ended)
	}()
	return q, nil
}

// Enqueue reports an event: see [reconcile.Queue.Enqueue]. It never blocks, and nor do the
// other verbs: the item goes to an outbox in memory, and from there to the database within
// milliseconds, or when that can be reached again. The outbox is lost if the
// process dies. EnqueueContext returns when the event is stored.
func (q *Queue[T]) Enqueue(item T) { q.ask(item, op{verb: "within"}) }

// EnqueueAfter asks for a run after d and not earlier: see [reconcile.Queue.EnqueueAfter].
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) {
	if d <= 0 {
		q.Enqueue(item)
		return
	}
	q.ask(item, op{verb: "after", due: time.Now().Add(d)})
}

// EnqueueWithin asks for a run after d at the latest: see [reconcile.Queue.EnqueueWithin].
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) {
	q.ask(item, op{verb: "within", due: time.Now().Add(max(0, d))})
}

// EnqueueNow is an Enqueue that no MinDelay delays: see [reconcile.Queue.EnqueueNow].
func (q *Queue[T]) EnqueueNow(item T) { q.ask(item, op{verb: "now"}) }

// Offer enqueues the item if the queue does not know it, or if it waits only for a recheck: see
// [reconcile.Queue.Offer].
func (q *Queue[T]) Offer(item T) { q.ask(item, op{verb: "offer"}) }

func (q *Queue[T]) ask(item T, o op) {
	if _, err := q.post([]T{item}, o, false); err != nil && err != reconcile.ErrClosed {
		q.cfg.Logger.Error("postgres: an item cannot be stored and is ignored", "err", err)
	}
}

// post puts a verb on items into the outbox. If the caller waits, it returns a channel for each
// item that is closed when it is stored.
func (q *Queue[T]) post(items []T, o op, waits bool) (stored []<-chan struct{}, err error) {
	texts, err := q.texts(items)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, reconcile.ErrClosed
	}
	for _, s := range texts {
		if last := q.postLocked(s, o); waits {
			stored = append(stored, last.waiter())
		}
	}
	return stored, nil
}

func (q *Queue[T]) texts(items []T) ([]string, error) {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = q.encode(item)
		if err := checkItem(texts[i]); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// EnqueueContext is Enqueue of items. It returns nil once they are stored. If ctx is done
// first, it returns its cause, and they may still be stored. It returns
// [reconcile.ErrClosed] after Close, and a [reconcile.Terminal] error if an item cannot be
// stored; then none is.
func (q *Queue[T]) EnqueueContext(ctx context.Context, items ...T) error {
	stored, err := q.post(items, op{verb: "within"}, true)
	if err != nil {
		return err
	}
	return q.wait(ctx, stored)
}

// Flush waits until all verbs that were called before are stored, and all items given back
// before. If ctx is done first, it returns its cause.
func (q *Queue[T]) Flush(ctx context.Context) error {
	q.mu.Lock()
	var stored []<-chan struct{}
	for _, ops := range q.outbox {
		stored = append(stored, ops[len(ops)-1].waiter())
	}
	q.mu.Unlock()
	return q.wait(ctx, stored)
}

func (q *Queue[T]) wait(ctx context.Context, stored []<-chan struct{}) error {
	for _, one := range stored {
		select {
		case <-one:
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-q.ended:
		}
		select {
		case <-one: // just before the end
		default:
			return reconcile.ErrClosed
		}
	}
	return nil
}

// EnqueueTx reports events of items in a transaction: each item has its event if and when
// the transaction is committed. It inserts one row an item, and waits for no other
// transaction, in any isolation level. It returns a [reconcile.Terminal] error if an item
// cannot be stored. For the cost of its NOTIFY see [Config.Quiet].
func (q *Queue[T]) EnqueueTx(ctx context.Context, tx pgx.Tx, items ...T) error {
	texts, err := q.texts(items)
	switch {
	case err != nil || len(texts) == 0:
		return err
	case tx == nil:
		return reconcile.Terminal(errors.New("postgres: EnqueueTx needs a transaction, got nil"))
	}
	_, err = tx.Exec(ctx, q.in(sqlEvents), q.cfg.Name, texts, q.channel, q.cfg.Quiet)
	return err
}

// Remove cancels the next run of the item, never a run in flight, and reports whether there
// was one. It waits until the earlier verbs of this process are stored.
func (q *Queue[T]) Remove(ctx context.Context, item T) (removed bool, err error) {
	s := q.encode(item)
	if err := errors.Join(checkItem(s), q.Flush(ctx)); err != nil {
		return false, err
	}
	err = q.cfg.Pool.QueryRow(ctx, q.in(sqlRemove), q.cfg.Name, s).Scan(&removed)
	return removed, err
}

// Dequeue waits for an item and takes it: see [reconcile.Queue.Dequeue]. While the database
// cannot be reached, it waits. After Close it returns [reconcile.ErrClosed].
func (q *Queue[T]) Dequeue(ctx context.Context) (T, error) {
	q.starts.Do(q.startTaking)
	for {
		q.mu.Lock()
		q.waiting++
		q.mu.Unlock()
		if q.local.Len() == 0 {
			q.tasks.Enqueue(exchange)
		}
		s, err := q.local.Dequeue(ctx)
		q.mu.Lock()
		q.waiting--
		if err != nil {
			q.mu.Unlock() // The next exchange gives back the items that no Dequeue waits for.
			var none T
			return none, err
		}
		q.local.Done(s)
		h := q.held[s]
		lost := h == nil || h.Over()
		switch {
		case !lost:
			q.stats.Taken++
			q.took = time.Now()
		case h != nil:
			q.abortLocked(s)
		}
		q.mu.Unlock()
		if !lost {
			return h.item, nil
		}
	}
}

// Done gives the item back and schedules no further run: see [reconcile.Queue.Done]. It
// never blocks.
func (q *Queue[T]) Done(item T) { q.giveBack(item, op{verb: "done"}) }

// Requeue gives the item back, to run again as o says: see [reconcile.Queue.Requeue]. It
// never blocks. Of an error, the first 1000 bytes of the text are kept.
func (q *Queue[T]) Requeue(item T, o reconcile.RequeueOptions) { q.giveBack(item, giveBackOf(o)) }

func (q *Queue[T]) giveBack(item T, o op) {
	s := q.encode(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.held[s]
	if h == nil || h.giving {
		return
	}
	if !o.isDone() {
		q.stats.Requeued++
	}
	q.giveLocked(s, h, o)
}

// giveLocked ends the contexts of a run, and puts its give-back into the outbox. The item is held
// until that is stored: before that, it cannot be taken here again.
func (q *Queue[T]) giveLocked(s string, h *holding[T], o op) {
	o.owner, o.fence, h.giving = h.lease.member, h.fence, true
	h.lose(nil)
	q.postLocked(s, o)
}

// keepLocked gives back the items that were taken and that no Dequeue has, until n are left. As n
// is no less than the Dequeues that wait, or the queue is closed, the Dequeue here does not wait.
func (q *Queue[T]) keepLocked(n int) {
	for q.local.Len() > n {
		s, err := q.local.Dequeue(context.Background())
		if err != nil { // A Dequeue was faster.
			return
		}
		q.local.Done(s)
		q.abortLocked(s)
	}
}

// abortLocked gives back an item whose run did not begin.
func (q *Queue[T]) abortLocked(s string) {
	if h := q.held[s]; h != nil && !h.giving {
		q.giveLocked(s, h, op{verb: "abort"})
	}
}

// Lease returns the context of the item's run. It ends with [reconcile.ErrLeaseLost] as its
// cause when another process may have the item, and is one for [Fence] and [Guard].
func (q *Queue[T]) Lease(ctx context.Context, item T) context.Context {
	s := q.encode(item)
	q.mu.Lock()
	h := q.held[s]
	flies := h != nil && !h.giving
	q.mu.Unlock() // before methods of ctx are called
	if !flies {
		ctx, end := context.WithCancelCause(ctx)
		end(reconcile.ErrLeaseLost)
		return ctx
	}
	leased, _ := held.Context(context.WithValue(ctx, runKey{}, run{q.cfg.Name, s, h.lease.member, h.fence, q.in(sqlGuard)}), h)
	return leased
}

// Close ends the part of this process. Dequeue returns [reconcile.ErrClosed] at once, and
// verbs are ignored. Close waits until the items that are in flight here are given back, and
// until all is stored. If ctx is done first, it returns an error that wraps its cause; other
// processes have the items of this one when its lease is over. Closing twice is allowed.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	q.local.Close()
	q.keepLocked(0)
	q.checkDrainedLocked()
	q.mu.Unlock()
	var err error
	select {
	case <-q.drained:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	q.end()
	<-q.ended
	q.mu.Lock()
	l, stored, flying := q.lease, len(q.outbox), len(q.held)
	q.lease = nil
	q.mu.Unlock()
	leave := new(pgx.Batch)
	if l != nil {
		l.End()
		leave.Queue(q.in(sqlCheck), q.cfg.Name, l.member, []string{}, []int64{}) // items of a lost answer
		leave.Queue(q.in(sqlLeave), l.member)
	}
	if err == nil {
		leave.Queue(q.in(sqlWake), q.cfg.Name, q.channel) // The last notification may have been cut short.
		// If this fails, the lease ends by itself, and others find the items with their next poll.
		_ = q.cfg.Pool.SendBatch(ctx, leave).Close()
	}
	if err != nil {
		err = fmt.Errorf("postgres: queue %s was closed with %d items not stored and %d in flight: %w", q.cfg.Name, stored, flying, err)
	}
	return err
}

// checkDrainedLocked closes drained if the queue is closed and has nothing left to store.
func (q *Queue[T]) checkDrainedLocked() {
	if q.closed && !q.empty && len(q.held) == 0 && len(q.outbox) == 0 {
		q.empty = true
		close(q.drained)
	}
}
