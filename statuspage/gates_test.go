// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/tracker"
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
		done(reconcile.Retrying, errors.New("503 & more"), 0)
		time.Sleep(time.Minute)
		shows("paused by an answer", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 9m0s, 503 & more",
			`<p class="alert">Gate cloud is paused, nothing behind it runs: 503 &amp; more</p>`, ">paused<", "in 9 m", "-Go on")
		page.AllowActions = true
		shows("with buttons", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 9m0s, 503 & more", ">1 h</button>", ">Go on</button>")

		said := body(t, post(t, page, "/gate.json", url.Values{"gate": {"cloud"}, "action": {"go-on"}}), http.StatusOK)
		if !strings.Contains(said, "The pause has ended: one run goes first.") || cloud.Stats().Next != 0 {
			t.Errorf("go on: %s, %+v", said, cloud.Stats())
		}
		shows("after go on", "cloud: 4/s, 3, limit 7, 0 in flight, paused for 1m0s, until in 0s, 503 & more", ">probing<", "after a run that goes well")
		cloud.Pause = nil
		if done, err = cloud.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		done(reconcile.Succeeded, nil, 0)
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

// A listing that was refused says since when and why, and a button believes it.
func TestListing(t *testing.T) {
	for name, lists := range map[string]func(list func() []string) (reconcile.Runner, statuspage.Believer){
		"Poller": func(list func() []string) (reconcile.Runner, statuspage.Believer) {
			p := &reconcile.Poller[string]{
				Queue: reconcile.NewQueue[string](), Period: time.Minute, Vanished: true, MaxVanished: 0.1, Logger: discard,
				GetItems: func(context.Context) ([]string, error) { return list(), nil },
			}
			return p, p
		},
		"Tracker": func(list func() []string) (reconcile.Runner, statuspage.Believer) {
			tr := &tracker.Tracker[string, int]{
				Queue: reconcile.NewQueue[string](), Period: time.Minute, MaxVanished: 0.1, Logger: discard,
				List: tracker.FromMap(func(context.Context) (map[string]int, error) {
					items := map[string]int{}
					for _, item := range list() {
						items[item] = 1
					}
					return items, nil
				}),
			}
			return tr, tr
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var items atomic.Pointer[[]string]
				items.Store(&[]string{"a", "b", "c"})
				runner, believer := lists(func() []string { return *items.Load() })
				page := statuspage.New(&statuspage.Listing{Name: "buckets", Of: believer})
				page.AllowActions, page.Logger = true, discard
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- runner.Run(ctx) }()
				shows := func(when, want string, texts ...string) {
					t.Helper()
					synctest.Wait()
					var got struct {
						Listings []struct {
							Name    string
							Refused bool
							Since   time.Time
							Error   string
						}
					}
					fromJSON(t, get(t, page, "/status.json"), &got)
					l := got.Listings[0]
					line := fmt.Sprint(l.Name, " ", l.Refused)
					if l.Refused {
						line += fmt.Sprintf(" for %v, %t", time.Since(l.Since), strings.Contains(l.Error, "too much vanished"))
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
				believe := url.Values{"listing": {"buckets"}, "action": {"believe"}}
				shows("well", "buckets false", ">accepted<", "-Believe it", `-class="alert"`)
				body(t, post(t, page, "/listing.json", believe), http.StatusBadRequest)
				items.Store(new([]string))
				time.Sleep(time.Minute)
				shows("refused", "buckets true for 0s, true", ">refused<", ">Believe it</button>", `<p class="alert">Listing buckets was refused: `)
				time.Sleep(time.Hour)
				shows("refused still", "buckets true for 1h0m0s, true", `name="because" value="`)
				_, why := believer.Refused()
				believe.Set("because", "another")
				if said := body(t, post(t, page, "/listing.json", believe), http.StatusConflict); !strings.Contains(said, "too much vanished") {
					t.Errorf("it answers %s", said)
				}
				shows("another is believed", "buckets true for 1h0m0s, true")
				believe.Set("because", why.Error())
				if said := body(t, post(t, page, "/listing.json", believe), http.StatusOK); !strings.Contains(said, "The next listing may lack as much") {
					t.Errorf("it answers %s", said)
				}
				shows("believed", "buckets false", "-Believe it")
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestGateActionsRefused goes through the requests that are to do nothing.
func TestGateActionsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud, refused := &gate.Gate{Logger: discard}, refusing{reconcile.ErrVanished, new(bool)}
		page := statuspage.New(&statuspage.Gate{Name: "cloud", Gate: cloud}, &statuspage.Listing{Name: "buckets", Of: refused})
		page.Logger = discard
		pause := url.Values{"gate": {"cloud"}, "action": {"pause"}, "for": {"1h"}}
		believe := url.Values{"listing": {"buckets"}, "action": {"believe"}}
		targets := map[string]url.Values{"/gate": pause, "/gate.json": pause, "/listing": believe, "/listing.json": believe}
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
			"listing=x&action=believe":         {"/listing.json", `no listing \"x\"; there are buckets`, 404},
			"listing=buckets&action=explode":   {"/listing.json", `no action \"explode\"; there is believe`, 400},
		} {
			values, err := url.ParseQuery(form)
			if err != nil {
				t.Fatal(err)
			}
			if got := body(t, post(t, page, want.target, values), want.status); !strings.Contains(got, want.text) {
				t.Errorf("%s: %s, want %s", form, got, want.text)
			}
		}
		if s := cloud.Stats(); s.Pauses != 0 || *refused.believed {
			t.Errorf("something was done all the same: %+v, believed %t", s, *refused.believed)
		}
	})
}

// refusing is a listing that was refused.
type refusing struct {
	err      error
	believed *bool
}

func (r refusing) Refused() (time.Time, error) { return time.Now(), r.err }
func (r refusing) Believe()                    { *r.believed = true }

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
