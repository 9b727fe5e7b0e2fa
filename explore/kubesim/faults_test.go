// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// A mirror keeps a Secret as each ConfigMap, by a list and a watch by hand.
type mirror struct {
	client  kubernetes.Interface
	forgets func(err error) bool // an error of a write is the end of it
	anew    bool                 // when a watch has ended, the next one begins with what is there
	kept    map[string]string    // by name, the version that needs nothing more
}

// Run implements [kubesim.Runner].
func (m mirror) Run(ctx context.Context) error {
	for {
		_ = m.round(ctx) // and all over again
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Second):
		}
	}
}

// round looks at all, and then watches until something fails.
func (m mirror) round(ctx context.Context) error {
	maps, err := m.client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	have, err := m.client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, o := range maps.Items {
		if err := m.keep(ctx, &o); err != nil {
			return err
		}
	}
	for _, s := range have.Items {
		if !slices.ContainsFunc(maps.Items, func(o corev1.ConfigMap) bool { return o.Name == s.Name }) {
			if err := m.remove(ctx, s.Name); err != nil {
				return err
			}
		}
	}
	seen := maps.ResourceVersion
	for ctx.Err() == nil {
		w, err := m.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: seen})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			o, ok := e.Object.(*corev1.ConfigMap)
			switch {
			case !ok:
				err = apierrors.FromObject(e.Object)
			case e.Type == watch.Deleted:
				err = m.remove(ctx, o.Name)
			default:
				err = m.keep(ctx, o)
			}
			if err != nil {
				w.Stop()
				return err
			}
			seen = o.ResourceVersion
		}
		if m.anew {
			seen = ""
		}
	}
	return ctx.Err()
}

func (m mirror) keep(ctx context.Context, o *corev1.ConfigMap) error {
	if m.kept[o.Name] == o.ResourceVersion {
		return nil
	}
	secrets := m.client.CoreV1().Secrets("default")
	s, err := secrets.Get(ctx, o.Name, metav1.GetOptions{})
	text := []byte(o.Data["text"])
	switch {
	case apierrors.IsNotFound(err):
		s = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: o.Name}, Data: map[string][]byte{"text": text}}
		_, err = secrets.Create(ctx, s, metav1.CreateOptions{})
	case err == nil && string(s.Data["text"]) != string(text):
		s.Data["text"] = text
		_, err = secrets.Update(ctx, s, metav1.UpdateOptions{})
	}
	if err = m.ignoring(err); err == nil {
		m.kept[o.Name] = o.ResourceVersion
	}
	return err
}

func (m mirror) remove(ctx context.Context, name string) error {
	err := m.client.CoreV1().Secrets("default").Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return m.ignoring(err)
}

func (m mirror) ignoring(err error) error {
	if err != nil && m.forgets != nil && m.forgets(err) {
		return nil
	}
	return err
}

func mirrored(m mirror) kubesim.Scenario {
	a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"text": "1"}}
	b := a.DeepCopy()
	b.Name = "b"
	return kubesim.Scenario{
		Start: func(_ *explore.Process, cfg *rest.Config) kubesim.Runner {
			return mirror{kubernetes.NewForConfigOrDie(cfg), m.forgets, m.anew, map[string]string{}}
		},
		Steps: func(s *kubesim.Environment) {
			s.Create(a)
			s.Create(b)
			s.Advance(2 * time.Minute)
			kubesim.Update(s.Server, a, func(o *corev1.ConfigMap) { o.Data["text"] = "2" })
			s.Advance(2 * time.Minute)
			s.Delete(b)
			s.Advance(2 * time.Minute)
		},
		Invariant: func(s *kubesim.Server) error {
			for _, o := range kubesim.List(s, &corev1.Secret{}) {
				if o.Annotations != nil {
					return fmt.Errorf("%s has the annotations %v", o.Name, o.Annotations)
				}
			}
			return nil
		},
		Plans: 200,
	}
}

// TestFaults has for each fault of a cluster a controller that nothing else breaks, and one
// that nothing breaks.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		fault explore.Fault
		bad   mirror
		want  string
	}{
		{kubesim.Conflict, mirror{forgets: apierrors.IsConflict}, "call update secrets default/a #1"}, // "there will be an event"
		{kubesim.Refused, mirror{forgets: apierrors.IsForbidden}, "call update secrets default/a #1"}, // "it may not"
		{kubesim.Restarts, mirror{forgets: func(err error) bool { // "it may have come through"
			return apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
		}}, "call update secrets default/a #1"},
		{kubesim.Cut, mirror{anew: true}, "event configmaps DELETED default/b #1"},
	} {
		t.Run(strings.ReplaceAll(string(test.fault), " ", "_"), func(t *testing.T) {
			search := func(s kubesim.Scenario) *explore.Report {
				r, err := kubesim.Search(t, s)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			r := search(mirrored(test.bad))
			if want := test.want + ": " + string(test.fault); r.Found == nil || strings.Join(r.Found.Plan, "") != want {
				t.Errorf("it finds %v, want %s", r.Found, want)
			} else {
				t.Log(r.Found)
			}
			s := mirrored(test.bad)
			s.Without = []explore.Fault{test.fault}
			if r := search(s); r.Found != nil {
				t.Errorf("without that fault it is found too: %v", r.Found)
			}
		})
	}
	kubesim.Explore(t, mirrored(mirror{}))
}

// TestWhatFaultsDo counts the requests of a controller that nothing breaks.
func TestWhatFaultsDo(t *testing.T) {
	kubesim.Silence()
	for _, test := range []struct {
		at      string
		fault   explore.Fault
		lists   int // of ConfigMaps
		watches int // of these
		updates int
	}{
		{"call update secrets default/a #1", kubesim.Conflict, 2, 2, 2},
		{"call update secrets default/a #1", kubesim.Refused, 2, 2, 2},
		{"call update secrets default/a #1", kubesim.Restarts, 2, 2, 2},
		{"event configmaps MODIFIED default/a #1", kubesim.Cut, 1, 2, 1},      // it goes on where it was
		{"event configmaps MODIFIED default/a #1", kubesim.Restarts, 2, 3, 1}, // and the second watch is refused
	} {
		s := mirrored(mirror{})
		s.Replay = []string{test.at + ": " + string(test.fault)}
		r, err := kubesim.Search(t, s)
		if err != nil {
			t.Fatal(err)
		}
		journal := strings.Join(r.Journal(), "\n")
		count := func(what string) int {
			return strings.Count(journal, "call "+what)
		}
		if l, w, u := count("list configmaps"), count("watch configmaps"), count("update secrets default/a"); r.Found != nil || l != test.lists || w != test.watches || u != test.updates {
			t.Errorf("%s: %d lists, %d watches, %d updates, want %d, %d, %d:\n%v\n%s", s.Replay, l, w, u, test.lists, test.watches, test.updates, r.Found, journal)
		}
	}
}

// TestRestart has a client without faults: its watch ends, and what was before is known to
// lists alone.
func TestRestart(t *testing.T) {
	s := kubesim.NewServer()
	maps := kubernetes.NewForConfigOrDie(s.Config(nil)).CoreV1().ConfigMaps("default")
	watching := func(version string) watch.Interface {
		w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	list := func(options metav1.ListOptions) *corev1.ConfigMapList {
		all, err := maps.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := list(metav1.ListOptions{}).ResourceVersion
	was := watching(before)
	s.Create(owned("default", "a"))
	s.Restart()
	var types []watch.EventType
	for e := range was.ResultChan() {
		types = append(types, e.Type)
	}
	if !slices.Equal(types, []watch.EventType{watch.Added}) {
		t.Errorf("the watch has the events %v, want ADDED and its end", types)
	}
	if e := <-watching(before).ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("a watch from the version before has %v, want that it is too old", e)
	}
	if all := list(metav1.ListOptions{ResourceVersion: before, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); len(all.Items) > 0 {
		t.Errorf("a list of the version before has %v, want nothing", all.Items)
	}
	is := watching(list(metav1.ListOptions{}).ResourceVersion)
	s.Create(owned("default", "b"))
	if e := <-is.ResultChan(); e.Type != watch.Added {
		t.Errorf("a watch from the version now has %v, want ADDED", e)
	}
}
