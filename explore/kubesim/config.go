// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/reconkernel/reconcile/explore"
)

// Config returns how a process of a plan reaches the server: each request is a call of
// c, named as "create jobs default/a". If c is an [explore.Process], the events of watches
// are events of the plan, named as "jobs ADDED default/a". A generated name is named as
// what it is generated from, and an asterisk. What discovers kinds and what records events
// (of the kind Event) is never disturbed.
//
// A request that fails is answered with the code 503. A read is stale only if it may be:
// if it asks for the version "0", as informers do; and then an informer lists what was
// there before. An event that is lost ends its watch after a minute, as one that is too
// old: the client lists anew. An event that comes twice does so too. One that is late holds
// back those after it. The time of a watch has no end. The faults of [Faults] need an
// [explore.Process].
//
// A nil c is for Steps: its requests have no faults, and are in no journal.
func (s *Server) Config(c explore.Caller) *rest.Config {
	t := &transport{server: s}
	if k, ok := c.(process); ok && !isNil(c) {
		t.caller = c
		t.ways = s.waysOf(k)
	} else if !isNil(c) {
		t.caller = c
	}
	return &rest.Config{
		Host: "http://kubesim", QPS: -1, Transport: t,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
	}
}

// ServerOf returns the server that a configuration of [Server.Config] is for, or nil.
func ServerOf(cfg *rest.Config) *Server {
	if t, ok := cfg.Transport.(*transport); ok {
		return t.server
	}
	return nil
}

// Mapper knows the kinds of the server, as discovery would tell.
func (s *Server) Mapper() meta.RESTMapper {
	versions := slices.SortedFunc(maps.Keys(s.groups), func(a, b schema.GroupVersion) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), -version.CompareKubeAwareVersionStrings(a.Version, b.Version))
	})
	m := meta.NewDefaultRESTMapper(versions) // so that a kind is found without its version
	for gv, kinds := range s.groups {
		for _, k := range kinds {
			scope := meta.RESTScopeNamespace
			if k.Cluster {
				scope = meta.RESTScopeRoot
			}
			m.Add(gv.WithKind(k.Kind+"List"), scope) // as the mapper of discovery has it
			m.AddSpecific(k.GroupVersionKind, gv.WithResource(k.Resource), gv.WithResource(k.singular), scope)
		}
	}
	return m
}

func isNil(c explore.Caller) bool {
	proc, ok := c.(*explore.Process)
	return c == nil || ok && proc == nil
}

// A process is a Caller that has events, and faults of the server's own: an [explore.Process].
type process interface {
	explore.Caller
	DoOr(ctx context.Context, op string, effect func() error, own map[explore.Fault]func() error) error
	EventOr(event any, own map[explore.Fault]func())
	OnEvent(hear func(event any))
}

// ways are how events come to a process of a plan.
type ways struct {
	process process
}

func (s *Server) waysOf(k process) *ways {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.all {
		if w.process == k {
			return w
		}
	}
	w := &ways{process: k}
	s.all[w] = true
	k.OnEvent(func(event any) {
		if h, ok := event.(*happening); ok && h.watcher.ways == w {
			h.watcher.came(h)
		}
	})
	return w
}

// A transport is the way of a process to the server.
type transport struct {
	server *Server
	caller explore.Caller // nil without faults
	ways   *ways
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("kubesim: body of %s %s: %w", r.Method, r.URL.Path, err)
		}
	}
	q, err := t.server.parse(r)
	if err != nil {
		return failed(err).response(r), nil
	}
	q.body = body
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	if q.kind != nil && q.watches() {
		return t.watch(r, q)
	}
	var got answer
	served := false
	serve := func(reply func() answer) error {
		served = true
		err := t.server.reachable()
		if err == nil {
			got = reply()
		}
		return err
	}
	answers := func() answer { return t.server.answer(q, r.URL.Path) }
	reads := q.method == http.MethodGet
	switch {
	case t.caller == nil, q.kind == nil, reads && t.caller.Context().Err() != nil:
		// What a dead process looks at is no matter, and some wait for it.
		got = answers()
	case q.kind.Kind == "Event" && t.caller.Context().Err() == nil:
		got = answers() // nothing depends on these
	case reads && q.query.Get("resourceVersion") == "0" && t.server.reachable() != nil:
		// No answer that could come again later.
		err = t.caller.Do(r.Context(), t.server.opOf(q), func() error { return serve(answers) })
	case reads && q.query.Get("resourceVersion") == "0":
		var text string
		text, err = explore.Read(r.Context(), t.caller, t.server.opOf(q), func() (string, error) {
			if err := serve(answers); err != nil {
				return "", err
			}
			return strconv.Itoa(got.code) + " " + string(got.body), nil
		})
		code, rest, _ := strings.Cut(text, " ") // of before, perhaps
		got.code, _ = strconv.Atoi(code)
		got.body = []byte(rest)
	case reads:
		_, err = t.caller.ReadAny(r.Context(), t.server.opOf(q), func() (any, error) { return nil, serve(answers) })
	default:
		err = t.write(r.Context(), q, serve)
	}
	switch {
	case errors.Is(err, explore.ErrInjected) && !served:
		got = failed(apierrors.NewServiceUnavailable(err.Error()))
	case errors.Is(err, explore.ErrInjected):
		return nil, fmt.Errorf("connection broken, answer lost: %w", err)
	case err != nil:
		return nil, err
	}
	return got.response(r), nil
}

func (t *transport) watch(r *http.Request, q *request) (*http.Response, error) {
	ways := t.ways
	switch {
	case t.caller == nil:
	case t.caller.Context().Err() != nil:
		ways = nil
	default:
		if err := t.caller.Do(r.Context(), t.server.opOf(q), nil); errors.Is(err, explore.ErrInjected) {
			return failed(apierrors.NewServiceUnavailable(err.Error())).response(r), nil
		} else if err != nil {
			return nil, err
		}
	}
	if t.caller != nil {
		if err := t.server.reachable(); err != nil {
			return nil, err
		}
	}
	w, err := t.server.watch(r.Context(), q, ways)
	if err != nil {
		return failed(err).response(r), nil
	}
	if ways != nil {
		context.AfterFunc(t.caller.Context(), w.cut)
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: w, ContentLength: -1, Request: r,
	}, nil
}

func (a answer) response(r *http.Request) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", a.code, http.StatusText(a.code)), StatusCode: a.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: r,
	}
}

// opOf names a request in plans.
func (s *Server) opOf(q *request) string {
	var verb string
	switch q.method {
	case http.MethodGet:
		verb = "list"
		if q.name != "" {
			verb = "get"
		}
		if q.watches() {
			verb = "watch"
		}
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	case http.MethodPatch:
		verb = "patch"
		if q.media == "application/apply-patch+yaml" {
			verb = "apply"
		}
	case http.MethodDelete:
		verb = "delete"
		if q.name == "" {
			verb = "delete all"
		}
	default:
		verb = strings.ToLower(q.method)
	}
	op := verb + " " + q.kind.Resource
	if q.sub != "" {
		op += "/" + q.sub
	}
	name := q.name
	if q.method == http.MethodPost && name == "" {
		name = nameIn(q.body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.space != "" {
		name = q.space + "/" + name
	}
	if name != "" {
		op += " " + strings.TrimSuffix(name, "/")
	}
	for _, selector := range []string{"labelSelector", "fieldSelector"} {
		if v := q.query.Get(selector); v != "" {
			op += " " + v
		}
	}
	return s.patternOf(op)
}

// Silence lets klog and the error handlers of apimachinery do nothing from now on, as
// [Explore] does: the handlers compare the clock of the machine with that of a bubble, and
// sleep for years. A panic that client-go recovers, as it does in its goroutines, ends the
// process of the plan, as log.Fatal does, and not the test. It is for scenarios of package
// explore with a world of their own.
func Silence() { silence() }

var silence = sync.OnceFunc(func() {
	utilruntime.ErrorHandlers = nil
	utilruntime.PanicHandlers = []func(context.Context, any){
		func(_ context.Context, value any) {
			log.Fatalf("panic in a goroutine of client-go: %v\n%s", value, debug.Stack())
		},
	}
	klog.SetLogger(klog.Logger{})
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
})
