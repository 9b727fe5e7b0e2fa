// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// Handler returns the whole API, which Run serves.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "A small cloud. Look at /v1/buckets, /v1/keys and /v1/events.")
	})
	mux.HandleFunc("GET /v1/events", s.events)
	for pattern, serve := range map[string]func(*http.Request) (any, error){
		"GET /v1/{kinds}":           s.list,
		"POST /v1/{kinds}":          s.create,
		"GET /v1/{kinds}/{name}":    s.get,
		"PUT /v1/{kinds}/{name}":    s.update,
		"DELETE /v1/{kinds}/{name}": s.delete,
		"/v1/":                      unknown,
	} {
		mux.HandleFunc(pattern, s.faulty(serve))
	}
	return mux
}

// faulty answers late, and sometimes badly: also after the work was done.
func (s *Server) faulty(serve func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !sleep(r.Context(), s.about(s.Config.Latency)) {
			answer(w, nil, &cloud.Error{Status: 503, Message: "nobody waits for the answer any more"})
			return
		}
		if !s.takes() {
			w.Header().Set("Retry-After", "1")
			answer(w, nil, &cloud.Error{Status: 429, Message: "too many requests"})
			return
		}
		fault := s.chance(s.Config.Faults)
		if fault && s.chance(0.5) {
			answer(w, nil, errors.New("internal error"))
			return
		}
		out, err := serve(r)
		if fault {
			out, err = nil, errors.New("internal error after the work")
		}
		answer(w, out, err)
	}
}

// takes reports whether the rate lets in one more request.
func (s *Server) takes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	rate, now := s.Config.Rate, time.Now()
	s.missing = max(0, s.missing-rate*now.Sub(s.counted).Seconds())
	s.counted = now
	if rate > 0 && s.missing > rate-1 {
		return false
	}
	s.missing++
	return true
}

func answer(w http.ResponseWriter, out any, err error) {
	status := http.StatusOK
	if err != nil {
		refusal := &cloud.Error{Status: http.StatusInternalServerError, Message: err.Error()}
		errors.As(err, &refusal)
		status, out = refusal.Status, refusal
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if out != nil {
		_ = json.NewEncoder(w).Encode(out) // the other side may be gone
	}
}

func refuse(status int, format string, args ...any) error {
	return &cloud.Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

func unknown(r *http.Request) (any, error) { return nil, refuse(404, "no such path: %s", r.URL.Path) }

// tenant says who asks. Without a token it is the tenant "example", so that one
// can look around with a browser.
func tenant(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return cmp.Or(token, "example")
}

func idOf(r *http.Request, name string) (cloud.ID, error) {
	switch r.PathValue("kinds") {
	case "buckets":
		return cloud.ID{Kind: cloud.Bucket, Name: name}, nil
	case "keys":
		return cloud.ID{Kind: cloud.Key, Name: name}, nil
	}
	return cloud.ID{}, refuse(404, "no such path: %s", r.URL.Path)
}

func (s *Server) list(r *http.Request) (any, error) {
	of, err := idOf(r, "")
	if err != nil {
		return nil, err
	}
	names := r.URL.Query()["name"]
	all := slices.DeleteFunc(s.Assets(tenant(r)), func(a cloud.Asset) bool {
		return a.ID.Kind != of.Kind || len(names) > 0 && !slices.Contains(names, a.ID.Name)
	})
	return map[string]any{"items": all}, nil
}

func (s *Server) get(r *http.Request) (any, error) {
	id, err := idOf(r, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(id, r)
	if err != nil {
		return nil, err
	}
	return rec.Asset, nil
}

// findLocked returns the record of an asset, if it is the tenant's own.
func (s *Server) findLocked(id cloud.ID, r *http.Request) (*record, error) {
	rec := s.records[id]
	if rec == nil || rec.tenant != tenant(r) {
		return nil, refuse(404, "%s is not there", id)
	}
	return rec, nil
}

func (s *Server) create(r *http.Request) (any, error) {
	var body struct {
		Name string     `json:"name"`
		Spec cloud.Spec `json:"spec"`
	}
	if err := decode(r, &body); err != nil {
		return nil, err
	}
	id, err := idOf(r, body.Name)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(Regions(), body.Spec.Region):
		return nil, refuse(400, "region %q does not exist; there are %s", body.Spec.Region, strings.Join(Regions(), ", "))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec := s.records[id]; rec != nil {
		if rec.tenant != tenant(r) {
			return nil, refuse(409, "the name %q is taken by another tenant", id.Name)
		}
		return nil, refuse(412, "%s is there already", id)
	}
	if err := s.checkKeyLocked(body.Spec.Key, r); err != nil {
		return nil, err
	}
	s.last++
	op := fmt.Sprintf("op-%d", s.last)
	a := cloud.Asset{ID: id, Spec: body.Spec, State: cloud.Creating, Operation: op, Version: s.last}
	s.records[id] = &record{Asset: a, tenant: tenant(r)}
	failed := s.chance(s.Config.Faults)
	time.AfterFunc(s.about(s.Config.Build), func() { s.built(id, op, failed) })
	return a, nil
}

// checkKeyLocked refuses a bucket whose key is not ready.
func (s *Server) checkKeyLocked(name string, r *http.Request) error {
	if name == "" {
		return nil
	}
	id := cloud.ID{Kind: cloud.Key, Name: name}
	if key, err := s.findLocked(id, r); err != nil || key.State != cloud.Ready {
		return &cloud.Error{Status: 409, Message: id.String() + " is not ready", Blocking: []cloud.ID{id}}
	}
	return nil
}

func (s *Server) update(r *http.Request) (any, error) {
	var spec cloud.Spec
	if err := decode(r, &spec); err != nil {
		return nil, err
	}
	id, err := idOf(r, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(id, r)
	if err != nil {
		return nil, err
	}
	match := r.Header.Get("If-Match")
	switch {
	case match != "" && match != strconv.Quote(strconv.FormatInt(rec.Version, 10)):
		return nil, refuse(412, "%s was changed meanwhile", id)
	case rec.State != cloud.Ready:
		return nil, refuse(412, "%s is %s", id, rec.State)
	case spec.Region != rec.Region:
		return nil, refuse(422, "the region cannot be changed from %s to %s", rec.Region, spec.Region)
	}
	if spec.Key != rec.Key {
		if err := s.checkKeyLocked(spec.Key, r); err != nil {
			return nil, err
		}
	}
	rec.Spec = spec
	s.changedLocked(rec, "changed")
	return nil, nil
}

func (s *Server) delete(r *http.Request) (any, error) {
	id, err := idOf(r, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec, err := s.findLocked(id, r)
	if err != nil {
		return nil, err
	}
	if users := s.usersLocked(rec); len(users) > 0 {
		return nil, &cloud.Error{Status: 409, Message: fmt.Sprintf("%s is in use", id), Blocking: users}
	}
	s.removeLocked(rec)
	return nil, nil
}

// usersLocked returns the buckets that use a key. One that is not ready is of no
// use to any; there may be buckets from the time of a key that another hand
// deleted.
func (s *Server) usersLocked(key *record) []cloud.ID {
	if key.ID.Kind != cloud.Key || key.State != cloud.Ready {
		return nil
	}
	var users []cloud.ID
	for id, r := range s.records {
		if r.Key == key.ID.Name && r.tenant == key.tenant {
			users = append(users, id)
		}
	}
	return users
}

func decode(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		return refuse(400, "body: %v", err)
	}
	return nil
}
