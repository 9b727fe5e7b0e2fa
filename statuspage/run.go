// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reconkernel/reconcile"
)

// A run is what is remembered of one run of an item, as JSON shows it.
type run struct {
	Ended    moment            `json:"ended"`
	Outcome  reconcile.Outcome `json:"outcome"`
	Duration duration          `json:"duration_seconds"`
	Waited   duration          `json:"waited_seconds"`
	Next     duration          `json:"next_seconds,omitzero"` // none, if no run was planned
	Failures int               `json:"failures"`              // in a row, this one included
	Error    string            `json:"error,omitempty"`       // at most maxText bytes, and a few that say that it is cut
}

// A moment is a time in nanoseconds since 1970. It takes a third of the memory of
// a time.Time.
type moment int64

func (m moment) Time() time.Time              { return time.Unix(0, int64(m)) }
func (m moment) MarshalJSON() ([]byte, error) { return m.Time().MarshalJSON() }

var outcomes = [...]reconcile.Outcome{
	reconcile.OutcomeSucceeded, reconcile.OutcomeRequeued, reconcile.OutcomeRetrying, reconcile.OutcomeGaveUp, reconcile.OutcomeTerminal, reconcile.OutcomeAborted,
}

// Failed reports whether the run counts as a failure.
func (r *run) Failed() bool { return r.Outcome.Failed() }

// maxText is how many bytes of an error are kept, and maxWhole how many the page of
// an item shows of one that the queue has still.
const (
	maxText  = 1 << 10
	maxWhole = 64 << 10
)

// stackMark stands between the text of a panic and its stack.
const stackMark = "\n\n"

// An errorFormat is the FormatError of a page; nil means the Error method.
type errorFormat func(error) string

// text returns the text of an error, cut to limit bytes, and for a panic where it was. It
// outlives a panic of the format.
func (format errorFormat) text(err error, limit int) (text string) {
	switch err.(type) {
	case nil, reconcile.RequeueError:
		return "" // the outcome and the delay say it all
	}
	defer func() {
		if p := recover(); p != nil {
			text = "(the Error method of this error panicked)"
			if format != nil {
				text = "(FormatError panicked for this error)"
			}
		}
	}()
	if format != nil {
		text = format(err)
	} else {
		text = err.Error()
	}
	if p, ok := err.(*reconcile.PanicError); ok {
		text += stackMark + string(where(p.Stack))
	}
	return cut(text, limit)
}

// where returns the part of a stack that is of the user's code: below the call
// of panic, and above the loop that called Reconcile.
func where(stack []byte) []byte {
	if _, below, ok := bytes.Cut(stack, []byte("\npanic(")); ok {
		stack = below
		for range 2 { // the rest of that line, and the line with its place
			_, stack, _ = bytes.Cut(stack, []byte("\n"))
		}
	}
	if i := bytes.Index(stack, []byte(".(*worker[...]).reconcile(")); i >= 0 {
		stack = stack[:bytes.LastIndexByte(stack[:i], '\n')+1]
	}
	return bytes.TrimSpace(stack)
}

// IsRecheck reports whether the run ended well and asked for a recheck.
func (r *run) IsRecheck() bool { return r.Outcome == reconcile.OutcomeSucceeded && r.Next != none }

// Headline returns the error without the stack, and without what the queue says
// better: when a planned run comes.
func (r *run) Headline() string {
	text := r.Error
	if r.Failed() || r.Outcome == reconcile.OutcomeAborted {
		text, _, _ = strings.Cut(text, stackMark)
		return text
	}
	for _, planned := range [...]string{"requeue after ", "requeue within ", "recheck within "} {
		if i := strings.LastIndex(text, planned); i >= 0 && !strings.Contains(text[i+len(planned):], " ") {
			text = strings.TrimRight(text[:i], " :")
		}
	}
	return text
}

// cut shortens a text to at most n bytes and says so.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n]) + " … (cut)"
}
