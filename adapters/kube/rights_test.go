// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// A Foo is what the helpers work on.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            FooStatus `json:"status,omitzero"`
}

type FooStatus struct {
	AvailableReplicas int32 `json:"availableReplicas"`
}

func (f *Foo) DeepCopyObject() runtime.Object { return custom.DeepCopy(f) }

// A right is a verb on a resource.
type right struct{ verb, group, resource string }

// A helper is what needs rights. Its use returns when it has done what it is for, or
// why it cannot; one that only logs that goes on until ctx is done.
type helper struct {
	rights []right
	flags  []string // of the API server; empty means the shared one
	use    func(ctx context.Context, t *testing.T, p place) error
}

// A place is where a helper is used.
type place struct {
	config *rest.Config // with the rights
	admin  *rest.Config
	ns     string
	logger *slog.Logger
	lease  time.Duration // of an election
}

func (p place) foos(t *testing.T, config *rest.Config) *custom.Client[*Foo] {
	t.Helper()
	foos, err := custom.NewClient[Foo](config, fooResource, "Foo")
	if err != nil {
		t.Fatal(err)
	}
	return foos
}

// foo makes a Foo, as admin.
func (p place) foo(ctx context.Context, t *testing.T) *Foo {
	t.Helper()
	foo, err := p.foos(t, p.admin).In(p.ns).Create(ctx, &Foo{ObjectMeta: metav1.ObjectMeta{GenerateName: "foo-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return foo
}

var helpers = map[string]helper{
	// A server that streams no lists wants list, too.
	"Source": {rights: []right{{"watch", "", "configmaps"}}, use: func(ctx context.Context, t *testing.T, p place) error {
		informer := typedInformer(t, p.config, p.ns, 0)
		seen := make(chan struct{})
		c := &kube.Controller[*corev1.ConfigMap]{Name: "configs", Informer: informer, Reconcile: func(context.Context, *corev1.ConfigMap) error {
			close(seen)
			return nil
		}}
		return p.until(ctx, seen, func() {
			create(t, typed(t, p.admin), configMap(p.ns, "a"))
		}, c.Informers(), c)
	}},
	"WriteStatus": {rights: []right{{"patch", fooResource.Group, "foos/status"}, {"get", fooResource.Group, "foos"}}, use: func(ctx context.Context, t *testing.T, p place) error {
		foo := p.foo(ctx, t)
		stale := foo.DeepCopyObject().(*Foo)
		if _, err := p.foos(t, p.admin).In(p.ns).Patch(ctx, foo.Name, "application/merge-patch+json", []byte(`{"spec":{"deploymentName":"x"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := conditions.WriteStatus(ctx, p.foos(t, p.config).In(p.ns), stale, func(f *Foo) { f.Status.AvailableReplicas = 1 })
		return err
	}},
	"Guard": {rights: []right{{"patch", fooResource.Group, "foos"}, {"get", fooResource.Group, "foos"}}, use: func(ctx context.Context, t *testing.T, p place) error {
		foo := p.foo(ctx, t)
		stale := foo.DeepCopyObject().(*Foo)
		if _, err := p.foos(t, p.admin).In(p.ns).Patch(ctx, foo.Name, "application/merge-patch+json", []byte(`{"spec":{"deploymentName":"x"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		guard := &finalizer.Guard[name, *Foo]{
			Name:   "example.com/foo",
			Get:    func(context.Context, name) (*Foo, error) { return stale, nil },
			Client: func(name) kube.Client[*Foo] { return p.foos(t, p.config).In(p.ns) },
			Ensure: func(context.Context, *Foo) error { return nil },
			Clean:  func(context.Context, *Foo) error { return nil },
		}
		return guard.Reconcile(ctx, cache.NewObjectName(p.ns, foo.Name))
	}},
	"Owned.Create": {
		rights: []right{{"create", "", "configmaps"}, {"update", fooResource.Group, "foos/finalizers"}},
		flags:  []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
		use: func(ctx context.Context, t *testing.T, p place) error {
			c := &kube.Controller[*Foo]{}
			owned := kube.Owns[*corev1.ConfigMap](c, typedInformer(t, p.admin, p.ns, 0), kube.OwnedBy{APIVersion: fooResource.GroupVersion().String(), Kind: "Foo"})
			_, err := owned.Create(ctx, typed(t, p.config).CoreV1().ConfigMaps(p.ns), p.foo(ctx, t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}})
			return err
		},
	},
	"Elect": {rights: leases("get", "create", "update", "watch"), use: func(ctx context.Context, t *testing.T, p place) error {
		config := elect.Config{Client: typed(t, p.config).CoordinationV1(), Namespace: p.ns, Name: "lease", Logger: p.logger, Duration: p.lease}
		// Twice: the second term is not of a new Lease.
		for range 2 {
			leads := make(chan struct{})
			lead := sync.OnceFunc(func() { close(leads) }) // a term may be lost and won again
			err := p.until(ctx, leads, nil, elect.Elect(config, reconcile.RunFunc(func(ctx context.Context) error {
				lead()
				<-ctx.Done()
				return nil
			})))
			if err != nil {
				return err
			}
		}
		err := elect.Elect(config, reconcile.RunFunc(func(ctx context.Context) error {
			for { // until it watches
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(100 * time.Millisecond):
				}
				err := typed(t, p.admin).CoordinationV1().Leases(p.ns).Delete(ctx, config.Name, metav1.DeleteOptions{})
				if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
		})).Run(ctx)
		if err != nil && !errors.Is(err, reconcile.ErrLeaseLost) {
			return err
		}
		if text := p.logger.Handler().(*lines).String(); strings.Contains(text, "cannot") {
			return errors.New(text)
		}
		return nil
	}},
	"Recorder": {rights: []right{{"create", "events.k8s.io", "events"}, {"patch", "events.k8s.io", "events"}}, use: func(ctx context.Context, t *testing.T, p place) error {
		client := typed(t, p.config)
		recorder := &events.Recorder[name]{Client: client.EventsV1(), Controller: "example.com/test", Logger: p.logger, Regarding: func(name) (runtime.Object, error) {
			return nil, errors.New("none")
		}}
		of := &corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: p.ns, Name: "a"}
		all, err := typed(t, p.admin).EventsV1().Events(p.ns).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer all.Stop()
		return recorder.Around(reconcile.RunFunc(func(ctx context.Context) error {
			for range 2 { // a series
				recorder.Record(of, events.Event{Reason: "Made", Note: "a secret"})
				select {
				case <-all.ResultChan():
				case <-ctx.Done():
					return nil
				}
			}
			return nil
		})).Run(ctx)
	}},
}

func leases(verbs ...string) (rights []right) {
	for _, verb := range verbs {
		rights = append(rights, right{verb, "coordination.k8s.io", "leases"})
	}
	return rights
}

// until runs runners until done is closed, or ctx is done.
func (p place) until(ctx context.Context, done <-chan struct{}, begun func(), runners ...reconcile.Runner) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group := supervise.Group{Logger: p.logger}
	for i, r := range runners {
		group.Add(fmt.Sprint(i), r)
	}
	group.Add("until", reconcile.RunFunc(func(ctx context.Context) error {
		if begun != nil {
			begun()
		}
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
		return nil
	}))
	return group.Run(ctx)
}

// TestRights uses each helper with exactly the rights that docs/kube.md says it needs,
// and it does what it is for; and without each of them: then its error, or what it
// logs, says which is missing.
func TestRights(t *testing.T) {
	for what, h := range helpers {
		t.Run(what, func(t *testing.T) {
			s := kubetest.Shared(t)
			if len(h.flags) > 0 {
				var err error
				if s, err = kubetest.Start(t.Context(), h.flags...); err != nil {
					t.Fatal(err)
				}
				defer s.Close()
			}
			s.Define(t, "Namespaced", fooResource.Group, "Foo")
			users := 0
			for missing := -1; missing < len(h.rights); missing++ {
				without := slices.Clone(h.rights)
				want := "no right is missing"
				if missing >= 0 {
					r := h.rights[missing]
					without = slices.Delete(without, missing, missing+1)
					want = fmt.Sprintf(`cannot %s resource \"%s\"`, r.verb, r.resource)
					switch {
					case strings.HasSuffix(r.resource, "/finalizers"): // the server names no resource
						want = "the right to update the finalizers of Foo is missing"
					case r.verb == "watch" && r.group == "": // without it, the list is tried
						want = "this client may not list and watch it"
					}
				}
				users++
				p := place{config: may(t, s, fmt.Sprintf("%s-%d", strings.ToLower(what), users), without), admin: s.Admin(), lease: 3 * time.Second}
				if missing < 0 { // none is to be lost on a slow machine
					p.lease = 15 * time.Second
				}
				p.ns = s.Namespace(t)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				l := newLines(want, cancel)
				p.logger = slog.New(l)
				err := h.use(ctx, t, p)
				switch text := fmt.Sprintf("%q %s", fmt.Sprint(err), l.String()); {
				case missing < 0 && (err != nil || ctx.Err() != nil):
					t.Errorf("with all rights: %s", text)
				case missing >= 0 && !strings.Contains(text, want):
					t.Errorf("without %v: %s, want %q", h.rights[missing], text, want)
				case strings.Contains(text, "a secret"):
					t.Errorf("the note of an event is in the log: %s", text)
				}
			}
		})
	}
}

// may returns the configuration of a user who may do that alone, when the API server
// knows.
func may(t *testing.T, s *kubetest.Server, user string, rights []right) *rest.Config {
	t.Helper()
	admin := typed(t, s.Admin())
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}
	for _, r := range rights {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}})
	}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range rights {
		resource, sub, _ := strings.Cut(r.resource, "/")
		kubetest.Eventually(t, func() error {
			review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub},
			}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = fmt.Errorf("%s may not %v", user, r)
			}
			return err
		})
	}
	return s.User(user)
}
