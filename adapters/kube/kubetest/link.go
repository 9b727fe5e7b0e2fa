// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// A Link is the way from a client to the API server: it counts requests, and
// can be slow, broken, throttled or cut. The zero Link is a good one. Its
// methods may be called from any goroutine.
type Link struct {
	mu       sync.Mutex // guards what follows
	fault    Fault
	open     map[*body]struct{}
	requests map[string]int
}

// A Fault is asked before each request. It may wait, until the request's
// context is done, and return an answer or an error in the server's place; with
// neither, the request goes to the server.
type Fault func(*http.Request) (*http.Response, error)

// TooManyRequests answers with 429 and a time to wait.
func TooManyRequests(seconds int) Fault {
	return func(req *http.Request) (*http.Response, error) {
		return Answer(req, http.StatusTooManyRequests, http.Header{"Retry-After": {strconv.Itoa(seconds)}}), nil
	}
}

// Broken fails every request.
func Broken(err error) Fault {
	return func(*http.Request) (*http.Response, error) { return nil, err }
}

// Held keeps every request until release is closed.
func Held(release <-chan struct{}) Fault {
	return func(req *http.Request) (*http.Response, error) {
		select {
		case <-release:
			return nil, nil
		case <-req.Context().Done():
			return nil, context.Cause(req.Context())
		}
	}
}

// Answer returns an answer without a body.
func Answer(req *http.Request, code int, header http.Header) *http.Response {
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: http.NoBody, Request: req,
	}
}

// Config returns a copy of config whose requests go over the link.
func (l *Link) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{l, next} })
	return config
}

// Fail has every request from now on meet the fault; nil is none.
func (l *Link) Fail(fault Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = fault
}

// Cut ends all answers that are still being read, as watches are.
func (l *Link) Cut() {
	l.mu.Lock()
	open := maps.Clone(l.open)
	l.mu.Unlock()
	for b := range open {
		b.cancel()
	}
}

// Requests returns how many requests there were of each verb and resource, such
// as "WATCH configmaps"; the verbs LIST and WATCH besides those of HTTP.
func (l *Link) Requests() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.requests)
}

type transport struct {
	link *Link
	next http.RoundTripper
}

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.link.mu.Lock()
	if t.link.requests == nil {
		t.link.requests = make(map[string]int)
	}
	t.link.requests[name(req)]++
	fault := t.link.fault
	t.link.mu.Unlock()

	if fault != nil {
		if resp, err := fault(req); resp != nil || err != nil {
			return resp, err
		}
	}
	ctx, cancel := context.WithCancel(req.Context())
	resp, err := t.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	b := &body{ReadCloser: resp.Body, link: t.link, cancel: cancel}
	t.link.mu.Lock()
	if t.link.open == nil {
		t.link.open = make(map[*body]struct{})
	}
	t.link.open[b] = struct{}{}
	t.link.mu.Unlock()
	resp.Body = b
	return resp, nil
}

// name returns what Requests calls a request.
func name(req *http.Request) string {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	at := 2 // api/v1
	if parts[0] == "apis" {
		at = 3
	}
	if len(parts) > at+2 && parts[at] == "namespaces" {
		at += 2
	}
	if len(parts) <= at {
		return req.Method + " " + req.URL.Path
	}
	verb := req.Method
	switch {
	case req.URL.Query().Get("watch") != "":
		verb = "WATCH"
	case verb == http.MethodGet && len(parts) == at+1:
		verb = "LIST"
	}
	return fmt.Sprintf("%s %s", verb, strings.Join(append(parts[at:at+1], parts[min(at+2, len(parts)):]...), "/"))
}

// A body is that of an answer, which can be cut.
type body struct {
	io.ReadCloser
	link   *Link
	cancel func()
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	b.link.mu.Lock()
	defer b.link.mu.Unlock()
	delete(b.link.open, b)
	return err
}
