// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

const path = "m"

// A call is one of the three of a File.
type call struct {
	verb    verb
	item    string
	version int
}

func randomCall(rnd *rand.Rand) call {
	return call{[]verb{began, did, did, forgot}[rnd.IntN(4)], fmt.Sprint("item", rnd.IntN(6)), 1 + rnd.IntN(5)}
}

func (c call) on(f *File[string, int]) error {
	switch c.verb {
	case began:
		return f.Begin(c.item)
	case did:
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
	case began:
		m[c.item] = 0
	case did:
		m[c.item] = c.version
	default:
		delete(m, c.item)
	}
	return m
}

func reopen(t *testing.T, d disk) *File[string, int] {
	t.Helper()
	f := &File[string, int]{Path: path, disk: d, slack: 6}
	if err := f.Open(); err != nil {
		t.Fatalf("Open after the crash: %v", err)
	}
	return f
}

// oneOf reports which of the states a File is in, or -1.
func oneOf(f *File[string, int], states []model) int {
	got := model(maps.Collect(f.All()))
	return slices.IndexFunc(states, func(m model) bool { return maps.Equal(m, got) })
}

// The process is killed, or the power is lost, in each step that is made on the disk,
// one after the other. Afterwards the file can be opened, and used; a kill loses
// nothing that had returned, and a loss of power no Begin.
func TestFileSurvivesACrashInEachStep(t *testing.T) {
	for seed := range uint64(6) {
		for _, power := range []bool{false, true} {
			steps := 0
			for kill := 1; ; kill++ {
				rnd := rand.New(rand.NewPCG(seed, uint64(kill)))
				d := newTestDisk(rnd)
				d.killAt = kill
				calls := rand.New(rand.NewPCG(seed, 0))
				states := []model{{}}
				oldest, returned := 0, 0
				f := &File[string, int]{Path: path, disk: d, slack: 6}
				err := f.Open()
				for range 60 {
					if err != nil {
						break
					}
					c := randomCall(calls)
					states = append(states, states[len(states)-1].after(c))
					if err = c.on(f); err == nil {
						returned = len(states) - 1
						if old, known := states[returned-1][c.item]; c.verb == began && (!known || old > 0) {
							oldest = returned
						}
					}
				}
				if err == nil {
					steps = d.steps
					break
				}
				if !errors.Is(err, errKilled) {
					t.Fatalf("seed %d, kill at %d: %v", seed, kill, err)
				}
				next := d.afterKill()
				if power {
					next = d.afterPowerLoss()
				} else {
					oldest = returned
				}
				f = reopen(t, next)
				if oneOf(f, states[oldest:]) < 0 {
					t.Fatalf("seed %d, power %t, kill at %d: remembered %v, want one of %v", seed, power, kill, maps.Collect(f.All()), states[oldest:])
				}
				if err := errors.Join(f.Begin("after"), f.Done("after", 1), f.Close()); err != nil {
					t.Fatalf("seed %d, power %t, kill at %d: after that: %v", seed, power, kill, err)
				}
			}
			if steps < 60 {
				t.Errorf("only %d steps were made on the disk", steps)
			}
		}
	}
}

// A process is killed in each step, the next one goes on, and then the power is lost.
// What the second one began is remembered, wherever the first one was killed.
func TestFileSurvivesAKillAndThenALossOfPower(t *testing.T) {
	for seed := range uint64(6) {
		for kill := 1; ; kill++ {
			d := newTestDisk(rand.New(rand.NewPCG(seed, uint64(kill))))
			d.killAt = kill
			calls := rand.New(rand.NewPCG(seed, 0))
			f := &File[string, int]{Path: path, disk: d, slack: 6}
			err := f.Open()
			for i := 0; err == nil && i < 60; i++ {
				err = randomCall(calls).on(f)
			}
			if err == nil {
				break
			}
			d = d.afterKill()
			if err := reopen(t, d).Begin("second"); err != nil {
				t.Fatal(err)
			}
			f = reopen(t, d.afterPowerLoss())
			if got, known := maps.Collect(f.All())["second"]; !known || got != 0 {
				t.Fatalf("seed %d, kill at %d: remembered %v, want second in it, begun", seed, kill, maps.Collect(f.All()))
			}
		}
	}
}

// A step on the disk fails, each one once, and the process goes on. What it says is
// remembered is what the next process finds.
func TestFileAfterAFailureInEachStep(t *testing.T) {
	for seed := range uint64(6) {
		for fail := 1; ; fail++ {
			rnd := rand.New(rand.NewPCG(seed, uint64(fail)))
			d := newTestDisk(rnd)
			d.failAt = fail
			calls := rand.New(rand.NewPCG(seed, 0))
			f := &File[string, int]{Path: path, disk: d, slack: 6}
			if err := f.Open(); err != nil {
				if !errors.Is(err, errFull) {
					t.Fatalf("seed %d, fail at %d: Open = %v", seed, fail, err)
				}
				if err := f.Open(); err != nil {
					t.Fatalf("seed %d, fail at %d: second Open = %v", seed, fail, err)
				}
			}
			want := model{}
			failures := 0
			for range 60 {
				c := randomCall(calls)
				err := c.on(f)
				if err == nil || maps.Equal(want.after(c), maps.Collect(f.All())) { // an error leaves it open
					want = want.after(c)
				}
				if err != nil {
					failures++
				}
				if got := maps.Collect(f.All()); !maps.Equal(want, got) {
					t.Fatalf("seed %d, fail at %d: after %v = %v: %v, want %v", seed, fail, c, err, got, want)
				}
			}
			f.Close()
			if d.opened != 0 {
				t.Fatalf("seed %d, fail at %d: %d files are still open", seed, fail, d.opened)
			}
			over := d.steps < fail
			d.failAt = 0
			f = reopen(t, d)
			if got := maps.Collect(f.All()); !maps.Equal(want, got) {
				t.Fatalf("seed %d, fail at %d, %d failures: the next process remembers %v, want %v", seed, fail, failures, got, want)
			}
			f.Close()
			if over {
				break
			}
		}
	}
}

// A step of Open fails, each one once. The File is as it was before, and can be opened.
func TestFileAfterAFailureInEachStepOfOpen(t *testing.T) {
	data, states, _ := aLog(t)
	for fail := 1; ; fail++ {
		d := diskWith(append(data[:len(data):len(data)], "torn"...))
		d.failAt = fail
		f := &File[string, int]{Path: path, disk: d}
		err := f.Open()
		if err == nil {
			if fail <= 5 { // read, open, cut off, sync, sync the folder
				t.Errorf("Open takes %d steps, want 5", fail-1)
			}
			return
		}
		if got := maps.Collect(f.All()); !errors.Is(err, errFull) || len(got) != 0 || d.opened != 0 {
			t.Fatalf("fail at %d: Open = %v, remembered %v, %d files are open; want %v and nothing", fail, err, got, d.opened, errFull)
		}
		if err := f.Open(); err != nil {
			t.Fatalf("fail at %d: second Open = %v", fail, err)
		}
		if got := model(maps.Collect(f.All())); !maps.Equal(got, states[len(states)-1]) {
			t.Fatalf("fail at %d: remembered %v, want %v", fail, got, states[len(states)-1])
		}
	}
}

// aLog returns a file that was not written anew, and the state and size after each
// call.
func aLog(t *testing.T) (data []byte, states []model, sizes []int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	d := newTestDisk(rnd)
	f := &File[string, int]{Path: path, disk: d}
	if err := f.Open(); err != nil {
		t.Fatal(err)
	}
	states, sizes = []model{{}}, []int{len(d.files[path].data)}
	for range 60 {
		c := randomCall(rnd)
		if err := c.on(f); err != nil {
			t.Fatal(err)
		}
		if n := len(d.files[path].data); n > sizes[len(sizes)-1] {
			states, sizes = append(states, states[len(states)-1].after(c)), append(sizes, n)
		}
	}
	return d.files[path].data, states, sizes
}

func diskWith(data []byte) *testDisk {
	d := newTestDisk(rand.New(rand.NewPCG(1, 1)))
	d.files[path] = &content{data: data, safe: data}
	d.safe[path] = d.files[path]
	return d
}

// The file is cut off at each byte. What is remembered is the state after the last
// call that is whole.
func TestFileCutOffAtEachByte(t *testing.T) {
	data, states, sizes := aLog(t)
	for n := len(magic); n <= len(data); n++ {
		want := 0
		for want+1 < len(sizes) && sizes[want+1] <= n {
			want++
		}
		d := diskWith(append([]byte(nil), data[:n]...))
		f := reopen(t, d)
		if got := model(maps.Collect(f.All())); !maps.Equal(got, states[want]) {
			t.Fatalf("cut off at %d of %d: %v, want %v", n, len(data), got, states[want])
		}
		if err := errors.Join(f.Done("after", 7), f.Close()); err != nil {
			t.Fatal(err)
		}
		f = reopen(t, d)
		if got := model(maps.Collect(f.All())); !maps.Equal(got, states[want].after(call{did, "after", 7})) {
			t.Fatalf("cut off at %d, and written to: %v", n, got)
		}
	}
}

// Each bit of the file is turned. That is damage, if a record behind it says that the
// disk had what was before. Otherwise it may be what a loss of power left, and what
// comes before it is remembered; it is never a state that never was.
func TestFileWithEachBitTurned(t *testing.T) {
	data, states, sizes := aLog(t)
	proven := len(magic) // what is known to have been on the disk
	for _, start := range sizes[:len(sizes)-1] {
		r, n := parse(data[start:])
		if n == 0 {
			t.Fatalf("no record at byte %d", start)
		}
		proven = max(proven, start-int(r.loose))
	}
	if proven < len(data)/2 {
		t.Fatalf("only %d bytes of %d are known to have been on the disk", proven, len(data))
	}
	for i := range 8 * len(data) {
		bad := append([]byte(nil), data...)
		bad[i/8] ^= 1 << (i % 8)
		d := diskWith(bad)
		f := &File[string, int]{Path: path, disk: d}
		err := f.Open()
		if i/8 < proven {
			if err == nil {
				t.Fatalf("bit %d of byte %d of %d turned: opened, want an error", i%8, i/8, len(data))
			}
			if string(d.files[path].data) != string(bad) {
				t.Fatalf("bit %d of byte %d turned: the file was changed", i%8, i/8)
			}
			continue
		}
		if err != nil {
			t.Fatalf("bit %d of byte %d turned, which the disk may not have had: %v", i%8, i/8, err)
		}
		whole, _ := slices.BinarySearch(sizes, i/8+1)
		if got := model(maps.Collect(f.All())); !maps.Equal(got, states[whole-1]) {
			t.Fatalf("bit %d of byte %d turned: %v, want %v", i%8, i/8, got, states[whole-1])
		}
	}
}

// A loss of power leaves a hole, and behind it a record whose item looks like a record
// of what the disk had.
func TestFileIsNotMisledByAnItem(t *testing.T) {
	text := record{verb: did, item: []byte("a"), version: []byte("1")}.append([]byte(magic))
	hole := record{verb: did, item: []byte("b"), version: []byte("1")}.append(nil)
	clear(hole)
	fake := record{verb: forgot, item: []byte("a")}.append(nil)
	behind := record{verb: began, item: fake, loose: uint64(len(hole))}.append(nil)
	f := reopen(t, diskWith(slices.Concat(text, hole, behind)))
	if got, want := maps.Collect(f.All()), (map[string]int{"a": 1}); !maps.Equal(got, want) {
		t.Errorf("remembered %v, want %v", got, want)
	}
}

// Nothing that is read makes it panic, and what it takes for whole is.
func FuzzFileReadsAnything(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(record{verb: did, item: []byte("a"), version: []byte("1"), loose: 200}.append([]byte(magic)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var records []record
		whole, err := scan(data, func(r record) error { records = append(records, r); return nil })
		if err != nil {
			return
		}
		again := []byte(magic)
		for _, r := range records {
			n := len(again)
			if again = r.append(again); len(again) > whole || string(again[n:]) != string(data[n:len(again)]) && len(r.item) < 128 && r.loose < 128 {
				t.Errorf("record %q does not stand at byte %d", r, n)
			}
		}
		if len(again) != whole {
			t.Errorf("%d bytes are whole, the records have %d", whole, len(again))
		}
	})
}
