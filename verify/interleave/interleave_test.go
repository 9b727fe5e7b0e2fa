// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !instrumented

package interleave

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInterleavings builds the instrumented queue with the tests that have the
// build tag, and runs them, in two processes at a time. With -short it leaves
// most of the schedules out.
func TestInterleavings(t *testing.T) {
	dir := t.TempDir()
	overlay, rewritten, err := Overlay(dir, filepath.Join("..", ".."), "faulty")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("instrumented: %v", rewritten)
	if len(rewritten) < 2 || !slices.Contains(rewritten, "faulty.go") {
		t.Errorf("only %v was rewritten: are the lock and the channels of the queue elsewhere now?", rewritten)
	}
	binary := filepath.Join(dir, "interleave.test")
	build := exec.Command("go", "test", "-c", "-tags", "instrumented", "-overlay", overlay, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	parts := map[string]string{
		"chosen":    "^(TestPrograms|TestLargerPrograms|TestFaultsAreFound|TestNothingIsLeftOut)$",
		"generated": "^(TestAllPairs|TestWithAConsumer|TestWithACancellation|TestAsTimePasses)$",
	}
	if testing.Short() {
		parts = map[string]string{"short": "^(TestPrograms|TestFaultsAreFound|TestNothingIsLeftOut)$"}
	}
	for name, tests := range parts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := exec.Command(binary, "-test.v=true", "-test.run", tests)
			run.Env = append(os.Environ(), "GOMAXPROCS=1") // one step at a time needs no more
			out, err := run.CombinedOutput()
			t.Logf("\n%s", out)
			if err != nil {
				t.Errorf("%v: %v", run, err)
			}
		})
	}
}

// What the rewriter makes of each kind of channel operation.
func TestRewrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.go")
	if err := os.WriteFile(file, []byte(`package x

import "sync"

type Queue struct {
	mu sync.Mutex
	c  chan int
	d  chan int
}

func (q *Queue) all(ctx context.Context, done chan int) (v int) {
	q.d <- 1
	v = <-q.c
	if v > 0 && ctx.Err() == nil {
		<-done
	}
	select {
	case v = <-q.c:
		v++
	case <-done:
	}
	select {
	case q.c <- 2:
	default:
	}
	select {
	case <-done:
	default:
	}
	close(done)
	return v
}
`), 0o666); err != nil {
		t.Fatal(err)
	}
	text, err := Rewrite(file)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{
		`sync "github.com/reconkernel/reconcile/verify/interleave/sched"`,
		`sched.Touch(q.d) sched.Point("send") q.d <- 1`,
		`sched.Receives(q.c, true) sched.Receive() v = <-q.c sched.Woken()`,
		`sched.Look("context") if v > 0 && ctx.Err() == nil { sched.Receives(done, false) sched.Receive() <-done sched.Woken() }`,
		`sched.Receives(q.c, true) sched.Receives(done, false) switch sched.Choose(2, "select") { case 0: select { case v = <-q.c: sched.Woken() v++ default: select {`,
		`default: select { case <-done: sched.Woken() default: select {`,
		`sched.Offer(q.c) select { case q.c <- 2: default: }`,
		`sched.LookAt(done) select { case <-done: default: }`,
		`sched.Touch(done) close(done)`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the rewritten file lacks %s\n%s", want, text)
		}
	}
}
