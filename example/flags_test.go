// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestBadFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"-colour", "flag provided but not defined: -colour"},
		{"stray", `argument "stray" is not understood; there are only flags`},
		{"-n 0", "-n is 0, want 1 or more"},
		{"-n many", `invalid value "many" for flag -n`},
		{"-n 3 -assets f", "-assets and -n exclude each other"},
		{"-cloud localhost:8900", `-cloud is "localhost:8900", want a URL as http://127.0.0.1:8900`},
		{"-cloud http://h -chaos", "-chaos is for a cloud that is started here; give it to go run ./example/cloud"},
		{"-cloud http://h -seed 1", "-seed is for a cloud that is started here"},
		{"-http 8080", `-http is "8080", want an address with a port as 127.0.0.1:8080`},
		{"-http 127.0.0.1:0", "want an address with a port"},
		{"-tenant=", "-tenant is empty, want a name"},
		{"-workers 0", "-workers is 0, want 1 or more"},
		{"-retries -1", "-retries is -1, want 0 or more"},
		{"-poll 0s", "-poll is 0s, want more than 0"},
		{"-recheck -1s", "-recheck is -1s, want more than 0"},
		{"-latency -1s", "-latency is -1s, want 0 to 1h"},
		{"-latency 2562047h", "-latency is 2562047h0m0s, want 0 to 1h"},
		{"-build -1s", "-build is -1s, want 0 to 1h"},
		{"-build 61m", "-build is 1h1m0s, want 0 to 1h"},
		{"-faults 1", "-faults is 1, want 0 to 0.9"},
		{"-faults NaN", "-faults is NaN, want 0 to 0.9"},
		{"-rate 0.5", "-rate is 0.5, want 0, or 1 to 1e9"},
		{"-rate NaN", "-rate is NaN, want 0, or 1 to 1e9"},
		{"-budget -1", "-budget is -1, want 0 (which means any number) or more"},
		{"-log loud", `invalid value "loud" for flag -log`},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(test.args), &out, &errs)
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if code != 2 || !strings.Contains(lines[len(lines)-1], test.want) {
			t.Errorf("with %s the exit code is %d and standard error\n%s\nwant 2 and last %q", test.args, code, errs.String(), test.want)
		}
	}
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run(context.Background(), []string{"-h"}, &out, &errs); code != 0 {
		t.Errorf("with -h the exit code is %d, want 0", code)
	}
	for _, flag := range []string{
		"assets", "budget", "build", "chaos", "cloud", "faults", "http", "latency", "lines", "log", "n", "poll",
		"rate", "recheck", "retries", "seed", "tenant", "watch", "workers",
	} {
		if !strings.Contains(errs.String(), "\n  -"+flag+" ") && !strings.Contains(errs.String(), "\n  -"+flag+"\n") {
			t.Errorf("the help lacks -%s", flag)
		}
	}
}

func TestBadFileAtStart(t *testing.T) {
	file := wishPath(t)
	wish(t, file, brokenFile)
	for _, test := range []struct{ path, want string }{
		{file, `:3: bucket/a: unknown field "colour"`},
		{file + ".none", "no such file"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), []string{"-assets", test.path}, &out, &errs)
		if code != 1 || !strings.Contains(errs.String(), test.want) || out.String() != "    0.0s  example: "+test.path+", in a cloud that is simulated here\n" {
			t.Errorf("with %s the exit code is %d, the output %q and standard error %q; want 1, one line and %q",
				test.path, code, out.String(), errs.String(), test.want)
		}
	}
}

func TestPageURL(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8080": "http://127.0.0.1:8080",
		":8080":          "http://localhost:8080",
		"0.0.0.0:8080":   "http://localhost:8080",
		"[::]:8080":      "http://localhost:8080",
	} {
		if got := pageURL(address); got != want {
			t.Errorf("pageURL(%s) = %s, want %s", address, got, want)
		}
	}
}
