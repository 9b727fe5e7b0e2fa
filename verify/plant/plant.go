// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package plant breaks a Go package in many small ways. A change is named by the
// function it is in, an operation, and identifiers that the changed code mentions,
// never by its text:
//
//	Queue.Close: skip disarmLocked
//	Queue.chooseLocked: edge Background
//	Queue.EnqueueAfter: runHeld=runWithin
//
// All chosen changes are compiled at once. The environment variable PLANTED is the
// number of the one that takes effect.
package plant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The operations. Every change of one of the first group is tried by mutate; those
// of the second group are planted on request.
const (
	Skip    = "skip"    // the statement is left out
	Not     = "not"     // the condition is negated
	Or      = "or"      // && becomes ||
	And     = "and"     // || becomes &&
	Edge    = "edge"    // < becomes <=, and so on
	Arith   = "arith"   // + becomes -, and so on
	Reverse = "reverse" // ++ becomes --, += becomes -=, and so on

	Never     = "never"     // the condition is false
	Always    = "always"    // the condition is true
	Zero      = "zero"      // the argument, element, result, assigned or switched value is zero
	More      = "more"      // it is larger by one
	Less      = "less"      // it is smaller by one
	Twice     = "twice"     // the statement is executed twice
	Unordered = "unordered" // the race detector sees no order in the statement

	// A=B: the constant A is B, or in place of the method A that a statement calls, B
	// is called. The names are those of the statement.
)

// A Change is one small change of one function.
type Change struct {
	Func string // its name, or that of the type, a dot and that of the method
	Op   string
	Pos  token.Position

	names         []string // mentioned by what is changed, in order
	before, after string   // what is put around it
	start, end    int
	seq           int // in the function: outer ones come first
}

// Swept reports whether mutate tries the change.
func (c *Change) Swept() bool {
	switch c.Op {
	case Skip, Not, Or, And, Edge, Arith, Reverse:
		return true
	}
	return false
}

// replaces reports whether the change is one of A=B.
func (c *Change) replaces() bool { return strings.Contains(c.before, "OTHER") }

// A Package is a package whose functions can be changed.
type Package struct {
	Changes []*Change // all but those of A=B

	root, dir string
	name      string
	fset      *token.FileSet
	files     map[string]*source   // by the name of the file
	funcs     map[string][]*Change // by function, those of A=B included, with B unknown
}

type source struct {
	text  []byte
	funcs []int // offsets of their declarations
}

// planter finds the changes of the functions of a package.
type planter struct {
	*Package
	info *types.Info
	src  []byte
	in   string            // the function
	path []ast.Node        // from its body to what is looked at
	bare map[ast.Expr]bool // calls that are statements, and what is assigned to
}

// Read finds all changes of the package in a folder below root.
func Read(root, dir string) (*Package, error) {
	p := &planter{
		Package: &Package{root: root, dir: dir, fset: token.NewFileSet(), files: map[string]*source{}, funcs: map[string][]*Change{}},
		info:    &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}},
		bare:    map[ast.Expr]bool{},
	}
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if ok, err := build.Default.MatchFile(filepath.Split(name)); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue // of another system
		}
		f, err := parser.ParseFile(p.fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	if len(parsed) == 0 {
		return nil, fmt.Errorf("no Go files in %s", filepath.Join(root, dir))
	}
	p.name = parsed[0].Name.Name
	config := types.Config{Importer: importer.ForCompiler(p.fset, "source", nil)}
	if _, err := config.Check(p.name, p.fset, parsed, p.info); err != nil {
		return nil, err
	}
	for _, f := range parsed {
		name := p.fset.Position(f.Pos()).Filename
		if p.src, err = os.ReadFile(name); err != nil {
			return nil, err
		}
		s := &source{text: p.src}
		p.files[filepath.Base(name)] = s
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				p.in = nameOf(fn)
				s.funcs = append(s.funcs, p.offset(fn.Type.Func))
				p.walk(fn.Body)
			}
		}
	}
	return p.Package, nil
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

// Find returns the change that a line names: the function, a colon, the operation,
// and enough of the names that the changed code mentions. If the code that mentions
// them is not one place alone, that which mentions no other name is meant. #2 at the
// end is the second of those that mention the same.
func (p *Package) Find(line string) (*Change, error) {
	fn, rest, _ := strings.Cut(line, ": ")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return nil, fmt.Errorf("%q names no change: want a function, a colon, an operation and names", line)
	}
	op, names, nth := words[0], words[1:], 0
	if n := len(names); n > 0 && names[n-1][0] == '#' {
		var err error
		if nth, err = strconv.Atoi(names[n-1][1:]); err != nil || nth < 1 {
			return nil, fmt.Errorf("%q ends with %s, want a number from 1 on", line, names[n-1])
		}
		names = names[:n-1]
	}
	from, by, replaces := strings.Cut(op, "=")
	var known, of, exact []*Change
	for _, c := range p.funcs[fn] {
		if c.replaces() != replaces {
			continue
		}
		known = append(known, c)
		if c.Op != from || !c.mentions(names) {
			continue
		}
		of = append(of, c)
		if len(c.names) == len(slices.Compact(slices.Sorted(slices.Values(names)))) {
			exact = append(exact, c)
		}
	}
	if len(exact) > 0 && len(of) > 1 {
		of = exact
	}
	slices.SortStableFunc(of, func(a, b *Change) int { return a.start - b.start })
	switch {
	case len(known) == 0:
		return nil, fmt.Errorf("%s: the package has no function %s, or no such change of it", line, fn)
	case nth > len(of) || len(of) == 0:
		return nil, fmt.Errorf("%s: %s has %d such places; it has\n%s", line, fn, len(of), p.describe(known, by))
	case nth == 0 && len(of) > 1:
		return nil, fmt.Errorf("%s: %s has %d such places:\n%s", line, fn, len(of), p.describe(of, by))
	}
	c := *of[max(nth, 1)-1]
	if replaces {
		c.Op, c.before = op, strings.ReplaceAll(c.before, "OTHER", by)
	}
	return &c, nil
}

func (p *Package) describe(changes []*Change, by string) string {
	var b strings.Builder
	for _, c := range changes {
		if by != "" {
			c = &Change{Func: c.Func, Op: c.Op + "=" + by, names: c.names, Pos: c.Pos}
		}
		fmt.Fprintf(&b, "\t%s: %s %s (line %d)\n", c.Func, c.Op, strings.Join(c.names, " "), c.Pos.Line)
	}
	return b.String()
}

func (c *Change) mentions(names []string) bool {
	for _, name := range names {
		if !slices.Contains(c.names, name) {
			return false
		}
	}
	return true
}

// Name is a short line by which Find finds the change, and no other.
func (p *Package) Name(c *Change) string {
	line := func(names ...string) string {
		return strings.TrimSpace(c.Func + ": " + c.Op + " " + strings.Join(names, " "))
	}
	is := func(line string) bool {
		found, err := p.Find(line)
		return err == nil && found.start == c.start && found.Pos == c.Pos && found.end == c.end
	}
	lines := []string{line()}
	for _, name := range slices.Backward(c.names) {
		lines = append(lines, line(name))
	}
	for i, one := range c.names {
		for _, two := range c.names[i+1:] {
			lines = append(lines, line(one, two))
		}
	}
	lines = append(lines, line(c.names...))
	for _, l := range lines {
		if is(l) {
			return l
		}
	}
	for n := 1; ; n++ {
		if l := fmt.Sprintf("%s #%d", line(c.names...), n); is(l) {
			return l
		}
	}
}

// switches is the file that goes with the planted ones.
const switches = `package %s

import (
	plantedOS "os"
	plantedNumbers "strconv"
)

var plantedNumber, _ = plantedNumbers.Atoi(plantedOS.Getenv("PLANTED"))

func planted(n int) bool { return plantedNumber == n }

func plantedSelect[V any](planted bool, a, b V) V {
	if planted {
		return a
	}
	return b
}

func plantedZero[V any](planted bool, v V) (zero V) {
	if planted {
		return zero
	}
	return v
}

type plantedNumeric interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64
}

func plantedMore[V plantedNumeric](planted bool, v V) V {
	if planted {
		v++
	}
	return v
}

func plantedLess[V plantedNumeric](planted bool, v V) V {
	if planted {
		v--
	}
	return v
}
`

// unordered goes with changes that the race detector is to see.
const unordered = `//go:build race

package %s

import plantedRuntime "runtime"

func plantedUnordered(planted bool) (end func()) {
	if !planted {
		return func() {}
	}
	plantedRuntime.RaceDisable()
	return plantedRuntime.RaceEnable
}
`

// Compile builds the tests of the package with the changes in its files, by go test with
// a flag, and returns the path of the binary, in a folder. The first change is number 1.
// With -race, the race detector looks at the memory of the tests, and not at that of the
// package.
func (p *Package) Compile(folder string, changes []*Change, flag string) (binary string, err error) {
	race := flag == "-race"
	files := map[string][]byte{"planted_switches.go": fmt.Appendf(nil, switches, p.name)}
	if race {
		files["planted_unordered.go"] = fmt.Appendf(nil, unordered, p.name)
	}
	for name := range p.files {
		files[name] = p.text(name, changes, race)
	}
	abs, err := filepath.Abs(filepath.Join(p.root, p.dir))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, 0o666); err != nil {
			return "", err
		}
		replace[filepath.Join(abs, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		return "", err
	}
	binary = filepath.Join(folder, "planted.test")
	c := exec.Command("go", "test", "-c", "-vet=off", flag, "-overlay", overlay, "-o", binary, ".")
	c.Dir = abs
	if race {
		c.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %v\n%s", c, err, out)
	}
	return binary, nil
}

// text is a file with the changes in it.
func (p *Package) text(name string, changes []*Change, race bool) []byte {
	src := p.files[name]
	before, after := map[int][]string{}, map[int][]string{}
	if race {
		for _, at := range src.funcs {
			before[at] = append(before[at], "//go:norace\n")
		}
	}
	order := make([]int, len(changes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return changes[i].seq - changes[j].seq }) // outer ones first
	for _, i := range order {
		c := changes[i]
		if filepath.Base(c.Pos.Filename) != name {
			continue
		}
		number := fmt.Sprintf("planted(%d)", i+1)
		before[c.start] = append(before[c.start], strings.ReplaceAll(c.before, "PLANTED", number))
		after[c.end] = slices.Insert(after[c.end], 0, strings.ReplaceAll(c.after, "PLANTED", number))
	}
	var b bytes.Buffer
	for i := 0; i <= len(src.text); i++ {
		for _, s := range after[i] {
			b.WriteString(s)
		}
		for _, s := range before[i] {
			b.WriteString(s)
		}
		if i < len(src.text) {
			b.WriteByte(src.text[i])
		}
	}
	return b.Bytes()
}

func (p *planter) offset(pos token.Pos) int { return p.fset.Position(pos).Offset }

func (p *planter) source(n ast.Node) string {
	return string(p.src[p.offset(n.Pos()):p.offset(n.End())])
}

// around adds a change of a node that is made by what is put around it. The names are
// those that the other nodes mention, and the node itself.
func (p *planter) around(n ast.Node, op, before, after string, named ...ast.Node) {
	c := &Change{
		Func: p.in, Op: op, Pos: p.fset.Position(n.Pos()),
		before: before, after: after, start: p.offset(n.Pos()), end: p.offset(n.End()),
		seq: len(p.funcs[p.in]),
	}
	for _, n := range append(named, n) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				return false // of a function
			case *ast.Ident:
				if n.Name != "_" && !slices.Contains(c.names, n.Name) {
					c.names = append(c.names, n.Name)
				}
			}
			return true
		})
	}
	p.funcs[c.Func] = append(p.funcs[c.Func], c)
	if !c.replaces() {
		p.Changes = append(p.Changes, c)
	}
}

// walk finds the changes of what is not yet seen of a node.
func (p *planter) walk(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) (below bool) {
		if n == nil {
			p.path = p.path[:len(p.path)-1]
			return false
		}
		p.path = append(p.path, n)
		defer func() {
			if !below {
				p.path = p.path[:len(p.path)-1]
			}
		}()
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
		switch n := n.(type) {
		case *ast.IfStmt:
			p.condition(n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				p.condition(n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag != nil {
				p.value(n.Tag)
			}
			for _, s := range n.Body.List {
				for _, x := range s.(*ast.CaseClause).List {
					if n.Tag == nil {
						p.condition(x)
					}
				}
			}
		case *ast.AssignStmt:
			if len(n.Lhs) == len(n.Rhs) {
				for i, x := range n.Rhs {
					p.value(x, n.Lhs[i])
				}
			}
		case *ast.ReturnStmt:
			for _, x := range n.Results {
				p.value(x)
			}
		}
		return true
	})
}

// statement is the innermost one of what is looked at, without its blocks.
func (p *planter) statement() []ast.Node {
	for i, n := range slices.Backward(p.path) {
		switch n := n.(type) {
		case *ast.CaseClause:
			return p.path[i+1:][:1] // one expression of the case
		case ast.Stmt:
			return []ast.Node{n}
		}
	}
	return nil
}

// condition finds the changes that make a condition always the same.
func (p *planter) condition(x ast.Expr) {
	p.around(x, Never, "!PLANTED && (", ")")
	p.around(x, Always, "PLANTED || (", ")")
}

// value finds the changes that make a value another one.
func (p *planter) value(x ast.Expr, named ...ast.Node) {
	tv, ok := p.info.Types[x]
	if !ok || !tv.IsValue() || tv.IsNil() || p.untyped(x, tv) {
		return
	}
	if _, ok := tv.Type.(*types.Tuple); ok {
		return
	}
	p.around(x, Zero, "plantedZero(PLANTED, ", ")", named...)
	if basic, ok := tv.Type.Underlying().(*types.Basic); ok && basic.Info()&types.IsNumeric != 0 {
		p.around(x, More, "plantedMore(PLANTED, ", ")", named...)
		p.around(x, Less, "plantedLess(PLANTED, ", ")", named...)
	}
}

// untyped reports whether the type of x comes from what is around it.
func (p *planter) untyped(x ast.Expr, tv types.TypeAndValue) bool {
	if shift, ok := x.(*ast.BinaryExpr); ok && shift.Op == token.SHL {
		return p.info.Types[shift.X].Value != nil
	}
	if tv.Value == nil {
		return false
	}
	id, ok := x.(*ast.Ident)
	if !ok {
		return true
	}
	basic, ok := p.info.Uses[id].Type().(*types.Basic)
	return ok && basic.Info()&types.IsUntyped != 0
}

// statements finds the changes that leave a statement out, do its opposite, or do it
// twice.
func (p *planter) statements(list []ast.Stmt) {
	for _, s := range list {
		opposite, twice := "", false
		switch s := s.(type) {
		case *ast.ExprStmt:
			twice = true
			if call, ok := s.X.(*ast.CallExpr); ok {
				name := p.source(call.Fun)
				// Without it, all ends in a deadlock, or the compiler objects.
				if strings.HasSuffix(name, ".Unlock") || strings.HasSuffix(name, ".RUnlock") || name == "panic" {
					continue
				}
				if m, ok := call.Fun.(*ast.SelectorExpr); ok {
					other := p.source(m.X) + ".OTHER" + strings.TrimPrefix(p.source(call), name)
					p.around(s, m.Sel.Name, "if PLANTED { "+other+" } else { ", " }")
				}
			}
		case *ast.AssignStmt:
			twice = true
			switch s.Tok {
			case token.DEFINE:
				p.around(s, Unordered, "plantedEnd := plantedUnordered(PLANTED); ", "; plantedEnd()")
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
		p.around(s, Skip, "if !PLANTED { ", " }")
		if opposite != "" {
			p.around(s, Reverse, "if PLANTED { "+opposite+" } else { ", " }")
		}
		if twice {
			p.around(s, Twice, "if PLANTED { "+p.source(s)+" }; ", "")
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

// expression finds the changes of an expression; it reports whether the walk is to
// go on below it.
func (p *planter) expression(e ast.Expr) bool {
	tv, ok := p.info.Types[e]
	if !ok || tv.IsType() {
		return ok && !tv.IsType() || !ok
	}
	switch e := e.(type) {
	case *ast.FuncLit:
		p.walk(e.Body)
		return false
	case *ast.CallExpr:
		if !p.info.Types[e.Fun].IsType() && !p.info.Types[e.Fun].IsBuiltin() {
			defer func() {
				for _, x := range e.Args {
					p.value(x, e.Fun)
				}
			}()
		}
	case *ast.CompositeLit:
		defer func() {
			for _, x := range e.Elts {
				if kv, ok := x.(*ast.KeyValueExpr); ok {
					p.value(kv.Value, kv.Key)
				}
			}
		}()
	case *ast.Ident:
		if _, ok := p.info.Uses[e].(*types.Const); ok {
			p.around(e, e.Name, "plantedSelect(PLANTED, OTHER, ", ")", p.statement()...)
		}
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
				p.around(e, Not, "((", ") != PLANTED)")
			}
			return true
		}
		if binary != nil && (binary.Op == token.LAND || binary.Op == token.LOR) {
			x, y := p.source(binary.X), p.source(binary.Y)
			name, other := Or, "||"
			if binary.Op == token.LOR {
				name, other = And, "&&"
			}
			p.around(e, name, "(PLANTED && (("+x+") "+other+" ("+y+")) || !PLANTED && (", "))")
			for _, operand := range []ast.Expr{binary.X, binary.Y} {
				if t := p.info.Types[operand]; t.Addressable() {
					p.around(operand, Not, "((", ") != PLANTED)")
				}
			}
			return true
		}
		p.around(e, Not, "((", ") != PLANTED)")
		if binary != nil && boundaries[binary.Op] != "" {
			other := boundaries[binary.Op]
			x, y := p.source(binary.X), p.source(binary.Y)
			p.around(e, Edge, "(PLANTED && ("+x+") "+other+" ("+y+") || !PLANTED && (", "))")
		}
	case basic.Info()&types.IsNumeric != 0 && binary != nil && tv.Value == nil && others[binary.Op] != "":
		if p.untyped(binary, tv) {
			return true
		}
		x, y, other := p.source(binary.X), p.source(binary.Y), others[binary.Op]
		p.around(e, Arith, "plantedSelect(PLANTED, ("+x+") "+other+" ("+y+"), ", ")")
	}
	return true
}
