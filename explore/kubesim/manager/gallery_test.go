// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package manager_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile/explore/kubesim"
	"github.com/reconkernel/reconcile/explore/kubesim/manager"
)

var plans = flag.Int("plans", 30, "how many plans of each correct controller are played, at least")

type (
	configMap = corev1.ConfigMap
	secret    = corev1.Secret
)

// A fault is one that many operators had, and its correct twin. The desired state is in ConfigMaps
// with the label "desired"; the actual state is in Secrets.
type fault struct {
	name    string
	bad     func(context.Context, handle, *configMap) error
	good    func(context.Context, handle, *configMap) error
	watches func(b *builder.Builder, correct bool) // besides the ConfigMaps
	options func(o *ctrl.Options, correct bool)
	play    func(s *kubesim.Environment)
	check   func(s *kubesim.Server) error
	final   func(s *kubesim.Server) error
	copies  int           // replicas
	within  time.Duration // of the scenario
}

// A handle has the clients of a controller.
type handle struct {
	client.Client               // reads the caches
	live          client.Reader // reads the server
}

// operator is a program with one controller.
func (f fault) operator(correct bool) kubesim.Scenario {
	options := ctrl.Options{Scheme: clientscheme.Scheme}
	if f.options != nil {
		f.options(&options, correct)
	}
	run := f.bad
	if correct {
		run = f.good
	}
	return kubesim.Scenario{
		Start: manager.Start(options, func(mgr ctrl.Manager) error {
			h := handle{mgr.GetClient(), mgr.GetAPIReader()}
			b := ctrl.NewControllerManagedBy(mgr).Named("configs").For(&configMap{})
			if f.watches != nil {
				f.watches(b, correct)
			}
			return b.Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
				var config configMap
				if err := h.Get(ctx, req.NamespacedName, &config); err != nil {
					return ctrl.Result{}, client.IgnoreNotFound(err)
				}
				if config.Labels["desired"] == "" {
					return ctrl.Result{}, nil
				}
				return ctrl.Result{}, run(ctx, h, &config)
			}))
		}),
		Steps: f.play, Invariant: f.check, Final: f.final, Replicas: f.copies, Within: f.within,
	}
}

func desired(name, text string) *configMap {
	return &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"desired": "yes"}}, Data: map[string]string{"text": text}}
}

// made is the Secret of a ConfigMap.
func made(w *configMap) *secret {
	return &secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}, StringData: nil, Data: map[string][]byte{"text": []byte(w.Data["text"])}}
}

// outside is what no owner can hold: it is in another namespace.
func outside(w *configMap) *secret {
	s := made(w)
	s.Namespace = "kube-public"
	return s
}

func rewrite(s *kubesim.Environment, name, text string) {
	kubesim.Update(s.Server, desired(name, ""), func(w *configMap) { w.Data["text"] = text })
}

// comeAndGo creates, changes and deletes a ConfigMap.
func comeAndGo(s *kubesim.Environment) {
	s.Create(desired("a", "1"))
	s.Advance(time.Minute)
	rewrite(s, "a", "2")
	s.Advance(time.Minute)
	s.Delete(desired("a", ""))
	s.Advance(time.Minute)
}

const mark = "example.com/outside"

// owned returns the Secret of a ConfigMap, which is its owner.
func owned(h handle, w *configMap) (*secret, error) {
	s := made(w)
	return s, controllerutil.SetControllerReference(w, s, h.Scheme())
}

func owns(b *builder.Builder, _ bool) { b.Owns(&secret{}) }

// gallery has eleven.
var gallery = []fault{{
	name: "the finalizer is removed before the clean-up",
	bad:  func(ctx context.Context, h handle, w *configMap) error { return finalized(ctx, h, w, false) },
	good: func(ctx context.Context, h handle, w *configMap) error { return finalized(ctx, h, w, true) },
	play: comeAndGo,
}, {
	name: "a cache that lags makes two of what has a generated name",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		var have corev1.SecretList
		if err := h.List(ctx, &have, client.MatchingLabels{"of": w.Name}); err != nil || len(have.Items) > 0 {
			return err
		}
		s, err := owned(h, w)
		if err != nil {
			return err
		}
		s.Name, s.GenerateName, s.Labels, s.Data = "", w.Name+"-", map[string]string{"of": w.Name}, nil
		return h.Create(ctx, s)
	},
	good: func(ctx context.Context, h handle, w *configMap) error {
		s, err := owned(h, w)
		if err != nil {
			return err
		}
		s.Labels, s.Data = map[string]string{"of": w.Name}, nil
		return ignoreExists(h.Create(ctx, s)) // its name can be there once
	},
	watches: owns,
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(30 * time.Second)
		rewrite(s, "a", "2")
		s.Advance(2 * time.Minute)
	},
}, {
	name: "a status is written with all of an old read",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		if w.Annotations["seen"] == w.Data["text"] {
			return nil
		}
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, "seen", w.Data["text"])
		w.ResourceVersion = "" // "so that there are no conflicts"
		return h.Update(ctx, w)
	},
	good: func(ctx context.Context, h handle, w *configMap) error {
		if w.Annotations["seen"] == w.Data["text"] {
			return nil
		}
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, "seen", w.Data["text"])
		return h.Update(ctx, w)
	},
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(time.Minute)
		rewrite(s, "a", "2")
		s.Advance(30 * time.Second)
		rewrite(s, "a", "3")
		s.Advance(2 * time.Minute)
	},
}, {
	name: "the owner is marked in a second call",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		s := made(w)
		if err := h.Create(ctx, s); err != nil {
			return ignoreExists(err)
		}
		before := s.DeepCopy()
		if err := controllerutil.SetControllerReference(w, s, h.Scheme()); err != nil {
			return err
		}
		return h.Patch(ctx, s, client.MergeFrom(before))
	},
	good: func(ctx context.Context, h handle, w *configMap) error {
		s, err := owned(h, w)
		if err != nil {
			return err
		}
		return ignoreExists(h.Create(ctx, s))
	},
	play: comeAndGo,
}, {
	name: "what it made is not watched",
	bad:  copied, good: copied,
	watches: func(b *builder.Builder, correct bool) {
		if correct {
			b.Owns(&secret{})
		}
	},
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(time.Hour)             // what comes and goes while a watch is away, nobody sees
		s.Delete(made(desired("a", ""))) // by another client
		s.Advance(time.Minute)
	},
	final: func(s *kubesim.Server) error {
		if _, there := kubesim.Get(s, made(desired("a", ""))); !there {
			return errors.New("the Secret is gone")
		}
		return nil
	},
}, {
	name: "a number is taken by a list that lags",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		if w.Annotations["number"] != "" {
			return nil
		}
		var all corev1.ConfigMapList
		if err := h.List(ctx, &all, client.HasLabels{"desired"}); err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, other := range all.Items {
			taken[other.Annotations["number"]] = true
		}
		number := 1
		for taken[fmt.Sprint(number)] {
			number++
		}
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, "number", fmt.Sprint(number))
		return h.Update(ctx, w)
	},
	good: func(ctx context.Context, h handle, w *configMap) error {
		if w.Annotations["number"] != "" {
			return nil
		}
		for number := 1; ; number++ { // who takes a number makes an object of it
			taken := &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: fmt.Sprint("number-", number)}, Data: map[string]string{"for": w.Name}}
			if err := h.Create(ctx, taken); apierrors.IsAlreadyExists(err) {
				if err := h.live.Get(ctx, client.ObjectKeyFromObject(taken), taken); err != nil {
					return err
				}
				if taken.Data["for"] != w.Name {
					continue
				}
			} else if err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&w.ObjectMeta, "number", fmt.Sprint(number))
			return h.Update(ctx, w)
		}
	},
	play: func(s *kubesim.Environment) {
		for _, name := range []string{"a", "b"} {
			s.Create(desired(name, "1"))
			s.Advance(30 * time.Second)
		}
		s.Advance(2 * time.Minute)
	},
	check: func(s *kubesim.Server) error {
		by := map[string]string{}
		for _, w := range kubesim.List(s, &configMap{}) {
			n := w.Annotations["number"]
			if n != "" && by[n] != "" {
				return fmt.Errorf("%s and %s both have number %s", by[n], w.Name, n)
			}
			by[n] = w.Name
		}
		return nil
	},
	final: func(s *kubesim.Server) error {
		for _, w := range kubesim.List(s, &configMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}) {
			if w.Annotations["number"] == "" {
				return fmt.Errorf("%s has no number", w.Name)
			}
		}
		return nil
	},
}, {
	name: "two replicas, and none leads",
	bad:  single, good: single,
	copies: 2, within: 4 * time.Minute,
	options: func(o *ctrl.Options, correct bool) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = correct, "operator", "default"
		o.LeaderElectionReleaseOnCancel = true
	},
	play: func(s *kubesim.Environment) {
		s.Advance(time.Minute)
		s.Create(desired("a", "1"))
		s.Advance(time.Minute)
	},
	check: func(s *kubesim.Server) error {
		if n := len(kubesim.List(s, &secret{})); n > 1 {
			return fmt.Errorf("%d Secrets for one ConfigMap", n)
		}
		return nil
	},
	final: func(s *kubesim.Server) error {
		if n := len(kubesim.List(s, &secret{})); n != 1 {
			return fmt.Errorf("%d Secrets, want one", n)
		}
		return nil
	},
}, {
	name: "a conflict is taken for no error",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		err := copied(ctx, h, w)
		if apierrors.IsConflict(err) {
			return nil // "somebody else was quicker, so there will be an event"
		}
		return err
	},
	good: copied,
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(time.Minute)
		rewrite(s, "a", "2")
		s.Advance(time.Minute)
	},
}, {
	name: "a write that is rejected once is not retried",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		err := copied(ctx, h, w)
		if apierrors.IsForbidden(err) {
			return reconcile.TerminalError(err) // "it may not"
		}
		return err
	},
	good: copied,
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(time.Minute)
	},
}, {
	name:    "what cannot be changed is changed for ever",
	bad:     func(ctx context.Context, h handle, w *configMap) error { return frozen(ctx, h, w, false) },
	good:    func(ctx context.Context, h handle, w *configMap) error { return frozen(ctx, h, w, true) },
	watches: owns,
	play: func(s *kubesim.Environment) {
		s.Create(desired("a", "1"))
		s.Advance(time.Minute)
		rewrite(s, "a", "2")
		s.Advance(time.Minute)
	},
	final: isCopied,
}, {
	name: "a Secret is read before it is there",
	bad: func(ctx context.Context, h handle, w *configMap) error {
		return client.IgnoreNotFound(stamped(ctx, h, w)) // "it will come"
	},
	good: stamped,
	play: func(s *kubesim.Environment) {
		s.Create(made(desired("a", "key")))
		s.Advance(10 * time.Second)
		s.Create(desired("a", "1"))
		s.Advance(2 * time.Minute)
	},
	watches: func(b *builder.Builder, _ bool) {
		b.Watches(&secret{}, handler.Funcs{}) // for the cache alone
	},
}}

// isCopied returns an error unless the Secret has the changed text of the ConfigMap.
func isCopied(s *kubesim.Server) error {
	if o, _ := kubesim.Get(s, made(desired("a", ""))); string(o.Data["text"]) != "2" {
		return fmt.Errorf("the Secret has %q, want 2", o.Data["text"])
	}
	return nil
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// finalized makes something outside, and cleans up.
func finalized(ctx context.Context, h handle, w *configMap, correct bool) error {
	if w.DeletionTimestamp == nil {
		if controllerutil.AddFinalizer(w, mark) {
			if err := h.Update(ctx, w); err != nil {
				return err
			}
		}
		return ignoreExists(h.Create(ctx, outside(w)))
	}
	if !controllerutil.ContainsFinalizer(w, mark) {
		return nil
	}
	if correct {
		if err := client.IgnoreNotFound(h.Delete(ctx, outside(w))); err != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(w, mark)
	if err := h.Update(ctx, w); err != nil || correct {
		return err
	}
	return client.IgnoreNotFound(h.Delete(ctx, outside(w)))
}

// copied gives the Secret the text of the ConfigMap.
func copied(ctx context.Context, h handle, w *configMap) error {
	s := &secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, h.Client, s, func() error {
		s.Data = map[string][]byte{"text": []byte(w.Data["text"])}
		return controllerutil.SetControllerReference(w, s, h.Scheme())
	})
	return err
}

// single makes one Secret, and looks before.
func single(ctx context.Context, h handle, w *configMap) error {
	var have corev1.SecretList
	if err := h.live.List(ctx, &have, client.InNamespace(w.Namespace)); err != nil || len(have.Items) > 0 {
		return err
	}
	s := made(w)
	s.Name, s.GenerateName = "", w.Name+"-"
	return h.Create(ctx, s)
}

// frozen makes a Secret that cannot be changed.
func frozen(ctx context.Context, h handle, w *configMap, correct bool) error {
	yes := true
	s, err := owned(h, w)
	if err != nil {
		return err
	}
	s.Immutable = &yes
	var have secret
	err = h.Get(ctx, client.ObjectKeyFromObject(s), &have)
	switch {
	case apierrors.IsNotFound(err):
		return h.Create(ctx, s)
	case err != nil || string(have.Data["text"]) == w.Data["text"]:
		return err
	case correct:
		return client.IgnoreNotFound(h.Delete(ctx, &have, client.Preconditions{UID: &have.UID}))
	}
	have.Data = s.Data
	return h.Update(ctx, &have)
}

// stamped copies the text of another client's Secret to the ConfigMap.
func stamped(ctx context.Context, h handle, w *configMap) error {
	var key secret
	if err := h.Get(ctx, client.ObjectKeyFromObject(w), &key); err != nil {
		return err
	}
	text := cmp.Or(string(key.Data["text"]), "none")
	if w.Annotations["stamp"] == text {
		return nil
	}
	metav1.SetMetaDataAnnotation(&w.ObjectMeta, "stamp", text)
	return h.Update(ctx, w)
}

// TestGallery finds each fault, and none in its correct twin.
func TestGallery(t *testing.T) {
	watchLists(t)
	for _, f := range gallery {
		t.Run(strings.ReplaceAll(f.name, " ", "_"), func(t *testing.T) {
			s := f.operator(false)
			s.Plans = 1000
			r, err := kubesim.Search(t, s)
			if err != nil {
				t.Fatal(err)
			}
			if r.Found == nil {
				t.Errorf("it is not found: %v", r)
			} else {
				t.Logf("found in plan %d: %v", r.Found.Number, r.Found)
			}
			s = f.operator(true)
			s.Plans = *plans
			if r, err = kubesim.Search(t, s); err != nil {
				t.Fatal(err)
			}
			if r.Found != nil {
				t.Errorf("the correct twin: %v", r.Found)
			}
			t.Log("correct twin: ", r)
		})
	}
}
