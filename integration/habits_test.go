package integration

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// complaints are how an error's text must not begin: it says what was being done.
var complaints = []string{"failed", "unable", "could not", "couldn't", "cannot", "can't", "error "}

func TestHabitsHold(t *testing.T) {
	for _, f := range checkHabits(readSource(t, "..")) {
		t.Errorf("%s: %s", f.at, f.say)
	}
}

// checkHabits returns inits, sleeping tests and complaining errors.
func checkHabits(files []sourceFile) []finding {
	var found []finding
	for _, file := range files {
		imports := file.imports()
		ast.Inspect(file.tree, func(node ast.Node) bool {
			if say := badHabit(file, imports, node); say != "" {
				found = append(found, finding{at: file.at(node.Pos()), say: say})
			}
			return true
		})
	}
	return found
}

// badHabit returns what is wrong with a node by itself.
func badHabit(file sourceFile, imports map[string]string, node ast.Node) string {
	switch node := node.(type) {
	case *ast.FuncDecl:
		if node.Name.Name == "init" && node.Recv == nil && !locksThread(imports, node) {
			return "init: what a package needs is handed to it, so that a reader sees where it comes from"
		}
	case *ast.CallExpr:
		switch called(imports, node) {
		case "time.Sleep":
			if file.test && imports["synctest"] != "testing/synctest" {
				return "time.Sleep in a test: wait for what is to happen, or test time with testing/synctest"
			}
		case "fmt.Errorf", "errors.New":
			if text := complaint(node); text != "" {
				return strconv.Quote(text) + ": an error says what was being done (\"opening file: ...\"), that it failed is known"
			}
		}
	}
	return ""
}

// locksThread says whether an init does nothing but lock the main thread, which
// is sure to be the one that it runs on only there.
func locksThread(imports map[string]string, decl *ast.FuncDecl) bool {
	if len(decl.Body.List) != 1 {
		return false
	}
	statement, ok := decl.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	return ok && called(imports, call) == "runtime.LockOSThread"
}

// called returns the function that a call names, as "time.Sleep".
func called(imports map[string]string, call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	name, ok := selector.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return imports[name.Name] + "." + selector.Sel.Name
}

// complaint returns the text of an error that wraps another and complains.
func complaint(call *ast.CallExpr) string {
	if len(call.Args) == 0 {
		return ""
	}
	literal, ok := call.Args[0].(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil || !strings.Contains(text, "%w") {
		return ""
	}
	for _, word := range complaints {
		if strings.HasPrefix(strings.ToLower(text), word) {
			return text
		}
	}
	return ""
}

func TestEachBadHabitIsFound(t *testing.T) {
	tests := []struct {
		claim, file, body string
		want              int
	}{
		{"init", "network/a.go", "func init() {}", 1},
		{"init that locks the thread", "cmd/crib/a.go", "import \"runtime\"\nfunc init() { runtime.LockOSThread() }", 0},
		{"sleeping test", "network/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", 1},
		{"sleeping bubble", "network/a_test.go", "import (\n\"testing/synctest\"\n\"time\"\n)\nfunc f() { time.Sleep(1) }", 0},
		{"sleeping code", "network/a.go", "import \"time\"\nfunc f() { time.Sleep(1) }", 0},
		{"complaining wrap", "network/a.go", "import \"fmt\"\nvar _ = fmt.Errorf(\"Failed to open: %w\", nil)", 1},
		{"telling wrap", "network/a.go", "import \"fmt\"\nvar _ = fmt.Errorf(\"opening file: %w\", nil)", 0},
	}
	for _, test := range tests {
		t.Run(test.claim, func(t *testing.T) {
			files := writeSource(t, map[string]string{test.file: "package a\n" + test.body + "\n"})
			if found := checkHabits(files); len(found) != test.want {
				t.Errorf("found %v, want %d", found, test.want)
			}
		})
	}
}
