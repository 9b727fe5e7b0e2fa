// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promises

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A kernelBreak is a change of one function that breaks a promise.
type kernelBreak struct {
	promise  string // its number, or what else has the test named
	half     string // of the promise
	test     string // that must fail, or Test/subtest
	race     bool   // under the race detector
	file, fn string // a method is Type.Name
	what     string
	hunks    []hunk
}

// A hunk says by which lines others are replaced. What they are indented by does
// not count.
type hunk struct{ old, new []string }

// readBreaks reads the table of the breaks.
func readBreaks(name string) ([]*kernelBreak, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var breaks []*kernelBreak
	var of kernelBreak // what the lines above the break say
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		wrong := func(want string) error { return fmt.Errorf("%s:%d: want %s, got %q", name, n, want, line) }
		words := strings.TrimSpace(line)
		head, rest, colon := strings.Cut(words, ": ")
		switch {
		case words == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "\t- ") || strings.HasPrefix(line, "\t+ "):
			if len(breaks) == 0 {
				return nil, wrong("a break before its lines")
			}
			breaks[len(breaks)-1].addLine(words[0] == '+', strings.TrimSpace(words[2:]))
		case strings.HasPrefix(line, "\t"):
			b := of
			if b.file, b.fn, _ = strings.Cut(head, " "); !colon || b.fn == "" || b.test == "" {
				return nil, wrong("a file, a function and what is broken, below a test")
			}
			b.what = rest
			breaks = append(breaks, &b)
		case strings.HasPrefix(line, "= "):
			of = kernelBreak{promise: strings.TrimPrefix(head, "= ")}
		default:
			if !colon || of.promise == "" {
				return nil, wrong("half of a promise, and the test that shows it")
			}
			of.half = head
			of.test, of.race = strings.CutSuffix(rest, " -race")
		}
	}
	return breaks, nil
}

func (b *kernelBreak) topTest() string {
	test, _, _ := strings.Cut(b.test, "/")
	return test
}

func (b *kernelBreak) addLine(isNew bool, line string) {
	if last := len(b.hunks) - 1; last < 0 || !isNew && len(b.hunks[last].new) > 0 {
		b.hunks = append(b.hunks, hunk{})
	}
	h := &b.hunks[len(b.hunks)-1]
	if isNew {
		h.new = append(h.new, line)
	} else {
		h.old = append(h.old, line)
	}
}

// switches is the file that goes with the planted ones.
const switches = `package reconcile

import (
	"os"
	"strconv"
)

var brokenNow, _ = strconv.Atoi(os.Getenv("BROKEN"))
`

// unordered is for breaks under the race detector: what f does orders nothing, as
// far as the detector can see.
const unordered = `//go:build race

package reconcile

import "runtime"

func unordered(f func()) {
	runtime.RaceDisable()
	f()
	runtime.RaceEnable()
}
`

// plant returns the files of the kernel with all breaks in them, those under the
// race detector or the others. Of each function that a break changes there is a
// changed copy, and an environment variable says which copy is called in its
// place: so the tests are compiled once. The race detector looks at no memory of
// the kernel itself, so that what it finds is that of the tests.
func plant(root string, breaks []*kernelBreak, race bool) (files map[string][]byte, err error) {
	files = map[string][]byte{"broken_switch.go": []byte(switches)}
	inFile := map[string][]int{} // indexes of breaks
	for i, b := range breaks {
		if b.race == race {
			inFile[b.file] = append(inFile[b.file], i)
		}
	}
	if race {
		files["broken_unordered.go"] = []byte(unordered)
		names, err := filepath.Glob(filepath.Join(root, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			name = filepath.Base(name)
			if _, ok := inFile[name]; !ok && !strings.HasSuffix(name, "_test.go") {
				inFile[name] = nil // no break, but the detector is not to look
			}
		}
	}
	for name, indexes := range inFile {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		inserts := map[int]string{} // by offset
		var copies bytes.Buffer
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && race {
				inserts[fset.Position(fn.Type.Func).Offset] = "//go:norace\n"
			}
		}
		for _, i := range indexes {
			b := breaks[i]
			fn := find(f, b.fn)
			if fn == nil {
				return nil, fmt.Errorf("%s has no function %s any more: %s", b.file, b.fn, b.what)
			}
			at := func(p token.Pos) int { return fset.Position(p).Offset }
			changed := fmt.Sprintf("%sBroken%d", fn.Name.Name, i+1)
			other, err := b.apply(string(text[at(fn.Type.Func):at(fn.End())]))
			if err != nil {
				return nil, err
			}
			copies.WriteString("\n//go:norace\n" + strings.Replace(other, " "+fn.Name.Name, " "+changed, 1) + "\n")
			call, err := callOf(fn, changed)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %v", b.file, b.fn, err)
			}
			inserts[at(fn.Body.Lbrace)+1] += fmt.Sprintf(" if brokenNow == %d { %s }; ", i+1, call)
		}
		var planted bytes.Buffer
		for i, c := range text {
			planted.WriteString(inserts[i])
			planted.WriteByte(c)
		}
		files[name] = append(planted.Bytes(), copies.Bytes()...)
	}
	return files, nil
}

// apply replaces lines of a function.
func (b *kernelBreak) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for _, h := range b.hunks {
		var found []int
		for i := range lines {
			if i+len(h.old) <= len(lines) && slices.EqualFunc(lines[i:i+len(h.old)], h.old, func(line, old string) bool {
				return strings.TrimSpace(line) == old
			}) {
				found = append(found, i)
			}
		}
		if len(found) != 1 || len(h.old) == 0 {
			return "", fmt.Errorf("%s %s has %d times what is to be replaced, want once; has the code changed? %s\n%s",
				b.file, b.fn, len(found), b.what, strings.Join(h.old, "\n"))
		}
		lines = slices.Replace(lines, found[0], found[0]+len(h.old), h.new...)
	}
	if len(b.hunks) == 0 {
		return "", fmt.Errorf("%s %s: nothing is replaced: %s", b.file, b.fn, b.what)
	}
	return strings.Join(lines, "\n"), nil
}

func find(f *ast.File, name string) *ast.FuncDecl {
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && nameOf(fn) == name {
			return fn
		}
	}
	return nil
}

// nameOf is the name of a function, or Type.Name.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + fn.Name.Name
		default:
			return fn.Name.Name
		}
	}
}

// callOf is a call of another function in place of fn.
func callOf(fn *ast.FuncDecl, name string) (string, error) {
	call := name
	if fn.Recv != nil {
		if len(fn.Recv.List[0].Names) == 0 {
			return "", fmt.Errorf("the receiver has no name")
		}
		call = fn.Recv.List[0].Names[0].Name + "." + name
	}
	names := func(list *ast.FieldList) (names []string, err error) {
		if list == nil {
			return nil, nil
		}
		for _, field := range list.List {
			if len(field.Names) == 0 {
				return nil, fmt.Errorf("a parameter has no name")
			}
			for _, id := range field.Names {
				if id.Name == "_" {
					return nil, fmt.Errorf("a parameter has no name")
				}
				name := id.Name
				if _, ok := field.Type.(*ast.Ellipsis); ok {
					name += "..."
				}
				names = append(names, name)
			}
		}
		return names, nil
	}
	types, err := names(fn.Type.TypeParams)
	if err != nil {
		return "", err
	}
	if len(types) > 0 {
		call += "[" + strings.Join(types, ", ") + "]"
	}
	args, err := names(fn.Type.Params)
	if err != nil {
		return "", err
	}
	call += "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results.NumFields() > 0 {
		return "return " + call, nil
	}
	return call + "; return", nil
}
