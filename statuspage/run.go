// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"bytes"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reconkernel/reconcile"
)

// A run is what is remembered of one run of an item.
type run struct {
	ended    time.Duration // since the base of its recorder
	duration time.Duration
	waited   time.Duration
	next     time.Duration // to the next run, if one was planned
	err      string        // at most maxText bytes, and a few that say that it is cut
	failures int32         // in a row, this one included
	outcome  outcome
}

// An outcome is a reconcile.Outcome in a byte. The zero outcome is that of an
// item of which no run is remembered.
type outcome uint8

const (
	noOutcome outcome = iota
	succeeded
	requeued
	retrying
	gaveUp
	terminated
	aborted
	outcomes // how many there are
)

var outcomeNames = [outcomes]string{
	"",
	string(reconcile.Succeeded),
	string(reconcile.Requeued),
	string(reconcile.Retrying),
	string(reconcile.GaveUp),
	string(reconcile.Terminated),
	string(reconcile.Aborted),
}

func (o outcome) String() string { return outcomeNames[o] }

// failed reports whether a run with this outcome counts as a failure.
func (o outcome) failed() bool { return o == retrying || o == gaveUp || o == terminated }

func outcomeOf(o reconcile.Outcome) outcome {
	return outcome(max(0, slices.Index(outcomeNames[:], string(o))))
}

// maxText is how many bytes of an error are kept.
const maxText = 1 << 10

// stackMark stands between the text of a panic and its stack.
const stackMark = "\n\n"

// textOf returns the text of an error, cut to a bounded length, and for a panic
// where it was. It outlives a panic of the error's own method.
func textOf(err error) (text string) {
	switch err.(type) {
	case nil, reconcile.RequeueError:
		return "" // the outcome and the delay say it all
	}
	defer func() {
		if p := recover(); p != nil {
			text = "(the Error method of this error panicked)"
		}
	}()
	text = err.Error()
	if p, ok := err.(*reconcile.PanicError); ok {
		text += stackMark + string(where(p.Stack))
	}
	return cut(text, maxText)
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

// plans reports whether the run asked for the next one, or a retry comes.
func (r *run) plans() bool {
	return r.outcome == requeued || r.outcome == retrying || r.outcome == succeeded && r.next > 0
}

// headline returns a text without the stack, and without what the queue says
// better: when a planned run comes.
func headline(text string, o outcome) string {
	if o == requeued || o == succeeded {
		for _, planned := range [...]string{"requeue after ", "requeue within ", "recheck within "} {
			if i := strings.LastIndex(text, planned); i >= 0 && !strings.Contains(text[i+len(planned):], " ") {
				text = strings.TrimRight(text[:i], " :")
			}
		}
		return text
	}
	text, _, _ = strings.Cut(text, stackMark)
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
