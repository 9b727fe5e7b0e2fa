// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVendor copies the kernel and the packages by scripts/vendor.sh into another module.
// There a program that imports all of them runs, and so do the tests of three.
func TestVendor(t *testing.T) {
	inRoot(t)
	packages := strings.Fields("batch explore gate keep lanes reconciletest refs statuspage supervise tracker")
	app := t.TempDir()
	writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.25\n\nrequire github.com/google/go-cmp v0.7.0\n")
	writeFile(t, filepath.Join(app, "go.sum"), readFile(t, "go.sum"))
	var imports strings.Builder
	for _, name := range packages {
		imports.WriteString("import _ \"example.org/app/lib/" + name + "\"\n")
	}
	writeFile(t, filepath.Join(app, "main.go"), `package main

import "example.org/app/lib"
`+imports.String()+`
func main() {
	q := reconcile.NewQueue[string]()
	q.Enqueue("a")
	println(q.Len())
}
`)

	vendor(t, app, "", append([]string{"--tests", "lib", "adapters/prometheus"}, packages...)...)
	note := regexp.MustCompile(`^module github\.com/reconkernel/reconcile\ncommit [0-9a-f]{40}(-dirty)?\npackages \. adapters/prometheus ` + strings.Join(packages, " ") + "\n")
	if text := readFile(t, filepath.Join(app, "lib", "VENDORED")); !note.MatchString(text) {
		t.Errorf("VENDORED is\n%s\nwant it to match %s", text, note)
	}
	if readFile(t, filepath.Join(app, "lib", "LICENSE")) != readFile(t, "LICENSE") {
		t.Error("the copy has another licence")
	}
	if !strings.Contains(readFile(t, filepath.Join(app, "lib", "adapters", "prometheus", "collector.go")), `"example.org/app/lib"`) {
		t.Error("the adapter does not import the copy")
	}
	for command, want := range map[string]string{
		"gofmt -l lib": "^$",
		"go run .":     "^1\n$",
		"go test -short ./lib/gate ./lib/batch ./lib/lanes": "^ok ",
	} {
		args := strings.Fields(command)
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = app
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil || !regexp.MustCompile(want).Match(out) {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}

	// An older copy is replaced as a whole, unless something would be lost by that.
	vendor(t, app, "lib has adapters/prometheus too: name it, say --update", "lib", "gate")
	vendor(t, app, "", "--force", "lib", "gate")
	vendor(t, app, "", "--update", "lib", "batch")
	if text := readFile(t, filepath.Join(app, "lib", "VENDORED")); !strings.Contains(text, "\npackages . batch gate\n") {
		t.Errorf("after --update lib batch VENDORED is\n%s", text)
	}
	writeFile(t, filepath.Join(app, "lib", "batch", "batch.go"), "package batch\n")
	vendor(t, app, "in lib these were edited since they were copied: batch/batch.go;", "--update", "lib")
	writeFile(t, filepath.Join(app, "lib", "extra.go"), "package reconcile\n")
	vendor(t, app, "lib has extra.go, which is not of a copy", "--force", "lib")
}

// TestVendorRefuses gives scripts/vendor.sh arguments and folders that it does not accept.
func TestVendorRefuses(t *testing.T) {
	inRoot(t)
	app, old, hostile := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.25\n")
	writeFile(t, filepath.Join(app, "mine", "notes.txt"), "not to be lost")
	writeFile(t, filepath.Join(app, "forged", "mine.go"), "package mine\n")
	writeFile(t, filepath.Join(app, "forged", "VENDORED"), "packages ../..\nfile "+strings.Repeat("0", 64)+" ../go.mod\nfile mine.go\n")
	writeFile(t, filepath.Join(old, "go.mod"), "module example.org/old\n\ngo 1.21\n")
	writeFile(t, filepath.Join(hostile, "go.mod"), "module x|w"+hostile+"\n\ngo 1.25\n") // a command of sed, which writes a file
	for _, test := range []struct {
		dir, says string
		args      []string
	}{
		{app, "DEST is missing, the folder for the copy", nil},
		{app, "no package nosuch; there are batch, explore, ", []string{"lib", "nosuch"}},
		{app, "no flag -x; there are --update, --tests, --force and -h", []string{"-x"}},
		{app, "and is not vendor or testdata", []string{"a b"}}, // the whole module would not build
		{app, ". is the root of a module", []string{"."}},
		{app, "mine has notes.txt, which is not of a copy", []string{"mine"}},
		{app, "forged has mine.go, which is not of a copy", []string{"--update", "forged"}},
		{t.TempDir(), "is in no Go module", []string{"lib"}},
		{hostile, "is no module path", []string{"lib"}},
		{old, "example.org/old says go 1.21, the copy needs 1.25 or newer", []string{"lib"}},
	} {
		vendor(t, test.dir, test.says, test.args...)
	}
	for dir, want := range map[string]int{app: 3, hostile: 1} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			t.Errorf("after that there is %v, %v: want %d entries", entries, err, want)
		}
	}
}

// vendor runs the script in dir. If says is not empty, the script must fail and say it.
func vendor(t *testing.T, dir, says string, args ...string) {
	t.Helper()
	script, err := filepath.Abs("scripts/vendor.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{script}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if (err != nil) != (says != "") || !strings.Contains(string(out), says) {
		t.Fatalf("vendor.sh %q: %v, %s, want it to say %q", args, err, out, says)
	}
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

// TestExploreImports keeps explore a product of its own: neither it, with its tests, nor
// kubesim and the gallery import another package of this repository. Tests of kubesim may
// play controllers on the kernel.
func TestExploreImports(t *testing.T) {
	inRoot(t)
	const module = "github.com/reconkernel/reconcile"
	for _, path := range repoFiles(t, ".go") {
		dir := filepath.ToSlash(filepath.Dir(path))
		if dir != "explore" && (!strings.HasPrefix(dir, "explore/") || strings.HasSuffix(path, "_test.go")) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			name := strings.Trim(i.Path.Value, `"`)
			if strings.HasPrefix(name, module) && name != module+"/explore" && !strings.HasPrefix(name, module+"/explore/") {
				t.Errorf("%s imports %s, want only packages of explore", path, name)
			}
		}
	}
}
