// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the documents say is checked here: their programs are text of compiled
// files, the tests they name exist, their links lead somewhere, and the table
// of the five systems is complete.

// TestDocsPrograms checks that every Go block of a document is text of a Go
// file of this repository, so that it compiles and, in a test file, runs.
func TestDocsPrograms(t *testing.T) {
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

// TestDocsTests checks that every test, fuzz target, benchmark or example that
// a document or a package comment names exists.
func TestDocsTests(t *testing.T) {
	exist := testNames(t)
	named := 0
	for _, path := range append(repoFiles(t, ".md"), "doc.go") {
		for i, line := range strings.Split(readFile(t, path), "\n") {
			for _, name := range testName.FindAllString(line, -1) {
				named++
				if !exist[name] {
					t.Errorf("%s:%d names %s, which no test file has", path, i+1, name)
				}
			}
		}
	}
	if named == 0 {
		t.Error("the documents name no test at all")
	}
}

// testNames returns the names of all tests, fuzz targets, benchmarks and
// examples of this repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, path := range repoFiles(t, "_test.go") {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && testName.MatchString(fn.Name.Name) {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

var (
	mdLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	mdHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestDocsLinks checks that links to files and headings of this repository
// lead somewhere.
func TestDocsLinks(t *testing.T) {
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

// seeds are the groups of the capabilities of the five systems that led here,
// and how many each has, numbered from 1.
var seeds = map[string]int{
	"KU": 31,
	"GO": 10, "GI": 24, "GF": 4, "GW": 12, "GS": 1, "GL": 10,
	"CR": 9, "CS": 7, "CE": 4, "CP": 2, "CM": 8, "CC": 10, "CQ": 2,
	"KR": 23,
	"SC": 20,
}

// TestDocsSeeds checks that docs/from-the-seeds.md has one row for each
// capability, and that its last column names a test or a recipe.
func TestDocsSeeds(t *testing.T) {
	const path = "docs/from-the-seeds.md"
	exist := testNames(t)
	row := regexp.MustCompile(`^\| ([A-Z]{2}\d\d) \|`)
	shown := regexp.MustCompile(`\[recipe\]\(#[\w-]+\)`)
	got := make(map[string]int)
	for i, line := range strings.Split(readFile(t, path), "\n") {
		match := row.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		got[match[1]]++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 {
			t.Errorf("%s:%d: %s has %d columns, want 4", path, i+1, match[1], len(cells))
			continue
		}
		proof := shown.MatchString(cells[3])
		for _, name := range testName.FindAllString(cells[3], -1) {
			proof = proof || exist[name]
		}
		if !proof {
			t.Errorf("%s:%d: %s is shown by nothing: %q", path, i+1, match[1], cells[3])
		}
	}
	for _, group := range slices.Sorted(maps.Keys(seeds)) {
		for n := range seeds[group] {
			id := fmt.Sprintf("%s%02d", group, n+1)
			if got[id] != 1 {
				t.Errorf("%s: %d rows for %s, want 1", path, got[id], id)
			}
			delete(got, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		t.Errorf("%s: %s is no capability of the list", path, id)
	}
}

// repoFiles returns the files of this repository with the given suffix,
// without testdata and what tools keep in hidden folders.
func repoFiles(t *testing.T, suffix string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && (name == "testdata" || len(name) > 1 && strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(name, suffix) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
