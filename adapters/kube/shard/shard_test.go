// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

var (
	quiet     = slog.New(slog.NewTextHandler(io.Discard, nil))
	errBroken = errors.New("broken")
)

const items = 200

// An arena is where the processes of a test run items. It fails the test if an
// item is in two runs at once.
type arena struct {
	t     *testing.T
	store leasetest.Store
	begin time.Time

	mu   sync.Mutex // guards what follows
	runs map[int]string
	last map[int]string // who had the last run
	n    int
}

func newArena(t *testing.T) *arena {
	return &arena{t: t, begin: time.Now(), runs: make(map[int]string), last: make(map[int]string)}
}

func (a *arena) enter(who string, item int) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.runs[item]; other != "" {
		a.t.Errorf("at %v %s runs %d, and %s still does", time.Since(a.begin), who, item, other)
	}
	a.runs[item], a.last[item] = who, who
	a.n++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.runs, item)
	}
}

// forget forgets who had the last runs.
func (a *arena) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.last)
	a.n = 0
}

// A process takes part with a set of its own, a queue, and workers.
type process struct {
	name   string
	shards *shard.Shards[int]
	queue  *reconcile.Queue[int]
	stop   func() // and waits
}

// start starts a process that reconciles with f.
func (a *arena) start(name string, client typedv1.LeasesGetter, f func(ctx context.Context, item int) error, set ...func(*shard.Shards[int])) *process {
	p := &process{name: name, queue: reconcile.NewQueue[int]()}
	p.shards = &shard.Shards[int]{
		Client: client, Namespace: "default", Name: "set", Identity: name, Logger: quiet,
		Exit: func(err error) { a.t.Errorf("at %v %s: %v", time.Since(a.begin), name, err) },
	}
	for _, set := range set {
		set(p.shards)
	}
	every := func(context.Context) ([]int, error) {
		list := make([]int, items)
		for i := range list {
			list[i] = i
		}
		return list, nil
	}
	var g reconcile.Group
	g.Logger = quiet
	g.Add("shards", p.shards)
	g.Add("gained", reconcile.Feed(p.queue, p.shards.Gained(every)))
	g.Add("workers", &reconcile.Reconciler[int]{
		Queue: p.shards.Queue(p.queue), Logger: quiet, Workers: 4,
		Reconcile: func(ctx context.Context, item int) error {
			defer a.enter(name, item)()
			if f == nil {
				return nil
			}
			return f(ctx, item)
		},
	})
	ctx, cancel := context.WithCancel(a.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Run(ctx); err != nil {
			a.t.Errorf("%s: %v", name, err)
		}
	})
	p.stop = func() {
		cancel()
		wg.Wait()
	}
	return p
}

// ran returns how many items had a run, and how many runs there were.
func (a *arena) ran() (different, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.last), a.n
}

// shared checks that each item has one owner, and had its last run there.
func (a *arena) shared(processes ...*process) {
	a.t.Helper()
	owned := make(map[string]int)
	for item := range items {
		var owners []string
		for _, p := range processes {
			if p.shards.Owns(item) {
				owners = append(owners, p.name)
				owned[p.name]++
			}
		}
		if len(owners) != 1 {
			a.t.Errorf("at %v the owners of %d are %q, want one", time.Since(a.begin), item, owners)
			return
		}
		a.mu.Lock()
		last := a.last[item]
		a.mu.Unlock()
		if last != "" && last != owners[0] {
			a.t.Errorf("at %v the last run of %d was by %s, want %s, its owner", time.Since(a.begin), item, last, owners[0])
		}
	}
	for _, p := range processes {
		if fair := items / len(processes); owned[p.name] < fair/2 || owned[p.name] > fair*2 {
			a.t.Errorf("%s owns %d of %d items, want about %d", p.name, owned[p.name], items, fair)
		}
	}
}

func (a *arena) client() *leasetest.Client { return &leasetest.Client{Store: &a.store} }

// TestHandOver has members come and go: the others keep what they have, and get
// what is free, when its last run has ended.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		slow := func(ctx context.Context, _ int) error {
			time.Sleep(time.Second) // though its context ends
			return ctx.Err()
		}
		p := a.start("p", a.client(), slow)
		time.Sleep(time.Minute) // 200 runs of a second, 4 at a time
		a.shared(p)
		if _, n := a.ran(); n != items {
			t.Errorf("%d runs, want %d", n, items)
		}
		a.forget()
		q := a.start("q", a.client(), slow)
		for i := range items {
			p.queue.Enqueue(i) // runs go on when the items are handed over
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		if n, _ := a.ran(); n != items {
			t.Errorf("%d items had a run, want %d", n, items)
		}
		if n := len(p.shards.Members()); n != 2 {
			t.Errorf("%d members, want 2", n)
		}

		a.forget()
		before := make(map[int]bool)
		for i := range items {
			before[i] = p.shards.Owns(i)
		}
		r := a.start("r", a.client(), slow)
		time.Sleep(time.Minute)
		a.shared(p, q, r)
		for i := range items {
			if p.shards.Owns(i) && !before[i] {
				t.Errorf("p got %d, though only r came", i)
			}
		}
		a.mu.Lock()
		for i, who := range a.last {
			if who != "r" {
				t.Errorf("%s ran %d again, though only r came", who, i)
			}
		}
		a.mu.Unlock()

		theirs := 0
		for i := range items {
			if q.shards.Owns(i) {
				theirs++
			}
		}
		a.forget()
		q.stop()
		time.Sleep(10 * time.Second) // less than a Lease is good for: it was given up
		a.shared(p, r)
		time.Sleep(time.Minute)
		if n, _ := a.ran(); n != theirs || theirs == 0 {
			t.Errorf("%d items had a run after q has left, want the %d that it had", n, theirs)
		}
		p.stop()
		r.stop()
		list, err := a.client().Leases("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 3 {
			t.Errorf("%d Leases are left, want that of the set and of the last two: %v", len(list.Items), err)
		}
		for _, lease := range list.Items {
			if lease.Name != "set" && *lease.Spec.HolderIdentity != "" {
				t.Errorf("%s is held after all have left", lease.Name)
			}
		}
	})
}

// TestDeadMember has one that reaches the server no more, with runs that go on
// for as long as they may: the other gets all of it when these have ended.
func TestDeadMember(t *testing.T) {
	for _, hang := range []bool{false, true} {
		t.Run(fmt.Sprintf("hang %v", hang), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(t)
				var dead atomic.Bool
				client := a.client()
				client.Before = func(ctx context.Context, _ string) error {
					switch {
					case dead.Load() && hang:
						<-ctx.Done()
						return ctx.Err()
					case dead.Load():
						return errBroken
					}
					return nil
				}
				long := func(ctx context.Context, _ int) error {
					<-ctx.Done()
					time.Sleep(3 * time.Second) // less than the 4 there are
					return ctx.Err()
				}
				p := a.start("p", client, long)
				q := a.start("q", a.client(), nil)
				time.Sleep(time.Minute)
				dead.Store(true)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				for i := range items {
					if p.shards.Owns(i) {
						t.Fatalf("p owns %d, 10 s after it reached the server for the last time", i)
					}
				}
				time.Sleep(20 * time.Second)
				a.shared(q)
				a.forget()
				dead.Store(false)
				time.Sleep(time.Minute)
				a.shared(p, q)
				p.stop()
				q.stop()
			})
		})
	}
}

// TestExit has a run that does not end when the Lease is lost.
func TestExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		client := a.client()
		var dead atomic.Bool
		client.Before = func(context.Context, string) error {
			if dead.Load() {
				return errBroken
			}
			return nil
		}
		var exits []time.Duration
		stuck := make(chan struct{})
		p := a.start("p", client, func(context.Context, int) error {
			<-stuck
			return nil
		}, func(s *shard.Shards[int]) {
			s.Exit = func(err error) {
				if !errors.Is(err, reconcile.ErrLeaseLost) {
					t.Errorf("Exit(%v), want that the lease is lost", err)
				}
				exits = append(exits, time.Since(a.begin))
			}
		})
		time.Sleep(21 * time.Second) // the last renewal was at 20 s
		dead.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(exits) != 1 || exits[0] != 34*time.Second {
			t.Errorf("exits at %v, want one at 34s", exits)
		}
		close(stuck)
		p.stop()
	})
}

// TestGrace lets runs go on for a while when their item is handed over.
func TestGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		var mu sync.Mutex
		aborted := 0
		grace := func(s *shard.Shards[int]) { s.Grace = 30 * time.Second }
		p := a.start("p", a.client(), func(ctx context.Context, item int) error {
			select {
			case <-time.After(time.Duration(item) * time.Second / 2):
				return nil
			case <-ctx.Done():
				mu.Lock()
				defer mu.Unlock()
				aborted++
				if !errors.Is(context.Cause(ctx), reconcile.ErrLeaseLost) {
					t.Errorf("the context of %d ended: %v, want that the lease is lost", item, context.Cause(ctx))
				}
				return ctx.Err()
			}
		}, grace)
		time.Sleep(time.Hour + 30*time.Minute)
		// What runs now ends at 90 s, or is aborted.
		for _, item := range []int{196, 197, 198, 199} {
			p.queue.Enqueue(item)
		}
		synctest.Wait()
		q := a.start("q", a.client(), nil)
		time.Sleep(25 * time.Second)
		for i := range items {
			if q.shards.Owns(i) {
				t.Fatalf("q owns %d while p has its grace", i)
			}
		}
		time.Sleep(15 * time.Second)
		a.shared(p, q)
		moved := 0
		for _, item := range []int{196, 197, 198, 199} {
			if q.shards.Owns(item) {
				moved++
			}
		}
		synctest.Wait()
		if aborted != moved || moved == 0 {
			t.Errorf("%d runs were aborted, want %d: those whose items went to q", aborted, moved)
		}
		p.stop()
		q.stop()
	})
}

// TestRemovedLease has somebody remove a member's Lease: it joins again.
func TestRemovedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		time.Sleep(time.Minute)
		for _, name := range p.shards.Members() {
			if strings.HasPrefix(name, "set-p-") {
				if err := a.client().Leases("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		p.stop()
		q.stop()
	})
}

// TestRemovedList has somebody remove the list: its members give up what they
// have, and join again.
func TestRemovedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		time.Sleep(time.Minute)
		before := fmt.Sprint(p.shards.Members())
		if err := a.client().Leases("default").Delete(t.Context(), "set", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		a.shared(p, q)
		if after := fmt.Sprint(p.shards.Members()); after == before {
			t.Errorf("members %v, want that they have joined again, as others", after)
		}
		p.stop()
		q.stop()
	})
}

// TestWrongList has somebody take two members that are alive off the list: the
// one that is left does not get what they have.
func TestWrongList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		often := func(s *shard.Shards[int]) { s.Period = 100 * time.Millisecond }
		p := a.start("p", a.client(), nil)
		q := a.start("q", a.client(), nil)
		r := a.start("r", a.client(), nil, often)
		time.Sleep(time.Minute + 10*time.Millisecond) // p and q have just looked
		a.shared(p, q, r)
		leases := a.client().Leases("default")
		lease, err := leases.Get(t.Context(), "set", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.shards.Members() {
			if strings.HasPrefix(name, "set-r-") {
				lease.Annotations["reconcile-shard-members"] = name
			}
		}
		*lease.Spec.LeaseTransitions++
		if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			for item := range items {
				if r.shards.Owns(item) && (p.shards.Owns(item) || q.shards.Owns(item)) {
					t.Fatalf("at %v r owns %d, and so does another one", time.Since(a.begin), item)
				}
			}
		}
		time.Sleep(time.Minute)
		a.shared(p, q, r)
		p.stop()
		q.stop()
		r.stop()
	})
}

// TestSuspended has a process stand still, in the middle of becoming the owner,
// for so long that another one has taken all: it must not go on as if nothing
// had been.
func TestSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		client := a.client()
		lists := 0
		client.After = func(_ context.Context, verb string) error {
			if verb == "list" {
				if lists++; lists == 3 { // on which it would take what it is given
					time.Sleep(time.Minute)
				}
			}
			return nil
		}
		p := a.start("p", client, nil)
		time.Sleep(time.Second)
		q := a.start("q", a.client(), nil)
		time.Sleep(58 * time.Second)
		a.shared(q)
		time.Sleep(time.Second + time.Millisecond)
		for item := range items {
			if p.shards.Owns(item) {
				t.Fatalf("p owns %d after it stood still, and so does q", item)
			}
		}
		p.stop()
		q.stop()
	})
}

// TestComesBack has a process reach the server again at about the time when
// another one finds that it is dead: at no instant do both own an item.
func TestComesBack(t *testing.T) {
	for at := 33 * time.Second; at < 41*time.Second; at += 500 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			a := newArena(t)
			away, slow := a.client(), a.client()
			away.Before = func(context.Context, string) error {
				if now := time.Since(a.begin); now > 21*time.Second && now < at {
					return errBroken
				}
				return nil
			}
			slow.After = func(_ context.Context, verb string) error {
				if now := time.Since(a.begin); verb == "list" && now > 33*time.Second && now < time.Minute {
					time.Sleep(3 * time.Second)
				}
				return nil
			}
			often := func(s *shard.Shards[int]) { s.Period = 500 * time.Millisecond }
			p := a.start("p", away, nil, often)
			q := a.start("q", slow, nil)
			for time.Since(a.begin) < 90*time.Second {
				time.Sleep(50 * time.Millisecond)
				for item := range 20 {
					if p.shards.Owns(item) && q.shards.Owns(item) {
						t.Fatalf("back at %v: at %v both own %d", at, time.Since(a.begin), item)
					}
				}
			}
			a.shared(p, q)
			p.stop()
			q.stop()
		})
	}
}

// TestHandedOverBeforeItRuns has an item change hands after it was taken and
// before its run begins.
func TestHandedOverBeforeItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		s := &shard.Shards[int]{Client: a.client(), Namespace: "default", Name: "set", Logger: quiet}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second)
		inner := reconcile.NewQueue[int]()
		q := s.Queue(inner)
		inner.Enqueue(1)
		if _, err := q.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop()
		synctest.Wait()
		run := q.(reconcile.Leaser[int]).Lease(t.Context(), 1)
		if !errors.Is(context.Cause(run), reconcile.ErrLeaseLost) {
			t.Errorf("the context of the run: %v, want that the lease is lost", context.Cause(run))
		}
		select {
		case <-ended:
			t.Error("it has left, though the item was not given back")
		default:
		}
		q.Done(1)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestChaos has processes whose requests are slow, hang, fail, or succeed
// without an answer, and that end, die and come back. No item is in two runs at
// once; and when all is well again, each has one owner.
func TestChaos(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
		})
	}
}

func chaos(t *testing.T, seed uint64) {
	a := newArena(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(100) < percent
	}
	upTo := func(d time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(d)))
	}
	nap := func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	var well atomic.Bool
	trouble := make(map[string]int) // of each process, in percent
	client := func(name string) *leasetest.Client {
		c := a.client()
		fault := func(ctx context.Context, _ string) error {
			if well.Load() {
				return nil
			}
			mu.Lock()
			percent := trouble[name]
			mu.Unlock()
			if err := nap(ctx, upTo(100*time.Millisecond)); err != nil {
				return err
			}
			if chance(percent) {
				if err := nap(ctx, upTo(20*time.Second)); err != nil {
					return err
				}
			}
			if chance(percent) {
				return errBroken
			}
			return nil
		}
		c.Before, c.After = fault, fault
		return c
	}
	work := func(ctx context.Context, _ int) error {
		_ = nap(ctx, upTo(20*time.Second))
		time.Sleep(upTo(3 * time.Second)) // it takes its time to end
		return ctx.Err()
	}
	var processes []*process
	start := func(name string) *process {
		return a.start(name, client(name), work, func(s *shard.Shards[int]) { s.Grace = upTo(10*time.Second) + 1 })
	}
	names := []string{"p", "q", "r", "s"}
	for _, name := range names {
		processes = append(processes, start(name))
	}
	feed := time.NewTicker(100 * time.Millisecond)
	defer feed.Stop()
	for end := time.After(20 * time.Minute); !well.Load(); {
		select {
		case <-end:
			well.Store(true)
		case <-feed.C:
			processes[upTo(4)].queue.Enqueue(int(upTo(items)))
			if chance(2) {
				mu.Lock()
				name := names[random.IntN(4)]
				trouble[name] = []int{0, 0, 5, 40, 100}[random.IntN(5)]
				mu.Unlock()
			}
			if i := int(upTo(4)); chance(1) && chance(30) {
				processes[i].stop()
				processes[i] = start(names[i])
			}
		}
	}
	time.Sleep(3 * time.Minute)
	a.forget()
	for i := range items {
		for _, p := range processes {
			if p.shards.Owns(i) {
				p.queue.Enqueue(i)
			}
		}
	}
	time.Sleep(30 * time.Minute)
	a.shared(processes...)
	if n, _ := a.ran(); n != items {
		t.Errorf("%d items had a run after all was well, want %d", n, items)
	}
	for _, p := range processes {
		p.stop()
	}
}

// TestBadFields sees an error for each field that is missing or wrong.
func TestBadFields(t *testing.T) {
	for want, spoil := range map[string]func(*shard.Shards[string]){
		"Shards.Client is required":    func(s *shard.Shards[string]) { s.Client = nil },
		"Shards.Namespace is required": func(s *shard.Shards[string]) { s.Namespace = "" },
		"Shards.Name is required":      func(s *shard.Shards[string]) { s.Name = "" },
		`Identity "A b"`:               func(s *shard.Shards[string]) { s.Identity = "A b" },
		"Shards.Name is \"x":           func(s *shard.Shards[string]) { s.Name = strings.Repeat("x", 100) },
		"Shards.Duration is 1.5s":      func(s *shard.Shards[string]) { s.Duration = 1500 * time.Millisecond },
		"Shards.Deadline is 15s":       func(s *shard.Shards[string]) { s.Deadline = 15 * time.Second },
		"Shards.Period is 10s":         func(s *shard.Shards[string]) { s.Period = 10 * time.Second },
		"Shards.Grace is -1s":          func(s *shard.Shards[string]) { s.Grace = -time.Second },
	} {
		s := &shard.Shards[string]{Client: new(leasetest.Client), Namespace: "default", Name: "set"}
		spoil(s)
		if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("got %v, want a terminal error with %q in it", err, want)
		}
	}
	s := new(shard.Shards[string])
	if s.Owns("x") || len(s.Members()) > 0 {
		t.Error("one that does not take part owns x")
	}
	if err := s.Gained(nil)(t.Context(), reconcile.NewQueue[string]()); err == nil {
		t.Error("Gained(nil) feeds")
	}
}

// TestRunTwice takes part twice at a time, which is an error, and again, which is
// none.
func TestRunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		s := &shard.Shards[int]{Client: a.client(), Namespace: "default", Name: "set", Logger: quiet}
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- s.Run(ctx) }()
			time.Sleep(time.Second)
			if !s.Owns(1) {
				t.Error("the only member does not own an item after a second")
			}
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "running already") {
				t.Errorf("the second Run: %v, want an error", err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if s.Owns(1) {
				t.Error("one that has left owns an item")
			}
		}
	})
}

// TestGainedFails passes on what the list has, and its error.
func TestGainedFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		s := &shard.Shards[int]{Client: a.client(), Namespace: "default", Name: "set", Logger: quiet}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		q := reconcile.NewQueue[int]()
		err := s.Gained(func(context.Context) ([]int, error) { return []int{1, 2}, errBroken })(ctx, q)
		if !errors.Is(err, errBroken) || q.Len() != 2 {
			t.Errorf("%v and %d items, want %v and 2", err, q.Len(), errBroken)
		}
		stop()
		<-ended
	})
}
