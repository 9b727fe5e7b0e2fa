// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile/explore/kubesim"
)

// An observer is a shared informer of client-go at a Server: of the ConfigMaps of a namespace
// with the label "x". It runs in a bubble.
type observer struct {
	*kubesim.Server
	informer cache.SharedIndexInformer

	mu      sync.Mutex // guards the fields below
	told    []string   // what a handler heard
	asked   []string   // of the server: "list", "watch", "watch list"
	watches []io.Closer
	away    chan struct{} // closed when the server can be reached again; nil if it can be
}

// A spy is the way to the server.
type spy struct {
	*observer
	next http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (s spy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	away := s.away
	s.mu.Unlock()
	if away != nil {
		<-away
	}
	w, err := s.next.RoundTrip(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	query := r.URL.Query()
	switch {
	case query.Get("watch") == "":
		s.asked = append(s.asked, "list")
	case query.Get("sendInitialEvents") == "true":
		s.asked = append(s.asked, "watch list")
	default:
		s.asked = append(s.asked, "watch")
	}
	if err == nil && query.Get("watch") != "" {
		s.watches = append(s.watches, w.Body)
	}
	return w, err
}

// cut ends the connections of all watches, and lets changes happen before there are new ones.
func (o *observer) cut(changes func()) {
	o.mu.Lock()
	o.away = make(chan struct{})
	for _, w := range o.watches {
		w.Close()
	}
	o.watches = nil
	o.mu.Unlock()
	changes()
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.away)
	o.away = nil
}

// tell notes what a handler hears, by the texts of objects.
func (o *observer) tell(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, v := range args {
		if m, ok := v.(*corev1.ConfigMap); ok {
			args[i] = m.Name + " " + m.Data["text"]
		}
	}
	o.told = append(o.told, fmt.Sprintf(format, args...))
}

// OnAdd implements [cache.ResourceEventHandler].
func (o *observer) OnAdd(is any, initial bool) {
	if initial {
		o.tell("initial %s", is)
	} else {
		o.tell("add %s", is)
	}
}

// OnUpdate implements [cache.ResourceEventHandler].
func (o *observer) OnUpdate(was, is any) {
	a, b := was.(*corev1.ConfigMap), is.(*corev1.ConfigMap)
	if a.ResourceVersion == b.ResourceVersion {
		o.tell("same %s", is)
		return
	}
	o.tell("update %s to %s", was, is)
}

// OnDelete implements [cache.ResourceEventHandler].
func (o *observer) OnDelete(was any) {
	if unknown, ok := was.(cache.DeletedFinalStateUnknown); ok {
		o.tell("delete %s, unseen", unknown.Obj)
		return
	}
	o.tell("delete %s", was)
}

// change changes what there is, in each way.
func (o *observer) change() {
	o.put("a", "2")
	o.Delete(text("b", ""))
	o.Create(text("c", "1"))
}

// rest returns what was heard and asked since it was called before, once nothing goes on
// any more, and some time later.
func (o *observer) rest() (told, asked string) {
	time.Sleep(30 * time.Second)
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.Sort(o.told) // what is heard at once has an order by chance
	told, asked = strings.Join(o.told, "; "), strings.Join(o.asked, ", ")
	o.told, o.asked = nil, nil
	return told, asked
}

func text(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"x": "1"}}, Data: map[string]string{"text": value}}
}

func (o *observer) put(name, value string) {
	kubesim.Update(o.Server, text(name, ""), func(m *corev1.ConfigMap) { m.Data["text"] = value })
}

func (o *observer) label(name string, labels map[string]string) {
	kubesim.Update(o.Server, text(name, ""), func(m *corev1.ConfigMap) { m.Labels = labels })
}

// TestInformer has a shared informer of client-go see what it is promised, by lists and watches
// and by watches alone.
func TestInformer(t *testing.T) {
	kubesim.Silence()
	type step struct {
		do          func(o *observer)
		told, asked string
	}
	begin := step{func(o *observer) {
		o.Create(text("a", "1"))
		o.Create(text("b", "1"))
	}, "initial a 1; initial b 1", "LIST"}
	for name, test := range map[string]struct {
		resync    time.Duration
		transform cache.TransformFunc
		steps     []step
	}{
		"a cut": {steps: []step{begin, {func(o *observer) {
			o.cut(o.change)
		}, "add c 1; delete b 1; update a 1 to a 2", "watch"}, {func(o *observer) {
			o.cut(func() {})
		}, "", "watch"}}},

		"too old": {steps: []step{begin, {func(o *observer) {
			o.cut(func() { o.change(); o.Compact() })
		}, "add c 1; delete b 1, unseen; update a 1 to a 2", "watch, LIST"}}},

		"a restart": {steps: []step{begin, {func(o *observer) {
			o.Restart() // and nothing happened since what it saw
		}, "", "watch"}, {func(o *observer) {
			o.cut(func() { o.change(); o.Restart() })
		}, "add c 1; delete b 1, unseen; update a 1 to a 2", "watch, LIST"}}},

		"bookmarks": {steps: []step{begin, {func(o *observer) {
			o.Create(owned("kube-public", "elsewhere"))
			time.Sleep(time.Minute) // in which it hears how far the server is
			o.cut(o.Compact)
		}, "", "watch"}}},

		"bookmarks after a cut": {steps: []step{begin, {func(o *observer) {
			o.cut(func() { o.Create(owned("kube-public", "elsewhere")) })
		}, "", "watch"}, {func(o *observer) {
			time.Sleep(time.Minute) // in which it hears how far the server was when it came back
			o.cut(o.Compact)
		}, "", "watch"}}},

		"another under the same name": {steps: []step{begin, {func(o *observer) {
			o.cut(func() {
				o.Delete(text("a", ""))
				o.Create(text("a", "new"))
				o.Compact()
			})
		}, "same b 1; update a 1 to a new", "watch, LIST"}}},

		"a selector": {steps: []step{begin, {func(o *observer) {
			o.label("a", nil)
		}, "delete a 1", ""}, {func(o *observer) {
			o.put("a", "unseen")
			o.label("a", map[string]string{"x": "2"})
		}, "add a unseen", ""}}},

		"a resync": {resync: time.Minute, steps: []step{begin, {func(o *observer) {
			o.cut(func() {})
			time.Sleep(31 * time.Second)
		}, "same a 1; same b 1", "watch"}}},

		"a transformation": {transform: func(v any) (any, error) {
			if m, ok := v.(*corev1.ConfigMap); ok {
				m.Data = map[string]string{"text": "(" + strings.Trim(m.Data["text"], "()") + ")"} // it may come twice
			}
			return v, nil
		}, steps: []step{{begin.do, "initial a (1); initial b (1)", "LIST"}, {func(o *observer) {
			o.put("a", "2")
		}, "update a (1) to a (2)", ""}, {func(o *observer) {
			o.cut(func() { o.put("a", "3"); o.Compact() })
		}, "same b (1); update a (2) to a (3)", "watch, LIST"}}},
	} {
		for _, lists := range []string{"list, watch", "watch list", "watch list, list, watch"} { // the last if the server has no watch lists
			t.Run(name+"/"+lists, func(t *testing.T) {
				featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, lists != "list, watch")
				synctest.Test(t, func(t *testing.T) {
					o := &observer{Server: kubesim.NewServer()}
					o.NoWatchList = strings.HasSuffix(lists, ", list, watch")
					cfg := o.Config(nil)
					cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return spy{o, next} })
					o.informer = coreinformers.NewFilteredConfigMapInformer(kubernetes.NewForConfigOrDie(cfg), "default", cmp.Or(test.resync, 24*time.Hour),
						cache.Indexers{"text": func(v any) ([]string, error) { return []string{v.(*corev1.ConfigMap).Data["text"]}, nil }},
						func(options *metav1.ListOptions) { options.LabelSelector = "x" })
					if err := o.informer.SetTransform(test.transform); err != nil {
						t.Fatal(err)
					}
					if _, err := o.informer.AddEventHandler(o); err != nil {
						t.Fatal(err)
					}
					var run sync.WaitGroup
					defer run.Wait()
					stop := make(chan struct{})
					defer close(stop)
					for i, s := range test.steps {
						s.do(o)
						if i == 0 {
							run.Go(func() { o.informer.Run(stop) })
						}
						told, asked := o.rest()
						if want := strings.ReplaceAll(s.asked, "LIST", lists); told != s.told || asked != want {
							t.Errorf("step %d: it hears %q and asks %q, want %q and %q", i, told, asked, s.told, want)
						}
						o.indexed(t)
					}
				})
			})
		}
	}
}

// indexed compares the index with what is there.
func (o *observer) indexed(t *testing.T) {
	t.Helper()
	for _, v := range o.informer.GetStore().List() {
		m := v.(*corev1.ConfigMap)
		found, err := o.informer.GetIndexer().ByIndex("text", m.Data["text"])
		if err != nil || !slices.Contains(found, v) {
			t.Errorf("the index has %v of %s, and %v", found, m.Name, err)
		}
		if is, there := kubesim.Get(o.Server, m); !there || is.ResourceVersion != m.ResourceVersion {
			t.Errorf("the informer has %s in version %s, the server %s", m.Name, m.ResourceVersion, is.ResourceVersion)
		}
	}
	matching := 0
	for _, m := range kubesim.List(o.Server, text("", "")) {
		if m.Labels["x"] != "" {
			matching++
		}
	}
	if n := len(o.informer.GetStore().List()); n != matching {
		t.Errorf("the informer has %d, the server %d", n, matching)
	}
	for _, value := range o.informer.GetIndexer().ListIndexFuncValues("text") {
		if found, _ := o.informer.GetIndexer().ByIndex("text", value); len(found) == 0 {
			t.Errorf("the index has %q, which is nowhere", value)
		}
	}
}
