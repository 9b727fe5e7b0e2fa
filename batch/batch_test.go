// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/batch"
	"github.com/reconkernel/reconcile/internal/record"
)

var (
	errEnd  = errors.New("the end")
	errBoom = errors.New("boom")
)

// Each call is a letter, the time at which it comes, and the time at which its
// context ends, if it does. Do takes ten seconds, and answers with capital letters.
func TestCallsJoin(t *testing.T) {
	for name, c := range map[string]struct {
		max    int
		window time.Duration
		calls  string
		want   []string
	}{
		"one alone waits for the window": {9, time.Second, "a0", []string{"1s do a", "11s a: A"}},
		"those within the window of the first": {
			9, time.Second, "a0 b500 c999 d1001",
			[]string{"1s do abc", "11s a: A", "11s b: B", "11s c: C", "2.001s do d", "12.001s d: D"},
		},
		"a full one goes at once": {
			3, time.Second, "a0 b100 c200 d300 e400",
			[]string{"200ms do abc", "10.2s a: A", "10.2s b: B", "10.2s c: C", "1.3s do de", "11.3s d: D", "11.3s e: E"},
		},
		"the window of a full one ends no other": {
			2, time.Second, "a0 b900 c950", []string{"900ms do ab", "10.9s a: A", "10.9s b: B", "1.95s do c", "11.95s c: C"},
		},
		"one at a time": {1, time.Hour, "a0 b0", []string{"0s do a", "10s a: A", "0s do b", "10s b: B"}},
		"no window":     {9, 0, "a0 b100", []string{"0s do a", "10s a: A", "100ms do b", "10.1s b: B"}},
		"one that leaves before is not asked for": {
			9, time.Second, "a0-500 b100 c200", []string{"500ms a: the end", "1s do bc", "11s b: B", "11s c: C"},
		},
		"and makes room": {
			3, time.Second, "a0-500 b400 c600 d700", []string{"500ms a: the end", "700ms do bcd", "10.7s b: B", "10.7s c: C", "10.7s d: D"},
		},
		"if all leave before, nothing is done": {
			9, time.Second, "a0-500 b100-500 c600", []string{"500ms a: the end", "500ms b: the end", "1.6s do c", "11.6s c: C"},
		},
		"one that leaves later does not hurt the others": {
			2, time.Second, "a0-5000 b0", []string{"0s do ab", "5s a: the end", "10s b: B"},
		},
		"if all leave, do ends": {
			2, time.Second, "a0-5000 b0-6000 c6100",
			[]string{"0s do ab", "5s a: the end", "6s b: the end", "6s do ended: the end", "7.1s do c", "17.1s c: C"},
		},
		"one whose context has ended does not join": {1, time.Second, "a0-0 b1", []string{"0s a: the end", "1ms do b", "10.001s b: B"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := record.New()
				call := batch.New(c.max, c.window, func(ctx context.Context, reqs []string) ([]string, error) {
					d.Note("do %s", strings.Join(slices.Sorted(slices.Values(reqs)), ""))
					answers := slices.Clone(reqs)
					for i := range answers {
						answers[i] = strings.ToUpper(answers[i])
					}
					select {
					case <-time.After(10 * time.Second):
						return answers, nil
					case <-ctx.Done():
						d.Note("do ended: %v", context.Cause(ctx))
						return nil, ctx.Err()
					}
				})
				for spec := range strings.FieldsSeq(c.calls) {
					req := spec[:1]
					comes, ends := 0, -1
					if n, _ := fmt.Sscanf(spec[1:], "%d-%d", &comes, &ends); n == 0 {
						t.Fatal(spec)
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil) // at the end of the test
					if ends == comes {
						cancel(errEnd)
					} else if ends >= 0 {
						time.AfterFunc(time.Duration(ends)*time.Millisecond, func() { cancel(errEnd) })
					}
					time.AfterFunc(time.Duration(comes)*time.Millisecond, func() {
						res, err := call(ctx, req)
						if err != nil {
							res = err.Error()
						}
						d.Note("%s: %s", req, res)
					})
				}
				time.Sleep(time.Minute)
				d.WantAll(t, c.want...)
			})
		})
	}
}

// Each request has its own answer and error; what fits nobody is everybody's.
func TestEachCallHasItsAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		res  []string
		err  error
		want []string // of a, b and c
	}{
		"results":              {[]string{"1", "2", "3"}, nil, []string{"1 <nil>", "2 <nil>", "3 <nil>"}},
		"an error":             {[]string{"1", "2", "3"}, errBoom, []string{" boom", " boom", " boom"}},
		"errors":               {nil, batch.Errors{nil, errBoom, errEnd}, []string{" <nil>", " boom", " the end"}},
		"errors and results":   {[]string{"1", "2", "3"}, batch.Errors{nil, errBoom, nil}, []string{"1 <nil>", " boom", "3 <nil>"}},
		"errors in a wrapping": {nil, fmt.Errorf("w: %w", batch.Errors{errBoom, nil, nil}), []string{" boom", " <nil>", " <nil>"}},
		"errors beside another error": {
			nil,
			errors.Join(batch.Errors{nil, errEnd, nil}, errBoom),
			slices.Repeat([]string{" request 2 of 3: the end\nboom"}, 3),
		},
		"empty errors and results": {[]string{"1", "2", "3"}, batch.Errors(nil), []string{"1 <nil>", "2 <nil>", "3 <nil>"}},
		"empty errors in a wrapping": {
			[]string{"1", "2", "3"},
			fmt.Errorf("w: %w", batch.Errors{}),
			slices.Repeat([]string{" batch: do returned 0 errors for 3 requests: w: "}, 3),
		},
		"empty errors alone": {nil, batch.Errors{}, slices.Repeat([]string{" batch: do returned 0 results for 3 requests"}, 3)},
		"no results":         {nil, nil, slices.Repeat([]string{" batch: do returned 0 results for 3 requests"}, 3)},
		"too many results":   {[]string{"1", "2", "3", "4"}, nil, slices.Repeat([]string{" batch: do returned 4 results for 3 requests"}, 3)},
		"too few errors": {
			nil,
			batch.Errors{nil, errBoom},
			slices.Repeat([]string{" batch: do returned 2 errors for 3 requests: request 2 of 2: boom"}, 3),
		},
		"errors and too few results": {
			[]string{"1"},
			batch.Errors{nil, errBoom, nil},
			slices.Repeat([]string{" batch: do returned 1 results, and errors, for 3 requests: request 2 of 3: boom"}, 3),
		},
		"a panic": {nil, errors.New("panic"), slices.Repeat([]string{" panic: no disk"}, 3)},
		"Goexit":  {nil, errors.New("exit"), slices.Repeat([]string{" panic: runtime.Goexit called"}, 3)},
	} {
		synctest.Test(t, func(t *testing.T) {
			call := batch.New(3, time.Hour, func(context.Context, []string) ([]string, error) {
				switch fmt.Sprint(c.err) {
				case "panic":
					panic("no disk")
				case "exit":
					runtime.Goexit()
				}
				return c.res, c.err
			})
			got := make([]string, 3)
			for i, req := range []string{"a", "b", "c"} {
				go func() {
					res, err := call(t.Context(), req)
					if p := (*reconcile.PanicError)(nil); errors.As(err, &p) {
						if !strings.Contains(string(p.Stack), "batch_test.go") && p.Value == "no disk" {
							t.Errorf("%s: the stack is\n%s\nwant it to name do", name, p.Stack)
						}
						err = fmt.Errorf("panic: %v", p.Value)
					}
					got[i] = fmt.Sprintf("%s %v", res, err)
				}()
				synctest.Wait()
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: got %q, want %q", name, got, c.want)
			}
		})
	}
	if err := (batch.Errors{nil, errBoom, nil, errEnd}); !errors.Is(err, errBoom) || !errors.Is(err, errEnd) {
		t.Errorf("Errors does not unwrap to those that it has")
	}
}

// Do sees the values of the ctx that opened the window.
func TestDoHasValues(t *testing.T) {
	type key struct{}
	call := batch.New(1, 0, func(ctx context.Context, _ []int) ([]any, error) { return []any{ctx.Value(key{})}, nil })
	if got, err := call(context.WithValue(t.Context(), key{}, 5), 1); got != 5 || err != nil {
		t.Errorf("call = %v, %v, want 5", got, err)
	}
}

// Equal requests are passed to do once, also if only some can be compared.
func TestEqualRequestsAreSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []any
		call := batch.New(10, time.Second, func(_ context.Context, reqs []any) ([]string, error) {
			asked = reqs
			res := make([]string, len(reqs))
			for i, req := range reqs {
				res[i] = fmt.Sprint("answer ", req)
			}
			return res, nil
		})
		for _, req := range []any{"a", 1, "a", []int{2}, []int{2}, "b", 1, nil, nil} {
			go func() {
				if got, err := call(t.Context(), req); got != fmt.Sprint("answer ", req) || err != nil {
					t.Errorf("call(%v) = %q, %v", req, got, err)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got, want := fmt.Sprint(asked), "[a 1 [2] [2] b <nil>]"; got != want {
			t.Errorf("do got %s, want %s", got, want)
		}
	})
}

func TestWrongArgumentsPanic(t *testing.T) {
	do := func(context.Context, []int) ([]int, error) { return nil, nil }
	for want, f := range map[string]func(){
		"batch: max is 0, want 1 or more":                              func() { batch.New(0, 0, do) },
		"batch: the window is -1ns, want 0 (which means none) or more": func() { batch.New(1, -1, do) },
		"batch: do is nil, want a function":                            func() { batch.New[int, int](1, 0, nil) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("New panics with %v, want %q", got, want)
				}
			}()
			f()
		}()
	}
}

// Many calls come and leave at any time: each that stays has its own answer, no
// batch is too big, and each request is in one batch at most.
func TestUnderStress(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			most := 1 + r.IntN(5)
			var mu sync.Mutex
			asked := map[int]bool{}
			call := batch.New(most, time.Duration(r.IntN(3))*time.Millisecond, func(ctx context.Context, reqs []int) ([]int, error) {
				time.Sleep(time.Duration(reqs[0]%7) * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				if len(reqs) > most {
					t.Errorf("seed %d: a batch of %d, want %d at most", seed, len(reqs), most)
				}
				res := make([]int, len(reqs))
				for i, req := range reqs {
					if asked[req] {
						t.Errorf("seed %d: request %d is in two batches", seed, req)
					}
					asked[req], res[i] = true, -req
				}
				return res, nil
			})
			var all sync.WaitGroup
			for i := range 500 {
				comes, stays := time.Duration(r.IntN(50000)), time.Duration(r.IntN(5000))
				all.Go(func() {
					time.Sleep(comes * time.Microsecond)
					ctx, cancel := context.WithTimeout(t.Context(), stays*time.Microsecond)
					defer cancel()
					if res, err := call(ctx, i); err == nil && res != -i || err != nil && err != context.DeadlineExceeded {
						t.Errorf("seed %d: call %d = %d, %v", seed, i, res, err)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second) // for do, which does not look at its ctx
		})
	}
}
