// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package guarantees breaks the guarantees of the kernel, and sees the tests fail that
// are named for them.
package guarantees

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/reconkernel/reconcile" // what is tested, so that a change of it is tested anew
	"github.com/reconkernel/reconcile/verify/plant"
)

const root = "../.."

// A kernelBreak is a change of the kernel that breaks a guarantee.
type kernelBreak struct {
	guarantee string // the number of the guarantee, or what else has the test named
	half      string // of it
	test      string // that must fail, or Test/subtest
	flag      string // that go test needs for it: -race, or -tags=nightly
	change    string // as package plant names it
}

func (b kernelBreak) topTest() string {
	test, _, _ := strings.Cut(b.test, "/")
	return test
}

// readBreaks reads a file of breaks.
func readBreaks(t *testing.T, file string) (breaks []kernelBreak) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var of kernelBreak // what the lines above the break say
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.TrimSpace(line)
		head, rest, colon := strings.Cut(words, ": ")
		switch {
		case words == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t"):
			if of.test == "" {
				t.Fatalf("%s:%d: want a test above the change, got %q", file, n, words)
			}
			of.change = words
			breaks = append(breaks, of)
		case strings.HasPrefix(line, "= "):
			of = kernelBreak{guarantee: strings.TrimPrefix(head, "= ")}
		case !colon || of.guarantee == "":
			t.Fatalf("%s:%d: want half of a guarantee, and the test that shows it, got %q", file, n, words)
		default:
			of.half = head
			of.test, of.flag, _ = strings.Cut(rest, " ")
		}
	}
	return breaks
}

// The test that is named for a guarantee fails when the guarantee is broken, in each
// of its halves and in each way that breaks.txt has; and passes otherwise. The same
// holds for the conditions of a deletion in package keep, and for supervise and refs. With
// -short only the tests of the gate are run.
func TestEachBreakIsSeen(t *testing.T) {
	for file, dir := range map[string]string{"breaks.txt": ".", "breaks_keep.txt": "keep", "breaks_refs.txt": "refs", "breaks_supervise.txt": "supervise"} {
		t.Run(file, func(t *testing.T) { testBreaks(t, readBreaks(t, file), dir) })
	}
}

func testBreaks(t *testing.T, breaks []kernelBreak, dir string) {
	kernel, err := plant.Read(root, dir)
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]*plant.Change, len(breaks))
	for i, b := range breaks {
		if changes[i], err = kernel.Find(b.change); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	flags := []string{"", "-tags=nightly", "-race"}
	if testing.Short() {
		flags = flags[:1]
	}
	for _, flag := range flags {
		if !slices.ContainsFunc(breaks, func(b kernelBreak) bool { return b.flag == flag }) {
			continue
		}
		var numbers []int // of the breaks
		var planted []*plant.Change
		var tests []string
		for i, b := range breaks {
			if b.flag == flag {
				numbers, planted = append(numbers, i), append(planted, changes[i])
				if !slices.Contains(tests, b.test) {
					tests = append(tests, b.test)
				}
			}
		}
		binary, err := kernel.Compile(t.TempDir(), planted, cmp.Or(flag, "-race=false"))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := run(binary, 0, tests...); err != nil {
			t.Fatalf("without a break: %v\n%s", err, text)
		}
		t.Logf("%d breaks, for %d tests to see, %s", len(planted), len(tests), flag)
		for n, i := range numbers {
			b := breaks[i]
			t.Run(b.guarantee+"/"+b.change, func(t *testing.T) {
				t.Parallel()
				if text, err := run(binary, n+1, b.test); err == nil {
					t.Errorf("%s passes, though this is broken: %s.\n%v %s\n%s", b.test, b.half, changes[i].Pos, b.change, text)
				}
			})
		}
	}
}

// Every guarantee has breaks, and so has every test that docs/verification.md names
// for one.
func TestEveryGuaranteeIsBroken(t *testing.T) {
	broken, seenBy := map[string]bool{}, map[string]bool{}
	for _, b := range readAllBreaks(t) {
		broken[b.guarantee], seenBy[b.topTest()] = true, true
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "verification.md"))
	if err != nil {
		t.Fatal(err)
	}
	guarantees := regexp.MustCompile(`(?m)^\| (\d+) \| .* \| (`+"`"+`Test.*) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(guarantees) == 0 {
		t.Fatal("docs/verification.md has no guarantees")
	}
	for _, p := range guarantees {
		if !broken[p[1]] {
			t.Errorf("no break of guarantee %s", p[1])
		}
		for _, test := range regexp.MustCompile(`\bTest\w+`).FindAllString(p[2], -1) {
			if !seenBy[test] {
				t.Errorf("guarantee %s names %s, which breaks.txt has not", p[1], test)
			}
		}
	}
	tests := kernelTests(t)
	for test := range seenBy {
		if !strings.Contains(tests, "\nfunc "+test+"(t *testing.T) {") {
			t.Errorf("breaks.txt has %s, which there is none of", test)
		}
	}
}

// Every row of the tables of the five systems that a test of the kernel shows has a
// break that a test of the row sees. A row has the capabilities of one system or more.
func TestEveryRowIsBroken(t *testing.T) {
	breaks := readAllBreaks(t)
	seenBy := map[string]bool{}
	for _, b := range breaks {
		seenBy[b.topTest()] = true
	}
	text, err := os.ReadFile(filepath.Join(root, "verify", "guarantees", "features.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := kernelTests(t)
	shown := map[string][]string{} // by row, the tests of the kernel
	for _, row := range regexp.MustCompile(`(?m)^\| ((?:[A-Z]{2}\d\d ?)+)\|.* \|([^|]*)\|$`).FindAllStringSubmatch(string(text), -1) {
		for _, test := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[2], -1) {
			if strings.Contains(tests, "\nfunc "+test[1]+"(t *testing.T) {") {
				for _, id := range strings.Fields(row[1]) {
					shown[id] = append(shown[id], test[1])
				}
			}
		}
	}
	if len(shown) < 100 {
		t.Errorf("%d rows are shown by tests of the kernel", len(shown))
	}
	for id, tests := range shown {
		for _, test := range tests {
			if !seenBy[test] {
				t.Errorf("row %s names %s, which no break is for", id, test)
			}
		}
	}
	row := regexp.MustCompile(`^[A-Z]{2}\d\d$`)
	for _, b := range breaks {
		if row.MatchString(b.guarantee) && !slices.Contains(shown[b.guarantee], b.topTest()) {
			t.Errorf("breaks.txt breaks %s for %s, which that row does not name", b.guarantee, b.test)
		}
	}
}

// readAllBreaks returns the breaks of the guarantees and of the rows.
func readAllBreaks(t *testing.T) []kernelBreak {
	return slices.Concat(readBreaks(t, "breaks.txt"), readBreaks(t, "breaks_refs.txt"), readBreaks(t, "breaks_supervise.txt"))
}

// kernelTests returns the text of the tests of the kernel, and of what was a part of it.
func kernelTests(t *testing.T) string {
	t.Helper()
	var sources []string
	for _, dir := range []string{".", "refs", "supervise"} {
		found, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, found...)
	}
	var tests strings.Builder
	for _, name := range sources {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	return tests.String()
}

// run runs tests with one break, or with none if that is 0.
func run(binary string, number int, tests ...string) ([]byte, error) {
	var names []string
	for _, test := range tests {
		names = append(names, "^"+strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^")+"$")
	}
	timeout := "10s" // what hangs has failed
	if number == 0 {
		timeout = "5m"
	}
	c := exec.Command(binary, "-test.timeout="+timeout, "-test.failfast", "-test.run", strings.Join(names, "|"))
	c.Dir = filepath.Dir(binary)
	c.Env = append(os.Environ(), "PLANTED="+strconv.Itoa(number))
	return c.CombinedOutput()
}
