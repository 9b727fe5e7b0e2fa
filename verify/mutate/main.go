// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Mutate changes a package, the kernel if no other is named, in one small way after
// the other, and runs its tests for each: a change that no test fails for is a
// survivor. It fails if there is one that accepted.txt does not explain.
//
//	go run ./mutate                     everything
//	go run ./mutate -file queue.go      one file
//	go run ./mutate -dir keep           another package
//	go run ./mutate -sample 5%          some, at random
//	go run ./mutate -list               what there is, without any test
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile/verify/plant"
)

var (
	root     = flag.String("root", "..", "the module")
	dir      = flag.String("dir", ".", "the package: its folder below root")
	file     = flag.String("file", "", "only mutants in files whose name contains this")
	from     = flag.Int("from", 1, "only mutants from this number on")
	list     = flag.Bool("list", false, "only list the mutants")
	names    = flag.String("names", "", "only mutants that this file names, as -list does, one in a line")
	sample   = flag.String("sample", "100%", "only so many of these, chosen at random")
	seed     = flag.Uint64("seed", 0, "of the sample; 0 draws one")
	jobs     = flag.Int("jobs", 1, "how many at a time")
	limit    = flag.Duration("limit", time.Minute, "how much of the processor the tests of one mutant may take, at each of three steps")
	accepted = flag.String("accepted", "mutate/accepted.txt", "the survivors that have a reason")
	verbose  = flag.Bool("v", false, "say what killed each mutant")
)

// Most mutants die of the quick tests. These are the others.
const slow = "^(TestQueueAgreesWithItsModel|TestMemory.*|TestStore.*|TestExplore|TestBadDays.*|TestOffers)$"

// first are the tests that most mutants of a type's methods, or of a function, die of,
// and at once. Others may hang before they fail.
var first = map[string]string{
	"ListMap": "^TestListMap",
	"Poller":  "^Test(Poller|Trigger)",
	"Queue":   ofQueue, "store": ofQueue, "part": ofQueue, "delays": ofQueue, "delay": ofQueue, "entry": ofQueue,
	"RetryPolicy": "^Test(Backoff|Limit)", "Backoff": "^Test(Backoff|Limit)", "answer": "^TestOutcomeOfEachError$",
}

const ofQueue = "^(TestQueueTable.*|TestQueueAgreesWithItsModel|TestStoreAgreesWithAMap)$"

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal("mutate: ", err)
	}
}

func run() error {
	pkg, mutants, err := read(*root, *dir)
	if err != nil {
		return err
	}
	if *list {
		for i, m := range mutants {
			fmt.Printf("%4d %v\n", i+1, m)
		}
		return nil
	}
	reasons, err := readAccepted(*accepted)
	if err != nil {
		return err
	}
	chosen, err := choose(mutants)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	planted := make([]*plant.Change, len(chosen))
	for n, i := range chosen {
		planted[n] = mutants[i].Change
	}
	binary, err := pkg.Compile(scratch, planted, "-tags=nightly")
	if err != nil {
		return err
	}
	data := filepath.Join(*root, *dir, "testdata")
	if _, err := os.Stat(data); err == nil {
		if err := os.CopyFS(filepath.Join(filepath.Dir(binary), "testdata"), os.DirFS(data)); err != nil {
			return err
		}
	}
	begin := time.Now()
	if out, err := test(binary, 0, "", *limit/2); err != nil { // else the limit would kill all mutants
		return fmt.Errorf("the tests fail without a mutant, or take more than half of the limit: %v\n%s", err, out)
	}
	fmt.Printf("%d of %d mutants; the tests take %v without one\n", len(chosen), len(mutants), time.Since(begin).Round(100*time.Millisecond))

	var (
		mu                         sync.Mutex
		tried, killed, unexplained int
		late                       int
		known                      = map[string]bool{}
		free                       = make(chan struct{}, *jobs)
		running                    sync.WaitGroup
	)
	for n, i := range chosen {
		m := mutants[i]
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			out, err := test(binary, n+1, first[typeOf(m.Func)], *limit)
			mu.Lock()
			defer mu.Unlock()
			tried++
			reason, ok := reasons[m.name]
			switch {
			case err != nil:
				killed++
				if errors.Is(err, errLate) {
					late++
				}
				if *verbose {
					fmt.Printf("killed   %v by %s\n", m, killer(out, err))
				}
			case ok:
				known[m.name] = true
				fmt.Printf("accepted %v: %s\n", m, reason)
			default:
				unexplained++
				fmt.Printf("SURVIVED %d %v\n", i+1, m)
			}
		})
	}
	running.Wait()
	fmt.Printf("%d mutants tried in %v: %d killed, %d of them by the time limit; %d survived that have a reason, %d that have none\n",
		tried, time.Since(begin).Round(time.Second), killed, late, tried-killed-unexplained, unexplained)
	if len(chosen) == len(mutants) {
		for name := range reasons {
			if dirOf(name) == path.Clean(*dir) && !known[name] {
				fmt.Printf("not needed in %s any more: %s\n", *accepted, name)
			}
		}
	}
	if unexplained > 0 {
		return errors.New("there are survivors without a reason")
	}
	return nil
}

// A mutant is a change that is tried. Its name is that of the change, below the folder
// of its package.
type mutant struct {
	*plant.Change
	name string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d %s", filepath.Base(m.Pos.Filename), m.Pos.Line, m.name)
}

// read returns the mutants of a package.
func read(root, dir string) (pkg *plant.Package, mutants []mutant, err error) {
	if pkg, err = plant.Read(root, dir); err != nil {
		return nil, nil, err
	}
	for _, c := range pkg.Changes {
		if c.Swept() {
			mutants = append(mutants, mutant{c, path.Join(dir, pkg.Name(c))})
		}
	}
	return pkg, mutants, nil
}

// typeOf is the type of a method, or the function.
func typeOf(fn string) string {
	t, _, _ := strings.Cut(fn, ".")
	return t
}

// choose returns the indices of those that the flags name.
func choose(mutants []mutant) (chosen []int, err error) {
	named := func(string) bool { return true }
	if *names != "" {
		text, err := os.ReadFile(*names)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		named = func(name string) bool { return slices.Contains(lines, name) }
	}
	for i, m := range mutants {
		if strings.Contains(filepath.Base(m.Pos.Filename), *file) && i+1 >= *from && named(m.name) {
			chosen = append(chosen, i)
		}
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(*sample, "%"), 64)
	if err != nil || !(percent > 0 && percent <= 100) {
		return nil, fmt.Errorf("-sample is %q, want more than 0%% and no more than 100%%", *sample)
	}
	if percent == 100 {
		return chosen, nil
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	fmt.Printf("a sample of %v%%, drawn with -seed %d\n", percent, *seed)
	r := rand.New(rand.NewPCG(*seed, 0))
	r.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:int(math.Ceil(float64(len(chosen))*percent/100))]
	slices.Sort(chosen)
	return chosen, nil
}

// dirOf is the folder of the package of the mutant that has this name.
func dirOf(name string) string {
	fn, _, _ := strings.Cut(name, ":")
	return path.Dir(fn)
}

// test runs the tests with one mutant alive: those that come first, then the
// other quick ones, then the rest.
func test(binary string, n int, first string, limit time.Duration) (out []byte, err error) {
	for _, args := range [][]string{
		{"-test.run", cmp.Or(first, "^$")},
		{"-test.skip", slow},
		{"-test.run", slow},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		c := exec.CommandContext(ctx, binary, append(args, "-test.failfast", "-test.short", "-test.timeout=3m")...)
		c.Dir = filepath.Dir(binary) // a mutant may write where it is not to
		c.Env = append(os.Environ(), fmt.Sprintf("PLANTED=%d", n))
		c.WaitDelay = time.Second
		var b bytes.Buffer
		c.Stdout, c.Stderr = &b, &b
		if err = c.Start(); err == nil {
			go watch(ctx, cancel, c.Process.Pid, limit)
			err = c.Wait()
		}
		out = b.Bytes()
		if err != nil && ctx.Err() != nil {
			err = errLate
		}
		cancel()
		if err != nil {
			return out, err
		}
	}
	return nil, nil
}

// killer is the test that failed.
func killer(out []byte, err error) string {
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return strings.Fields(name)[0]
		}
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
	}
	return err.Error()
}

// readAccepted reads the reasons: in each line that is not indented the name of
// a mutant, and in the indented ones below it why it changes nothing.
func readAccepted(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	reasons := map[string]string{}
	var names []string // that the next reason is for
	lines := bufio.NewScanner(f)
	reading := false
	for lines.Scan() {
		line := lines.Text()
		switch text := strings.TrimSpace(line); {
		case text == "" || strings.HasPrefix(text, "#"):
		case line == text:
			if reading {
				names, reading = nil, false
			}
			names = append(names, text)
		default:
			reading = true
			for _, name := range names {
				reasons[name] = strings.TrimSpace(reasons[name] + " " + text)
			}
		}
	}
	return reasons, lines.Err()
}
