package integration

import (
	"go/ast"
	"os"
	"regexp"
	"testing"
)

// TestHabitOfClaims: SECURITY.md names a test for each claim, and that test exists.
func TestHabitOfClaims(t *testing.T) {
	text, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, file := range readSource(t, "..") {
		for _, decl := range file.tree.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && file.test {
				have[f.Name.Name] = true
			}
		}
	}
	names := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllSubmatch(text, -1)
	if len(names) < 10 {
		t.Errorf("SECURITY.md names %d tests", len(names))
	}
	for _, name := range names {
		if !have[string(name[1])] {
			t.Errorf("SECURITY.md names %s, which is no test", name[1])
		}
	}
}
