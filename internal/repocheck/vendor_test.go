// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"archive/zip"
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
	"tracker":       `fmt.Print(tracker.Appeared[:0])`,
	"remember":      `if err := (&remember.File[string, int]{}).Open(); err == nil { fmt.Println("a file without a path") }`,
	"statuspage":    `if w := httptest.NewRecorder(); w.Body.Len() == 0 { statuspage.New().ServeHTTP(w, httptest.NewRequest("GET", "/script.js", nil)); if w.Code != 200 { fmt.Println(w) } }`,
	"reconciletest": `fmt.Print(reconciletest.Fails[:0])`,
}

// vendorSets are the sets of packages that TestVendor vendors.
var vendorSets = [][]string{
	{},
	{"tracker"},
	{"remember"},
	{"statuspage"},
	{"reconciletest"},
	{"tracker", "remember", "statuspage", "reconciletest"},
}

// TestVendor builds and runs the kernel's package example, with a line for each
// further package, in a module of its own: in each of the ways of vendoring that
// there are, with no network and an empty module cache.
func TestVendor(t *testing.T) {
	inRoot(t)
	example := exampleBody(t)
	clone := cloneModule(t)
	commit := commitAll(t, clone)
	proxy := moduleProxy(t, clone)

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
	clone := cloneModule(t)
	commitAll(t, clone)
	app := t.TempDir()
	writeFile(t, filepath.Join(app, "go.mod"), appMod)
	writeFile(t, filepath.Join(app, "mine", "notes.txt"), "not to be lost")
	old := t.TempDir()
	writeFile(t, filepath.Join(old, "go.mod"), "module example.org/old\n\ngo 1.21\n")

	for _, test := range []struct {
		dir  string
		args []string
		want string // of the last line
	}{
		{app, nil, "vendor.sh: DEST is missing, the folder for the copy"},
		{app, []string{""}, "vendor.sh: DEST is missing, the folder for the copy"},
		{app, []string{"lib", "statuspages"}, "vendor.sh: no package statuspages; there are remember, reconciletest, statuspage, tracker"},
		{app, []string{"-x"}, "vendor.sh: no flag -x; there is -h"},
		{t.TempDir(), []string{"lib"}, "is in no Go module: no go.mod in it or above"},
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

	// An older copy is replaced as a whole, unless it has what is not of it.
	copied := filepath.Join(app, "lib")
	for _, step := range []struct {
		args   []string
		status bool // whether statuspage is there after
	}{
		{[]string{"lib", "statuspage"}, true},
		{[]string{copied}, false}, // an absolute path does too
	} {
		if out, err := vendor(clone, app, step.args...); err != nil {
			t.Fatalf("vendor.sh %q: %v\n%s", step.args, err, out)
		}
		_, err := os.Stat(filepath.Join(copied, "statuspage", "assets", "style.css"))
		if (err == nil) != step.status {
			t.Errorf("vendor.sh %q: statuspage is there: %v, want %v", step.args, err == nil, step.status)
		}
	}
	writeFile(t, filepath.Join(copied, "extra.go"), "package reconcile\n")
	if out, err := vendor(clone, app, "lib"); err == nil || !strings.Contains(out, "lib has extra.go, which is not of a copy") {
		t.Errorf("over a file of ours: %v, %s", err, out)
	}

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

// cloneModule copies what there is to vendor, tests too, and returns where to. It
// reads all of it, so that the test cache knows.
func cloneModule(t *testing.T) string {
	t.Helper()
	clone := t.TempDir()
	files := []string{"LICENSE", "go.mod", "scripts/vendor.sh"}
	kernel, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, kernel...)
	for name := range packages {
		for _, pattern := range []string{"/*.*", "/assets/*"} {
			found, err := filepath.Glob(name + pattern)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
	}
	for _, file := range files {
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

// moduleProxy returns the URL of a module proxy, which is a folder, that has the
// clone as version v0.1.0 and nothing else.
func moduleProxy(t *testing.T, clone string) string {
	t.Helper()
	folder := t.TempDir()
	versions := filepath.Join(folder, modulePath, "@v")
	writeFile(t, filepath.Join(versions, "list"), "v0.1.0\n")
	writeFile(t, filepath.Join(versions, "v0.1.0.info"), `{"Version":"v0.1.0"}`)
	writeFile(t, filepath.Join(versions, "v0.1.0.mod"), readFile(t, "go.mod"))
	archive, err := os.Create(filepath.Join(versions, "v0.1.0.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	w := zip.NewWriter(archive)
	err = filepath.WalkDir(clone, func(name string, entry os.DirEntry, err error) error {
		if entry.IsDir() && entry.Name() == ".git" {
			return filepath.SkipDir
		}
		if err != nil || entry.IsDir() {
			return err
		}
		inside, err := filepath.Rel(clone, name)
		if err != nil {
			return err
		}
		f, err := w.Create(modulePath + "@v0.1.0/" + filepath.ToSlash(inside))
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(readFile(t, name)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "windows" {
		folder = "/" + folder
	}
	return "file://" + filepath.ToSlash(folder)
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
