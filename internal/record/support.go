// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// ErrBoom is the failure of most tests.
var ErrBoom = errors.New("boom")

// ErrEnd is the cause with which a test ends a Run.
var ErrEnd = errors.New("the test ends")

// A Running is a Runner in a goroutine of its own. It ends before the test does,
// even if that fails first: the clock of a bubble stands still once the test is over,
// and so would the Run.
type Running struct {
	t      *testing.T
	Cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// Wait returns what Run returned. It gives up after a day of the bubble.
func (r *Running) Wait() error {
	r.t.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(24 * time.Hour):
		r.t.Fatal("Run goes on for more than a day")
		return nil
	}
}

// End cancels Run's context and expects Run to return nil.
func (r *Running) End() {
	r.t.Helper()
	r.Cancel(ErrEnd)
	if err := r.Wait(); err != nil {
		r.t.Errorf("Run(ctx) = %v after ctx is done, want nil", err)
	}
}

func (r *Running) Returned() bool {
	synctest.Wait()
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func Launch(t *testing.T, r reconcile.Runner) *Running {
	t.Helper()
	return LaunchUnder(t.Context(), t, r)
}

func LaunchUnder(ctx context.Context, t *testing.T, r reconcile.Runner) *Running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	run := &Running{t: t, Cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		run.err = errors.New("no return of Run")
		run.err = r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel(ErrEnd)
		select {
		case <-run.done:
		case <-time.After(24 * time.Hour):
			t.Error("Run goes on for more than a day after the test")
		}
	})
	return run
}

// Failures are the ways in which a function can end without returning.
var Failures = map[string]func(){
	"panic":  func() { panic("no disk") },
	"error":  func() { panic(ErrBoom) },
	"nil":    func() { panic(nil) },
	"Goexit": runtime.Goexit,
	"panic in Goexit": func() {
		defer func() { panic("no disk") }()
		runtime.Goexit()
	},
	"Goexit in panic": func() {
		defer runtime.Goexit()
		panic("no disk")
	},
}

// EachFailure runs f in a bubble for each way in which a call can end without
// returning. Who calls end is found in the stack as panicsHere.
func EachFailure(t *testing.T, f func(t *testing.T, name string, end func())) {
	for name, end := range Failures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, name, func() { panicsHere(end) }) })
		})
	}
}

// panicsHere is found in the stack of what it calls.
func panicsHere(end func()) error {
	end()
	return nil
}

// A Log is a slog.Handler that keeps all it is told.
type Log struct {
	*pages
	with []slog.Attr
}

func (b *Log) Logger() *slog.Logger { return slog.New(b) }

func (b *Log) Enabled(context.Context, slog.Level) bool { return true }

func (b *Log) WithGroup(string) slog.Handler { return b }

func (b *Log) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Log{b.pages, append(b.with[:len(b.with):len(b.with)], attrs...)}
}

func (b *Log) Handle(_ context.Context, r slog.Record) error {
	line := Line{time.Now(), r.Level, r.Message, make(map[string]slog.Value)}
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

// From returns the lines of at least that level.
func (b *Log) From(level slog.Level) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []Line
	for _, l := range b.lines {
		if l.Level >= level {
			lines = append(lines, l)
		}
	}
	return lines
}

func (b *Log) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = nil
}

// OnlyLine returns the one line of at least that level.
func (b *Log) OnlyLine(t *testing.T, level slog.Level) Line {
	t.Helper()
	lines := b.From(level)
	if len(lines) != 1 {
		t.Fatalf("%d log lines of level %v or more, want 1: %v", len(lines), level, lines)
	}
	return lines[0]
}

type pages struct {
	mu    sync.Mutex
	lines []Line
}

type Line struct {
	At      time.Time
	Level   slog.Level
	Message string
	Attrs   map[string]slog.Value
}

// String is the line without its time, as a person reads it.
func (l Line) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v %s", l.Level, l.Message)
	for k, v := range l.Attrs {
		fmt.Fprintf(&s, " %s=%v", k, v)
	}
	return s.String()
}

// MustSay checks what a log line tells.
func (l Line) MustSay(t *testing.T, level slog.Level, attrs map[string]string, texts ...string) {
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

func NewLog() *Log { return &Log{pages: new(pages)} }

// SetDefaultLogger makes b the default logger until the test ends.
func SetDefaultLogger(t *testing.T, b *Log) {
	old, flags := slog.Default(), log.Flags()
	slog.SetDefault(b.Logger())
	t.Cleanup(func() {
		slog.SetDefault(old)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	})
}

// Unlogged is a Logger for tests that do not look at the log.
func Unlogged() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// FailureAs returns a function that fails in the way of Failures with that name.
func FailureAs(name string) func() error {
	return func() error { return panicsHere(Failures[name]) }
}

// IsPanic reports whether err is of a call that FailureAs or EachFailure made.
func IsPanic(err error) bool {
	var p *reconcile.PanicError
	return errors.As(err, &p) && strings.Contains(string(p.Stack), "panicsHere")
}

// A BadTree is an error that ends badly when it is unwrapped, and a BadMessage when it is
// printed.
type (
	BadTree    struct{ End func() }
	BadMessage struct{ End func() }
)

func (BadTree) Error() string      { return "bad" }
func (e BadTree) Unwrap() error    { e.End(); return nil }
func (e BadMessage) Error() string { e.End(); return "" }

// A Text keeps what is written to it, such as a log. It may be used from any goroutine.
type Text struct {
	mu   sync.Mutex
	text strings.Builder
}

func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

var namesTable = regexp.MustCompile(`(?s)(<!-- names -->\n[^\n]*\n[^\n]*\n)(.*?)(<!-- end -->)`)

// WantTable compares the rows of the table of names in README.md, or, with write, writes them.
func WantTable(t *testing.T, write bool, rows []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	table, want := namesTable.FindStringSubmatch(string(text)), strings.Join(rows, "\n")+"\n"
	switch {
	case table == nil || len(rows) == 0:
		t.Fatal("README.md has no table of names, or there are no names")
	case write:
		err = os.WriteFile("README.md", []byte(strings.Replace(string(text), table[0], table[1]+want+table[3], 1)), 0o644)
	case table[2] != want:
		err = fmt.Errorf("README.md has\n%swant (go test -run TestDocs . -write-docs)\n%s", table[2], want)
	}
	if err != nil {
		t.Error(err)
	}
}
