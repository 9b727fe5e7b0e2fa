// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

func TestFromNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(bad)
		w.play().wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, string(shipped)))
	})
}

func TestFromHalfBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := mustParse(t, string(shipped))
		w.open(slow)
		w.other("example", func(ctx context.Context, c *cloud.Client) error {
			err := build(ctx, c, key("finance"), want.specs[key("finance")])
			if err != nil {
				return err
			}
			_, err = c.Create(ctx, bucket("ledger"), want.specs[bucket("ledger")])
			return err
		})
		w.close() // while the ledger is being created
		w.open(bad)
		w.play().wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(want)
	})
}

func TestFromDrifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := mustParse(t, string(shipped))
		drifted := assets{specs: maps.Clone(want.specs), order: slices.Clone(want.order)}
		drifted.specs[key("finance")] = cloud.Spec{Region: "eu-west", Labels: map[string]string{"team": "other"}}
		spec := drifted.specs[bucket("invoices")]
		spec.Size, spec.Key = "small", "research"
		drifted.specs[bucket("invoices")] = spec
		drifted.order = slices.DeleteFunc(drifted.order, func(id cloud.ID) bool { return id == bucket("models") })
		// Too much: a key, and a bucket that has to go before it can.
		surplus := cloud.Spec{Region: "us-east"}
		drifted.specs[key("old")] = surplus
		surplus.Key = "old"
		drifted.specs[bucket("old")] = surplus
		drifted.order = append([]cloud.ID{key("old"), bucket("old")}, drifted.order...)
		w.arrange("example", func(ctx context.Context, c *cloud.Client) error { return buildAll(ctx, c, drifted) })

		w.open(bad)
		w.play().wantEnd(t, 0, "14 of 14 assets in sync", "removed 2")
		w.close()
		w.wantExactly(want)
	})
}

func TestManyAssets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		config := bad
		config.Faults = 0.1
		w.open(config)
		p := w.play("-n", "600")
		p.wantEnd(t, 0, "600 of 600 assets in sync", " a second", "peak memory")
		w.close()
		w.wantExactly(generate(600))
	})
}

const (
	oneKey     = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": []}`
	keyAndTwo  = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "key": "k"}, {"name": "b", "region": "eu-west"}]}`
	keyAndOne  = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "size": "large"}]}`
	brokenFile = "{\n\"keys\": [],\n\"buckets\": [{\"name\": \"a\", \"region\": \"us-east\", \"colour\": \"red\"}]\n}"
)

// The file changes while the first version is still being built: what is there
// in the end is the second.
func TestFileChangesOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(slow)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-assets", file)
		settle(5 * time.Second)
		wish(t, file, keyAndOne)
		p.wantEnd(t, 0, "2 of 2 assets in sync", "is in force, 2 assets changed")
		w.close()
		w.wantExactly(mustParse(t, keyAndOne))
	})
}

func TestBrokenFileWhileWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(bad)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		settle(time.Minute)
		for _, text := range []string{brokenFile, brokenFile + "\n", "{"} {
			wish(t, file, text)
			settle(time.Minute)
		}
		got := p.errs.String()
		for _, want := range []string{
			"is not used, the last good version stays in force",
			`wishes.json:3: bucket/a: unknown field "colour"; there are name, region, size, key, labels`,
			"wishes.json:1: unexpected end of JSON input",
		} {
			if n := strings.Count(got, want); n == 0 {
				t.Errorf("standard error lacks %q; it is\n%s", want, got)
			}
		}
		if n := strings.Count(got, "colour"); n != 1 {
			t.Errorf("the same problem was told %d times, want 1", n)
		}
		w.other("example", func(ctx context.Context, c *cloud.Client) error { return c.Delete(ctx, bucket("b")) })
		settle(time.Minute) // it is mended by the last good version

		wish(t, file, oneKey)
		settle(time.Minute)
		p.cancel()
		p.wantEnd(t, 0, "1 of 1 asset in sync", "drift mended 1", "removed 2", "is in force, 2 assets changed")
		w.close()
		w.wantExactly(mustParse(t, oneKey))
	})
}

// A file that is gone for a while is a problem for as long.
func TestFileComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(quick)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		settle(time.Minute)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		if got := p.errs.String(); !strings.Contains(got, "no such file") {
			t.Errorf("without the file, standard error is\n%s", got)
		}
		wish(t, file, keyAndTwo)
		settle(time.Minute)
		p.cancel()
		p.wantEnd(t, 0, "is in force, 0 assets changed", "3 of 3 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

// What cannot be is named with its reason, the rest comes to be, and the exit
// code is 1.
func TestWhatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.arrange("example", func(ctx context.Context, c *cloud.Client) error {
			return build(ctx, c, bucket("moved"), cloud.Spec{Region: "us-east", Size: "small"})
		})
		w.open(bad)
		file := wishPath(t)
		wish(t, file, `{
			"keys": [{"name": "master", "region": "us-east"}, {"name": "good", "region": "us-east"}],
			"buckets": [
				{"name": "backup", "region": "us-east"},
				{"name": "far", "region": "mars-1"},
				{"name": "moved", "region": "eu-west"},
				{"name": "locked", "region": "us-east", "key": "master"},
				{"name": "fine", "region": "us-east", "key": "good"}
			]}`)
		w.play("-assets", file).wantEnd(t, 1,
			"2 of 7 assets in sync",
			"5 cannot be:",
			"  key/master: 409: the name \"master\" is taken by another tenant",
			"  bucket/backup: 409: the name \"backup\" is taken by another tenant",
			"  bucket/far: 400: region \"mars-1\" does not exist; there are ap-south, ",
			"  bucket/locked: it has to wait for key/master, and that cannot be: 409: the name \"master\" is taken by another tenant",
			"  bucket/moved: 422: the region cannot be changed from us-east to eu-west",
		)
		w.close()
		got := w.there("example")
		if len(got) != 3 || got[bucket("fine")].State != cloud.Ready || got[bucket("moved")].Region != "us-east" {
			t.Errorf("in the end there is %v, want key/good, bucket/fine and bucket/moved in its old region", got)
		}
	})
}

// With -watch, what was refused is tried again with each poll.
func TestRefusedComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.arrange("rival", func(ctx context.Context, c *cloud.Client) error {
			return build(ctx, c, key("k"), cloud.Spec{Region: "us-east"})
		})
		w.open(bad)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		settle(time.Minute)
		if out := p.out.String(); !strings.Contains(out, "refused") || strings.Contains(out, "bucket/a               in sync") {
			t.Errorf("with the key taken, the output is\n%s", out)
		}
		w.close()
		w.arrange("rival", func(ctx context.Context, c *cloud.Client) error { return c.Delete(ctx, key("k")) })
		w.open(bad)
		settle(5 * time.Minute)
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

// Changes by another hand are mended at once, because the events tell of them.
func TestDriftIsMendedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(quick)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		settle(3 * time.Second)
		began := time.Now()
		w.other("example", func(ctx context.Context, c *cloud.Client) error {
			a, err := c.Get(ctx, bucket("b"))
			a.Labels = map[string]string{"by": "another"}
			return errors.Join(err, c.Update(ctx, bucket("b"), a.Spec, a.Version), c.Delete(ctx, bucket("a")))
		})
		settle(0)
		if took := time.Since(began); took != 0 {
			t.Errorf("the other hand took %v, want no time", took)
		}
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync", "drift mended 2")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

// Without the events, what was deleted or altered is found by the poll, and
// without that by the recheck.
func TestDriftIsMendedWithoutEvents(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		after time.Duration // not yet then, but twice as late
	}{
		{"poll", []string{"-poll", "10m", "-recheck", "24h"}, 7 * time.Minute},
		{"recheck", []string{"-poll", "24h", "-recheck", "10m"}, 7 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.open(quick)
				w.answer(func(r *http.Request) (*http.Response, error) {
					if r.URL.Path == "/v1/events" {
						return nil, errors.New("no events in this test")
					}
					return nil, nil
				})
				file := wishPath(t)
				wish(t, file, keyAndTwo)
				p := w.play(append(test.args, "-watch", "-assets", file)...)
				settle(time.Minute)
				w.other("example", func(ctx context.Context, c *cloud.Client) error {
					a, err := c.Get(ctx, bucket("b"))
					a.Labels = map[string]string{"by": "another"}
					return errors.Join(err, c.Update(ctx, bucket("b"), a.Spec, a.Version), c.Delete(ctx, bucket("a")))
				})
				settle(test.after)
				if out := p.out.String(); strings.Contains(out, "drift mended 1") || strings.Contains(out, "drift mended 2") {
					t.Errorf("after %v something was mended already:\n%s", test.after, out)
				}
				settle(test.after)
				p.cancel()
				p.wantEnd(t, 0, "3 of 3 assets in sync", "drift mended 2")
				w.close()
				w.wantExactly(mustParse(t, keyAndTwo))
			})
		})
	}
}

// What happened while there was no stream of events is found as soon as there is
// one again, long before the next poll.
func TestDriftIsFoundAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(quick)
		began := time.Now()
		w.answer(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/v1/events" && time.Since(began) < 20*time.Second {
				return nil, errors.New("no events yet")
			}
			return nil, nil
		})
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file, "-poll", "1h", "-recheck", "1h")
		settle(10 * time.Second)
		w.other("example", func(ctx context.Context, c *cloud.Client) error { return c.Delete(ctx, bucket("a")) })
		settle(20 * time.Second) // the back-off is 5s at most
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync after 30.0s", "drift mended 1")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

// After a 429 nothing is asked about the asset before Retry-After is over, even
// if there is an event about it.
func TestRetryAfterIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.arrange("example", func(ctx context.Context, c *cloud.Client) error {
			return build(ctx, c, key("k"), cloud.Spec{Region: "us-east"})
		})
		w.open(quick)
		began := time.Now()
		var mu sync.Mutex // guards asked
		var asked []time.Duration
		w.answer(func(r *http.Request) (*http.Response, error) {
			other := time.Since(began) == time.Second // the hand below
			if r.URL.Path != "/v1/keys/k" || r.Method != "GET" || other {
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(began))
			if len(asked) > 1 {
				return nil, nil
			}
			header := http.Header{"Retry-After": {"7"}}
			return &http.Response{StatusCode: 429, Header: header, Body: io.NopCloser(strings.NewReader(`{"message": "slowly"}`))}, nil
		})
		file := wishPath(t)
		wish(t, file, oneKey)
		p := w.play("-assets", file)
		settle(time.Second)
		w.other("example", func(ctx context.Context, c *cloud.Client) error {
			a, err := c.Get(ctx, key("k"))
			return errors.Join(err, c.Update(ctx, key("k"), a.Spec, a.Version))
		})
		p.wantEnd(t, 0, "throttled", "1 of 1 asset in sync after 7.0s")
		if want := []time.Duration{0, 7 * time.Second}; !slices.Equal(asked, want) {
			t.Errorf("the key was asked about after %v, want %v", asked, want)
		}
		w.close()
	})
}

// A bucket waits for its key and goes on at once when that is ready; a key that
// is not wanted waits for its bucket.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(quick)
		var seen []string
		client, done := w.client("example")
		go func() {
			for event, err := range client.Events(context.Background()) {
				if err != nil {
					return
				}
				seen = append(seen, strings.TrimPrefix(event.What+" "+event.Asset.String(), "hello "))
			}
		}()
		synctest.Wait()
		file := wishPath(t)
		wish(t, file, `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "key": "k"}]}`)
		w.play("-assets", file).wantEnd(t, 0)
		wish(t, file, `{}`)
		w.answer(func(r *http.Request) (*http.Response, error) {
			if r.Method == "DELETE" && r.URL.Path == "/v1/buckets/a" {
				time.Sleep(100 * time.Millisecond) // the key has to wait for it
			}
			return nil, nil
		})
		w.play("-assets", file).wantEnd(t, 0, "0 of 0 assets in sync after 0.1s", "removed 2")
		w.close()
		synctest.Wait()
		done()
		want := []string{"/", "ready key/k", "ready bucket/a", "deleted bucket/a", "deleted key/k"}
		if !slices.Equal(seen, want) {
			t.Errorf("the cloud told of %q, want %q", seen, want)
		}
	})
}

// What a run depends on is known before it looks: here the key gets ready while
// the answer that it is not is still under way, and the bucket does not wait for
// its patience to end.
func TestNoEventIsMissedOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open(fakecloud.Config{Seed: 1, Build: 2 * time.Second})
		direct := &http.Transport{DialContext: w.dial}
		began := time.Now()
		var mu sync.Mutex // guards asked
		var asked []time.Duration
		w.answer(func(r *http.Request) (*http.Response, error) {
			if r.Method != "POST" || r.URL.Path != "/v1/buckets" {
				return nil, nil
			}
			mu.Lock()
			asked = append(asked, time.Since(began))
			first := len(asked) == 1
			mu.Unlock()
			if !first {
				return nil, nil
			}
			resp, err := direct.RoundTrip(r)
			time.Sleep(5 * time.Second)
			return resp, err
		})
		file := wishPath(t)
		wish(t, file, `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "key": "k"}]}`)
		w.play("-assets", file).wantEnd(t, 0, "2 of 2 assets in sync")
		if want := []time.Duration{0, 5 * time.Second}; !slices.Equal(asked, want) {
			t.Errorf("the bucket was asked for after %v, want %v", asked, want)
		}
		direct.CloseIdleConnections()
		w.close()
	})
}

func TestChaos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		config := bad
		config.Chaos = 700 * time.Millisecond
		w.open(config)
		p := w.play("-watch")
		settle(10 * time.Minute)
		p.cancel()
		p.wait(t)
		w.close()
		out := p.out.String()
		if strings.Contains(out, "drift mended 0, peak") {
			t.Errorf("no drift was mended in ten minutes of chaos:\n%s", out)
		}
		w.open(bad)
		w.play().wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, string(shipped)))
	})
}

// The cloud goes away in the middle and comes back.
func TestCloudRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		config := bad
		config.Build = 10 * time.Second
		w.open(config)
		p := w.play()
		settle(12 * time.Second)
		w.close()
		settle(20 * time.Second)
		w.open(config)
		p.wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, string(shipped)))
	})
}

// If the cloud never comes, the program gives up and says why.
func TestNoCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		file := wishPath(t)
		wish(t, file, oneKey)
		w.play("-assets", file, "-retries", "3").wantEnd(t, 1,
			"0 of 1 asset in sync", "1 cannot be:", "key/k: Get \"http://cloud/v1/keys/k\": no cloud is there")
	})
}

// The end of ctx ends everything within the grace of two seconds.
func TestInterrupt(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		code int
		out  string
	}{
		{"before the end", nil, 1, "interrupted\n"},
		{"watching", []string{"-watch"}, 0, "ending in order"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				config := slow
				config.Latency = time.Minute // runs are stuck in their requests
				w.open(config)
				p := w.play(test.args...)
				settle(5 * time.Second)
				began := time.Now()
				p.cancel()
				p.wantEnd(t, test.code, test.out, "0 of 14 assets in sync")
				if took := time.Since(began); took != 2*time.Second {
					t.Errorf("the end took %v, want the grace of 2s", took)
				}
				w.close()
			})
		})
	}
}
