// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

// A keeper has a machine for each name, by an HTTP API. It uses nothing of this module.
type keeper struct {
	web   *http.Client
	names func() []string
	put   bool            // the correct one
	made  map[string]bool // as far as this process knows
}

func (k *keeper) run(ctx context.Context) error {
	for ctx.Err() == nil {
		for _, name := range k.names() {
			if !k.made[name] && k.make(ctx, name) == nil {
				k.made[name] = true
			}
		}
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

// make makes a machine, if there is none of that name.
func (k *keeper) make(ctx context.Context, name string) error {
	if k.put {
		_, err := k.ask(ctx, http.MethodPut, "/machines/"+name)
		return err
	}
	have, err := k.ask(ctx, http.MethodGet, "/machines")
	if err == nil && !strings.Contains(have, name) {
		_, err = k.ask(ctx, http.MethodPost, "/machines?name="+name)
		if err != nil { // perhaps it was too busy
			_, err = k.ask(ctx, http.MethodPost, "/machines?name="+name)
		}
	}
	return err
}

func (k *keeper) ask(ctx context.Context, method, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://machines"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := k.web.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// A park is the fake of the API.
type park struct {
	names    []string       // that are desired
	machines map[string]int // by name
}

func (p *park) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		fmt.Fprint(w, p.machines)
	case http.MethodPost:
		p.machines[r.URL.Query().Get("name")]++
	case http.MethodPut:
		p.machines[strings.TrimPrefix(r.URL.Path, "/machines/")] = 1
	}
}

func machines(put bool) explore.Scenario[*park] {
	return explore.Scenario[*park]{
		World: func() *park { return &park{machines: map[string]int{}} },
		Start: func(proc *explore.Process, p *park) {
			keeper := &keeper{
				web:   &http.Client{Transport: explore.Transport(proc, p)},
				names: func() []string { proc.Step(); return p.names },
				put:   put, made: map[string]bool{},
			}
			proc.Go(keeper.run)
		},
		Steps: func(s *explore.Environment, p *park) {
			p.names = []string{"web"}
			s.Advance(2 * time.Minute)
			p.names = append(p.names, "db")
			s.Advance(2 * time.Minute)
		},
		State: func(p *park) string { return fmt.Sprintf("machines: %v", p.machines) },
		Plans: 300,
	}
}

func TestMachines(t *testing.T) {
	explore.Run(t, machines(true))
}

func TestMachinesStory(t *testing.T) {
	r, err := explore.Search(t, machines(false))
	if err != nil || r.Found == nil {
		t.Fatalf("exploring finds %v, %v", r, err)
	}
	want := `
it fails with one fault, found in plan 9:
	call POST /machines?name=web #1: answer lost
this happened:
	1m0s call GET /machines
	1m0s call POST /machines?name=web  <== answer lost
	1m0s call POST /machines?name=web
	3m0s call GET /machines
	3m0s call POST /machines?name=db
and then:
	the world is not what it is without faults:
	- machines: map[db:1 web:1]  (without faults)
	+ machines: map[db:1 web:2]
to play this plan alone, set
	Replay: []string{"call POST /machines?name=web #1: answer lost"},
`
	if got := r.Found.String(); got != want[1:] {
		t.Errorf("the story is\n%s\nwant\n%s", got, want[1:])
	}
}

// A keeper that learns the names by a long poll. If it takes a refusal for final, it stops too
// early.
func TestMachinesRefused(t *testing.T) {
	s := machines(true)
	s.Start = func(proc *explore.Process, p *park) {
		refused := map[explore.Fault]http.Handler{
			"429": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "30")
				http.Error(w, "slow down", http.StatusTooManyRequests)
			}),
			"500 after the effect": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				p.ServeHTTP(httptest.NewRecorder(), r)
				http.Error(w, "internal error", http.StatusInternalServerError)
			}),
		}
		api := http.NewServeMux()
		api.Handle("/", p)
		api.HandleFunc("/names", func(w http.ResponseWriter, r *http.Request) { // waits for other names
			for proc.Step() && r.Context().Err() == nil && strings.Join(p.names, ",") == r.FormValue("not") {
				time.Sleep(time.Second)
			}
			fmt.Fprint(w, strings.Join(p.names, ","))
		})
		names := ""
		keeper := &keeper{web: &http.Client{Transport: explore.TransportOr(proc, api, refused)}, put: true, made: map[string]bool{}}
		keeper.names = func() []string {
			if others, err := keeper.ask(proc.Context(), http.MethodGet, "/names?not="+names); err == nil {
				names = others
			}
			return strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
		}
		proc.Go(keeper.run)
	}
	s.CustomFaults, s.Within = []explore.Fault{"429", "500 after the effect"}, 10*time.Minute
	explore.Run(t, s)
}
