// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// A twin is a record and the kernel's model of the same item.
type twin struct {
	record record
	model  model.Queue[string]
	start  int64
	fence  uint64
}

func newTwin() *twin {
	return &twin{start: time.Date(2000, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano()}
}

func (w *twin) now() int64 { return w.start + int64(w.model.Now()) }

// op returns the op of an operation of the model.
func (w *twin) op(o model.Op[string]) op {
	verbs := map[model.Verb]verb{
		model.Offer: verbOffer, model.Enqueue: verbEnqueue, model.EnqueueAfter: verbAfter,
		model.EnqueueWithin: verbWithin, model.EnqueueNow: verbNow, model.Remove: verbRemove,
		model.Done: verbDone, model.Requeue: verbRequeue,
	}
	v := verbs[o.Verb]
	if o.Options.Delay <= 0 && (v == verbAfter || v == verbWithin) {
		v = verbEnqueue
	}
	p := op{verb: v, at: w.now(), due: after(w.now(), o.Options.Delay)}
	if v == verbRequeue {
		p = newRequeue(reconcile.RequeueOptions(o.Options), w.now())
	}
	p.owner, p.fence = "me", w.fence
	return p
}

func (w *twin) do(o model.Op[string]) {
	switch o.Verb {
	case model.Advance:
		w.model.Advance(o.Options.Delay)
		p := op{verb: verbDue, at: w.now()}
		w.record = w.record.apply(&p)
		return
	case model.Dequeue:
		if _, a := w.model.TryDequeue(); a == model.Taken {
			if !w.record.ready() {
				w.record = record{owner: "not ready, though the model hands it out"}
				return
			}
			w.fence++
			w.record = w.record.apply(&op{verb: verbClaim, owner: "me", at: w.now()})
			w.record.fence = w.fence
		}
		return
	}
	p := w.op(o)
	w.record = w.record.apply(&p)
	a := model.Attended[string]{Queue: w.model}
	a.Do(o)
	w.model = a.Queue
}

// differ says how the two differ.
func (w *twin) differ() string {
	got := w.record.promoteDue(w.now())
	e, known := w.model.Entry("x")
	if !known {
		if w.record != (record{}) {
			return fmt.Sprintf("record %+v of an item that the model does not know", w.record)
		}
		return ""
	}
	want := record{
		removed: got.removed, // tells of a process that dies, of which the model knows nothing
		running: e.InFlight, failures: e.Failures, since: w.start + int64(e.Since),
	}
	switch n := e.Next; {
	case !n.Exists:
	case n.Ready(w.model.Now()):
		want.next = nextReady
		if n.Now {
			want.next = nextNow
		}
	default:
		want.next, want.due = nextLater, w.start+int64(n.Due)
		if n.Recheck {
			want.next = nextRecheck
		}
		if n.NotBefore > w.model.Now() {
			want.notBefore = w.start + int64(n.NotBefore)
		}
	}
	if e.Err != nil {
		want.err = e.Err.Error()
	}
	if !e.Next.Recheck {
		want.pending = w.start + int64(e.Pending)
	}
	if got.notBefore <= w.now() {
		got.notBefore = 0
	}
	if want.running {
		want.owner, want.fence = "me", w.fence
	}
	if got != want {
		return fmt.Sprintf("record %+v, want %+v", got, want)
	}
	return ""
}

func randomOp(r *rand.Rand) model.Op[string] {
	o := model.Op[string]{Verb: model.Verb(r.IntN(int(model.Dequeue) + 1)), Item: "x"}
	if r.IntN(6) == 0 {
		o.Verb = model.Advance
	}
	o.Options.Delay = time.Duration(r.IntN(5)-1) * time.Hour
	if o.Verb == model.Advance {
		o.Options.Delay = time.Duration(r.IntN(150)) * time.Minute
	}
	if r.IntN(2) == 0 {
		o.Options.MinDelay = []time.Duration{o.Options.Delay, time.Second, 2 * time.Hour}[r.IntN(3)]
	}
	if o.Verb == model.Requeue {
		o.Options.Recheck = r.IntN(2) == 0
		switch r.IntN(4) {
		case 0:
			o.Options.Err = errors.New("oops")
		case 1:
			o.Options.Aborted = true
		case 2:
			o.Options.Reason = errors.New("it is being made")
		}
		o.Options.Done = r.IntN(6) == 0
	}
	return o
}

// TestRulesTable runs the kernel's state table on a record, but for the cells
// about Close, which ends a part of a queue and no item.
func TestRulesTable(t *testing.T) {
	cells := 0
	for _, c := range model.Cells() {
		if c.Closed || c.Op.Verb == model.Close {
			continue
		}
		cells++
		t.Run(c.Name(), func(t *testing.T) {
			w := newTwin()
			for _, o := range c.Setup {
				w.do(o)
			}
			// This queue has no Background, and what is offered is ready.
			if got, want := w.describe(), strings.ReplaceAll(c.Entry, "background", "ready"); got != want {
				t.Fatalf("set up by %v: %q, want %q", c.Setup, got, want)
			}
			w.do(c.Op)
			if got, want := w.describe(), strings.ReplaceAll(c.Want, "background", "ready"); got != want {
				t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, want)
			}
		})
	}
	if cells == 0 {
		t.Error("no table")
	}
}

// describe says how the record stands, in the words of the table.
func (w *twin) describe() string {
	r := w.record
	s := nextName(&r)
	if r.next.later() {
		s = model.Words(time.Duration(r.due-w.now()), time.Duration(r.notBefore-w.now()), r.next == nextRecheck)
	}
	switch {
	case r == record{}:
		return "none"
	case !r.running:
		return s
	case s == "":
		return "in flight"
	}
	return "in flight, " + s + " next"
}

func TestRulesFollowTheModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		w := newTwin()
		var ops []model.Op[string]
		for range 30 {
			o := randomOp(r)
			ops = append(ops, o)
			w.do(o)
			if d := w.differ(); d != "" {
				t.Fatalf("after %v: %s", ops, d)
			}
		}
	}
}

// Ops that gather in the outbox do the same, folded or not, to any record.
func TestFoldedOpsHaveTheSameEffect(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	folds := 0
	for range 20000 {
		w := newTwin()
		for range r.IntN(6) {
			w.do(randomOp(r))
		}
		want := w.record
		var all, list []op
		for range 1 + r.IntN(6) {
			o := randomOp(r)
			if o.Verb == model.Advance || o.Verb == model.Dequeue {
				continue
			}
			p := w.op(o)
			all = append(all, p)
			want = want.apply(&p)
			var folded bool
			list, folded = fold(list, p)
			if folded {
				folds++
			}
		}
		got := w.record
		for i := range list {
			got = got.apply(&list[i])
		}
		if got != want {
			t.Fatalf("%+v of %+v, folded to %+v: %+v, want %+v", all, w.record, list, got, want)
		}
	}
	if folds == 0 {
		t.Error("nothing was folded")
	}
}

func TestRecordsAreReadAsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		w := newTwin()
		for range r.IntN(12) {
			w.do(randomOp(r))
		}
		data := encodeRecord(&w.record, "x", "w")
		got, m, err := decodeRecord(stored{"q.i.x", 7, data})
		if err != nil || got != w.record || m.Write != "w" {
			t.Fatalf("%s: %+v, %v, want %+v", data, got, err, w.record)
		}
	}
	for _, owner := range []string{"", "a.b", "*", "a>", "a b", "a\n", "\u00e9", strings.Repeat("a", 65)} {
		text := fmt.Sprintf(`{"phase":"in flight","owner":%q}`, owner)
		if r, _, err := decodeRecord(stored{"q.i.x", 7, []byte(text)}); err == nil {
			t.Errorf("%s: %+v, want an error", text, r)
		}
	}
	for _, bad := range []string{``, `{}`, `[]`, `{"phase":"on holiday"}`, `{"phase":"waiting"}`, `{"phase":"in flight","next":"never"}`, `{"phase":"in flight","next":"recheck"}`, `{"phase":"ready","since":"noon"}`} {
		if r, _, err := decodeRecord(stored{"q.i.x", 7, []byte(bad)}); err == nil {
			t.Errorf("%s: %+v, want an error", bad, r)
		}
	}
}

// Records are also of processes that do not know rechecks: those that read
// ours see an item that waits for a time, and what they write is no recheck.
func TestRecordsOfOtherVersions(t *testing.T) {
	const due = "2000-01-02T03:04:05Z"
	at := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano()
	for text, want := range map[string]record{
		`{"phase":"waiting","next":"within","due":"` + due + `"}`:                                     {next: nextLater, due: at},
		`{"phase":"waiting","next":"within","recheck":true,"due":"` + due + `"}`:                      {next: nextRecheck, due: at},
		`{"phase":"waiting","next":"held","recheck":true,"due":"` + due + `"}`:                        {next: nextLater, due: at, notBefore: at},
		`{"phase":"waiting","next":"within","due":"` + due + `","not_before":"2000-01-02T03:04:04Z"}`: {next: nextLater, due: at, notBefore: at - 1e9},
		`{"phase":"ready","recheck":true}`:                                                            {next: nextReady},
		`{"phase":"ready","since":"` + due + `"}`:                                                     {next: nextReady, since: at, pending: at},
	} {
		if got, _, err := decodeRecord(stored{"q.i.x", 7, []byte(text)}); got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
	}
	data := encodeRecord(&record{next: nextRecheck, due: at}, "x", "w")
	if want := `{"phase":"waiting","next":"within","due":"` + due + `","recheck":true,"write":"w"}`; string(data) != want {
		t.Errorf("%s, want %s", data, want)
	}
}
