// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// lines is a Writer that hands on each line of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestServe looks at a page that a Group serves, and ends the Group while
// somebody has the page open, and somebody else a connection without a request.
func TestServe(t *testing.T) {
	log := make(lines, 10)
	group := &statuspage.Group{}
	group.Logger = slog.New(slog.NewTextHandler(log, nil))
	page := statuspage.New(group)
	group.Add("page", statuspage.Serve("127.0.0.1:0", page))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()

	line := <-log
	match := regexp.MustCompile(`level=INFO msg="page is served" member=page url=(http://127\.0\.0\.1:\d+)\n`).FindStringSubmatch(line)
	if match == nil {
		t.Fatalf("the log says %q", line)
	}
	url := match[1]
	client := &http.Client{Transport: &http.Transport{}}
	stream, err := client.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	r, err := client.Get(url + "/status.json")
	if err != nil {
		t.Fatal(err)
	}
	if text := body(t, r, http.StatusOK); !regexp.MustCompile(`"name": "page",\s+"state": "running"`).MatchString(text) {
		t.Errorf("the page does not show itself: %s", text)
	}
	silent, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "net/http.(*conn).serve(") {
		t.Errorf("a connection is served after the end of Run:\n%s", stacks)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the page that was open ends with %v", err)
	}
	client.CloseIdleConnections()
	if c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://")); err == nil {
		c.Close()
		t.Error("somebody listens there after the end of Run")
	}
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
		{"", statuspage.New(), "statuspage: Serve needs an address such as 127.0.0.1:8080, got none", true},
		{"127.0.0.1:0", nil, "statuspage: Serve needs a Page or another http.Handler, got nil", true},
		{"127.0.0.1", statuspage.New(), `statuspage: Serve cannot use the address "127.0.0.1": listen tcp: address 127.0.0.1: missing port in address`, false},
		{taken.Addr().String(), statuspage.New(), "bind: address already in use", false},
	} {
		err := statuspage.Serve(test.addr, test.handler).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, reconcile.ErrTerminal) != test.terminal {
			t.Errorf("Serve(%q).Run = %v, want %q; terminal %v", test.addr, err, test.want, test.terminal)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := statuspage.Serve("127.0.0.1:0", statuspage.New()).Run(ctx); err != nil {
		t.Errorf("Run after the end of its context = %v, want nil", err)
	}
}
