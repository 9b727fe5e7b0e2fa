// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is one change to the code. All of them are planted at once, and an
// environment variable says which one is alive: so the tests are compiled once.
type mutant struct {
	file, in string // in which file, with the folder of the package, and function
	what     string // what is changed
	code     string // the line
	pos      token.Position

	// name is no other mutant's, and stays the same when lines are added elsewhere.
	name string
}

// nameAll names the mutants. Of those that are alike in all else the second is
// number 2.
func nameAll(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		m := &mutants[i]
		m.name = fmt.Sprintf("%s %s: %s in %q", m.file, m.in, m.what, m.code)
		if seen[m.name]++; seen[m.name] > 1 {
			m.name += fmt.Sprintf(" (%d)", seen[m.name])
		}
	}
}

// A planter reads the files of a package and plants mutants.
type planter struct {
	fset    *token.FileSet
	info    *types.Info
	mutants []mutant

	dir string // of the package, from the root

	// of the file at work
	src           []byte
	name, in      string
	before, after map[int][]string  // what is inserted where
	bare          map[ast.Expr]bool // calls that are statements, and what is assigned to
}

// switches is the file that goes with the planted ones.
const switches = `package %s

import (
	mutantOS "os"
	mutantNumbers "strconv"
)

var mutantAlive, _ = mutantNumbers.Atoi(mutantOS.Getenv("MUTANT"))

func mutant(n int) bool { return mutantAlive == n }

func mutantSelect[V any](mutant bool, a, b V) V {
	if mutant {
		return a
	}
	return b
}
`

// plant returns the planted files of the package in a folder below root.
func plant(root, dir string) (files map[string][]byte, mutants []mutant, err error) {
	p := &planter{
		fset: token.NewFileSet(),
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}},
		bare: map[ast.Expr]bool{},
		dir:  dir,
	}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if ok, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !ok {
			if err != nil {
				return nil, nil, err
			}
			continue // of another system
		}
		f, err := parser.ParseFile(p.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		parsed = append(parsed, f)
	}
	if len(parsed) == 0 {
		return nil, nil, fmt.Errorf("no Go files in %s", filepath.Join(root, dir))
	}
	pkg := parsed[0].Name.Name
	config := types.Config{Importer: importer.ForCompiler(p.fset, "source", nil)}
	if _, err := config.Check(pkg, p.fset, parsed, p.info); err != nil {
		return nil, nil, err
	}
	files = map[string][]byte{"mutant_switches.go": fmt.Appendf(nil, switches, pkg)}
	for _, f := range parsed {
		name := p.fset.Position(f.Pos()).Filename
		if p.src, err = os.ReadFile(name); err != nil {
			return nil, nil, err
		}
		p.name = filepath.Base(name)
		p.before, p.after = map[int][]string{}, map[int][]string{}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				p.in = fn.Name.Name
				p.walk(fn.Body)
			}
		}
		files[p.name] = p.text()
	}
	nameAll(p.mutants)
	return files, p.mutants, nil
}

// text is the file with all that was inserted.
func (p *planter) text() []byte {
	var b bytes.Buffer
	for i := 0; i <= len(p.src); i++ {
		for _, s := range p.after[i] {
			b.WriteString(s)
		}
		for _, s := range p.before[i] {
			b.WriteString(s)
		}
		if i < len(p.src) {
			b.WriteByte(p.src[i])
		}
	}
	return b.Bytes()
}

func (p *planter) offset(pos token.Pos) int { return p.fset.Position(pos).Offset }

func (p *planter) source(n ast.Node) string {
	return string(p.src[p.offset(n.Pos()):p.offset(n.End())])
}

// around puts a new mutant around a node. Outer nodes come first.
func (p *planter) around(n ast.Node, what, before, after string) {
	pos := p.fset.Position(n.Pos())
	start := bytes.LastIndexByte(p.src[:pos.Offset], '\n') + 1
	end := pos.Offset + bytes.IndexByte(p.src[pos.Offset:], '\n')
	p.mutants = append(p.mutants, mutant{path.Join(p.dir, p.name), p.in, what, strings.TrimSpace(string(p.src[start:end])), pos, ""})
	number := fmt.Sprintf("mutant(%d)", len(p.mutants))
	i, j := p.offset(n.Pos()), p.offset(n.End())
	p.before[i] = append(p.before[i], strings.ReplaceAll(before, "MUTANT", number))
	p.after[j] = slices.Insert(p.after[j], 0, strings.ReplaceAll(after, "MUTANT", number))
}

// walk plants mutants in what is not yet seen of a node.
func (p *planter) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ExprStmt:
			p.bare[n.X] = true
		case *ast.AssignStmt:
			for _, x := range n.Lhs {
				p.bare[x] = true // an element of a map is not addressable
			}
		case *ast.DeferStmt:
			p.bare[n.Call] = true
		case *ast.GoStmt:
			p.bare[n.Call] = true
		case *ast.BlockStmt:
			p.statements(n.List)
		case *ast.CaseClause:
			p.statements(n.Body)
		case *ast.CommClause:
			p.statements(n.Body)
		case ast.Expr:
			return p.expression(n)
		}
		return true
	})
}

// statements plants the mutants that leave a statement out, or do its opposite.
func (p *planter) statements(list []ast.Stmt) {
	for _, s := range list {
		opposite := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				name := p.source(call.Fun)
				// Without it, all ends in a deadlock, or the compiler objects.
				if strings.HasSuffix(name, ".Unlock") || strings.HasSuffix(name, ".RUnlock") || name == "panic" {
					continue
				}
			}
		case *ast.AssignStmt:
			switch s.Tok {
			case token.DEFINE:
				continue
			case token.ADD_ASSIGN:
				if b, ok := p.info.Types[s.Rhs[0]].Type.Underlying().(*types.Basic); ok && b.Info()&types.IsString != 0 {
					break
				}
				opposite = p.source(s.Lhs[0]) + " -= " + p.source(s.Rhs[0])
			case token.SUB_ASSIGN:
				opposite = p.source(s.Lhs[0]) + " += " + p.source(s.Rhs[0])
			}
		case *ast.IncDecStmt:
			opposite = p.source(s.X) + map[token.Token]string{token.INC: "--", token.DEC: "++"}[s.Tok]
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
				continue
			}
		case *ast.DeferStmt:
			if strings.HasSuffix(p.source(s.Call.Fun), ".Unlock") || strings.HasSuffix(p.source(s.Call.Fun), ".RUnlock") {
				continue
			}
		case *ast.GoStmt, *ast.SendStmt:
		default:
			continue
		}
		p.around(s, "left out", "if !MUTANT { ", " }")
		if opposite != "" {
			p.around(s, opposite, "if MUTANT { "+opposite+" } else { ", " }")
		}
	}
}

var (
	boundaries = map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}
	others     = map[token.Token]string{
		token.ADD: "-", token.SUB: "+", token.MUL: "+", token.QUO: "*", token.REM: "*",
		token.AND: "|", token.OR: "&", token.XOR: "&", token.SHL: ">>", token.SHR: "<<",
	}
)

// expression plants the mutants of an expression; it reports whether the walk
// is to go on below it.
func (p *planter) expression(e ast.Expr) bool {
	tv, ok := p.info.Types[e]
	if !ok || tv.IsType() {
		return ok && !tv.IsType() || !ok
	}
	if lit, ok := e.(*ast.FuncLit); ok {
		p.walk(lit.Body)
		return false
	}
	basic, ok := tv.Type.Underlying().(*types.Basic)
	if !ok || !tv.IsValue() || tv.Addressable() || p.bare[e] {
		return true // what is addressable may be assigned to
	}
	binary, _ := e.(*ast.BinaryExpr)
	switch {
	case basic.Info()&types.IsBoolean != 0:
		if _, ok := e.(*ast.ParenExpr); ok {
			return true
		}
		if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.NOT {
			if inner := p.info.Types[u.X]; inner.Addressable() {
				p.around(e, "negated", "((", ") != MUTANT)")
			}
			return true
		}
		if binary != nil && (binary.Op == token.LAND || binary.Op == token.LOR) {
			x, y := p.source(binary.X), p.source(binary.Y)
			op, other := "&&", "||"
			if binary.Op == token.LOR {
				op, other = other, op
			}
			p.around(e, op+" is "+other, "(MUTANT && (("+x+") "+other+" ("+y+")) || !MUTANT && (", "))")
			for _, operand := range []ast.Expr{binary.X, binary.Y} {
				if t := p.info.Types[operand]; t.Addressable() {
					p.around(operand, "negated", "((", ") != MUTANT)")
				}
			}
			return true
		}
		p.around(e, "negated", "((", ") != MUTANT)")
		if binary != nil && boundaries[binary.Op] != "" {
			other := boundaries[binary.Op]
			x, y := p.source(binary.X), p.source(binary.Y)
			p.around(e, binary.Op.String()+" is "+other, "(MUTANT && ("+x+") "+other+" ("+y+") || !MUTANT && (", "))")
		}
	case basic.Info()&types.IsNumeric != 0 && binary != nil && tv.Value == nil && others[binary.Op] != "":
		if binary.Op == token.SHL && p.info.Types[binary.X].Value != nil {
			return true // its type may come from what is around it
		}
		x, y, other := p.source(binary.X), p.source(binary.Y), others[binary.Op]
		p.around(e, binary.Op.String()+" is "+other, "mutantSelect(MUTANT, ("+x+") "+other+" ("+y+"), ", ")")
	}
	return true
}
