// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is measured is right, for every implementation that takes part.
func TestRight(t *testing.T) {
	for _, w := range workloads {
		if w.rounds[tiny] == 0 {
			continue
		}
		for _, im := range w.impls {
			s := w.measure(im, tiny, 0)
			if s.Wrong != "" {
				t.Errorf("%s of %s is wrong: %s", w.name, im.name, s.Wrong)
			} else if len(s.Values) == 0 {
				t.Errorf("%s of %s measured nothing", w.name, im.name)
			}
		}
	}
}

// A faulty is a good queue with a fault.
type faulty struct {
	queue[string]
	add     func(q queue[string], item string)
	after   func(q queue[string], item string, d time.Duration)
	get     func(q queue[string]) (string, bool)
	done    func(q queue[string], item string)
	requeue func(q queue[string], item string, d time.Duration)
	fail    func(q queue[string], item string)
}

func (f *faulty) Add(item string) {
	if f.add == nil {
		f.queue.Add(item)
	} else {
		f.add(f.queue, item)
	}
}

func (f *faulty) AddAfter(item string, d time.Duration) {
	if f.after == nil || strings.HasPrefix(item, "settle/") {
		f.queue.AddAfter(item, d)
	} else {
		f.after(f.queue, item, d)
	}
}

func (f *faulty) Get() (string, bool) {
	if f.get == nil {
		return f.queue.Get()
	}
	return f.get(f.queue)
}

func (f *faulty) Done(item string) {
	if f.done == nil {
		f.queue.Done(item)
	} else {
		f.done(f.queue, item)
	}
}

func (f *faulty) RequeueAfter(item string, d time.Duration) {
	if f.requeue == nil {
		f.queue.RequeueAfter(item, d)
	} else {
		f.requeue(f.queue, item, d)
	}
}

func (f *faulty) Fail(item string) {
	if f.fail == nil {
		f.queue.Fail(item)
	} else {
		f.fail(f.queue, item)
	}
}

// faultyLoop runs the good loop and feeds it through a queue with a fault.
func faultyLoop(fault faulty) func(loop) error {
	return func(l loop) error {
		feed := l.feed
		l.feed = func(q feeder) {
			f := fault
			f.queue = feedOnly{feeder: q}
			feed(&f)
		}
		return ourLoop(l)
	}
}

type feedOnly struct {
	queue[string]
	feeder
}

func (f feedOnly) Add(item string)                       { f.feeder.Add(item) }
func (f feedOnly) AddAfter(item string, d time.Duration) { f.feeder.AddAfter(item, d) }

// Some item in the middle, in all workloads that have so many.
const victim = 77

// Queues that are wrong on purpose are found out, by every workload that
// their fault touches. It runs in bubbles: a queue that waits for ever is found
// at once.
func TestWrong(t *testing.T) {
	single := []string{"cycle", "cycle held", "burst"}
	for name, fault := range map[string]struct {
		faulty
		found []string
	}{
		"loses an item": {
			faulty{add: func(q queue[string], item string) {
				if index(item) != victim {
					q.Add(item)
				}
			}},
			append(single, "add queued", "crowd 2", "crowd 64", "storm",
				"requeue", "fail", "wake", "loop", "loop 4", "loop wake"),
		},
		"hands out one twice": {
			faulty{get: func() func(q queue[string]) (string, bool) {
				again := make(chan string, 1)
				return func(q queue[string]) (string, bool) {
					select {
					case item := <-again:
						return item, true
					default:
					}
					item, ok := q.Get()
					if ok && !strings.HasPrefix(item, "settle/") && index(item) == victim {
						select {
						case again <- item:
						default:
						}
					}
					return item, ok
				}
			}()},
			append(single, "add queued", "crowd 2", "crowd 64", "fire", "requeue", "fail", "wake"),
		},
		"hands out one in flight": {
			faulty{get: func(q queue[string]) (string, bool) {
				item, ok := q.Get()
				q.Done(item) // so that it can be taken again
				return item, ok
			}, done: func(queue[string], string) {}},
			[]string{"storm"},
		},
		"mixes up the order": {
			faulty{get: func(q queue[string]) (string, bool) {
				item, ok := q.Get()
				if !strings.HasPrefix(item, "settle/") && index(item) == victim && q.Len() > 0 {
					other, ok := q.Get()
					q.Done(item)
					q.Add(item)
					return other, ok
				}
				return item, ok
			}},
			[]string{"cycle held", "burst", "add queued", "fail"},
		},
		"loses what comes in flight": {
			faulty{add: func(q queue[string], item string) {
				if o := q.(*ours[string]); o.q.State(item).Phase.String() != "in flight" {
					q.Add(item)
				}
			}},
			[]string{"add in flight", "storm"},
		},
		"keeps an item": {
			faulty{done: func(q queue[string], item string) {
				if index(item) == victim {
					q.Add(item)
				}
				q.Done(item)
			}},
			append(single, "add queued", "crowd 2", "fire"),
		},
		"forgets a delay": {
			faulty{after: func(queue[string], string, time.Duration) {}},
			[]string{"fill delayed", "fire", "loop late"},
		},
		"cuts a delay short": {
			faulty{
				after:   func(q queue[string], item string, d time.Duration) { q.AddAfter(item, d/2) },
				requeue: func(q queue[string], item string, d time.Duration) { q.RequeueAfter(item, d/2) },
			},
			[]string{"fill delayed", "fire", "requeue", "loop late"},
		},
		"knows no delay": {
			faulty{
				after: func(q queue[string], item string, _ time.Duration) { q.Add(item) },
				fail:  func(q queue[string], item string) { q.RequeueAfter(item, 0) },
			},
			[]string{"fill delayed", "fire", "fail", "loop late"},
		},
		"loses what is given back": {
			faulty{requeue: func(q queue[string], item string, d time.Duration) {
				if index(item) == victim {
					d = time.Hour // longer than anybody waits here
				}
				q.RequeueAfter(item, d)
			}},
			[]string{"requeue"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range workloads {
				if !slices.Contains(fault.found, w.name) {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						f := fault.faulty
						broken := func() queue[string] {
							f.queue = newOurs[string](0)
							return &f
						}
						im := impl{
							name: name, strings: func(int) queue[string] { return broken() },
							delayed: broken, limited: broken, loop: faultyLoop(fault.faulty),
						}
						s := w.measure(im, tiny, 0)
						if s.Wrong == "" || s.Values != nil {
							t.Fatalf("a queue that %s was measured: %v", name, s.Values)
						}
						t.Log(s.Wrong)
					})
				})
			}
			for _, name := range fault.found {
				if !slices.ContainsFunc(workloads, func(w *workload) bool { return w.name == name }) {
					t.Errorf("there is no workload %q", name)
				}
			}
		})
	}
}

// A loop that runs an item twice, or ends by itself, is wrong.
func TestWrongLoop(t *testing.T) {
	for name, run := range map[string]func(loop) error{
		"runs one twice": func(l loop) error {
			f := l.reconcile
			l.reconcile = func(item string) {
				if f(item); index(item) == victim {
					f(item)
				}
			}
			return ourLoop(l)
		},
		"ends by itself": func(l loop) error {
			ctx, cancel := context.WithCancel(l.ctx)
			defer cancel()
			f := l.reconcile
			l.ctx, l.reconcile = ctx, func(item string) {
				if f(item); index(item) == victim {
					cancel()
				}
			}
			return ourLoop(l)
		},
	} {
		for _, w := range workloads {
			if w.name != "loop" && w.name != "loop late" {
				continue
			}
			t.Run(name+"/"+w.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if s := w.measure(impl{name: name, loop: run}, tiny, 0); s.Wrong == "" {
						t.Errorf("a loop that %s was measured: %v", name, s.Values)
					} else {
						t.Log(s.Wrong)
					}
				})
			})
		}
	}
}

// A channel merges nothing, so where that matters it is wrong.
func TestChannelMergesNothing(t *testing.T) {
	for _, w := range workloads {
		if w.name != "storm" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			room := impl{name: nameChannel, strings: func(int) queue[string] { return newChannel[string](1 << 12) }}
			if s := w.measure(room, tiny, 0); !strings.Contains(s.Wrong, "handed out twice") {
				t.Errorf("the storm of a channel: %q, %v, want an item handed out twice", s.Wrong, s.Values)
			}
		})
	}
}

func TestLedger(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(l *ledger)
		want string
	}{
		"right": {func(l *ledger) {
			l.take(0)
			l.giveBack(0)
			l.take(0)
			l.finish()
			l.take(1)
			l.finish()
		}, ""},
		"in two hands":     {func(l *ledger) { l.take(1); l.take(1) }, "item 1 was handed out twice"},
		"more than all":    {func(l *ledger) { l.finish(); l.finish(); l.finish() }, "more came out than went in"},
		"the first counts": {func(l *ledger) { l.take(1); l.take(1); l.take(0); l.take(0) }, "item 1 was handed out twice"},
	} {
		tr := &trial{}
		test.do(tr.ledger(2))
		got := ""
		if err := tr.failure(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestNames(t *testing.T) {
	for i, name := range names(2000) {
		if got := index(name); got != i {
			t.Fatalf("index(%q) = %d, want %d", name, got, i)
		}
	}
	if got, want := names(2)[1], "team-01/asset-00000001"; got != want {
		t.Errorf("names: %q, want %q", got, want)
	}
	if got, want := pairs(2)[1], (pair{"team-01", "asset-00000001"}); got != want {
		t.Errorf("pairs: %v, want %v", got, want)
	}
}

func TestLateness(t *testing.T) {
	late := make([]time.Duration, 1000)
	for i := range late {
		late[i] = time.Duration(1000 - i)
	}
	tr := &trial{values: make(map[string]float64)}
	tr.lateness(late)
	for key, want := range map[string]float64{"p50": 500, "p99": 990, "p99.9": 999, "max": 1000} {
		if got := tr.values[key]; got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
}
