// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo && nightly

package repocheck_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRelease makes a release of a copy of this repository by scripts/release.sh, and publishes
// its tags in a module proxy that is a tree of files. A program that requires each module by
// its version, without a replace, then builds. What else it needs is from the module cache of
// this machine, or from its proxy.
func TestRelease(t *testing.T) {
	inRoot(t)
	const version = "v0.10.0"
	dir, proxy, app := t.TempDir(), t.TempDir(), t.TempDir()
	for _, file := range trackedFiles(t, "") {
		writeFile(t, filepath.Join(dir, file), readFile(t, file))
	}
	writeFile(t, filepath.Join(dir, ".ci", "run"), "echo the gate\n") // takes minutes
	const git = "git -c user.name=releaser -c user.email=releaser@example.org "
	release := func(arg string) (string, error) { // the copy of the script is not executable
		return run(t, dir, "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; bash scripts/release.sh "+arg)
	}
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return out
	}
	must(run(t, dir, "chmod +x .ci/run && git init -q && git add -A && "+git+"commit -qm all && "+git+"tag v0.9.0"))
	for arg, want := range map[string]string{"": "want one argument", "0.1.0": "want v and three numbers", "v0.9.0": "does not come after the last release, v0.9.0", "v0.2.0": "does not come after"} {
		if out, err := release(arg); err == nil || !strings.Contains(out, want) {
			t.Errorf("release.sh %s: %v, %s, want an error with %q", arg, err, out, want)
		}
	}
	out := must(release(version))
	if want := "the gate\n"; !strings.Contains(out, want) {
		t.Errorf("release.sh prints\n%s\nwant %q in it", out, want)
	}
	if out, err := release("v0.11.0"); err == nil || !strings.Contains(out, "no text under the heading") {
		t.Errorf("a second release: %v, %s, want an error: nothing has changed", err, out)
	}

	_, tags, _ := strings.Cut(out, "git push --atomic origin HEAD ")
	get, program := "go mod init example.org/app", "package main\n\n"
	for tag := range strings.FieldsSeq(tags) {
		folder := strings.TrimSuffix(strings.TrimSuffix(tag, version), "/")
		module := strings.TrimSuffix("github.com/reconkernel/reconcile/"+folder, "/")
		publish(t, dir, folder, filepath.Join(proxy, module, "@v"), module+"@"+version)
		get += " && go get " + module + "@" + version
		for pkg := range strings.FieldsSeq(must(run(t, filepath.Join(dir, folder), "go list -f '{{if and .GoFiles (ne .Name \"main\")}}{{.ImportPath}}{{end}}' ./... | grep -v /internal"))) {
			program += "import _ \"" + pkg + "\"\n"
		}
	}
	have := strings.Fields(must(run(t, dir, "go env GOMODCACHE GOPROXY")))
	writeFile(t, filepath.Join(app, "main.go"), program+"\nfunc main() {}\n")
	must(run(t, app, "export GOFLAGS='-modcacherw -mod=mod' GOWORK=off GONOSUMDB=github.com/reconkernel GOMODCACHE="+t.TempDir()+
		" GOPROXY=file://"+proxy+",file://"+have[0]+"/cache/download,"+have[1]+"; "+get+" && go vet -trimpath ."))
}

// publish writes a module of a commit as a module proxy serves it.
func publish(t *testing.T, root, folder, to, version string) {
	t.Helper()
	name := filepath.Join(to, strings.SplitN(version, "@", 2)[1])
	writeFile(t, name+".info", `{"Version": "`+filepath.Base(name)+`"}`)
	writeFile(t, name+".mod", readFile(t, filepath.Join(root, folder, "go.mod")))
	others := "$(git ls-files '*/go.mod' | xargs -r -n 1 dirname | sed 's/^/:!/')" // other modules
	out, err := run(t, filepath.Join(root, folder), "git archive --format=zip --prefix="+version+"/ -o "+name+".zip HEAD . "+others)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run runs a command of the shell in dir.
func run(t *testing.T, dir, command string) (string, error) {
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
