// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
)

// The scheme
//
// Each item that the queue knows has one message in one stream, its record:
// whether it is in flight and with whom, its next run, its failures. The stream
// keeps one message a subject, so a new record replaces the old one.
//
//	NAME.i.ITEM    the record of an item; each subject has $KV.queue= in front, see root
//	NAME.m.MEMBER  a process that takes items; it writes this anew all the time
//	NAME.r, NAME.p see room.go
//	NAME.w         see witness
//
// A record is written only over the one that its writer has seen: the publish
// carries the sequence of that message as Nats-Expected-Last-Subject-Sequence.
// So what happens to one item happens in one order, that of the stream, and each
// step is a function of the record before it: see rules.go. All that is
// guaranteed about one item follows from that alone, whatever is delivered, twice
// or never. The rest is about who looks at a record when:
//
//   - One durable consumer, which all processes share, hands each new record to
//     one of them, in the order of the stream. A ready one is claimed, by writing
//     the record of a run over it. One that waits is given a local timer. One in
//     flight is ignored, unless its owner is gone.
//   - A member that writes nothing for the time of the lease is declared gone, by
//     a message over its last one, so that it cannot come back. It stops its runs
//     before that by its own clock.
//   - The oldest member is the janitor: it declares members gone, and then reads
//     all records once, and once more after the time of a lease: runs of members
//     that are gone are made ready, and what waits gets a timer.
//   - Each other member minds the oldest. If that one is gone, it does for once what
//     a janitor does: so work goes on though the oldest die one after the other.
//
// Clocks are compared only where the contract is about times of day: when a
// waiting item is due. Leases are measured by the clocks of one process each.

// A Queue is a queue of items that many processes share, kept by NATS
// JetStream. It is a [reconcile.Enqueuer], a [reconcile.Dequeuer] and a
// [reconcile.Leaser], so that a [reconcile.Reconciler] over it needs no change;
// its methods mean what those of [reconcile.Queue] mean. One item is in flight
// in one process at a time. An event that was stored is followed by a run that
// started after it.
//
// Enqueue and its kin, Done and Requeue never block: they hand over to an
// outbox, one slot for each item, that stores what it is given, and tries again
// until that succeeds. [Queue.EnqueueContext] waits for that. [Queue.Close] must
// be called before the process ends, or what the outbox holds is lost.
//
// Where it differs from [reconcile.Queue]: Close ends this process's part, and
// nobody else's. State asks the server and may wait for it; the Err of a failure
// is its text. An item handed to a Dequeue that ended goes to the tail. Those
// waiting for a time are due by the clocks of several machines.
//
// Make one with [New]. All methods may be called from any goroutine.
type Queue[T comparable] struct {
	cfg     Config
	wire    wire
	codec   codec[T]
	timeout time.Duration // of one request

	life     context.Context // of all goroutines; Close ends it, and fail
	end      context.CancelFunc
	running  sync.WaitGroup
	prefix   string        // of the names of this queue's writes
	writes   atomic.Uint64 // how many there were
	attempts atomic.Uint64 // to store something that failed

	// mu guards the fields below. These always hold:
	//
	//   - An item is in line just if its slot has a batch and is neither busy nor
	//     parked.
	//   - There are maxSenders senders, or one for each item in line.
	//   - An item has a holding from its claim to the end of its give-back.
	//   - Once closed, no Dequeue waits.
	//
	// Names that end in Locked are called with it held.
	mu         sync.Mutex
	closed     bool
	failed     error         // why nothing can go on; life has ended then
	empty      chan struct{} // closed when closed and nothing is held or to be stored
	outbox     outbox[T]
	room       room[T]
	held       map[T]*holding
	giving     int // give-backs that are to be stored
	waiters    []*waiter[T]
	intake     intake[T]
	member     member
	joining    string    // the id that member is to have while it has none
	tries      time.Time // since when it tries to join with that
	trouble    error     // why the lease could not be renewed the last time
	others     others
	timers     timers[T]
	counted    Stats           // what happened, not what is
	unreadable map[string]bool // subjects of messages that were logged as such; at most maxUnreadable
	denied     error           // what the server allows nobody to store here, until something is stored
	nowDenied  chan struct{}   // closed when denied is set
	unstored   alarm           // nothing can be stored
	missing    alarm           // the stream is deleted
	unseen     alarm           // the janitor cannot check all records
	settings   alarm           // the stream or its consumer has other settings
}

// New returns a queue of items that are strings, integers or booleans, or
// structs or arrays of them; see [NewFunc] for others. It creates the
// stream and the consumer if they are missing, and otherwise checks that they
// are as a queue needs them: those of another purpose, another number of
// replicas, items of another shape (other fields, or other kinds of them), another
// version of what processes write, a permission that is missing, and a server that
// is too old are errors. It stores a reserve for a full
// store, if there is none; that it cannot is no error. It blocks until the connection
// is there and the server has answered, or ctx is done, 15 s at most if ctx has no
// deadline, and starts nothing. The error of a wrong argument is [reconcile.Terminal].
// Many processes may call it at once.
func New[T comparable](ctx context.Context, js jetstream.JetStream, cfg Config) (*Queue[T], error) {
	c, err := newCodec[T]()
	if err != nil {
		return nil, reconcile.Terminal(err)
	}
	return newQueue(ctx, js, cfg, c)
}

// NewFunc is [New] for items of any type. Encode must return equal
// strings for equal items and unequal strings for others, and decode must undo
// it: what it returns is equal to the item by ==, so it is no new pointer, and no
// struct that has one. Both are called from several goroutines at once, each time that
// an item is enqueued or taken, may call methods of the queue, and have to return soon.
// A panic in one of them, an error of decode, and an item that decode does not return
// anew are errors of [Queue.EnqueueContext] and [Queue.Remove]; the other verbs log
// them, and ignore the item. A record for which that happens, or that encode does not
// make of the item that decode makes of it, is left alone, and that is logged.
func NewFunc[T comparable](ctx context.Context, js jetstream.JetStream, cfg Config,
	encode func(T) string, decode func(string) (T, error),
) (*Queue[T], error) {
	if encode == nil || decode == nil {
		return nil, reconcile.Terminal(errors.New("natsadapter: queue.NewFunc needs both functions, and one is nil"))
	}
	return newQueue(ctx, js, cfg, funcCodec(encode, decode))
}

func newQueue[T comparable](ctx context.Context, js jetstream.JetStream, cfg Config, c codec[T]) (*Queue[T], error) {
	cfg, err := cfg.check(ctx)
	if err != nil {
		return nil, reconcile.Terminal(err)
	}
	if js == nil {
		return nil, reconcile.Terminal(errors.New("natsadapter: the JetStream of a Queue is required, and nil"))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, slowAnswer)
		defer cancel()
	}
	stream, err := setUp(ctx, js, cfg, c.shape)
	if err != nil {
		return nil, err
	}
	timeout := min(2*time.Second, cfg.Lease/4)
	q := openQueue(cfg, newWire(js, stream, cfg, timeout), c, timeout)
	if err := q.keepReserve(ctx); err != nil {
		q.cfg.Logger.Debug("no reserve", "queue", cfg.Name, "err", err) // a later attempt may make it
	}
	return q, nil
}

// openQueue returns the queue of a stream that is there.
func openQueue[T comparable](cfg Config, w wire, c codec[T], timeout time.Duration) *Queue[T] {
	q := &Queue[T]{
		cfg:        cfg,
		wire:       w,
		codec:      c,
		timeout:    timeout,
		prefix:     newID(),
		empty:      make(chan struct{}),
		nowDenied:  make(chan struct{}),
		held:       make(map[T]*holding),
		unreadable: make(map[string]bool),
	}
	q.life, q.end = context.WithCancel(context.Background())
	q.outbox.slots = make(map[T]*slot)
	q.intake.claims = make(map[T]claim)
	q.others = others{
		born: time.Now(), members: make(map[string]*seenMember), dead: make(map[string]time.Time), soon: make(chan struct{}, 1),
	}
	q.timers.init()
	return q
}

// Enqueue reports that something happened to the item: see
// [reconcile.Queue.Enqueue]. It never blocks.
func (q *Queue[T]) Enqueue(item T) { q.tell(item, verbEnqueue, 0) }

// EnqueueAfter asks for a run in d, and not before: see
// [reconcile.Queue.EnqueueAfter]. It never blocks.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) { q.tell(item, verbAfter, d) }

// EnqueueWithin asks for a run in d at the latest: see
// [reconcile.Queue.EnqueueWithin]. It never blocks.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) { q.tell(item, verbWithin, d) }

// EnqueueNow is an Enqueue that overrides a hold: see
// [reconcile.Queue.EnqueueNow]. It never blocks.
func (q *Queue[T]) EnqueueNow(item T) { q.tell(item, verbNow, 0) }

// Offer reports that the item was seen, and is ignored if a run of it is due or
// planned anyway: see [reconcile.Queue.Offer]. It never blocks.
func (q *Queue[T]) Offer(item T) { q.tell(item, verbOffer, 0) }

// tell is add for those who are not told of an error.
func (q *Queue[T]) tell(item T, v verb, d time.Duration) {
	if _, err := q.add(item, v, d); err != nil && err != reconcile.ErrClosed {
		q.cfg.Logger.Error("an item is ignored", "queue", q.cfg.Name, "err", err)
	}
}

func (q *Queue[T]) add(item T, v verb, d time.Duration) (*batch, error) {
	tokens, err := q.codec.encode(item)
	if err != nil {
		return nil, err
	}
	o := newVerb(v, d)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, reconcile.ErrClosed
	}
	if most := q.wire.largest() - recordRoom; len(tokens) > maxTokens && len(tokens) > most {
		q.counted.Refused++
		return nil, fmt.Errorf("natsadapter: item %s is %d bytes long, and the server takes messages of %d: %w",
			brief(item), len(tokens), q.wire.largest(), nats.ErrMaxPayload)
	}
	return q.postLocked(item, tokens, o, nil), nil
}

// newVerb returns the op of a verb. A delay that is over is none.
func newVerb(v verb, d time.Duration) op {
	now := time.Now().UnixNano()
	if d <= 0 && (v == verbAfter || v == verbWithin) {
		v = verbEnqueue
	}
	return op{verb: v, at: now, due: after(now, d)}
}

// EnqueueContext is Enqueue that waits: it returns nil once the event is stored.
// If ctx is done before, it returns the cause, and the event may still be
// stored. For an item that is too long for a message of the server, which other
// verbs log and ignore, it returns at once an error that wraps
// [nats.ErrMaxPayload]. So it does with [nats.ErrPermissionViolation] while the
// server allows nobody to store something here; the outbox tries on. On a closed queue it
// returns [reconcile.ErrClosed], and once the connection is closed for good
// [nats.ErrConnectionClosed], wrapped; so do Remove and Flush.
func (q *Queue[T]) EnqueueContext(ctx context.Context, item T) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b, err := q.add(item, verbEnqueue, 0)
	if err != nil {
		return err
	}
	return q.await(ctx, b)
}

// await waits for a batch to be stored.
func (q *Queue[T]) await(ctx context.Context, b *batch) error {
	q.mu.Lock()
	denied := q.nowDenied
	q.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-denied:
	case <-q.life.Done():
	}
	select {
	case <-b.done:
		return b.err
	default:
	}
	q.mu.Lock()
	err := cmp.Or(q.failed, q.denied)
	if err == nil && q.life.Err() != nil {
		err = reconcile.ErrClosed
	}
	q.mu.Unlock()
	if err == nil { // what was denied is stored since
		return q.await(ctx, b)
	}
	return err
}

// Remove cancels the item's next run, never a run in flight, and reports
// whether there was one. If the process of a run in flight is gone, known or not
// known yet, the item is not run again for that. It waits until that is stored, or ctx
// is done. Unlike the other verbs it works after Close has begun, until all is stored.
func (q *Queue[T]) Remove(ctx context.Context, item T) (bool, error) {
	tokens, err := q.codec.encode(item)
	if err != nil {
		return false, err
	}
	found := false
	q.mu.Lock()
	select {
	case <-q.empty: // Close waits for nothing more
		q.mu.Unlock()
		return false, reconcile.ErrClosed
	default:
	}
	b := q.postLocked(item, tokens, op{verb: verbRemove, at: time.Now().UnixNano()}, func(before record) {
		_, dead := q.others.dead[before.owner]
		found = before.next != nextNone || dead && !before.removed
	})
	q.mu.Unlock()
	err = q.await(ctx, b)
	return err == nil && found, err
}

// Flush waits until all that was handed to the outbox before the call is
// stored. If ctx is done before, it returns the cause; if the server refused
// something for good, as it is too long, it returns that error when the rest is
// stored.
func (q *Queue[T]) Flush(ctx context.Context) error {
	q.mu.Lock()
	var batches []*batch
	for _, s := range q.outbox.slots {
		if s.busy != nil {
			batches = append(batches, s.busy)
		}
		if s.batch != nil {
			batches = append(batches, s.batch)
		}
	}
	q.mu.Unlock()
	var refused error
	for _, b := range batches {
		err := q.await(ctx, b)
		if err != nil && !tooLong(err) {
			return err
		}
		refused = cmp.Or(refused, err)
	}
	return refused
}

// subject returns the subject of an item's record.
func (q *Queue[T]) subject(tokens string) string { return q.cfg.Name + ".i." + shorten(tokens) }

// newWrite names a write.
func (q *Queue[T]) newWrite() string {
	return q.prefix + "-" + strconv.FormatUint(q.writes.Add(1), 36)
}

var _ interface {
	reconcile.Enqueuer[string]
	reconcile.Dequeuer[string]
	reconcile.Leaser[string]
} = (*Queue[string])(nil)

// Close ends this process's part in the queue. At once its verbs are ignored,
// and Dequeue returns [reconcile.ErrClosed]; so a [reconcile.Reconciler] ends
// when its runs have. Close then waits until the items in flight here are given
// back and all is stored, lets the others know that this process is gone, and
// returns nil. When ctx is done before, or the connection is closed for good, it
// stops waiting, ends the contexts of the runs, and returns an error that says
// how many items are not stored, and names some. If runs go on then, the lease
// ends by itself and not at once, so that nobody else starts their items before.
// What other processes do, and what is ready or waiting, goes on. Closing again
// waits again.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.endWaitersLocked()
	}
	q.checkEmptyLocked()
	unsubscribe := q.intake.unsubscribe
	q.mu.Unlock()
	if unsubscribe != nil {
		unsubscribe()
	}

	var cause error
	select {
	case <-q.empty:
	case <-q.life.Done():
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	return q.finish(cause)
}

// finish ends all goroutines and says what was not stored.
func (q *Queue[T]) finish(cause error) error {
	q.mu.Lock()
	var left []string
	for item := range q.outbox.slots {
		left = append(left, brief(item))
	}
	runs := 0
	for _, h := range q.held {
		if !h.giving {
			runs++
		}
		h.lose()
	}
	q.end()
	cause = cmp.Or(cause, q.failed, reconcile.ErrClosed)
	q.mu.Unlock()
	q.running.Wait()
	if runs == 0 {
		q.leave()
	} // else the items are ours until the lease ends by itself
	if len(left) == 0 && runs == 0 {
		return nil
	}
	const some = 10
	return fmt.Errorf("natsadapter: queue %s closed with %d items not stored %v and %d runs in flight: %w",
		q.cfg.Name, len(left), left[:min(some, len(left))], runs, cause)
}

func (q *Queue[T]) checkEmptyLocked() {
	if q.closed && len(q.outbox.slots) == 0 && len(q.held) == 0 && q.intake.claiming == 0 {
		select {
		case <-q.empty:
		default:
			close(q.empty)
		}
	}
}

// fail ends all that waits with an error: the connection is closed for good.
// What the outbox holds stays there, for Close to name.
func (q *Queue[T]) fail(err error) {
	q.mu.Lock()
	first := q.failed == nil
	if first {
		q.failed = err
		q.end()
		q.endWaitersLocked()
	}
	q.mu.Unlock()
	if first {
		q.cfg.Logger.Error("the queue cannot store items any more", "queue", q.cfg.Name, "err", err)
	}
}
