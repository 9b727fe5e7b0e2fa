// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/supervise"
	"github.com/reconkernel/reconcile/tracker"
)

// plain is a scenario in which nothing is wrong: a disk is desired, made by three
// calls, and listed only at the start.
func plain() Scenario[string, *shop] {
	return setting{play: comes, alone: true}.scenario(asDesired)
}

// with returns plain with other work.
func plainWith(controller func(client) work) Scenario[string, *shop] {
	return setting{play: comes, alone: true}.scenario(controller)
}

func search[W any](t *testing.T, s Scenario[string, W]) *explore.Report {
	t.Helper()
	r, err := explore.Search(t, s.Untyped())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An outcome is what a plan came to.
type outcome struct {
	journal []string
	failure string
}

// outcomeOf plays the plan of these faults.
func outcomeOf[W any](t *testing.T, s Scenario[string, W], faults ...string) outcome {
	t.Helper()
	s.Replay = append([]string{}, faults...)
	r := search(t, s)
	o := outcome{journal: r.Journal()}
	if r.Found != nil {
		o.failure = r.Found.Failure
	}
	return o
}

// What faults do to the runs of a reconciler, and to the calls, the notes and the queue of
// its process.
func TestFaults(t *testing.T) {
	s := plainWith(func(c client) work {
		return func(ctx context.Context, a string) error {
			is, err := c.get(ctx, "disk "+a)
			c.Note(fmt.Sprintf("%q, %v", is, err))
			if errors.Is(err, errNone) {
				err = c.put(ctx, "disk "+a, "1")
				c.Note(fmt.Sprint("put: ", err))
				for c.Context().Err() != nil { // a dead process that goes on
					_ = c.put(context.Background(), "disk a", "of the dead")
				}
			}
			return err
		}
	})
	s.Steps = func(s *Environment[string], w *shop) {
		comes(s, w)
		w.things["disk a"] = "2"
		s.Event("a")
		s.Advance(time.Minute)
		s.Event("a")
	}
	for fault, want := range map[string]string{
		"call get disk a #1: fails":       `get disk a  <== fails; 0s "", explore: injected fault; 0s a retrying in 1s: explore: injected fault; 1s call get disk a: there is none; `,
		"call get disk a #1: slow":        `get disk a: there is none  <== slow; 9s "", there is none; 9s call put disk a; 9s a succeeded; 9s put: <nil>; `,
		"call get disk a #2: no answer":   `<== no answer; 1m10s "", reconcile: run took longer than its timeout; 1m10s a retrying in 1s: reconcile: run took longer than its timeout; `,
		"call get disk a #3: stale":       `2m0s call get disk a  <== stale; 2m0s "", there is none; `, // the last one that was another
		"call put disk a #1: fails":       `1s call get disk a: there is none; `,
		"call put disk a #1: no answer":   `11s call get disk a; 11s "1", <nil>; 11s a succeeded; `,
		"call put disk a #1: answer lost": `<== answer lost; 0s a retrying in 1s: explore: injected fault; 0s put: explore: injected fault; 1s call get disk a; 1s "1", <nil>; 1s a succeeded; `,
		"call put disk a #1: dies before": `<== dies before; 1s start; 1s call get disk a: there is none; `,
		"call put disk a #1: dies after":  `<== dies after; 1s start; 1s call get disk a; 1s "1", <nil>; 1s a succeeded; `,
		"event a #1: lost":                `0s event a  <== lost; 1m0s event a; `,
		"event a #1: twice":               `0s event a  <== twice; 0s call get disk a: there is none; 0s "", there is none; 0s call put disk a; 0s a succeeded; 0s put: <nil>; 1m0s event a; 1m0s call get disk a; 1m0s "2", <nil>; 1m0s a succeeded; 1m1s event a; `,
		"event a #1: late":                `0s event a  <== late; 1m0s event a; 1m0s call get disk a; 1m0s "2", <nil>; 1m0s a succeeded; 1m1s event a; `,
	} {
		if got := strings.Join(outcomeOf(t, s, fault).journal, "; "); !strings.Contains(got, want) {
			t.Errorf("%s: this happened:\n%s\nwant in it:\n%s", fault, got, want)
		}
	}
}

// Each of two custom faults, of a call and of a request, is found where it is taken for final.
func TestCustomFaults(t *testing.T) {
	full := errors.New("the quota is full")
	for _, fault := range []explore.Fault{"full", "429"} {
		s := plainWith(func(c client) work {
			refuse := http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusTooManyRequests) })
			web := &http.Client{Transport: explore.TransportOr(c.Env, http.NotFoundHandler(), map[explore.Fault]http.Handler{"429": refuse})}
			return func(ctx context.Context, a string) error {
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://quota/", nil)
				if resp, err := web.Do(r); err != nil || resp.StatusCode == http.StatusTooManyRequests {
					return err
				}
				err := c.DoOr(ctx, "put disk "+a, func() error { c.shop.things["disk "+a] = "1"; return nil }, map[explore.Fault]func() error{"full": func() error { return full }})
				if errors.Is(err, full) {
					return nil
				}
				return err
			}
		})
		s.CustomFaults, s.Without = []explore.Fault{fault}, explore.Faults()
		if r := search(t, s); r.Found == nil || len(r.Found.Plan) != 1 || !strings.HasSuffix(r.Found.Plan[0], ": "+string(fault)) {
			t.Errorf("exploring finds %v, want %s alone", r.Found, fault)
		}
	}
}

// Call has no effect that could be lost, but Fail works in a plan as well.
func TestCallInAPlan(t *testing.T) {
	s := plainWith(func(c client) work {
		c.Fail("go", 2, errBoom)
		return func(ctx context.Context, a string) error {
			return errors.Join(c.Call("go"), c.Call("go"))
		}
	})
	o := outcomeOf(t, s)
	want := []string{"0s event a", "0s call go", "0s call go: boom", "0s a retrying in 1s: boom", "1s call go", "1s call go", "1s a succeeded"}
	if !slices.Equal(o.journal, want) {
		t.Errorf("this happened:\n%swant:\n%s", indent(o.journal), indent(want))
	}
}

// Results of one instant are sorted, those of several are not.
func TestJournalIsInOrder(t *testing.T) {
	s := plain()
	s.Start = func(env *Env[string], w *shop) {
		env.Start(&reconcile.Reconciler[string]{Workers: 4, Reconcile: func(_ context.Context, item string) error {
			if time.Since(env.begun) > 20*time.Second {
				return nil
			}
			return reconcile.RequeueAfter(9 * time.Second)
		}})
	}
	s.Steps = func(s *Environment[string], w *shop) {
		s.Event("b")
		s.Event("a")
	}
	want := []string{
		"0s event b", "0s b requeued after 9s", "0s event a", "0s a requeued after 9s",
		"9s a requeued after 9s", "9s b requeued after 9s", "18s a requeued after 9s", "18s b requeued after 9s", "27s a succeeded", "27s b succeeded",
	}
	if o := outcomeOf(t, s); !slices.Equal(o.journal, want) {
		t.Errorf("this happened:\n%swant:\n%s", indent(o.journal), indent(want))
	}
}

func TestAnEventToNobody(t *testing.T) {
	s := plain()
	s.Steps = func(s *Environment[string], w *shop) {
		comes(s, w)
		s.Event("a")
		s.Advance(500 * time.Millisecond)
		s.Event("a")
		s.Advance(time.Minute)
	}
	o := outcomeOf(t, s, "call want a #2: dies before")
	if want := "1m0.5s event a: no process is running"; !slices.Contains(o.journal, want) {
		t.Errorf("want %q in the journal:\n%s", want, indent(o.journal))
	}
}

// Each way in which a plan fails.
func TestOracles(t *testing.T) {
	idle := func(client) work { return func(context.Context, string) error { return nil } }
	for name, test := range map[string]struct {
		change func(*Scenario[string, *shop])
		want   string // so the failure begins; "" for none
	}{
		"nothing": {func(*Scenario[string, *shop]) {}, ""},
		"Final": {func(s *Scenario[string, *shop]) {
			s.Final = func(w *shop) error { return fmt.Errorf("there is %q", w.state()) }
		}, `Final: there is "disk a = 1\n"`},
		"no State": {func(s *Scenario[string, *shop]) {
			s.State, s.Final = nil, func(*shop) error { return nil }
		}, ""},
		"Final instead of the same State": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error {
					_, err := c.add(ctx, "disk "+a)
					return err
				}
			})
			s.Final = func(*shop) error { return nil }
		}, ""},
		"Invariant after a change by Steps": {func(s *Scenario[string, *shop]) {
			s.Steps = func(s *Environment[string], w *shop) {
				w.wrong = errBoom
				s.Advance(time.Second)
				w.wrong = nil
			}
		}, "Invariant: boom"},
		"Invariant at the end": {func(s *Scenario[string, *shop]) {
			s.Steps = func(s *Environment[string], w *shop) { s.Event("a"); w.wrong = errBoom }
		}, "Invariant: boom"},
		"no rest": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(client) work {
				return func(context.Context, string) error { return reconcile.RecheckWithin(10 * time.Millisecond) }
			})
			s.Within = 2 * time.Minute
		}, "it does not stay at rest: there are 5001 runs and calls in 50.01s in which nothing changes"},
		"hardly any rest": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error {
					if err := asDesired(c)(ctx, a); err != nil {
						return err
					}
					return reconcile.RecheckWithin(time.Second)
				}
			})
			s.Within, s.Without = 30*time.Minute, []explore.Fault{explore.Lost, explore.Outage, explore.Blackout}
		}, ""},
		"no rest at an instant": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(client) work {
				return func(context.Context, string) error { return reconcile.RequeueWithin(0) }
			})
		}, "it does not come to rest: there are more than 5000 runs and calls at one instant"},
		"no end of changes": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error {
					_ = c.put(ctx, "disk "+a, time.Since(c.begun).String())
					return reconcile.RecheckWithin(10 * time.Minute)
				}
			})
		}, "it does not converge: 1h0m0s after the last fault, or the end of Steps, the world changes"},
		"work that is left": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error {
					return cmp.Or(asDesired(c)(ctx, a), reconcile.RequeueWithin(10*time.Second))
				}
			})
		}, "it does not converge: 1h0m0s after the last fault, or the end of Steps, a waiting until 1h4m40s"},
		"a run that hangs": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error { <-c.ctx.Done(); return nil }
			})
		}, "it does not converge: 1h0m0s after the last fault, or the end of Steps, a in flight"},
		"a change that comes by itself": {func(s *Scenario[string, *shop]) {
			s.Steps = func(s *Environment[string], w *shop) {
				comes(s, w)
				time.AfterFunc(25*time.Minute, func() { w.ready.Store(true) }) // in a goroutine of the world's own
			}
			s.State = func(w *shop) string { return fmt.Sprint(w.things, w.ready.Load()) }
		}, ""},
		"an event without a run": {func(s *Scenario[string, *shop]) {
			start := startWith(idle)
			var queues sync.Map // by world
			s.Start = func(env *Env[string], w *shop) {
				queues.Store(w, env.Queue)
				env.Go(reconcile.RunFunc(func(ctx context.Context) error {
					for ctx.Err() == nil {
						env.Queue.Remove("b")
						time.Sleep(time.Second)
					}
					return nil
				}))
				start(env, w)
			}
			s.Steps = func(s *Environment[string], w *shop) {
				s.Event("a")
				s.Advance(time.Minute)
				queue, _ := queues.Load(w)
				queue.(*reconcile.Queue[string]).EnqueueAfter("b", time.Hour) // so that the event is not run at once
				s.Event("b")
			}
		}, "it does not converge: 1h0m0s after the last fault, or the end of Steps, no run followed the event b of 1m0s"},
		"an event of another queue": {func(s *Scenario[string, *shop]) {
			start := s.Start
			s.Start = func(env *Env[string], w *shop) {
				env.Events = reconcile.Filter(env.Queue, func(item string) bool { return item != "b" })
				start(env, w)
			}
			s.Steps = func(s *Environment[string], w *shop) { s.Event("b"); comes(s, w) }
		}, ""},
		"an error of a runner": {func(s *Scenario[string, *shop]) {
			s.Start = func(env *Env[string], w *shop) {
				env.Go(reconcile.RunFunc(func(context.Context) error { return errBoom }))
			}
		}, "reconcile.RunFunc: Run = boom, want nil"},
		"a runner that stays": {func(s *Scenario[string, *shop]) {
			start := s.Start
			s.Start = func(env *Env[string], w *shop) {
				start(env, w)
				env.Go(reconcile.RunFunc(func(context.Context) error { select {} }))
			}
		}, "goroutines are left: Start or a function of Process.Go has not returned 1h0m0s after the process was ended:\ngoroutine "},
		"a goroutine that stays": {func(s *Scenario[string, *shop]) {
			start := s.Start
			s.Start = func(env *Env[string], w *shop) {
				start(env, w)
				go func() {
					for {
						time.Sleep(time.Second)
					}
				}()
			}
		}, "goroutines are left that wait for ever (deadlock: main bubble goroutine has exited but blocked goroutines remain):\ngoroutine "},
		"Steps that blocks": {func(s *Scenario[string, *shop]) {
			s.Start, s.Steps = func(*Env[string], *shop) {}, func(*Environment[string], *shop) { select {} }
		}, "the scenario waits for ever (deadlock: all goroutines in bubble are blocked):\ngoroutine "},
		"a call in a call": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error {
					return c.Do(ctx, "do", func() error { return c.put(ctx, "disk "+a, "1") })
				}
			})
		}, ""},
		"an invariant": {func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, a string) error { return c.remove(ctx, "disk "+a) }
			})
		}, "Invariant: disk a is removed, although desired"},
		"nothing to disturb": {func(s *Scenario[string, *shop]) {
			s.Start, s.Steps = startWith(idle), func(*Environment[string], *shop) {}
		}, "the controller makes no call by Do, Read or Transport, so there is nothing to inject a fault into"},
		"not twice the same": {func(s *Scenario[string, *shop]) {
			plays := 0
			s.Steps = func(s *Environment[string], w *shop) { plays++; w.things["far play"] = fmt.Sprint(plays) }
		}, "two plays without any fault end in another state:\n- far play = 1  (first play)\n+ far play = 2"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := plain()
			s.Without, s.Plans = []explore.Fault{explore.Lost}, 1
			test.change(&s)
			f := search(t, s).Found
			switch {
			case f == nil && test.want != "":
				t.Errorf("exploring finds nothing, want %q", test.want)
			case f != nil && (test.want == "" || !strings.HasPrefix(f.Failure, test.want)):
				t.Errorf("exploring finds something, want %q:\n%s", test.want, f.String())
			}
		})
	}
}

// startWith is a Start that lists nothing, and has work.
func startWith(controller func(client) work) func(env *Env[string], w *shop) {
	return func(env *Env[string], w *shop) {
		env.Start(&reconcile.Reconciler[string]{Reconcile: controller(client{env, w}), Timeout: 24 * time.Hour})
		for _, item := range w.items() {
			env.Queue.Enqueue(item)
		}
	}
}

// Nothing that the scenario does ends the test program.
func TestPanics(t *testing.T) {
	boom := func() { panic("boom") }
	for want, change := range map[string]func(*Scenario[string, *shop]){
		"the scenario panicked: boom\n": func(s *Scenario[string, *shop]) { s.World = func() *shop { panic("boom") } },
		"Start panicked: boom\n":        func(s *Scenario[string, *shop]) { s.Start = func(*Env[string], *shop) { boom() } },
		"the scenario panicked: boom\ngo": func(s *Scenario[string, *shop]) {
			s.Steps = func(s *Environment[string], _ *shop) { s.Advance(time.Second); boom() }
		},
		"the scenario panicked: boom\ngor": func(s *Scenario[string, *shop]) { s.State = func(*shop) string { panic("boom") } },
		"the scenario panicked: boom\ngoro": func(s *Scenario[string, *shop]) { // after Steps
			s.Steps = func(_ *Environment[string], w *shop) { w.ready.Store(true) }
			s.Invariant = func(w *shop) error {
				if w.ready.Load() {
					boom()
				}
				return nil
			}
		},
		"the scenario panicked: boom\ngorou": func(s *Scenario[string, *shop]) { s.Final = func(*shop) error { panic("boom") } },
		"Close panicked: boom\n":             func(s *Scenario[string, *shop]) { s.Close = func(*shop) { boom() } },
		"call fall panicked: boom\n": func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, _ string) error {
					return c.Do(ctx, "fall", func() error { panic("boom") })
				}
			})
		},
		"the run of a panicked: boom\n": func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work { return func(context.Context, string) error { panic("boom") } })
		},
		"what Go started panicked: boom\n": func(s *Scenario[string, *shop]) {
			s.Start = func(env *Env[string], _ *shop) {
				env.Go(reconcile.RunFunc(func(context.Context) error { panic("boom") }))
			}
		},
		"GetItems panicked: boom\n": func(s *Scenario[string, *shop]) {
			s.Start = func(env *Env[string], w *shop) {
				env.Go(&reconcile.Poller[string]{Queue: env.Queue, Period: time.Hour, GetItems: func(context.Context) ([]string, error) { panic("boom") }})
			}
		},
		"Start panicked: reconciletest: Advance is called in a process of Explore; what happens is up to Steps and its Environment\n": func(s *Scenario[string, *shop]) {
			s.Start = func(env *Env[string], _ *shop) { env.Advance(time.Second) }
		},
		"the scenario called runtime.Goexit": func(s *Scenario[string, *shop]) { s.Steps = func(*Environment[string], *shop) { runtime.Goexit() } },
		"Start called runtime.Goexit":        func(s *Scenario[string, *shop]) { s.Start = func(*Env[string], *shop) { runtime.Goexit() } },
		"call fall called runtime.Goexit": func(s *Scenario[string, *shop]) {
			s.Start = startWith(func(c client) work {
				return func(ctx context.Context, _ string) error {
					return c.Do(ctx, "fall", func() error { runtime.Goexit(); return nil })
				}
			})
		},
	} {
		s := plain()
		change(&s)
		f := search(t, s).Found
		if f == nil || !strings.HasPrefix(f.Failure, want) {
			t.Errorf("exploring finds %v, want %q", f, want)
		}
	}
}

// Controllers and worlds in which nothing is wrong, though much goes on.
func TestNoFalseAlarm(t *testing.T) {
	many := func(s *Environment[string], w *shop) {
		for _, item := range []string{"a", "b", "c", "d", "e", "f"} {
			w.want(item, "1")
			s.Event(item)
		}
		s.Advance(0)
		s.Event("b")
	}
	for name, test := range map[string]struct {
		play       func(*Environment[string], *shop)
		controller func(client) work
	}{
		"many items": {many, asDesired},
		"no time":    {func(s *Environment[string], w *shop) { w.want("a", "1"); s.Event("a") }, asDesired},
		"a long time": {func(s *Environment[string], w *shop) {
			comes(s, w)
			s.Advance(10 * time.Hour)
			grows(s, w)
		}, asDesired},
		"effects that take time": {comes, func(c client) work {
			return func(ctx context.Context, a string) error {
				err := c.Do(ctx, "wait "+a, func() error { time.Sleep(3 * time.Second); return nil })
				return errors.Join(err, asDesired(c)(ctx, a))
			}
		}},
		"runs that take time": {many, func(c client) work {
			return func(ctx context.Context, a string) error {
				select {
				case <-time.After(7 * time.Second):
				case <-ctx.Done():
				}
				return asDesired(c)(ctx, a)
			}
		}},
		"calls within a run at once": {comes, func(c client) work {
			return func(ctx context.Context, a string) error {
				errs := make(chan error, 3)
				for _, disk := range []string{"1", "2", "3"} {
					go func() { errs <- c.put(ctx, "disk"+disk+" "+a, "") }()
				}
				return errors.Join(<-errs, <-errs, <-errs)
			}
		}},
		"a look beyond the end": {comes, func(c client) work {
			return func(ctx context.Context, a string) error {
				return cmp.Or(asDesired(c)(ctx, a), reconcile.RecheckWithin(5*time.Hour))
			}
		}},
		"polls of a slow process": {grows, func(c client) work {
			return func(ctx context.Context, a string) error {
				if time.Since(c.begun)%time.Minute != 0 {
					return cmp.Or(asDesired(c)(ctx, a), reconcile.RequeueWithin(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))))
				}
				return asDesired(c)(ctx, a)
			}
		}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			s := setting{play: test.play, plans: 60}.scenario(test.controller)
			r := search(t, s)
			if f := r.Found; f != nil {
				t.Errorf("exploring finds something:\n%s", f.String())
			}
			t.Log(r)
		})
	}
}

// What stands around a reconciler hides nothing: one that is watched has its runs in the
// journal, and of one that is not, in a Group, no run is missed.
func TestWhatStandsAroundAReconciler(t *testing.T) {
	ready := func(ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() }
	for name, start := range map[string]func(env *Env[string], r *reconcile.Reconciler[string]){
		"After": func(env *Env[string], r *reconcile.Reconciler[string]) {
			env.Start(supervise.After(ready, env.Watch(r)))
		},
		"Restart": func(env *Env[string], r *reconcile.Reconciler[string]) {
			env.Start(supervise.Restart(nil, env.Watch(r)))
		},
		"Group": func(env *Env[string], r *reconcile.Reconciler[string]) {
			group := &supervise.Group{}
			group.Add("disks", env.Watch(r))
			env.Go(group)
		},
		"a Group without Watch": func(env *Env[string], r *reconcile.Reconciler[string]) {
			r.Queue, r.Retry = env.Queue, retry
			group := &supervise.Group{}
			group.Add("disks", r)
			env.Go(group)
		},
	} {
		s := plain()
		s.Without, s.Plans = []explore.Fault{explore.Lost}, 60
		s.Start = func(env *Env[string], w *shop) {
			start(env, &reconcile.Reconciler[string]{Reconcile: asDesired(client{env, w}), Timeout: 10 * time.Second, RecheckJitter: 0.5})
			for _, item := range w.items() {
				env.Queue.Enqueue(item)
			}
		}
		if f := search(t, s).Found; f != nil {
			t.Errorf("%s: exploring finds something:\n%s", name, f)
		}
		s.Replay = []string{}
		journal := search(t, s).Journal()
		watched := slices.ContainsFunc(journal, func(line string) bool { return strings.HasSuffix(line, " a succeeded") })
		if watched != (name != "a Group without Watch") {
			t.Errorf("%s: that the journal has the run is %t:\n%s", name, watched, indent(journal))
		}
	}
}

// What a fault does is waited for, if that is longer than Within.
func TestALateEventWithinAMinute(t *testing.T) {
	s := plain()
	s.Without, s.Within, s.Plans = []explore.Fault{explore.Lost, explore.Outage, explore.Blackout}, time.Minute, 60 // retries come up to five minutes later
	s.Steps = func(s *Environment[string], w *shop) {
		w.want("a", "1")
		s.Event("a")
	}
	if f := search(t, s).Found; f != nil {
		t.Errorf("exploring finds something:\n%s", f.String())
	}
}

// busy is a scenario with several workers, items and pollers, and faults in all.
func busy() Scenario[string, *shop] {
	return Scenario[string, *shop]{
		World: func() *shop {
			return &shop{desired: map[string]string{"a": "1", "b": "2"}, things: map[string]string{}}
		},
		Start: func(env *Env[string], w *shop) {
			c := client{env, w}
			env.Start(&reconcile.Reconciler[string]{Reconcile: asDesired(c), Timeout: 5 * time.Second, Workers: 3, Retry: reconcile.DefaultRetry})
			env.Start(&reconcile.Reconciler[string]{Reconcile: asDesired(c), Timeout: 5 * time.Second, Retry: reconcile.DefaultRetry})
			for _, list := range []string{"list", "other list"} {
				env.Go(&reconcile.Poller[string]{Name: list, Queue: env.Queue, Period: 10 * time.Minute, Jitter: 0.5, GetItems: func(ctx context.Context) ([]string, error) {
					return Read(ctx, env, list, func() ([]string, error) { return w.items(), nil })
				}})
			}
			env.Go(reconcile.Feed(env.Queue, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
				q.Enqueue("b")
				<-ctx.Done()
				return nil
			}))
		},
		Steps: func(s *Environment[string], w *shop) {
			for _, item := range []string{"a", "b"} {
				s.Event(item)
			}
			s.Advance(time.Minute)
			w.want("b", "4")
			s.Event("b")
		},
		State:  (*shop).state,
		Within: 20 * time.Minute,
		Plans:  200,
	}
}

// The same plan gives the same journal on any number of processors, though workers,
// reconcilers and pollers have no order, and their delays are drawn. Two pollers of one
// period drift apart all the same.
func TestSamePlanSameJournal(t *testing.T) {
	for _, faults := range [][]string{
		{},
		{"call get disk a #1: slow", "call put disk b #1: dies after"},
		{"event b #1: late", "call want a #2: fails", "call list #2: answer lost"},
		{"call want b #1: blackout"},
	} {
		first := ""
		for i := range 20 {
			was := runtime.GOMAXPROCS([]int{1, 2, 4}[i%3])
			journal := outcomeOf(t, busy(), faults...).journal
			runtime.GOMAXPROCS(was)
			text := strings.Join(journal, "\n")
			if first == "" {
				first = text
			}
			if text != first {
				t.Fatalf("the plan %q has once the journal\n%s\nand once\n%s", faults, first, text)
			}
		}
		polls := regexp.MustCompile(`(?m)^(\S+) call (other )?list$`).FindAllStringSubmatch(first, -1)
		if len(faults) == 0 && (len(polls) < 4 || polls[2][1] == polls[3][1]) {
			t.Errorf("the pollers poll at %q, want the second polls apart", polls)
		}
	}
}

// Of many events that no run has followed, a failure names the same one each time.
func TestSameEventIsNamed(t *testing.T) {
	for range 10 {
		s := plain()
		s.Start = func(env *Env[string], _ *shop) {
			env.Go(reconcile.RunFunc(func(ctx context.Context) error {
				for {
					item, err := env.Queue.Dequeue(ctx)
					if err != nil {
						return nil
					}
					env.Queue.Done(item)
					env.plan.begin("another") // so that all runs are known
				}
			}))
		}
		s.Steps = func(s *Environment[string], _ *shop) {
			for item := range strings.SplitSeq("hgfedcba", "") {
				s.Event(item)
			}
			s.Advance(time.Minute)
		}
		if o := outcomeOf(t, s); !strings.Contains(o.failure, "no run followed the event a of 0s") {
			t.Errorf("the plan fails with %q, want the event a", o.failure)
		}
	}
}

// TestFailedListsHaveNoChance plays lists that fail again and again: a Poller and a
// Tracker try again at the same instants each time.
func TestFailedListsHaveNoChance(t *testing.T) {
	play := func() string {
		r, err := explore.Search(t, Scenario[string, *atomic.Int32]{
			World: func() *atomic.Int32 { return new(atomic.Int32) }, // how often lists have failed
			Start: func(env *Env[string], failed *atomic.Int32) {
				list := func(ctx context.Context, name string) (map[string]int, error) {
					all, err := Read(ctx, env, name, func() (map[string]int, error) { return map[string]int{"a": 1, "b": 1, "c": 1}, nil })
					if err != nil {
						failed.Add(1)
					}
					return all, err
				}
				env.Start(&reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return nil }})
				env.Go(&reconcile.Poller[string]{Queue: env.Queue, Period: 10 * time.Minute, GetItems: func(ctx context.Context) ([]string, error) {
					all, err := list(ctx, "poll")
					return slices.Sorted(maps.Keys(all)), err
				}})
				env.Go(&tracker.Tracker[string, int]{Queue: env.Queue, Period: 10 * time.Minute, List: tracker.FromMap(func(ctx context.Context) (map[string]int, error) {
					return list(ctx, "list")
				})})
			},
			Steps: func(s *Environment[string], _ *atomic.Int32) { s.Advance(time.Hour) },
			Final: func(failed *atomic.Int32) error {
				if failed.Load() > 10 {
					return errors.New("so there is a journal to see")
				}
				return nil
			},
			Replay: []string{"call list #1: outage", "call poll #1: outage"},
		}.Untyped())
		if err != nil || r.Found == nil {
			t.Fatalf("the plan gives %v, %v", r, err)
		}
		return strings.Join(r.Found.Journal, "\n")
	}
	first := play()
	for range 20 {
		if again := play(); again != first {
			t.Fatalf("the journals differ:\n%s\n\n%s", first, again)
		}
	}
}
