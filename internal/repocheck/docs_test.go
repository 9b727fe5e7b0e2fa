// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the documents say is checked here: their programs are text of compiled
// files, the tests they name exist, each guarantee has tests, their links lead
// somewhere, and the table of the five systems is complete.

// TestDocsPrograms checks that every Go block of a document is text of a Go
// file of this repository, so that it compiles and, in a test file, runs.
func TestDocsPrograms(t *testing.T) {
	inRoot(t)
	sources := make(map[string][]string)
	for _, path := range repoFiles(t, ".go") {
		sources[path] = strings.Split(readFile(t, path), "\n")
	}
	for _, path := range repoFiles(t, ".md") {
		for _, block := range goBlocks(readFile(t, path)) {
			found := false
			for _, lines := range sources {
				found = found || contains(lines, block.lines)
			}
			if !found {
				t.Errorf("%s:%d: the Go block is not text of any Go file here:\n%s", path, block.line, strings.Join(block.lines, "\n"))
			}
		}
	}
}

type goBlock struct {
	line  int
	lines []string
}

// goBlocks returns the fenced Go blocks of a Markdown text.
func goBlocks(text string) []goBlock {
	var blocks []goBlock
	var block *goBlock
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```go"):
			block = &goBlock{line: i + 1}
		case strings.HasPrefix(line, "```") && block != nil:
			blocks = append(blocks, *block)
			block = nil
		case block != nil:
			block.lines = append(block.lines, line)
		}
	}
	return blocks
}

// contains reports whether the lines of want stand in have, one after the
// other, perhaps all indented by the same number of tabs.
func contains(have, want []string) bool {
	if len(want) == 0 {
		return false
	}
	for i := range len(have) - len(want) + 1 {
		indent, ok := strings.CutSuffix(have[i], want[0])
		if !ok || strings.Trim(indent, "\t") != "" {
			continue
		}
		same := true
		for j, line := range want {
			if line != "" {
				line = indent + line
			}
			same = same && have[i+j] == line
		}
		if same {
			return true
		}
	}
	return false
}

var testName = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z_]\w*`)

// homes are the packages whose tests a document names, besides those of the
// kernel and of this package. The key is how its path begins; "/..." stands for
// all packages below a folder. The tests of other packages are named with their
// folder, as in "adapters/kube: TestFeed".
var homes = map[string][]string{
	".github/CONTRIBUTING.md":       {"adapters/nats"},
	"adapters/controllerruntime/":   {"adapters/controllerruntime"},
	"adapters/kube/":                {"adapters/kube/..."},
	"adapters/nats/":                {"adapters/nats/..."},
	"adapters/otel/":                {"adapters/otel"},
	"adapters/postgres/":            {"adapters/postgres/..."},
	"adapters/prometheus/":          {"adapters/prometheus"},
	"docs/guides/":                  {"docs/guides/..."},
	"docs/kube.md":                  {"adapters/kube/..."},
	"docs/metrics.md":               {"adapters/prometheus", "adapters/otel"},
	"docs/nats.md":                  {"adapters/nats/..."},
	"docs/production.md":            {"adapters/prometheus", "verify/badday"},
	"docs/verification.md":          {"internal/...", "verify/..."},
	"explore/":                      {"explore", "explore/kubesim/..."},
	"supervise/":                    {"supervise"},
	"verify/guarantees/features.md": {"docs/guides", "example"},
}

// TestDocsTests checks that every test, fuzz target, benchmark or example that
// a document or the kernel's package comment names is in the package that it
// names.
func TestDocsTests(t *testing.T) {
	inRoot(t)
	tests := testsByFolder(t)
	named := 0
	for _, path := range append(repoFiles(t, ".md"), "doc.go") {
		for i, line := range strings.Split(readFile(t, path), "\n") {
			for _, m := range mentions(line, tests) {
				named++
				if !exists(m, path, tests) {
					t.Errorf("%s:%d names %s, which its package does not have; it is in %q", path, i+1, m.test, foldersOf(m.test, tests))
				}
			}
		}
	}
	if named == 0 {
		t.Error("the documents name no test at all")
	}
}

var guarantee = regexp.MustCompile(`^//  (\d+)\. `)

// TestDocsGuarantees checks that docs/verification.md names at least one test for each
// guarantee of the kernel's package comment. TestDocsTests checks that the test exists.
func TestDocsGuarantees(t *testing.T) {
	inRoot(t)
	guarantees := 0
	_, section, _ := strings.Cut(readFile(t, "doc.go"), "# Guarantees\n")
	for line := range strings.Lines(section) {
		if match := guarantee.FindStringSubmatch(line); match != nil {
			guarantees++
			if match[1] != fmt.Sprint(guarantees) {
				t.Errorf("doc.go: guarantee %s, want %d", match[1], guarantees)
			}
		}
	}
	if guarantees == 0 {
		t.Error("doc.go guarantees nothing")
	}

	const path = "docs/verification.md"
	tests := testsByFolder(t)
	shown := 0
	_, section, _ = strings.Cut(readFile(t, path), "## Guarantees and their tests\n")
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 3 || cells[0] != fmt.Sprint(shown+1) {
			continue
		}
		shown++
		if len(mentions(cells[2], tests)) == 0 {
			t.Errorf("%s: guarantee %s is shown by no test: %q", path, cells[0], cells[2])
		}
	}
	if shown != guarantees {
		t.Errorf("%s has rows for %d guarantees, want %d", path, shown, guarantees)
	}
}

var mapped = regexp.MustCompile("`((?:[\\w.-]+/)*[\\w-]+\\.(?:go|md|mod|sh|txt|yml|json))`")

// TestDocsMap checks that the files that the contributor's map names are there.
func TestDocsMap(t *testing.T) {
	inRoot(t)
	const path = ".github/CONTRIBUTING.md"
	named := 0
	for _, match := range mapped.FindAllStringSubmatch(readFile(t, path), -1) {
		if strings.HasPrefix(match[1], "x") {
			continue // x.go stands for any file
		}
		named++
		if _, err := os.Stat(match[1]); err != nil && match[1] != "ci.sh" {
			t.Errorf("%s names a file that is not there: %v", path, err)
		}
	}
	if named == 0 {
		t.Errorf("%s names no file", path)
	}
}

// TestDocsReadmes checks that whoever follows a link to a package for users finds a
// README there, not a list of files, and in it the import path.
func TestDocsReadmes(t *testing.T) {
	inRoot(t)
	dirs, err := filepath.Glob("adapters/[a-z]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(dirs, "batch", "explore", "explore/kubesim", "gate", "lanes", "reconciletest", "refs", "statuspage", "supervise", "tracker") {
		text, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Error(err)
		} else if path := "github.com/reconkernel/reconcile/" + filepath.ToSlash(dir); !bytes.Contains(text, []byte(path)) {
			t.Errorf("%s/README.md does not say that the import path is %s", dir, path)
		}
	}
}

var operated = regexp.MustCompile("`((?:workqueue|controller_runtime|reconcile)_\\w+)`")

// TestDocsProduction checks that adapters/prometheus/README.md has the series that
// docs/production.md names. The tests of adapters/prometheus compare it with a
// scrape, and the alerts of docs/production.md with the rules.
func TestDocsProduction(t *testing.T) {
	inRoot(t)
	metrics := readFile(t, "adapters/prometheus/README.md")
	matches := operated.FindAllStringSubmatch(readFile(t, "docs/production.md"), -1)
	for _, match := range matches {
		if !strings.Contains(metrics, "| `"+match[1]+"` |") {
			t.Errorf("docs/production.md names %s, which adapters/prometheus/README.md does not list", match[1])
		}
	}
	if len(matches) == 0 {
		t.Error("docs/production.md names no series")
	}
}

// A mention is a test that a line names, and the folder if it names that too.
type mention struct{ test, folder string }

var (
	clause = regexp.MustCompile(`[^;|]+`)
	prefix = regexp.MustCompile(`(?:^|[\s(])([\w/-]+): `)
)

// mentions returns the tests that a line names. A folder with a colon holds
// until the next semicolon or the end of the cell.
func mentions(line string, tests map[string]map[string]bool) []mention {
	var found []mention
	for _, part := range clause.FindAllString(line, -1) {
		folder := ""
		for _, match := range prefix.FindAllStringSubmatch(part, -1) {
			if tests[match[1]] != nil {
				folder = match[1]
			}
		}
		for _, name := range testName.FindAllString(part, -1) {
			found = append(found, mention{name, folder})
		}
	}
	return found
}

// exists reports whether the test that a document mentions is where the
// document says that it is.
func exists(m mention, doc string, tests map[string]map[string]bool) bool {
	if m.folder != "" {
		return tests[m.folder][m.test]
	}
	if tests["."][m.test] || tests["internal/repocheck"][m.test] {
		return true
	}
	for begin, folders := range homes {
		if !strings.HasPrefix(doc, begin) {
			continue
		}
		for _, home := range folders {
			for _, folder := range foldersOf(m.test, tests) {
				above, all := strings.CutSuffix(home, "/...")
				if folder == above || all && strings.HasPrefix(folder, above+"/") {
					return true
				}
			}
		}
	}
	return false
}

// foldersOf returns the folders that have a test of this name, sorted.
func foldersOf(test string, tests map[string]map[string]bool) []string {
	var folders []string
	for folder, names := range tests {
		if names[test] {
			folders = append(folders, folder)
		}
	}
	slices.Sort(folders)
	return folders
}

// testsByFolder returns the names of all tests, fuzz targets, benchmarks and
// examples of this repository, by the folder of their package.
func testsByFolder(t *testing.T) map[string]map[string]bool {
	t.Helper()
	tests := make(map[string]map[string]bool)
	for _, path := range repoFiles(t, "_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		if tests[folder] == nil {
			tests[folder] = make(map[string]bool)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && testName.MatchString(fn.Name.Name) {
				tests[folder][fn.Name.Name] = true
			}
		}
	}
	return tests
}

var (
	mdLink    = regexp.MustCompile(`(?:\]\(|(?:src|srcset|href)=")([^)\s"]+)[)"]`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestDocsLinks checks that links to files and headings of this repository
// lead somewhere.
func TestDocsLinks(t *testing.T) {
	inRoot(t)
	for _, path := range repoFiles(t, ".md") {
		for _, match := range mdLink.FindAllStringSubmatch(readFile(t, path), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(match[1], "#")
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s: %v", path, match[1], err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(readFile(t, file)), anchor) {
				t.Errorf("%s links to %s: no such heading", path, match[1])
			}
		}
	}
}

// anchors returns the names under which the headings of a Markdown text can be
// linked to.
func anchors(text string) []string {
	var names []string
	for _, match := range mdHeading.FindAllStringSubmatch(text, -1) {
		name := notAnchor.ReplaceAllString(strings.ToLower(match[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}

// TestDocsSeeds checks that verify/guarantees/features.md has each capability of the five
// systems, of which testdata has the list, in one row, and that the last column of each
// row names a test, unless it says why none is needed. Systems with the same capability
// share a row. TestDocsTests checks that the test exists, and verify/guarantees that it
// fails when the row is broken.
func TestDocsSeeds(t *testing.T) {
	inRoot(t)
	const path = "verify/guarantees/features.md"
	tests := testsByFolder(t)
	row := regexp.MustCompile(`^\| ([A-Z]{2}\d\d(?: [A-Z]{2}\d\d)*) \|`)
	got := make(map[string]int)
	for i, line := range strings.Split(readFile(t, path), "\n") {
		match := row.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		for id := range strings.FieldsSeq(match[1]) {
			got[id]++
		}
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), "|"), " |")
		if len(cells) != 3 {
			t.Errorf("%s:%d: %s has %d columns, want 3", path, i+1, match[1], len(cells))
			continue
		}
		if len(mentions(cells[2], tests)) == 0 && !strings.Contains(cells[1], ": not needed, because ") {
			t.Errorf("%s:%d: %s is shown by nothing: %q", path, i+1, match[1], cells[2])
		}
	}
	ids := strings.Fields(readFile(t, "internal/repocheck/testdata/capabilities.txt"))
	if len(ids) < 100 {
		t.Errorf("the list has %d capabilities", len(ids))
	}
	for _, id := range ids {
		if got[id] != 1 {
			t.Errorf("%s: %d rows for %s, want 1", path, got[id], id)
		}
		delete(got, id)
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		t.Errorf("%s: %s is no capability of the list", path, id)
	}
}
