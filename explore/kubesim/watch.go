// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	bookmarkEvery = time.Minute
	patience      = 63 * time.Second // with an event that a plan holds back: it may be late by a minute
)

// A watcher is one watch, and the body of its answer.
type watcher struct {
	server  *Server
	kind    *Kind
	filter  filter
	partial bool // metadata alone
	ctx     context.Context
	ways    *ways // how events come in a plan; nil means at once
	marks   bool  // bookmarks

	mu     sync.Mutex // guards the fields below; may be locked under Server.mu
	buffer []byte
	end    error         // what Read returns once buffer is empty
	more   chan struct{} // closed when there is something to read
	queue  []*happening  // not yet written
	timer  *time.Timer   // of the first of these
	marker *time.Timer   // of the next bookmark; nil if there is none
	seen   int64         // the version that the client has seen
}

// A happening is an event on its way to a watcher.
type happening struct {
	watcher *watcher
	what    string
	version int64
	text    []byte
	at      time.Time
	came    bool
}

func (h *happening) String() string { return h.what }

// send takes an event in, and reports whether the watch goes on.
func (w *watcher) send(c change) bool {
	if w.ctx.Err() != nil {
		return false
	}
	is := !c.gone && w.filter.matches(c.now)
	was := c.old != nil && w.filter.matches(c.old)
	kind, r := watch.Modified, c.now
	switch {
	case is && !was:
		kind = watch.Added
	case was && !is:
		kind = watch.Deleted
		if !c.gone { // it does not match any more: the last that did, with the new version
			o := c.old.object.DeepCopy()
			o.SetResourceVersion(c.now.object.GetResourceVersion())
			r = &record{kind: c.now.kind, object: o, version: c.version, managed: c.old.managed}
		}
	case !is:
		return true
	}
	text := w.line(kind, r)
	w.mu.Lock()
	if w.end != nil {
		w.mu.Unlock()
		return false
	}
	if w.ways == nil {
		w.writeLocked(text, c.version)
		w.mu.Unlock()
		return true
	}
	h := &happening{watcher: w, version: c.version, text: text, at: time.Now(), what: fmt.Sprintf("%s %s %s", w.kind, kind, w.server.nameOf(r.object))}
	w.queue = append(w.queue, h)
	if len(w.queue) == 1 {
		w.waitLocked()
	}
	w.mu.Unlock()
	w.ways.event(h)
	return true
}

// came notes that an event comes. What came after it and was heard before waits for it.
// If it comes again, the client has to list anew, as after a watch that is too old: so
// a client sees an object twice.
func (w *watcher) came(h *happening) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.came {
		w.expireLocked()
		return
	}
	h.came = true
	for len(w.queue) > 0 && w.queue[0].came {
		w.writeLocked(w.queue[0].text, w.queue[0].version)
		w.queue = w.queue[1:]
	}
	w.waitLocked()
}

// waitLocked sees to it that an event which is lost ends the watch: the client lists
// anew, and sees no more of the event than its effect.
func (w *watcher) waitLocked() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if len(w.queue) > 0 && w.end == nil {
		first := w.queue[0]
		w.timer = time.AfterFunc(time.Until(first.at.Add(patience)), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !first.came {
				w.expireLocked()
			}
		})
	}
}

// expireLocked ends the watch as one that is too old.
func (w *watcher) expireLocked() {
	if w.end == nil {
		w.writeLocked(errorLine(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.seen, w.seen+1))), 0)
		w.endLocked(io.EOF)
	}
}

// cut ends the watch, as a server does that ends. The client comes back.
func (w *watcher) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(io.EOF)
}

func (w *watcher) endLocked(err error) {
	if w.end == nil {
		w.end = err
		w.queue = nil
		w.waitLocked()
		if w.marker != nil {
			w.marker.Stop()
		}
		close(w.more)
	}
}

func (w *watcher) writeLocked(line []byte, version int64) {
	if w.end != nil {
		return
	}
	w.buffer = append(w.buffer, line...)
	w.seen = max(w.seen, version)
	close(w.more)
	w.more = make(chan struct{})
}

// line is an event as clients read it.
func (w *watcher) line(kind watch.EventType, r *record) []byte {
	body := r.text()
	if w.partial {
		body = r.metadata()
	}
	return eventLine(kind, body)
}

func eventLine(kind watch.EventType, body []byte) []byte {
	line := make([]byte, 0, len(body)+40)
	line = append(line, `{"type":"`...)
	line = append(line, kind...)
	line = append(line, `","object":`...)
	line = append(line, body...)
	return append(line, "}\n"...)
}

func errorLine(err error) []byte { return eventLine(watch.Error, encode(statusOf(err))) }

// bookmark tells the client of a version.
func (w *watcher) bookmark(version int64, initial bool) []byte {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(w.kind.GroupVersionKind)
	if w.partial {
		o.SetAPIVersion("meta.k8s.io/v1")
		o.SetKind("PartialObjectMetadata")
	}
	o.SetResourceVersion(fmt.Sprint(version))
	if initial {
		o.SetAnnotations(map[string]string{"k8s.io/initial-events-end": "true"})
	}
	return eventLine(watch.Bookmark, encode(o.Object))
}

// mark writes a bookmark if it says more than was seen, and nothing is held back that came
// before it; and comes again.
func (w *watcher) mark() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end == nil && w.ctx.Err() == nil {
		if len(w.queue) == 0 && w.seen < w.server.version {
			w.writeLocked(w.bookmark(w.server.version, false), w.server.version)
		}
		w.marker.Reset(bookmarkEvery)
	}
}

// Read implements [io.Reader].
func (w *watcher) Read(into []byte) (int, error) {
	for {
		w.mu.Lock()
		if len(w.buffer) > 0 {
			n := copy(into, w.buffer)
			w.buffer = w.buffer[n:]
			w.mu.Unlock()
			return n, nil
		}
		end, more := w.end, w.more
		w.mu.Unlock()
		if end != nil {
			return 0, end
		}
		select {
		case <-more:
		case <-w.ctx.Done():
			return 0, io.ErrUnexpectedEOF // what a broken connection is; some clients leak after another error
		}
	}
}

// Close implements [io.Closer].
func (w *watcher) Close() error {
	w.cut()
	return nil
}

// watch starts a watch. The timeout of the request is left to the caller.
func (s *Server) watch(ctx context.Context, q *request, w *ways) (*watcher, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	from, err := q.version()
	if err != nil {
		return nil, err
	}
	if q.list.SendInitialEvents != nil && s.NoWatchList {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table(q.kind)
	out := &watcher{server: s, kind: q.kind, filter: f, partial: q.partial, ctx: ctx, ways: w, marks: q.list.AllowWatchBookmarks, more: make(chan struct{}), seen: s.version}
	sends := q.list.SendInitialEvents
	switch {
	case sends != nil && *sends, sends == nil && from == 0:
		if from > s.version {
			return nil, tooLarge(from, s.version)
		}
		for _, r := range t.find(f) {
			out.writeLocked(out.line(watch.Added, r), r.version)
		}
		if sends != nil && out.marks {
			out.writeLocked(out.bookmark(s.version, true), s.version)
		}
	case from < max(s.compacted, s.started) && from != 0:
		out.writeLocked(errorLine(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, max(s.compacted, s.started)))), 0)
		out.endLocked(io.EOF)
		return out, nil
	default:
		if sends != nil && from == 0 {
			from = s.version
		}
		out.seen = from
		for _, c := range t.changes {
			if c.version > from {
				out.send(c)
			}
		}
	}
	t.watchers = append(t.watchers, out)
	if out.marks {
		out.mu.Lock()
		out.marker = time.AfterFunc(bookmarkEvery, out.mark)
		out.mu.Unlock()
	}
	return out, nil
}

// serve writes the events of a watch, until the request ends or its time is over.
func (w *watcher) serve(rw http.ResponseWriter, timeout time.Duration) {
	defer w.cut()
	stream := http.NewResponseController(rw)
	rw.WriteHeader(http.StatusOK)
	if timeout > 0 {
		defer time.AfterFunc(timeout, w.cut).Stop()
	}
	text := make([]byte, 32<<10)
	for {
		if stream.Flush() != nil {
			return
		}
		n, err := w.Read(text)
		if n > 0 {
			if _, err := rw.Write(text[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
