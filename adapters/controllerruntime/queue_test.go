// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/controllerruntime"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	"github.com/reconkernel/reconcile/explore/kubesim/manager"
	"github.com/reconkernel/reconcile/statuspage"
)

// A copier keeps a Secret as each ConfigMap, in a Manager as it is.
type copier struct{ client.Client }

func (c *copier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: cm.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, c.Client, secret, func() error {
		secret.Data = map[string][]byte{"text": []byte(cm.Data["text"])}
		return controllerutil.SetControllerReference(&cm, secret, c.Scheme())
	})
	return ctrl.Result{RequeueAfter: 10 * time.Minute}, err
}

func configMap(name, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"text": text}}
}

// With this queue a controller converges after every fault that it survives with its own.
func TestManagerConvergesWithTheQueue(t *testing.T) {
	for _, fair := range []func(ctrl.Request) string{nil, func(r ctrl.Request) string { return r.Name }} {
		kubesim.Explore(t, kubesim.Scenario{
			Start: manager.Start(ctrl.Options{Scheme: clientscheme.Scheme}, func(m ctrl.Manager) error {
				queue := controllerruntime.Queue[ctrl.Request]{Fair: fair}
				return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
					WithOptions(controller.Options{NewQueue: queue.NewQueue, MaxConcurrentReconciles: 2}).
					Complete(queue.Reconciler(&copier{m.GetClient()}))
			}),
			Steps: func(s *kubesim.Environment) {
				a := configMap("a", "1")
				s.Create(a)
				s.Advance(time.Minute)
				kubesim.Update(s.Server, a, func(cm *corev1.ConfigMap) { cm.Data["text"] = "2" })
				s.Create(configMap("b", "1"))
				s.Advance(time.Minute)
				s.Delete(a)
			},
			Plans: 100,
		})
	}
}

// A complainer writes each failure into its object, which comes back as an event.
type complainer struct{ client.Client }

func (c *complainer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &cm); err != nil || cm.Data["quota"] != "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cm.Data["text"] += "."
	return ctrl.Result{}, errors.Join(errors.New("the quota is used up"), c.Update(ctx, &cm))
}

// A failure that is written into the object is no hot loop.
func TestFailureIsNotAHotLoop(t *testing.T) {
	r, err := kubesim.Search(t, kubesim.Scenario{
		Start: manager.Start(ctrl.Options{Scheme: clientscheme.Scheme}, func(m ctrl.Manager) error {
			var queue controllerruntime.Queue[ctrl.Request]
			return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).
				WithOptions(controller.Options{NewQueue: queue.NewQueue}).Complete(&complainer{m.GetClient()})
		}),
		Steps: func(s *kubesim.Environment) {
			a := configMap("a", "")
			s.Create(a)
			s.Advance(time.Minute)
			kubesim.Update(s.Server, a, func(cm *corev1.ConfigMap) { cm.Data["quota"] = "more" })
		},
		Replay: []string{},
	})
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, line := range r.Journal() {
		if strings.Contains(line, "call update configmaps") {
			runs++
		}
	}
	if r.Found != nil || runs < 10 || runs > 80 {
		t.Errorf("%d runs fail within a minute, want 10 to 80; exploring finds %v", runs, r.Found)
	}
}

// A beater writes the time of each run into its object, which comes back as an event.
type beater struct{ client.Client }

func (b *beater) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := b.Get(ctx, req.NamespacedName, &cm); err != nil || cm.Data["text"] == "stop" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	time.Sleep(time.Second)
	cm.Data["text"] = time.Now().String()
	return ctrl.Result{}, b.Update(ctx, &cm)
}

// Objects that are there when the process starts come to a run, although the worker never
// has a rest from the events of the first of them.
func TestObjectsOfTheFirstListDoNotStarve(t *testing.T) {
	start := manager.Start(ctrl.Options{Scheme: clientscheme.Scheme}, func(m ctrl.Manager) error {
		var queue controllerruntime.Queue[ctrl.Request]
		return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{NewQueue: queue.NewQueue}).Complete(&beater{m.GetClient()})
	})
	r, err := kubesim.Search(t, kubesim.Scenario{
		Start: func(proc *explore.Process, cfg *rest.Config) kubesim.Runner {
			r := start(proc, cfg)
			return reconcile.RunFunc(func(ctx context.Context) error {
				time.Sleep(time.Second) // until the objects are there
				return r.Run(ctx)
			})
		},
		Steps: func(s *kubesim.Environment) {
			all := []*corev1.ConfigMap{configMap("a", ""), configMap("b", ""), configMap("c", "")}
			for _, cm := range all {
				s.Create(cm)
			}
			s.Advance(time.Minute)
			for _, cm := range all {
				kubesim.Update(s.Server, cm, func(cm *corev1.ConfigMap) { cm.Data["text"] = "stop" })
			}
		},
		Replay: []string{},
	})
	if err != nil || r.Found != nil {
		t.Fatal(r.Found, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if !slices.ContainsFunc(r.Journal(), func(line string) bool { return strings.HasSuffix(line, "call update configmaps default/"+name) }) {
			t.Errorf("%s has no run within a minute", name)
		}
	}
}

// A queueOf is a queue as a controller has it, with a rate limiter that says 10 seconds.
func queueOf[T comparable](q *controllerruntime.Queue[T]) priorityqueue.PriorityQueue[T] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[T](10*time.Second, 10*time.Second)
	return q.NewQueue("test", limiter).(priorityqueue.PriorityQueue[T])
}

// Events that come as fast as they are handled leave room for one of eight of the others.
func TestItemsOfLowPriorityDoNotStarve(t *testing.T) {
	for name, fair := range map[string]func(string) string{"one line": nil, "keys": func(string) string { return "" }} {
		var queue controllerruntime.Queue[string]
		queue.Fair = fair
		q := queueOf(&queue)
		low := -100
		q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "listed")
		for i := range 20 {
			q.Add(fmt.Sprint(i))
		}
		took := 0
		for item := ""; item != "listed" && took < 20; took++ {
			item, _ = q.Get()
			q.Add(item)
			q.Forget(item)
			q.Done(item)
		}
		if took < 2 || took > 9 {
			t.Errorf("%s: the item of the list is the %dth, want one of 2 to 9", name, took)
		}
		q.ShutDown()
	}
}

// The keys take turns, whatever the number of their items.
func TestKeysTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queue := controllerruntime.Queue[string]{Fair: func(item string) string { return item[:1] }}
		q := queueOf(&queue)
		for i := range 100 {
			q.Add(fmt.Sprint("a", i))
		}
		for _, item := range []string{"b0", "b1", "c0"} {
			synctest.Wait() // the lines wait in the order in which they began
			q.Add(item)
		}
		synctest.Wait()
		q.Add("a0") // while it waits for its turn: its run, which comes, is enough
		var got []string
		for range 7 {
			item, _ := q.Get()
			synctest.Wait()
			q.Forget(item)
			q.Done(item)
			got = append(got, item)
		}
		if want := []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}; !slices.Equal(got, want) {
			t.Errorf("the items are %q, want %q", got, want)
		}
		before := queue.Stats()
		for range 96 {
			item, _ := q.Get()
			q.Forget(item)
			q.Done(item)
		}
		if s := queue.Stats(); s.Taken < before.Taken || s.Ready+s.Waiting+s.InFlight != 0 {
			t.Errorf("the counts at the end are %+v, and before that %+v", s, before)
		}
		// No ShutDown: the bubble ends only if each line has ended with its last item.
	})
}

// A run tells the queue whether its item is in sync, and why not.
func TestStateAfterARun(t *testing.T) {
	boom := errors.New("the quota is used up")
	for _, c := range []struct {
		name    string
		result  ctrl.Result
		err     error
		unknown bool // without Queue.Reconciler
		outcome reconcile.Outcome
		failing int
		recheck bool
		wait    time.Duration
		text    string // of State.Err
	}{
		{name: "success", outcome: reconcile.OutcomeSucceeded},
		{name: "failure", err: boom, outcome: reconcile.OutcomeRetrying, failing: 1, wait: 10 * time.Second, text: boom.Error()},
		{name: "failure of an unknown cause", err: boom, unknown: true, outcome: reconcile.OutcomeRetrying, failing: 1, wait: 10 * time.Second, text: "controllerruntime: the run failed; only Queue.Reconciler knows why"},
		{name: "short wait", result: ctrl.Result{RequeueAfter: time.Minute}, outcome: reconcile.OutcomeRequeued, wait: time.Minute},
		{name: "recheck", result: ctrl.Result{RequeueAfter: time.Hour}, outcome: reconcile.OutcomeSucceeded, recheck: true, wait: time.Hour},
		//lint:ignore SA1019 controller-runtime still has it
		{name: "Requeue", result: ctrl.Result{Requeue: true}, outcome: reconcile.OutcomeRequeued, wait: 10 * time.Second, text: "controllerruntime: the reconciler asked for another run"},
		{name: "terminal error", err: ctrlreconcile.TerminalError(boom), outcome: reconcile.OutcomeTerminal, failing: 1},
		{name: "terminal error of an unknown cause", err: ctrlreconcile.TerminalError(boom), unknown: true, outcome: reconcile.OutcomeTerminal, failing: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var results []reconcile.Result[ctrl.Request]
			queue := controllerruntime.Queue[ctrl.Request]{OnResult: func(r reconcile.Result[ctrl.Request]) { results = append(results, r) }}
			r := ctrlreconcile.TypedReconciler[ctrl.Request](ctrlreconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) {
				time.Sleep(time.Second)
				return c.result, c.err
			}))
			if !c.unknown {
				r = queue.Reconciler(r)
			}
			q := make(chan priorityqueue.PriorityQueue[ctrl.Request], 1)
			skip := true
			ctl, err := controller.NewUnmanaged("test", controller.Options{
				Reconciler: r, SkipNameValidation: &skip,
				RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](10*time.Second, 10*time.Second),
				NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
					made := queue.NewQueue(name, limiter)
					q <- made.(priorityqueue.PriorityQueue[ctrl.Request])
					return made
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- ctl.Start(ctx) }()
			item, began := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: "a"}}, time.Now()
			(<-q).Add(item)
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			s := queue.State(item)
			text := ""
			if s.Err != nil {
				text = s.Err.Error()
			}
			due := time.Duration(0)
			if s.Phase == reconcile.PhaseWaiting {
				due = s.Due.Sub(began) - time.Second
			}
			outOfSync := c.wait > 0 && !c.recheck
			if due != c.wait || s.Recheck != c.recheck || outOfSync != (s.Pending == began) || text != c.text && !strings.HasPrefix(text, c.text+": ") || c.text == "" && text != "" {
				t.Errorf("%s: the state is %+v", c.name, s)
			}
			if len(results) != 1 || results[0].Outcome != c.outcome || results[0].Failures != c.failing || results[0].Duration != time.Second || results[0].Next != c.wait {
				t.Errorf("%s: the results are %+v, want %s", c.name, results, c.outcome)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// The status page has the reason of an item that is out of sync, and a metric its age.
func TestAgeAndReasonAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue controllerruntime.Queue[string]
		q := queueOf(&queue)
		r := queue.Reconciler(ctrlreconcile.TypedFunc[string](func(context.Context, string) (ctrl.Result, error) {
			return ctrl.Result{}, errors.New("the quota is used up")
		}))
		var metrics promadapter.Collector
		if err := errors.Join(metrics.AddQueue("pods", &queue), promadapter.AddPending(&metrics, "pods", &queue)); err != nil {
			t.Fatal(err)
		}
		page := statuspage.New(&statuspage.Loop[string]{Name: "pods", Queue: &queue})
		q.Add("a")
		for range 6 {
			item, _ := q.Get()
			if _, err := r.Reconcile(t.Context(), item); err != nil {
				q.AddRateLimited(item)
			}
			q.Done(item)
		}
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest("GET", "http://localhost/item.json?queue=pods&item=a", nil))
		if text := answer.Body.String(); !strings.Contains(text, "the quota is used up") {
			t.Errorf("the page says %s", text)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(&metrics)
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		age := 0.0
		for _, f := range families {
			if f.GetName() == "reconcile_oldest_pending_seconds" {
				age = f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		if age != 50 {
			t.Errorf("the oldest item is out of sync for %v s, want 50", age)
		}
		q.ShutDown()
	})
}

// When an item is handed out again, after what happened at the beginning of a run of 10 s, or
// after it.
func TestNextRun(t *testing.T) {
	type queues = struct {
		priorityqueue.PriorityQueue[string]
		*controllerruntime.Queue[string]
	}
	low := -100
	fails := func(q queues) { q.AddRateLimited("a") } // the limiter says 10 s
	succeeds := func(q queues) { q.Forget("a") }
	nothing := func(queues) {}
	for _, c := range []struct {
		name               string
		during, ends, then func(q queues) // then is 100 ms later
		after              time.Duration  // from the end of the run; -1 is never
	}{
		{"nothing", nothing, succeeds, nothing, -1},
		{"an event during the run", func(q queues) { q.Add("a") }, succeeds, nothing, 0},
		{"an event of low priority during the run", func(q queues) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "a") }, succeeds, nothing, 0},
		{"a delayed event during the run", func(q queues) { q.AddAfter("a", time.Minute) }, succeeds, nothing, 50 * time.Second},
		{"two delayed events during the run", func(q queues) { q.AddAfter("a", time.Minute); q.AddAfter("a", time.Hour) }, succeeds, nothing, 50 * time.Second},
		{"a delayed event during a run that fails", func(q queues) { q.AddAfter("a", 15*time.Second) }, fails, nothing, 5 * time.Second},
		{"a delayed event before a RequeueAfter", func(q queues) { q.AddAfter("a", time.Minute) }, func(q queues) { q.Forget("a"); q.AddAfter("a", time.Hour) }, nothing, 50 * time.Second},
		{"a failure", nothing, fails, nothing, 10 * time.Second},
		{"an event during a run that fails", func(q queues) { q.Add("a") }, fails, nothing, time.Second},
		{"an event after a failure", nothing, fails, func(q queues) { q.Add("a") }, time.Second},
		{"an event of low priority after a failure", nothing, fails, func(q queues) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "a") }, time.Second},
		{"EnqueueNow after a failure", nothing, fails, func(q queues) { q.EnqueueNow("a") }, 100 * time.Millisecond},
		{"Remove after a failure", nothing, fails, func(q queues) { q.Remove("a") }, -1},
		{"RequeueAfter", nothing, func(q queues) { q.Forget("a"); q.AddAfter("a", time.Hour) }, nothing, time.Hour},
		{"an event after RequeueAfter", nothing, func(q queues) { q.Forget("a"); q.AddAfter("a", time.Hour) }, func(q queues) { q.Add("a") }, 100 * time.Millisecond},
		{"a resync after RequeueAfter", nothing, func(q queues) { q.Forget("a"); q.AddAfter("a", time.Minute) }, func(q queues) { q.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, "a") }, 100 * time.Millisecond},
		{"a delayed event at rest", nothing, succeeds, func(q queues) { q.AddAfter("a", time.Minute) }, 100*time.Millisecond + time.Minute},
		{"an event that is limited at rest", nothing, succeeds, func(q queues) { q.AddRateLimited("a") }, 100*time.Millisecond + 10*time.Second},
		{"an event after a terminal error", nothing, nothing, func(q queues) { q.Add("a") }, 100 * time.Millisecond},
	} {
		for _, fair := range []func(string) string{nil, func(item string) string { return item }} {
			synctest.Test(t, func(t *testing.T) {
				queue := &controllerruntime.Queue[string]{Fair: fair}
				q := queues{queueOf(queue), queue}
				q.Add("a")
				q.Get()
				c.during(q)
				time.Sleep(10 * time.Second)
				c.ends(q)
				q.PriorityQueue.Done("a")
				ended, again := time.Now(), make(chan time.Duration, 1)
				go func() {
					if _, shutdown := q.Get(); !shutdown {
						again <- time.Since(ended)
					}
					close(again)
				}()
				time.Sleep(100 * time.Millisecond)
				c.then(q)
				time.Sleep(2 * time.Hour)
				q.ShutDown()
				if got, ok := <-again; ok != (c.after >= 0) || ok && got != c.after {
					t.Errorf("%s: the next run comes after %v (%t), want %v", c.name, got, ok, c.after)
				}
			})
		}
	}
}

// A mine panics with itself when it is printed, which fmt does not survive.
type mine int

func (m mine) Error() string { panic(m) }

// OnResult has the results of an item in the order of its runs. A panic in it is logged, if
// it can be.
func TestOnResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var results []reconcile.Result[string]
		queue := controllerruntime.Queue[string]{OnResult: func(r reconcile.Result[string]) {
			if len(results) == 0 {
				time.Sleep(time.Second)
			}
			if results = append(results, r); len(results) == 2 {
				panic(mine(2))
			}
			panic("the page is full")
		}}
		q := queueOf(&queue)
		q.Add("a")
		q.Get()
		q.Add("a")
		q.Forget("a")
		go q.Done("a")
		q.Get()
		time.Sleep(time.Minute)
		q.AddRateLimited("a") // an event: the run succeeds
		q.Forget("a")
		q.Done("a")
		if len(results) != 2 || results[0].Duration != 0 || results[1].Duration != time.Minute || results[1].Outcome != reconcile.OutcomeRequeued {
			t.Errorf("the results are %+v, want a run of 0 s, and then one of a minute that is requeued", results)
		}
		q.ShutDown()
	})
}

// Neither a key that changes nor a controller without a RateLimiter makes a worker panic.
func TestQueueWithBadInput(t *testing.T) {
	calls := 0
	queue := controllerruntime.Queue[string]{Fair: func(string) string { calls++; return fmt.Sprint(calls) }}
	q := queue.NewQueue("test", nil)
	q.Add("a")
	q.Get()
	q.AddRateLimited("a")
	q.Done("a")
	if s := queue.Stats(); s.Waiting != 1 || s.InFlight != 0 {
		t.Errorf("after a failure the counts are %+v, want one item that waits", s)
	}
	q.ShutDown()
}

// A run that the end of the process interrupts has not failed. Its count of failures stays.
func TestRunIsAbortedByTheShutdown(t *testing.T) {
	var results []reconcile.Result[string]
	queue := controllerruntime.Queue[string]{OnResult: func(r reconcile.Result[string]) { results = append(results, r) }}
	q := queueOf(&queue)
	q.Add("a")
	q.Get()
	q.AddRateLimited("a")
	q.Done("a")
	queue.EnqueueNow("a")
	q.Get()
	q.ShutDown()
	q.AddRateLimited("a")
	q.Done("a")
	if len(results) != 2 || results[1].Outcome != reconcile.OutcomeAborted || results[1].Failures != 1 {
		t.Errorf("the results are %+v, want one that has failed, and then one that is aborted, with 1 failure", results)
	}
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "each controller needs a Queue of its own") {
			t.Errorf("a second NewQueue panics with %v", r)
		}
	}()
	queueOf(&queue)
}

// Whatever comes while items wait, run and are given back: no item is handed out twice at a
// time, and each event is followed by a run that begins after it.
func TestEventsAreFollowedByARun(t *testing.T) {
	for seed := range uint64(20) {
		var fair func(int) string
		if seed%2 == 1 {
			fair = func(item int) string { return fmt.Sprint(item % 3) }
		}
		synctest.Test(t, func(t *testing.T) {
			queue := controllerruntime.Queue[int]{Fair: fair}
			q := queueOf(&queue)
			const items = 30
			var mu sync.Mutex // guards the fields below
			var event, run [items]int
			var running [items]bool
			now := 0
			tick := func() int { now++; return now }
			var producers, consumers sync.WaitGroup
			for i := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, i))
				producers.Go(func() {
					for range 200 {
						item, low := random.IntN(items), -random.IntN(2)
						o := priorityqueue.AddOpts{Priority: &low, RateLimited: random.IntN(20) == 0}
						if random.IntN(8) == 0 {
							o.After = time.Duration(random.IntN(1000)) * time.Millisecond
						}
						mu.Lock()
						event[item] = tick()
						mu.Unlock()
						q.AddWithOpts(o, item)
						time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
					}
				})
			}
			for i := range uint64(20) {
				random := rand.New(rand.NewPCG(seed, i+10))
				consumers.Go(func() {
					for {
						item, shutdown := q.Get()
						if shutdown {
							return
						}
						mu.Lock()
						if running[item] {
							t.Errorf("seed %d: item %d is handed out twice", seed, item)
						}
						running[item], run[item] = true, tick()
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
						mu.Lock()
						running[item] = false
						mu.Unlock()
						switch random.IntN(8) {
						case 0:
							q.AddRateLimited(item)
						case 1:
							q.Forget(item)
							q.AddAfter(item, time.Second)
						default:
							q.Forget(item)
						}
						q.Done(item)
					}
				})
			}
			producers.Wait()
			time.Sleep(time.Minute)
			mu.Lock()
			for item := range items {
				if run[item] < event[item] {
					t.Errorf("seed %d: no run of item %d follows its last event", seed, item)
				}
			}
			mu.Unlock()
			q.ShutDown()
			consumers.Wait()
		})
	}
}
