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
// a type named Queue or watchers, or nothing to instrument.
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
	channels := rewriter{tokens: offered(f)}
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
		if id, ok := t.(*ast.Ident); ok && (id.Name == "Queue" || id.Name == "watchers") {
			return true
		}
	}
	return false
}

// offered are the names of the channels to which something is sent without
// waiting: those of tokens.
func offered(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectStmt); ok && len(s.Body.List) == 2 {
			first, second := s.Body.List[0].(*ast.CommClause), s.Body.List[1].(*ast.CommClause)
			if send, ok := first.Comm.(*ast.SendStmt); ok && second.Comm == nil {
				names[lastName(send.Chan)] = true
			}
		}
		return true
	})
	return names
}

// lastName is the name of a variable or field.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// rewriter puts points around channel operations.
type rewriter struct {
	tokens map[string]bool // names of channels
	points int
}

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
			out = append(out, r.sends(s), r.point("Point", "send"), s)
			continue
		case *ast.SelectStmt:
			out = append(out, r.selection(s)...)
			continue
		case *ast.CommClause, *ast.CaseClause: // their bodies are lists of their own
			out = append(out, s)
			continue
		case *ast.ExprStmt, *ast.AssignStmt:
			for _, c := range closed(ast.Node(s)) {
				out = append(out, r.call("Touch", c))
			}
			if from := received(ast.Node(s)); len(from) > 0 {
				out = append(append(out, r.receives(from)...), r.point("Receive", ""), s, r.point("Woken", ""))
				continue
			}
		case *ast.ForStmt, *ast.RangeStmt:
			if len(received(heads(s)...)) > 0 || looks(heads(s)...) {
				panic(fmt.Sprintf("interleave: cannot instrument a receive, or a look at a context, in the head of a %T", s))
			}
		default:
			if len(received(heads(s)...)) > 0 {
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

// sends stands before a send that waits.
func (r *rewriter) sends(s *ast.SendStmt) ast.Stmt {
	if r.tokens[lastName(s.Chan)] {
		panic("interleave: cannot instrument a send of a token that waits")
	}
	return r.call("Touch", s.Chan)
}

// receives stand before receives.
func (r *rewriter) receives(from []ast.Expr) (calls []ast.Stmt) {
	for _, c := range from {
		calls = append(calls, r.call("Receives", c, ast.NewIdent(fmt.Sprint(r.tokens[lastName(c)]))))
	}
	return calls
}

// selection makes each case of a select one that may be preferred if several
// are ready: the runtime would throw dice.
func (r *rewriter) selection(s *ast.SelectStmt) (out []ast.Stmt) {
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
	if !waits && len(cases) == 1 {
		if send, ok := cases[0].Comm.(*ast.SendStmt); ok {
			return []ast.Stmt{r.call("Offer", send.Chan), s}
		}
		if isLook {
			return []ast.Stmt{r.call("LookAt", received(cases[0].Comm)[0]), s}
		}
	}
	for _, c := range cases {
		if waits {
			c.Body = append([]ast.Stmt{r.point("Woken", "")}, c.Body...)
		}
		if send, ok := c.Comm.(*ast.SendStmt); ok {
			out = append(out, r.sends(send))
		}
		out = append(out, r.receives(received(c.Comm))...)
	}
	rest := &ast.SelectStmt{Body: s.Body}
	if len(cases) < 2 {
		return append(out, r.point("Receive", ""), s)
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
		var number []ast.Expr // none for the last: a switch with a default may end a function
		if i < len(cases)-1 {
			number = []ast.Expr{&ast.BasicLit{Kind: token.INT, Value: fmt.Sprint(i)}}
		}
		choice.Body.List = append(choice.Body.List, &ast.CaseClause{
			List: number,
			Body: []ast.Stmt{&ast.SelectStmt{Body: &ast.BlockStmt{List: []ast.Stmt{
				c, &ast.CommClause{Body: []ast.Stmt{rest}},
			}}}},
		})
	}
	return append(out, choice)
}

func (r *rewriter) point(kind, at string) ast.Stmt {
	if at == "" {
		return r.call(kind)
	}
	return r.call(kind, &ast.BasicLit{Kind: token.STRING, Value: `"` + at + `"`})
}

func (r *rewriter) call(kind string, args ...ast.Expr) ast.Stmt {
	r.points++
	return &ast.ExprStmt{X: &ast.CallExpr{Fun: &ast.SelectorExpr{X: ast.NewIdent("sched"), Sel: ast.NewIdent(kind)}, Args: args}}
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

// received are the channels that are received from.
func received(nodes ...ast.Node) (from []ast.Expr) {
	for _, n := range nodes {
		has(n, func(n ast.Node) bool {
			if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
				from = append(from, u.X)
			}
			return false
		})
	}
	return from
}

// closed are the channels that are closed.
func closed(n ast.Node) (channels []ast.Expr) {
	has(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 1 && lastName(call.Fun) == "close" {
			channels = append(channels, call.Args[0])
		}
		return false
	})
	return channels
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
