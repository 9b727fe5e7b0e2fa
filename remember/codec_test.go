// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// A moody value calls what a test wants when it becomes JSON and back.
type moody struct{ Name string }

var mood func()

func (m moody) MarshalJSON() ([]byte, error) {
	mood()
	return json.Marshal(m.Name)
}

func (m *moody) UnmarshalJSON(b []byte) error {
	mood()
	return json.Unmarshal(b, &m.Name)
}

// A value that panics on its way is refused, and stands in nobody's way.
func TestFileBearsValuesThatPanic(t *testing.T) {
	mood = func() {}
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	f := &File[moody, string]{Path: path, disk: d}
	if err := errors.Join(f.Open(), f.Begin(moody{"a"}), f.Close()); err != nil {
		t.Fatal(err)
	}
	mood = func() { panic("bad mood") }
	mustSay(t, f.Open(), "bad mood")
	mood = func() {}
	if err := f.Open(); err != nil {
		t.Fatalf("Open = %v once nothing panics, want nil", err)
	}
	mood = func() { panic("bad mood") }
	mustSay(t, f.Begin(moody{"b"}), "bad mood")

	type open struct{ Any any } // which can be unequal to itself, or panic on ==
	g := &File[open, string]{Path: "g", disk: newTestDisk(rand.New(rand.NewPCG(1, 1)))}
	if err := errors.Join(g.Open(), g.Begin(open{"a"})); err != nil {
		t.Fatal(err)
	}
	mustSay(t, g.Begin(open{[]any{1.0}}), "uncomparable")

	h := &File[open, string]{Path: path, disk: diskWith(record{verb: began, item: []byte(`{"Any":[1]}`)}.append([]byte(magic)))}
	mustSay(t, h.Open(), "uncomparable")
}

func mustSay(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "remember: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one that says %q", err, want)
	}
}
