// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/board"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

var (
	errInSync   = fmt.Errorf("%w: %w", board.InSync, reconcile.RecheckWithin(time.Minute))
	errCreating = fmt.Errorf("%w: %w", board.Creating, reconcile.RequeueWithin(0))
	errRemoving = fmt.Errorf("%w: %w", board.Removing, reconcile.RequeueWithin(0))
)

// waitedFor returns a board with somebody who waits for its end.
func waitedFor(t *testing.T) *assetBoard {
	b := newBoard(reconcile.NewQueue[cloud.ID]())
	ended := make(chan error)
	go func() { ended <- b.Wait(t.Context()) }()
	t.Cleanup(func() { // the context has ended
		_, done := b.Final()
		if err := <-ended; done != (err == nil) {
			t.Errorf("there is a final summary: %t, and Wait returned %v", done, err)
		}
	})
	return b
}

// want and listed tell a board as control and the controller do.
func want(b *assetBoard, a assets) int { return b.Want(a.order, a.specs) }

func listed(b *assetBoard, list []cloud.Asset, err error) {
	ids := make([]cloud.ID, len(list))
	for i, a := range list {
		ids[i] = a.ID
	}
	b.Listed(ids, func(i int, want cloud.Spec) bool { return same(list[i].Spec, want) }, err)
}

func wantDone(t *testing.T, b *assetBoard, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if _, done := b.Final(); done != want {
		t.Errorf("%s the board is done: %t, want %t", when, done, want)
	}
}

// It is done once all that is wanted is in sync or cannot be, all that is too
// much is gone, and it is known what there is.
func TestBoardDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		want(b, generate(2))
		k, x := key("key-00000"), bucket("bucket-00001")
		told(t, b, k, reconcile.Succeeded, errInSync, 0, time.Minute)
		wantDone(t, b, false, "with one of two in sync")
		told(t, b, x, reconcile.Retrying, errors.New("bad"), 1, time.Second)
		listed(b, []cloud.Asset{{ID: k, Spec: generate(2).specs[k]}, {ID: bucket("old")}}, nil)
		time.Sleep(time.Second)
		told(t, b, bucket("old"), reconcile.Requeued, errRemoving, 0, 0)
		told(t, b, x, reconcile.TerminalError, errors.New("never"), 1, 0)
		wantDone(t, b, false, "with one that is being removed")
		told(t, b, bucket("old"), reconcile.Succeeded, nil, 0, 0)
		wantDone(t, b, true, "in the end")
		s, _ := b.Final()
		if want := (board.Totals{Wanted: 2, InSync: 1, Refused: 1, Runs: 5, Retries: 1, Removed: 1}); s.Totals != want {
			t.Errorf("the totals are %+v, want %+v", s.Totals, want)
		}
	})
}

func TestBoardIsNotDoneBeforeTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		want(b, generate(1))
		told(t, b, key("key-00000"), reconcile.Succeeded, errInSync, 0, time.Minute)
		wantDone(t, b, false, "before the list")
		b.Listed(nil, nil, errors.New("no answer"))
		wantDone(t, b, false, "after a list that failed")
		listed(b, []cloud.Asset{{ID: key("key-00000"), Spec: generate(1).specs[key("key-00000")]}}, nil)
		wantDone(t, b, true, "after the list")
	})
}

// What cannot be is no reason to end before it is known what there is. It is
// one if that cannot be found out.
func TestBoardIsDoneWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		want(b, generate(1))
		told(t, b, key("key-00000"), reconcile.GaveUp, errors.New("no answer"), 3, 0)
		wantDone(t, b, false, "before the list")
		b.Listed(nil, nil, errors.New("no answer"))
		wantDone(t, b, true, "after a list that failed")
	})
}

// Ten lists that fail are enough if all else is done, and that is said.
func TestBoardIsDoneAfterTenLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		want(b, generate(1))
		told(t, b, key("key-00000"), reconcile.Succeeded, errInSync, 0, time.Minute)
		for range 9 {
			b.Listed(nil, nil, errors.New("no answer"))
		}
		wantDone(t, b, false, "after nine lists that failed")
		b.Listed(nil, nil, errors.New("no answer"))
		wantDone(t, b, true, "after ten")
		var out strings.Builder
		code := b.Report(&out, "asset", "assets", time.Second, false)
		if want := "\nwhat is there besides is not known: no answer\n"; code != 1 || !strings.HasSuffix(out.String(), want) {
			t.Errorf("the code is %d and the report\n%s\nwant 1 and at its end%s", code, out.String(), want)
		}
	})
}

// An asset that was asked for again while its run went on is not settled by it.
func TestBoardWaitsForTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		first := generate(1)
		want(b, first)
		b.Listed(nil, nil, nil)
		k := key("key-00000")
		if _, err := b.Queue.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := assets{specs: map[cloud.ID]cloud.Spec{k: {Region: "us-west"}}, order: first.order}
		if n := want(b, second); n != 1 {
			t.Errorf("Want tells of %d changes, want 1", n)
		}
		b.Result(reconcile.Result[cloud.ID]{Item: k, Outcome: reconcile.Succeeded, Err: errInSync})
		b.Queue.Requeue(k, reconcile.RequeueOptions{Delay: time.Minute, Recheck: true})
		wantDone(t, b, false, "after a run for the old version")
		told(t, b, k, reconcile.Succeeded, errInSync, 0, time.Minute)
		wantDone(t, b, true, "after a run for the new version")
	})
}

// When a key turns out to be possible after all, what waited for it in vain is
// looked at again before it is all over.
func TestBoardAsksDependantsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		want(b, generate(3))
		b.Listed(nil, nil, nil)
		k, x, y := key("key-00000"), bucket("bucket-00001"), bucket("bucket-00002")
		for range 3 { // the key and its buckets
			if _, err := b.Queue.Dequeue(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		result := func(id cloud.ID, outcome reconcile.Outcome, err error, dependants ...cloud.ID) {
			b.Result(reconcile.Result[cloud.ID]{Item: id, Outcome: outcome, Err: err}, dependants...)
		}
		never := errors.New("never")
		result(y, reconcile.Retrying, never)
		result(k, reconcile.GaveUp, never, x)
		if !b.Queue.State(x).Again {
			t.Error("after the key was given up, its bucket does not run again")
		}
		if b.WhyNot(k) != never || b.WhyNot(x) != nil {
			t.Errorf("refused are %v and %v, want the key alone", b.WhyNot(k), b.WhyNot(x))
		}
		b.Queue.Done(x)
		told(t, b, x, reconcile.TerminalError, never, 1, 0)
		result(k, reconcile.Succeeded, errInSync, x)
		result(y, reconcile.Succeeded, errInSync)
		b.Queue.Done(k)
		b.Queue.Done(y)
		wantDone(t, b, false, "with a bucket that has to be looked at again")
		told(t, b, x, reconcile.Succeeded, errInSync, 0, time.Minute)
		wantDone(t, b, true, "in the end")
		if s, _ := b.Final(); s.InSync != 3 || s.Refused != 0 {
			t.Errorf("in the end %+v, want 3 in sync", s)
		}
	})
}

// A list that shows something else than what was in sync is news.
func TestBoardComparesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(reconcile.NewQueue[cloud.ID]())
		all := generate(5)
		want(b, all)
		var list []cloud.Asset
		for i, id := range all.order {
			a := cloud.Asset{ID: id, Spec: all.specs[id]}
			switch i {
			case 1:
				a.Size = "other"
				list = append(list, a)
			case 2: // it is missing
			default:
				list = append(list, a)
			}
			if i < 4 { // the last one runs now
				told(t, b, id, reconcile.Succeeded, errInSync, 0, time.Minute)
			}
		}
		listed(b, list, errors.New("a page is missing"))
		if n := b.Queue.Len(); n != 1 {
			t.Errorf("a list that is not complete leaves %d to do, want the 1 of before", n)
		}
		listed(b, list, nil)
		for i, id := range all.order {
			if got, want := b.Queue.State(id).Phase == reconcile.Ready, i == 1 || i == 2 || i == 4; got != want {
				t.Errorf("%s is to be looked at: %t, want %t", id, got, want)
			}
		}
	})
}

// Drift is what was in sync, and is not any more although the same is wanted.
func TestBoardCountsDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(reconcile.NewQueue[cloud.ID]())
		want(b, generate(1))
		k := key("key-00000")
		step := func(outcome reconcile.Outcome, err error, want int) {
			t.Helper()
			b.Queue.EnqueueNow(k)
			told(t, b, k, outcome, err, 0, 0)
			if got := b.Totals().Mended; got != want {
				t.Errorf("drift mended is %d, want %d", got, want)
			}
		}
		step(reconcile.Requeued, errCreating, 0)
		step(reconcile.Succeeded, errInSync, 0) // built
		step(reconcile.Retrying, errors.New("500"), 0)
		step(reconcile.Succeeded, errInSync, 0) // it was so all the time
		step(reconcile.Requeued, errCreating, 0)
		step(reconcile.Retrying, errors.New("500"), 0)
		step(reconcile.Requeued, errCreating, 0)
		step(reconcile.Succeeded, errInSync, 1)
		step(reconcile.Retrying, fmt.Errorf("%w: 500: after the work", board.Updating), 1)
		step(reconcile.Succeeded, errInSync, 2)
		step(reconcile.Retrying, errors.New("500"), 2)
		step(reconcile.Succeeded, errInSync, 2)
		want(b, assets{specs: map[cloud.ID]cloud.Spec{k: {Region: "us-west"}}, order: []cloud.ID{k}})
		step(reconcile.Requeued, errCreating, 2)
		step(reconcile.Succeeded, errInSync, 2) // as it was newly wanted
	})
}

// What is gone is told once, however many runs find it gone.
func TestBoardCountsRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := waitedFor(t)
		var lines []string
		b.Moved = func(r board.Row[cloud.ID]) { lines = append(lines, string(r.Status)) }
		x := bucket("x")
		run := func(outcome reconcile.Outcome, err error) {
			b.Queue.EnqueueNow(x)
			told(t, b, x, outcome, err, 0, 0)
		}
		run(reconcile.Requeued, errRemoving)
		run(reconcile.Succeeded, nil)
		run(reconcile.Retrying, errors.New("500"))
		run(reconcile.Succeeded, nil)
		listed(b, []cloud.Asset{{ID: x}}, nil) // a list that began before
		run(reconcile.Succeeded, nil)
		run(reconcile.Retrying, fmt.Errorf("%w: 500", board.Removing)) // it worked all the same
		run(reconcile.Succeeded, nil)
		if got, want := fmt.Sprint(lines), "[removing removed retrying retrying removed]"; got != want {
			t.Errorf("the changes are %s, want %s", got, want)
		}
		if got := b.Totals().Removed; got != 2 {
			t.Errorf("removed are %d, want 2", got)
		}
		wantDone(t, b, true, "in the end")
	})
}
