// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
)

// TestStreamsAreBounded opens one stream more than the limit.
func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := New(&Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
		ctx, cancel := context.WithCancel(t.Context())
		answers := make(chan *httptest.ResponseRecorder, maxStreams+1)
		open := func() {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/events", nil))
			answers <- w
		}
		for range maxStreams {
			go open()
		}
		synctest.Wait()
		open()
		if w := <-answers; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one more is answered with %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		cancel()
		for range maxStreams {
			if w := <-answers; w.Code != http.StatusOK {
				t.Errorf("one of the first is answered with %d", w.Code)
			}
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if open(); (<-answers).Code != http.StatusOK {
			t.Error("there is no place after the others have gone")
		}
	})
}

// TestSlowClients has a client that reads nothing of an answer, one that never ends a
// form, and one whose body no handler reads. Each is disconnected after some seconds. A
// fast client may use its connection again later, also for another handler, which sets no
// deadline.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := New(&Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()})
		page.AllowActions = true
		page.Logger = slog.New(slog.DiscardHandler)
		served := make(chan time.Duration, 1)
		listener := make(pipes)
		server := &http.Server{
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begin := time.Now()
				if r.URL.Path == "/other" {
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Errorf("another handler cannot answer: %v", err)
					}
				} else {
					page.ServeHTTP(w, r)
				}
				served <- time.Since(begin)
			}),
		}
		go func() { _ = server.Serve(listener) }()
		const host = "Host: localhost\r\n"
		for name, c := range map[string]struct {
			request string
			reads   bool
			least   time.Duration
			most    time.Duration
		}{
			"reads no page":    {"GET / HTTP/1.1\r\n" + host + "\r\n", false, writeTimeout, writeTimeout + time.Second},
			"reads no file":    {"GET /script.js HTTP/1.1\r\n" + host + "\r\n", false, writeTimeout, writeTimeout + time.Second},
			"never ends":       {"POST /items HTTP/1.1\r\n" + host + "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nqueue=q", true, writeTimeout, writeTimeout},
			"sends no body":    {"GET / HTTP/1.1\r\n" + host + "Content-Length: 100\r\n\r\n", true, writeTimeout, writeTimeout},
			"reads everything": {"GET / HTTP/1.1\r\n" + host + "\r\n", true, 0, 0},
		} {
			here, there := net.Pipe()
			listener <- there
			if _, err := io.WriteString(here, c.request); err != nil {
				t.Fatal(err)
			}
			if c.reads {
				go func() { _, _ = io.Copy(io.Discard, here) }()
			}
			if took := <-served; took < c.least || took > c.most {
				t.Errorf("who %s is served for %v, want %v", name, took, c.least)
			}
			if name == "reads everything" {
				time.Sleep(time.Hour)
				if _, err := io.WriteString(here, "GET /other HTTP/1.1\r\n"+host+"\r\n"); err != nil {
					t.Errorf("an hour later: %v", err)
				}
				if took := <-served; took != 0 {
					t.Errorf("an hour later it is served for %v", took)
				}
			}
			_ = here.Close()
		}
		_ = server.Close()
		time.Sleep(time.Second) // a connection that the server closes early lingers for half a second
	})
}

// TestBodiesOfGetAreNotRead sends a form of several parts with requests that need none.
// Of such a form net/http keeps up to 42 MB in memory, and writes the rest to disk.
func TestBodiesOfGetAreNotRead(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	queue.Enqueue("a")
	page := New(&Loop[string]{Name: "q", Queue: queue})
	for _, target := range []string{"/", "/item?item=a", "/items.json", "/item.json?item=a", "/status.json"} {
		body := strings.NewReader("--b\r\nContent-Disposition: form-data; name=\"x\"; filename=\"x\"\r\n\r\nx\r\n--b--\r\n")
		size := body.Len()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, body)
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		if w.Code != http.StatusOK || body.Len() < size {
			t.Errorf("%s: %d, and %d bytes of the body are read, want 200, and none", target, w.Code, size-body.Len())
		}
	}
}

// TestItemPageKeepsNoSnapshot keeps the page of one item open, and checks that the rows
// of the other items are freed.
func TestItemPageKeepsNoSnapshot(t *testing.T) {
	queue := reconcile.NewQueue[string]()
	for i := range 1000 {
		queue.EnqueueAfter(fmt.Sprint("item-", i), time.Hour)
	}
	loop := &Loop[string]{Name: "q", Queue: queue}
	page := New(loop)
	load, _, err := page.follow(map[string][]string{"item": {"item-7"}})
	if err != nil {
		t.Fatal(err)
	}
	rows := weak.Make(&loop.view.last.rows[0])
	loop.view.drop()
	runtime.GC()
	if rows.Value() != nil {
		t.Error("the rows of all items are kept")
	}
	if _, _, err := load(); err != nil {
		t.Error(err)
	}
}
