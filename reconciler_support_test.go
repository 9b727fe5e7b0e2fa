// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

var (
	errBoom = errors.New("boom")
	errEnd  = errors.New("the test ends")
)

// A running is a Runner in a goroutine of its own. It ends before the test does,
// even if that fails first: the clock of a bubble stands still once the test is over,
// and so would the Run.
type running struct {
	t      *testing.T
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // valid once done is closed
}

func launch(t *testing.T, r reconcile.Runner) *running {
	t.Helper()
	return launchUnder(t.Context(), t, r)
}

func launchUnder(ctx context.Context, t *testing.T, r reconcile.Runner) *running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	run := &running{t: t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = errors.New("Run did not return")
		run.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel(errEnd)
		select {
		case <-run.done:
		case <-time.After(24 * time.Hour):
			t.Error("Run goes on for more than a day after the test")
		}
	})
	return run
}

// wait returns what Run returned. It gives up after a day of the bubble.
func (r *running) wait() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(24 * time.Hour):
		r.t.Fatal("Run goes on for more than a day")
		return nil
	}
}

// end cancels Run's context and expects Run to return nil.
func (r *running) end() {
	r.t.Helper()
	r.cancel(errEnd)
	if err := r.wait(); err != nil {
		r.t.Errorf("Run(ctx) = %v after ctx is done, want nil", err)
	}
}

func (r *running) returned() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// A logBook is a slog.Handler that keeps all it is told.
type logBook struct {
	*logPages
	with []slog.Attr
}

type logPages struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	At      time.Time
	Level   slog.Level
	Message string
	Attrs   map[string]slog.Value
}

func newLogBook() *logBook { return &logBook{logPages: new(logPages)} }

func (b *logBook) logger() *slog.Logger { return slog.New(b) }

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }

func (b *logBook) WithGroup(string) slog.Handler { return b }

func (b *logBook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logBook{b.logPages, append(b.with[:len(b.with):len(b.with)], attrs...)}
}

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	line := logLine{time.Now(), r.Level, r.Message, make(map[string]slog.Value)}
	keep := func(a slog.Attr) bool {
		line.Attrs[a.Key] = a.Value.Resolve()
		return true
	}
	for _, a := range b.with {
		keep(a)
	}
	r.Attrs(keep)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

// from returns the lines of at least that level.
func (b *logBook) from(level slog.Level) []logLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []logLine
	for _, l := range b.lines {
		if l.Level >= level {
			lines = append(lines, l)
		}
	}
	return lines
}

func (b *logBook) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = nil
}

// String is the line without its time, as a person reads it.
func (l logLine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v %s", l.Level, l.Message)
	for k, v := range l.Attrs {
		fmt.Fprintf(&s, " %s=%v", k, v)
	}
	return s.String()
}

// onlyLine returns the one line of at least that level.
func (b *logBook) onlyLine(t *testing.T, level slog.Level) logLine {
	t.Helper()
	lines := b.from(level)
	if len(lines) != 1 {
		t.Fatalf("%d log lines of level %v or more, want 1: %v", len(lines), level, lines)
	}
	return lines[0]
}

// mustSay checks what a log line tells.
func (l logLine) mustSay(t *testing.T, level slog.Level, attrs map[string]string, texts ...string) {
	t.Helper()
	if l.Level != level {
		t.Errorf("log line %q has level %v, want %v", l, l.Level, level)
	}
	for k, want := range attrs {
		if got, ok := l.Attrs[k]; !ok || got.String() != want {
			t.Errorf("log line %q has %s=%v, want %q", l, k, got, want)
		}
	}
	for _, text := range texts {
		if !strings.Contains(l.String(), text) {
			t.Errorf("log line %q does not contain %q", l, text)
		}
	}
}

// setDefaultLogger makes b the default logger until the test ends.
func setDefaultLogger(t *testing.T, b *logBook) {
	old, flags := slog.Default(), log.Flags()
	slog.SetDefault(b.logger())
	t.Cleanup(func() {
		slog.SetDefault(old)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	})
}

// unlogged is a Logger for tests that do not look at the log.
func unlogged() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// A plainQueue hides everything of a Queue but the methods of a Dequeuer, as
// somebody else's Dequeuer does.
type plainQueue[T comparable] struct{ q *reconcile.Queue[T] }

func (p plainQueue[T]) Dequeue(ctx context.Context) (T, error)  { return p.q.Dequeue(ctx) }
func (p plainQueue[T]) Done(item T)                             { p.q.Done(item) }
func (p plainQueue[T]) Requeue(item T, w reconcile.Wait)        { p.q.Requeue(item, w) }
func (p plainQueue[T]) State(item T) (state reconcile.State)    { return p.q.State(item) }
func plainly[T comparable](q *reconcile.Queue[T]) plainQueue[T] { return plainQueue[T]{q} }

// dequeuers are the ways in which a Reconciler meets a Queue.
var dequeuers = []struct {
	name string
	of   func(q *reconcile.Queue[string]) reconcile.Dequeuer[string]
}{
	{"Queue", func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return q }},
	{"Foreign", func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return plainly(q) }},
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

// A journal notes when things happened, in time since it began.
type journal struct {
	mu    sync.Mutex
	begun time.Time
	list  []string
}

func newJournal() *journal { return &journal{begun: time.Now()} }

func (d *journal) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, fmt.Sprintf("%v ", time.Since(d.begun))+fmt.Sprintf(format, args...))
}

func (d *journal) mustBe(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if got := strings.Join(d.list, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("journal:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

// mustHold checks what happened, in any order.
func (d *journal) mustHold(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	slices.Sort(d.list)
	d.mu.Unlock()
	slices.Sort(want)
	d.mustBe(t, want...)
}

func (d *journal) len() int {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.list)
}

// failuresOfUserCode are the ways in which a function can end without returning.
var failuresOfUserCode = map[string]func(){
	"panic":  func() { panic("no disk") },
	"error":  func() { panic(errBoom) },
	"nil":    func() { panic(nil) },
	"Goexit": runtime.Goexit,
}

// panicsHere is found in the stack of what it calls.
func panicsHere(end func()) error {
	end()
	return nil
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
