// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package plant

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A package whose function does something else with each change.
const counter = `package counter

type Count struct{ n int }

const small, large = 1, 1000

func (c *Count) Add(by int, twice bool) (int, error) {
	if by < 0 && !twice {
		return 0, nil
	}
	c.n += by
	if twice {
		c.n += by
	}
	c.grow(by)
	return c.n, nil
}

func (c *Count) grow(by int) {
	switch {
	case by > int(step(small)):
		c.n *= 2
	}
}

func (c *Count) shrink(by int) { c.n = -by }

type step int
`

const counterTest = `package counter

import "testing"

func TestCount(t *testing.T) {
	c := &Count{}
	n, _ := c.Add(3, true)
	m, _ := c.Add(-1, false)
	k, _ := c.Add(2, false)
	if n != 12 || m != 0 || k != 28 {
		t.Fatal(n, m, k)
	}
}
`

// module writes the package, and returns its folder.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module counter\n\ngo 1.25\n", "counter.go": counter, "counter_test.go": counterTest} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Each of these changes is found by its line, makes the test fail, and has a name that
// finds it again.
func TestChangesTakeEffect(t *testing.T) {
	p, err := Read(module(t), ".")
	if err != nil {
		t.Fatal(err)
	}
	var changes []*Change
	for _, line := range []string{
		"Count.Add: skip n #1", "Count.Add: reverse n #2", "Count.Add: not twice", "Count.Add: or", "Count.Add: always by",
		"Count.Add: never twice", "Count.Add: zero c n", "Count.Add: more c n", "Count.Add: less c n", "Count.Add: twice grow",
		"Count.Add: grow=shrink", "Count.grow: small=large", "Count.grow: never", "Count.grow: skip",
	} {
		c, err := p.Find(line)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, c)
		if again, err := p.Find(p.Name(c)); !c.replaces() && !strings.Contains(c.Op, "=") && (err != nil || again.start != c.start || again.Op != c.Op) {
			t.Errorf("the name of %s is %s: %v", line, p.Name(c), err)
		}
	}
	binary, err := p.Compile(t.TempDir(), changes, "-race=false")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(changes) + 1 {
		c := exec.Command(binary)
		c.Env = append(os.Environ(), "PLANTED="+string(rune('0'+n/10))+string(rune('0'+n%10)))
		if out, err := c.CombinedOutput(); (err != nil) != (n > 0) {
			t.Errorf("with change %d of %d: %v\n%s", n, len(changes), err, out)
		}
	}
}

// A line that names no place, or several, is an error that says which there are.
func TestLinesThatNameNoChange(t *testing.T) {
	p, err := Read(module(t), ".")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"Count.Gone: skip":           "no function Count.Gone",
		"Count.Add: skip gone":       "has 0 such places; it has",
		"Count.Add: reverse":         "has 2 such places:\n\tCount.Add: reverse c n by (line 11)\n\tCount.Add: reverse c n by (line 13)",
		"Count.Add: reverse by #3":   "has 2 such places",
		"Count.Add: reverse by #x":   "want a number",
		"Count.Add":                  "want a function, a colon, an operation and names",
		"Count.grow: large=small":    "has 0 such places; it has\n\tCount.grow: small=small",
		"Count.shrink: shrink=grow":  "no function Count.shrink, or no such change",
		"Count.Add: unordered grow ": "has 0 such places",
	} {
		if _, err := p.Find(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Find(%q): %v, want an error with %q", line, err, want)
		}
	}
	if _, err := Read(t.TempDir(), "."); err == nil || !strings.Contains(err.Error(), "no Go files") {
		t.Errorf("Read of an empty folder: %v", err)
	}
}
