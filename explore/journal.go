// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// This file keeps the journal of a plan, to which what a plan logs belongs too.

// An entry is a line of the journal. It is formatted only if the journal is printed.
type entry struct {
	at    time.Duration
	turn  int // of the play
	noted bool
	what  any
	err   error
	fault Fault
}

func (e entry) String() string {
	text := fmt.Sprintf("%v %v%s", e.at.Truncate(time.Microsecond), e.what, suffix(e.err))
	if e.fault != "" {
		text += mark + string(e.fault)
	}
	return text
}

// suffix is what follows a call in the journal.
func suffix(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(": ", err) // fmt survives an Error method that panics, as that of a nil pointer may
}

// lines formats the journal. What was noted at one instant of one turn has no order,
// as several goroutines may have done so, and is sorted.
func lines(journal []entry) []string {
	all := make([]string, len(journal))
	from := 0 // of what may be sorted
	for i, e := range journal {
		all[i] = e.String()
		if i > 0 && (journal[i-1].at != e.at || journal[i-1].turn != e.turn || journal[i-1].noted != e.noted) {
			from = i
		}
		if e.noted {
			slices.Sort(all[from : i+1])
		}
	}
	return all
}

func (p *play) lineLocked(what string) {
	p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, what: what})
}

// note notes a line of a process, or of Steps if that is nil.
func (p *play) note(proc *Process, what any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.overLocked(proc) {
		p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, noted: proc != nil, what: what})
	}
}

// differs tells where two journals that were to be the same part.
func differs(first, second []string) string {
	i := 0
	for i < min(len(first), len(second)) && first[i] == second[i] {
		i++
	}
	at := func(lines []string) string {
		if i < len(lines) {
			return lines[i]
		}
		return "nothing more"
	}
	if i == len(first) && i == len(second) {
		return "both have the same journal"
	}
	return fmt.Sprintf("it parts after %d lines:\n- %s  (when it failed)\n+ %s  (when it was played again)", i, at(first), at(second))
}

// A sink writes lines of a logger to a journal.
type sink func(text string)

// Write implements io.Writer. It replaces the addresses and numbers of a stack, which
// differ each time.
func (s sink) Write(text []byte) (int, error) {
	line := strings.TrimSuffix(string(text), "\n")
	if strings.Contains(line, "goroutine ") {
		line = ofThisRun.ReplaceAllString(line, "$1$2*")
	}
	s("log: " + line)
	return len(text), nil
}

// ofThisRun matches the addresses and numbers of a stack.
var ofThisRun = regexp.MustCompile(`(0x)[0-9a-f]+|(goroutine |synctest bubble )\d+`)

// diversion is what the default loggers were before the first of several explorers at
// a time.
var diversion struct {
	mu        sync.Mutex // guards the fields below
	explorers int
	slog      *slog.Logger
	writer    io.Writer
	flags     int
}

// bubbles has the *play of each bubble, by its name.
var bubbles sync.Map

// divert lets what plans log by the default loggers of log and log/slog go to their journals,
// until the function that it returns is called. What others log goes where it went.
func divert() (back func()) {
	d := &diversion
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.explorers++; d.explorers == 1 {
		d.slog, d.writer, d.flags = slog.Default(), log.Writer(), log.Flags()
		text := slog.NewTextHandler(logSink, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: withoutTime})
		slog.SetDefault(slog.New(diverted{d.slog.Handler(), text})) // also sets the output and the flags of log
		log.SetOutput(divertedWriter{d.writer})
		log.SetFlags(d.flags)
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.explorers--; d.explorers == 0 {
			slog.SetDefault(d.slog)
			log.SetOutput(d.writer)
			log.SetFlags(d.flags)
		}
	}
}

// loggingPlay returns the play to which the calling goroutine belongs, or nil.
func loggingPlay() *play {
	p, _ := bubbles.Load(bubbleName())
	found, _ := p.(*play)
	return found
}

// A divertedWriter is the output of the default logger of log.
type divertedWriter struct {
	other io.Writer
}

func (w divertedWriter) Write(text []byte) (int, error) {
	p := loggingPlay()
	if p == nil {
		return w.other.Write(text)
	}
	n, err := sink(p.noteFromLog).Write(logTime.ReplaceAll(text, nil))
	if fatal := fatalCaller(); fatal != "" {
		p.exit(fatal)
		runtime.Goexit() // in place of os.Exit, which would end the test
	}
	return n, err
}

// logTime is what the default logger of log begins a line with; the journal has the time.
var logTime = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(\.\d+)? `)

// fatalCaller returns the name of the function of package log that is going to end the
// process, if there is one on the stack.
func fatalCaller() string {
	var pcs [8]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if strings.HasPrefix(frame.Function, "log.") && strings.Contains(frame.Function, "Fatal") {
			return frame.Function
		}
	}
	return ""
}

// Exit takes the place of [os.Exit] in a library that ends the process by a hook, such as
// klog.OsExit or the ExitFunc of logrus. In a plan it ends the calling goroutine and the
// process of the plan, as log.Fatal does. Elsewhere it is os.Exit. It never returns.
func Exit(code int) {
	p := loggingPlay()
	if p == nil {
		os.Exit(code)
	}
	p.exit(fmt.Sprintf("Exit(%d)", code))
	runtime.Goexit()
}

// exit ends the process that called log.Fatal, as a supervisor sees it. If that has died,
// nothing happens. Without faults, or if nobody knows which process it was, the plan fails.
func (p *play) exit(by string) {
	own, creator := goroutines(make([]byte, 1<<16))
	p.mu.Lock()
	proc := cmp.Or(p.processes[own], p.processes[creator])
	if proc == nil && len(p.slots) == 1 {
		proc = p.slots[0].process
	}
	over := p.finishing || proc != nil && p.overLocked(proc)
	fails := proc == nil || p.clean == nil
	if !over && !fails {
		p.lineLocked("the process ends by " + by + proc.name)
	}
	p.mu.Unlock()
	switch {
	case over:
	case fails:
		p.failf("the controller called %s, which ends the process", by)
	default:
		p.kill(proc)
	}
	p.exited.Store(true)
}

var goroutinePattern = regexp.MustCompile(`(?:^| in )goroutine (\d+)`)

// goroutines returns the names of the calling goroutine, and of the one that created it, if
// its stack goes into text.
func goroutines(text []byte) (own, creator string) {
	all := goroutinePattern.FindAllSubmatch(text[:runtime.Stack(text, false)], -1)
	return string(all[0][1]), string(all[len(all)-1][1])
}

// diverted is the handler of the default logger of log/slog: text is that of plans.
type diverted struct{ other, text slog.Handler }

// logSink writes to the journal of the plan to which the calling goroutine belongs.
var logSink = sink(func(text string) {
	if p := loggingPlay(); p != nil {
		p.noteFromLog(text)
	}
})

func (h diverted) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.other.Enabled(ctx, level)
}

func (h diverted) Handle(ctx context.Context, r slog.Record) error {
	switch {
	case loggingPlay() != nil:
		return h.text.Handle(ctx, r)
	case h.other.Enabled(ctx, r.Level):
		return h.other.Handle(ctx, r)
	}
	return nil
}

func (h diverted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return diverted{h.other.WithAttrs(attrs), h.text.WithAttrs(attrs)}
}

func (h diverted) WithGroup(name string) slog.Handler {
	return diverted{h.other.WithGroup(name), h.text.WithGroup(name)}
}

// withoutTime leaves out the time of a record, which the journal has.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// noteFromLog notes a line that a process of the bubble logged, even one that has died.
func (p *play) noteFromLog(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.finishing {
		p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, noted: true, what: text})
	}
}

// indent puts lines into the text of a failure.
func indent(lines []string) string {
	if len(lines) == 0 {
		return "\tnothing\n"
	}
	return "\t" + strings.Join(lines, "\n\t") + "\n"
}
