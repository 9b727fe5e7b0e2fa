// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

type (
	sequence = iter.Seq2[reconcile.Seen[string, int], error]
	tracker  = reconcile.Tracker[string, int]
)

// listed yields items given as "a1": item a with version 1. "!" yields an error,
// "~" lets a second pass, "#" panics.
func listed(text string) sequence {
	return func(yield func(reconcile.Seen[string, int], error) bool) {
		for word := range strings.FieldsSeq(text) {
			var seen reconcile.Seen[string, int]
			var err error
			switch word {
			case "!":
				seen, err = reconcile.Seen[string, int]{Item: "beside an error"}, errBoom
			case "~":
				time.Sleep(time.Second)
				continue
			case "#":
				panic(errBoom)
			default:
				seen.Item, seen.Version = word[:1], int(word[1]-'0')
			}
			if !yield(seen, err) {
				return
			}
		}
	}
}

// track lets a Tracker work through listings, one every 10 seconds, and returns
// what it told its queue and OnChange.
func track(t *testing.T, tr *tracker, listings ...string) *journal {
	t.Helper()
	q := newTray[string]()
	trackWith(t, tr, q, q.journal, listings...)
	return q.journal
}

func trackWith(t *testing.T, tr *tracker, q reconcile.Enqueuer[string], d *journal, listings ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	tr.Period = 10 * time.Second
	tr.Logger = unlogged()
	tr.List = func(context.Context) sequence {
		if n == len(listings) {
			cancel()
			return listed("")
		}
		n++
		return listed(listings[n-1])
	}
	if tr.OnChange == nil {
		tr.OnChange = func(c reconcile.Change[string, int]) { d.note("%s %s %d %d", c.Kind, c.Item, c.Old, c.New) }
	}
	if err := tr.Feed(ctx, q); err != nil {
		t.Errorf("Feed = %v after ctx is done, want nil", err)
	}
	tr.OnChange = nil
}

func TestTrackerTellsWhatIsNewChangedAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track(t, &tracker{}, "a1 b1", "a1 b1", "b2 c1", "c1", "a1 c1").mustBe(t,
			"0s appeared a 0 1", "0s enqueue a", "0s appeared b 0 1", "0s enqueue b",
			"20s altered b 1 2", "20s enqueue b", "20s appeared c 0 1", "20s enqueue c", "20s vanished a 1 0", "20s enqueue a",
			"30s vanished b 2 0", "30s enqueue b",
			"40s appeared a 0 1", "40s enqueue a",
		)
	})
}

func TestTrackerTellsTheFirstPageWhileTheLastIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track(t, &tracker{}, "a1 ~ ~ b1 ~ c1").mustBe(t,
			"0s appeared a 0 1", "0s enqueue a",
			"2s appeared b 0 1", "2s enqueue b",
			"3s appeared c 0 1", "3s enqueue c",
		)
	})
}

// An incomplete listing says what is there, and nothing of what is not. What it
// told, the next listing does not tell again.
func TestTrackerNeverTakesAPartForTheWhole(t *testing.T) {
	cut := strings.Repeat("~ ", 11) // until after the context of the listing ended
	for name, part := range map[string]string{
		"error":            "a2 c1 !",
		"error in between": "a2 ! c1",
		"panic":            "a2 c1 #",
		"ends with ctx":    "a2 c1 " + cut,
		"ignores ctx":      "a2 c1 " + cut + "d1 e1",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := track(t, &tracker{}, "a1 b1", part, "a2 c1")
				d.mu.Lock()
				for _, line := range d.list {
					if strings.HasSuffix(line, " enqueue d") {
						t.Errorf("%q: it was listed after the context of the listing had ended", line)
					}
				}
				d.list = slices.DeleteFunc(d.list, func(s string) bool { return !strings.HasPrefix(s, "0s") && !strings.HasPrefix(s, "10s") })
				d.mu.Unlock()
				d.mustBe(t,
					"0s appeared a 0 1", "0s enqueue a", "0s appeared b 0 1", "0s enqueue b",
					"10s altered a 1 2", "10s enqueue a", "10s appeared c 0 1", "10s enqueue c",
				)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		// The complete one that follows is tried after the back-off, of up to a second.
		d := track(t, &tracker{}, "a1 b1", "a2 !", "a2")
		if last := d.list[len(d.list)-1]; d.len() != 8 || !strings.HasSuffix(last, " enqueue b") {
			t.Errorf("journal %q, want b told as vanished at its end, once", d.list)
		}
	})
}

func TestTrackerOffersTheRestInEveryNthListing(t *testing.T) {
	all := []string{"a1 b1", "a1 b1", "a1 b2", "a1 b2", "a1 b2", "a1 b2"}
	first := []string{"0s enqueue a", "0s enqueue b"}
	for resync, want := range map[int][]string{
		0: append(first[:2:2], "20s enqueue b"),
		1: append(first[:2:2], "10s offer a", "10s offer b", "20s offer a", "20s enqueue b",
			"30s offer a", "30s offer b", "40s offer a", "40s offer b", "50s offer a", "50s offer b"),
		2: append(first[:2:2], "10s offer a", "10s offer b", "20s enqueue b", "30s offer a", "30s offer b", "50s offer a", "50s offer b"),
		3: append(first[:2:2], "20s offer a", "20s enqueue b", "50s offer a", "50s offer b"),
	} {
		t.Run(fmt.Sprint(resync), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				silent := func(reconcile.Change[string, int]) {}
				track(t, &tracker{Resync: resync, OnChange: silent}, all...).mustBe(t, want...)
			})
		})
	}
}

// What was offered in a listing that turned out to be incomplete is offered again.
func TestTrackerCountsCompleteListings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := track(t, &tracker{Resync: 2}, "a1", "a1 !", "a1", "a1", "a1")
		var offers []string
		for _, line := range d.list {
			if _, what, _ := strings.Cut(line, " "); what == "offer a" {
				offers = append(offers, line)
			}
		}
		if len(offers) != 3 { // in the second, the third, and the fifth listing
			t.Errorf("offers %q, want 3", offers)
		}
	})
}

func TestTrackerTellsWhatChangedSinceTheLastProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := map[string]int{"k": 1, "c": 1, "g": 1, "u": 0, "x": 0}
		tr := &tracker{Known: maps.All(before)}
		d := track(t, tr, "k1 c2 n1 u0 !", "k1 c2 n1 u0")
		d.mu.Lock()
		for i, line := range d.list {
			_, d.list[i], _ = strings.Cut(line, " ")
		}
		slices.Sort(d.list[8:]) // both that are gone, in any order
		got := strings.Join(d.list, "\n")
		d.mu.Unlock()
		want := strings.Join([]string{
			"altered c 1 2", "enqueue c", "appeared n 0 1", "enqueue n", "altered u 0 0", "enqueue u",
		}, "\n")
		if !strings.HasPrefix(got, want+"\n") {
			t.Errorf("journal:\n%s\nwant it to begin:\n%s", got, want)
		}
		for _, gone := range []string{"vanished g 1 0", "enqueue g", "vanished x 0 0", "enqueue x"} {
			if strings.Count(got, gone) != 1 {
				t.Errorf("journal:\n%s\nwant %q in it, once", got, gone)
			}
		}
	})
}

func TestTrackerRemembersBetweenFeedsAndReadsKnownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		tr := &tracker{Known: func(yield func(string, int) bool) { read++; yield("a", 1) }}
		track(t, tr, "a1 b1").mustBe(t, "0s appeared b 0 1", "0s enqueue b")
		track(t, tr, "a1 b2").mustBe(t, "0s altered b 1 2", "0s enqueue b")
		if read != 1 {
			t.Errorf("Known was read %d times, want once", read)
		}
	})
}

func TestTrackerTellsOfAnItemListedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track(t, &tracker{}, "a1 b1 a1 a2", "a2").mustBe(t,
			"0s appeared a 0 1", "0s enqueue a", "0s appeared b 0 1", "0s enqueue b", "0s altered a 1 2", "0s enqueue a",
			"10s vanished b 1 0", "10s enqueue b",
		)
	})
}

// A refusal is a queue that panics for some items, as a Queue does for a NaN.
type refusal struct{ tray[string] }

func (q refusal) Enqueue(item string) {
	if item == "x" {
		panic("no x")
	}
	q.tray.Enqueue(item)
}

func (q refusal) Offer(item string) { q.Enqueue(item) }

func TestTrackerGoesOnAfterAnItemThatTheQueuePanicsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := refusal{newTray[string]()}
		trackWith(t, &tracker{OnChange: func(reconcile.Change[string, int]) { panic("no hook") }}, q, q.journal, "a1 x1 b1")
		q.mustBe(t, "0s enqueue a", "0s enqueue b")
	})
	synctest.Test(t, func(t *testing.T) {
		var told []string
		q := refusal{newTray[string]()}
		trackWith(t, &tracker{OnChange: func(c reconcile.Change[string, int]) { told = append(told, c.Item) }}, q, q.journal, "a1 x1", "a1 x1")
		if want := []string{"a", "x", "x"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q: x again, as it was not enqueued", told, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		q := refusal{newTray[string]()}
		trackWith(t, &tracker{Known: maps.All(map[string]int{"x": 1, "y": 1})}, q, q.journal, "a1", "a1")
		var told []string
		for _, line := range q.list {
			if _, what, _ := strings.Cut(line, " "); strings.HasPrefix(what, "vanished") {
				told = append(told, what)
			}
		}
		slices.Sort(told)
		if want := []string{"vanished x 1 0", "vanished x 1 0", "vanished y 1 0"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q: x again, as it was not enqueued", told, want)
		}
	})
}

// What the queue refuses is a failure of the listing, whatever it is.
func TestTrackerLogsWhatTheQueueRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		listing string
		told    int
	}{
		"an item that is offered": {"x1", 0},
		"an item that vanished":   {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				book := newLogBook()
				told := 0
				tr := &tracker{
					Period: time.Minute, Jitter: 1, Resync: 1, Logger: book.logger(),
					Known: maps.All(map[string]int{"x": 1}),
					List:  func(context.Context) sequence { return listed(c.listing) },

					OnChange: func(reconcile.Change[string, int]) { told++ },
				}
				run := launch(t, reconcile.Feed(refusal{newTray[string]()}, tr.Feed))
				synctest.Wait()
				run.end()
				book.onlyLine(t, 0).mustSay(t, 8, nil, "poll failed")
				if told != c.told {
					t.Errorf("told of %d changes, want %d", told, c.told)
				}
			})
		})
	}
}

func TestTrackerLogsWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := newLogBook()
		tr := &reconcile.Tracker[float64, int]{
			Name:     "disks",
			Period:   time.Minute,
			Logger:   book.logger(),
			OnChange: func(reconcile.Change[float64, int]) { panic("no hook") },
			List: func(context.Context) iter.Seq2[reconcile.Seen[float64, int], error] {
				return func(yield func(reconcile.Seen[float64, int], error) bool) {
					_ = yield(reconcile.Seen[float64, int]{Item: math.NaN()}, nil) &&
						yield(reconcile.Seen[float64, int]{Item: 1}, nil)
				}
			},
		}
		q := reconcile.NewQueue[float64]()
		run := launch(t, reconcile.Feed(q, tr.Feed))
		synctest.Wait()
		lines := book.from(0)
		if len(lines) != 2 || q.Len() != 1 {
			t.Fatalf("%d lines, %d items ready, want 2 and the one that is equal to itself: %v", len(lines), q.Len(), lines)
		}
		lines[0].mustSay(t, 8, map[string]string{"tracker": "disks", "item": "1"}, "OnChange panicked", "no hook")
		lines[1].mustSay(t, 8, map[string]string{"poller": "disks"}, "poll failed", "NaN")
		run.end()
	})
}

func TestTrackerGoexitEndsTheListingAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		tr := &tracker{Period: 10 * time.Second, Logger: unlogged()}
		tr.List = func(context.Context) sequence {
			if n++; n == 1 {
				runtime.Goexit()
			}
			return listed("a1")
		}
		q := newTray[string]()
		run := launch(t, reconcile.Feed(q, tr.Feed))
		time.Sleep(5 * time.Second)
		run.end()
		if q.len() != 1 {
			t.Errorf("journal %q, want a enqueued by the second listing", q.list)
		}
	})
}

func TestTrackerTriggerListsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		tr := &tracker{Period: 10 * time.Second, Resync: 1}
		tr.List = func(context.Context) sequence { return listed("a1 ~") }
		tr.Trigger() // before Feed: it begins with a listing anyway
		run := launch(t, reconcile.Feed(q, tr.Feed))
		time.Sleep(3 * time.Second)
		tr.Trigger() // between two listings: at once
		time.Sleep(500 * time.Millisecond)
		tr.Trigger() // while one goes on: as one, right after it
		tr.Trigger()
		time.Sleep(11 * time.Second)
		run.end()
		tr.Trigger()
		q.mustBe(t, "0s enqueue a", "3s offer a", "4s offer a", "14s offer a")
	})
}

var _ reconcile.Feeder[string] = (&tracker{}).Feed
