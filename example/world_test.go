// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/reconciletest"
)

// A world is a cloud in the bubble of a kit: its clock is the one of the bubble,
// and its network is memory. A goroutine that is left over fails the test, because
// the bubble waits for all of them.
//
// The kit has the journal of what the program asks of the cloud, as far as the test
// calls [world.note], and makes it fail. Its queue is not used: the program has its
// own.
type world struct {
	*reconciletest.Kit[cloud.ID]
	t     *testing.T
	cloud *fakecloud.Server

	mu     sync.Mutex   // guards the fields below
	listen *memListener // nil while no cloud is there
	stop   func()
	noted  []string // the requests that are calls of the kit
	hand   func(r *http.Request, pass http.RoundTripper) (*http.Response, error)
}

// inWorld lets a test play in a world of its own.
func inWorld(t *testing.T, play func(t *testing.T, w *world)) {
	t.Helper()
	reconciletest.Run(t, func(t *testing.T, k *reconciletest.Kit[cloud.ID]) {
		w := &world{Kit: k, t: t, cloud: fakecloud.New(quick)}
		t.Cleanup(func() {
			w.mu.Lock()
			there := w.listen != nil
			w.mu.Unlock()
			if there { // the test failed before its end
				w.close()
			}
		})
		play(t, w)
	})
}

// Kinds of clouds: one without delays and faults, one that is slow only, and one
// with all bad habits but chaos.
var (
	quick = fakecloud.Config{Seed: 1}
	slow  = fakecloud.Config{Seed: 1, Latency: 10 * time.Millisecond, Build: time.Minute}
	bad   = fakecloud.Config{Seed: 1, Latency: 10 * time.Millisecond, Build: 700 * time.Millisecond, Faults: 0.3}
)

// open lets the cloud run, with these habits.
func (w *world) open(config fakecloud.Config) {
	w.cloud.Config = config
	l := &memListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.cloud.Run(ctx, l) }()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listen = l
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("the cloud ended with %v", err)
		}
	}
}

// close stops the cloud; what is there stays. It takes no time if no request is on its
// way: a server that shuts down looks every millisecond whether its connections are
// idle, so what was answered gets to that first.
func (w *world) close() {
	synctest.Wait()
	w.mu.Lock()
	stop := w.stop
	w.listen = nil
	w.mu.Unlock()
	stop()
}

func (w *world) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	l := w.listen
	w.mu.Unlock()
	if l == nil {
		return nil, errors.New("no cloud is there")
	}
	return l.dial(ctx)
}

// note makes requests of the program, such as "GET /v1/keys/k", calls of the kit:
// lines of its journal, which fail as Fail says.
func (w *world) note(requests ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noted = requests
}

// answer puts a hand between the program and the cloud, to which it may pass on what
// is asked.
func (w *world) answer(hand func(r *http.Request, pass http.RoundTripper) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand = hand
}

// A tap is where the requests of the program go through.
type tap struct {
	w    *world
	pass http.RoundTripper // to the cloud
}

// RoundTrip implements http.RoundTripper.
func (g tap) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.Method + " " + r.URL.Path
	g.w.mu.Lock()
	noted, hand := slices.Contains(g.w.noted, request), g.w.hand
	g.w.mu.Unlock()
	if noted {
		if err := g.w.Call(request); err != nil {
			return nil, err
		}
	}
	if hand != nil {
		return hand(r, g.pass)
	}
	return g.pass.RoundTrip(r)
}

// client returns a client for the tenant, and what to call when it is not needed
// any more.
func (w *world) client(tenant string) (*cloud.Client, func()) {
	there := &http.Transport{DialContext: w.dial, MaxIdleConnsPerHost: 100}
	return &cloud.Client{URL: "http://cloud", Tenant: tenant, HTTP: &http.Client{Transport: there}}, there.CloseIdleConnections
}

// arrange lets hand do something to the world, in a cloud without faults.
func (w *world) arrange(tenant string, hand func(context.Context, *cloud.Client) error) {
	w.t.Helper()
	w.open(quick)
	defer w.close()
	w.other(tenant, hand)
}

// other lets another hand do something to the cloud that is there.
func (w *world) other(tenant string, hand func(context.Context, *cloud.Client) error) {
	w.t.Helper()
	client, done := w.client(tenant)
	defer done()
	if err := hand(context.Background(), client); err != nil {
		w.t.Fatal(err)
	}
}

// build creates an asset and waits until it is ready, which takes no time in a cloud
// without delays.
func build(ctx context.Context, c *cloud.Client, id cloud.ID, spec cloud.Spec) error {
	_, err := c.Create(ctx, id, spec)
	for err == nil {
		synctest.Wait() // the cloud builds beside its answers
		var a cloud.Asset
		if a, err = c.Get(ctx, id); err == nil && a.State == cloud.Ready {
			return nil
		}
		time.Sleep(time.Second) // of the bubble
	}
	return err
}

// buildAll creates assets as they are wanted.
func buildAll(ctx context.Context, c *cloud.Client, want assets) error {
	for _, id := range want.order {
		if err := build(ctx, c, id, want.specs[id]); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return nil
}

// wantExactly checks that just these assets are there, ready and as specified.
func (w *world) wantExactly(want assets) {
	w.t.Helper()
	wantAssets(w.t, w.cloud, want)
}

func wantAssets(t *testing.T, c *fakecloud.Server, want assets) {
	t.Helper()
	got := map[cloud.ID]cloud.Asset{}
	for _, a := range c.Assets("example") {
		got[a.ID] = a
	}
	for id, spec := range want.specs {
		if a := got[id]; a.State != cloud.Ready || !same(a.Spec, spec) {
			t.Errorf("%s is %+v, want it ready as %+v", id, a, spec)
		}
		delete(got, id)
	}
	if len(got) > 0 {
		t.Errorf("there is too much: %v", got)
	}
}

// A play is a run of the program's control in a bubble.
type play struct {
	out, errs buffer
	cancel    context.CancelFunc
	ended     chan struct{}
	code      int
}

// play starts the program with these flags. It tries 100 times before it gives up: the
// 12 of a user are used up by chance, in a bad cloud, by one play in some hundred.
func (w *world) play(args ...string) *play {
	w.t.Helper()
	p := &play{ended: make(chan struct{})}
	o, err := parseFlags(append([]string{"-cloud", "http://cloud", "-retries", "100"}, args...), &p.errs)
	if err != nil {
		w.t.Fatalf("flags %v: %s", args, p.errs.String())
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.t.Cleanup(func() { // if the test failed before its end
		cancel()
		<-p.ended
	})
	go func() {
		defer close(p.ended)
		client, done := w.client(o.tenant)
		defer done()
		client.HTTP.Transport = tap{w, client.HTTP.Transport}
		var err error
		if p.code, err = control(ctx, o, client, &p.out, &p.errs); err != nil {
			w.t.Errorf("control: %v", err)
		}
	}()
	return p
}

// wait waits for the end and returns the exit code. In a bubble the clock jumps
// ahead, so a program that hangs fails after two hours, which take no time.
func (p *play) wait(t *testing.T) int {
	t.Helper()
	defer p.cancel()
	select {
	case <-p.ended:
	case <-time.After(2 * time.Hour):
		p.cancel()
		<-p.ended
		t.Fatalf("the program does not end; it printed\n%s", p.text())
	}
	return p.code
}

// text returns what was printed.
func (p *play) text() string { return p.errs.String() + p.out.String() }

// wantEnd checks the exit code and what was printed.
func (p *play) wantEnd(t *testing.T, code int, out ...string) {
	t.Helper()
	got := p.wait(t)
	text := p.text()
	if got != code {
		t.Errorf("exit code %d, want %d; it printed\n%s", got, code, text)
	}
	for _, s := range out {
		if !strings.Contains(text, s) {
			t.Errorf("the output lacks %q; it is\n%s", s, text)
		}
	}
}

// A buffer can be read while it is written. The zero buffer is empty and ready.
type buffer struct {
	mu sync.Mutex // guards b
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wish writes a file of assets that is a second old: it is used at once.
func wish(t *testing.T, path, text string) {
	t.Helper()
	then := time.Now().Add(-time.Second)
	err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o666), os.Chtimes(path+".new", then, then), os.Rename(path+".new", path))
	if err != nil {
		t.Fatal(err)
	}
}

func wishPath(t *testing.T) string { return filepath.Join(t.TempDir(), "wishes.json") }

func mustParse(t *testing.T, text string) assets {
	t.Helper()
	a, err := parse("wishes.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func key(name string) cloud.ID    { return cloud.ID{Kind: cloud.Key, Name: name} }
func bucket(name string) cloud.ID { return cloud.ID{Kind: cloud.Bucket, Name: name} }
