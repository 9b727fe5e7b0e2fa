// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package interleave runs small programs on the real queue under every order
// in which their goroutines can take their steps.
//
// The queue's source is rewritten on the fly: its mutex becomes one of package
// sched, and before and after each channel operation stands a call of sched.
// That copy is compiled in place of the original with go's -overlay; nothing of
// it is kept. Between two steps a goroutine touches nothing that is shared, so
// the orders of the steps are all that there is: code that shares more than
// its lock and its channels guard is the race detector's to find.
//
// This was chosen over a model of the hand-off in another language because it
// is the code that ships that is run, whatever it is changed to; and over
// yields without control because each order is met, once, and again if it fails.
package interleave

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const schedPath = "github.com/reconkernel/reconcile/verify/interleave/sched"

// Overlay rewrites the files in dirs that lock or use channels on behalf of a
// type named Queue, and writes a file for -overlay, and the copies, to out. It
// returns the names of the files that it rewrote.
func Overlay(out string, dirs ...string) (overlay string, rewritten []string, err error) {
	replace := map[string]string{}
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return "", nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := Rewrite(file)
			if err != nil {
				return "", nil, err
			}
			if text == nil {
				continue
			}
			to := filepath.Join(out, fmt.Sprintf("%d_%s", len(replace), filepath.Base(file)))
			if err := os.WriteFile(to, text, 0o666); err != nil {
				return "", nil, err
			}
			abs, err := filepath.Abs(file)
			if err != nil {
				return "", nil, err
			}
			replace[abs] = to
			rewritten = append(rewritten, filepath.Base(file))
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	overlay = filepath.Join(out, "overlay.json")
	return overlay, rewritten, os.WriteFile(overlay, text, 0o666)
}

// Rewrite returns the instrumented text of a file, or nil if it has no method of
// a type named Queue, or nothing to instrument.
func Rewrite(file string) ([]byte, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if !hasQueueMethod(f) {
		return nil, nil
	}
	changed := false
	for _, imp := range f.Imports {
		if imp.Path.Value == `"sync"` {
			imp.Name = ast.NewIdent("sync")
			imp.Path.Value = `"` + schedPath + `"`
			changed = true
		}
	}
	channels := rewriter{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			channels.block(fn.Body)
		}
	}
	if channels.points > 0 {
		changed = true
		f.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{&ast.ImportSpec{
			Name: ast.NewIdent("sched"), Path: &ast.BasicLit{Kind: token.STRING, Value: `"` + schedPath + `"`},
		}}}}, f.Decls...)
	}
	if !changed {
		return nil, nil
	}
	f.Comments = nil
	var b bytes.Buffer
	// The nodes have moved: positions would break lines in odd places.
	if err := format.Node(&b, token.NewFileSet(), f); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func hasQueueMethod(f *ast.File) bool {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv == nil {
			continue
		}
		t := fn.Recv.List[0].Type
		if star, ok := t.(*ast.StarExpr); ok {
			t = star.X
		}
		if index, ok := t.(*ast.IndexExpr); ok {
			t = index.X
		}
		if id, ok := t.(*ast.Ident); ok && id.Name == "Queue" {
			return true
		}
	}
	return false
}

// rewriter puts points around channel operations.
type rewriter struct{ points int }

// block rewrites all lists of statements in n, the inner ones first.
func (r *rewriter) block(n ast.Node) {
	var lists []*[]ast.Stmt
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			lists = append(lists, &n.List)
		case *ast.CaseClause:
			lists = append(lists, &n.Body)
		case *ast.CommClause:
			lists = append(lists, &n.Body)
		}
		return true
	})
	for _, l := range slices.Backward(lists) {
		*l = r.list(*l)
	}
}

func (r *rewriter) list(list []ast.Stmt) (out []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.SendStmt:
			out = append(out, r.point("Point", "send"), s)
			continue
		case *ast.SelectStmt:
			out = append(out, r.selection(s))
			continue
		case *ast.CommClause, *ast.CaseClause: // their bodies are lists of their own
			out = append(out, s)
			continue
		case *ast.ExprStmt, *ast.AssignStmt:
			if receives(ast.Node(s)) {
				out = append(out, r.point("Point", "receive"), s, r.point("Woken", ""))
				continue
			}
		case *ast.ForStmt, *ast.RangeStmt:
			if receives(heads(s)...) || looks(heads(s)...) {
				panic(fmt.Sprintf("interleave: cannot instrument a receive, or a look at a context, in the head of a %T", s))
			}
		default:
			if receives(heads(s)...) {
				panic(fmt.Sprintf("interleave: cannot instrument a receive in a %T", s))
			}
		}
		if looks(heads(s)...) {
			out = append(out, r.point("Look", "context"))
		}
		out = append(out, s)
	}
	return out
}

// selection makes each case of a select one that may be preferred if several
// are ready: the runtime would throw dice.
func (r *rewriter) selection(s *ast.SelectStmt) ast.Stmt {
	var cases []*ast.CommClause
	waits, isLook := true, true
	for _, c := range s.Body.List {
		c := c.(*ast.CommClause)
		if c.Comm == nil {
			waits = false
			continue
		}
		isLook = isLook && ofContext(c.Comm)
		cases = append(cases, c)
	}
	if waits {
		for _, c := range cases {
			c.Body = append([]ast.Stmt{r.point("Woken", "")}, c.Body...)
		}
	} else if isLook {
		return &ast.BlockStmt{List: []ast.Stmt{r.point("Look", "context"), s}}
	}
	rest := &ast.SelectStmt{Body: s.Body}
	if len(cases) < 2 {
		return &ast.BlockStmt{List: []ast.Stmt{r.point("Point", "select"), s}}
	}
	choice := &ast.SwitchStmt{
		Tag: &ast.CallExpr{
			Fun: &ast.SelectorExpr{X: ast.NewIdent("sched"), Sel: ast.NewIdent("Choose")},
			Args: []ast.Expr{
				&ast.BasicLit{Kind: token.INT, Value: fmt.Sprint(len(cases))},
				&ast.BasicLit{Kind: token.STRING, Value: `"select"`},
			},
		},
		Body: &ast.BlockStmt{},
	}
	r.points++
	for i, c := range cases {
		choice.Body.List = append(choice.Body.List, &ast.CaseClause{
			List: []ast.Expr{&ast.BasicLit{Kind: token.INT, Value: fmt.Sprint(i)}},
			Body: []ast.Stmt{&ast.SelectStmt{Body: &ast.BlockStmt{List: []ast.Stmt{
				c, &ast.CommClause{Body: []ast.Stmt{rest}},
			}}}},
		})
	}
	return choice
}

func (r *rewriter) point(kind, at string) ast.Stmt {
	r.points++
	call := &ast.CallExpr{Fun: &ast.SelectorExpr{X: ast.NewIdent("sched"), Sel: ast.NewIdent(kind)}}
	if at != "" {
		call.Args = []ast.Expr{&ast.BasicLit{Kind: token.STRING, Value: `"` + at + `"`}}
	}
	return &ast.ExprStmt{X: call}
}

// heads are the parts of a statement that are not in blocks of its own.
func heads(s ast.Stmt) (heads []ast.Node) {
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.FuncLit:
			return false
		case ast.Expr:
			heads = append(heads, n)
			return false
		}
		return true
	})
	return heads
}

// receives reports whether a channel is received from.
func receives(nodes ...ast.Node) bool {
	return slices.ContainsFunc(nodes, func(n ast.Node) bool {
		return has(n, func(n ast.Node) bool {
			u, ok := n.(*ast.UnaryExpr)
			return ok && u.Op == token.ARROW
		})
	})
}

// looks reports whether a context is asked for its error.
func looks(nodes ...ast.Node) bool {
	return slices.ContainsFunc(nodes, func(n ast.Node) bool {
		return has(n, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return false
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			return ok && sel.Sel.Name == "Err" && len(call.Args) == 0
		})
	})
}

// ofContext reports whether a case receives from what is, by its name, the Done
// channel of a context.
func ofContext(comm ast.Stmt) bool {
	e, ok := comm.(*ast.ExprStmt)
	if !ok {
		return false
	}
	u, ok := e.X.(*ast.UnaryExpr)
	if !ok || u.Op != token.ARROW {
		return false
	}
	switch x := u.X.(type) {
	case *ast.Ident:
		return x.Name == "done"
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Done"
	}
	return false
}

// has reports whether is holds for a part of n that is not in a function of its own.
func has(n ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		found = found || n != nil && is(n)
		return !found
	})
	return found
}
