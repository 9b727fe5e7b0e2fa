// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/explore"
)

// A Scenario is what [Explore] plays: a controller of a cluster. Start and Steps are
// required; the zero value of every other field is a good default. The fields that
// [explore.Scenario] has too mean the same, except for Within.
type Scenario struct {
	// Kinds are those of the cluster beside those that Kubernetes has: see [CRDs].
	Kinds []*Kind

	// Scheme has the Go types that Steps uses; nil means those of client-go.
	Scheme *runtime.Scheme

	// NoWatchList is that of the [Server]: informers list, and what they list may be stale.
	NoWatchList bool

	// Start makes the controller, which reaches the cluster by cfg. It is called for each
	// process: at the beginning, a second after each death, and after Run has
	// returned, as a program that ends is started again: after ten seconds, and then
	// twice as long each time, five minutes at most. Start may also start parts by
	// [explore.Process.Go], and return nil. What it returns must end when its context does.
	Start func(proc *explore.Process, cfg *rest.Config) Runner

	// Replicas is how many processes there are, each of which dies alone; 0 means one.
	// More of them need a controller of which one leads.
	Replicas int

	// Steps is what happens to the cluster beside the controller.
	Steps func(s *Environment)

	// State describes the cluster; nil means [Server.State], without what Ignore has.
	State func(s *Server) string

	// Invariant and Final check the cluster. If both are nil, only State is compared.
	Invariant func(s *Server) error
	Final     func(s *Server) error

	// Within is how long the controller may take to converge, and how long it is watched
	// after that; 0 means 20 minutes, which is more than the longest pause of the queues of
	// client-go and controller-runtime.
	Within time.Duration

	Without, With []explore.Fault // of those of package explore, and Without also of [Faults]
	Stable        bool
	All           bool
	Plans         int
	Budget        time.Duration
	Parallel      int
	Seed          uint64
	Replay        []string
	Known         [][]string
}

// A Runner is a controller, or a part of one: Run returns when ctx has ended.
type Runner interface {
	Run(ctx context.Context) error
}

// Explore plays a scenario without faults, and then with faults at each request and each
// event of a watch, as [explore.Run] does. The test fails with a story if one breaks the
// controller. It silences klog, and the error handlers of apimachinery, for the whole
// program: these wait for the wrong clock.
func Explore(t *testing.T, s Scenario) {
	t.Helper()
	silence()
	explore.Run(t, s.explored())
}

// Search is [Explore] without a verdict.
func Search(t *testing.T, s Scenario) (*explore.Report, error) {
	silence()
	return explore.Search(t, s.explored())
}

func (s Scenario) explored() explore.Scenario[*Server] {
	x := explore.Scenario[*Server]{
		World: func() *Server {
			w := NewServer(s.Kinds...)
			w.Scheme, w.NoWatchList = s.Scheme, s.NoWatchList
			return w
		},
		State: (*Server).State, Invariant: s.Invariant, Final: s.Final, Without: s.Without, With: s.With, CustomFaults: Faults(), Stable: s.Stable, All: s.All,
		Within: cmp.Or(s.Within, 20*time.Minute), Plans: s.Plans, Budget: s.Budget, Parallel: s.Parallel, Seed: s.Seed, Replay: s.Replay, Known: s.Known,
	}
	if s.State != nil {
		x.State = s.State
	}
	if s.Start != nil {
		x.Start = func(proc *explore.Process, w *Server) {
			Run(proc, func() Runner { return s.Start(proc, w.Config(proc)) })
		}
	}
	for i := 1; i < s.Replicas; i++ {
		x.Others = append(x.Others, x.Start)
	}
	if s.Steps != nil {
		x.Steps = func(env *explore.Environment, w *Server) { s.Steps(&Environment{env, w}) }
	}
	return x
}

// Run runs what start returns in a process of a plan, and starts it again when it ends,
// as [Scenario] has it, unless start returns nil. It returns at once.
func Run(proc *explore.Process, start func() Runner) {
	r := start()
	if r == nil {
		return
	}
	proc.Go(func(ctx context.Context) error {
		for pause := 10 * time.Second; ; pause = min(2*pause, 5*time.Minute) {
			err := r.Run(ctx)
			if ctx.Err() != nil {
				return nil
			}
			proc.Note(fmt.Sprintf("the program ends: %v", err))
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
			proc.Note("the program starts again")
			if r = start(); r == nil {
				return nil
			}
		}
	})
}

// An Environment is the argument of Steps: the time, by Advance, and the cluster.
type Environment struct {
	*explore.Environment
	*Server
}

// Create puts an object in, as another client does. It panics if the server refuses it: so
// does what follows.
func (s *Server) Create(o runtime.Object) {
	if _, err := s.createObject(s.untyped(o)); err != nil {
		panic(fmt.Sprintf("kubesim: Create: %v", err))
	}
}

// Delete deletes the object of that kind, namespace and name, if it is there, as
// kubectl does: in the background.
func (s *Server) Delete(o runtime.Object) {
	u := s.untyped(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kindOf(u.GroupVersionKind())
	if r := s.table(k).records[key(u.GetNamespace(), u.GetName())]; r != nil {
		_, _, _ = s.remove(k, r, backgroundDeletion())
	}
}

// Update lets change change the object of that kind, namespace and name, its status too, as
// other clients do. If it is not there, nothing happens. It panics if the server refuses it.
func Update[O runtime.Object](s *Server, o O, change func(o O)) {
	u := s.untyped(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kindOf(u.GroupVersionKind())
	old := s.table(k).records[key(u.GetNamespace(), u.GetName())]
	if old == nil {
		return
	}
	is := into[O](old)
	change(is)
	next := s.untyped(is)
	next.SetResourceVersion("")
	for _, sub := range []string{"", "status"} {
		if sub == "status" && !k.Status {
			continue
		}
		q := &request{kind: k, space: u.GetNamespace(), name: u.GetName(), sub: sub, agent: "play"}
		o, err := q.decode(encode(next.Object))
		if err == nil {
			_, err = s.update(q, s.table(k).records[key(q.space, q.name)], o, nil, true)
		}
		if err != nil {
			panic(fmt.Sprintf("kubesim: Update: %v", err))
		}
		if s.table(k).records[key(q.space, q.name)] == nil {
			return // its last finalizer is gone
		}
	}
}

// Get returns the object of that kind, namespace and name, and whether it is there.
func Get[O runtime.Object](s *Server, o O) (O, bool) {
	u := s.untyped(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.table(s.kindOf(u.GroupVersionKind())).records[key(u.GetNamespace(), u.GetName())]; r != nil {
		return into[O](r), true
	}
	return o, false
}

// List returns the objects of that kind, in the namespace of o if it has one, sorted by
// their names.
func List[O runtime.Object](s *Server, o O) []O {
	u := s.untyped(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []O
	for _, r := range s.table(s.kindOf(u.GroupVersionKind())).find(filter{namespace: u.GetNamespace()}) {
		all = append(all, into[O](r))
	}
	return all
}

func into[O runtime.Object](r *record) O {
	var o O
	is := withoutAnotherHand(r.object)
	if u, ok := any(is.DeepCopy()).(O); ok {
		return u
	}
	o = reflect.New(reflect.TypeOf(o).Elem()).Interface().(O)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(is.Object, o); err != nil {
		panic(fmt.Sprintf("kubesim: %T: %v", o, err))
	}
	return o
}

// untyped returns an object as the server has it, with its kind.
func (s *Server) untyped(o runtime.Object) *unstructured.Unstructured {
	if u, ok := o.(*unstructured.Unstructured); ok {
		if s.kindOf(u.GroupVersionKind()) == nil {
			panic(fmt.Sprintf("kubesim: no kind %v", u.GroupVersionKind()))
		}
		return u.DeepCopy()
	}
	types := s.Scheme
	if types == nil {
		types = scheme.Scheme
	}
	gvks, _, err := types.ObjectKinds(o)
	if err != nil {
		panic(fmt.Sprintf("kubesim: %v; is it in Scenario.Scheme?", err))
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(fmt.Sprintf("kubesim: %T: %v", o, err))
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvks[0])
	if s.kindOf(gvks[0]) == nil {
		panic(fmt.Sprintf("kubesim: no kind %v; is it in Scenario.Kinds?", gvks[0]))
	}
	return u
}
