// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Transport returns an HTTP transport from a process to a fake service h, for an
// http.Client or an SDK. Each request is a call of c, named as "PUT /buckets/a", with the
// decoded query if there is one. GET and HEAD are reads, which change nothing. All other
// methods may change the world. If h is never stale, but other services are, pass a Caller
// whose ReadAny calls Do.
//
// A call that fails has a response with status 503, and h does not get the request. If
// the response is lost, the connection breaks after h has returned. A slow call gets its
// response after a minute, or shortly before the deadline of the request. A call without
// an answer ends with the context of the request. A stale read gets an earlier response
// of the same host.
// The client of a process that has died gets errors. Retries of the client are calls like
// others. The journal has the status of a response from 300 on. The connection breaks too if
// h panics with [http.ErrAbortHandler].
//
// One request is served at a time, so h needs no lock. A stream that reads the world by
// itself, such as by a timer, calls [Process.Step] before. The context that h gets does not
// end early. If h flushes its response before it returns, the response is a stream. A
// stream goes on beside other calls, without faults of its own, until h returns, the body
// is closed, or the request or the process ends. The last three end the context of h. The
// requests of a nil c have no faults, and are in no journal: it is for Steps.
func Transport(c Caller, h http.Handler) http.RoundTripper {
	if h == nil {
		panic("explore: Transport needs a handler, got nil")
	}
	if proc, ok := c.(*Process); ok && proc == nil {
		c = nil
	}
	return &transport{caller: c, handler: h}
}

// TransportOr is [Transport] with custom faults by name. The handler of an injected fault
// serves the request in place of h: for example it answers 429 with a Retry-After, or it
// calls h and then answers 500. See Scenario.CustomFaults.
func TransportOr(proc *Process, h http.Handler, own map[Fault]http.Handler) http.RoundTripper {
	if proc == nil || h == nil {
		panic("explore: TransportOr needs a process and a handler, got nil")
	}
	return &transport{caller: proc, handler: h, own: own}
}

type transport struct {
	caller  Caller
	handler http.Handler
	own     map[Fault]http.Handler // custom faults, of a *Process
}

// A reply is what a handler answers. It is kept for reads that are stale.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
	host   string  // which was asked
	stream *stream // of the rest of the body
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("explore: body of %s %s: %w", r.Method, r.URL.Path, err)
		}
	}
	method := strings.ToUpper(r.Method)
	if method == "" {
		method = http.MethodGet
	}
	op := method + " " + r.URL.Path
	if r.URL.RawQuery != "" {
		op += "?" + readable(r.URL.RawQuery)
	}
	var got *reply
	served := false
	serveBy := func(h http.Handler) (any, error) {
		served = true
		if got = serve(h, t.caller, r, body); got == nil {
			return nil, io.ErrUnexpectedEOF
		}
		if got.host = r.URL.Host; got.Status >= 300 {
			return got, got // the journal has an error
		}
		return got, nil
	}
	read := func() (any, error) { return serveBy(t.handler) }
	effect := func() error { _, err := read(); return err }
	reads := method == http.MethodGet || method == http.MethodHead
	ownReads, ownEffects := map[Fault]func() (any, error){}, map[Fault]func() error{}
	for f, h := range t.own {
		ownReads[f] = func() (any, error) { return serveBy(h) }
		ownEffects[f] = func() error { _, err := serveBy(h); return err }
	}
	proc, _ := t.caller.(*Process)
	var err error
	var found any
	switch {
	case t.caller == nil:
		err = effect()
	case reads && proc != nil:
		found, err = proc.ReadAnyOr(r.Context(), op, read, ownReads)
	case reads:
		found, err = t.caller.ReadAny(r.Context(), op, read)
	case proc != nil:
		err = proc.DoOr(r.Context(), op, effect, ownEffects)
	default:
		err = t.caller.Do(r.Context(), op, effect)
	}
	if reads && t.caller != nil {
		got, _ = found.(*reply) // an earlier one, if the read is stale
	}
	if answered := (*reply)(nil); errors.As(err, &answered) {
		got, err = answered, nil
	}
	switch {
	case errors.Is(err, ErrInjected) && !served:
		got = &reply{Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(err.Error() + "\n")}
	case errors.Is(err, ErrInjected):
		return nil, fmt.Errorf("connection broken, answer lost: %w", err)
	case err != nil:
		return nil, err
	}
	return got.response(r, method), nil
}

// readable decodes a query for a name, if the result is one line of text, and the name of no
// other query.
func readable(query string) string {
	text, err := url.QueryUnescape(query)
	if err != nil || strings.Count(text, "&") != strings.Count(query, "&") || strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return query
	}
	return text
}

// Error is the status, for the journal.
func (y *reply) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", y.Status, http.StatusText(y.Status)))
}

func (y *reply) response(r *http.Request, method string) *http.Response {
	w := &http.Response{
		Status: fmt.Sprintf("%d %s", y.Status, http.StatusText(y.Status)), StatusCode: y.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: y.Header.Clone(), Request: r,
		Body: io.NopCloser(bytes.NewReader(y.Body)), ContentLength: int64(len(y.Body)),
	}
	switch {
	case method == http.MethodHead:
		w.Body = http.NoBody
	case y.stream != nil:
		w.Body, w.ContentLength = y.stream, -1
	}
	return w
}

// serve lets a handler answer, until that is whole or turns out to be a stream. It returns
// nil if the handler aborts its response.
func serve(h http.Handler, c Caller, r *http.Request, body []byte) *reply {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	in := r.Clone(ctx)
	in.Body, in.ContentLength, in.RequestURI = io.NopCloser(bytes.NewReader(body)), int64(len(body)), r.URL.RequestURI()
	in.Proto, in.ProtoMajor, in.ProtoMinor, in.RemoteAddr = "HTTP/1.1", 1, 1, "192.0.2.1:1234"
	if in.Header == nil {
		in.Header = http.Header{}
	}
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	w := &recorder{header: http.Header{}, flushed: make(chan struct{})}
	done := make(chan any, 1)
	p := loggingPlay() // that of c
	nested := p != nil && p.immediate && c != nil
	if nested {
		was := p.effectOf.Load()
		defer func() { p.effectOf.Store(was) }()
	}
	go func() {
		if nested { // the handler may make calls itself
			own, _ := goroutines(make([]byte, 64))
			p.effectOf.Store(own)
		}
		var failed any = errExit
		defer func() {
			if v := recover(); v != nil {
				failed = v
			}
			w.end(failed)
			if proc, ok := c.(interface{ Errorf(string, ...any) }); ok && failed != nil && failed != any(http.ErrAbortHandler) && w.writer != nil {
				proc.Errorf("the handler of %s %s panicked after it had flushed: %v", in.Method, in.URL.Path, failed)
			}
			done <- failed
		}()
		h.ServeHTTP(w, in)
		failed = nil
	}()
	select {
	case failed := <-done:
		cancel()
		switch {
		case failed == any(http.ErrAbortHandler):
			return nil
		case failed != nil:
			panic(failed)
		}
		return &reply{Status: w.status, Header: w.header, Body: w.body.Bytes()}
	case <-w.flushed:
	}
	stop := func() { cancel(); w.writer.CloseWithError(io.ErrUnexpectedEOF) }
	s := &stream{r: w.reader, stop: stop}
	s.stops = append(s.stops, context.AfterFunc(r.Context(), stop))
	if c != nil {
		s.stops = append(s.stops, context.AfterFunc(c.Context(), stop))
	}
	return &reply{Status: w.status, Header: w.sent, stream: s}
}

var errExit = errors.New("explore: a handler called runtime.Goexit, perhaps by t.FailNow")

// A recorder is the ResponseWriter of a handler.
type recorder struct {
	header, sent http.Header
	status       int
	body         bytes.Buffer
	flushed      chan struct{} // closed by the first Flush
	reader       *io.PipeReader
	writer       *io.PipeWriter
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
}

func (w *recorder) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.writer != nil {
		return w.writer.Write(text)
	}
	return w.body.Write(text)
}

// Flush implements [http.Flusher]: from now on the answer is a stream.
func (w *recorder) Flush() {
	w.WriteHeader(http.StatusOK)
	if w.writer != nil {
		return
	}
	w.sent = w.header.Clone()
	first := bytes.Clone(w.body.Bytes())
	w.reader, w.writer = io.Pipe()
	writer := w.writer
	close(w.flushed)
	if len(first) > 0 {
		_, _ = writer.Write(first) // an error shows at the next Write
	}
}

func (w *recorder) end(failed any) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.writer != nil && failed != nil:
		w.writer.CloseWithError(io.ErrUnexpectedEOF)
	case w.writer != nil:
		w.writer.Close()
	}
}

// A stream is the body of an answer that goes on.
type stream struct {
	r     *io.PipeReader
	stop  func()
	stops []func() bool
}

func (s *stream) Read(into []byte) (int, error) { return s.r.Read(into) }

func (s *stream) Close() error {
	for _, stop := range s.stops {
		stop()
	}
	s.stop()
	return s.r.Close()
}
