// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package events is a bridge from a Reconciler to client-go's tools/events,
// which writes Kubernetes events: its results become events of their objects, no
// more often than a rate, and the last ones are written before it ends.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
	"github.com/reconkernel/reconcile/adapters/kube/internal/text"
)

// An Event says what happened to an object.
type Event struct {
	Type   string // Normal or Warning; empty means Normal
	Reason string // required: why, in one word, such as Failed
	Action string // what was done, in one word; empty means Reconcile
	Note   string // for people; cut after 1024 bytes
}

// A Recorder writes events about items of type T while a Runner runs, see
// [Recorder.Around]. Those that are alike, which have the same object, type,
// reason and action, are a series: one event of the server, with the note of the
// first and a count. As client-go does it, the server has the first and the
// second at once, and the count after that when the series was quiet for 6
// minutes, or after half an hour.
//
// Client, Controller and Regarding are required; zero is a good default for the
// rest. Set the fields before the first call of a method. Methods may be called
// from many goroutines. One Recorder is around one Runner at a time.
type Recorder[T comparable] struct {
	Client     typedeventsv1.EventsV1Interface // such as kubernetes.Interface.EventsV1()
	Controller string                          // reporting controller, such as example.com/bucket-controller

	// Regarding returns the object of an item, or an error if there is none, and
	// then there is no event. It reads a cache, as it is called by the worker.
	Regarding func(item T) (runtime.Object, error)

	// Event makes an event of a result; ok is false if there is none. Nil means
	// [Failures].
	Event func(reconcile.Result[T]) (e Event, ok bool)

	Scheme *runtime.Scheme // of objects without a kind; nil means that of client-go
	Rate   float64         // writes a second; 0 means 10
	Logger *slog.Logger    // nil means reconcile.Logger(ctx) of Run: that of the Group, or slog.Default() without a Group

	recorder atomic.Pointer[recorder] // nil while nothing runs
}

// A recorder is what records while a Runner runs.
type recorder struct {
	events.EventRecorderLogger
	logger *slog.Logger
}

// Failures is what a Recorder does with a result if it is not told otherwise:
// Warnings for Retrying, GaveUp and TerminalError, with the reasons Failed, GaveUp
// and TerminalError; Panicked for a panic; nothing for the rest. The note is the text of
// the error: whoever may read events of the object reads it.
func Failures[T comparable](r reconcile.Result[T]) (Event, bool) {
	if r.Err == nil || !r.Outcome.Failed() {
		return Event{}, false
	}
	e := Event{Type: corev1.EventTypeWarning, Reason: "Failed", Note: r.Err.Error()}
	switch r.Outcome {
	case reconcile.OutcomeGaveUp:
		e.Reason = "GaveUp"
	case reconcile.OutcomeTerminal:
		e.Reason = "TerminalError"
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
	e, ok := f(result)
	if !ok || r.Regarding == nil { // Around says so
		return
	}
	if obj, err := r.Regarding(result.Item); err == nil {
		r.Record(obj, e)
	}
}

// Record records an event about an object, which may be a
// [corev1.ObjectReference]. It does not block. What is recorded while the
// Recorder is around no Runner is not written; an event that is not valid is
// logged and dropped.
func (r *Recorder[T]) Record(obj runtime.Object, e Event) {
	recorder := r.recorder.Load()
	if recorder == nil {
		return
	}
	ref, err := reference.GetReference(cmp.Or(r.Scheme, scheme.Scheme), obj)
	if err != nil {
		recorder.logger.Error("event dropped", "reason", e.Reason, "err", err)
		return
	}
	of := *ref
	of.ResourceVersion = "" // events of any version of the object are alike
	recorder.Eventf(&of, nil, cmp.Or(e.Type, corev1.EventTypeNormal), e.Reason, cmp.Or(e.Action, "Reconcile"), "%s", text.Cut(e.Note, 1024))
}

// Around returns a Runner that runs runner, and writes what is recorded
// meanwhile. When runner has returned, it writes what is left: until nothing was
// written for 100 ms, and for no more than 2 seconds. A field that is missing or
// wrong is an error.
func (r *Recorder[T]) Around(runner reconcile.Runner) reconcile.Runner {
	return around{r.start, runner}
}

type around struct {
	start  func(context.Context) (stop func(), err error)
	runner reconcile.Runner
}

// Unwrap lets a Group know what runs in here.
func (a around) Unwrap() reconcile.Runner { return a.runner }

// Run does what Around says.
func (a around) Run(ctx context.Context) error {
	if a.runner == nil {
		return reconcile.Terminal(errors.New("events: Around needs a Runner, got nil"))
	}
	stop, err := a.start(ctx)
	if err != nil {
		return reconcile.Terminal(err)
	}
	defer stop()
	return a.runner.Run(ctx)
}

// start has events written until stop is called.
func (r *Recorder[T]) start(ctx context.Context) (stop func(), err error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	logger := cmp.Or(r.Logger, reconcile.Logger(ctx))
	klogger := logr.FromSlogHandler(&discreet{Handler: logger.Handler(), failures: new(rare.Failures)})
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), klogger))
	perSecond := cmp.Or(r.Rate, 10)
	s := &sink{
		EventSinkImpl: events.EventSinkImpl{Interface: r.Client},
		pace:          rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond))),
		logger:        logger,
		wrote:         make(chan struct{}, 1),
	}
	broadcaster := events.NewBroadcaster(s)
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		return nil, err
	}
	r.recorder.Store(&recorder{broadcaster.NewRecorder(cmp.Or(r.Scheme, scheme.Scheme), r.Controller).WithLogger(klogger), logger})
	return func() {
		r.recorder.Store(nil)
		s.flush()
		cancel()
		broadcaster.Shutdown()
	}, nil
}

// discreet is the handler of what client-go logs. The note of an event that was refused
// is for those who may read events of its object, who need not be those who read the
// log: it is left out. The same failure is logged more and more rarely.
type discreet struct {
	slog.Handler
	failures *rare.Failures
}

// Handle logs a record.
func (d *discreet) Handle(ctx context.Context, record slog.Record) error {
	r := slog.NewRecord(record.Time, record.Level, record.Message, record.PC)
	err := errors.New(record.Message)
	record.Attrs(func(a slog.Attr) bool {
		switch v := a.Value.Any().(type) {
		case *eventsv1.Event:
			of := v.Regarding
			a = slog.String(a.Key, fmt.Sprintf("%s %s of %s %s/%s", v.Type, v.Reason, of.Kind, of.Namespace, of.Name))
		case error:
			err = v
		}
		r.AddAttrs(a)
		return true
	})
	if record.Level >= slog.LevelError {
		count, log := d.failures.Add(err)
		if !log {
			return nil
		}
		r.AddAttrs(slog.Int("failures", count))
	}
	return d.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that has attributes.
func (d *discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &discreet{d.Handler.WithAttrs(attrs), d.failures}
}

// WithGroup returns a handler with a group.
func (d *discreet) WithGroup(name string) slog.Handler {
	return &discreet{d.Handler.WithGroup(name), d.failures}
}

// A sink writes events at a rate, and knows whether it is writing.
type sink struct {
	events.EventSinkImpl
	pace   *rate.Limiter
	logger *slog.Logger
	full   atomic.Bool   // said that events are dropped
	n      atomic.Int64  // writes under way
	wrote  chan struct{} // has room for one
}

// Create implements events.EventSink.
func (s *sink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	return s.write(ctx, e, func() (*eventsv1.Event, error) { return s.EventSinkImpl.Create(ctx, e) })
}

// Patch implements events.EventSink.
func (s *sink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	return s.write(ctx, e, func() (*eventsv1.Event, error) { return s.EventSinkImpl.Patch(ctx, e, data) })
}

func (s *sink) write(ctx context.Context, e *eventsv1.Event, do func() (*eventsv1.Event, error)) (*eventsv1.Event, error) {
	s.n.Add(1)
	defer func() {
		s.n.Add(-1)
		select {
		case s.wrote <- struct{}{}:
		default:
		}
	}()
	turn := s.pace.Reserve()
	// Each that waits is a goroutine of client-go.
	if turn.Delay() > time.Minute {
		turn.Cancel()
		if !s.full.Swap(true) {
			s.logger.Warn("events dropped: more than a minute's worth of them wait")
		}
		return e, nil
	}
	select {
	case <-time.After(turn.Delay()):
		return do()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// flush waits until nothing is written. An event takes a few goroutines of
// client-go to come here, and there is no other sign that none is on its way.
func (s *sink) flush() {
	end := time.After(2 * time.Second)
	for {
		select {
		case <-s.wrote:
		case <-time.After(100 * time.Millisecond):
			if s.n.Load() == 0 {
				return
			}
		case <-end:
			s.logger.Warn("events not written: there was no time left", "events", s.n.Load())
			return
		}
	}
}

// longestInstance is how long a reporting instance of an event may be.
const longestInstance = 128

func (r *Recorder[T]) check() error {
	switch {
	case r.Client == nil:
		return errors.New("events: Recorder.Client is required, and nil")
	case r.Regarding == nil:
		return errors.New("events: Recorder.Regarding is required, and nil")
	case r.Rate < 0 || math.IsNaN(r.Rate):
		return fmt.Errorf("events: Recorder.Rate is %v, want 0 (which means 10) or more", r.Rate)
	}
	if wrong := validation.IsQualifiedName(r.Controller); len(wrong) > 0 {
		return fmt.Errorf("events: Recorder.Controller is %q, want a name such as example.com/bucket-controller: %s", r.Controller, strings.Join(wrong, "; "))
	}
	host, _ := os.Hostname() // client-go calls the instance so
	if instance := r.Controller + "-" + host; len(instance) > longestInstance {
		return fmt.Errorf("events: Recorder.Controller is %q: with the name of this host, %s is %d bytes long, and the API server takes %d",
			r.Controller, instance, len(instance), longestInstance)
	}
	return nil
}
