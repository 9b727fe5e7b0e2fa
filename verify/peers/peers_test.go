// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	// What is tested, so that a change of it is tested anew.
	_ "github.com/reconkernel/reconcile/verify/peers/priorityqueue"
	_ "github.com/reconkernel/reconcile/verify/peers/workqueue"
)

// A suite is the tests of a peer's package. They are not copied into this
// repository: the module proxy has them.
type suite struct {
	module, dir string
	cut         []string    // helpers that our package has
	rewrites    [][2]string // of the text, by regular expressions for parts of lines
	wants       map[string]want
}

var suites = map[string]suite{
	"workqueue": {
		module: "k8s.io/client-go", dir: "util/workqueue",
		rewrites: [][2]string{
			{`"k8s.io/client-go/util/workqueue"`, `"github.com/reconkernel/reconcile/verify/peers/workqueue"`},
			{`testingclock\.NewFakeClock\(`, `newBubbleClock(`},
		},
	},
	"priorityqueue": {
		module: "sigs.k8s.io/controller-runtime", dir: "pkg/controller/priorityqueue",
		cut: []string{"newQueue", "newQueueWithTimeForwarder", "btreeInteractionValidator", "newItemFiller"},
		rewrites: [][2]string{
			{`^\t\. "github.com/onsi/ginkgo/v2"\n`, ``},
			{`^\s*t\.Parallel\(\)\n`, ``},                                                   // not in a bubble
			{`^(\s*q, metrics(?:, forwardQueueTimeBy)? := newQueue.*)$`, "$1\n_ = metrics"}, // it may be used no more
			{`^\s*(?:g\.)?Expect\(metrics\.depth.*\n`, ``},                                  // by priority
			{`^\s*g\.Expect\(tickSetup\).*\n`, ``},                                          // of a timer that the test makes
			{`metrics\.(adds|retries)\["test"\]`, `metrics.$1("test")`},
		},
	},
}

// A verdict says what a test of a peer does on our queue.
type verdict string

const (
	passes verdict = "passes"
	fails  verdict = "fails" // by design
	out    verdict = "out"   // cannot be run
)

type want struct {
	verdict verdict
	reason  string // unless it passes
}

// The peers' tests do on our queue what the tables say, one for one.
func TestPeers(t *testing.T) {
	for name, s := range suites {
		t.Run(name, func(t *testing.T) {
			var err error
			if s.wants, err = readWants(filepath.Join(name, "tests.txt")); err != nil {
				t.Fatal(err)
			}
			files := s.fetch(t)
			scratch := t.TempDir()
			overlay := map[string]string{}
			unknown := maps.Clone(s.wants)
			for base, f := range files {
				runs := 0
				for _, test := range f.tests {
					if _, ok := s.wants[test]; !ok {
						t.Errorf("%s: tests.txt has not %s of %s", name, test, base)
					}
					if s.wants[test].verdict != out {
						runs++
					}
					delete(unknown, test)
				}
				if runs == 0 {
					continue
				}
				text, err := f.adapted(s)
				if err != nil {
					t.Fatalf("%s: %v", base, err)
				}
				path := filepath.Join(scratch, base)
				if err := os.WriteFile(path, text, 0o666); err != nil {
					t.Fatal(err)
				}
				abs, err := filepath.Abs(filepath.Join(name, base))
				if err != nil {
					t.Fatal(err)
				}
				overlay[abs] = path
			}
			for test := range unknown {
				t.Errorf("%s: tests.txt has %s, which the peer has not", name, test)
			}
			if !t.Failed() {
				s.run(t, compile(t, name, scratch, overlay))
			}
		})
	}
}

// fetch returns the files of tests.
func (s suite) fetch(t *testing.T) map[string]*testFile {
	c := exec.Command("go", "mod", "download", "-json", s.module)
	text, err := c.Output()
	var m struct{ Dir, Version string }
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", c, err, text)
	}
	bench, err := os.ReadFile("../../bench/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if pin := s.module + " " + m.Version; !strings.Contains(string(bench), pin+"\n") {
		t.Errorf("bench/go.mod requires another version than %s", pin)
	}
	names, err := filepath.Glob(filepath.Join(m.Dir, s.dir, "*_test.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tests in %s of %s: %v", s.dir, m.Dir, err)
	}
	files := map[string]*testFile{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if files[filepath.Base(name)], err = parse(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return files
}

// compile builds the tests of our package of that name, with the files that the
// overlay adds.
func compile(t *testing.T, name, scratch string, files map[string]string) (binary string) {
	text, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(scratch, name+".test")
	c := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+name)
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, text)
	}
	return binary
}

var passed = regexp.MustCompile(`(?m)^\s*--- PASS: (\S+)`)

// run runs those tests that pass in one process, and each of the others in one of
// its own, since one that hangs takes its process with it.
func (s suite) run(t *testing.T, binary string) {
	count := map[verdict]int{}
	var good []string
	for test, want := range s.wants {
		count[want.verdict]++
		switch want.verdict {
		case passes:
			good = append(good, test)
		case fails:
			text, err := runTests(binary, test)
			if did := didPass(text, test); did == (err != nil) {
				t.Errorf("%s: %v, and cannot tell whether it passed\n%s", test, err, begin(text))
			} else if did {
				t.Errorf("%s passes, and tests.txt says that it does not: %s", test, want.reason)
			}
		}
	}
	text, err := runTests(binary, good...)
	for _, test := range good {
		if !didPass(text, test) {
			t.Errorf("%s does not pass", test)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, begin(text))
	}
	t.Logf("%s/%s: %d tests pass, %d fail by design, %d are left out", s.module, s.dir, count[passes], count[fails], count[out])
}

func didPass(text []byte, test string) bool {
	return slices.ContainsFunc(passed.FindAllSubmatch(text, -1), func(m [][]byte) bool { return string(m[1]) == test })
}

// begin leaves out most of the stacks of a test that hangs.
func begin(text []byte) []byte { return text[:min(len(text), 5000)] }

func runTests(binary string, tests ...string) ([]byte, error) {
	var names []string
	for _, test := range tests {
		names = append(names, "^"+strings.ReplaceAll(regexp.QuoteMeta(test), "/", "$/^")+"$")
	}
	return exec.Command(binary, "-test.v", "-test.timeout=2m", "-test.run", strings.Join(names, "|")).CombinedOutput()
}

// readWants reads a table: in each line that is not indented a verdict and a
// test, and in the indented ones below it the reason, which is that of the lines
// just above as well.
func readWants(name string) (map[string]want, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	wants := map[string]want{}
	var tests []string // that the next reason is for
	reading := false
	for line := range strings.Lines(string(text)) {
		switch words := strings.Fields(line); {
		case len(words) == 0, strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, "\t"):
			if len(words) != 2 || !slices.Contains([]verdict{passes, fails, out}, verdict(words[0])) {
				return nil, fmt.Errorf("%s: want a verdict and a test, got %q", name, line)
			}
			if reading {
				tests, reading = nil, false
			}
			if _, ok := wants[words[1]]; ok {
				return nil, fmt.Errorf("%s: %s is there twice", name, words[1])
			}
			wants[words[1]] = want{verdict: verdict(words[0])}
			if words[0] != string(passes) {
				tests = append(tests, words[1])
			}
		default:
			reading = true
			for _, test := range tests {
				w := wants[test]
				w.reason = strings.TrimSpace(w.reason + " " + strings.Join(words, " "))
				wants[test] = w
			}
		}
	}
	for test, w := range wants {
		if (w.verdict == passes) != (w.reason == "") {
			err = errors.Join(err, fmt.Errorf("%s: a reason is for what does not pass: %s", name, test))
		}
	}
	return wants, err
}
