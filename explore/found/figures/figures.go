// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package figures holds docs/what-it-replaces.md to what the tests of this module find.
package figures

import (
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/explore"
)

const page = "../../../docs/what-it-replaces.md"

// Row compares the row of the page that begins with name with these cells.
func Row(t *testing.T, name string, cells ...string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("| %s | %s |", name, strings.Join(cells, " | "))
	if !slices.Contains(strings.Split(string(text), "\n"), want) {
		t.Errorf("the page has no row\n%s", want)
	}
}

// Lines counts the lines that have code, without comments, of files of a module, or of
// this folder if module is "".
func Lines(t *testing.T, module string, files ...string) string {
	t.Helper()
	dir := "."
	if module != "" {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatalf("go list -m %s: %v", module, err)
		}
		dir = strings.TrimSpace(string(out))
	}
	n := 0
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file := set.AddFile(name, -1, len(text))
		var s scanner.Scanner
		s.Init(file, text, nil, 0)
		code := map[int]bool{}
		for pos, kind, literal := s.Scan(); kind != token.EOF; pos, kind, literal = s.Scan() {
			if kind == token.SEMICOLON && literal == "\n" {
				continue
			}
			for i := range strings.Count(literal, "\n") + 1 { // of a string
				code[file.Line(pos)+i] = true
			}
		}
		n += len(code)
	}
	return Count(n)
}

var place = regexp.MustCompile(` #\d+`)

// Found searches, and says what came of it: after how many plans nothing was found, or in
// which plan, and with which faults. What is found must have the text want; if that is
// empty, nothing may be.
func Found[W any](t *testing.T, s explore.Scenario[W], want string) string {
	t.Helper()
	r, err := explore.Search(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if found := fmt.Sprint(r.Found); want == "" && r.Found != nil || !strings.Contains(found, want) {
		t.Errorf("found %v, want %q", found, want)
	}
	if r.Found == nil {
		return fmt.Sprintf("nothing in %s plans", Count(r.Plans))
	}
	return fmt.Sprintf("plan %d: %s", r.Found.Number, place.ReplaceAllString(strings.Join(r.Found.Plan, ", "), ""))
}

// Calls says how many there were of each.
func Calls(calls map[string]int) string {
	var all []string
	for _, op := range slices.Sorted(maps.Keys(calls)) {
		all = append(all, op+" "+Count(calls[op]))
	}
	return strings.Join(all, ", ")
}

// Count writes a number as the page does.
func Count(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Count(n/1000), n%1000)
}
