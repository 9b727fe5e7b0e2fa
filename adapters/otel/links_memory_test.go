// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"go.opentelemetry.io/otel/trace"
)

func linkTo(n uint64) trace.Link {
	var id trace.SpanID
	binary.BigEndian.PutUint64(id[:], n)
	return trace.Link{SpanContext: trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: id})}
}

// TestMemory remembers and takes at random, beside a plain list. What was asked
// for lately must be there, the rest may be forgotten, and there are never too
// many.
func TestMemory(t *testing.T) {
	const size = 20
	rnd := rand.New(rand.NewPCG(3, 4))
	m := newMemory[int](size)
	type entry struct {
		item  int
		links []trace.Link
		aged  bool // it may have been forgotten, all or in part
	}
	var model []entry // the items, those first that were not asked for since long
	forgotten, kept := 0, 0
	for step := range 50_000 {
		item := rnd.IntN(3 * size)
		e := entry{item: item}
		if i := slices.IndexFunc(model, func(e entry) bool { return e.item == item }); i >= 0 {
			e = model[i]
			model = slices.Delete(model, i, i+1)
		}
		if rnd.IntN(3) > 0 {
			link := linkTo(uint64(1 + rnd.IntN(20)))
			m.remember(item, link)
			has := func(l trace.Link) bool { return l.SpanContext.Equal(link.SpanContext) }
			if len(e.links) < linksPerRun && !slices.ContainsFunc(e.links, has) {
				e.links = append(e.links, link)
			}
			model = append(model, e)
		} else {
			got := m.take(item)
			switch n := len(got); {
			case !e.aged && n != len(e.links), n > len(e.links):
				t.Fatalf("step %d: take(%d) has %d links, want %d (aged: %v)", step, item, n, len(e.links), e.aged)
			case n < len(e.links):
				forgotten++
			case n > 0:
				kept++
			}
			if m.take(item) != nil {
				t.Fatalf("step %d: take(%d) took nothing out", step, item)
			}
		}
		for i := range max(0, len(model)-size/2) {
			model[i].aged = true
		}
		if n := len(m.young) + len(m.old); n > size {
			t.Fatalf("step %d: %d items are remembered, want no more than %d", step, n, size)
		}
	}
	if forgotten < 100 || kept < 100 {
		t.Errorf("%d forgotten and %d kept: the test shows nothing", forgotten, kept)
	}
}

// TestFlights has runs of one item at a time, in every order of starting,
// returning and ending.
func TestFlights(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var f flights[int]
	type run struct {
		item     int
		f        *flight[int]
		returned bool
	}
	var going []run
	for step := range 20_000 {
		switch i := rnd.IntN(12); {
		case i >= len(going):
			r := run{rnd.IntN(3), new(flight[int]), false}
			f.begin(r.item, r.f)
			going = append(going, r)
		case !going[i].returned:
			f.returned(going[i].f)
			going[i].returned = true
		default:
			// Any run of the item that has returned will do.
			item := going[i].item
			got := f.end(item)
			j := slices.IndexFunc(going, func(r run) bool { return r.f == got })
			if j < 0 || going[j].item != item || !going[j].returned {
				t.Fatalf("step %d: end(%d) is %v, want a run of it that has returned", step, item, got)
			}
			going = slices.Delete(going, j, j+1)
		}
	}
	for _, r := range going {
		if !r.returned {
			f.returned(r.f)
		}
	}
	for _, r := range going {
		if f.end(r.item) == nil {
			t.Errorf("a run of %d is missing", r.item)
		}
	}
	if len(f.runs) != 0 || f.end(1) != nil {
		t.Errorf("at the end there are %v", f.runs)
	}
}

// TestEndedFlightIsFreed has a run that ends after another one, for which OnResult is not
// called.
func TestEndedFlightIsFreed(t *testing.T) {
	var f flights[int]
	var runs [2]weak.Pointer[flight[int]]
	for item := range runs {
		r := new(flight[int])
		runs[item] = weak.Make(r)
		f.begin(item, r)
		f.returned(r)
	}
	f.end(1)
	runtime.GC()
	if runs[0].Value() == nil || runs[1].Value() != nil {
		t.Errorf("kept are %v and %v, want only the first", runs[0].Value(), runs[1].Value())
	}
	runtime.KeepAlive(&f)
}
