// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const (
	modulePath = "github.com/reconkernel/reconcile"
	appMod     = "module example.org/app\n\ngo 1.25\n"
)

// packages are what can be vendored besides the kernel, each with a line of a
// program that uses it.
var packages = map[string]string{
	"keep":          `if keep.ErrTooMany == nil { fmt.Println("a set") }`,
	"tracker":       `fmt.Print(tracker.Appeared[:0])`,
	"statuspage":    `if w := httptest.NewRecorder(); w.Body.Len() == 0 { statuspage.New().ServeHTTP(w, httptest.NewRequest("GET", "/script.js", nil)); if w.Code != 200 { fmt.Println(w) } }`,
	"reconciletest": `if (&reconciletest.Scenario[string, string]{}).Plans != 0 { fmt.Println("plans") }`,
	"gate":          `if s := new(gate.Gate).Stats(); s.Limit != 0 { fmt.Println(s) }`,
	"batch":         `if batch.New[int, int] == nil { fmt.Println("no batch") }`,
	"lanes":         `if (&lanes.Lanes[string, string]{}).Lane != nil { fmt.Println("a lane") }`,
	"explore":       `if explore.Transport == nil { fmt.Println("no transport") }`,
}

// vendorSets are the sets of packages that TestVendor vendors.
var vendorSets = [][]string{
	{},
	{"tracker"},
	{"statuspage"},
	{"reconciletest"},
	{"gate", "lanes"},
	{"keep"},
	{"batch"},
	{"explore"},
	{"keep", "tracker", "statuspage", "reconciletest", "gate", "batch", "lanes", "explore"},
}

// TestVendor builds and runs the kernel's package example, with a line for each
// further package, in a module of its own: in each of the ways of vendoring that
// there are, with no network and an empty module cache.
func TestVendor(t *testing.T) {
	inRoot(t)
	example := exampleBody(t)
	clone := cloneModule(t)
	commit := commitAll(t, clone)
	proxy := moduleProxy(t, map[string]string{modulePath: clone})

	for _, way := range []struct {
		name  string
		flags string
		own   string // what the packages are imported as
		get   func(t *testing.T, app string, set []string)
	}{
		{"script", "-mod=mod", "example.org/app/internal/reconcile", func(t *testing.T, app string, set []string) {
			if out, err := vendor(clone, app, append([]string{"internal/reconcile"}, set...)...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			copied := filepath.Join(app, "internal", "reconcile")
			note := readFile(t, filepath.Join(copied, "VENDORED"))
			want := "module " + modulePath + "\ncommit " + commit + "\npackages " + strings.Join(append([]string{"."}, slices.Sorted(slices.Values(set))...), " ") + "\n"
			if !strings.HasPrefix(note, want) {
				t.Errorf("VENDORED is\n%s\nwant it to begin with\n%s", note, want)
			}
			if err := exec.CommandContext(t.Context(), "cmp", "LICENSE", filepath.Join(copied, "LICENSE")).Run(); err != nil {
				t.Error("the licence is not there:", err)
			}
			if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", copied).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("gofmt -l: %v, %s", err, out)
			}
		}},
		{"replace", "-mod=mod", modulePath, func(t *testing.T, app string, _ []string) {
			runGo(t, app, proxy, "-mod=mod", "mod", "edit", "-require="+modulePath+"@v0.0.0", "-replace="+modulePath+"="+clone)
		}},
		{"module", "-mod=mod", modulePath, func(t *testing.T, app string, _ []string) {
			runGo(t, app, proxy, "-mod=mod", "get", modulePath+"@v0.1.0")
		}},
		{"go mod vendor", "-mod=vendor", modulePath, func(t *testing.T, app string, _ []string) {
			runGo(t, app, proxy, "-mod=mod", "get", modulePath+"@v0.1.0")
			runGo(t, app, proxy, "-mod=mod", "mod", "vendor")
		}},
	} {
		for _, set := range vendorSets {
			t.Run(way.name+"/"+strings.Join(append([]string{"kernel"}, set...), "+"), func(t *testing.T) {
				t.Parallel()
				app := t.TempDir()
				writeFile(t, filepath.Join(app, "go.mod"), appMod)
				writeFile(t, filepath.Join(app, "main.go"), vendoringProgram(t, example, set, way.own))
				way.get(t, app, set)
				from := proxy
				if way.name != "module" {
					from = "off"
				}
				checkProgram(t, app, from, way.flags)
			})
		}
	}
}

// TestVendorScript is about what scripts/vendor.sh refuses, and says then.
func TestVendorScript(t *testing.T) {
	inRoot(t)
	clone := cloneModule(t, "internal/lockstep", "internal/model", "internal/record", "adapters/prometheus")
	commitAll(t, clone)
	app := t.TempDir()
	writeFile(t, filepath.Join(app, "go.mod"), appMod)
	for _, name := range []string{"notes.txt", "notes2.txt", "notes3.txt"} { // the first is named
		writeFile(t, filepath.Join(app, "mine", name), "not to be lost")
	}
	old := t.TempDir()
	writeFile(t, filepath.Join(old, "go.mod"), "module example.org/old\n\ngo 1.21\n")

	hostile := t.TempDir() // whose module line would be a command of sed, which writes into it
	writeFile(t, filepath.Join(hostile, "go.mod"), "module x|w"+hostile+"\n\ngo 1.25\n")

	for _, test := range []struct {
		dir  string
		args []string
		want string // of the last line
	}{
		{app, nil, "vendor.sh: DEST is missing, the folder for the copy"},
		{app, []string{""}, "vendor.sh: DEST is missing, the folder for the copy"},
		{app, []string{"lib", "statuspages"}, "vendor.sh: no package statuspages; there are batch, explore, gate, keep, lanes, reconciletest, statuspage, tracker, adapters/kube, adapters/nats, adapters/otel, adapters/prometheus"},
		{app, []string{"-x"}, "vendor.sh: no flag -x; there are --update, --tests, --force and -h"},
		{app, []string{"--update", "lib"}, "vendor.sh: lib has no copy to update"},
		{app, []string{"a b"}, "and is not vendor or testdata"}, // with each of these the whole module would not build
		{app, []string{"bücher"}, "and is not vendor or testdata"},
		{app, []string{"vendor/reconcile"}, "and is not vendor or testdata"},
		{app, []string{".lib"}, "and is not vendor or testdata"},
		{t.TempDir(), []string{"lib"}, "is in no Go module: no go.mod in it or above"},
		{hostile, []string{"lib"}, `is no module path: it has ASCII letters, digits, and / - . _ ~ + alone`},
		{old, []string{"lib"}, "vendor.sh: example.org/old says go 1.21, the copy needs 1.25 or newer: go mod edit -go=1.25"},
		{app, []string{"mine"}, "vendor.sh: mine has notes.txt, which is not of a copy made by this script: move it, or choose another folder"},
		{app, []string{"."}, "vendor.sh: . is the root of a module; the copy needs a folder of its own, such as internal/reconcile"},
		{clone, []string{"lib"}, "vendor.sh: lib is in " + modulePath + " itself"},
	} {
		out, err := vendor(clone, test.dir, test.args...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if err == nil || !strings.HasSuffix(lines[len(lines)-1], test.want) {
			t.Errorf("vendor.sh %q: %v, it ends with %q, want an error and %q", test.args, err, lines[len(lines)-1], test.want)
		}
	}
	if entries, err := os.ReadDir(app); err != nil || len(entries) != 2 {
		t.Errorf("after that there is %v, %v: want go.mod and mine alone", entries, err)
	}

	if entries, err := os.ReadDir(hostile); err != nil || len(entries) != 1 {
		t.Errorf("a hostile go.mod made %v, %v: want go.mod alone", entries, err)
	}

	// An older copy is replaced as a whole, unless something would be lost by that.
	copied := filepath.Join(app, "lib")
	note := func() string { return readFile(t, filepath.Join(copied, "VENDORED")) }
	for _, step := range []struct {
		before string // a file of the copy that is written before
		args   []string
		says   string // if it is refused
		want   string // the packages of VENDORED
	}{
		{"", []string{"lib", "statuspage"}, "", ". statuspage"},
		{"", []string{"lib", "batch"}, "lib has statuspage too: name it, say --update", ". statuspage"},
		{"", []string{"--update", copied, "batch"}, "", ". batch statuspage"}, // an absolute path does too
		{"batch/batch.go", []string{"--update", "lib"}, "in lib these were edited since they were copied: batch/batch.go;", ". batch statuspage"},
		{"", []string{"--force", "lib", "statuspage"}, "", ". statuspage"},
		{"extra.go", []string{"--force", "lib", "statuspage"}, "lib has extra.go, which is not of a copy", ". statuspage"},
	} {
		if step.before != "" {
			writeFile(t, filepath.Join(copied, step.before), "package reconcile\n")
		}
		out, err := vendor(clone, app, step.args...)
		if (err != nil) != (step.says != "") || !strings.Contains(out, step.says) {
			t.Fatalf("vendor.sh %q: %v, %s, want it to say %q", step.args, err, out, step.says)
		}
		if !strings.Contains(note(), "\npackages "+step.want+"\n") {
			t.Errorf("after vendor.sh %q VENDORED is\n%s\nwant packages %s", step.args, note(), step.want)
		}
		for name, file := range map[string]string{"batch": "batch/batch.go", "statuspage": "statuspage/assets/style.css"} {
			if _, err := os.Stat(filepath.Join(copied, file)); (err == nil) != strings.Contains(step.want, name) {
				t.Errorf("after vendor.sh %q: %s: %v", step.args, file, err)
			}
		}
	}

	// What VENDORED names is no reason to lose a file.
	forged := filepath.Join(app, "forged")
	writeFile(t, filepath.Join(forged, "mine.go"), "package mine\n")
	writeFile(t, filepath.Join(forged, "VENDORED"), "packages ../..\nfile "+strings.Repeat("0", 64)+" ../go.mod\nfile mine.go\n")
	if out, err := vendor(clone, app, "--update", "forged"); err == nil || !strings.Contains(out, "forged has mine.go, which is not of a copy") {
		t.Errorf("with a forged VENDORED: %v, %s", err, out)
	}

	// With --tests the copy can be tested where it is; an adapter brings what it needs.
	writeFile(t, filepath.Join(app, "go.mod"), appMod+"\nrequire github.com/google/go-cmp v0.7.0\n")
	writeFile(t, filepath.Join(app, "go.sum"), readFile(t, "go.sum"))
	out, err := vendor(clone, app, "--tests", "tested", "gate", "adapters/prometheus")
	if err != nil || !strings.Contains(out, "adapters/prometheus needs other modules, which go mod tidy finds; it is tested with github.com/prometheus/client_golang@v") {
		t.Errorf("vendor.sh --tests: %v, %s", err, out)
	}
	if !strings.Contains(readFile(t, filepath.Join(app, "tested", "adapters", "prometheus", "collector.go")), `"example.org/app/tested"`) {
		t.Error("the adapter does not import the copy")
	}
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output() // it has what the tests here need
	if err != nil {
		t.Fatal(err)
	}
	runGo(t, app, "file://"+strings.TrimSpace(string(cache))+"/cache/download", "-mod=mod", "test", "-timeout=1m", "-run=Goroutines|LoggedStack|Gate", "./tested", "./tested/gate")

	// A copy of what is not committed says so.
	writeFile(t, filepath.Join(clone, "doc.go"), readFile(t, "doc.go")+"\n// Changed.\n")
	if out, err := vendor(clone, app, "other"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if note := readFile(t, filepath.Join(app, "other", "VENDORED")); !regexp.MustCompile(`(?m)^commit [0-9a-f]{40}-dirty$`).MatchString(note) {
		t.Errorf("VENDORED of a changed clone is\n%s", note)
	}
}

// vendor runs the script of a clone in dir. It returns all that it printed.
func vendor(clone, dir string, args ...string) (string, error) {
	cmd := exec.Command("bash", append([]string{filepath.Join(clone, "scripts", "vendor.sh")}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOPROXY=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// exampleBody returns the body of the kernel's package example.
func exampleBody(t *testing.T) string {
	t.Helper()
	_, body, ok := strings.Cut(readFile(t, "example_test.go"), "\nfunc Example() {\n")
	body, _, ends := strings.Cut(body, "\n}\n")
	if !ok || !ends {
		t.Fatal("example_test.go has no package example")
	}
	return body
}

// vendoringProgram returns a program with that body that uses a set of packages
// too, with the imports that it needs.
func vendoringProgram(t *testing.T, body string, set []string, own string) string {
	t.Helper()
	paths := []string{"fmt", "net/http/httptest", "os", "path/filepath", own}
	for _, name := range set {
		body = "\t" + packages[name] + "\n" + body
		paths = append(paths, own+"/"+name)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range parsed.Imports {
		if name := strings.Trim(spec.Path.Value, `"`); name != modulePath {
			paths = append(paths, name)
		}
	}
	slices.Sort(paths)
	var imports strings.Builder
	for _, name := range slices.Compact(paths) {
		if regexp.MustCompile(`\b` + path.Base(name) + `\.`).MatchString(body) {
			imports.WriteString("import \"" + name + "\"\n")
		}
	}
	return "package main\n\n" + imports.String() + "\nfunc main() {\n" + body + "\n}\n"
}

// cloneModule copies what there is to vendor, tests too, and what is in more folders,
// and returns where to. It reads all of it, so that the test cache knows.
func cloneModule(t *testing.T, more ...string) string {
	t.Helper()
	clone := t.TempDir()
	for _, file := range repoFiles(t, "") {
		folder := strings.TrimSuffix(filepath.ToSlash(filepath.Dir(file)), "/assets")
		whole := slices.Contains([]string{"LICENSE", "go.mod", "go.sum", "scripts/vendor.sh"}, filepath.ToSlash(file))
		if packages[folder] == "" && !whole && !(folder == "." && strings.HasSuffix(file, ".go")) && !slices.Contains(more, folder) {
			continue
		}
		writeFile(t, filepath.Join(clone, file), readFile(t, file))
	}
	return clone
}

// commitAll makes a git repository of a folder, and returns its one commit.
func commitAll(t *testing.T, dir string) string {
	t.Helper()
	var out []byte
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "-A"},
		{"-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "All"},
		{"rev-parse", "HEAD"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		var err error
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	return strings.TrimSpace(string(out))
}

// moduleProxy returns the URL of a file-system module proxy that has these modules,
// each in its folder here, as version v0.1.0 and nothing else.
func moduleProxy(t *testing.T, modules map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, dir := range modules {
		versions := filepath.Join(folder, name, "@v")
		writeFile(t, filepath.Join(versions, "list"), "v0.1.0\n")
		writeFile(t, filepath.Join(versions, "v0.1.0.info"), `{"Version":"v0.1.0"}`)
		writeFile(t, filepath.Join(versions, "v0.1.0.mod"), readFile(t, filepath.Join(dir, "go.mod")))
		var archive bytes.Buffer
		w := zip.NewWriter(&archive)
		err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); entry.Name() == ".git" || path != dir && err == nil {
					return filepath.SkipDir // as for a nested module
				}
				return nil
			}
			inside, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			f, err := w.Create(name + "@v0.1.0/" + filepath.ToSlash(inside))
			if err != nil {
				return err
			}
			_, err = f.Write([]byte(readFile(t, path)))
			return err
		})
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(versions, "v0.1.0.zip"), archive.String())
	}
	if runtime.GOOS == "windows" {
		folder = "/" + folder
	}
	return "file://" + filepath.ToSlash(folder)
}

// TestAdaptersCanBeGot gets the adapters as their users will, from a module proxy that
// has all modules as v0.1.0: with nothing but a tag for each, a program that imports
// them can be built. What else they need is from this machine's module cache.
func TestAdaptersCanBeGot(t *testing.T) {
	inRoot(t)
	modules := map[string]string{modulePath: cloneModule(t)}
	dirs, err := filepath.Glob("adapters/[a-z]*")
	if err != nil {
		t.Fatal(err)
	}
	have, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		t.Fatal(err)
	}
	downloads, others, _ := strings.Cut(strings.TrimSpace(string(have)), "\n")
	for _, dir := range dirs {
		modules[modulePath+"/"+filepath.ToSlash(dir)] = dir
	}
	env := append(os.Environ(), "GOFLAGS=-modcacherw", "GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GOMODCACHE="+t.TempDir(),
		"GOPROXY="+moduleProxy(t, modules)+",file://"+filepath.ToSlash(downloads)+"/cache/download,"+others)
	for _, dir := range dirs {
		fill := exec.CommandContext(t.Context(), "go", "list", "-deps", ".") // what it needs, into the cache
		fill.Dir = dir
		if out, err := fill.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", dir, err, out)
		}
		name, app := modulePath+"/"+filepath.ToSlash(dir), t.TempDir()
		writeFile(t, filepath.Join(app, "go.mod"), "module example.org/app\n\ngo 1.26.0\n")
		writeFile(t, filepath.Join(app, "main.go"), "package main\n\nimport _ \""+name+"\"\n\nfunc main() {}\n")
		for _, args := range [][]string{{"get", name + "@v0.1.0"}, {"list", "-deps", "."}} {
			cmd := exec.CommandContext(t.Context(), "go", args...)
			cmd.Dir, cmd.Env = app, env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: go %s: %v\n%s", dir, strings.Join(args, " "), err, out)
			}
		}
	}
}

// checkProgram runs the program in dir and compares the lines that it prints,
// in any order, with what it says that it prints.
func checkProgram(t *testing.T, dir, proxy, flags string) {
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
	got := strings.Split(strings.TrimSpace(runGo(t, dir, proxy, flags, "run", ".")), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the program printed %q, want %q", got, want)
	}
}

// runGo runs the go command in dir, with an empty module cache, and returns what
// it printed. The build cache is that of all, and -trimpath has it hold what was
// built in another folder.
func runGo(t *testing.T, dir, proxy, flags string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GOFLAGS=-trimpath -modcacherw -ldflags=-w "+flags, "GOPROXY="+proxy, "GONOSUMDB="+modulePath, "GOPRIVATE=", "GOWORK=off",
		"GOMODCACHE="+t.TempDir(), "GO111MODULE=on", "GOTOOLCHAIN=local")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
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
