// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package tracker_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/supervise"
	"github.com/reconkernel/reconcile/tracker"
)

var errBoom = errors.New("boom")

var quiet = slog.New(slog.DiscardHandler)

type (
	letters  = tracker.Tracker[string, int]
	sequence = iter.Seq2[tracker.Listed[string, int], error]
)

// A journal is an Enqueuer that notes its calls.
type journal[T comparable] struct{ *record.Journal }

func newJournal[T comparable]() journal[T] { return journal[T]{record.New()} }

func (j journal[T]) Enqueue(item T)                { j.Note("enqueue %v", item) }
func (j journal[T]) Offer(item T)                  { j.Note("offer %v", item) }
func (j journal[T]) EnqueueAfter(T, time.Duration) { panic("not called") }
func (j journal[T]) change(c tracker.Change[T, int]) {
	j.Note("%s %v %d %d", c.Kind, c.Item, c.Old, c.New)
}

// whats returns the lines without their times.
func (j journal[T]) whats() (whats []string) {
	for _, line := range j.Lines() {
		_, what, _ := strings.Cut(line, " ")
		whats = append(whats, what)
	}
	return whats
}

// listed yields items given as "a1": item a with version 1. "!" yields an error,
// "~" lets a second pass, "#" panics, "%" calls Goexit.
func listed(text string) sequence {
	return func(yield func(tracker.Listed[string, int], error) bool) {
		for word := range strings.FieldsSeq(text) {
			var item tracker.Listed[string, int]
			var err error
			switch word {
			case "!":
				item, err = tracker.Listed[string, int]{Item: "beside an error"}, errBoom
			case "~":
				time.Sleep(time.Second)
				continue
			case "#":
				panic(errBoom)
			case "%":
				runtime.Goexit()
			default:
				item.Item, item.Version = word[:len(word)-1], int(word[len(word)-1]-'0')
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// track lets tr work through listings, one every 10 seconds, and returns what it
// did to its queue and told OnChange.
func track(t *testing.T, tr *letters, listings ...string) journal[string] {
	t.Helper()
	j := newJournal[string]()
	trackInto(t, tr, j, j.change, listings...)
	return j
}

func trackInto(t *testing.T, tr *letters, q reconcile.Enqueuer[string], onChange func(tracker.Change[string, int]), listings ...string) {
	t.Helper()
	tr.Queue, tr.OnChange, tr.Period = q, onChange, 10*time.Second
	group := supervise.Group{Logger: cmp.Or(tr.Logger, quiet)}
	logger := tr.Logger
	defer func() { tr.Logger = logger }()
	tr.Logger = nil // that of the Group
	group.Add("listing", reconcile.RunFunc(func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		n := 0
		tr.List = func(context.Context) sequence {
			if n == len(listings) {
				cancel()
				return listed("")
			}
			n++
			return listed(listings[n-1])
		}
		return tr.Run(ctx)
	}))
	if err := group.Run(t.Context()); err != nil {
		t.Errorf("Run = %v after ctx is done, want nil", err)
	}
}

func TestTrackerReportsTheFirstPageWhileTheLastIsFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		track(t, new(letters), "a1 ~ ~ b1 ~ c1").Want(t,
			"0s appeared a 0 1", "0s offer a",
			"2s appeared b 0 1", "2s offer b",
			"3s appeared c 0 1", "3s offer c",
		)
	})
}

// The items in an incomplete listing count, and no item counts as missing from it. Items
// that it reported are not reported again.
func TestTrackerFindsNoMissingItemInAnIncompleteListing(t *testing.T) {
	cut := strings.Repeat("~ ", 101) // until after the context of the listing ended
	for name, part := range map[string]string{
		"error":            "a2 c1 !",
		"error in between": "a2 ! c1",
		"panic":            "a2 c1 #",
		"Goexit":           "a2 c1 %",
		"ends with ctx":    "a2 c1 " + cut,
		"ignores ctx":      "a2 c1 " + cut + "d1 e1",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := track(t, new(letters), "a1 b1", part, "a2 c1")
				want := []string{
					"appeared a 0 1", "offer a", "appeared b 0 1", "offer b",
					"altered a 1 2", "enqueue a", "appeared c 0 1", "enqueue c",
					"vanished b 1 0", "enqueue b", // by the complete one that follows
				}
				if got := j.whats(); !slices.Equal(got, want) {
					t.Errorf("journal %q, want %q", got, want)
				}
			})
		})
	}
}

// Two pages that overlap list an item twice, with two versions: not an event in each
// listing, and a line that says so.
func TestTrackerLogsAnItemThatIsListedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := record.NewLog()
		track(t, &letters{Logger: log.Logger(), Name: "pages"}, "a1 b1 a2 b2 a1", "a1 a2 b1", "a1 a2 b1", "a1 b1", "a1 b1 b2").Want(t,
			"0s appeared a 0 1", "0s offer a", "0s appeared b 0 1", "0s offer b",
		)
		var lines []string
		for _, l := range log.From(slog.LevelWarn) {
			lines = append(lines, fmt.Sprint(l.Message, " ", l.Attrs["item"], " ", l.Attrs["times"], " ", l.Attrs["tracker"]))
		}
		if got, want := strings.Join(lines, "\n"), "listing has items twice a 3 pages\nlisting has items twice a 1 pages\nlisting has items twice b 1 pages"; got != want {
			t.Errorf("lines\n%s\nwant\n%s", got, want)
		}
	})
}

func TestTrackerOffersUnchangedItemsEachResync(t *testing.T) {
	all := []string{"a1 b1", "a1 b1", "a1 b2", "a1 b2", "a1 b2", "a1 b2"}
	first := []string{"0s offer a", "0s offer b"}
	for resync, want := range map[time.Duration][]string{
		-1: append(first[:2:2], "20s enqueue b"),
		0:  append(first[:2:2], "20s enqueue b"), // not within an hour
		time.Millisecond: append(first[:2:2], "10s offer a", "10s offer b", "20s offer a", "20s enqueue b",
			"30s offer a", "30s offer b", "40s offer a", "40s offer b", "50s offer a", "50s offer b"),
		20 * time.Second: append(first[:2:2], "10s offer b", "20s offer a", "20s enqueue b", "30s offer b", "40s offer a", "50s offer b"),
		25 * time.Second: append(first[:2:2], "10s offer b", "20s enqueue b", "30s offer a", "40s offer b", "50s offer a"),
	} {
		t.Run(fmt.Sprint(resync), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal[string]()
				trackInto(t, &letters{Resync: resync}, j, nil, all...)
				j.Want(t, want...)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		j := newJournal[string]()
		trackInto(t, new(letters), j, nil, slices.Repeat([]string{"a1"}, 721)...)
		j.Want(t, "0s offer a", "55m40s offer a", "1h55m40s offer a")
	})
}

// Of 10,000 items, each listing offers a share, and each item is offered once in the
// interval.
func TestResyncIsSpreadOverItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		items := make(map[int]int)
		for i := range 10_000 {
			items[i] = 1
		}
		q := new(teller)
		var shares []int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tr := &tracker.Tracker[int, int]{Queue: q, Period: time.Minute, Logger: quiet}
		tr.List = tracker.FromMap(func(context.Context) (map[int]int, error) {
			if shares = append(shares, len(q.calls)); len(shares) == 62 {
				cancel()
			}
			if len(shares) == 2 {
				q.calls = nil // of the first listing
			}
			return items, nil
		})
		if err := tr.Run(ctx); err != nil {
			t.Fatal(err)
		}
		for i := 3; i < len(shares); i++ {
			if n := shares[i] - shares[i-1]; i > 3 && (n < 100 || n > 240) {
				t.Errorf("listing %d offered %d of 10,000 items, want about 167", i, n)
			}
		}
		slices.Sort(q.calls)
		if n := len(q.calls); n != 10_000 || len(slices.Compact(q.calls)) != n {
			t.Errorf("%d offers in an hour, of %d items, want one of each", n, len(slices.Compact(q.calls)))
		}
	})
}

// A versioned is a queue that notes what a Tracker says of each item at its Enqueue,
// as the run that follows may see it.
type versioned struct {
	journal[string]
	tr *letters
}

func (q versioned) Enqueue(item string) {
	version, ok := q.tr.Version(item)
	q.Note("%s %d %v", item, version, ok)
	if item == "x" && version == 1 {
		panic("no x")
	}
}

// A run that is in flight may have read its item before the first listing did.
func TestTrackerEnqueuesAnItemInFlightInTheFirstListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		if _, err := q.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		trackInto(t, &letters{Resync: -1}, q, nil, "a1 b1", "a1 b1")
		if state := q.State("a"); !state.Again {
			t.Errorf("after two listings the state is %+v, want another run", state)
		}
	})
}

// remote is a queue on a server, whose State is a request.
type remote struct {
	*reconcile.Queue[string]
	requests *int
}

func (q remote) State(item string) reconcile.State {
	*q.requests++
	return q.Queue.State(item)
}

// A listing makes no request for each of its items.
func TestTrackerAsksNoOtherQueueForAState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		q := remote{reconcile.NewQueue[string](), &requests}
		trackInto(t, &letters{Resync: -1}, q, nil, "a1 b1 c1")
		if requests != 0 || q.Len() != 3 {
			t.Errorf("after %d requests %d items are ready, want none and 3", requests, q.Len())
		}
	})
}

// Version returns the listed version already at the moment of the Enqueue.
func TestTrackerVersionIsKnownBeforeTheEnqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal[string]()
		tr := new(letters)
		if version, ok := tr.Version("k"); version != 0 || ok {
			t.Errorf("Version before Run = %d, %v, want none", version, ok)
		}
		trackInto(t, tr, versioned{j, tr}, nil, "", "k5 a1 b1", "a2 b1 !", "k5 a2 b1 x1", "k5 a2 x2", "a2 x2")
		want := []string{"k 5 true", "a 1 true", "b 1 true", "a 2 true", "x 1 true", "x 2 true", "b 0 false", "k 0 false"}
		if got := j.whats(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for item, want := range map[string]int{"a": 2, "b": 0, "k": 0, "x": 2} {
			if version, ok := tr.Version(item); version != want || ok != (want != 0) {
				t.Errorf("Version(%s) = %d, %v, want %d", item, version, ok, want)
			}
		}
	})
}

// Age is that of the last complete listing.
func TestTrackerAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &letters{Queue: newJournal[string](), Period: 10 * time.Second, Logger: quiet}
		begun := time.Now()
		tr.List = func(context.Context) sequence {
			if time.Since(begun) > 25*time.Second {
				return listed("!")
			}
			return listed("a1")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var mu sync.Mutex // guards ages
		ages := []time.Duration{tr.Age()}
		for _, at := range []time.Duration{15 * time.Second, 50 * time.Second} {
			time.AfterFunc(at, func() {
				mu.Lock()
				defer mu.Unlock()
				ages = append(ages, tr.Age())
			})
		}
		if err := tr.Run(ctx); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{0, 5 * time.Second, 30 * time.Second}; !slices.Equal(ages, want) {
			t.Errorf("Age returned %v, want %v", ages, want)
		}
	})
}

// The number of missing items is logged, as a warning if it is at least ten and more than a
// tenth.
func TestTrackerLogsHowManyItemsAreMissing(t *testing.T) {
	for _, c := range []struct {
		lost, of int
		level    string
	}{{1, 1, "INFO"}, {9, 9, "INFO"}, {10, 10, "WARN"}, {10, 99, "WARN"}, {10, 100, "INFO"}} {
		synctest.Test(t, func(t *testing.T) {
			var all []string
			for i := range c.of {
				all = append(all, fmt.Sprintf("i%d-1", i))
			}
			var text bytes.Buffer
			trackInto(t, &letters{Name: "disks", Logger: logTo(&text)}, newJournal[string](), nil,
				strings.Join(all, " "), strings.Join(all[c.lost:], " "))
			want := fmt.Sprintf(`level=%s msg="listing lost items" member=listing lost=%d of=%d tracker=disks`, c.level, c.lost, c.of)
			if got, _, _ := strings.Cut(text.String(), "\n"); got != want {
				t.Errorf("log:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// FromMap yields in the same order each time, and the missing items are enqueued in the
// same order.
func TestFromMapYieldsInAFixedOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type id struct{ n int }
		items := map[id]int{}
		for i := range 30 {
			items[id{i}] = i
		}
		var calls []string
		for range 3 {
			j := newJournal[id]()
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			tr := &tracker.Tracker[id, int]{Queue: j, Period: time.Second, Logger: quiet, List: tracker.FromMap(func(context.Context) (map[id]int, error) {
				if n++; n == 2 {
					return nil, nil
				} else if n > 2 {
					cancel()
				}
				return items, nil
			})}
			if err := tr.Run(ctx); err != nil {
				t.Error(err)
			}
			if calls == nil {
				calls = j.Lines()
			}
			if j.Want(t, calls...); len(calls) != 60 {
				t.Errorf("%d calls, want 60", len(calls))
			}
		}
	})
}

func TestTrackerRemembersBetweenRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := new(letters)
		track(t, tr, "a1 b1")
		track(t, tr, "a1 b2").Want(t, "0s altered b 1 2", "0s enqueue b")
	})
}

// A refusal is a queue that calls Goexit for x; a Queue panics for a NaN.
type refusal struct{ journal[string] }

func (q refusal) Enqueue(item string) {
	if item == "x" && q.Elapsed() > 0 {
		runtime.Goexit()
	}
	q.journal.Enqueue(item)
}

func (q refusal) Offer(item string) { q.Enqueue(item) }

// An item on which the queue calls Goexit does not hide later items, and is reported again.
func TestTrackerContinuesAfterAGoexitOfTheQueue(t *testing.T) {
	for name, c := range map[string]struct {
		resync   time.Duration
		listings []string
		want     []string // sorted
	}{
		"appeared": {0, []string{"", "a1 x1 b1", "a1 x1 b1"}, []string{"appeared a 0 1", "appeared b 0 1", "appeared x 0 1", "appeared x 0 1", "enqueue a", "enqueue b"}},
		"vanished": {0, []string{"x1 y1", "", ""}, []string{"appeared x 0 1", "appeared y 0 1", "enqueue x", "enqueue y", "enqueue y", "vanished x 1 0", "vanished x 1 0", "vanished y 1 0"}},
		"offered":  {time.Millisecond, []string{"x1 a1", "x1 a1"}, []string{"appeared a 0 1", "appeared x 0 1", "enqueue a", "enqueue a", "enqueue x"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				tr := &letters{Resync: c.resync, Logger: logTo(&text)}
				q := refusal{newJournal[string]()}
				trackInto(t, tr, q, q.change, c.listings...)
				if got := slices.Sorted(slices.Values(q.whats())); !slices.Equal(got, c.want) {
					t.Errorf("journal %q, want %q", got, c.want)
				}
				if !strings.Contains(text.String(), `"listing failed"`) || !strings.Contains(text.String(), "Goexit") {
					t.Errorf("log %s, want that the listing failed", text.String())
				}
			})
		})
	}
}

// logTo returns a logger without what differs from run to run.
func logTo(text *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey, "next":
			return slog.Attr{}
		case "stack":
			a.Value = slog.StringValue(fmt.Sprint(strings.Contains(a.Value.String(), "tracker_test.go")))
		}
		return a
	}}))
}

// A failure is logged, and the same failure again when it has occurred twice as often. A
// Goexit of OnChange is logged too, and keeps no item from the queue.
func TestTrackerLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		j := newJournal[string]()
		tr := &letters{Name: "disks", Logger: logTo(&text)}
		listings := []string{"!", "!", "!", "!", "", "#", "a1 b1 c1", "a1 b1 c1 d1"}
		trackInto(t, tr, j, func(tracker.Change[string, int]) { runtime.Goexit() }, listings...)
		tr.Name = ""
		trackInto(t, tr, j, nil, "!", "")
		want := `level=ERROR msg="listing failed" member=listing failures=1 err=boom tracker=disks
level=ERROR msg="listing failed" member=listing failures=2 err=boom tracker=disks
level=ERROR msg="listing failed" member=listing failures=4 err=boom tracker=disks
level=INFO msg="listing succeeded again" member=listing failures=4 tracker=disks
level=ERROR msg="listing failed" member=listing failures=1 err="panic: boom" stack=true tracker=disks
level=ERROR msg="OnChange panicked" member=listing item=a err="panic: runtime.Goexit called" panics=1 stack=true tracker=disks
level=ERROR msg="OnChange panicked" member=listing item=b err="panic: runtime.Goexit called" panics=2 stack=true tracker=disks
level=INFO msg="listing succeeded again" member=listing failures=1 tracker=disks
level=ERROR msg="OnChange panicked" member=listing item=d err="panic: runtime.Goexit called" panics=4 stack=true tracker=disks
level=ERROR msg="listing failed" member=listing failures=1 err=boom
level=INFO msg="listing lost items" member=listing lost=4 of=4
level=INFO msg="listing succeeded again" member=listing failures=1
`
		if got := text.String(); got != want {
			t.Errorf("log:\n%s\nwant:\n%s", got, want)
		}
		if got := j.whats(); len(got) < 4 || !slices.Equal(got[:4], []string{"enqueue a", "enqueue b", "enqueue c", "enqueue d"}) {
			t.Errorf("enqueued: %q, want all", got)
		}
	})
}

// Items that cannot be a map key do not hide later items, and do not make items missing.
func TestTrackerContinuesAfterAnItemThatCannotBeAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		j := newJournal[any]()
		listings := [][]any{{"a", []string{"b"}, math.NaN(), "c"}, {"a", "c"}}
		tr := &tracker.Tracker[any, int]{
			Queue: j,
			List: func(context.Context) iter.Seq2[tracker.Listed[any, int], error] {
				items := listings[0]
				listings = listings[1:]
				return func(yield func(tracker.Listed[any, int], error) bool) {
					for _, item := range items {
						if !yield(tracker.Listed[any, int]{Item: item}, nil) {
							return
						}
					}
				}
			},
			Period: time.Minute,
			Logger: logTo(&text),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := tr.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		j.Want(t, "0s offer a", "0s offer c")
		if lines := strings.Split(text.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[0], "[]string") {
			t.Errorf("log %s, want the first failure of the first listing, and that the second was complete", text.String())
		}
	})
}

func TestTrackerListsWithJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		instants := make(map[time.Duration]bool) // of the listings, in the second in which they begin
		tr := &letters{Queue: newJournal[string](), Period: 10 * time.Second, Jitter: 0.5}
		begun := time.Now()
		tr.List = func(context.Context) sequence {
			instants[time.Since(begun)%time.Second] = true
			return listed("")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := tr.Run(ctx); err != nil || len(instants) < 30 {
			t.Errorf("Run = %v; listings began at %d instants of a second, want each at another", err, len(instants))
		}
	})
}

func TestTrackerTriggerListsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal[string]()
		tr := &letters{Queue: j, Period: 10 * time.Second, Resync: time.Millisecond}
		tr.List = func(context.Context) sequence { return listed("a1 ~") }
		tr.Trigger() // before Run: it begins with a listing anyway
		ctx, cancel := context.WithTimeout(t.Context(), 14500*time.Millisecond)
		defer cancel()
		time.AfterFunc(3*time.Second, tr.Trigger)         // between two listings: at once
		time.AfterFunc(3500*time.Millisecond, tr.Trigger) // while one goes on: right after it,
		time.AfterFunc(3600*time.Millisecond, tr.Trigger) // as one
		if err := tr.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		tr.Trigger()
		j.Want(t, "0s offer a", "3s offer a", "4s offer a", "14s offer a")
	})
}

func TestTrackerErrorNamesTheField(t *testing.T) {
	q := newJournal[string]()
	list := func(context.Context) sequence { return listed("") }
	for want, tr := range map[string]*letters{
		"tracker: Tracker.Queue is required":                       {List: list, Period: time.Second},
		"tracker: Tracker.Queue: ":                                 {Queue: new(reconcile.Queue[string]), List: list, Period: time.Second},
		"was not created by NewQueue":                              {Queue: new(reconcile.Queue[string]), List: list, Period: time.Second},
		"tracker: Tracker.List is required":                        {Queue: q, Period: time.Second},
		"tracker: Tracker.Period is 0s":                            {Queue: q, List: list},
		"Period is 30ns, want at least 1ms: was a unit forgotten?": {Queue: q, List: list, Period: 30},
		"Resync is 30ns, want at least 1ms: was a unit forgotten?": {Queue: q, List: list, Period: time.Second, Resync: 30},
		"tracker: Tracker.Jitter is 2":                             {Queue: q, List: list, Period: time.Second, Jitter: 2},
		"tracker: Tracker.Jitter is NaN":                           {Queue: q, List: list, Period: time.Second, Jitter: math.NaN()},
	} {
		if err := tr.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), want) {
			t.Errorf("Run = %v, want a terminal error that says %q", err, want)
		}
	}
	// An AWS SDK, for one, answers an ETag as a *string: each listing would report it
	// as altered.
	pointers := &tracker.Tracker[string, *string]{Queue: q, Period: time.Second}
	pointers.List = func(context.Context) iter.Seq2[tracker.Listed[string, *string], error] { return nil }
	if err := pointers.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "*string") || !strings.Contains(err.Error(), "the version itself") {
		t.Errorf("Run with versions that are pointers = %v, want an error that names them", err)
	}
	defer func() {
		if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "tracker: FromMap ") {
			t.Errorf("FromMap(nil) panics with %q", text)
		}
	}()
	tracker.FromMap[string, int](nil)
}

func TestTrackerSecondRunAtOnceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		tr := &letters{Queue: newJournal[string](), Period: time.Hour, Logger: logTo(&text)}
		tr.List = func(context.Context) sequence { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		first := make(chan error, 1)
		go func() { first <- tr.Run(ctx) }()
		synctest.Wait()
		if err := tr.Run(ctx); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("second Run = %v, want an error", err)
		}
		if err := <-first; err != nil {
			t.Errorf("first Run = %v, want nil", err)
		}
		if !strings.Contains(text.String(), "Tracker.List returned nil") {
			t.Errorf("log %s, want that the list is nil", text.String())
		}
		if err := tr.Run(ctx); err != nil {
			t.Errorf("Run after Run = %v, want nil", err)
		}
	})
}

// The items of a map that is returned with an error count, and the listing is incomplete.
func TestFromMapYieldsTheItemsAndThenTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replies := []struct {
			items map[string]int
			err   error
		}{{map[string]int{"a": 1, "b": 1}, nil}, {map[string]int{"c": 1}, errBoom}, {map[string]int{"a": 1, "c": 1}, nil}}
		j := newJournal[string]()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tr := &letters{Queue: j, Period: time.Minute, Logger: quiet}
		tr.List = tracker.FromMap(func(ctx context.Context) (map[string]int, error) {
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the context has no deadline, want that of the listing")
			}
			if len(replies) == 0 {
				cancel()
				return nil, nil
			}
			r := replies[0]
			replies = replies[1:]
			return r.items, r.err
		})
		if err := tr.Run(ctx); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		got := j.whats()
		if want := []string{"offer a", "offer b", "enqueue c", "enqueue b"}; !slices.Equal(got, want) {
			t.Errorf("the queue got %q, want %q: a did not vanish", got, want)
		}
		list := tracker.FromMap(func(context.Context) (map[string]int, error) { return map[string]int{"a": 1, "b": 1}, nil })
		for range list(ctx) {
			break // a sequence that goes on after that panics
		}
	})
}

// drop is a queue that keeps nothing.
type drop[T comparable] struct{}

func (drop[T]) Enqueue(T)                     {}
func (drop[T]) EnqueueAfter(T, time.Duration) {}
func (drop[T]) Offer(T)                       {}

// heap returns how much memory is in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A model is a Tracker that anybody can read. It answers what a listing makes of the
// queue, sorted.
type model struct {
	resync, offered time.Duration
	known           map[int]int
	complete        bool // a listing was
}

func (m *model) listing(now time.Duration, listed []tracker.Listed[int, int], complete bool) []string {
	var done []string
	note := func(verb string, item int) { done = append(done, fmt.Sprint(verb, " ", item)) }
	offers := m.resync > 0 && now-m.offered >= m.resync
	for i, l := range listed {
		if slices.ContainsFunc(listed[:i], func(o tracker.Listed[int, int]) bool { return o.Item == l.Item }) {
			continue // its first version counts
		}
		old, known := m.known[l.Item]
		switch {
		case !known:
			verb := "enqueue"
			if !m.complete {
				verb = "offer"
			}
			note(fmt.Sprint("appeared 0 ", l.Version, " ", verb), l.Item)
		case old != l.Version:
			note(fmt.Sprint("altered ", old, " ", l.Version, " enqueue"), l.Item)
		case offers:
			note("offer", l.Item)
		}
		m.known[l.Item] = l.Version
	}
	lacks := func(item int) bool {
		return !slices.ContainsFunc(listed, func(l tracker.Listed[int, int]) bool { return l.Item == item })
	}
	var gone []int
	for item := range m.known {
		if lacks(item) {
			gone = append(gone, item)
		}
	}
	if complete {
		for _, item := range gone {
			note(fmt.Sprint("vanished ", m.known[item], " 0 enqueue"), item)
			delete(m.known, item)
		}
		m.complete, m.offered = true, now
	}
	slices.Sort(done)
	return done
}

// A teller is an Enqueuer that keeps its calls, with the change before each.
type teller struct {
	change string
	calls  []string
}

func (q *teller) Enqueue(item int) {
	q.calls = append(q.calls, fmt.Sprint(q.change, " enqueue ", item))
	q.change = ""
}
func (q *teller) EnqueueAfter(int, time.Duration) { panic("not called") }
func (q *teller) Offer(item int) {
	call := fmt.Sprint("offer ", item)
	if q.change != "" {
		call = q.change + " " + call
	}
	q.calls = append(q.calls, call)
	q.change = ""
}

func (q *teller) onChange(c tracker.Change[int, int]) {
	q.change = fmt.Sprint(c.Kind, " ", c.Old, " ", c.New)
}

// Random listings, some of which fail in different ways, have exactly the effect that the
// model has.
func TestTrackerAgreesWithItsModel(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			m := &model{resync: []time.Duration{-1, time.Millisecond}[rnd.IntN(2)], known: make(map[int]int)}
			q := new(teller)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var want []string
			begun, steps := time.Now(), 0
			tr := &tracker.Tracker[int, int]{
				Queue:  q,
				Period: time.Minute,
				Resync: m.resync,

				OnChange: q.onChange,
				Logger:   quiet,
			}
			tr.List = func(context.Context) iter.Seq2[tracker.Listed[int, int], error] {
				if slices.Sort(q.calls); !slices.Equal(q.calls, want) {
					t.Errorf("seed %d, listing %d did %q, want %q", seed, steps, q.calls, want)
				}
				if steps++; steps > 40 {
					cancel()
					return nil
				}
				var items []tracker.Listed[int, int]
				for range rnd.IntN(10) {
					items = append(items, tracker.Listed[int, int]{Item: rnd.IntN(8), Version: rnd.IntN(3)})
				}
				if rnd.IntN(3) == 0 { // as it was
					items = items[:0]
					for _, item := range slices.Sorted(maps.Keys(m.known)) {
						items = append(items, tracker.Listed[int, int]{Item: item, Version: m.known[item]})
					}
				}
				end := rnd.IntN(6)
				q.calls, want = nil, m.listing(time.Since(begun), items, end > 2)
				return func(yield func(tracker.Listed[int, int], error) bool) {
					for i, item := range items {
						if end == 0 && i == len(items)/2 && !yield(tracker.Listed[int, int]{Item: 99}, errBoom) {
							return
						}
						if !yield(item, nil) {
							return
						}
					}
					switch end {
					case 0, 1:
						yield(tracker.Listed[int, int]{Item: 99}, errBoom)
					case 2:
						panic(errBoom)
					}
				}
			}
			if err := tr.Run(ctx); err != nil {
				t.Errorf("Run = %v, want nil", err)
			}
		})
	}
}

// BenchmarkTracker lists a million items with names and versions of their own,
// as strings: the first listing, and those in which nothing has changed. It reports
// the bytes that the tracker keeps for each item, strings not counted, as the
// listing has them anyway.
func BenchmarkTracker(b *testing.B) {
	const n = 1_000_000
	items := make([]tracker.Listed[string, string], n)
	for i := range items {
		items[i] = tracker.Listed[string, string]{Item: fmt.Sprintf("bucket-%d", i), Version: fmt.Sprintf("%032x", i)}
	}
	// run goes through so many listings, each right after the one before.
	run := func(tr *tracker.Tracker[string, string], listings int) {
		ctx, cancel := context.WithCancel(b.Context())
		tr.List = func(context.Context) iter.Seq2[tracker.Listed[string, string], error] {
			if listings == 0 {
				cancel()
			}
			listings--
			tr.Trigger()
			return func(yield func(tracker.Listed[string, string], error) bool) {
				for _, item := range items {
					if !yield(item, nil) {
						return
					}
				}
			}
		}
		if err := tr.Run(ctx); err != nil {
			b.Fatal(err)
		}
	}
	newTracker := func() *tracker.Tracker[string, string] {
		return &tracker.Tracker[string, string]{Queue: drop[string]{}, Period: time.Hour, Logger: quiet}
	}
	b.Run("First", func(b *testing.B) {
		var kept int64
		for b.Loop() {
			before := heap()
			tr := newTracker()
			run(tr, 1)
			kept = heap() - before
			runtime.KeepAlive(tr)
		}
		b.ReportMetric(float64(kept)/n, "B/item")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
	})
	b.Run("Same", func(b *testing.B) {
		tr := newTracker()
		run(tr, 1)
		for b.Loop() {
			run(tr, 1)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
	})
}
