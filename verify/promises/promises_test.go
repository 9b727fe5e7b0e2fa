// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package promises breaks the promises of the kernel, and sees the tests fail that
// are named for them.
package promises

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/reconkernel/reconcile" // what is tested, so that a change of it is tested anew
)

const root = "../.."

// The test that is named for a promise fails when the promise is broken, in each
// of its halves and in each way that breaks.txt has; and passes otherwise.
func TestEachBreakIsSeen(t *testing.T) {
	breaks, err := readBreaks("breaks.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readBreaks("rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	breaks = append(breaks, rows...)
	binaries, tests := map[bool]string{}, map[bool][]string{}
	for _, race := range []bool{false, true} {
		if race && testing.Short() {
			continue
		}
		for _, b := range breaks {
			if b.race == race && !slices.Contains(tests[race], b.test) {
				tests[race] = append(tests[race], b.test)
			}
		}
		files, err := plant(root, breaks, race)
		if err != nil {
			t.Fatal(err)
		}
		binaries[race] = compile(t, files, race)
		if text, err := run(binaries[race], 0, tests[race]...); err != nil {
			t.Fatalf("without a break: %v\n%s", err, text)
		}
	}
	t.Logf("%d breaks, for %d tests to see; %d more tests under the race detector", len(breaks), len(tests[false]), len(tests[true]))
	for i, b := range breaks {
		if binaries[b.race] == "" {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d %s", b.promise, i+1, b.topTest()), func(t *testing.T) {
			t.Parallel()
			if text, err := run(binaries[b.race], i+1, b.test); err == nil {
				t.Errorf("%s passes, though this is broken: %s.\n%s %s: %s\n%s", b.test, b.half, b.file, b.fn, b.what, text)
			}
		})
	}
}

// Every promise has breaks, and so has every test that docs/verification.md names
// for one.
func TestEveryPromiseIsBroken(t *testing.T) {
	breaks, err := readBreaks("breaks.txt")
	if err != nil {
		t.Fatal(err)
	}
	broken, seenBy := map[string]bool{}, map[string]bool{}
	for _, b := range breaks {
		broken[b.promise], seenBy[b.topTest()] = true, true
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "verification.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := regexp.MustCompile(`(?m)^\| (\d+) \| .* \| (`+"`"+`Test.*) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(promises) == 0 {
		t.Fatal("docs/verification.md has no promises")
	}
	for _, p := range promises {
		if !broken[p[1]] {
			t.Errorf("no break of promise %s", p[1])
		}
		for _, test := range regexp.MustCompile(`\bTest\w+`).FindAllString(p[2], -1) {
			if !seenBy[test] {
				t.Errorf("promise %s names %s, which breaks.txt has not", p[1], test)
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

// Every row of the table of the five systems that a test of the kernel shows has a
// break that a test of the row sees.
func TestEveryRowIsBroken(t *testing.T) {
	breaks, err := readBreaks("breaks.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readBreaks("rows.txt")
	if err != nil {
		t.Fatal(err)
	}
	seenBy := map[string]bool{}
	for _, b := range append(breaks, rows...) {
		seenBy[b.topTest()] = true
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "design", "from-the-seeds.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := kernelTests(t)
	shown := map[string][]string{} // by row, the tests of the kernel
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]{2}\d\d) \|.* \|([^|]*)\|$`).FindAllStringSubmatch(string(text), -1) {
		for _, test := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[2], -1) {
			if strings.Contains(tests, "\nfunc "+test[1]+"(t *testing.T) {") {
				shown[row[1]] = append(shown[row[1]], test[1])
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
	for _, b := range rows {
		if !slices.Contains(shown[b.promise], b.test) {
			t.Errorf("rows.txt breaks %s for %s, which that row does not name", b.promise, b.test)
		}
	}
}

// kernelTests returns the text of the kernel's tests.
func kernelTests(t *testing.T) string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	if err != nil {
		t.Fatal(err)
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

// A break of what is not in the source any more is an error that says so.
func TestBreakOfWhatIsGone(t *testing.T) {
	for want, b := range map[string]kernelBreak{
		"no such file":                     {file: "gone.go", fn: "Queue.Done"},
		"has no function Queue.Gone":       {file: "queue.go", fn: "Queue.Gone"},
		"has 0 times what is":              {file: "queue.go", fn: "Queue.Done", hunks: []hunk{{old: []string{"q.gone()"}}}},
		"has 4 times what is":              {file: "queue.go", fn: "Queue.exchange", hunks: []hunk{{old: []string{"}"}}}},
		"nothing is replaced: what it was": {file: "queue.go", fn: "Queue.Done", what: "what it was"},
	} {
		if _, err := plant(root, []*kernelBreak{&b}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("plant of %+v: %v, want an error with %q", b, err, want)
		}
	}
}

// compile builds the tests of the kernel with the files laid over the real ones.
func compile(t *testing.T, files map[string][]byte, race bool) (binary string) {
	t.Helper()
	scratch := t.TempDir()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(scratch, name)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(abs, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(scratch, "kernel.test")
	c := exec.Command("go", "test", "-c", fmt.Sprintf("-race=%t", race), "-vet=off", "-overlay", overlay, "-o", binary, ".")
	c.Dir = root
	if race {
		c.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, text)
	}
	return binary
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
	c.Env = append(os.Environ(), "BROKEN="+strconv.Itoa(number))
	return c.CombinedOutput()
}
