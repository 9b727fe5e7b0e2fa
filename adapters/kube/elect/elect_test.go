// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

var (
	getOptions    = metav1.GetOptions{}
	updateOptions = metav1.UpdateOptions{}
)

var (
	quiet     = slog.New(slog.NewTextHandler(io.Discard, nil))
	errBroken = errors.New("broken")
)

// A field is what the candidates of a test contend in. It fails the test if two
// lead at a time.
type field struct {
	t     *testing.T
	store leasetest.LeaseStore
	begin time.Time

	mu    sync.Mutex // guards what follows
	leads string     // who leads; "" if nobody
	log   []string   // who began and ended to lead, and when
}

func newField(t *testing.T) *field { return &field{t: t, begin: time.Now()} }

// bubble runs f in a bubble, with a field.
func bubble(t *testing.T, f func(t *testing.T, f *field)) {
	synctest.Test(t, func(t *testing.T) { f(t, newField(t)) })
}

// run runs r until stop is called, which waits for it and returns what it did, or
// until the test ends.
func (f *field) run(r reconcile.Runner) (stop func() error) {
	ctx, cancel := context.WithCancel(f.t.Context())
	returned := make(chan error, 1)
	go func() { returned <- r.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-returned
	})
	f.t.Cleanup(func() { _ = stop() }) // whoever wants to know has called it
	return stop
}

func (f *field) note(who, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch what {
	case "leads":
		if f.leads != "" {
			f.t.Errorf("at %v %s leads, and %s still does", time.Since(f.begin), who, f.leads)
		}
		f.leads = who
	case "ends":
		f.leads = ""
	}
	f.log = append(f.log, who+" "+what+" "+time.Since(f.begin).Round(time.Millisecond).String())
}

func (f *field) took() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, ", ")
}

// candidate returns a Runner that leads until its context ends, and then takes
// its time to end.
func (f *field) candidate(name string, client *leasetest.LeaseClient, windDown time.Duration) reconcile.Runner {
	return elect.Elect(f.config(name, client), reconcile.RunFunc(func(ctx context.Context) error {
		f.note(name, "leads")
		<-ctx.Done()
		time.Sleep(windDown)
		f.note(name, "ends")
		return context.Cause(ctx)
	}))
}

func (f *field) config(name string, client *leasetest.LeaseClient) elect.Config {
	client.Store = &f.store
	return elect.Config{
		Client: client, Namespace: "default", Name: "lease", Identity: name, Logger: quiet,
		Exit: func(error) { f.note(name, "exits") },
	}
}

// broken is a client whose requests fail, or hang, from an instant on.
func broken(from time.Duration, hang bool) *leasetest.LeaseClient {
	begin := time.Now()
	return &leasetest.LeaseClient{Before: func(ctx context.Context) error {
		if time.Since(begin) < from {
			return nil
		}
		if hang {
			<-ctx.Done()
			return ctx.Err()
		}
		return errBroken
	}}
}

// TestElect has a leader end as it likes: the lease is renewed until then, and
// passed on at once.
func TestElect(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		stop := f.run(f.candidate("a", new(leasetest.LeaseClient), time.Minute))
		time.Sleep(time.Second)
		f.run(f.candidate("b", new(leasetest.LeaseClient), 0))
		time.Sleep(time.Minute)
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Errorf("a: %v, want what its runner returned", err)
		}
		time.Sleep(5 * time.Second)
		if got, want := f.took(), "a leads 0s, a ends 2m1s, b leads "; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestLostLease has the leader's requests fail: its runner is ended 10 s after
// the last renewal, and nobody else leads before 15 s have passed.
func TestLostLease(t *testing.T) {
	for name, hang := range map[string]bool{"fail": false, "hang": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *field) {
				// It renews each 2 s, the last time at 20 s.
				stop := f.run(f.candidate("a", broken(21*time.Second, hang), 3*time.Second))
				time.Sleep(time.Second)
				f.run(f.candidate("b", new(leasetest.LeaseClient), 0))
				time.Sleep(time.Minute)
				if err := stop(); !errors.Is(err, reconcile.ErrLeaseLost) {
					t.Errorf("a: %v, want %v", err, reconcile.ErrLeaseLost)
				}
				// b looks each 2 to 4.4 s, at random, and counts from what it saw.
				const want = "a leads 0s, a ends 33s, b leads "
				at, ok := strings.CutPrefix(f.took(), want)
				since, err := time.ParseDuration(at)
				if !ok || err != nil || since < 35*time.Second || since > 44*time.Second {
					t.Errorf("got %q, want %q and 35 to 44 s", f.took(), want)
				}
			})
		})
	}
}

// TestLostLeaseBesideAFailure has the runner fail as it is ended: Run returns both errors.
func TestLostLeaseBesideAFailure(t *testing.T) {
	failure := errors.New("no flush")
	for _, c := range []struct {
		err  func(ctx context.Context) error
		fail bool
	}{
		{func(ctx context.Context) error { return fmt.Errorf("read: %w", ctx.Err()) }, false},
		{func(ctx context.Context) error { return errors.Join(ctx.Err(), context.Cause(ctx)) }, false},
		{func(ctx context.Context) error { return errors.Join(ctx.Err(), failure) }, true},
		{func(ctx context.Context) error { return errors.Join(context.Cause(ctx), failure) }, true},
	} {
		bubble(t, func(t *testing.T, f *field) {
			err := elect.Elect(f.config("a", broken(21*time.Second, false)), reconcile.RunFunc(func(ctx context.Context) error {
				<-ctx.Done()
				return c.err(ctx)
			})).Run(t.Context())
			if !errors.Is(err, reconcile.ErrLeaseLost) || errors.Is(err, failure) != c.fail || strings.Contains(err.Error(), "; then: ") != c.fail {
				t.Errorf("Run returns %v, want the lost lease, and then the failure: %v", err, c.fail)
			}
		})
	}
}

// TestExit has a runner that does not end: the process is ended before the lease
// passes on.
func TestExit(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		f.run(f.candidate("a", broken(21*time.Second, false), 5*time.Minute))
		time.Sleep(34*time.Second + time.Nanosecond) // 14 s after the last renewal
		if got, want := f.took(), "a leads 0s, a exits 34s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestRunnerEnds has a runner that ends by itself, well, with an error and with
// a panic: the lease is given up.
func TestRunnerEnds(t *testing.T) {
	for name, end := range map[string]func() error{
		"nil":   func() error { return nil },
		"error": func() error { return errBroken },
		"panic": func() error { panic(errBroken) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *field) {
				var g supervise.Group
				g.Add("a", elect.Elect(f.config("a", new(leasetest.LeaseClient)), reconcile.RunFunc(func(context.Context) error {
					time.Sleep(3 * time.Second)
					return end()
				})))
				if err := g.Run(t.Context()); errors.Is(err, errBroken) != (name != "nil") {
					t.Errorf("Run: %v", err)
				}
				f.run(f.candidate("b", new(leasetest.LeaseClient), 0))
				time.Sleep(2 * time.Second) // a lease of 1 s is what a released one has left
				time.Sleep(time.Second)
				if !strings.HasPrefix(f.took(), "b leads ") {
					t.Errorf("got %q, want that b leads, soon after a gave up", f.took())
				}
			})
		})
	}
}

// TestLeaseThatIsTakenAway has somebody delete the lease, or write another holder into it:
// the leader ends at once, long before it is to renew.
func TestLeaseThatIsTakenAway(t *testing.T) {
	for why, take := range map[string]func(ctx context.Context, leases typedv1.LeaseInterface) error{
		"was deleted": func(ctx context.Context, leases typedv1.LeaseInterface) error {
			return leases.Delete(ctx, "lease", metav1.DeleteOptions{})
		},
		`is held by "thief"`: func(ctx context.Context, leases typedv1.LeaseInterface) error {
			lease, err := leases.Get(ctx, "lease", getOptions)
			if err == nil {
				*lease.Spec.HolderIdentity = "thief"
				_, err = leases.Update(ctx, lease, updateOptions)
			}
			return err
		},
	} {
		t.Run(why, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *field) {
				stop := f.run(f.candidate("a", new(leasetest.LeaseClient), 0))
				time.Sleep(4*time.Second + time.Millisecond) // it has just renewed it
				if err := take(t.Context(), (&leasetest.LeaseClient{Store: &f.store}).Leases("default")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if err := stop(); !errors.Is(err, reconcile.ErrLeaseLost) || !strings.Contains(err.Error(), why) {
					t.Errorf("a: %v, want that the lease %s", err, why)
				}
				if got, want := f.took(), "a leads 0s, a ends 4.001s"; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// TestCandidateStandsAgainAfterALostLease restarts a candidate that lost its lease.
func TestCandidateStandsAgainAfterALostLease(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		begin := time.Now()
		client := &leasetest.LeaseClient{Before: func(context.Context) error {
			if at := time.Since(begin); at > 21*time.Second && at < time.Minute {
				return errBroken
			}
			return nil
		}}
		f.run(supervise.Restart(reconcile.Backoff(time.Second, time.Second), f.candidate("a", client, 0)))
		time.Sleep(2 * time.Minute)
		if got, want := f.took(), "a leads 0s, a ends 30s, a leads 1m"; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestNotElected is ended while it waits: the runner is not run, and the lease
// is as it was.
func TestNotElected(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		f.run(f.candidate("a", new(leasetest.LeaseClient), 0))
		synctest.Wait()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := f.candidate("b", new(leasetest.LeaseClient), 0).Run(ctx); err != nil {
			t.Errorf("b: %v, want nil", err)
		}
		if got, want := f.took(), "a leads 0s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestWarmUp has a feeder fill the queue before the workers may begin, and ends
// before them.
func TestWarmUp(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		stop := f.run(f.candidate("a", new(leasetest.LeaseClient), 0))
		synctest.Wait()

		q := reconcile.NewQueue[string]()
		feeding := true
		workers := &reconcile.Reconciler[string]{
			Queue: q, Logger: quiet,
			Reconcile: func(ctx context.Context, item string) error {
				f.note("worker", item)
				<-ctx.Done()
				if feeding {
					t.Error("the feeder goes on, though the workers end")
				}
				return nil
			},
		}
		var g supervise.Group
		g.Add("feed", reconcile.Feed(q, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
			q.Enqueue("x")
			<-ctx.Done()
			time.Sleep(time.Second / 2)
			feeding = false
			return nil
		}))
		g.Add("workers", elect.Elect(f.config("b", new(leasetest.LeaseClient)), workers))
		stopGroup := f.run(&g)
		time.Sleep(time.Minute)
		if got, want := f.took(), "a leads 0s"; got != want || q.Len() != 1 {
			t.Errorf("got %q and %d items, want %q and one item that waits", got, q.Len(), want)
		}
		_ = stop() // its context's error
		time.Sleep(5 * time.Second)
		if got, want := f.took(), "a leads 0s, a ends 1m0s, worker x 1m"; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := stopGroup(); err != nil {
			t.Error(err)
		}
	})
}

// TestBadConfig sees an error for each field that is missing or wrong.
func TestBadConfig(t *testing.T) {
	for want, spoil := range map[string]func(*elect.Config){
		"Config.Client is required":                                    func(c *elect.Config) { c.Client = nil },
		"Config.Namespace: it is empty, and this process is in no pod": func(c *elect.Config) { c.Namespace = "" },
		"Config.Name is required":                                      func(c *elect.Config) { c.Name = "" },
		`Config.Name is "my_lease", which no Lease can have`:           func(c *elect.Config) { c.Name = "my_lease" },
		"Config.Duration is 1.5s":                                      func(c *elect.Config) { c.Duration = 1500 * time.Millisecond },
		"Config.Duration is -1s":                                       func(c *elect.Config) { c.Duration = -time.Second },
		"Config.Deadline is 15s":                                       func(c *elect.Config) { c.Deadline = 15 * time.Second },
		"Config.Period is 9s":                                          func(c *elect.Config) { c.Period = 9 * time.Second },
	} {
		c := newField(t).config("a", new(leasetest.LeaseClient))
		spoil(&c)
		err := elect.Elect(c, reconcile.RunFunc(func(context.Context) error { return nil })).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("got %v, want a terminal error with %q in it", err, want)
		}
	}
	if err := elect.Elect(newField(t).config("a", new(leasetest.LeaseClient)), nil).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "got nil") {
		t.Errorf("Elect of a nil Runner: %v, want an error", err)
	}
}

// TestIsLeader asks who leads: the one whose runner may go on, and no other.
func TestIsLeader(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		until := func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			return nil
		}
		a := elect.Elect(f.config("a", broken(time.Minute, true)), reconcile.RunFunc(until))
		b := elect.Elect(f.config("b", new(leasetest.LeaseClient)), reconcile.RunFunc(until))
		want := func(aLeads, bLeads bool) {
			t.Helper()
			synctest.Wait()
			if a.IsLeader() != aLeads || b.IsLeader() != bLeads {
				t.Errorf("at %v: a leads %v, b leads %v, want %v, %v", time.Since(f.begin), a.IsLeader(), b.IsLeader(), aLeads, bLeads)
			}
		}
		want(false, false)
		stopA := f.run(a)
		want(true, false)
		time.Sleep(time.Second)
		stopB := f.run(b)
		want(true, false)
		time.Sleep(69*time.Second + 500*time.Millisecond) // it could not renew for Deadline, and is ending
		want(false, false)
		time.Sleep(30 * time.Second)
		want(false, true)
		ended := make(chan error)
		go func() { ended <- stopB() }()
		time.Sleep(time.Second)
		want(false, true) // it ends, with its lease
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want(false, false)
		if err := stopA(); !errors.Is(err, reconcile.ErrLeaseLost) {
			t.Errorf("a: %v, want ErrLeaseLost", err)
		}
	})
}

// TestFailuresAreLoggedRarely stands for an hour for a Lease that it may not read: the
// log of the Group has a line of the first failure, and of each whose number is twice as
// high.
func TestFailuresAreLoggedRarely(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		var log strings.Builder // one goroutine writes to it
		c := f.config("a", broken(0, false))
		c.Logger = nil // that of the Group
		group := supervise.Group{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		group.Add("candidate", elect.Elect(c, f.candidate("a", broken(0, false), 0)))
		stop := f.run(&group)
		time.Sleep(time.Hour)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "broken"); n != 11 {
			t.Errorf("%d lines, want 11 of more than 1024 failures:\n%s", n, log.String())
		}
	})
}
