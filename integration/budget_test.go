package integration

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The budgets. Code over them is not wrong, it is more than one reader holds in
// mind at once; the way out is another type or another package, seldom an exception.
const (
	maxFunctionLines = 60
	maxFileLines     = 400
	maxExported      = 20 // names of a package and of its exported types' methods
	maxFields        = 8  // of a struct that does something
	maxRecordFields  = 14 // of a struct that only holds values
	maxParameters    = 4  // besides a context
	maxMethods       = 5  // of an interface
	maxNesting       = 3  // of if, for, switch and select in a function
)

// exceptions are the breaches we live with, by the key that the failure prints,
// each with its reason. One that nothing needs any more fails the test.
var exceptions = map[string]string{
	"exported sandbox/container":                       "the words of CRI's container configuration, one type each; split up they would only be harder to find",
	"parameters cri/stream.execution.ExecInContainer":  "cri-streaming's interface",
	"parameters cri/stream.attachment.AttachContainer": "cri-streaming's interface",
}

func TestBudgetsHold(t *testing.T) {
	for _, f := range unexcused(checkBudgets(readSource(t, "..")), exceptions) {
		t.Errorf("%s: %s (key %q)", f.at, f.say, f.key)
	}
}

// unexcused returns the findings without an exception, and the exceptions without a finding.
func unexcused(found []finding, excused map[string]string) []finding {
	var left []finding
	needed := map[string]bool{}
	for _, f := range found {
		needed[f.key] = true
		if excused[f.key] == "" {
			left = append(left, f)
		}
	}
	for key := range excused {
		if !needed[key] {
			left = append(left, finding{key: key, at: "budget_test.go", say: "this exception is not needed any more"})
		}
	}
	return left
}

// budgets collects findings file by file.
type budgets struct {
	found    []finding
	exported map[string][]string        // by package
	methods  map[string]map[string]bool // names of types with methods, by package
	docs     map[string]docs            // by package
}

// docs is where a package says what it is.
type docs struct {
	files   int
	inDocGo bool
	inOther bool
}

// good says whether the comment is where a reader looks first.
func (d docs) good() bool { return d.inDocGo || d.inOther && d.files == 1 }

// checkBudgets returns what is over a budget or without documentation.
func checkBudgets(files []sourceFile) []finding {
	b := &budgets{exported: map[string][]string{}, methods: methodOwners(files), docs: map[string]docs{}}
	for _, file := range files {
		b.fileLength(file)
		for _, decl := range file.tree.Decls {
			if function, ok := decl.(*ast.FuncDecl); ok {
				b.function(file, function)
			} else if !file.test {
				b.general(file, decl.(*ast.GenDecl))
			}
		}
		b.packageDoc(file)
	}
	b.packages()
	return b.found
}

// methodOwners returns the names of the types that have methods.
func methodOwners(files []sourceFile) map[string]map[string]bool {
	owners := map[string]map[string]bool{}
	for _, file := range files {
		for _, decl := range file.tree.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || file.test || receiver(function) == "" {
				continue
			}
			if owners[file.dir] == nil {
				owners[file.dir] = map[string]bool{}
			}
			owners[file.dir][receiver(function)] = true
		}
	}
	return owners
}

// add notes a breach. The object is a name in the file's package.
func (b *budgets) add(file sourceFile, pos token.Pos, rule, object, say string, numbers ...any) {
	key := rule + " " + file.dir + "." + object
	b.found = append(b.found, finding{key: key, at: file.at(pos), say: object + fmt.Sprintf(say, numbers...)})
}

// packageDoc notes whether the file has its package's comment.
func (b *budgets) packageDoc(file sourceFile) {
	if file.test {
		return
	}
	d := b.docs[file.dir]
	d.files++
	if file.tree.Doc != nil {
		inDocGo := strings.HasSuffix(file.path, "/doc.go")
		d.inDocGo, d.inOther = d.inDocGo || inDocGo, d.inOther || !inDocGo
	}
	b.docs[file.dir] = d
}

func (b *budgets) fileLength(file sourceFile) {
	if lines := file.line(file.tree.FileEnd); lines > maxFileLines {
		name := file.path[strings.LastIndex(file.path, "/")+1:]
		b.add(file, file.tree.Package, "file", name, " has %d lines, at most %d: split it by what it is about", lines, maxFileLines)
	}
}

// function checks a function or method: tests for their length, others for all.
func (b *budgets) function(file sourceFile, decl *ast.FuncDecl) {
	name, owner := decl.Name.Name, receiver(decl)
	if owner != "" {
		name = owner + "." + name
	}
	if lines := file.line(decl.End()) - file.line(decl.Pos()) + 1; lines > maxFunctionLines {
		b.add(file, decl.Pos(), "lines", name, " has %d lines, at most %d: name its steps", lines, maxFunctionLines)
	}
	if file.test {
		return
	}
	if n := parameters(decl.Type); n > maxParameters {
		b.add(file, decl.Pos(), "parameters", name, " has %d parameters, at most %d and a context: pass a struct", n, maxParameters)
	}
	if depth := nesting(decl.Body); depth > maxNesting {
		b.add(file, decl.Pos(), "nesting", name, " nests %d deep, at most %d: return early or name the inner part", depth, maxNesting)
	}
	if decl.Name.IsExported() && (owner == "" || ast.IsExported(owner)) {
		b.export(file, decl.Name, name, decl.Doc)
	}
}

// general checks declarations of types, constants and variables.
func (b *budgets) general(file sourceFile, decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			b.typ(file, spec)
			if spec.Name.IsExported() {
				b.export(file, spec.Name, spec.Name.Name, spec.Doc, spec.Comment, decl.Doc)
			}
		case *ast.ValueSpec:
			b.values(file, decl, spec)
		}
	}
}

func (b *budgets) values(file sourceFile, decl *ast.GenDecl, spec *ast.ValueSpec) {
	for _, name := range spec.Names {
		if name.IsExported() {
			b.export(file, name, name.Name, spec.Doc, spec.Comment, decl.Doc)
		}
	}
}

// export counts an exported name, which one of the comments has to document.
func (b *budgets) export(file sourceFile, ident *ast.Ident, name string, docs ...*ast.CommentGroup) {
	if !slices.ContainsFunc(docs, func(doc *ast.CommentGroup) bool { return doc != nil }) {
		b.add(file, ident.Pos(), "doc", name, " is exported and has no comment: say what it promises")
	}
	if file.tree.Name.Name != "main" && !strings.Contains(name, ".") {
		b.exported[file.dir] = append(b.exported[file.dir], name)
	}
}

// typ checks the width of structs and interfaces, also of those without a name inside of others.
func (b *budgets) typ(file sourceFile, spec *ast.TypeSpec) {
	name := spec.Name.Name
	ast.Inspect(spec.Type, func(node ast.Node) bool {
		switch kind := node.(type) {
		case *ast.StructType:
			limit, what := maxRecordFields, "a record"
			if b.methods[file.dir][name] && !tagged(kind) || acts(kind) {
				limit, what = maxFields, "a struct that does something"
			}
			if n := kind.Fields.NumFields(); n > limit {
				b.add(file, kind.Pos(), "fields", name, " has %d fields, %s at most %d: some of them are a type of their own", n, what, limit)
			}
		case *ast.InterfaceType:
			if n := kind.Methods.NumFields(); n > maxMethods {
				b.add(file, kind.Pos(), "methods", name, " has %d methods, at most %d: callers need a part of it each", n, maxMethods)
			}
		}
		return true
	})
}

// packages checks what is counted over all files of a package.
func (b *budgets) packages() {
	for dir, names := range b.exported {
		if len(names) > maxExported {
			slices.Sort(names)
			say := fmt.Sprintf("%s exports %d names, at most %d: %s", dir, len(names), maxExported, strings.Join(names, " "))
			b.found = append(b.found, finding{key: "exported " + dir, at: dir, say: say})
		}
	}
	for dir, docs := range b.docs {
		if !docs.good() {
			b.found = append(b.found, finding{key: "doc.go " + dir, at: dir, say: dir + " has no doc.go with a package comment, where readers begin"})
		}
	}
}

// receiver returns the name of a method's type, "" for a function.
func receiver(decl *ast.FuncDecl) string {
	if decl.Recv == nil || len(decl.Recv.List) == 0 {
		return ""
	}
	kind := decl.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr:
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name
		default:
			return ""
		}
	}
}

// parameters counts parameters but for a context.
func parameters(kind *ast.FuncType) int {
	count := kind.Params.NumFields()
	for _, field := range kind.Params.List {
		if selector, ok := field.Type.(*ast.SelectorExpr); ok && selector.Sel.Name == "Context" {
			count--
		}
	}
	return count
}

// nesting returns how deep if, for, switch and select are in each other. An
// else-if is as deep as its if; a function literal begins anew.
func nesting(node ast.Node) int {
	deepest := 0
	chained := map[ast.Node]bool{}
	var stack []int
	depth := 0
	visit := func(node ast.Node) bool {
		if node == nil {
			depth, stack = stack[len(stack)-1], stack[:len(stack)-1]
			return false
		}
		stack = append(stack, depth)
		switch kind := node.(type) {
		case *ast.IfStmt:
			if kind.Else != nil {
				chained[kind.Else] = true
			}
			if !chained[kind] {
				depth++
			}
		case *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			depth++
		case *ast.FuncLit:
			depth = 0
		}
		deepest = max(deepest, depth)
		return true
	}
	if body, ok := node.(*ast.BlockStmt); ok && body != nil {
		ast.Inspect(body, visit)
	}
	return deepest
}

// tagged says whether every field has a tag: then the struct is a format.
func tagged(kind *ast.StructType) bool {
	return !slices.ContainsFunc(kind.Fields.List, func(f *ast.Field) bool { return f.Tag == nil })
}

// acts says whether a struct has a lock or a channel, which values have not.
func acts(kind *ast.StructType) bool {
	return slices.ContainsFunc(kind.Fields.List, func(f *ast.Field) bool {
		if _, ok := f.Type.(*ast.ChanType); ok {
			return true
		}
		selector, ok := f.Type.(*ast.SelectorExpr)
		return ok && (selector.Sel.Name == "Mutex" || selector.Sel.Name == "RWMutex" || selector.Sel.Name == "WaitGroup")
	})
}
