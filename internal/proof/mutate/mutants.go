package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pack is a package with its mutants.
type pack struct {
	fset    *token.FileSet
	files   []*source
	info    *types.Info
	types   *types.Package
	mutants []*mutant
	seen    map[string]int // number of mutants with the same fn and change
	stale   []string       // lines of the list that match no mutant
}

// source is one file of the package.
type source struct {
	path  string
	text  []byte
	ast   *ast.File
	spots []*spot // by position, outer ones first
}

// spot is a piece of source that is rendered with its mutants. render gets sub,
// which renders a part of the piece with the mutants further in.
type spot struct {
	from, to int
	render   func(sub func(from, to int) string) string
}

type mutant struct {
	id         int
	file       string
	line       int
	fn         string  // enclosing function
	change     string  // description of the change, with the source
	nth        int     // number among those with the same fn and change, from 0
	equivalent bool    // listed as equivalent
	tests      []*test // tests that pass its place, the quickest first
	fate       fate
	by         string // first line of output that says what noticed it
}

// oneLine returns a text with each run of white space replaced by one space. It is
// applied to all keys, printed ones and those of a list.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// key identifies the mutant, whatever file or line it moves to.
func (m *mutant) key() string {
	key := m.fn + ": " + m.change
	if m.nth > 0 {
		key += fmt.Sprintf(" [%d]", m.nth+1)
	}
	return key
}

// alive reports whether no test noticed the mutant.
func (m *mutant) alive() bool { return m.fate == survived || m.fate == unreached }

// verdict returns what became of the mutant.
func (m *mutant) verdict() string {
	text := fmt.Sprintf("%v: %v", m.fate, m)
	if m.by != "" {
		text += ": " + m.by
	}
	return text
}

func (m *mutant) String() string { return fmt.Sprintf("%s:%d: %s", m.file, m.line, m.key()) }

// load reads the package in dir, as it is built here and without its tests.
func load(dir string) (*pack, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	p := &pack{fset: token.NewFileSet(), seen: make(map[string]int), info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object),
	}}
	found, err := build.ImportDir(abs, 0)
	if err != nil {
		return nil, err
	}
	var asts []*ast.File
	for _, name := range found.GoFiles {
		path := filepath.Join(abs, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(p.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, &source{path: path, text: text, ast: f})
		asts = append(asts, f)
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(abs); err != nil { // the importer asks the go command
		return nil, err
	}
	defer os.Chdir(here)
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "source", nil)}
	if p.types, err = conf.Check(asts[0].Name.Name, p.fset, asts, p.info); err != nil {
		return nil, err
	}
	for _, f := range p.files {
		p.find(f)
	}
	return p, nil
}

// finder walks the functions of one file.
type finder struct {
	*pack
	*source
	fn      string
	endless map[*ast.BranchStmt]bool // those inside a loop without a condition
}

func (p *pack) find(s *source) {
	w := &finder{p, s, "", make(map[*ast.BranchStmt]bool)}
	for _, d := range s.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		w.fn = fn.Name.Name
		if fn.Recv != nil {
			w.fn = strings.Trim(w.piece(fn.Recv.List[0].Type), "*") + "." + w.fn
		}
		w.results(fn.Type, fn.Body)
		ast.Inspect(fn.Body, w.visit)
	}
	slices.SortStableFunc(s.spots, func(a, b *spot) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
}

func (w *finder) offset(p token.Pos) int { return w.fset.Position(p).Offset }

func (w *finder) piece(n ast.Node) string {
	return string(w.text[w.offset(n.Pos()):w.offset(n.End())])
}

// mutant registers a mutant at a node and returns its number.
func (w *finder) mutant(n ast.Node, change string) int {
	change = oneLine(change)
	m := &mutant{
		id: len(w.mutants) + 1, file: filepath.Base(w.path), line: w.fset.Position(n.Pos()).Line,
		fn: w.fn, change: change,
	}
	m.nth = w.seen[w.fn+change]
	w.seen[w.fn+change]++
	w.mutants = append(w.mutants, m)
	return m.id
}

func (w *finder) spot(n ast.Node, render func(sub func(from, to int) string) string) {
	w.spots = append(w.spots, &spot{w.offset(n.Pos()), w.offset(n.End()), render})
}

// part returns how to render a node inside a spot.
func (w *finder) part(n ast.Node) (from, to int) { return w.offset(n.Pos()), w.offset(n.End()) }

func (w *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		w.statements(n.List)
	case *ast.CaseClause:
		w.statements(n.Body)
	case *ast.CommClause:
		w.statements(n.Body)
	case *ast.FuncLit:
		w.results(n.Type, n.Body)
	case *ast.IfStmt:
		w.condition(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			w.never(n.Cond)
		} else { // may end a function that returns something: no break out of it
			ast.Inspect(n.Body, func(n ast.Node) bool {
				if b, ok := n.(*ast.BranchStmt); ok {
					w.endless[b] = true
				}
				return true
			})
		}
	case *ast.BinaryExpr:
		w.binary(n)
	case *ast.UnaryExpr:
		if lit, ok := n.X.(*ast.BasicLit); ok && n.Op == token.SUB && lit.Kind != token.STRING {
			w.oneHigher(n)
			return false
		}
	case *ast.BasicLit:
		w.literal(n)
	case *ast.Ident:
		w.constant(n)
	case *ast.CallExpr:
		w.call(n)
	case *ast.GenDecl:
		return n.Tok != token.CONST && n.Tok != token.TYPE
	case *ast.KeyValueExpr:
		ast.Inspect(n.Value, w.visit)
		return false
	case *ast.ArrayType, *ast.SelectorExpr:
		if s, ok := n.(*ast.SelectorExpr); ok {
			ast.Inspect(s.X, w.visit)
		}
		return false
	}
	return true
}

// statements leaves statements out, one at a time.
func (w *finder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.SendStmt:
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || w.piece(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok == token.FALLTHROUGH || s.Label != nil {
				continue
			}
		default:
			continue
		}
		id := w.mutant(s, "leave out `"+w.piece(s)+"`")
		others, ids := w.otherStatements(s), []int(nil)
		for _, other := range others {
			ids = append(ids, w.mutant(s, fmt.Sprintf("`%s` in the place of `%s`", other, w.piece(s))))
		}
		from, to := w.part(s)
		w.spot(s, func(sub func(int, int) string) string {
			text := ""
			for i, other := range others {
				text += fmt.Sprintf("if mutantIs(%d) { %s } else ", ids[i], other)
			}
			return text + fmt.Sprintf("if !mutantIs(%d) { %s }", id, sub(from, to))
		})
	}
}

var otherAssignments = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.MUL_ASSIGN: token.QUO_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN,
}

// otherStatements returns what may stand in the place of a statement: break for
// continue, ++ and -- exchanged, another operator or none in an assignment.
func (w *finder) otherStatements(s ast.Stmt) (others []string) {
	switch s := s.(type) {
	case *ast.BranchStmt:
		if s.Tok == token.CONTINUE && !w.endless[s] {
			others = append(others, "break")
		}
	case *ast.IncDecStmt:
		other := map[token.Token]token.Token{token.INC: token.DEC, token.DEC: token.INC}[s.Tok]
		others = append(others, w.piece(s.X)+other.String())
	case *ast.AssignStmt:
		if s.Tok == token.ASSIGN {
			break
		}
		x, y := w.piece(s.Lhs[0]), w.piece(s.Rhs[0])
		others = append(others, x+" = "+y)
		isText := types.Identical(w.info.Types[s.Lhs[0]].Type.Underlying(), types.Typ[types.String])
		if other, ok := otherAssignments[s.Tok]; ok && !isText {
			others = append(others, fmt.Sprintf("%s %v %s", x, other, y))
		}
	}
	return others
}

// condition makes a condition always and never true.
func (w *finder) condition(cond ast.Expr) {
	always := w.mutant(cond, "always `"+w.piece(cond)+"`")
	never := w.mutant(cond, "never `"+w.piece(cond)+"`")
	from, to := w.part(cond)
	w.spot(cond, func(sub func(int, int) string) string {
		return fmt.Sprintf("(mutantIs(%d) || !mutantIs(%d) && (%s))", always, never, sub(from, to))
	})
}

// never makes the condition of a loop never true; always would not end.
func (w *finder) never(cond ast.Expr) {
	id := w.mutant(cond, "never `"+w.piece(cond)+"`")
	from, to := w.part(cond)
	w.spot(cond, func(sub func(int, int) string) string {
		return fmt.Sprintf("(!mutantIs(%d) && (%s))", id, sub(from, to))
	})
}

var otherOps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
	token.REM: {token.MUL}, token.AND: {token.OR}, token.SHR: {token.SHL},
}

// binary exchanges the operator.
func (w *finder) binary(n *ast.BinaryExpr) {
	tv := w.info.Types[n]
	if tv.Value != nil || strings.Contains(w.piece(n), "recover()") {
		return // a constant has to stay one, and recover works only where it stands
	}
	result, ok := w.typeText(tv.Type)
	if !ok || types.Identical(tv.Type.Underlying(), types.Typ[types.String]) {
		return
	}
	text := new(strings.Builder)
	var ids []int
	ops := otherOps[n.Op]
	for _, op := range ops {
		ids = append(ids, w.mutant(n, fmt.Sprintf("`%s` with %s", w.piece(n), op)))
	}
	xf, xt := w.part(n.X)
	yf, yt := w.part(n.Y)
	w.spot(n, func(sub func(int, int) string) string {
		text.Reset()
		x, y := sub(xf, xt), sub(yf, yt)
		fmt.Fprintf(text, "func() %s { ", result)
		for i, op := range ops {
			fmt.Fprintf(text, "if mutantIs(%d) { return (%s) %s (%s) }; ", ids[i], x, op, y)
		}
		fmt.Fprintf(text, "return (%s) %s (%s) }()", x, n.Op, y)
		return text.String()
	})
}

// literal makes a number one higher.
func (w *finder) literal(n *ast.BasicLit) {
	if n.Kind != token.INT && n.Kind != token.FLOAT {
		return
	}
	w.oneHigher(n)
}

// constant makes a value of an enumeration, or a named number, one higher.
func (w *finder) constant(n *ast.Ident) {
	c, ok := w.info.Uses[n].(*types.Const)
	if !ok || c.Pkg() != w.types {
		return
	}
	if b, ok := c.Type().Underlying().(*types.Basic); ok && b.Info()&types.IsNumeric != 0 {
		w.oneHigher(n)
	}
}

func (w *finder) oneHigher(n ast.Expr) {
	t := w.info.Types[n].Type
	if t == nil {
		return
	}
	text, ok := w.typeText(types.Default(t))
	if !ok || text == "rune" {
		return
	}
	id := w.mutant(n, "`"+w.piece(n)+"` + 1 in `"+w.lineOf(n)+"`")
	from, to := w.part(n)
	w.spot(n, func(sub func(int, int) string) string {
		return fmt.Sprintf("mutantLit[%s](%d, %s)", text, id, sub(from, to))
	})
}

func (w *finder) lineOf(n ast.Node) string {
	from := w.offset(n.Pos())
	begin := bytes.LastIndexByte(w.text[:from], '\n') + 1
	end := from + bytes.IndexByte(w.text[from:], '\n')
	line, _, _ := strings.Cut(string(w.text[begin:end]), " // ")
	return line
}

// call weakens a compare-and-swap, and exchanges min and max.
func (w *finder) call(n *ast.CallExpr) {
	switch f := n.Fun.(type) {
	case *ast.SelectorExpr:
		if f.Sel.Name != "CompareAndSwap" || len(n.Args) != 2 {
			return
		}
		id := w.mutant(n, "store in the place of `"+w.piece(n)+"`")
		xf, xt := w.part(f.X)
		vf, vt := w.part(n.Args[1])
		from, to := w.part(n)
		w.spot(n, func(sub func(int, int) string) string {
			return fmt.Sprintf("func() bool { if mutantIs(%d) { %s.Store(%s); return true }; return %s }()",
				id, sub(xf, xt), sub(vf, vt), sub(from, to))
		})
	case *ast.Ident:
		other := map[string]string{"min": "max", "max": "min"}[f.Name]
		result, ok := w.typeText(w.info.Types[n].Type)
		if other == "" || !ok || w.info.Types[n].Value != nil {
			return
		}
		id := w.mutant(n, other+" in the place of `"+w.piece(n)+"`")
		from, to := w.part(n)
		fnEnd := w.offset(f.End())
		w.spot(n, func(sub func(int, int) string) string {
			return fmt.Sprintf("func() %s { if mutantIs(%d) { return %s%s }; return %s }()",
				result, id, other, sub(fnEnd, to), sub(from, to))
		})
	}
}

// results makes the returns of a function return zero values, or the other bool.
func (w *finder) results(t *ast.FuncType, body *ast.BlockStmt) {
	if t.Results == nil {
		return
	}
	var zeros []string
	for _, field := range t.Results.List {
		text := w.piece(field.Type)
		for range max(len(field.Names), 1) {
			zeros = append(zeros, "*new("+text+")")
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false // has results of its own
		}
		r, ok := n.(*ast.ReturnStmt)
		if !ok || len(r.Results) != len(zeros) || w.isZero(r) {
			return true
		}
		id := w.mutant(r, "zero for `"+w.piece(r)+"`")
		from, to := w.part(r)
		values := strings.Join(zeros, ", ")
		if tv := w.info.Types[r.Results[0]]; len(zeros) == 1 && tv.Type != nil && w.piece(t.Results.List[0].Type) == "bool" {
			vf, vt := w.part(r.Results[0])
			w.spot(r, func(sub func(int, int) string) string {
				return fmt.Sprintf("if mutantIs(%d) { return !(%s) }; %s", id, sub(vf, vt), sub(from, to))
			})
			return true
		}
		w.spot(r, func(sub func(int, int) string) string {
			return fmt.Sprintf("if mutantIs(%d) { return %s }; %s", id, values, sub(from, to))
		})
		return true
	})
}

// isZero reports whether a return returns nothing but zero values as it is.
func (w *finder) isZero(r *ast.ReturnStmt) bool {
	for _, e := range r.Results {
		zero := w.info.Types[e].IsNil() || strings.HasSuffix(w.piece(e), "{}")
		if v := w.info.Types[e].Value; v != nil {
			switch v.Kind() {
			case constant.Int, constant.Float:
				zero = constant.Sign(v) == 0
			case constant.String:
				zero = constant.StringVal(v) == ""
			case constant.Bool: // a single one becomes the other
				zero = !constant.BoolVal(v) && len(r.Results) > 1
			}
		}
		if !zero {
			return false
		}
	}
	return true
}

// typeText returns the text of a type in this file, if it has one here.
func (w *finder) typeText(t types.Type) (string, bool) {
	if t == nil {
		return "", false
	}
	ok := true
	text := types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == w.types {
			return ""
		}
		ok = ok && slices.ContainsFunc(w.ast.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"`+p.Path()+`"`
		})
		return p.Name()
	})
	return text, ok && !strings.Contains(text, "untyped")
}

// render returns the files with all mutants in them.
func (p *pack) render() map[string][]byte {
	out := make(map[string][]byte)
	for _, s := range p.files {
		out[s.path] = []byte(s.part(0, len(s.text), 0))
	}
	return out
}

// part renders a part of the source with the spots from number first on that lie
// in it.
func (s *source) part(from, to, first int) string {
	var b strings.Builder
	for i := first; i < len(s.spots); i++ {
		spot := s.spots[i]
		if spot.from < from || spot.to > to {
			continue
		}
		b.Write(s.text[from:spot.from])
		b.WriteString(spot.render(func(from, to int) string { return s.part(from, to, i+1) }))
		from = spot.to
	}
	b.Write(s.text[from:to])
	return b.String()
}

// support returns the file with what the mutants call.
func (p *pack) support() []byte {
	return fmt.Appendf(nil, `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var mutantChosen, _ = strconv.Atoi(os.Getenv("MUTANT"))
var mutantTrace = mutantOpen()
var mutantSeen [%d]atomic.Bool

func mutantOpen() *os.File {
	name := os.Getenv("MUTANT_TRACE")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

func mutantNote(id int) {
	if !mutantSeen[id].Swap(true) {
		mutantTrace.WriteString(strconv.Itoa(id) + "\n")
	}
}

func mutantIs(id int) bool {
	if mutantTrace != nil {
		mutantNote(id)
	}
	return mutantChosen == id
}

func mutantLit[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64](id int, v T) T {
	if mutantIs(id) {
		return v + 1
	}
	return v
}
`, p.types.Name(), len(p.mutants)+1)
}
