// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/example/internal/programtest"
)

// The live page is there while the program works, and does not keep it from
// ending while somebody looks.
func TestProcessPage(t *testing.T) {
	url := "http://" + programtest.Address(t)
	file := wishPath(t)
	wish(t, file, string(shipped))
	p := execute(t, "example", "-watch", "-assets", file, "-http", strings.TrimPrefix(url, "http://"), "-build", "50ms", "-faults", "0") // or another look at one could fail in the end
	p.Line("live page at " + url)
	p.Line("in sync 14/14")

	wantMembers := func(want string) {
		t.Helper()
		resp, err := http.Get(url + "/status.json")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var status struct {
			Queues []struct {
				Name  string
				Items int
			}
			Groups []struct {
				Members []struct{ Name, State, Error string }
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
			t.Fatal(err)
		}
		if len(status.Queues) != 1 || status.Queues[0].Name != "assets" || status.Queues[0].Items != 14 {
			t.Errorf("the queues are %+v, want assets with 14 items", status.Queues)
		}
		var members []string
		for _, m := range status.Groups[0].Members {
			members = append(members, strings.TrimSpace(m.Name+" "+m.State+" "+m.Error))
		}
		if got := strings.Join(members, ", "); got != want {
			t.Errorf("the members are %s; want %s", got, want)
		}
	}
	const before, after = "page running, assets running, wanted running, ", ", file running, existing running, event stream running, events running"
	wantMembers(before + file + " succeeded" + after)

	// A file that is not used is seen there, too.
	wish(t, file, "{")
	p.Line("is not used")
	wantMembers(before + file + " failed " + file + ":1: unexpected end of JSON input; want the lists keys and buckets" + after)

	stream, err := http.Get(url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	p.Signal(os.Interrupt)
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream ends with %v", err)
	}
	p.WantEnd(0, "14 of 14 assets in sync")
}
