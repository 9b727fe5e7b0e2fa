// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A testFile is one of a peer's.
type testFile struct {
	text  []byte
	file  *ast.File
	fset  *token.FileSet
	tests []string // specs are tests below TestControllerWorkqueue
}

func parse(text []byte) (*testFile, error) {
	f := &testFile{text: text, fset: token.NewFileSet()}
	var err error
	if f.file, err = parser.ParseFile(f.fset, "", text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
		return nil, err
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if name := n.Name.Name; n.Recv == nil && strings.HasPrefix(name, "Test") && name != specsTest {
				f.tests = append(f.tests, name)
			}
		case *ast.CallExpr:
			if name, ok := n.Fun.(*ast.Ident); ok && name.Name == "It" {
				spec, _ := strconv.Unquote(n.Args[0].(*ast.BasicLit).Value)
				f.tests = append(f.tests, specsTest+"/"+strings.ReplaceAll(spec, " ", "_"))
			}
		}
		return true
	})
	return f, nil
}

// specsTest is the one test of a file of specs.
const specsTest = "TestControllerWorkqueue"

// adapted returns the file without what is cut, and with what is rewritten. Each
// test runs in a bubble of testing/synctest: there time passes at once, and what
// hangs is found.
func (f *testFile) adapted(s suite) ([]byte, error) {
	var b bytes.Buffer
	end := 0
	for _, d := range f.file.Decls {
		if !slices.ContainsFunc(namesOf(d), func(name string) bool {
			return s.wants[name].verdict == out || slices.Contains(s.cut, name) || strings.HasPrefix(name, "Benchmark")
		}) {
			continue
		}
		b.Write(f.text[end:f.fset.Position(d.Pos()).Offset])
		end = f.fset.Position(d.End()).Offset
	}
	b.Write(f.text[end:])
	text := b.Bytes()
	for _, r := range s.rewrites {
		text = regexp.MustCompile(`(?m)`+r[0]).ReplaceAll(text, []byte(r[1]))
	}
	for _, name := range f.tests {
		head := fmt.Sprintf("func %s(t *testing.T) {", name)
		_, body, there := bytes.Cut(text, []byte(head))
		if body, _, _ = bytes.Cut(body, []byte("\n}\n")); !there || bytes.Contains(body, []byte("synctest.Test(")) {
			continue
		}
		in := fmt.Sprintf("%s synctest.Test(t, in%s) }\n\nfunc in%s(t *testing.T) {", head, name, name)
		text = bytes.Replace(text, []byte(head), []byte(in), 1)
	}
	if !bytes.Contains(text, []byte(`"testing/synctest"`)) {
		text = bytes.Replace(text, []byte(`"testing"`), []byte("\"testing\"\n\t\"testing/synctest\""), 1)
	}
	if slices.Contains(f.tests, specsTest) || bytes.Contains(text, []byte("\n\tIt(")) {
		text = fmt.Appendf(text, "\nfunc %s(t *testing.T) { runSpecs(t) }\n", specsTest)
	}
	return withoutUnusedImports(text)
}

// namesOf are the names that a declaration declares; of a method, that of its
// receiver's type.
func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		if name, ok := t.(*ast.Ident); ok {
			return []string{name.Name}
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if s, ok := s.(*ast.TypeSpec); ok {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}

func withoutUnusedImports(text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{".": true}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := s.X.(*ast.Ident); ok {
				used[name.Name] = true
			}
		}
		return true
	})
	for _, spec := range slices.Backward(f.Imports) {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if name == "v2" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if !used[name] {
			text = slices.Delete(text, fset.Position(spec.Pos()).Offset, fset.Position(spec.End()).Offset)
		}
	}
	return text, nil
}
