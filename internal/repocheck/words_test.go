// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build repo

package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A privateWord is a word or phrase that had a meaning of its own in this project.
// Readers who know Go and controllers do not know that meaning.
type privateWord struct {
	found *regexp.Regexp
	say   string // the standard term
}

// privateWords are the words that README, documents and godoc do not use.
//
// Some private words cannot be checked, because they are ordinary English in other
// sentences: for, as and where (for a cause); look, wait, goes, meet, left, see and
// report; hold and held (the state table has a held item); floor and ceiling without an
// article; given up (of a lease or a lock) and for good; plan (explore has plans); world,
// stage and terminated (of a Pod). A reader must find those.
var privateWords = []privateWord{
	word(`wish(es|ed|ing)?`, "desired state, desired"),
	word(`what is (wanted|there)`, "desired state; actual state"),
	word(`(is|are|was|were) wanted`, "is desired"),
	word(`(is|are|was|were|be|been|not|all) in order`, "in sync"),
	word(`mend(s|ed|ing)?`, "correct, repair"),
	word(`(a|the|each|every|next|last) look`, "check, recheck"),
	word(`look(s|ed|ing)?( at( it| them)?)? again`, "check again, recheck"),
	word(`holds? each item once`, "holds each item at most once; de-duplicates"),
	word(`(un)?fed`, "enqueued; listed"),
	word(`(is|are|was|were|be|been) told`, "is notified; is logged; is shown"),
	word(`(the )?(far|other) side`, "remote API, provider, server"),
	word(`(an)?other hands?`, "another client, another controller"),
	word(`given up and forgotten`, "not retried; dropped from the queue"),
	word(`(a|the) (floor|ceiling)`, "not before, minimum delay; at the latest, within"),
	word(`bad end`, "failure, permanent failure"),
	word(`disturbances?`, "injected fault"),
	word(`troubles?`, "fault, failure"),
	word(`what never may be`, "invariant"),
	word(`kits?`, "process, environment"),
	word(`promis(e|es|ed|ing)`, "guarantee"),
	word(`(un)?settled`, "in sync; recheck"),
	word(`gate (is|was|stays|stayed) shut`, "the gate is paused"),
}

// wordExceptions are the folders and documents in which the words are not checked, and why.
var wordExceptions = map[string]string{
	"CHANGELOG.md": "it names what was renamed",
}

func word(expression, say string) privateWord {
	return privateWord{regexp.MustCompile(`(?i)\b(` + expression + `)\b`), say}
}

// TestDocsWords checks that the documents and the godoc of each package for users have
// none of the private words. Code is left out.
func TestDocsWords(t *testing.T) {
	inRoot(t)
	texts := map[string]string{}
	for _, path := range repoFiles(t, ".md") {
		excepted := false
		for prefix := range wordExceptions {
			excepted = excepted || strings.HasPrefix(filepath.ToSlash(path), prefix)
		}
		if !excepted {
			texts[path] = proseOf(readFile(t, path))
		}
	}
	for _, path := range repoFiles(t, ".go") {
		if isForUsers(filepath.ToSlash(path)) {
			texts[path] = godocOf(t, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		text := texts[path]
		for _, private := range privateWords {
			for _, at := range private.found.FindAllStringIndex(text, -1) {
				t.Errorf("%s: %q in %q; say: %s", path, text[at[0]:at[1]],
					text[max(0, at[0]-50):min(len(text), at[1]+30)], private.say)
			}
		}
	}
	if len(texts) < 50 {
		t.Errorf("only %d documents and files were read", len(texts))
	}
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan  = regexp.MustCompile("`[^`]*`")
	linkOf    = regexp.MustCompile(`\]\([^)]*\)`)
	pathOf    = regexp.MustCompile(`[\w.-]+/[\w./-]+`)
	spaces    = regexp.MustCompile(`\s+`)
)

// proseOf returns a document in one line, without its code, the targets of its links and paths.
func proseOf(text string) string {
	text = codeBlock.ReplaceAllString(text, " ")
	text = codeSpan.ReplaceAllString(text, "CODE")
	text = linkOf.ReplaceAllString(text, "]")
	text = pathOf.ReplaceAllString(text, "PATH") // such as verify/guarantees
	return spaces.ReplaceAllString(text, " ")
}

// isForUsers reports whether a file is of a package that users import.
func isForUsers(path string) bool {
	if strings.HasSuffix(path, "_test.go") {
		return false
	}
	folders := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
	return !slices.ContainsFunc(folders, func(folder string) bool {
		return slices.Contains([]string{"internal", "verify", "bench", "docs", "example", "found", "referee"}, folder)
	})
}

// godocOf returns, in one line, what go doc shows of a file.
func godocOf(t *testing.T, path string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if file.Name.Name == "main" {
		return ""
	}
	var text strings.Builder
	add := func(groups ...*ast.CommentGroup) {
		for _, group := range groups {
			for line := range strings.Lines(group.Text()) {
				if !strings.HasPrefix(line, "\t") { // code
					text.WriteString(line)
				}
			}
		}
	}
	add(file.Doc)
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Name.IsExported() {
				add(decl.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					if slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
						add(decl.Doc, spec.Doc, spec.Comment)
					}
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					add(decl.Doc, spec.Doc, spec.Comment)
					if fields, ok := spec.Type.(*ast.StructType); ok {
						for _, field := range fields.Fields.List {
							if slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
								add(field.Doc, field.Comment)
							}
						}
					}
				}
			}
		}
	}
	return spaces.ReplaceAllString(codeSpan.ReplaceAllString(text.String(), "CODE"), " ")
}
