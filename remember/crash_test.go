// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const path = "m"

// A call is one of the three of a File.
type call struct {
	verb    string
	item    string
	version int
}

func randomCall(rnd *rand.Rand) call {
	return call{[]string{begin, done, done, forget}[rnd.IntN(4)], fmt.Sprint("item", rnd.IntN(6)), 1 + rnd.IntN(5)}
}

func (c call) on(f *File[string, int]) error {
	switch c.verb {
	case begin:
		return f.Begin(c.item)
	case done:
		return f.Done(c.item, c.version)
	default:
		return f.Forget(c.item)
	}
}

// A model is what is to be remembered: 0 for what has begun.
type model map[string]int

func (m model) after(c call) model {
	m = maps.Clone(m)
	switch c.verb {
	case begin:
		m[c.item] = 0
	case done:
		m[c.item] = c.version
	default:
		delete(m, c.item)
	}
	return m
}

func holds(f *File[string, int]) model { return maps.Collect(f.All()) }

// oneOf reports which of the states a File is in, or -1.
func oneOf(f *File[string, int], states []model) int {
	return slices.IndexFunc(states, func(m model) bool { return maps.Equal(m, holds(f)) })
}

func openOn(t *testing.T, d *testDisk) *File[string, int] {
	t.Helper()
	f := &File[string, int]{Path: path, disk: d, slack: 6}
	if err := f.Open(); err != nil {
		t.Fatalf("Open: %v", err)
	}
	return f
}

// In each step on the disk, one after the other, the process is killed, or the power
// fails in the step or later. Afterwards the file can be opened and used. A kill loses no
// call that had returned, and a power failure loses no Begin.
func TestFileSurvivesACrashInEachStep(t *testing.T) {
	const kill, power, killThenPower = 0, 1, 2
	for seed := range uint64(6) {
		for crash := range 3 {
			for at := 1; ; at++ {
				d := newTestDisk(rand.New(rand.NewPCG(seed, uint64(at))))
				d.killAt = at
				calls := rand.New(rand.NewPCG(seed, 0))
				states := []model{{}}
				oldest, returned := 0, 0
				f := &File[string, int]{Path: path, disk: d, slack: 6}
				err := f.Open()
				for i := 0; err == nil && i < 60; i++ {
					c, before := randomCall(calls), states[len(states)-1]
					states = append(states, before.after(c))
					if err = c.on(f); err == nil {
						returned = len(states) - 1
						if old, known := before[c.item]; c.verb == begin && (!known || old > 0) {
							oldest = returned
						}
					}
				}
				if err == nil {
					if at < 60 {
						t.Errorf("only %d steps were made on the disk", at)
					}
					break
				}
				if !errors.Is(err, errKilled) {
					t.Fatalf("seed %d, crash in step %d: %v", seed, at, err)
				}
				next := d.afterKill()
				if crash == power {
					next = d.afterPowerLoss()
				} else {
					oldest = returned
				}
				f = openOn(t, next)
				i := oneOf(f, states[oldest:])
				if i < 0 {
					t.Fatalf("seed %d, crash %d in step %d: remembered %v, want one of %v", seed, crash, at, holds(f), states[oldest:])
				}
				err = f.Begin("after")
				if crash == killThenPower {
					f = openOn(t, next.afterPowerLoss())
				}
				if want := states[oldest+i].after(call{begin, "after", 0}); err != nil || !maps.Equal(holds(f), want) {
					t.Fatalf("seed %d, crash %d in step %d: after Begin = %v: remembered %v, want %v", seed, crash, at, err, holds(f), want)
				}
			}
		}
	}
}

// Each step on the disk fails once, and the process continues. The next process finds
// everything that this one says is remembered and, after a power failure, every Begin.
func TestFileAfterAFailureInEachStep(t *testing.T) {
	old := aLog(t, func(*File[string, int]) error { return nil })
	states, _ := statesOf(t, old)
	for seed := range uint64(6) {
		for fail := 1; ; fail++ {
			d := newTestDisk(rand.New(rand.NewPCG(seed, uint64(fail))))
			want := model{}
			if seed%2 == 0 { // Open has to cut something off
				want = states[len(states)-1]
				d = diskWith(slices.Concat(old, []byte("torn")))
			}
			d.failAt = fail
			calls := rand.New(rand.NewPCG(seed, 0))
			f := &File[string, int]{Path: path, disk: d, slack: 6}
			if err := f.Open(); err != nil {
				if !errors.Is(err, errFull) || d.opened != 0 || len(holds(f)) > 0 {
					t.Fatalf("seed %d, fail at %d: Open = %v, %d files are open, remembered %v", seed, fail, err, d.opened, holds(f))
				}
				if err := f.Open(); err != nil {
					t.Fatalf("seed %d, fail at %d: second Open = %v", seed, fail, err)
				}
			}
			for range 60 {
				c := randomCall(calls)
				err := c.on(f)
				if err == nil || maps.Equal(want.after(c), holds(f)) { // an error leaves it open
					want = want.after(c)
				}
				if !maps.Equal(holds(f), want) {
					t.Fatalf("seed %d, fail at %d: after %v = %v: %v, want %v", seed, fail, c, err, holds(f), want)
				}
				if d.files[path+".new"] != nil {
					t.Fatalf("seed %d, fail at %d: a new file that failed takes space", seed, fail)
				}
			}
			err := f.Begin("last")
			if last := want.after(call{begin, "last", 0}); maps.Equal(holds(f), last) {
				want = last
			}
			if err == nil {
				if g := openOn(t, d.afterPowerLoss()); !maps.Equal(holds(g), want) {
					t.Fatalf("seed %d, fail at %d: after a loss of power: %v, want %v", seed, fail, holds(g), want)
				}
			}
			over := d.steps < fail
			f.Close()
			if d.opened != 0 {
				t.Fatalf("seed %d, fail at %d: %d files are still open", seed, fail, d.opened)
			}
			d.failAt = 0
			if f = openOn(t, d); !maps.Equal(holds(f), want) {
				t.Fatalf("seed %d, fail at %d: the next process remembers %v, want %v", seed, fail, holds(f), want)
			}
			if over {
				break
			}
		}
	}
}

// aLog returns the file of a process that was killed after 30 calls, and a last one.
func aLog(t *testing.T, last func(*File[string, int]) error) []byte {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	d := newTestDisk(rnd)
	f := &File[string, int]{Path: path, disk: d}
	err := f.Open()
	for range 30 {
		err = errors.Join(err, randomCall(rnd).on(f))
	}
	if err = errors.Join(err, last(f)); err != nil {
		t.Fatal(err)
	}
	return d.files[path].data
}

// statesOf returns what is remembered after each record of a log, and where each ends;
// the first is that of no record.
func statesOf(t *testing.T, data []byte) (states []model, ends []int) {
	t.Helper()
	states, ends = []model{{}}, []int{len(magic)}
	if _, _, err := scan(string(data), func(r record) error {
		state := maps.Clone(states[len(states)-1])
		switch item := strings.Trim(r.item, `"`); r.verb {
		case begin:
			state[item] = 0
		case done:
			state[item], _ = strconv.Atoi(r.version)
		case forget:
			delete(state, item)
		}
		states, ends = append(states, state), append(ends, ends[len(ends)-1]+len(r.append(nil)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return states, ends
}

func diskWith(data []byte) *testDisk {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	d.files[path] = &content{data: data, safe: data}
	d.safe[path] = d.files[path]
	return d
}

// The file is truncated at each byte. The remembered state is that after the last whole
// call.
func TestFileTruncatedAtEachByte(t *testing.T) {
	data := aLog(t, func(*File[string, int]) error { return nil })
	states, ends := statesOf(t, data)
	for n := len(magic); n <= len(data); n++ {
		whole, _ := slices.BinarySearch(ends, n+1)
		want := states[whole-1]
		d := diskWith(data[:n])
		f := openOn(t, d)
		if !maps.Equal(holds(f), want) {
			t.Fatalf("cut off at %d of %d: %v, want %v", n, len(data), holds(f), want)
		}
		if err := errors.Join(f.Done("after", 7), f.Close()); err != nil {
			t.Fatal(err)
		}
		if f = openOn(t, d); !maps.Equal(holds(f), want.after(call{done, "after", 7})) {
			t.Fatalf("cut off at %d, and written to: %v", n, holds(f))
		}
	}
}

// Each bit of the file is flipped. That is an error if a later record says that the disk
// had the earlier ones. Otherwise a power failure may have caused it, and the state
// before the damage is remembered. No other state is ever remembered.
func TestFileWithEachBitFlipped(t *testing.T) {
	for name, last := range map[string]func(*File[string, int]) error{
		"killed":         func(*File[string, int]) error { return nil },
		"Close":          (*File[string, int]).Close,
		"NoSync":         func(f *File[string, int]) error { f.NoSync = true; return errors.Join(f.Done("a", 1), f.Close()) },
		"Open":           func(f *File[string, int]) error { return errors.Join(f.lock.Close(), f.Open()) },
		"Begin and Done": func(f *File[string, int]) error { return errors.Join(f.Begin("a"), f.Done("a", 1)) },
		"rewrite":        func(f *File[string, int]) error { f.allowed = 0; return f.compactLocked() },
	} {
		t.Run(name, func(t *testing.T) {
			data := aLog(t, last)
			states, ends := statesOf(t, data)
			proven := ends[len(ends)-2] // what is known to have been on the disk
			if name == "killed" {
				r, _ := parse(string(data[proven:]))
				proven = int(r.safe)
			}
			if proven < len(data)/2 {
				t.Fatalf("only %d bytes of %d are known to have been on the disk", proven, len(data))
			}
			for i := range 8 * len(data) {
				bad := slices.Clone(data)
				bad[i/8] ^= 1 << (i % 8)
				d := diskWith(bad)
				f := &File[string, int]{Path: path, disk: d}
				err := f.Open()
				if i/8 < proven {
					if err == nil || string(d.files[path].data) != string(bad) {
						t.Fatalf("bit %d of byte %d of %d turned: %v, want an error, and nothing changed", i%8, i/8, len(data), err)
					}
					continue
				}
				whole, _ := slices.BinarySearch(ends, i/8+1)
				if want := states[whole-1]; err != nil || !maps.Equal(holds(f), want) {
					t.Fatalf("bit %d of byte %d turned, which the disk may not have had: %v, %v, want %v", i%8, i/8, err, holds(f), want)
				}
				if _, now := statesOf(t, d.files[path].data); now[len(now)-1] != len(d.files[path].data) {
					t.Fatalf("bit %d of byte %d turned: it is not cut off", i%8, i/8)
				}
			}
		})
	}
}

// path, seed and NoSync
