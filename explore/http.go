// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing/iotest"
	"time"
	"unicode"
	"unicode/utf8"
)

// Transport returns an HTTP transport from a process to a fake service h, for an
// http.Client or an SDK. Each request is a call of c, named as "PUT /buckets/a", with the
// decoded query if there is one. GET and HEAD are reads, which change nothing. All other
// methods may change the world. If h is never stale, but other services are, pass a Caller
// whose ReadAny calls Do. If c renames a call, that call is never Unreachable or BodyCut.
//
// A call that fails has a response with status 503, and h does not get the request. If
// the response is lost, the connection breaks after h has returned. If the service is
// unreachable, the connection is refused. A body that is cut ends in the middle by
// [io.ErrUnexpectedEOF]. A slow call gets its response after a minute, or shortly before the
// deadline of the request. A call without an answer ends with the context of the request.
//
// A stale read gets an earlier response to a request of the same URL, and with the same
// headers that may choose a response, such as Authorization, Accept, Range and If-Match. A
// response 206, 304 or 412 never comes again.
//
// The client of a process that has died gets errors. Retries of the client are calls like
// others. The journal has the status of a response from 300 on. The connection breaks too if
// h panics with [http.ErrAbortHandler].
//
// One request is served at a time, so h needs no lock. After a pause, as in a long poll or a
// stream, h calls [Process.Step] before it reads the world. If the request or the process ends
// while h waits, the call returns and the context of h ends. If h flushes its response before
// it returns, the response is a stream. A stream goes on beside other calls, without faults of
// its own, until h returns, the body is closed, or the request or the process ends. Each of
// these ends the context of h. The requests of a nil c have no faults, and are in no journal:
// it is for Steps.
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
func TransportOr(c Caller, h http.Handler, own map[Fault]http.Handler) http.RoundTripper {
	t := Transport(c, h).(*transport)
	if t.caller == nil {
		panic("explore: TransportOr needs a Caller, got nil")
	}
	t.own = own
	return t
}

// Named returns h with a name for each request, besides its method and path: for a service
// whose requests all are "POST /", such as GraphQL or JSON-RPC. The call is then named as
// "POST / createUser". If name returns "", nothing is added. It may read the body.
// The result must be the handler of [Transport] itself, and not wrapped.
func Named(h http.Handler, name func(r *http.Request) string) http.Handler {
	if h == nil || name == nil {
		panic("explore: Named needs a handler and a function, got nil")
	}
	return &named{h, name}
}

type named struct {
	http.Handler
	name func(r *http.Request) string
}

type transport struct {
	caller  Caller // nil without faults
	handler http.Handler
	own     map[Fault]http.Handler // custom faults
}

// An exchange is a request and its reply. It travels to the plan in the context of its call,
// so that it has its faults whatever the Caller is.
type exchange struct {
	*transport
	r       *http.Request
	body    []byte
	op      string   // the call
	process *Process // nil if the Caller is none of a plan
	reached bool     // the handler
	got     *reply   // nil if the handler was not reached, or aborted its response
}

type exchangeKey struct{} // in the context of a call

// A reply is the response of a handler. It is kept for reads that are stale.
type reply struct {
	Status int
	Header http.Header
	Body   []byte
	key    string  // of the request, besides its call: only such a one gets this reply again
	stream *stream // of the rest of the body
	cut    bool    // half of the body comes
}

// RoundTrip implements [http.RoundTripper].
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &exchange{transport: t, r: r}
	if r.Body != nil {
		var err error
		x.body, err = io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, fmt.Errorf("explore: body of %s %s: %w", r.Method, r.URL.Path, err)
		}
	}
	method := strings.ToUpper(cmp.Or(r.Method, http.MethodGet))
	x.op = method + " " + r.URL.Path
	if r.URL.RawQuery != "" {
		x.op += "?" + readable(inOrder(r.URL.RawQuery))
	}
	if n, ok := t.handler.(*named); ok {
		in := r.Clone(r.Context())
		in.Body = io.NopCloser(bytes.NewReader(x.body))
		x.op = strings.TrimSpace(x.op + " " + n.name(in))
	}
	ctx := context.WithValue(r.Context(), exchangeKey{}, x)
	serve := func() (any, error) { return x.serve(t.handler) }
	var err error
	switch reads := method == http.MethodGet || method == http.MethodHead; {
	case t.caller == nil:
		_, err = serve()
	case reads:
		var found any
		found, err = t.caller.ReadAny(ctx, x.op, serve)
		if earlier, ok := found.(*reply); ok { // the read may be stale
			x.got = earlier
		}
	default:
		err = t.caller.Do(ctx, x.op, func() error { _, err := serve(); return err })
	}
	if answered := (*reply)(nil); errors.As(err, &answered) {
		x.got, err = answered, nil
	}
	switch {
	case errors.Is(err, ErrInjected) && !x.reached:
		x.got = &reply{Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(err.Error() + "\n")}
	case errors.Is(err, ErrInjected):
		if x.got != nil && x.got.stream != nil {
			_ = x.got.stream.Close()
		}
		return nil, fmt.Errorf("connection broken, answer lost: %w", err)
	case err != nil:
		return nil, err
	}
	return x.got.response(r, method), nil
}

// serve lets a handler answer. The error is the reply if its status is 300 or more, for the
// journal.
func (x *exchange) serve(h http.Handler) (any, error) {
	var err error
	x.reached = true
	if x.got, err = x.handle(h); err != nil {
		return nil, err
	}
	if x.got.key = keyOf(x.r); x.got.Status >= 300 {
		return x.got, x.got
	}
	return x.got, nil
}

// choosing matches the names of the headers that may choose the reply.
var choosing = regexp.MustCompile(`^(Accept.*|Authorization|Cookie|If-.*|Range|.*-(Key|Token))$`)

// keyOf returns the URL and the headers that may choose the reply. A signature differs each
// time, and chooses none.
func keyOf(r *http.Request) string {
	key := []string{r.Host, r.URL.Scheme, r.URL.EscapedPath(), inOrder(r.URL.RawQuery)}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if choosing.MatchString(name) {
			text, _, _ := strings.Cut(strings.Join(r.Header[name], ", "), "Signature=")
			key = append(key, name+": "+text)
		}
	}
	return strings.Join(key, "\n")
}

// lasts reports whether the reply may be given again, to a request of the same key.
func (y *reply) lasts() bool {
	return y.stream == nil && y.Status != http.StatusPartialContent && y.Status != http.StatusNotModified && y.Status != http.StatusPreconditionFailed
}

// hasBody reports whether the reply has a body that can be cut.
func (x *exchange) hasBody() bool {
	return x.got != nil && len(x.got.Body) > 0 && x.r.Method != http.MethodHead
}

var errUnreachable = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// inOrder sorts the parts of a query: that of a map has another order in each play.
func inOrder(query string) string {
	return strings.Join(slices.Sorted(strings.SplitSeq(query, "&")), "&")
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
		Body: io.NopCloser(bytes.NewReader(y.Body)), ContentLength: int64(len(y.Body)), TLS: connectionOf(r.URL),
	}
	if _, ok := w.Header["Date"]; !ok { // that of a stale response too, so that it is no other response
		w.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	}
	if hasLength := y.stream == nil && y.Status != http.StatusNoContent && y.Status != http.StatusNotModified; hasLength && w.Header.Get("Content-Length") == "" {
		w.Header.Set("Content-Length", strconv.Itoa(len(y.Body)))
	}
	switch {
	case method == http.MethodHead:
		w.Body = http.NoBody
	case y.cut:
		w.Body = io.NopCloser(io.MultiReader(bytes.NewReader(y.Body[:len(y.Body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	case y.stream != nil:
		w.Body, w.ContentLength = y.stream, -1
	}
	return w
}

// handle lets a handler answer, until the response is whole or turns out to be a stream, or
// the request or the process ends while the handler waits. The reply is nil if the handler
// aborts its response.
func (x *exchange) handle(h http.Handler) (*reply, error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.r.Context()))
	in := x.r.Clone(ctx)
	in.Body, in.ContentLength, in.RequestURI = io.NopCloser(bytes.NewReader(x.body)), int64(len(x.body)), in.URL.RequestURI()
	in.Proto, in.ProtoMajor, in.ProtoMinor, in.RemoteAddr, in.TLS = "HTTP/1.1", 1, 1, "192.0.2.1:1234", connectionOf(in.URL)
	if in.Header == nil {
		in.Header = http.Header{}
	}
	in.Host = cmp.Or(in.Host, in.URL.Host)
	w := &recorder{header: http.Header{}, flushed: make(chan struct{})}
	done := make(chan any, 1)
	nested := x.process != nil && x.process.play.immediate
	if nested {
		effectOf := &x.process.play.effectOf
		was := effectOf.Load()
		defer func() { effectOf.Store(was) }()
	}
	go func() {
		if nested { // the handler may make calls itself
			own, _ := goroutines(make([]byte, 64))
			x.process.play.effectOf.Store(own)
		}
		var failed any = errExit
		defer func() {
			if v := recover(); v != nil {
				failed = v
			}
			if failed != nil && failed != any(http.ErrAbortHandler) {
				failed = fmt.Sprintf("%v\n%s", failed, debug.Stack()) // of this goroutine
				if x.process != nil && (w.writer != nil || ctx.Err() != nil) {
					x.process.Errorf("the handler of %s %s panicked after its call had returned: %v", in.Method, in.URL.Path, failed)
				}
			}
			w.end(failed)
			cancel()
			done <- failed
		}()
		h.ServeHTTP(w, in)
		failed = nil
	}()
	var died <-chan struct{}
	switch {
	case x.process != nil:
		died = x.process.died
	case x.caller != nil:
		died = x.caller.Context().Done()
	}
	ended, dead, late := x.r.Context().Done(), died, (<-chan time.Time)(nil)
	for {
		select {
		case failed := <-done:
			switch {
			case w.writer != nil: // it is flushed too
			case failed == any(http.ErrAbortHandler):
				return nil, io.ErrUnexpectedEOF
			case failed != nil:
				panic(failed)
			default:
				return &reply{Status: w.status, Header: w.sent, Body: w.body.Bytes()}, nil
			}
		case <-w.flushed:
		case <-ended:
			ended, late = nil, time.After(1) // the time of a bubble passes when the handler waits
			continue
		case <-dead:
			dead, late = nil, time.After(1)
			continue
		case <-late:
			cancel()
			return nil, cmp.Or(context.Cause(x.r.Context()), errDied)
		}
		go func() {
			select {
			case <-ctx.Done(): // the handler has returned, or the body is closed
			case <-x.r.Context().Done():
			case <-died:
			}
			cancel()
			w.writer.CloseWithError(io.ErrUnexpectedEOF)
		}()
		return &reply{Status: w.status, Header: w.sent, stream: &stream{w.reader, cancel}}, nil
	}
}

// connectionOf returns the state of the connection to a URL; nil if that is not encrypted.
func connectionOf(u *url.URL) *tls.ConnectionState {
	if u.Scheme != "https" {
		return nil
	}
	return &tls.ConnectionState{Version: tls.VersionTLS13, HandshakeComplete: true, ServerName: u.Hostname()}
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
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *recorder) Write(text []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	switch {
	case w.status == http.StatusNoContent || w.status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case w.writer != nil:
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
	w.detectType()
	first := bytes.Clone(w.body.Bytes())
	w.reader, w.writer = io.Pipe()
	writer := w.writer
	close(w.flushed)
	if len(first) > 0 {
		_, _ = writer.Write(first) // an error shows at the next Write
	}
}

// detectType sets the type of a body, as a server does.
func (w *recorder) detectType() {
	if _, ok := w.sent["Content-Type"]; !ok && w.body.Len() > 0 {
		w.sent.Set("Content-Type", http.DetectContentType(w.body.Bytes()))
	}
}

func (w *recorder) end(failed any) {
	w.WriteHeader(http.StatusOK)
	w.detectType()
	switch {
	case w.writer != nil && failed != nil:
		w.writer.CloseWithError(io.ErrUnexpectedEOF)
	case w.writer != nil:
		w.writer.Close()
	}
}

// A stream is the body of an answer that goes on.
type stream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (s *stream) Close() error {
	s.cancel()
	return s.PipeReader.Close()
}
