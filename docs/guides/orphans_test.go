// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/reconciletest"
)

// A site is the fake of the guide: it gives each machine an id. Beside it is the
// database in which the controller notes the ids.
type site struct {
	machines map[string]string // id to tag
	tokens   map[string]string // of a request that was carried out, to the id that it was answered with
	last     int
	notes    map[string]string // name to id
}

func (s *site) state() string {
	return fmt.Sprintf("machines: %d\nnoted: %d", len(s.machines), len(s.notes))
}

// A siteClient is how a process reaches both.
type siteClient struct {
	env  *reconciletest.Env[string]
	site *site
}

// create makes a machine, unless there was a request with that token.
func (c siteClient) create(ctx context.Context, tag, token string) (id string, err error) {
	err = c.env.Do(ctx, "create", func() error {
		if id = c.site.tokens[token]; token != "" && id != "" {
			return nil
		}
		c.site.last++
		id = fmt.Sprint("m-", c.site.last)
		c.site.machines[id], c.site.tokens[token] = tag, id
		return nil
	})
	return id, err
}

// put makes a machine whose id the caller chooses.
func (c siteClient) put(ctx context.Context, id string) error {
	return c.env.Do(ctx, "put "+id, func() error {
		c.site.machines[id] = ""
		return nil
	})
}

func (c siteClient) tag(ctx context.Context, id, tag string) error {
	return c.env.Do(ctx, "tag "+id, func() error {
		c.site.machines[id] = tag
		return nil
	})
}

func (c siteClient) remove(ctx context.Context, id string) error {
	return c.env.Do(ctx, "remove "+id, func() error {
		delete(c.site.machines, id)
		return nil
	})
}

// tagged returns the ids of the machines with a tag, in order.
func (c siteClient) tagged(ctx context.Context, tag string) ([]string, error) {
	return reconciletest.Read(ctx, c.env, "list "+tag, func() (ids []string, err error) {
		for _, id := range slices.Sorted(maps.Keys(c.site.machines)) {
			if c.site.machines[id] == tag {
				ids = append(ids, id)
			}
		}
		return ids, nil
	})
}

func (c siteClient) noted(ctx context.Context, name string) (string, error) {
	return reconciletest.Read(ctx, c.env, "look up "+name, func() (string, error) { return c.site.notes[name], nil })
}

func (c siteClient) note(ctx context.Context, name, id string) error {
	return c.env.Do(ctx, "note "+name, func() error {
		c.site.notes[name] = id
		return nil
	})
}

// orphan is what most write first.
func (c siteClient) orphan(ctx context.Context, name string) error {
	id, err := c.noted(ctx, name)
	if err != nil || id != "" {
		return err
	}
	if id, err = c.create(ctx, "", ""); err != nil {
		return err
	}
	return c.note(ctx, name, id) // if nobody gets here, nobody knows that machine
}

// byName chooses the id.
func (c siteClient) byName(ctx context.Context, name string) error {
	if err := c.put(ctx, name); err != nil {
		return err
	}
	return c.note(ctx, name, name)
}

// byToken asks twice for the same machine, and is given one.
func (c siteClient) byToken(ctx context.Context, name string) error {
	id, err := c.create(ctx, "", "create "+name)
	if err != nil {
		return err
	}
	return c.note(ctx, name, id)
}

// tagLater says too late whose machine it is.
func (c siteClient) tagLater(ctx context.Context, name string) error {
	ids, err := c.tagged(ctx, name)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		id, err := c.create(ctx, "", "")
		if err != nil {
			return err
		}
		if err := c.tag(ctx, id, name); err != nil {
			return err
		}
		ids = []string{id}
	}
	return c.note(ctx, name, ids[0])
}

// byTag finds the machine that was made and not noted.
func (c siteClient) byTag(ctx context.Context, name string) error {
	ids, err := c.tagged(ctx, name)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		id, err := c.create(ctx, name, "") // the tag is part of the call
		if err != nil {
			return err
		}
		ids = []string{id}
	}
	return c.note(ctx, name, ids[0])
}

// byTagAndSweep removes what a list made it make that did not show the first one yet.
func (c siteClient) byTagAndSweep(ctx context.Context, name string) error {
	ids, err := c.tagged(ctx, name)
	if err != nil {
		return err
	}
	if len(ids) > 1 {
		for _, surplus := range ids[1:] {
			if err := c.remove(ctx, surplus); err != nil {
				return err
			}
		}
	}
	return c.byTag(ctx, name)
}

// TestOrphans explores each row of the table in deleting-safely.md, and compares what is found
// with what that row says.
func TestOrphans(t *testing.T) {
	page, err := os.ReadFile("deleting-safely.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (?:\*\*)?(\w.*?)(?:\*\*.*?)? \|.*\| (.*?) \|$`).FindAllStringSubmatch(string(page), -1)
	stale := []explore.Fault{explore.Stale, explore.StaleWatch}
	tests := []struct {
		name    string // as the row begins
		create  func(c siteClient, ctx context.Context, name string) error
		without []explore.Fault
		plan    int // that finds it; 0 if none does
		found   string
	}{
		{"choose the name", siteClient.byName, nil, 0, ""},
		{"send an idempotency token", siteClient.byToken, nil, 0, ""},
		{"tag it in the create call", siteClient.byTag, stale, 0, ""},
		{"tag it in the create call, with a list that lags, and delete all but one", siteClient.byTagAndSweep, nil, 0, ""},
		{"tag it in the create call, with a list that lags", siteClient.byTag, nil, 46, "call list web #2: stale"},
		{"tag it in a second call", siteClient.tagLater, stale, 9, "call create #1: answer lost"},
		{"record the ID after the create call", siteClient.orphan, nil, 9, "call create #1: answer lost"},
	}
	if len(rows) != len(tests) {
		t.Fatalf("the table has %d rows, want %d: %q", len(rows), len(tests), rows)
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			name, says, _ := strings.Cut(strings.Join(rows[i][1:], "|"), "|")
			found := "one thing"
			if test.plan > 0 {
				found = "a second thing"
			}
			if name != test.name || says != found {
				t.Errorf("row %d says %q of %q, want %q of %q", i+1, says, name, found, test.name)
			}
			r, err := explore.Search(t, reconciletest.Scenario[string, *site]{
				World: func() *site {
					return &site{machines: map[string]string{}, tokens: map[string]string{}, notes: map[string]string{}}
				},
				Start: func(env *reconciletest.Env[string], s *site) {
					env.Start(&reconcile.Reconciler[string]{
						Reconcile: func(ctx context.Context, name string) error { return test.create(siteClient{env, s}, ctx, name) },
						Timeout:   30 * time.Second,
					})
					env.Go(&reconcile.Poller[string]{
						Queue: env.Queue, Period: 10 * time.Minute,
						GetItems: func(context.Context) ([]string, error) { return []string{"web", "db"}, nil },
					})
				},
				Steps:   func(s *reconciletest.Environment[string], _ *site) { s.Advance(time.Minute) },
				State:   (*site).state,
				Without: test.without,
				Plans:   500,
			}.Untyped())
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.plan == 0 && r.Found != nil:
				t.Errorf("it fails:\n%v", r.Found)
			case test.plan == 0 && r.Plans != 500:
				t.Errorf("%d plans were played, want 500", r.Plans)
			case test.plan > 0 && (r.Found == nil || r.Found.Number != test.plan || fmt.Sprint(r.Found.Plan) != fmt.Sprint([]string{test.found})):
				t.Errorf("found %v, want %s in plan %d", r.Found, test.found, test.plan)
			}
		})
	}
}
