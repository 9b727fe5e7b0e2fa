// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package events writes Kubernetes events about what a Reconciler does.
//
// A [Recorder] is given the results of runs by OnResult, and events by Record.
// Neither blocks. What is alike becomes one event with a count, as the API
// server wants it, and is written no more often than once in a while.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/text"
)

// An Event says what happened to an object.
type Event struct {
	Type   string // Normal or Warning; empty means Normal
	Reason string // required: why, in one word, such as Failed; 128 bytes at most
	Action string // what was done, in one word; empty means Reconcile; 128 bytes at most
	Note   string // for people; cut after 1024 bytes
}

// A Recorder writes events about items of type T. Those that are alike, which
// have the same object, type, reason and action, are a series: one event of the
// server, with the note of the first and a count. A series ends when it was
// quiet for 6 minutes.
//
// The first event of a series is written at once, the count after that no more
// often than once in Interval, and all of it at Rate. Nothing is lost by that
// but the notes and times of those in between. An event that the server refuses
// is logged and dropped; one that it cannot take now is tried again some times.
//
// Client, Controller and Regarding are required; zero is a good default for the
// rest. Set the fields before the first call of a method. Methods may be called
// from many goroutines.
type Recorder[T comparable] struct {
	Client     typedeventsv1.EventsGetter // such as kubernetes.Interface.EventsV1()
	Controller string                     // reporting controller, such as example.com/bucket-controller
	Instance   string                     // reporting instance; empty means the host's name

	// Regarding returns the object of an item; ok is false if there is none to
	// be found, and then there is no event. It reads a cache, as it is called by
	// the worker. kubectl describe shows an event if the reference has the UID.
	Regarding func(item T) (ref corev1.ObjectReference, ok bool)

	// Event makes an event of a result; ok is false if there is none. Nil means
	// [Failures].
	Event func(reconcile.Result[T]) (e Event, ok bool)

	Interval time.Duration // between writes of one series; 0 means a minute
	Rate     float64       // writes a second, of all series together; 0 means 10
	Limit    int           // series held at a time, more are dropped; 0 means 4096
	Logger   *slog.Logger  // nil means slog.Default()

	once   sync.Once
	queue  *reconcile.Queue[seriesKey]
	pace   *rate.Limiter
	mu     sync.Mutex // guards what follows
	series map[seriesKey]*series
	names  int64 // given so far, so that no two events have the same
	full   bool  // said that Limit was reached
}

// A seriesKey is what the events of a series have in common.
type seriesKey struct {
	regarding           corev1.ObjectReference
	typ, reason, action string
}

type series struct {
	name        string // of the event object
	note        string
	first, last time.Time
	count       int32 // events so far
	written     int32 // of these, the server knows
}

const (
	quiet       = 6 * time.Minute // a series that was quiet for so long is over
	flushWithin = 2 * time.Second // how long Run may take to write what is left
)

// Failures is what a Recorder does with a result if it is not told otherwise:
// Warnings for Retrying, GaveUp and Terminated, with the reasons Failed, GaveUp
// and Terminated; Panicked for a panic; nothing for the rest.
func Failures[T comparable](r reconcile.Result[T]) (Event, bool) {
	if r.Err == nil {
		return Event{}, false
	}
	e := Event{Type: corev1.EventTypeWarning, Note: r.Err.Error()}
	switch r.Outcome {
	case reconcile.Retrying:
		e.Reason = "Failed"
	case reconcile.GaveUp:
		e.Reason = "GaveUp"
	case reconcile.Terminated:
		e.Reason = "Terminated"
	default:
		return Event{}, false
	}
	if panicked := (*reconcile.PanicError)(nil); errors.As(r.Err, &panicked) {
		e.Reason = "Panicked"
	}
	return e, true
}

// OnResult records what Event makes of a result: it is for
// [reconcile.Reconciler.OnResult]. It does not block.
func (r *Recorder[T]) OnResult(result reconcile.Result[T]) {
	f := r.Event
	if f == nil {
		f = Failures[T]
	}
	if e, ok := f(result); ok {
		r.Record(result.Item, e)
	}
}

// Record records an event about an item. It does not block, and may be called
// before Run; what is recorded after Run has ended is not written. An event
// without a reason, or of a type that the server does not know, is logged and
// dropped.
func (r *Recorder[T]) Record(item T, e Event) {
	r.init()
	if r.Regarding == nil {
		return // Run says so
	}
	e.Type = cmp.Or(e.Type, corev1.EventTypeNormal)
	e.Action = cmp.Or(e.Action, "Reconcile")
	switch {
	case e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning:
		r.logger().Error("event dropped", "item", item, "reason", e.Reason, "err", fmt.Errorf("events: Event.Type is %q, want Normal or Warning", e.Type))
		return
	case e.Reason == "" || len(e.Reason) > 128 || len(e.Action) > 128:
		r.logger().Error("event dropped", "item", item, "err", fmt.Errorf("events: Event.Reason is %q and Event.Action %q, want 1 to 128 bytes each", e.Reason, e.Action))
		return
	}
	ref, ok := r.Regarding(item)
	if !ok {
		return
	}
	key := seriesKey{ref, e.Type, e.Reason, e.Action}
	if r.add(key, e.Note) {
		r.queue.Enqueue(key)
	}
}

// add counts an event, and reports whether it is to be written.
func (r *Recorder[T]) add(key seriesKey, note string) bool {
	now := time.Now()
	r.mu.Lock()
	s := r.series[key]
	switch {
	case s != nil && now.Sub(s.last) < quiet:
	case s == nil && len(r.series) >= cmp.Or(r.Limit, 4096):
		said := r.full
		r.full = true
		r.mu.Unlock()
		if !said {
			r.logger().Warn("events dropped: too many series", "limit", cmp.Or(r.Limit, 4096))
		}
		return false
	default:
		if r.series == nil {
			r.series = make(map[seriesKey]*series)
		}
		s = &series{name: r.nameLocked(key), note: text.Cut(note, 1024), first: now}
		r.series[key] = s
	}
	s.last = now
	if s.count < math.MaxInt32 {
		s.count++
	}
	r.mu.Unlock()
	return true
}

// Run writes events until ctx is done, and then what is left, for no more than 2
// seconds. A field that is missing or wrong is an error. See [Recorder.Around].
func (r *Recorder[T]) Run(ctx context.Context) error {
	if err := r.check(); err != nil {
		return reconcile.Terminal(err)
	}
	r.init()
	loop := &reconcile.Reconciler[seriesKey]{
		Queue:     r.queue,
		Reconcile: r.write,
		Name:      "events of " + r.Controller,
		Retry:     reconcile.Backoff(time.Second, time.Minute).Limit(10),
		Logger:    r.logger(),
		OnResult: func(result reconcile.Result[seriesKey]) {
			if result.Outcome == reconcile.GaveUp || result.Outcome == reconcile.Terminated {
				r.drop(result.Item)
			}
		},
	}
	err := loop.Run(ctx)
	r.flush(context.WithoutCancel(ctx))
	return err
}

// Around returns a Runner that runs runner, and the Recorder until after runner
// has returned, so that the last events are written too.
func (r *Recorder[T]) Around(runner reconcile.Runner) reconcile.Runner {
	return around{r.Run, r.check, runner}
}

type around struct {
	record reconcile.RunFunc
	check  func() error
	runner reconcile.Runner
}

// Unwrap lets a Group know what runs in here.
func (a around) Unwrap() reconcile.Runner { return a.runner }

// Run does what Around says.
func (a around) Run(ctx context.Context) error {
	if a.runner == nil {
		return reconcile.Terminal(errors.New("events: Around needs a Runner, got nil"))
	}
	if err := a.check(); err != nil {
		return reconcile.Terminal(err)
	}
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	var recorder sync.WaitGroup
	recorder.Go(func() { _ = a.record(recording) }) // its fields are checked, and its queue is never closed
	defer recorder.Wait()
	defer stop()
	return a.runner.Run(ctx)
}

// flush writes what is not yet written.
func (r *Recorder[T]) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	r.mu.Lock()
	var left []seriesKey
	for key, s := range r.series {
		if s.count > s.written {
			left = append(left, key)
		}
	}
	r.mu.Unlock()
	for _, key := range left {
		if ctx.Err() != nil {
			r.logger().Warn("events not written: there was no time left", "err", context.Cause(ctx))
			return
		}
		var planned reconcile.RequeueError
		if err := r.write(ctx, key); err != nil && !errors.As(err, &planned) {
			r.logger().Warn("event not written", "object", key.regarding.Name, "reason", key.reason, "err", err)
		}
	}
}

func (r *Recorder[T]) check() error {
	switch {
	case r.Client == nil:
		return errors.New("events: Recorder.Client is required, and nil")
	case r.Regarding == nil:
		return errors.New("events: Recorder.Regarding is required, and nil")
	case r.Interval < 0:
		return fmt.Errorf("events: Recorder.Interval is %v, want 0 (which means a minute) or more", r.Interval)
	case r.Rate < 0 || math.IsNaN(r.Rate):
		return fmt.Errorf("events: Recorder.Rate is %v, want 0 (which means 10) or more", r.Rate)
	case r.Limit < 0:
		return fmt.Errorf("events: Recorder.Limit is %d, want 0 (which means 4096) or more", r.Limit)
	case len(r.Instance) > 128:
		return fmt.Errorf("events: Recorder.Instance is %q, want 128 bytes at most", r.Instance)
	}
	if wrong := validation.IsQualifiedName(r.Controller); len(wrong) > 0 {
		return fmt.Errorf("events: Recorder.Controller is %q, want a name such as example.com/bucket-controller: %s", r.Controller, strings.Join(wrong, "; "))
	}
	return nil
}

func (r *Recorder[T]) init() {
	r.once.Do(func() {
		r.queue = reconcile.NewQueue[seriesKey]()
		perSecond := cmp.Or(r.Rate, 10)
		r.pace = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
	})
}

func (r *Recorder[T]) logger() *slog.Logger { return cmp.Or(r.Logger, slog.Default()) }
