// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package remember

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const childEnv = "REMEMBER_TEST_CHILD"

func TestMain(m *testing.M) {
	if args, ok := os.LookupEnv(childEnv); ok {
		fmt.Fprintln(os.Stderr, child(strings.Fields(args)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// child makes random calls until it is killed, and says after each how many
// returned.
func child(args []string) error {
	seed, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return err
	}
	f := &File[string, int]{Path: args[0], NoSync: args[2] == "true", slack: 30}
	if err := f.Open(); err != nil {
		return err
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := 1; ; n++ {
		if err := randomCall(rnd).on(f); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// A process is repeatedly killed by SIGKILL during its calls on the same file. Every call
// that had returned is remembered.
func TestFileSurvivesKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	state := model{}
	for seed := range uint64(12) {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %t", childEnv, path, seed, seed%2 == 0))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		enough, returned := 20+rand.IntN(100), 0
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // it is dead; a line without its end does not count
			}
			if returned, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
				t.Fatal(err)
			}
			if returned == enough {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the process ended with %v, want killed", err)
		}

		calls := rand.New(rand.NewPCG(seed, 0))
		for range returned {
			state = state.after(randomCall(calls))
		}
		states := []model{state, state.after(randomCall(calls))} // which may not have returned
		f := &File[string, int]{Path: path}
		if err := f.Open(); err != nil {
			t.Fatal(err)
		}
		n := oneOf(f, states)
		if n < 0 {
			t.Fatalf("seed %d, killed after %d calls: remembered %v, want one of %v", seed, returned, holds(f), states)
		}
		state = states[n]
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
