// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

// keepDoor is a handwritten controller: it keeps a door open by an HTTP API.
func keepDoor(ctx context.Context, web *http.Client) error {
	for ; ctx.Err() == nil; time.Sleep(time.Minute) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://house/door", nil)
		if err != nil {
			return err
		}
		if resp, err := web.Do(r); err == nil { // after an error it tries again in a minute
			resp.Body.Close()
		}
	}
	return nil
}

// A house is the fake of that API: which doors are open.
type house map[string]bool

func (h house) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		h[r.URL.Path] = true
	}
}

// A whole test of a controller that uses HTTP: the door is open in the end, whatever fails
// meanwhile. t is the *testing.T of the test.
func ExampleRun() {
	explore.Run(t, explore.Scenario[house]{
		World: func() house { return house{} },
		Start: func(proc *explore.Process, h house) {
			web := &http.Client{Transport: explore.Transport(proc, h)}
			proc.Go(func(ctx context.Context) error { return keepDoor(ctx, web) })
		},
		Steps: func(env *explore.Environment, h house) {
			env.Advance(10 * time.Minute)
			delete(h, "/door") // another client closes the door
			env.Advance(10 * time.Minute)
		},
		State: func(h house) string { return fmt.Sprint(h) },
		Plans: 200,
	})
}
