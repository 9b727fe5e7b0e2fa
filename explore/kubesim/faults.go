// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/reconkernel/reconcile/explore"
)

// The faults that a cluster has besides those of package explore.
const (
	// Conflict comes before an update, or a patch that has a version: somebody else
	// annotates the object, and the answer is a conflict. No description of the cluster
	// shows that annotation.
	Conflict explore.Fault = "another client writes first"

	// Refused is the answer of an admission webhook to a write, once: the code 403. The
	// write has no effect.
	Refused explore.Fault = "refused by admission"

	// Restarts is [Server.Restart] in place of a write or an event. The write has no
	// effect.
	Restarts explore.Fault = "the server restarts"

	// Cut ends the watch in place of an event: the client goes on from the version that it
	// saw last, and the event comes then.
	Cut explore.Fault = "the watch is cut"
)

// Faults returns the faults that a cluster has besides those of package explore. [Explore]
// tries them; an [explore.Scenario] that has a Server in its world does if they are its CustomFaults.
func Faults() []explore.Fault { return []explore.Fault{Conflict, Refused, Restarts, Cut} }

// outage is how long a server that starts again accepts no connections.
const outage = 5 * time.Second

// byAnotherClient is what [Conflict] annotates.
const byAnotherClient = "kubesim.example.com/another-client"

// Restart does what a server does that ends and comes back: all watches end; for five
// seconds the connections of processes are refused; and a watch from a version before is
// too old, as the server remembers no events.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.upAt, s.started = time.Now().Add(outage), s.version
	for _, t := range s.tables {
		for _, w := range t.watchers {
			w.cut()
		}
		t.watchers = nil
	}
}

// reachable returns an error while connections are refused.
func (s *Server) reachable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !time.Now().Before(s.upAt) {
		return nil
	}
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// write makes a call that changes objects, with the faults that it can have: serve lets the
// server answer, by what it is given, if it can be reached.
func (t *transport) write(ctx context.Context, q *request, serve func(func() answer) error) error {
	op := t.server.opOf(q)
	effect := func() error { return serve(func() answer { return t.server.answer(q, "") }) }
	k, ok := t.caller.(process)
	if !ok {
		return t.caller.Do(ctx, op, effect)
	}
	own := map[explore.Fault]func() error{
		Refused:  func() error { return serve(denied) },
		Restarts: func() error { t.server.Restart(); return effect() },
	}
	if q.versioned() {
		own[Conflict] = func() error { t.server.annotate(q); return effect() }
	}
	return k.DoOr(ctx, op, effect, own)
}

// versioned reports whether the request changes one version of an object.
func (q *request) versioned() bool {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	return (q.method == http.MethodPut || q.method == http.MethodPatch) && !q.dryRun() &&
		json.Unmarshal(q.body, &o) == nil && o.Metadata.ResourceVersion != ""
}

// annotate writes the object of a request, if it is there, as another client does.
func (s *Server) annotate(q *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.table(q.kind).records[key(q.space, q.name)]
	if old == nil {
		return
	}
	o := old.object.DeepCopy()
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[byAnotherClient] = fmt.Sprint(s.version)
	o.SetAnnotations(annotations)
	// If it is refused, the other client was not quicker.
	_, _ = s.update(&request{kind: q.kind, space: q.space, name: q.name, agent: "another-client"}, old, o, nil, true)
}

// withoutAnotherHand returns an object as it would be without what [Conflict] wrote.
func withoutAnotherHand(o *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := o.GetAnnotations()
	if _, ok := annotations[byAnotherClient]; !ok {
		return o
	}
	o = o.DeepCopy()
	delete(annotations, byAnotherClient) // which is a copy
	if o.SetAnnotations(annotations); len(annotations) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o
}

// denied is what a server answers when a webhook refuses a request.
func denied() answer {
	return failed(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: `admission webhook "kubesim.example.com" denied the request: not now`,
	}})
}

// event gives an event to a process, with the faults that it can have.
func (w *ways) event(h *happening) {
	w.process.EventOr(h, map[explore.Fault]func(){Restarts: h.watcher.server.Restart, Cut: h.watcher.cut})
}
