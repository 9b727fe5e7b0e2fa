// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

var discard = slog.New(slog.DiscardHandler)

// lines is a Writer that hands on each line of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestServe reads a page that a Group serves.
func TestServe(t *testing.T) {
	log := make(lines, 10)
	group := &Group{}
	group.Logger = slog.New(slog.NewTextHandler(log, nil))
	group.Add("page", Serve("127.0.0.1:0", New(group)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()

	line := <-log
	match := regexp.MustCompile(`level=INFO msg="page is served" member=page url=(http://127\.0\.0\.1:\d+)\n`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("the log says %q", line)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(match[1] + "/status.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil || !regexp.MustCompile(`"name": "page",\s+"state": "running"`).Match(text) {
		t.Errorf("the page does not show itself: %s, %v", text, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

// pipes is a Listener of connections within a bubble.
type pipes chan net.Conn

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p <- server
	return client, nil
}

// TestServeEnds ends a server while a page is open, another client has a connection
// without a request, and a handler continues after its connection has closed.
func TestServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipes)
		mux := http.NewServeMux()
		mux.Handle("/", New())
		slowEnded := false
		mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			time.Sleep(5 * time.Second)
			slowEnded = true
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, listener, mux, discard) }()

		silent, _ := listener.dial(ctx, "", "")
		client := &http.Client{Transport: &http.Transport{DialContext: listener.dial}}
		bodies := make(map[string]io.Reader)
		for _, path := range []string{"events", "slow"} {
			r, err := client.Get("http://page/" + path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			bodies[path] = r.Body
		}
		cancel()
		begin := time.Now()
		at := func(what string, err, want error, after time.Duration) {
			t.Helper()
			if got := time.Since(begin); err != want || got != after {
				t.Errorf("%s ends with %v after %v, want %v after %v", what, err, got, want, after)
			}
		}
		_, err := io.Copy(io.Discard, bodies["events"])
		at("the open page", err, nil, 0)
		_, err = io.Copy(io.Discard, bodies["slow"])
		at("what is not answered within a second", err, io.ErrUnexpectedEOF, time.Second)
		_, err = io.Copy(io.Discard, silent)
		at("the silent connection", err, nil, time.Second)
		at("serve", <-ended, nil, 5*time.Second)
		if !slowEnded {
			t.Error("a request is handled after the end")
		}
	})
}

func TestServeErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, test := range []struct {
		addr     string
		handler  http.Handler
		want     string
		terminal bool
	}{
		{"", New(), "statuspage: Serve needs an address such as 127.0.0.1:8080, got none", true},
		{"127.0.0.1:0", nil, "statuspage: Serve needs a Page or another http.Handler, got nil", true},
		{"127.0.0.1", New(), `statuspage: Serve cannot use the address "127.0.0.1": listen tcp: address 127.0.0.1: missing port in address`, false},
		{taken.Addr().String(), New(), "bind: address already in use", false},
	} {
		err := Serve(test.addr, test.handler).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, reconcile.ErrTerminal) != test.terminal {
			t.Errorf("Serve(%q).Run = %v, want %q; terminal %v", test.addr, err, test.want, test.terminal)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Serve("127.0.0.1:0", New()).Run(ctx); err != nil {
		t.Errorf("Run after the end of its context = %v, want nil", err)
	}
}

// A panicking log handler has no line that it does not panic on.
type panicking struct{ slog.Handler }

func (panicking) Handle(context.Context, slog.Record) error { panic("no space for the log") }

// TestLogHandlerThatPanics has a log handler that panics on each line: about the address,
// an action, and a handler that panics too. It costs the lines, and nothing else.
func TestLogHandlerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(panicking{slog.NewTextHandler(io.Discard, nil)})
		queue := reconcile.NewQueue[string]()
		queue.EnqueueAfter("a", time.Hour)
		page := New(&Loop[string]{Name: "q", Queue: queue})
		page.AllowActions, page.Logger = true, log
		mux := http.NewServeMux()
		mux.Handle("/", page)
		mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("at the disco") })
		listener := make(pipes)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- serve(ctx, listener, mux, log) }()

		client := &http.Client{Transport: &http.Transport{DialContext: listener.dial}}
		if r, err := client.Get("http://localhost/panic"); err == nil {
			t.Errorf("a handler that panics answers %d", r.StatusCode)
		}
		r, err := client.PostForm("http://localhost/items.json", url.Values{"item": {"a"}, "action": {"reconcile"}})
		if err != nil {
			t.Fatalf("an action: %v", err)
		}
		defer r.Body.Close()
		if text, err := io.ReadAll(r.Body); r.StatusCode != http.StatusOK {
			t.Errorf("an action: %s, %s, %v", r.Status, text, err)
		}
		client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}
