// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// ServeHTTP is the service of a shelf: GET, PUT and DELETE of a thing, and a stream of
// what happens.
func (w *shelf) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/things/")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if _, ok := w.things[name]; !ok {
			http.NotFound(out, r)
			return
		}
		out.Header().Set("ETag", `"x"`)
		fmt.Fprint(out, w.things[name])
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		w.things[name] = string(body)
		out.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		delete(w.things, name)
		out.WriteHeader(http.StatusNoContent)
	}
}

// get and put by HTTP; an error tells the status.
func ask(ctx context.Context, c *http.Client, method, name, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://shelf/things/"+name, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		err = errors.New(resp.Status)
	}
	if resp.StatusCode == http.StatusNotFound {
		text = nil
	}
	return string(text), err
}

// overHTTP is a controller whose world is a service.
func overHTTP() Scenario[*shelf] {
	return of(func(c client) func(context.Context) error {
		web := &http.Client{Transport: Transport(c.Process, c.shelf)}
		return func(ctx context.Context) error {
			is, err := ask(ctx, web, http.MethodGet, "a", "")
			if err == nil && is != c.desired["a"] {
				_, err = ask(ctx, web, http.MethodPut, "a?x=%24", c.desired["a"])
			}
			if err != nil {
				c.Note(err)
			}
			return err
		}
	})
}

func TestTransport(t *testing.T) {
	if r := search(t, overHTTP()); r.Found != nil || r.Singles < 20 {
		t.Errorf("exploring finds %v, in %s", r.Found, r)
	}
	for fault, want := range map[string][]string{
		"call PUT /things/a?x=$ #1: fails":       {"0s call PUT /things/a?x=$  <== fails", "0s 503 Service Unavailable", "1s call GET /things/a: 404 Not Found", "1s call PUT /things/a?x=$"},
		"call PUT /things/a?x=$ #1: answer lost": {"0s call PUT /things/a?x=$  <== answer lost", `0s Put "http://shelf/things/a?x=%24": connection broken, answer lost: explore: injected fault`, "1s call GET /things/a", "10m1s call GET /things/a"},
		"call PUT /things/a?x=$ #1: slow":        {"0s call PUT /things/a?x=$  <== slow", "10m9s call GET /things/a"},
		"call PUT /things/a?x=$ #1: stops":       {"0s call PUT /things/a?x=$  <== stops", "30s the process ends", "31s start", "31s call GET /things/a"},
		"call PUT /things/a?x=$ #1: no answer":   {"0s call PUT /things/a?x=$  <== no answer", `10s Put "http://shelf/things/a?x=%24": context deadline exceeded`, "11s call GET /things/a", "10m11s call GET /things/a"},
		"call GET /things/a #3: stale":           {"10m0s call GET /things/a  <== stale", "10m0s call PUT /things/a?x=$", "20m0s call GET /things/a"},
		"call PUT /things/a?x=$ #1: dies after":  {"0s call PUT /things/a?x=$  <== dies after", "1s start", "1s call GET /things/a"},
	} {
		s := overHTTP()
		s.Steps = func(s *Environment, w *shelf) { w.desired["a"] = "1"; s.Event("a"); s.Advance(11 * time.Minute) }
		got, failure := played(t, s, fault)
		i := slices.Index(got, want[0])
		if i < 0 || len(got) < i+len(want) || !slices.Equal(got[i:i+len(want)], want) || failure != "" {
			t.Errorf("%q: this happened:\n%swant in it:\n%sand no failure, got %q", fault, indent(got), indent(want), failure)
		}
	}
}

// Without a Process, and with what a handler may want to know.
func TestTransportOfANilCaller(t *testing.T) {
	var seen *http.Request
	web := &http.Client{Transport: Transport((*Process)(nil), http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		seen = r
		body, _ := io.ReadAll(r.Body)
		out.Header().Set("X-Was", string(body))
		out.WriteHeader(http.StatusTeapot)
		out.Header().Set("X-Late", "not sent")
		fmt.Fprint(out, "short and stout")
	}))}
	none := &http.Client{Transport: Transport(nil, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.WriteHeader(http.StatusNoContent)
		if _, err := out.Write([]byte("1")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("Write after a 204 returns %v, want %v", err, http.ErrBodyNotAllowed)
		}
	}))}
	if text, err := ask(t.Context(), none, http.MethodGet, "a", ""); text != "" || err != nil {
		t.Errorf("a 204 has the body %q, %v, want none", text, err)
	}
	for _, method := range []string{http.MethodPost, http.MethodHead} {
		r, _ := http.NewRequest(method, "https://shelf/a/b?c=d", strings.NewReader("full"))
		resp, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		want := "short and stout"
		if method == http.MethodHead {
			want = ""
		}
		if string(text) != want || resp.Status != "418 I'm a teapot" || resp.Header.Get("X-Was") != "full" {
			t.Errorf("%s answers %q, %s, %v", method, text, resp.Status, resp.Header)
		}
		h := resp.Header
		if h.Get("Date") == "" || h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("Content-Length") != "15" || h.Get("X-Late") != "" || resp.TLS == nil || seen.TLS == nil {
			t.Errorf("%s has the headers %v, want Date, Content-Type and Content-Length, and TLS on both sides", method, h)
		}
		if seen.Host != "shelf" || seen.RequestURI != "/a/b?c=d" || seen.ContentLength != 4 {
			t.Errorf("the handler sees host %q, URI %q, length %d", seen.Host, seen.RequestURI, seen.ContentLength)
		}
	}
}

// A response without a body that was flushed is a stream each time, as from a server.
func TestTransportOfAFlushAlone(t *testing.T) {
	web := &http.Client{Transport: Transport(nil, http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { out.(http.Flusher).Flush() }))}
	for range 30_000 { // one order of two goroutines in a thousand is the rare one
		resp, err := web.Get("http://shelf/")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); len(text) > 0 || err != nil || resp.ContentLength != -1 {
			t.Fatalf("the body is %q, %v, with the length %d, want none, and an unknown length", text, err, resp.ContentLength)
		}
	}
}

// A stream whose response is lost ends, as its connection breaks.
func TestTransportOfALostStream(t *testing.T) {
	s := overHTTP()
	s.Start = func(proc *Process, w *shelf) {
		web := &http.Client{Transport: Transport(proc, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			out.(http.Flusher).Flush()
			<-r.Context().Done()
			proc.Note("the handler ends")
		}))}
		proc.Go(func(ctx context.Context) error {
			_, err := ask(ctx, web, http.MethodPut, "a", "1")
			proc.Note(err)
			<-ctx.Done()
			return nil
		})
	}
	if journal, _ := played(t, s, "call PUT /things/a #1: answer lost"); !slices.Contains(journal, "0s the handler ends") {
		t.Errorf("this happened:\n%swant the end of the handler", indent(journal))
	}
}

// A stream goes on beside other calls, and ends with the process.
func TestTransportOfAStream(t *testing.T) {
	type news struct {
		*shelf
		lines chan string
	}
	s := Scenario[*news]{
		World: func() *news { return &news{newShelf(), make(chan string, 100)} },
		Start: func(proc *Process, w *news) {
			web := &http.Client{Transport: Transport(proc, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				fmt.Fprintln(out, "hello")
				out.(http.Flusher).Flush()
				for {
					select {
					case line := <-w.lines:
						fmt.Fprintln(out, line)
					case <-r.Context().Done():
						return
					}
				}
			}))}
			proc.Go(func(ctx context.Context) error {
				for ; ctx.Err() == nil; time.Sleep(time.Second) {
					r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://shelf/news", nil)
					resp, err := web.Do(r)
					if err != nil || resp.StatusCode != http.StatusOK {
						continue
					}
					lines := bufio.NewScanner(resp.Body)
					for lines.Scan() {
						proc.Note("heard " + lines.Text())
						_ = proc.Do(ctx, "put "+lines.Text(), func() error { w.things[lines.Text()] = ""; return nil })
					}
					resp.Body.Close()
				}
				return nil
			})
		},
		Steps: func(s *Environment, w *news) {
			s.Advance(time.Minute)
			w.lines <- "a"
			s.Advance(time.Minute)
		},
		State:   func(w *news) string { return w.String() },
		Without: []Fault{Fails, AnswerLost, DiesBefore, DiesAfter, Blackout, Outage, Slow, NoAnswer}, // the line would be lost
		Plans:   50,
	}
	journal, failure := played(t, s, "call put a #1: dies after")
	want := []string{
		"0s call GET /news", "0s heard hello", "0s call put hello", "1m0s heard a", "1m0s call put a  <== dies after",
		"1m1s start", "1m1s call GET /news", "1m1s heard hello", "1m1s call put hello",
	}
	if !slices.Equal(journal, want) || failure != "" {
		t.Errorf("this happened:\n%swant:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
}

// A handler that panics fails the plan.
func TestTransportOfAPanic(t *testing.T) {
	s := overHTTP()
	s.Start = func(proc *Process, w *shelf) {
		web := &http.Client{Transport: Transport(proc, http.HandlerFunc(handlerThatPanics))}
		loop(proc, time.Hour, func(ctx context.Context) error { _, err := ask(ctx, web, http.MethodGet, "a", ""); return err })
	}
	if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "call GET /things/a panicked: boom") || !strings.Contains(r.Found.Failure, "explore.handlerThatPanics(") {
		t.Errorf("exploring finds %v, want the panic with the stack of the handler", r.Found)
	}
	s.Start = func(proc *Process, w *shelf) {
		stream := func(out http.ResponseWriter, r *http.Request) { out.(http.Flusher).Flush(); handlerThatPanics(out, r) }
		web := &http.Client{Transport: Transport(struct{ Caller }{proc}, http.HandlerFunc(stream))}
		loop(proc, time.Hour, func(ctx context.Context) error { _, err := ask(ctx, web, http.MethodGet, "a", ""); return err })
	}
	if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "the handler of GET /things/a panicked after its call had returned: boom") {
		t.Errorf("exploring finds %v, want the panic in a stream", r.Found)
	}
}

func handlerThatPanics(http.ResponseWriter, *http.Request) { panic("boom") }

// A long poll ends with the deadline of its client, or with the process. A handler that does
// not wait answers even then.
func TestTransportOfALongPoll(t *testing.T) {
	s := overHTTP()
	s.Start = func(proc *Process, w *shelf) {
		web := &http.Client{Timeout: 10 * time.Second, Transport: Transport(proc, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if sleep(r.Context(), 5*time.Minute); r.Context().Err() == nil {
				w.wrong = errors.New("the handler has waited for five minutes")
			}
			proc.Note("the handler ends")
		}))}
		proc.Go(func(ctx context.Context) error {
			if w.things["a"] != "" {
				return nil
			}
			_ = client{proc, w}.put(ctx, "a", "1")
			sleep(ctx, time.Minute)
			_, err := web.Get("http://a/b") // without the context of the process, as much code does
			proc.Note(errors.Is(err, context.DeadlineExceeded))
			web.Timeout = 0
			_, err = web.Get("http://a/c")
			return err
		})
	}
	s.Steps = func(s *Environment, _ *shelf) { s.Advance(2 * time.Minute); s.Redeploy(); s.Advance(time.Minute) }
	journal, failure := played(t, s)
	want := []string{
		"0s call put a", "1m10s call GET /b: context deadline exceeded", "1m10s the handler ends", "1m10s true", "2m0s stop", "2m30s the process ends", "2m31s start",
	}
	if !slices.Equal(journal[:min(len(want), len(journal))], want) || failure != "" {
		t.Errorf("this happened:\n%swant first:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
}

// A slow call whose effect waits is slow after that, and so is what Within allows.
func TestSlowLongPoll(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(ctx context.Context) error {
			_, _ = Read(ctx, proc, "poll", func() (int, error) { sleep(ctx, 5*time.Minute); return 0, nil })
			sleep(ctx, 50*time.Second)
			return client{proc, w}.put(ctx, "a", "1")
		})
	}
	s.Steps, s.Within = func(s *Environment, _ *shelf) { s.Advance(5 * time.Minute) }, time.Minute
	if journal, failure := played(t, s, "call poll #1: slow"); failure != "" {
		t.Errorf("this happened:\n%sand then:\n%swant no failure", indent(journal), failure)
	}
}

// A handler that aborts its response, as a server does whose connection breaks, is a failed
// call: also if it has begun the response.
func TestTransportOfAnAbort(t *testing.T) {
	for name, flushes := range map[string]bool{"at once": false, "in a stream": true} {
		s := overHTTP()
		s.Start = func(proc *Process, w *shelf) {
			aborted := false
			web := &http.Client{Transport: Transport(proc, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
				if !aborted {
					aborted = true
					fmt.Fprint(out, "1")
					if flushes {
						out.(http.Flusher).Flush()
					}
					panic(http.ErrAbortHandler)
				}
				w.ServeHTTP(out, r)
			}))}
			loop(proc, time.Hour, func(ctx context.Context) error {
				_, err := ask(ctx, web, http.MethodPut, "a", w.desired["a"])
				if err != nil {
					proc.Note(err)
				}
				return err
			})
		}
		for _, faults := range [][]string{nil, {"call PUT /things/a #1: body cut"}, {"call PUT /things/a #1: answer lost"}} { // is broken already
			journal, failure := played(t, s, faults...)
			text := indent(journal)
			if !strings.Contains(text, "unexpected EOF") && !strings.Contains(text, "connection broken") || failure != "" || strings.Contains(text, "503") {
				t.Errorf("%s, %q: this happened:\n%swant a connection that breaks, and no failure, got %q", name, faults, text, failure)
			}
		}
	}
}

// A handler may call another service of its process, also while a mutex is held over calls.
func TestTransportOfACallInAHandler(t *testing.T) {
	s := overHTTP()
	s.Start = func(proc *Process, w *shelf) {
		behind := &http.Client{Transport: Transport(proc, w)}
		web := &http.Client{Transport: Transport(proc, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if _, err := ask(r.Context(), behind, http.MethodPut, "a", w.desired["a"]); err != nil {
				out.WriteHeader(http.StatusBadGateway)
			}
		}))}
		var mu sync.Mutex
		for range 2 {
			loop(proc, time.Hour, func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				_, err := ask(ctx, web, http.MethodPut, "front", "")
				return err
			})
		}
	}
	s.Replay = []string{}
	x := explorerOf(t, s)
	x.hang = time.Second // of the real clock
	if r := x.explore(); r.Found != nil || r.Held == "" {
		t.Errorf("exploring finds %v, and a mutex at %q, want none, and one at call PUT /things/front", r.Found, r.Held)
	}
}

// A stale answer is one to a request of the same URL, user and condition. A 304 needs a
// condition of its own.
func TestTransportOfOtherRequests(t *testing.T) {
	s := overHTTP()
	s.Start = func(proc *Process, w *shelf) {
		web := &http.Client{Transport: Transport(proc, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "" {
				out.WriteHeader(http.StatusNotModified)
				return
			}
			fmt.Fprint(out, r.Host, r.Header.Get("Authorization"))
		}))}
		for i, header := range []string{"Authorization: ann", "Authorization: bob", "Authorization: ann", "If-None-Match: 1"} {
			loop(proc, time.Minute, func(ctx context.Context) error {
				sleep(ctx, time.Duration(i)*time.Second)
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://host%d/things/a", i/2), http.NoBody)
				name, value, _ := strings.Cut(header, ": ")
				r.Header.Set(name, value)
				resp, err := web.Do(r)
				if err != nil || resp.StatusCode >= 500 {
					return errBoom
				}
				text, err := io.ReadAll(resp.Body)
				want := r.Host + value
				if name == "If-None-Match" {
					want = ""
				}
				if is := string(text); err == nil && is != want {
					w.wrong = fmt.Errorf("%s got %q, want %q", header, is, want)
				}
				return err
			})
		}
		_ = client{proc, w}.put(proc.Context(), "a", "1")
	}
	s.Without = only(Stale, StaleWatch)
	if r := search(t, s); r.Found != nil && !strings.HasPrefix(r.Found.Failure, "Without") {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
	for header, chooses := range map[string]bool{
		"Accept-Language: de": true, "Cookie: a=b": true, "If-Match: 1": true, "X-Vault-Token: a": true, "Private-Token: a": true,
		"User-Agent: a": false, "X-Request-Id: 1": false,
	} {
		r, _ := http.NewRequest(http.MethodGet, "http://host/", http.NoBody)
		was := keyOf(r)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		if is := keyOf(r) != was; is != chooses {
			t.Errorf("%s chooses the response: %t, want %t", header, is, chooses)
		}
	}
	for _, other := range []string{"http://host/a%2Fb", "http://other/a/b", "https://host/a/b"} {
		r, _ := http.NewRequest(http.MethodGet, "http://host/a/b", http.NoBody)
		r2, _ := http.NewRequest(http.MethodGet, other, http.NoBody)
		if keyOf(r) == keyOf(r2) {
			t.Errorf("%s gets a response of %s", other, r.URL)
		}
	}
	signed := func(signature string) string {
		r, _ := http.NewRequest(http.MethodGet, "http://host/", http.NoBody)
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=a, Signature="+signature)
		return keyOf(r)
	}
	if signed("1") != signed("2") {
		t.Error("a signature chooses the response")
	}
	for status, lasts := range map[int]bool{http.StatusOK: true, http.StatusNotFound: true, http.StatusPartialContent: false, http.StatusNotModified: false, http.StatusPreconditionFailed: false} {
		if is := (&reply{Status: status}).lasts(); is != lasts {
			t.Errorf("a response %d comes again: %t, want %t", status, is, lasts)
		}
	}
}

func TestNameOfAQuery(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		web := &http.Client{Transport: Transport(proc, Named(w, func(r *http.Request) string {
			body, _ := io.ReadAll(r.Body)
			return string(body)
		}))}
		loop(proc, time.Hour, func(ctx context.Context) error {
			_, err := ask(ctx, web, http.MethodPut, "a?y=2&x=1", w.desired["a"])
			return err
		})
	}
	if journal, _ := played(t, s); !slices.Contains(journal, "0s call PUT /things/a?x=1&y=2 1") || !slices.Contains(journal, "0s call PUT /things/a?x=1&y=2") {
		t.Errorf("this happened:\n%swant calls named by their query in order, and their body", indent(journal))
	}
	for query, want := range map[string]string{
		"selector=app%3Dweb&limit=5": "selector=app=web&limit=5",
		"name=a%26limit=5":           "name=a%26limit=5", // not that of a and a limit
		"name=a%0ab":                 "name=a%0ab",
		"name=%ff":                   "name=%ff",
		"name=%zz":                   "name=%zz",
	} {
		if got := readable(query); got != want {
			t.Errorf("the query %s is named %q, want %q", query, got, want)
		}
	}
}
