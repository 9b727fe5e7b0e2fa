// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestBothPrograms has either program do a small load, with all faults: in the
// end each file is as its object wants it, and gone with it.
func TestBothPrograms(t *testing.T) {
	s := kubetest.Shared(t)
	for i, program := range builtPrograms(t) {
		v, sent, err := run(t.Context(), s, program, short)
		if err != nil {
			t.Fatalf("%s: %v", sides[i], err)
		}
		for _, metric := range []string{"start", "memory", "recovery", "clean-up", "peak", "runs", "allocations", "processor", "requests"} {
			if v[metric] <= 0 {
				t.Errorf("%s: %s is %v, want a figure", sides[i], metric, v[metric])
			}
		}
		// The same requests: the finalizer comes and goes, and there is a cache. A run that
		// begins before the cache has what the last one did may do or ask that again: of
		// few objects, where one request for each run would be one for each update as well.
		again := short.Updates() - 1
		if got, want := sent["PATCH configmaps"], 2*short.Objects; got < want || got > want+again {
			t.Errorf("%s patched %d times (%s), want %d to %d", sides[i], got, verbs(sent), want, want+again)
		}
		if got := sent["GET configmaps"]; got > again {
			t.Errorf("%s: %s; want no object read for each run", sides[i], verbs(sent))
		}
		if got := sent["PUT configmaps"]; got != 0 {
			t.Errorf("%s: %s; want no object replaced", sides[i], verbs(sent))
		}
	}
}

// TestNewEnv has a program that cannot be started, and one that ends at once.
func TestNewEnv(t *testing.T) {
	for _, program := range []string{"/no/program", "/bin/true"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if e, err := newEnv(ctx, kubetest.Shared(t), program, 1); err == nil {
			e.close()
			t.Errorf("%s: no error", program)
		}
	}
}

func builtPrograms(t *testing.T) (programs []string) {
	dir := t.TempDir()
	for _, side := range sides {
		program, _, err := build(t.Context(), side, dir)
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, program)
	}
	return programs
}

// TestBeside has both programs run at the same time: there is a delay for each
// update.
func TestBeside(t *testing.T) {
	delays, err := beside(t.Context(), kubetest.Shared(t), builtPrograms(t), short)
	if err != nil {
		t.Fatal(err)
	}
	for i, side := range sides {
		if got := len(delays[i]); got != short.Paced || slices.Min(delays[i]) <= 0 {
			t.Errorf("%s: delays %v, want %d of more than 0", side, delays[i], short.Paced)
		}
	}
}

// TestStandbys has processes of all kinds stand by while objects come and go.
// Those with a queue that nobody works on have runs of them.
func TestStandbys(t *testing.T) {
	of, err := standby(t.Context(), kubetest.Shared(t), short, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range standbys {
		v := of[kind.name]
		if queues := kind.name == "theirs, EnableWarmup"; v["gone"] > 0 != queues {
			t.Errorf("%s: %v runs of objects that are gone; want some: %t", kind.name, v["gone"], queues)
		}
		if v["first run"] <= 0 {
			t.Errorf("%s: %v; want the first run after the Lease", kind.name, v)
		}
	}
}

// TestNurseries keeps nurseries of all kinds. No child is missing, and none is too
// many where the cache is asked for one's own writes.
func TestNurseries(t *testing.T) {
	for _, kind := range nurseries {
		v, err := stale(t.Context(), kubetest.Shared(t), kind.prepare, short)
		if err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		if careful := strings.Contains(kind.name, ", "); v["too many"] < 0 || careful && v["too many"] != 0 {
			t.Errorf("%s: %v children too many", kind.name, v["too many"])
		}
	}
}

// TestBackground has what ends too early tell why, and what is stopped end in
// order.
func TestBackground(t *testing.T) {
	early := errors.New("too early")
	ctx, fail := context.WithCancelCause(t.Context())
	stop := background(ctx, fail, func(context.Context) error { return early })
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, early) || !errors.Is(stop(), early) {
		t.Errorf("it ended by itself: %v, want its error", err)
	}
	ctx, fail = context.WithCancelCause(t.Context())
	defer fail(nil)
	stop = background(ctx, fail, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if err := errors.Join(stop(), stop()); err != nil || ctx.Err() != nil {
		t.Errorf("stopped: %v, %v, want no error", err, ctx.Err())
	}
}

// TestDelayed has a watch of Secrets come late, in order and to its end, and
// nothing else.
func TestDelayed(t *testing.T) {
	for path, want := range map[string]time.Duration{
		"/api/v1/namespaces/a/secrets?watch=true":    time.Second,
		"/api/v1/namespaces/a/secrets":               0,
		"/api/v1/namespaces/a/configmaps?watch=true": 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			l := late{lag: time.Second, next: answers(func(*http.Request) (*http.Response, error) {
				return &http.Response{Body: r}, nil
			})}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := l.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			go func() {
				for _, part := range []string{"a", "b"} {
					_, _ = w.Write([]byte(part)) // what is read says whether it was
					time.Sleep(100 * time.Millisecond)
				}
				_ = w.Close()
			}()
			data, err := io.ReadAll(resp.Body)
			if got := time.Since(begin); string(data) != "ab" || err != nil || got != want+200*time.Millisecond {
				t.Errorf("%s: %q, %v after %v, want ab %v late", path, data, err, got, want)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) { return a(req) }

// TestSectionIsOfTheFigures compares the document with the figures that are kept.
func TestSectionIsOfTheFigures(t *testing.T) {
	f, err := readFigures()
	if err != nil {
		t.Fatal(err)
	}
	want, err := f.section()
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _, err := parts(docFile); err != nil || got != want {
		t.Errorf("docs/kube.md is not what figures.json says (%v); run: go run . -page", err)
	}
}

// TestSection has a row in a table if the same side was always ahead, or none,
// and names it otherwise.
func TestSection(t *testing.T) {
	s := make(samples)
	for _, r := range rows {
		for _, program := range []string{"ours", "theirs"} {
			s.add(program, values{r.metric: 1})
			s.add(program, values{r.metric: 2})
			s.add(program, values{r.metric: 6})
		}
	}
	s["processor"]["ours"] = []float64{0.5, 1.9, 5.9}
	s["start"]["ours"] = []float64{0.5, 1.9, 6.1}
	s["many, start"]["ours"] = []float64{0.5, 1.9, 6.1}
	got, err := s.figures(3, full).section()
	if err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{
		"| processor time | 1.9 s | 2 s | 0.95 (0.50–0.98) |\n": true,
		"| runs for 3000 events | 2 | 2 | 1.00 |\n":             true,
		"| from start":                   false,
		"from start until all files are": true,
		"| children too many | 2 (1–6)":  true,
	} {
		if strings.Contains(got, want) != there {
			t.Errorf("%q is in it: %t, want %t:\n%s", want, !there, there, got)
		}
	}
}

// TestCommand refuses what it cannot do, before it builds anything.
func TestCommand(t *testing.T) {
	for _, c := range []struct {
		rounds, objects    int
		small, write, page bool
		want               string
	}{
		{0, 100, true, false, false, "-rounds is 0, want at least 1"},
		{1, 19, false, false, false, "-objects is 19, want at least 20"},
		{1, 100, true, true, false, "at most one of -short, -write and -page"},
		{1, 100, false, true, true, "at most one of -short, -write and -page"},
	} {
		if err := command(t.Context(), c.rounds, c.objects, c.small, c.write, c.page); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestQuantile takes values from the order of their size.
func TestQuantile(t *testing.T) {
	delays := []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}
	for part, want := range map[float64]float64{0: 1, 0.5: 2, 1: 3} {
		if got := quantile(delays, part); got != want {
			t.Errorf("quantile %v is %v, want %v", part, got, want)
		}
	}
}

// TestReplace writes a table into a document, again and again.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("a\n"+begin+"old\n"+end+"b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"| 1 |\n", "| 2 |\n"} {
		if err := replace(path, table); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(data), "a\n"+begin+table+end+"b\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if err := os.WriteFile(path, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := replace(path, "x"); err == nil || !strings.Contains(err.Error(), "compare: begin") {
		t.Errorf("a document without the lines: %v, want an error that names them", err)
	}
}
