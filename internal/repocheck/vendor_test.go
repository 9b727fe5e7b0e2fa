// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/reconkernel/reconcile"

// TestVendor builds and runs the kernel's package example in a module of its own, in each
// of the ways of vendoring that the README names, with no network and an empty
// module cache.
func TestVendor(t *testing.T) {
	inRoot(t)
	program := exampleProgram(t)

	t.Run("copy of the files", func(t *testing.T) {
		app := t.TempDir()
		copyPackage(t, filepath.Join(app, "internal", "reconcile"))
		inside := strings.ReplaceAll(program, `"`+modulePath+`"`, `"example.org/app/internal/reconcile"`)
		writeFile(t, filepath.Join(app, "main.go"), inside)
		writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.25\n")
		checkProgram(t, app, "-mod=mod")
	})

	t.Run("copy of the module", func(t *testing.T) {
		app := t.TempDir()
		copyPackage(t, filepath.Join(app, "reconcile"))
		writeFile(t, filepath.Join(app, "reconcile", "go.mod"), readFile(t, "go.mod"))
		writeFile(t, filepath.Join(app, "main.go"), program)
		writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.25\n")
		runGo(t, app, "-mod=mod", "mod", "edit", "-require="+modulePath+"@v0.0.0", "-replace="+modulePath+"=./reconcile")
		checkProgram(t, app, "-mod=mod")
	})

	t.Run("go mod vendor", func(t *testing.T) {
		app, module := t.TempDir(), t.TempDir()
		copyPackage(t, module)
		writeFile(t, filepath.Join(module, "go.mod"), readFile(t, "go.mod"))
		writeFile(t, filepath.Join(app, "main.go"), program)
		writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.25\n")
		runGo(t, app, "-mod=mod", "mod", "edit", "-require="+modulePath+"@v0.0.0", "-replace="+modulePath+"="+module)
		runGo(t, app, "", "mod", "vendor")
		if err := os.RemoveAll(module); err != nil { // the vendored copy alone must do
			t.Fatal(err)
		}
		checkProgram(t, app, "-mod=vendor")
	})
}

// exampleProgram returns the kernel's package example as a program: the function
// and those imports of its file that it needs.
func exampleProgram(t *testing.T) string {
	t.Helper()
	const file = "example_test.go"
	source := readFile(t, file)
	_, body, ok := strings.Cut(source, "\nfunc Example() {\n")
	body, _, ends := strings.Cut(body, "\n}\n")
	if !ok || !ends {
		t.Fatalf("%s has no package example", file)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var imports strings.Builder
	for _, spec := range parsed.Imports {
		name := path.Base(strings.Trim(spec.Path.Value, `"`))
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			imports.WriteString("import " + spec.Path.Value + "\n")
		}
	}
	return "package main\n\n" + imports.String() + "\nfunc main() {\n" + body + "\n}\n"
}

// copyPackage copies the kernel and its licence, without its tests.
func copyPackage(t *testing.T, to string) {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(paths, "LICENSE") {
		if !strings.HasSuffix(name, "_test.go") {
			writeFile(t, filepath.Join(to, name), readFile(t, name))
		}
	}
}

// checkProgram runs the program in dir and compares the lines that it prints,
// in any order, with what it says that it prints.
func checkProgram(t *testing.T, dir, flags string) {
	t.Helper()
	_, output, ok := strings.Cut(readFile(t, filepath.Join(dir, "main.go")), "output:\n")
	if !ok {
		t.Fatal("the program does not say what it prints")
	}
	var want []string
	for line := range strings.Lines(output) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "// "); ok {
			want = append(want, text)
		}
	}
	got := strings.Split(strings.TrimSpace(runGo(t, dir, flags, "run", ".")), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the program printed %q, want %q", got, want)
	}
}

// runGo runs the go command in dir and returns what it printed.
func runGo(t *testing.T, dir, flags string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GOFLAGS="+flags, "GOPROXY=off", "GOWORK=off", "GOMODCACHE="+t.TempDir(), "GO111MODULE=on")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, errors.String())
	}
	return string(out)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
