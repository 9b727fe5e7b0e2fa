// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeAPI = flag.Bool("write-api", false, "write what the kernel exports to api.txt")

// TestAPI compares what the kernel exports with api.txt, so that no name is
// added, changed or lost by accident. An intended change is written by
//
//	go test -tags repo -run TestAPI ./internal/repocheck -write-api
func TestAPI(t *testing.T) {
	inRoot(t)
	got := exported(t)
	if *writeAPI {
		if err := os.WriteFile("api.txt", []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.Split(strings.TrimSpace(readFile(t, "api.txt")), "\n")
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("exported, but not in api.txt: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("in api.txt, but not exported: %s", line)
		}
	}
}

// exported returns the exported declarations of the kernel, one a line,
// sorted, without comments and without what is unexported in them.
func exported(t *testing.T) []string {
	t.Helper()
	fset := token.NewFileSet()
	var lines []string
	add := func(keyword string, node any) {
		var text bytes.Buffer
		if err := printer.Fprint(&text, fset, node); err != nil {
			t.Fatal(err)
		}
		line := strings.NewReplacer("{\n", "{ ", "\n}", " }", "\n\n", "; ", "\n", "; ").Replace(text.String())
		lines = append(lines, keyword+strings.Join(strings.Fields(line), " "))
	}
	for _, path := range repoFiles(t, ".go") {
		if filepath.Dir(path) != "." || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Body = nil; decl.Recv == nil || token.IsExported(receiver(decl)) {
					add("", decl)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					add(decl.Tok.String()+" ", spec)
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// receiver returns the name of the type that a method belongs to.
func receiver(method *ast.FuncDecl) string {
	typ := method.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.Name
		}
	}
}
