// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

func TestFromNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(bad)
		w.play().wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, string(shipped)))
	})
}

func TestFromHalfBuilt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
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
	inWorld(t, func(t *testing.T, w *world) {
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
	inWorld(t, func(t *testing.T, w *world) {
		config := bad
		config.Faults = 0.1
		w.open(config)
		p := w.play("-n", "600")
		p.wantEnd(t, 0)
		end := regexp.MustCompile(`600 of 600 assets in sync after [0-9.]+s, [1-9][0-9]* a second\n.* peak memory [1-9][0-9]* MB\n$`)
		if out := p.out.String(); !end.MatchString(out) {
			t.Errorf("the rate and the memory are not the end of\n%s", out)
		}
		w.close()
		w.wantExactly(generate(600))
	})
}

const (
	oneKey       = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": []}`
	keyAndBucket = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "key": "k"}]}`
	keyAndTwo    = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "key": "k"}, {"name": "b", "region": "eu-west"}]}`
	keyAndOne    = `{"keys": [{"name": "k", "region": "us-east"}], "buckets": [{"name": "a", "region": "us-east", "size": "large"}]}`
	brokenFile   = "{\n\"keys\": [],\n\"buckets\": [{\"name\": \"a\", \"region\": \"us-east\", \"colour\": \"red\"}]\n}"
)

// The file changes while the first version is still being built: what is there
// in the end is the second.
func TestFileChangesOnTheWay(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(slow)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-assets", file)
		w.Advance(5 * time.Second)
		wish(t, file, keyAndOne)
		p.wantEnd(t, 0, "2 of 2 assets in sync", "is in force, 2 assets changed")
		w.close()
		w.wantExactly(mustParse(t, keyAndOne))
	})
}

func TestBrokenFileWhileWatching(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.open(quick)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file, "-recheck", "1h")
		w.Advance(time.Minute)
		for _, text := range []string{brokenFile, brokenFile + "\n", "{"} {
			wish(t, file, text)
			w.Advance(time.Minute)
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
		w.Advance(time.Minute) // it is mended by the last good version

		wish(t, file, oneKey)
		w.Advance(time.Minute)
		p.cancel()
		p.wantEnd(t, 0, "1 of 1 asset in sync", "drift mended 1", "removed 2", "is in force, 2 assets changed")
		w.close()
		w.wantExactly(mustParse(t, oneKey))
	})
}

// What cannot be is named with its reason, the rest comes to be, and the exit
// code is 1.
func TestWhatCannotBe(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
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
		small := cloud.Spec{Region: "us-east", Size: "small"}
		withKey := cloud.Spec{Region: "us-east", Size: "small", Key: "good"}
		w.wantExactly(assets{specs: map[cloud.ID]cloud.Spec{key("good"): {Region: "us-east"}, bucket("fine"): withKey, bucket("moved"): small}})
	})
}

// With -watch, what was refused is tried again with each poll.
func TestRefusedComesBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.arrange("rival", func(ctx context.Context, c *cloud.Client) error {
			return build(ctx, c, key("k"), cloud.Spec{Region: "us-east"})
		})
		config := bad
		config.Faults = 0 // it is cut off at a moment when nothing may be under way
		w.open(config)
		file := wishPath(t)
		wish(t, file, keyAndTwo)
		p := w.play("-watch", "-assets", file)
		w.Advance(time.Minute)
		if out := p.out.String(); !strings.Contains(out, "refused") || strings.Contains(out, "bucket/a               in sync") {
			t.Errorf("with the key taken, the output is\n%s", out)
		}
		w.close()
		w.arrange("rival", func(ctx context.Context, c *cloud.Client) error { return c.Delete(ctx, key("k")) })
		w.open(config)
		w.Advance(5 * time.Minute)
		p.cancel()
		p.wantEnd(t, 0, "3 of 3 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, keyAndTwo))
	})
}

func TestChaos(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		config := bad
		config.Chaos = 700 * time.Millisecond
		w.open(config)
		p := w.play("-watch")
		w.Advance(10 * time.Minute)
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
	inWorld(t, func(t *testing.T, w *world) {
		config := bad
		config.Build = 10 * time.Second
		w.open(config)
		p := w.play()
		w.Advance(12 * time.Second)
		w.close()
		w.Advance(20 * time.Second)
		w.open(config)
		p.wantEnd(t, 0, "14 of 14 assets in sync")
		w.close()
		w.wantExactly(mustParse(t, string(shipped)))
	})
}

// If the cloud never comes, the program gives up and says why.
func TestNoCloud(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
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
			inWorld(t, func(t *testing.T, w *world) {
				config := slow
				config.Latency = time.Minute // runs are stuck in their requests
				w.open(config)
				p := w.play(test.args...)
				w.Advance(5 * time.Second)
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
