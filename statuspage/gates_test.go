// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/supervise"
)

// gates returns what a page says of its gates.
func gates(t *testing.T, page *statuspage.Page) string {
	t.Helper()
	var got struct {
		Gates []struct {
			Name, Error string
			Rate        float64   `json:"runs_per_second"`
			Burst       int       `json:"burst"`
			Limit       int       `json:"limit"`
			InFlight    int       `json:"in_flight"`
			Paused      time.Time `json:"paused_since"`
			Until       time.Time `json:"paused_until"`
		}
	}
	fromJSON(t, get(t, page, "/status.json"), &got)
	var lines []string
	for _, g := range got.Gates {
		line := fmt.Sprintf("%s: %v/s, %d, limit %d, %d in flight", g.Name, g.Rate, g.Burst, g.Limit, g.InFlight)
		if !g.Paused.IsZero() {
			line += fmt.Sprintf(", paused for %v, until in %v, %s", time.Since(g.Paused), time.Until(g.Until), g.Error)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// A gate that is paused says since when, until when and why; buttons pause it and let
// it go on.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &gate.Gate{Every: time.Second / 4, Burst: 3, Max: 7, Logger: discard, Pause: func(error) time.Duration { return 10 * time.Minute }}
		page := statuspage.New(&statuspage.Gate{Name: "cloud", Gate: cloud}, &statuspage.Gate{Name: "free", Gate: new(gate.Gate)})
		var log bytes.Buffer
		page.Logger = slog.New(slog.NewTextHandler(&log, nil))
		const free = "\nfree: 0/s, 1, limit 0, 0 in flight"
		shows := func(when, want string, texts ...string) {
			t.Helper()
			if got := gates(t, page); got != want+free {
				t.Errorf("%s: %s\nwant %s", when, got, want+free)
			}
			page := body(t, get(t, page, "/"), http.StatusOK)
			for _, text := range texts {
				if want, no := strings.CutPrefix(text, "-"); strings.Contains(page, want) == no {
					t.Errorf("%s: the page must have %q:\n%s", when, text, page)
				}
			}
		}
		done, err := cloud.Admit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		shows("open", "cloud: 4/s, 3, limit 7, 1 in flight", "4.0/s, 3 at once", ">open<", `-class="alert"`, "-<form class")
		done(reconcile.OutcomeRetrying, errors.New("503 & more"), 0)
		time.Sleep(time.Minute)
		shows("paused by an answer", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 9m0s, 503 & more",
			`<p class="alert">Gate cloud is paused, nothing behind it runs: 503 &amp; more</p>`, ">paused<", "in 9 m", "-Go on")
		page.AllowActions = true
		shows("with buttons", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 9m0s, 503 & more", ">1 h</button>", ">Go on</button>")

		said := body(t, post(t, page, "/gate.json", url.Values{"gate": {"cloud"}, "action": {"go-on"}}), http.StatusOK)
		if !strings.Contains(said, "The pause has ended: one run goes first.") || cloud.Stats().Next != 0 {
			t.Errorf("go on: %s, %+v", said, cloud.Stats())
		}
		shows("after go on", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 0s, 503 & more", ">probing<", "after a run that succeeds")
		cloud.Pause = nil
		if done, err = cloud.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		done(reconcile.OutcomeSucceeded, nil, 0)
		shows("open again", "cloud: 4/s, 3, limit 7, 0 in flight", "-Go on")

		log.Reset()
		r := post(t, page, "/gate", url.Values{"gate": {"cloud"}, "action": {"pause"}, "for": {"1h"}})
		if body(t, r, http.StatusSeeOther); r.Header.Get("Location") != "./?notice=pause" {
			t.Errorf("the form leads to %q", r.Header.Get("Location"))
		}
		shows("paused", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 0s, until in 1h0m0s, ",
			"Gate cloud is paused, nothing behind it runs: an operator&#39;s pause</p>", "in 1 h", ">Go on</button>")
		if want := `msg="statuspage: action" action=pause gate=cloud for=1h from=192.0.2.1:1234`; !strings.Contains(log.String(), want) {
			t.Errorf("the log has %s, want %s", &log, want)
		}
	})
}

// TestListing shows a Set whose listings are rejected, and accepts what was shown.
func TestListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the maps
		desired, actual := map[string]int{"a": 1, "b": 1, "c": 1, "new": 1}, map[string]int{"a": 1, "b": 2, "c": 1}
		queue := reconcile.NewQueue[string]()
		set := &keep.Set[string, int, int]{
			Queue: queue, Period: time.Minute, DeleteAfter: -1, Logger: discard,
			Desired: func(context.Context) (map[string]int, error) {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(desired), nil
			},
			Actual: func(context.Context) (map[string]int, error) {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(actual), nil
			},
			InSync: func(desired, actual int) bool { return desired == actual },
			Ensure: func(context.Context, string, int) error { return reconcile.Terminal(errors.New("no room")) },
			Delete: func(_ context.Context, key string, _ int) error {
				mu.Lock()
				defer mu.Unlock()
				delete(actual, key)
				return nil
			},
		}
		page := statuspage.New(&statuspage.Listing{Name: "buckets", Of: set})
		page.AllowActions, page.Logger = true, discard
		var group supervise.Group
		group.Logger = discard
		group.Add("set", set)
		group.Add("things", &reconcile.Reconciler[string]{Queue: queue, Reconcile: set.Reconcile})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- group.Run(ctx) }()
		shown := ""
		shows := func(when, want string, texts ...string) {
			t.Helper()
			synctest.Wait()
			var got struct {
				Listings []struct {
					Name                                         string
					Desired, Actual, Missing, Surplus, OutOfSync int
					Out                                          int     `json:"out_of_sync"`
					Age                                          float64 `json:"age_seconds"`
					Rejected                                     bool
					Since                                        time.Time `json:"rejected_since"`
					Names                                        []string  `json:"would_be_deleted"`
					Shown                                        string
				}
			}
			fromJSON(t, get(t, page, "/status.json"), &got)
			l := got.Listings[0]
			shown = l.Shown
			line := fmt.Sprintf("%s: %d desired, %d exist, %d missing, %d out of sync, %d surplus, %vs", l.Name, l.Desired, l.Actual, l.Missing, l.Out, l.Surplus, l.Age)
			if l.Rejected {
				line += fmt.Sprintf(", rejected for %v: %v", time.Since(l.Since), l.Names)
			}
			if line != want {
				t.Errorf("%s: %s, want %s", when, line, want)
			}
			page := body(t, get(t, page, "/"), http.StatusOK)
			for _, text := range texts {
				if want, no := strings.CutPrefix(text, "-"); strings.Contains(page, want) == no {
					t.Errorf("%s: the page must have %q:\n%s", when, text, page)
				}
			}
		}
		accept := url.Values{"listing": {"buckets"}, "action": {"accept"}}
		shows("well", "buckets: 4 desired, 3 exist, 1 missing, 1 out of sync, 0 surplus, 0s", ">accepted<", "-Delete all", `-class="alert"`)
		body(t, post(t, page, "/listing.json", accept), http.StatusBadRequest)
		mu.Lock()
		desired = nil
		mu.Unlock()
		time.Sleep(time.Hour)
		const rejected = "buckets: 0 desired, 3 exist, 0 missing, 1 out of sync, 3 surplus, 3600s, rejected for 59m0s: [a b c]"
		shows("rejected", rejected, ">rejected<", ">Delete all of these</button>", "<bdi>a, b, c</bdi>",
			`<p class="alert">The listings of buckets are rejected, nothing that is newly surplus is deleted: `, `name="shown" value="`+shown)
		body(t, post(t, page, "/listing.json", accept), http.StatusConflict)
		accept.Set("shown", "another")
		if said := body(t, post(t, page, "/listing.json", accept), http.StatusConflict); !strings.Contains(said, "is not the one that was shown") {
			t.Errorf("it answers %s", said)
		}
		shows("another is accepted", rejected)
		accept.Set("shown", shown)
		mu.Lock()
		actual["foreign"] = 1
		mu.Unlock()
		if said := body(t, post(t, page, "/listing.json", accept), http.StatusOK); !strings.Contains(said, "These things may be deleted") {
			t.Errorf("it answers %s", said)
		}
		time.Sleep(2 * time.Minute)
		shows("accepted", "buckets: 0 desired, 1 exist, 0 missing, 0 out of sync, 1 surplus, 3720s, rejected for 1h1m0s: [foreign]")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestGateActionsRejected sends requests that must have no effect.
func TestGateActionsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, listing := &gate.Gate{Logger: discard}, rejected{&keep.Rejection[string]{Keys: []string{"a"}}, new(error)}
		page := statuspage.New(&statuspage.Gate{Name: "cloud", Gate: cloud}, &statuspage.Listing{Name: "buckets", Of: listing})
		page.Logger = discard
		pause := url.Values{"gate": {"cloud"}, "action": {"pause"}, "for": {"1h"}}
		accept := url.Values{"listing": {"buckets"}, "action": {"accept"}}
		targets := map[string]url.Values{"/gate": pause, "/gate.json": pause, "/listing": accept, "/listing.json": accept}
		for target, form := range targets {
			if got := body(t, post(t, page, target, form), http.StatusForbidden); !strings.Contains(got, "Page.AllowActions") {
				t.Errorf("%s where it is not allowed: %s", target, got)
			}
		}
		page.AllowActions = true
		for target, form := range targets {
			body(t, post(t, page, target, form, header("Sec-Fetch-Site", "cross-site")), http.StatusForbidden)
			body(t, post(t, page, target, form, header("Origin", "https://evil.example")), http.StatusForbidden)
			body(t, post(t, page, target, form, func(r *http.Request) { r.Host = "evil.example" }), http.StatusMisdirectedRequest)
			body(t, get(t, page, target+"?"+form.Encode()), http.StatusMethodNotAllowed)
			body(t, post(t, page, target+"?"+form.Encode(), nil), http.StatusNotFound) // what stands in a URL does nothing
		}
		for form, want := range map[string]struct {
			target, text string
			status       int
		}{
			"gate=x&action=pause&for=1h":       {"/gate.json", `no gate \"x\"; there are cloud`, 404},
			"gate=cloud&action=explode":        {"/gate.json", `no action \"explode\"; there are pause, go-on`, 400},
			"gate=cloud&action=pause":          {"/gate.json", "want a time such as 10m", 400},
			"gate=cloud&action=pause&for=-1h":  {"/gate.json", "want a time such as 10m", 400},
			"gate=cloud&action=pause&for=721h": {"/gate.json", "at most 720h0m0s", 400},
			"listing=x&action=accept":          {"/listing.json", `no listing \"x\"; there are buckets`, 404},
			"listing=buckets&action=explode":   {"/listing.json", `no action \"explode\"; there is accept`, 400},
		} {
			values, err := url.ParseQuery(form)
			if err != nil {
				t.Fatal(err)
			}
			if got := body(t, post(t, page, want.target, values), want.status); !strings.Contains(got, want.text) {
				t.Errorf("%s: %s, want %s", form, got, want.text)
			}
		}
		if s := cloud.Stats(); s.Pauses != 0 || *listing.accepted != nil {
			t.Errorf("something was done all the same: %+v, accepted %v", s, *listing.accepted)
		}
	})
}

// rejected is a listing that is rejected.
type rejected struct {
	err      error
	accepted *error
}

func (r rejected) Rejected() (time.Time, error) { return time.Now(), r.err }
func (r rejected) Accept(err error) error       { *r.accepted = err; return nil }
func (r rejected) Age() time.Duration           { return time.Hour }
func (r rejected) Stats() keep.Stats            { return keep.Stats{Rejected: 1} }

// The oldest item that is out of sync is shown, red after an hour, and found by
// sort=pending.
func TestOldestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		w.returns("made", time.Millisecond, fmt.Errorf("being made: %w", reconcile.RequeueWithin(10*time.Second)))
		w.returns("fine", time.Millisecond, reconcile.RecheckWithin(12*time.Hour))
		w.queue.Enqueue("fine")
		sleep(10 * time.Second)
		w.queue.Enqueue("made")
		sleep(30 * time.Second)
		w.returns("bad", time.Millisecond, errors.New("no room"))
		w.queue.Enqueue("bad")
		for _, step := range []struct {
			pass, seconds time.Duration
			want          string
		}{
			{5 * time.Second, 35 * time.Second, `class="tile in-sync" data-key="In sync" href="./?state=in-sync" data-nav><span class="label">In sync</span> <span class="count">1 of 3</span> <span class="detail">one has not been for 35 s</span>`},
			{time.Hour, time.Hour + 35*time.Second, `class="tile in-sync bad"`},
		} {
			sleep(step.pass)
			if text := body(t, get(t, w.page, "/"), http.StatusOK); !strings.Contains(text, step.want) {
				t.Errorf("the page lacks %s:\n%s", step.want, text)
			}
			var got struct {
				Queues []struct {
					Longest float64 `json:"longest_pending_seconds"`
				}
			}
			fromJSON(t, get(t, w.page, "/status.json"), &got)
			if got.Queues[0].Longest != step.seconds.Seconds() {
				t.Errorf("the oldest has been pending for %v s, want %v", got.Queues[0].Longest, step.seconds)
			}
		}
		var found items
		fromJSON(t, get(t, w.page, "/items.json?sort=pending"), &found)
		if found.names() != "made bad fine" {
			t.Errorf("sorted by pending: %s, want made bad fine", found.names())
		}
	})
}
